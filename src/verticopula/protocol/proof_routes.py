"""Who sends which sealed message of the proofs to whom, in an order that everybody knows.

All dealers' proofs run side by side, round by round (`mpc.proof_rounds`). A message stands in its place: neither names
nor numbers of it travel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def routes_of(statements: Mapping[str, CellsStatement], step: str) -> list[Route]:
    """All messages of one round."""
    found = []
    for dealer, statement in statements.items():
        each = rounds_of(statement)[STEPS.index(step)]
        found += [Route(dealer, s, r) for s in each.senders for r in each.receivers if s != r]
    return found


def routes_from(statements: Mapping[str, CellsStatement], step: str, sender: str) -> list[Route]:
    """A sender's messages of one round."""
    return [route for route in routes_of(statements, step) if route.sender == sender]


def routes_to(statements: Mapping[str, CellsStatement], step: str, receiver: str) -> list[Route]:
    """A receiver's messages of one round."""
    return [route for route in routes_of(statements, step) if route.receiver == receiver]


def bodies_to(statements: Mapping[str, CellsStatement], receiver: str) -> list[str]:
    """The dealers whose bodies a compute party is sent."""
    return [dealer for dealer, statement in statements.items() if receiver in body_receivers(statement)]


def match(party: str, routes: Sequence[Route], boxes: Sequence[bytes]) -> dict[Route, bytes]:
    """The messages in their places; ProtocolError where there are more or fewer, or empty ones."""
    if len(boxes) != len(routes) or not all(boxes):
        raise ProtocolError(f"party {party!r}: the proofs of cells have other messages in this round")
    return dict(zip(routes, boxes, strict=True))
