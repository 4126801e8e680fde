"""Gaps in synthetic tables: none at all, or as many as the real tables have."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from verticopula.data.missingness import Missingness
from verticopula.errors import SettingsError
from verticopula.schema.columns import ColumnKey
from verticopula.schema.setting_choices import AS_OBSERVED, COMPLETE

Floats = NDArray[np.float64]


def check_missing(missing: str | None) -> None:
    """SettingsError unless it is one of the two words, or None for what the method gives.

    Parameters
    ----------
    missing : as `Synthesizer.sample` has it
    """
    if missing not in (None, AS_OBSERVED, COMPLETE):
        raise SettingsError(f"missing must be {AS_OBSERVED!r} or {COMPLETE!r}, not {missing!r}")


def empty_as_observed(
    values: Mapping[ColumnKey, Floats],
    missingness: Missingness,
    rng: np.random.Generator,
    filled: Collection[ColumnKey] = (),
    required: Collection[ColumnKey] = (),
) -> dict[ColumnKey, Floats]:
    """Rows in which blocks are missing by the public patterns, and single values as often as in their columns.

    What is missing does not depend on what the row holds: only the patterns are public, not why they are as they are.

    Parameters
    ----------
    filled : columns that keep their values in all rows; SettingsError if nobody is known to all of their parties
    required : columns that are empty only where their whole block is missing, as the federation file says
    """
    n_rows = len(next(iter(values.values())))
    parties = {key.party for key in filled}
    needed = np.array([party in parties for party in missingness.parties])
    patterns = [(np.array(seen), count) for seen, count in missingness.patterns if np.array(seen)[needed].all()]
    if not patterns:
        raise SettingsError(f"nobody is known to all of {', '.join(sorted(parties))}: their blocks are never complete")
    counts = np.array([count for _, count in patterns], dtype=np.float64)
    drawn = rng.choice(len(patterns), n_rows, p=counts / counts.sum())
    known = np.array([seen for seen, _ in patterns])[drawn]
    found = {}
    for key, own in values.items():
        k = missingness.parties.index(key.party)
        share = missingness.observed[key] / max(int(missingness.overlap[k, k]), 1)
        here = known[:, k] & ((rng.random(n_rows) < share) | (key in required))
        found[key] = own if key in filled else np.where(here, own, np.nan)
    return found
