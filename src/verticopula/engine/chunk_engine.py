"""What a computation on chunks of rows asks of an engine.

A function of a chunk is a plain function of values that can be pickled: run again, anywhere, it gives the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol


class ChunkEngine(Protocol):
    """Runs functions near the data. Results stay there until they are fetched."""

    def submit(self, function: Callable[..., Any], *given: Any) -> Any:
        """A handle of `function(*given)`.

        Parameters
        ----------
        function : of a module of verticopula
        given : values; handles, and lists of them, stand for their results
        """
        ...

    def fetch(self, handles: Sequence[Any]) -> list[Any]:
        """What the functions returned, brought to this process; EngineError or SchemaError where one failed.

        Parameters
        ----------
        handles : as `submit` gave them
        """
        ...

    def close(self) -> None:
        """Forget everything that was submitted."""
        ...
