"""The rounds in which a dealer proves its cells, as state machines without input and output.

| round | from | to | message |
|---|---|---|---|
| deal | dealer | verifiers | `CellsBundle`, sealed; the body in clear to some |
| commit | verifiers | verifiers, dealer | `CellsCommitment`: hashes of two seeds; the common share's tag |
| coefficients | verifiers | verifiers, dealer | `CoefficientReveal`: the first seed |
| proof | dealer | verifiers | `ProofShare` |
| point | verifiers | verifiers | `PointReveal`: the second seed |
| openings | verifiers | verifiers | `QueryOpening`: linear functions of the part that the receiver lacks |
| verdicts | verifiers | verifiers, dealer | `CellsVerdict` |

Every message is sealed for its receiver and names the statement (study, plan, dealer, opening), so a message of another
one is refused. The carrier knows the sender from the seal.

**Order.** A verifier's seeds are a pseudorandom function of its own secret and of the shares it holds, so a dealer
that deals again meets other seeds. It reveals the first seed when it holds its shares and has everybody's
commitments and equal tags; the second when it holds its share of the proof. The challenge is the exclusive or of all
verifiers' seeds. It is uniform as long as one verifier is honest, and unknown until the last honest one has fixed what
it must fix. A commitment names its verifier, so nobody can repeat another's.

**Equal challenges.** Two openings of one proof at two points, or of a proof for other coefficients, would tell about
the cells. So reveals name a digest of all commitments that their sender has seen, proof and openings one of all seeds;
dealer and verifiers go on only where it is their own. Two honest ones that go on have the same challenges.

**One of each.** A machine's `record` holds digests of what it has fixed. Whoever runs it stores the record before a
message leaves, and starts it with the stored record after a restart. The same input gives the same messages again;
another input is refused.

A verifier that lies, or a coordinator that withholds messages, can stop the study, and nothing else.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from verticopula.errors import ProtocolError
from verticopula.mpc.cell_proofs import (
    ExpandedProof,
    PieceOpening,
    ProofCoefficients,
    draw_coefficients,
    draw_point,
    expand_proof,
    held_pieces,
    is_accepted,
    lacked_piece,
    open_piece,
    pack_opening,
    piece_shares,
    pieces_of,
    prove_codes,
    unpack_opening,
)
from verticopula.mpc.prime_field import FIELD_SEED_BYTES
from verticopula.mpc.proof_messages import (
    CellsCommitment,
    CellsVerdict,
    CoefficientReveal,
    PointReveal,
    ProofMessage,
    ProofShare,
    QueryOpening,
)
from verticopula.mpc.verified_cells import (
    CellsBundle,
    CellsDealing,
    CellsStatement,
    Codes,
    HeldCells,
    check_codes,
    check_statement,
    check_tag,
    deal_cells,
    derive_bytes,
    digest_codes,
    digest_of,
    own_cells,
    share_tag,
    verifiers_of,
)

CHALLENGE_BYTES = 32


# ---- what a machine has fixed ------------------------------------------------------------


@dataclass(frozen=True)
class DealerRecord:
    """Digests of what a dealer has fixed; empty where it has not."""

    cells: str = ""
    challenge: str = ""


@dataclass(frozen=True)
class VerifierRecord:
    """Digests of what a verifier has fixed; empty where it has not. `accepted` is its verdict once there is one."""

    held: str = ""
    commitments: str = ""
    coefficients: str = ""
    proof: str = ""
    point: str = ""
    openings: str = ""
    accepted: bool = False


@dataclass(frozen=True, repr=False)
class VerifiedCells:
    """Shares whose cells all verifiers have accepted. Sums are taken of these only."""

    held: HeldCells


# ---- the dealer --------------------------------------------------------------------------


class CellsDealer:
    """A dealer's side. No repr: it holds cells.

    Parameters
    ----------
    codes : (n, columns) cell numbers
    secret : bytes that only the dealer has
    record : what it had fixed before a restart
    """

    def __init__(
        self, statement: CellsStatement, codes: Codes, secret: bytes, record: DealerRecord | None = None
    ) -> None:
        check_statement(statement)
        check_codes(statement, codes)
        self.statement = statement
        self.record = record or DealerRecord()
        self._codes = codes
        self._content = digest_codes(codes)
        self._secret = secret
        self._bundle: CellsBundle | None = None  # a computing dealer's own, without the body

    def deal(self) -> CellsDealing:
        """The dealing; the same one each time."""
        self._fix("cells", self._content.hex())
        dealing = deal_cells(self.statement, self._codes, self._secret)
        self._bundle = dealing.bundles.get(self.statement.dealer)
        return dealing

    def prove(
        self, commitments: Mapping[str, CellsCommitment], reveals: Mapping[str, CoefficientReveal]
    ) -> dict[str, ProofShare]:
        """For each verifier its share of the proof; ProtocolError unless all verifiers say the same challenge.

        Privacy
        -------
        To each verifier: uniform elements. A second challenge is refused.
        """
        self._fix("cells", self._content.hex())
        verifiers = verifiers_of(self.statement)
        committed = _transcript_of(self.statement, verifiers, commitments)
        seeds = _revealed_coefficients(self.statement, verifiers, commitments, reveals, committed)
        transcript = digest_of("coefficients", committed, *(seeds[name] for name in verifiers))
        self._fix("challenge", transcript.hex())
        coefficients = draw_coefficients(self.statement, _combine(seeds))
        pieces = pieces_of(self.statement)
        content = self._content.hex()
        own = tuple(
            derive_bytes(self._secret, "proof", self.statement.digest, content, transcript, str(i))[:FIELD_SEED_BYTES]
            for i in range(len(pieces))
        )
        correction = self._prove_cells(coefficients, own)
        shares = {}
        for name in verifiers:
            held = held_pieces(self.statement, name)
            last = correction if len(pieces) - 1 in held else b""
            shares[name] = ProofShare(self.statement.digest, transcript, tuple(own[i] for i in held), last)
        return shares

    def conclude(self, verdicts: Mapping[str, CellsVerdict]) -> VerifiedCells | None:
        """A computing dealer's own shares, None for another; ProtocolError unless all verifiers accept."""
        verifiers = verifiers_of(self.statement)
        _check_messages(self.statement, verifiers, verdicts, CellsVerdict)
        if len({verdict.transcript for verdict in verdicts.values()}) != 1 or not self.record.challenge:
            raise ProtocolError(f"{self.statement.dealer!r}: the verdicts are not about one proof")
        _check_verdicts(self.statement, verdicts)
        if self.statement.dealer not in self.statement.compute:
            return None
        if self._bundle is None:
            self.deal()
        assert self._bundle is not None
        return VerifiedCells(own_cells(self.statement, self._codes, self._secret, self._bundle))

    def _prove_cells(self, coefficients: ProofCoefficients, seeds: tuple[bytes, ...]) -> bytes:
        return prove_codes(self.statement, self._codes, coefficients, seeds)

    def _fix(self, field: Literal["cells", "challenge"], digest: str) -> None:
        self.record = _fixed(self.record, field, digest, self.statement.dealer)


