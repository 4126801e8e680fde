"""What a strict fit says about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.formatting import json_numbers

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class TiltedPair:
    """Two columns whose table tilts the copula.

    Attributes
    ----------
    first, second : the columns, as `party.column`
    opened : whether their table was opened; otherwise products of features say what it is like
    missed : total variation distance between table and copula, as the first opening let one expect
    added : the distance between the posterior table and the copula's own
    """

    first: str
    second: str
    opened: bool
    missed: float
    added: float


@dataclass(frozen=True)
class StrictReport:
    """How it went, and what can be relied on.

    Attributes
    ----------
    rank : factors that stand out of the noise
    spread_within, spread_between : standard deviation of correlations around the factors, inside a party and across
    patterns : of parties that know a person
    parties : their names, in the order of the next ones
    raw_error : (K, K) standard error of one correlation from noise and overlap alone; inf where nobody was counted
        with both, 0 where there is no pair of ordered columns
    expected_error : (K, K) the same with the help of all other pairs; noise, sampling and the factors' own error, not
        what is left of selection
    realised_error : (K, K) root mean square of what the noisy correlations are away from the fitted ones
    supported : (K, K) whether the data support a correlation of the two parties at this budget
    flat : columns whose noisy margin has all mass in one cell
    pairs : those that tables tilt, the most important first; none in a study of an earlier version
    learnt : whether anything stood out of the noise; otherwise columns are drawn independently
    misfit : mean total variation distance between the posterior tables and the rows that the fit ended with
    """

    rank: int
    spread_within: float
    spread_between: float
    patterns: int
    parties: tuple[str, ...]
    raw_error: Floats
    expected_error: Floats
    realised_error: Floats
    supported: Bools
    flat: tuple[str, ...]
    pairs: tuple[TiltedPair, ...] = ()
    learnt: bool = True
    misfit: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for files and reports; None where an error is infinite."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["pairs"] = [asdict(pair) for pair in self.pairs]
        plain: dict[str, Any] = json_numbers(
            {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}
        )
        return plain

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> StrictReport:
        """What `to_dict` wrote; a report of an earlier version may say more."""
        arrays: dict[str, Any] = {
            name: np.array([[np.inf if x is None else x for x in row] for row in raw[name]], dtype=kind)
            for name, kind in _ARRAYS.items()
        }
        names = {name: tuple(raw[name]) for name in ("parties", "flat")}
        known = {field.name: raw[field.name] for field in fields(cls) if field.name in raw}
        pairs = tuple(TiltedPair(**pair) for pair in raw.get("pairs", ()))
        return cls(**{**known, **arrays, **names, "pairs": pairs})

    @property
    def unsupported(self) -> tuple[tuple[str, str], ...]:
        """Pairs of parties whose correlations are more expectation than data."""
        names = self.parties
        return tuple((names[a], names[b]) for a, b in np.argwhere(np.triu(~self.supported)))


_ARRAYS: dict[str, type] = {
    "raw_error": np.float64,
    "expected_error": np.float64,
    "realised_error": np.float64,
    "supported": np.bool_,
}


def by_parties(squares: Floats, counted: Bools, owners: Ints, n_parties: int) -> Floats:
    """(K, K) root mean squares over the counted pairs of latents; 0 where there are none, inf where all are."""
    found = np.zeros((n_parties, n_parties))
    for a in range(n_parties):
        for b in range(n_parties):
            chosen = counted & (owners[:, None] == a) & (owners == b)
            if chosen.any():
                found[a, b] = np.sqrt(np.mean(squares[chosen]))
    return found
