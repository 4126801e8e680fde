"""A party's record of one study's secure sums, from which it makes the same replies again, and no others."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, repr=False)
class SumsRecord:
    """One party's record of one study. No repr: it holds secrets.

    Attributes
    ----------
    secret : hex; keys and shares are derived from it
    plan : digest of the plan and the keys that the party has bound itself to; "" before
    proofs : dealer -> what it has fixed in that dealer's proof (`mpc.proof_rounds`)
    inputs : digest of the shares that it has added up; "" before
    noise : its noise on them, as base64 of 64-bit integers; "" before
    selection : what it has released of its own features by presence, likewise; "" before
    choice : digest of the pairs whose tables it has added up; "" before
    tables_noise : its noise on those; "" before
    """

    secret: str
    plan: str = ""
    inputs: str = ""
    noise: str = ""
    selection: str = ""
    choice: str = ""
    tables_noise: str = ""
    proofs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def pack_noise(noise: NDArray[np.int64]) -> str:
    return base64.b64encode(noise.astype("<i8").tobytes()).decode("ascii")


def unpack_noise(text: str) -> NDArray[np.int64]:
    return np.frombuffer(base64.b64decode(text), dtype="<i8").astype(np.int64)
