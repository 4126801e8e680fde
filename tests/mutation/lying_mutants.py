"""Mistakes in what keeps coordinators and parties that lie from learning more than was agreed to."""

from __future__ import annotations

from tests.mutation.mutants import ADAPTIVE
from tests.mutation.runner import Mutant, one_of

LYING_MUTANTS = (
    Mutant(
        "client-filter-makes-room",
        "privacy/policy.py",
        "client = max(client, count((coin",
        "client = max(0.0, count((coin",
        "a strict study would make room under a cap at client that is spent",
        one_of(ADAPTIVE, "a_strict_study_makes_no_room_under_a_client_cap_that_is_spent"),
    ),
    Mutant(
        "variable-filter-makes-room",
        "privacy/policy.py",
        "variable = max(variable, *(count",
        "variable = max(0.0, *(count",
        "the same at variable",
        one_of(ADAPTIVE, "no_release_lowers_what_counts"),
    ),
)