# ---- a verifier --------------------------------------------------------------------------


class CellsVerifier:
    """A verifier's side of one dealing. No repr: it holds shares.

    Parameters
    ----------
    held : the shares that it was dealt
    secret : bytes that only this verifier has
    keys : other verifier -> a key that the two have in common, for this study
    record : what it had fixed before a restart
    """

    def __init__(
        self, held: HeldCells, secret: bytes, keys: Mapping[str, bytes], record: VerifierRecord | None = None
    ) -> None:
        self.statement = held.statement
        self.party = held.party
        self.record = record or VerifierRecord()
        self._held = held
        self._verifiers = verifiers_of(self.statement)
        if self.party not in self._verifiers:
            raise ProtocolError(f"party {self.party!r} does not verify its own cells")
        self._others = tuple(name for name in self._verifiers if name != self.party)
        if set(keys) != set(self._others):
            raise ProtocolError(f"party {self.party!r} has a key in common with each other verifier")
        self._keys = dict(keys)
        self._fix("held", held.digest)
        self._seeds = {
            stage: derive_bytes(secret, stage, self.statement.digest, held.digest)
            for stage in ("coefficients", "point")
        }
        self._commitments: dict[str, CellsCommitment] = {}
        self._coefficients: ProofCoefficients | None = None
        self._proofs: dict[int, ExpandedProof] = {}
        self._openings: dict[int, PieceOpening] = {}

    def commit(self) -> dict[str, CellsCommitment]:
        """For each other verifier and the dealer: commitments to both seeds, to a verifier with the tag.

        Privacy
        -------
        Hashes of random seeds, and an HMAC that its receiver can compute itself if the shares are equal.
        """
        own = self._own_commitment()
        tagged = {name: replace(own, tag=share_tag(self._held, name, self._keys[name])) for name in self._others}
        return {**tagged, self.statement.dealer: own}

    def reveal_coefficients(self, commitments: Mapping[str, CellsCommitment]) -> CoefficientReveal:
        """The first seed, when the other verifiers hold the same shares and have committed themselves."""
        _check_messages(self.statement, self._others, commitments, CellsCommitment)
        for name in self._others:
            check_tag(self._held, name, self._keys[name], commitments[name].tag)
        everybody = {**commitments, self.party: self._own_commitment()}
        transcript = _transcript_of(self.statement, self._verifiers, everybody)
        self._fix("commitments", transcript.hex())
        self._commitments = everybody
        return CoefficientReveal(self.statement.digest, transcript, self._seeds["coefficients"])

    def reveal_point(self, reveals: Mapping[str, CoefficientReveal], proof: ProofShare) -> PointReveal:
        """The second seed, when the verifier holds its share of the proof for the common coefficients."""
        if not self._commitments:
            raise _too_early(self.party)
        committed = bytes.fromhex(self.record.commitments)
        own = CoefficientReveal(self.statement.digest, committed, self._seeds["coefficients"])
        seeds = _revealed_coefficients(
            self.statement, self._verifiers, self._commitments, {**reveals, self.party: own}, committed
        )
        transcript = digest_of("coefficients", committed, *(seeds[name] for name in self._verifiers))
        self._fix("coefficients", transcript.hex())
        _check_messages(self.statement, (self.statement.dealer,), {self.statement.dealer: proof}, ProofShare)
        if not hmac.compare_digest(proof.transcript, transcript):
            raise ProtocolError(f"party {self.party!r}: {self.statement.dealer!r} proved for another challenge")
        proofs = self._read_proof(proof)
        self._fix("proof", digest_of("proof", *proof.seeds, proof.correction).hex())
        self._proofs = proofs
        self._coefficients = draw_coefficients(self.statement, _combine(seeds))
        return PointReveal(self.statement.digest, transcript, self._seeds["point"])

    def open_queries(self, reveals: Mapping[str, PointReveal]) -> dict[str, QueryOpening]:
        """For each other verifier the opening of the part that it lacks, at the common point.

        Privacy
        -------
        See `cell_proofs.py`: together with what the receiver holds, uniform elements.
        """
        if self._coefficients is None:
            raise _too_early(self.party)
        before = bytes.fromhex(self.record.coefficients)
        everybody = {**reveals, self.party: PointReveal(self.statement.digest, before, self._seeds["point"])}
        _check_messages(self.statement, self._verifiers, everybody, PointReveal)
        seeds = {}
        for name in self._verifiers:
            seeds[name] = everybody[name].seed
            _check_transcript(self.statement, name, everybody[name].transcript, before)
            _check_reveal(self.statement, name, "point", seeds[name], self._commitments[name].point)
        transcript = digest_of("point", before, *(seeds[name] for name in self._verifiers))
        self._fix("point", transcript.hex())
        point = draw_point(self.statement, _combine(seeds))
        pieces = pieces_of(self.statement)
        self._openings = {
            number: open_piece(piece_shares(self._held, pieces[number]), proof, self._coefficients, point)
            for number, proof in self._proofs.items()
        }
        return {
            name: QueryOpening(
                self.statement.digest, transcript, pack_opening(self._openings[lacked_piece(self.statement, name)])
            )
            for name in self._others
        }

    def judge(self, openings: Mapping[str, QueryOpening]) -> dict[str, CellsVerdict]:
        """For each other verifier and the dealer: whether the cells are one-hot. `record.accepted` says it, too."""
        if self._coefficients is None or not self._openings:
            raise _too_early(self.party)
        _check_messages(self.statement, self._others, openings, QueryOpening)
        transcript = bytes.fromhex(self.record.point)
        lacked = lacked_piece(self.statement, self.party)
        holders = pieces_of(self.statement)[lacked].holders
        for name in self._others:
            _check_transcript(self.statement, name, openings[name].transcript, transcript)
        said = {openings[name].values for name in holders}
        self._fix("openings", digest_of("openings", *(openings[name].values for name in self._others)).hex())
        # Two holders of a part open the same numbers, or one of them lies.
        missing = unpack_opening(self.statement, openings[holders[0]].values)
        accepted = len(said) == 1 and is_accepted((*self._openings.values(), missing), self._coefficients)
        self.record = replace(self.record, accepted=accepted)
        verdict = CellsVerdict(self.statement.digest, transcript, accepted)
        return dict.fromkeys((*self._others, self.statement.dealer), verdict)

    def conclude(self, verdicts: Mapping[str, CellsVerdict]) -> VerifiedCells:
        """The shares, to be summed; ProtocolError unless this verifier and all others accept."""
        if not self.record.openings:
            raise _too_early(self.party)
        transcript = bytes.fromhex(self.record.point)
        own = CellsVerdict(self.statement.digest, transcript, self.record.accepted)
        everybody = {**verdicts, self.party: own}
        _check_messages(self.statement, self._verifiers, everybody, CellsVerdict)
        for name in self._others:
            _check_transcript(self.statement, name, verdicts[name].transcript, transcript)
        _check_verdicts(self.statement, everybody)
        return VerifiedCells(self._held)

    def _own_commitment(self) -> CellsCommitment:
        first, second = (
            _commit(self.statement, self.party, stage, self._seeds[stage]) for stage in ("coefficients", "point")
        )
        return CellsCommitment(self.statement.digest, first, second, b"")

    def _read_proof(self, proof: ProofShare) -> dict[int, ExpandedProof]:
        """The shares of the parts that this verifier holds; ProtocolError where they are not its own."""
        held, last = held_pieces(self.statement, self.party), len(pieces_of(self.statement)) - 1
        if len(proof.seeds) != len(held) or bool(proof.correction) != (last in held):
            raise ProtocolError(f"party {self.party!r} was sent a share of a proof that is not its own")
        return {
            number: expand_proof(self.statement, seed, proof.correction if number == last else b"")
            for number, seed in zip(held, proof.seeds, strict=True)
        }

    def _fix(
        self, field: Literal["held", "commitments", "coefficients", "proof", "point", "openings"], digest: str
    ) -> None:
        self.record = _fixed(self.record, field, digest, self.party)


