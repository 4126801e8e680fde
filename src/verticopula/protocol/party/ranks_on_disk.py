"""Where the noisy ranks of many people lie until they are sent."""

from __future__ import annotations

from collections.abc import Iterable

from verticopula.data.scratch_file import ScratchFile
from verticopula.protocol.rank_messages import ColumnRelease


def keep_on_disk(releases: Iterable[ColumnRelease]) -> tuple[ColumnRelease, ...]:
    """The same releases, with their ranks in a scratch file; `releases` are drawn one after the other."""
    file = ScratchFile()
    kept = [(release.column, file.append(release.ranks.T), release.cells) for release in releases]
    mapped = file.map()
    return tuple(ColumnRelease(name, ranks.within(mapped).T, cells) for name, ranks, cells in kept)
