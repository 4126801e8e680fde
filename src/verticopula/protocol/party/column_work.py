"""How a party works on its columns: one after the other or several at a time, and who is told how far it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


@dataclass(frozen=True)
class ColumnWork:
    """How columns are worked on.

    Attributes
    ----------
    executor : where, in parallel; None for one after the other
    on_column : called with the number of comparisons after each column, for progress bars
    """

    executor: Executor | None = None
    on_column: Callable[[int], None] = lambda comparisons: None

    def map(self, work: Callable[[_Item], _Made], items: Iterable[_Item]) -> Iterator[_Made]:
        """What is made of each item, in their order and one by one: a large one is put away before the next."""
        return map(work, items) if self.executor is None else self.executor.map(work, items)
