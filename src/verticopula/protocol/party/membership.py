"""What a party needs in rounds with others: the federation as it knows it, its signature, and its subjects' ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verticopula.mpc.sealed_messages import Authenticity
from verticopula.protocol.party.expected_plans import ExpectedPlans
from verticopula.schema.federation import Federation


@dataclass(frozen=True, repr=False)
class Membership:
    """A party's place among the others; without one it answers only what needs no other party.

    Attributes
    ----------
    federation : its own file, which says who takes part in secure sums and with which columns; without it the party
        takes no part in them
    authenticity : how its public keys in secure sums are signed, and the others' are known; None for none
    ids : the ids of some of the cohort's subjects, so that it is remembered over whom exact sums were made; None where
        nobody is to be remembered, as where a mechanism is run on its own
    plans : of secure sums, as the party computes them itself; parties of one process may share them
    """

    federation: Federation | None = None
    authenticity: Authenticity | None = None
    ids: Callable[[NDArray[np.bool_]], Sequence[str]] | None = None
    plans: ExpectedPlans = field(default_factory=ExpectedPlans)
