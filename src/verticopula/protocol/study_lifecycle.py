"""The first rounds of a study over separate parties, and the last: who is who; own blocks, and where ledgers end.

Beginning spends nothing. It ends with every party's table in the order of one cohort, or with an error that says which
party to talk to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.data.id_checks import HASH_BYTES
from verticopula.data.tables import describe_unmatched
from verticopula.errors import ProtocolError, VersionMismatch
from verticopula.matching.keyed_hashes import CHECK_BYTES, Placement, cohort_digest, count_repeats, place
from verticopula.matching.private_intersection import POINT_BYTES, points_digest, shorten_points
from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.shared_rounds import Rounds
from verticopula.protocol.study_messages import (
    BeginReply,
    BeginRequest,
    BlockReply,
    BlockRequest,
    CloseReply,
    CloseRequest,
    MaskReply,
    MaskRequest,
    PlaceReply,
    PlaceRequest,
    SignedPoints,
)
from verticopula.protocol.study_proposal import StudyContext, federation_fingerprint
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation
from verticopula.schema.setting_choices import Alignment

LedgerHead = tuple[int, str]  # how many entries, and the hash of the last


@dataclass(frozen=True)
class BegunStudy:
    """What the coordinator knows once a study has begun.

    Attributes
    ----------
    context : who asks and why, how rows of one person were found, and the digest of the cohort's list
    keeps_block : party -> whether it keeps its synthetic block to itself
    """

    study: str
    n_subjects: int
    context: StudyContext
    keeps_block: Mapping[str, bool]


def begin_study(
    federation: Federation,
    study: str,
    method: str,
    *,
    seed: int | None = None,
    alignment: Alignment = "hash",
    witnesses: Mapping[str, LedgerHead] | None = None,
    requester: str = "",
    purpose: str = "",
) -> Rounds[BegunStudy]:
    """Two rounds: everybody's keyed hashes, then everybody's places in the cohort.

    Parameters
    ----------
    alignment : `hash` needs a key that all parties hold; `psi` needs none, and one more round for each further party
    seed : for simulations; parties refuse it unless their policies say otherwise
    witnesses : party -> the end of its ledger as it was last seen, which its ledger must still contain
    requester, purpose : who asks for the study, and why
    """
    seen = witnesses or {}
    shown = federation_fingerprint(federation)
    replies = yield {
        p.name: BeginRequest(
            study, method, shown, alignment, seed, *seen.get(p.name, (0, "")), requester=requester, purpose=purpose
        )
        for p in federation.parties
    }
    width = HASH_BYTES if alignment == "hash" else POINT_BYTES
    begun = {p.name: _checked_begin(p.name, replies.get(p.name), width) for p in federation.parties}
    _check_keys(begun, federation.response.party)
    hashes = {name: reply.hashes for name, reply in begun.items()}
    if alignment == "psi":
        hashes = yield from _mask_in_turn(federation, study, begun)
    _check_repeats(hashes)
    placement = place(hashes, federation.response.party)
    _check_placement(placement, federation.response.party)
    listed = hashes[federation.response.party]
    cohort = cohort_digest(listed)
    replies = yield {
        name: PlaceRequest(study, placement.n_subjects, positions, listed)
        for name, positions in placement.positions.items()
    }
    for name in begun:
        answer = replies.get(name)
        agreed = isinstance(answer, PlaceReply) and (answer.n_subjects, answer.cohort) == (placement.n_subjects, cohort)
        if not agreed:
            raise ProtocolError(f"party {name!r} did not put its table in the order of the cohort")
    return BegunStudy(
        study,
        placement.n_subjects,
        StudyContext(requester, purpose, alignment, cohort, seed),
        {name: reply.keeps_block for name, reply in begun.items()},
    )


def _checked_begin(name: str, reply: Reply | None, width: int) -> BeginReply:
    if not isinstance(reply, BeginReply) or reply.party != name:
        raise ProtocolError(f"party {name!r} did not say whether it takes part")
    if reply.version != MESSAGE_VERSION:
        raise VersionMismatch(f"party {name!r} speaks message version {reply.version}, this side {MESSAGE_VERSION}")
    n_rows = reply.hashes.shape[0] if reply.hashes.ndim else 0
    if not _are_bytes(reply.key_check, (CHECK_BYTES,)) or not _are_bytes(reply.hashes, (n_rows, width)):
        raise ProtocolError(f"party {name!r} sent hashes of the wrong shape")
    if n_rows == 0:
        raise ProtocolError(f"party {name!r} has no subjects")
    if reply.ledger_count < 0:
        raise ProtocolError(f"party {name!r} did not say where its ledger ends")
    return reply


def _are_bytes(array: NDArray[np.uint8], shape: tuple[int, ...]) -> bool:
    return array.dtype == np.uint8 and array.shape == shape


def _mask_in_turn(
    federation: Federation, study: str, begun: Mapping[str, BeginReply]
) -> Rounds[dict[str, NDArray[np.uint8]]]:
    """K - 1 rounds: every list goes to every other party, one list to each party at a time."""
    names = [p.name for p in federation.parties]
    lists = {name: reply.hashes for name, reply in begun.items()}
    signed = {name: _signed((name,), reply.hashes, reply.signature) for name, reply in begun.items()}
    cohort = signed[federation.response.party]
    for step in range(1, len(names)):
        origins = {names[(i + step) % len(names)]: origin for i, origin in enumerate(names)}
        replies = yield {
            name: MaskRequest(study, origin, lists[origin], signed=signed[origin], cohort=cohort)
            for name, origin in origins.items()
        }
        for name, origin in origins.items():
            answer = replies.get(name)
            fits = isinstance(answer, MaskReply) and answer.party == name and answer.origin == origin
            if not fits or not isinstance(answer, MaskReply) or not _are_bytes(answer.points, lists[origin].shape):
                raise ProtocolError(f"party {name!r} did not mask the subjects of {origin!r}")
            lists[origin] = answer.points
            signed[origin] = _signed((*signed[origin].masked_by, name), answer.points, answer.signature)
    return {name: shorten_points(masked) for name, masked in lists.items()}


def _signed(masked_by: tuple[str, ...], points: NDArray[np.uint8], signature: bytes) -> SignedPoints:
    return SignedPoints(masked_by, points.shape[0], points_digest(points), signature)


def _check_repeats(hashes: Mapping[str, NDArray[np.uint8]]) -> None:
    for name, own in hashes.items():
        repeated = count_repeats(own)
        if repeated:
            raise ProtocolError(f"party {name!r}: {repeated} row(s) repeat a subject id")


def _check_keys(begun: Mapping[str, BeginReply], response_party: str) -> None:
    """ProtocolError that names the parties whose id key is not the response party's."""
    right = begun[response_party].key_check
    wrong = [name for name, reply in begun.items() if not np.array_equal(reply.key_check, right)]
    if wrong:
        names = ", ".join(repr(name) for name in wrong)
        alone = len(wrong) > 1 and len({begun[name].key_check.tobytes() for name in wrong}) == 1
        hint = f"; these agree with each other, so it may be the key of {response_party!r}" if alone else ""
        raise ProtocolError(
            f"the id key of {names} differs from that of {response_party!r}{hint}: a wrong key, not an empty overlap. "
            "All parties of a study need the same key file"
        )