# ---- checks ------------------------------------------------------------------------------


def _fixed(record: Any, field: str, digest: str, party: str) -> Any:
    """The record with this digest in it; ProtocolError where it has another one there."""
    if getattr(record, field) not in ("", digest):
        raise ProtocolError(f"party {party!r} has fixed something else in this proof before: {field}")
    return replace(record, **{field: digest})


def _too_early(party: str) -> ProtocolError:
    return ProtocolError(f"party {party!r} is asked for a step of a proof before the one that precedes it")


def _check_messages(
    statement: CellsStatement, senders: tuple[str, ...], messages: Mapping[str, ProofMessage], kind: type
) -> None:
    """ProtocolError unless there is one message from each sender, of this kind and about this statement."""
    if set(messages) != set(senders):
        raise ProtocolError(f"a proof of {statement.dealer!r} needs a message from each of {', '.join(senders)}")
    for name, message in messages.items():
        if not isinstance(message, kind) or message.statement != statement.digest:
            raise ProtocolError(f"{name!r} sent a message about another proof than that of {statement.dealer!r}")


def _check_transcript(statement: CellsStatement, name: str, said: bytes, expected: bytes) -> None:
    if not hmac.compare_digest(said, expected):
        raise ProtocolError(f"{name!r} has seen other challenges in the proof of {statement.dealer!r}")


