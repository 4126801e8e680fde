"""Who sends which sealed message of the proofs to whom, in an order that everybody knows.

All dealers' proofs run side by side, round by round (`mpc.proof_rounds`). A message stands in its place: neither names
nor numbers of it travel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from verticopula.errors import ProtocolError
from verticopula.mpc.proof_messages import rounds_of
from verticopula.mpc.sums_plan import SumsPlan, count_rows, own_statement
from verticopula.mpc.verified_cells import CellsStatement, body_receivers

DEAL = "deal"
STEPS = (DEAL, "commit", "coefficients", "proof", "point", "openings", "verdicts")


class Route(NamedTuple):
    """One message of one proof."""

    dealer: str
    sender: str
    receiver: str


def statements_of(plan: SumsPlan, study: str, digest: str) -> dict[str, CellsStatement]:
    """dealer -> what it proves; a party that knows nobody in the plan deals nothing."""
    dealers = [party for party in plan.parties if count_rows(plan, party)]
    return {party: own_statement(plan, study, digest, party) for party in dealers}


def routes_of(statements: Mapping[str, CellsStatement], step: str) -> tuple[Route, ...]:
    """All messages of one round."""
    return _routes(tuple(statements.values()), step)


def routes_from(statements: Mapping[str, CellsStatement], step: str, sender: str) -> tuple[Route, ...]:
    """A sender's messages of one round."""
    return _grouped(tuple(statements.values()), step, "sender").get(sender, ())


def routes_to(statements: Mapping[str, CellsStatement], step: str, receiver: str) -> tuple[Route, ...]:
    """A receiver's messages of one round."""
    return _grouped(tuple(statements.values()), step, "receiver").get(receiver, ())


@lru_cache(maxsize=32)  # every party asks, in every round
def _routes(statements: tuple[CellsStatement, ...], step: str) -> tuple[Route, ...]:
    found: list[Route] = []
    for statement in statements:
        each = rounds_of(statement)[STEPS.index(step)]
        found += [Route(statement.dealer, s, r) for s in each.senders for r in each.receivers if s != r]
    return tuple(found)


@lru_cache(maxsize=32)
def _grouped(statements: tuple[CellsStatement, ...], step: str, end: str) -> dict[str, tuple[Route, ...]]:
    """Routes by the party at one of their ends, in their order."""
    found: dict[str, list[Route]] = {}
    for route in _routes(statements, step):
        found.setdefault(getattr(route, end), []).append(route)
    return {party: tuple(routes) for party, routes in found.items()}


def bodies_to(statements: Mapping[str, CellsStatement], receiver: str) -> list[str]:
    """The dealers whose bodies a compute party is sent."""
    return [dealer for dealer, statement in statements.items() if receiver in body_receivers(statement)]


def match(party: str, routes: Sequence[Route], boxes: Sequence[bytes]) -> dict[Route, bytes]:
    """The messages in their places; ProtocolError where there are more or fewer, or empty ones."""
    if len(boxes) != len(routes) or not all(boxes):
        raise ProtocolError(f"party {party!r}: the proofs of cells have other messages in this round")
    return dict(zip(routes, boxes, strict=True))