def _check_placement(placement: Placement, response_party: str) -> None:
    """ProtocolError that lists every party with subjects the cohort does not have."""
    problems = []
    for name, positions in placement.positions.items():
        unmatched = placement.unmatched(name)
        if unmatched:
            problems.append(f"party {name!r}: {describe_unmatched(unmatched, positions.size, response_party)}")
    if problems:
        raise ProtocolError("\n".join(problems))


def deliver_blocks(federation: Federation, study: str, values: Mapping[ColumnKey, NDArray[np.float64]]) -> Rounds[None]:
    """One round: each party's own synthetic columns, as numbers, for it to write down. A party may want none.

    Parameters
    ----------
    values : as `Synthesizer.draw` gives them
    """
    requests: dict[str, Request] = {}
    for party in federation.parties:
        columns = tuple(column.name for column in party.columns)
        own = tuple(values[ColumnKey(party.name, column)] for column in columns)
        requests[party.name] = BlockRequest(study, columns, own)
    replies = yield requests
    for name, request in requests.items():
        answer = replies.get(name)
        rows = request.values[0].shape[0] if isinstance(request, BlockRequest) else 0
        if not isinstance(answer, BlockReply) or answer.rows not in (0, rows):
            raise ProtocolError(f"party {name!r} did not write its synthetic block")


def close_study(federation: Federation, study: str) -> Rounds[dict[str, LedgerHead]]:
    """One round: where every party's ledger ends now, which the next study shows it again."""
    replies = yield {p.name: CloseRequest(study) for p in federation.parties}
    heads: dict[str, LedgerHead] = {}
    for party in federation.parties:
        answer = replies.get(party.name)
        if not isinstance(answer, CloseReply) or answer.party != party.name or answer.ledger_count < 0:
            raise ProtocolError(f"party {party.name!r} did not say where its ledger ends")
        heads[party.name] = (answer.ledger_count, answer.ledger_head)
    return heads