def _check_reveal(statement: CellsStatement, name: str, stage: str, seed: bytes, commitment: bytes) -> None:
    if len(seed) != CHALLENGE_BYTES or not hmac.compare_digest(_commit(statement, name, stage, seed), commitment):
        raise ProtocolError(f"{name!r} revealed another seed than it committed itself to")


def _check_verdicts(statement: CellsStatement, verdicts: Mapping[str, CellsVerdict]) -> None:
    refusing = sorted(name for name, verdict in verdicts.items() if verdict.accepted is not True)
    if refusing:
        raise ProtocolError(
            f"the cells of {statement.dealer!r} are not proven to be one-hot, say {', '.join(refusing)}: the dealer or "
            "one of these does not follow the protocol"
        )


def _commit(statement: CellsStatement, name: str, stage: str, seed: bytes) -> bytes:
    """A hiding and binding commitment to a random seed, which nobody else can call its own."""
    return digest_of("commitment", statement.digest, name, stage, seed)


def _transcript_of(
    statement: CellsStatement, verifiers: tuple[str, ...], commitments: Mapping[str, CellsCommitment]
) -> bytes:
    """A digest of all verifiers' commitments, without their tags."""
    _check_messages(statement, verifiers, commitments, CellsCommitment)
    parts = [part for name in verifiers for part in (commitments[name].coefficients, commitments[name].point)]
    return digest_of("commitments", statement.digest, *parts)


def _revealed_coefficients(
    statement: CellsStatement,
    verifiers: tuple[str, ...],
    commitments: Mapping[str, CellsCommitment],
    reveals: Mapping[str, CoefficientReveal],
    committed: bytes,
) -> dict[str, bytes]:
    """Everybody's first seed; ProtocolError unless they are what was committed to, before the same commitments."""
    _check_messages(statement, verifiers, reveals, CoefficientReveal)
    for name in verifiers:
        _check_transcript(statement, name, reveals[name].transcript, committed)
        _check_reveal(statement, name, "coefficients", reveals[name].seed, commitments[name].coefficients)
    return {name: reveals[name].seed for name in verifiers}


def _combine(seeds: Mapping[str, bytes]) -> bytes:
    """The exclusive or of all seeds: uniform if one of them is."""
    total = 0
    for seed in seeds.values():
        total ^= int.from_bytes(seed)
    return total.to_bytes(CHALLENGE_BYTES)
