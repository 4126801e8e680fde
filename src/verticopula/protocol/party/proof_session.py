"""One party's side of all proofs of one study: its own cells as dealer, the others' as verifier.

The session keeps nothing that cannot be made again. Every request brings all sealed messages so far, so a party that
was started anew makes the same ones again; the bodies, which are large, are sent again only to a party that lacks
them. What it has fixed is stored before a message leaves (`records`), and another message in its place is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from verticopula.errors import ProtocolError
from verticopula.mpc.proof_messages import rounds_of
from verticopula.mpc.proof_rounds import CellsDealer, CellsVerifier, DealerRecord, VerifiedCells, VerifierRecord
from verticopula.mpc.sealed_messages import SealedChannel
from verticopula.mpc.verified_cells import (
    NO_BYTES,
    Bytes,
    CellsStatement,
    Codes,
    digest_of,
    receive_cells,
    verifiers_of,
)
from verticopula.protocol.proof_routes import DEAL, STEPS, Route, bodies_to, match, routes_from, routes_to
from verticopula.protocol.wire import decode, encode

ProofRecords = Mapping[str, Mapping[str, Any]]


class ProofSession:
    """No repr: it holds cells and shares.

    Parameters
    ----------
    statements : dealer -> what it proves, from the party's own plan
    codes : the party's own cells; None where it deals nothing
    records : dealer -> what the party has fixed in that proof
    keep : stores these before anything leaves
    dealer : the party's side of its own proof; an audit has one that shares other numbers than cells
    """

    def __init__(
        self,
        channel: SealedChannel,
        statements: Mapping[str, CellsStatement],
        codes: Codes | None,
        records: ProofRecords,
        keep: Callable[[ProofRecords], None],
        dealer: Callable[..., CellsDealer] = CellsDealer,
    ) -> None:
        self.party = channel.party
        self._channel = channel
        self._statements = dict(statements)
        self._numbers = {dealer: number for number, dealer in enumerate(statements)}
        self._records = records
        self._keep = keep
        self._dealer: CellsDealer | None = None
        if codes is not None:
            own = statements[self.party]
            record = DealerRecord(**records.get(self.party, {}))
            self._dealer = dealer(own, codes, channel.derive("cells dealer"), record)
        self._verifiers: dict[str, CellsVerifier] = {}
        self._bodies: dict[str, Bytes] = {}
        self._received: dict[str, dict[Route, Any]] = {}
        self._sent: dict[str, tuple[bytes, ...]] = {}

    # ---- dealing -------------------------------------------------------------------------

    def deal(self) -> tuple[tuple[bytes, ...], Bytes]:
        """The party's sealed bundles and the body of its dealing; nothing where it has no cells to deal."""
        if self._dealer is None:
            return (), NO_BYTES
        dealing = self._dealer.deal()
        self._store()
        routes = routes_from(self._statements, DEAL, self.party)
        return self._seal(DEAL, {route: dealing.bundles[route.receiver] for route in routes}), dealing.body

    # ---- the rounds ----------------------------------------------------------------------

    @property
    def lacks_bodies(self) -> bool:
        """Whether the party must be sent the bodies before it can go on."""
        return set(self._bodies) != set(bodies_to(self._statements, self.party)) and not self._verifiers

    def take_bodies(self, bodies: Sequence[Bytes]) -> None:
        """The bodies of the others' dealings, in their order; they are checked when shares are made of them."""
        dealers = bodies_to(self._statements, self.party)
        if len(bodies) != len(dealers):
            raise ProtocolError(f"party {self.party!r}: expected the bodies of {len(dealers)} dealings")
        if not self._verifiers:
            self._bodies = dict(zip(dealers, bodies, strict=True))

    def answer(self, step: str, boxes: Sequence[Sequence[bytes]]) -> tuple[bytes, ...]:
        """The party's sealed messages of one round; all earlier messages for it in `boxes`, round by round.

        Privacy
        -------
        To the coordinator: ciphertexts, whose sizes follow from the plan. What they say to whom: `mpc.proof_rounds`.
        """
        if step not in STEPS[1:] or len(boxes) != STEPS.index(step):
            raise ProtocolError(f"party {self.party!r}: there is no such round of proofs")
        for number, name in enumerate(STEPS[1 : STEPS.index(step) + 1]):
            self._receive(STEPS[number], boxes[number])
            if name not in self._sent:
                made = self._make(name)
                self._store()
                self._sent[name] = self._seal(name, made)
        return self._sent[step]

    def conclude(self, boxes: Sequence[Sequence[bytes]]) -> tuple[dict[str, VerifiedCells], str]:
        """Every dealer's proven cells, and a digest of the shares; ProtocolError unless all verifiers accept."""
        if len(boxes) != len(STEPS):
            raise ProtocolError(f"party {self.party!r}: expected the messages of all rounds of proofs")
        self.answer(STEPS[-1], boxes[:-1])
        self._receive(STEPS[-1], boxes[-1])
        found: dict[str, VerifiedCells] = {}
        for dealer in self._statements:
            verdicts = self._got(STEPS[-1], dealer)
            if dealer == self.party:
                assert self._dealer is not None
                own = self._dealer.conclude(verdicts)
                assert own is not None
                found[dealer] = own
            else:
                found[dealer] = self._verifiers[dealer].conclude(verdicts)
        return found, digest_of("inputs", *(cells.held.digest for cells in found.values())).hex()

    def _make(self, step: str) -> dict[Route, Any]:
        """The messages of one round, from those of the rounds before."""
        routes = routes_from(self._statements, step, self.party)
        if step == "commit":
            bodies, self._bodies = self._bodies, {}  # wrong ones are not kept
            self._verifiers = {route.dealer: self._make_verifier(route.dealer, bodies) for route in routes}
        made: dict[Route, Any] = {}
        for route in routes:
            if route not in made:
                made |= self._make_for(step, route.dealer)
        return made

    def _make_for(self, step: str, dealer: str) -> dict[Route, Any]:
        if step == "proof":
            assert self._dealer is not None
            found: Any = self._dealer.prove(self._got("commit", dealer), self._got("coefficients", dealer))
        else:
            verifier = self._verifiers[dealer]
            if step == "commit":
                found = verifier.commit()
            elif step == "coefficients":
                found = verifier.reveal_coefficients(self._got("commit", dealer))
            elif step == "point":
                (proof,) = self._got("proof", dealer).values()
                found = verifier.reveal_point(self._got("coefficients", dealer), proof)
            elif step == "openings":
                found = verifier.open_queries(self._got("point", dealer))
            else:
                found = verifier.judge(self._got("openings", dealer))
        routes = [r for r in routes_from(self._statements, step, self.party) if r.dealer == dealer]
        return {route: found[route.receiver] if isinstance(found, dict) else found for route in routes}

    def _make_verifier(self, dealer: str, bodies: Mapping[str, Bytes]) -> CellsVerifier:
        statement = self._statements[dealer]
        (bundle,) = self._got(DEAL, dealer).values()
        held = receive_cells(statement, self.party, bundle, bodies.get(dealer, NO_BYTES))
        keys = {
            other: self._channel.common_key(other, "cells tag", statement.digest, size=32)
            for other in verifiers_of(statement)
            if other != self.party
        }
        record = VerifierRecord(**self._records.get(dealer, {}))
        return CellsVerifier(held, self._channel.derive("cells verifier", dealer), keys, record)

    # ---- messages ------------------------------------------------------------------------

    def _receive(self, step: str, boxes: Sequence[bytes]) -> None:
        """Open a round's messages; the same ones may come again, others not."""
        found = {}
        for route, sealed in match(self.party, routes_to(self._statements, step, self.party), boxes).items():
            kind = rounds_of(self._statements[route.dealer])[STEPS.index(step)].message
            content = self._channel.open(route.sender, _purpose(step), self._numbers[route.dealer], sealed)
            found[route] = decode(content, (kind,))
        self._received.setdefault(step, found)

    def _got(self, step: str, dealer: str) -> dict[str, Any]:
        """sender -> what it sent to this party in one proof's round."""
        return {r.sender: message for r, message in self._received[step].items() if r.dealer == dealer}

    def _seal(self, step: str, messages: Mapping[Route, Any]) -> tuple[bytes, ...]:
        routes = routes_from(self._statements, step, self.party)
        return tuple(
            self._channel.seal(route.receiver, _purpose(step), self._numbers[route.dealer], encode(messages[route]))
            for route in routes
        )

    def _store(self) -> None:
        """What has been fixed, on disk before anything leaves."""
        records: dict[str, Mapping[str, Any]] = {**self._records}
        if self._dealer is not None:
            records[self.party] = asdict(self._dealer.record)
        records |= {dealer: asdict(verifier.record) for dealer, verifier in self._verifiers.items()}
        if records != self._records:
            self._keep(records)
            self._records = records


def _purpose(step: str) -> str:
    return f"cells {step}"
