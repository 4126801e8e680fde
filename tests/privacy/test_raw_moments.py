"""A gaussian regression on raw columns: no row leaves, one set of sums is made, and only what was consented to."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy.stats import kstest

from tests.agreements import place_request
from tests.builders import CONTINUOUS, make_federation, make_tables
from tests.members import KEY, make_member, make_members
from tests.privacy.member_study import RAW, agree_in, answered, member, opening, place_of, proposal_for
from tests.privacy.member_study import federation as member_federation
from tests.privacy.member_study import tables as member_tables
from tests.privacy.raw_study import (
    ALLOWED,
    NUMBER,
    Untouchable,
    Watched,
    complete_cases,
    entries,
    federation,
    parties,
    tables,
)
from tests.study_parties import make_study_party
from verticopula import Federation, Policy, VerticalGLM
from verticopula.data.tables import align_tables
from verticopula.errors import PolicyRefused, ProtocolError, SettingsError
from verticopula.glm.feature_design import Features
from verticopula.glm.second_moments import SecondMoments
from verticopula.mpc.masked_products import open_pair
from verticopula.mpc.prime_field import PRIME
from verticopula.mpc.sealed_messages import Authenticity, SealedChannel, shared_authenticity
from verticopula.network.coordinator.study_runner import check_study
from verticopula.network.kit.key_signing import certificate_authenticity
from verticopula.network.kit.provisioning import provision
from verticopula.privacy.noise import SecureNoise
from verticopula.protocol.consent_messages import ConsentRequest
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.moments_path import gather_second_moments
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.party.member import Member
from verticopula.protocol.party.moments_handler import MomentsHandler
from verticopula.protocol.regression_messages import (
    CrossMomentsReply,
    CrossMomentsRequest,
    DesignRequest,
    EnteringColumnsReply,
    MomentsKeyReply,
    MomentsKeyRequest,
    MomentsReply,
    MomentsRequest,
    ResponseRequest,
)
from verticopula.protocol.study_lifecycle import begin_study, close_study
from verticopula.protocol.wire import encode
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation_digest import federation_fingerprint
from verticopula.schema.methods import MOMENTS_VARIANT
from verticopula.storage.record_store import MemoryRecords
from verticopula.storage.vault import Vault
from verticopula.transport.delivery import drive
from verticopula.transport.in_process_transport import InProcessTransport

NAMES = ("hub", "north", "south")
SUBJECTS = np.arange(100) < 80
SUBJECTS[10] = False  # south has no value there


def keys_of(members: Mapping[str, LocalParty], study: str = "s") -> tuple[Any, ...]:
    found = [members[name].handle(MomentsKeyRequest(study)) for name in NAMES]
    return tuple(reply.key for reply in found if isinstance(reply, MomentsKeyReply))


def request_for(members: Mapping[str, LocalParty], name: str, **changes: Any) -> MomentsRequest:
    plain = MomentsRequest("s", "y" if name == "hub" else None, SUBJECTS, None, keys_of(members))
    return replace(plain, **changes)


def own_of(local: LocalParty, request: MomentsRequest) -> MomentsReply:
    reply = local.handle(request)
    assert isinstance(reply, MomentsReply)
    return reply


def cross_request(members: Mapping[str, LocalParty], name: str, **changes: Any) -> CrossMomentsRequest:
    """What an honest coordinator asks of one party after everybody's own sums."""
    own = {one: own_of(members[one], request_for(members, one)) for one in NAMES}
    place = NAMES.index(name)
    boxes = tuple(own[o].boxes[place - (i < place)] for i, o in enumerate(NAMES) if o != name)
    widths = tuple(own[one].masked.shape[1] for one in NAMES)
    return replace(CrossMomentsRequest("s", request_for(members, name), widths, boxes), **changes)


def gather(members: Mapping[str, Any], folds: Any = None, way: type = InProcessTransport) -> SecondMoments:
    rounds = gather_second_moments(NAMES, ColumnKey("hub", "y"), SUBJECTS, folds, "s")
    return drive(rounds, way(members)).moments


# ---- what is learnt -----------------------------------------------------------------------------


@pytest.mark.parametrize("folds", [None, np.arange(79) % 3], ids=["together", "by fold"])
def test_the_coordinator_has_the_second_moments_of_the_joined_rows(folds: Any) -> None:
    found, rows = gather(parties(), folds), complete_cases()
    numbers = np.column_stack([rows["hub"]["flag"] == 1, rows["north"]["a"], rows["south"]["b"], rows["hub"]["y"]])
    z = (numbers - numbers.mean(axis=0)) / numbers.std(axis=0)
    places = np.array([0, 1, 4, -1])  # north's g is two indicators, south's o stands between b and y
    np.testing.assert_allclose(found.centre[places], numbers.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.scale[places], numbers.std(axis=0), rtol=1e-12)
    for fold in range(found.counts.size):
        here = z if folds is None else z[folds == fold]
        assert found.counts[fold] == len(here)
        np.testing.assert_allclose(found.products[fold][np.ix_(places, places)], here.T @ here, atol=1e-5)
        np.testing.assert_allclose(found.sums[fold][places], here.sum(axis=0), atol=1e-5)


@pytest.mark.parametrize("size", [1e-200, 1e200, 1e307])
def test_columns_of_any_size_vary(size: float) -> None:
    """Squares of such numbers are 0 or infinite, and a column must not be taken for a constant without a word."""
    members, plain = parties(), gather(parties())
    members["north"].control.table.columns["a"].values[:] *= size / 8.0
    found = gather(members)
    np.testing.assert_allclose(found.products, plain.products, atol=1e-5)
    np.testing.assert_allclose(found.scale[1] / (size / 8.0), plain.scale[1], rtol=1e-12)


def test_products_cannot_be_those_of_no_columns() -> None:
    """All blocks come from the same rounded columns, so the whole matrix is positive semidefinite."""
    found = gather(parties())
    assert np.linalg.eigvalsh(found.products[0]).min() > -1e-12 * found.products[0].max()


def test_no_message_holds_a_row_a_response_or_a_column() -> None:
    members = parties()
    watched = Watched(members)
    VerticalGLM().fit_transport(watched, federation())
    n = complete_cases()["hub"].height
    long = [
        (type(reply).__name__, name)
        for reply in watched.replies
        for name, value in vars(reply).items()
        if isinstance(value, np.ndarray) and value.ndim and value.shape[0] == n
    ]
    assert set(long) == {("MomentsReply", "masked")}
    assert not any(isinstance(reply, EnteringColumnsReply) for reply in watched.replies)
    masked = np.concatenate([r.masked.reshape(-1) for r in watched.replies if isinstance(r, MomentsReply)])
    assert kstest(masked / PRIME, "uniform").pvalue > 1e-6
    assert not any(f"{NUMBER}".encode() in encode(reply) for reply in watched.replies)


def test_it_takes_six_rounds_and_few_bytes() -> None:
    model = VerticalGLM().fit_transport(Watched(parties()), federation())
    assert model.path_.traffic.rounds == 3  # after who is observed, and two of consent
    columns = 2 + 3 + 2  # g is two indicators
    assert model.path_.traffic.bytes < 3 * 8 * complete_cases()["hub"].height * columns


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"subjects": np.ones(100, dtype=bool)},
        {"subjects": np.arange(100) < 19},
        {"subjects": np.ones(99, dtype=bool)},
        {"response": "b"},
        {"folds": np.zeros(79, dtype=np.int64)},
        {"folds": np.arange(79) % 4 - 1},
        {"folds": np.arange(79) // 19},
        {"folds": np.arange(78) % 2},
        {"keys": ()},
    ],
    ids=[
        "no values",
        "few",
        "short",
        "another's response",
        "one fold",
        "negative",
        "small folds",
        "short folds",
        "no keys",
    ],
)
def test_odd_requests_are_refused_and_cost_nothing(changes: dict[str, Any]) -> None:
    members = parties()
    with pytest.raises((PolicyRefused, ProtocolError), match="north"):
        members["north"].handle(request_for(members, "north", **changes))
    assert entries(members) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda keys: (*keys[:-1], replace(keys[-1], public=keys[0].public)),
        lambda keys: (*keys[:-1], replace(keys[-1], signature=bytes(32))),
        lambda keys: (*keys[:-1], replace(keys[-1], party="north")),
    ],
    ids=["another's", "unsigned", "twice"],
)
def test_a_public_key_that_its_party_did_not_sign_is_refused(spoil: Callable[[Any], Any]) -> None:
    """Otherwise a coordinator would seal itself a seed, and have the columns."""
    members = parties()
    request = request_for(members, "north", keys=spoil(keys_of(members)))
    with pytest.raises(ProtocolError, match=r"signed|one public key"):
        members["north"].handle(request)
    assert entries(members) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"widths": (2, 4, 2)},
        {"widths": (2, 3)},
        {"widths": (2, 3, -1)},
        {"boxes": ()},
        {"boxes": (b"x" * 80, b"y" * 80)},
        {"study": "another"},
    ],
    ids=["its own width", "a width less", "negative", "no seeds", "made up", "another study"],
)
def test_odd_requests_for_terms_are_refused(changes: dict[str, Any]) -> None:
    members = parties()
    with pytest.raises(ProtocolError):
        members["north"].handle(cross_request(members, "north", **changes))


def test_seeds_meant_for_another_party_open_nothing() -> None:
    members = parties()
    mine, theirs = cross_request(members, "north"), cross_request(members, "south")
    with pytest.raises(ProtocolError, match="altered, or meant for another place"):
        members["north"].handle(replace(mine, boxes=theirs.boxes))


def open_first_fold(folds_of_south: Any) -> Any:
    """What a coordinator would have of north's and south's products in fold 0."""
    members, folds = parties(), np.arange(79) % 3
    asked = {name: request_for(members, name, folds=folds_of_south if name == "south" else folds) for name in NAMES}
    own = {name: own_of(members[name], asked[name]) for name in NAMES}
    widths, terms = tuple(own[name].masked.shape[1] for name in NAMES), {}
    for place, name in enumerate(NAMES):
        boxes = tuple(own[o].boxes[place - (i < place)] for i, o in enumerate(NAMES) if o != name)
        reply = members[name].handle(CrossMomentsRequest("s", asked[name], widths, boxes))
        assert isinstance(reply, CrossMomentsReply)
        terms[name] = reply.terms[1][:1]  # north's with south, and south's with north
    masked = own["north"].masked, own["south"].masked
    return open_pair(masked, (terms["north"], terms["south"]), [np.flatnonzero(folds == 0)])


def test_a_pad_is_for_one_choice_of_folds() -> None:
    """Parties that were asked for different sums open not even those that they have in common."""
    folds = np.arange(79) % 3
    assert np.abs(open_first_fold(folds)).max() < 79 * 4**24
    # Of uniform numbers below 2^60 one in fifty is as small as a sum: more than half of six are not.
    assert (np.abs(open_first_fold(np.array([0, 2, 1])[folds])) > 79 * 4**24).mean() > 0.5


class TwoFaced(InProcessTransport):
    """A coordinator that asks one party for other folds than the others."""

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        asked = dict(requests)
        if isinstance(cross := asked["south"], CrossMomentsRequest) and cross.moments.folds is not None:
            turned = replace(cross.moments, folds=cross.moments.folds[::-1].copy())
            asked["south"] = replace(cross, moments=turned)
        return super().deliver(asked)


def test_parties_that_are_asked_for_different_sums_open_none() -> None:
    """Their pads differ, so that what the coordinator adds up is noise."""
    with pytest.raises(ProtocolError, match="do not add up"):
        gather(parties(), np.arange(79) % 3, TwoFaced)


def lie(what: str, name: str, reply: Reply) -> Reply:
    if name != "south":
        return reply
    if isinstance(reply, MomentsReply):
        changes: dict[str, dict[str, Any]] = {
            "nan": {"products": np.full_like(reply.products, np.nan)},
            "negative": {"scale": -reply.scale},
            "rows": {"masked": reply.masked[:-1]},
            "names": {"names": (*reply.names, "more")},
            "groups": {"starts": reply.starts[::-1].copy()},
            "boxes": {"boxes": reply.boxes[:-1]},
            "name": {"party": "north"},
        }
        return replace(reply, **changes.get(what, {}))
    if isinstance(reply, CrossMomentsReply):
        changes = {
            "terms": {"terms": reply.terms[:-1]},
            "shape": {"terms": tuple(term[:, :-1] for term in reply.terms)},
            "range": {"terms": tuple(term - PRIME for term in reply.terms)},
            "other": {"terms": tuple((term + 2**58) % PRIME for term in reply.terms)},
        }
        return replace(reply, **changes.get(what, {}))
    return reply


@pytest.mark.parametrize(
    "what", ["nan", "negative", "rows", "names", "groups", "boxes", "name", "terms", "shape", "range", "other"]
)
def test_replies_that_cannot_be_used_are_refused(what: str) -> None:
    watched = Watched(parties(), alter=lambda name, reply: lie(what, name, reply))
    with pytest.raises(ProtocolError):
        VerticalGLM().fit_transport(watched, federation())


def test_small_folds_are_refused_before_anything_is_asked_for() -> None:
    members = parties()
    with pytest.raises(SettingsError, match="too small"):
        VerticalGLM(select="cv", folds=5).fit_transport(Watched(members), federation())
    assert entries(members) == []


def test_a_constant_response_says_so() -> None:
    members = parties()
    members["hub"].control.table.columns["y"].values[:] = 1.0
    with pytest.raises(SettingsError, match="constant"):
        VerticalGLM().fit_transport(Watched(members), federation())


def test_a_party_without_a_key_to_sign_with_sends_nothing() -> None:
    members = parties()
    mute = make_study_party(members["north"].control.table, noise=Untouchable(), policy=ALLOWED)
    with pytest.raises(ProtocolError, match="no key to sign with"):
        mute.handle(MomentsKeyRequest("s"))


# ---- sums that would tell single values ------------------------------------------------------------


def parties_with(name: str, column: str, cells: list[Any], policy: Policy = ALLOWED) -> dict[str, LocalParty]:
    """The parties, one of which has other cells in a column."""
    frames = tables()
    frames[name] = frames[name].with_columns(pl.Series(column, cells))
    return parties(dict.fromkeys(NAMES, policy), frames)


def cells_but(name: str, column: str, few: int, *, rare: Any, common: Any) -> list[Any]:
    """One value in a column, but for the first few subjects, who have another."""
    height = tables()[name].height
    return [rare if row < few else common for row in range(height)]


@pytest.mark.parametrize("few", [2, 4])
@pytest.mark.parametrize(
    ("name", "column", "rare", "common"),
    [
        ("north", "g", "w", "v"),  # the last category: an indicator of its own
        ("north", "g", "u", "v"),  # the first one: what the indicators leave
        ("hub", "flag", 1, 0),
        ("hub", "flag", 0, 1),
        ("south", "o", "high", "low"),
        ("north", "a", 2.5, 0.0),  # a number that nearly nobody has
        ("hub", "y", 2.5, 0.0),  # the response
    ],
)
def test_products_with_a_category_that_few_have_are_not_made(
    name: str, column: str, rare: Any, common: Any, few: int
) -> None:
    """The indicator's product with any column is the value of the one who has the category."""
    members = parties_with(name, column, cells_but(name, column, few, rare=rare, common=common))
    with pytest.raises(PolicyRefused, match=f"{name}.*too few subjects for exact sums have a category"):
        members[name].handle(request_for(members, name))
    assert entries({name: members[name]}) == []


def test_the_first_category_has_no_indicator_and_may_be_rare_too() -> None:
    """It is one minus the indicators of the others."""
    cells = ["u" if row < 4 else "vw"[row % 2] for row in range(tables()["north"].height)]
    members = parties_with("north", "g", cells)
    with pytest.raises(PolicyRefused, match="too few subjects for exact sums have a category"):
        members["north"].handle(request_for(members, "north"))


def two_columns(first: Any, second: Any) -> LocalParty:
    made = make_federation({"left": {"y": CONTINUOUS}, "right": {"f": CONTINUOUS, "g": CONTINUOUS}})
    y = np.random.default_rng(2).normal(size=100)
    frames = make_tables(made, {"y": y, "f": np.array(first), "g": np.array(second)})
    table = align_tables(made, frames)["right"]
    return make_study_party(table, Untouchable(), policy=ALLOWED, authenticity=shared_authenticity(b"k" * 16))


@pytest.mark.parametrize(("size", "difference"), [(1.0, 1.0), (1e-6, 1.0), (1.0, 1e-5)])
def test_columns_that_are_equal_but_for_one_person_are_not_summed(size: float, difference: float) -> None:
    """Their difference is that person's indicator: its product with any column is the person's value."""
    rng = np.random.default_rng(1)
    flag = (rng.random(100) < 0.5) * size
    other = flag + difference * (np.arange(100) == 7) * (size - 2.0 * flag)
    odd, plain = two_columns(flag, other), two_columns(flag, (rng.random(100) < 0.5) * size)
    twice = two_columns(flag, flag)  # says no more than one of them
    for party in (odd, plain, twice):
        own = party.handle(MomentsKeyRequest("s"))
        assert isinstance(own, MomentsKeyReply)
        request = MomentsRequest("s", None, np.ones(100, dtype=bool), None, (own.key,))
        if party is not odd:
            assert isinstance(party.handle(request), MomentsReply)
            continue
        with pytest.raises(PolicyRefused, match="one subject stands out in a combination of its columns"):
            party.handle(request)
        assert len(party.control.ledger) == 0


def test_a_party_expands_no_more_columns_than_the_federation_has() -> None:
    """A seed may stand for any number of them, and fills the memory."""
    one = agreed(MOMENTS_VARIANT)
    moments = own_request(one)
    for widths in ((2, 9, 3), (2, 4, 2**19)):
        with pytest.raises(ProtocolError, match="another number of columns"):
            one.handle(CrossMomentsRequest("study", moments, widths, (b"", b"")))
    with pytest.raises(ProtocolError, match="sealed message"):
        one.handle(CrossMomentsRequest("study", moments, (2, 4, 3), (b"", b"")))


def test_a_category_that_five_have_or_nobody_has_is_summed() -> None:
    for few in (0, 5):
        members = parties_with("north", "g", cells_but("north", "g", few, rare="w", common="v"))
        assert isinstance(members["north"].handle(request_for(members, "north")), MomentsReply)


def test_a_category_that_few_have_in_a_fold_is_not_summed() -> None:
    members = parties_with("hub", "flag", cells_but("hub", "flag", 20, rare=1, common=0))
    few = np.where(np.arange(79) < 17, 0, 1)  # of those with the category three stand in the second fold
    few[40:] = 0
    with pytest.raises(PolicyRefused, match="in a fold"):
        members["hub"].handle(request_for(members, "hub", folds=few))
    assert isinstance(members["hub"].handle(request_for(members, "hub")), MomentsReply)


def test_folds_are_as_large_as_the_policy_asks_for() -> None:
    """Its smallest number of subjects holds for every sum, not for all folds together."""
    members = parties({"north": Policy(methods=("raw-glm",), min_subjects=60)})
    with pytest.raises(PolicyRefused, match="fewer subjects than its policy asks for"):
        members["north"].handle(request_for(members, "north", folds=np.arange(79) % 2))
    assert entries(members) == []
    assert isinstance(members["north"].handle(request_for(members, "north")), MomentsReply)


def test_rows_cannot_be_computed_from_sums_of_many_columns() -> None:
    """A matrix of products over no more people than columns has their rows as its only factors in zeros and ones."""
    rng = np.random.default_rng(0)
    values, asked = (rng.random((60, 30)) < 0.5).astype(float), np.ones(60, dtype=bool)
    halves = {"a": (values[:, 1:12], values[:, 0]), "b": (values[:, 12:], None)}
    signed = shared_authenticity(b"k" * 16)

    def features(half: Any) -> Any:
        names = [f"x{k}" for k in range(half[0].shape[1])]
        return lambda request: (Features.plain(half[0], names), half[1])

    handlers: Any = {n: MomentsHandler(n, features(half), MemoryRecords(), signed) for n, half in halves.items()}
    rounds = gather_second_moments(("a", "b"), ColumnKey("a", "x0"), asked, None, "s")
    with pytest.raises(PolicyRefused, match="exact sums of 30 columns need 3 subjects for each"):
        drive(rounds, InProcessTransport(handlers))
    rounds = gather_second_moments(("a", "b"), ColumnKey("a", "x0"), asked, np.arange(60) % 3, "s")
    with pytest.raises(PolicyRefused, match="exact sums of 12 columns"):  # of its own, before they leave
        drive(rounds, InProcessTransport(handlers))


def test_no_two_parties_are_told_that_a_third_one_has_no_columns() -> None:
    """Products of every two parties' columns, one request after the other, are products of all columns."""
    rng = np.random.default_rng(0)
    columns = {name: [f"{name}{k}" for k in range(10)] for name in ("a", "b", "c")}
    made = make_federation({name: {one: {"kind": "binary"} for one in own} for name, own in columns.items()})
    frames = make_tables(made, {one: rng.integers(0, 2, 72) for own in columns.values() for one in own})
    members = {
        name: make_study_party(
            table,
            noise=Untouchable(),
            policy=ALLOWED,
            authenticity=shared_authenticity(b"k" * 16),
            federation=made,
        )
        for name, table in align_tables(made, frames).items()
    }
    everybody: Any = {name: one.handle(MomentsKeyRequest("s")) for name, one in members.items()}
    keys, asked = tuple(reply.key for reply in everybody.values()), np.ones(72, dtype=bool)
    opened = []
    for pair in (("a", "b"), ("a", "c"), ("b", "c")):
        with suppress(PolicyRefused):
            own: Any = {
                name: one.handle(MomentsRequest("s", "a0" if name == "a" else None, asked, None, keys))
                for name, one in members.items()
            }
            widths = tuple(10 if name in pair else 0 for name in members)
            for name in pair:
                place = list(members).index(name)
                boxes = tuple(own[o].boxes[place - (i < place)] for i, o in enumerate(members) if o != name)
                request = CrossMomentsRequest("s", MomentsRequest("s", None, asked, None, keys), widths, boxes)
                request = replace(request, moments=replace(request.moments, response="a0" if name == "a" else None))
                opened.append(members[name].handle(request))
    assert opened == []


def test_a_study_of_too_few_subjects_for_its_columns_is_not_asked_for() -> None:
    wide = {f"x{k}": {"kind": "binary"} for k in range(30)}
    made = make_federation({"left": {"y": CONTINUOUS}, "right": wide})
    rng = np.random.default_rng(0)
    frames = make_tables(made, {"y": rng.normal(size=60), **{name: rng.integers(0, 2, 60) for name in wide}})
    members = {
        name: make_study_party(table, SecureNoise(), policy=ALLOWED)
        for name, table in align_tables(made, frames).items()
    }
    with pytest.raises(SettingsError, match="over at least 93 subjects"):
        VerticalGLM().fit_transport(InProcessTransport(members), made)
    assert entries(members) == []


def test_one_request_is_tried_in_a_study_though_it_is_refused() -> None:
    """Whether it is refused hangs on values: who may ask with any folds would find out who has a category."""
    one = agreed(MOMENTS_VARIANT)
    one.policy = Policy(methods=("raw-glm",), min_subjects=40)
    study_party = one._party(MomentsKeyRequest("study"))
    study_party.control.policy = one.policy
    with pytest.raises(PolicyRefused, match="ask for fewer folds"):
        one.handle(own_request(one, folds=np.arange(60) % 2))
    assert len(one.vault.ledger) == 0
    with pytest.raises(ProtocolError, match="another moments was asked for"):
        one.handle(own_request(one))


# ---- consent ------------------------------------------------------------------------------------


def agreed(variant: str) -> Member:
    one = member("left", policy=RAW)
    one.handle(place_of(answered(one.handle(opening(method="raw-glm")))))
    return agree_in(one, method="raw-glm", subjects=np.arange(120) < 60, variant=variant)


def own_request(one: Member, **changes: Any) -> MomentsRequest:
    reply = one.handle(MomentsKeyRequest("study"))
    assert isinstance(reply, MomentsKeyReply)
    keys = (reply.key, *(channel_of(name).sign_public_key() for name in ("right", "third")))
    return replace(MomentsRequest("study", "y", np.arange(120) < 60, None, keys), **changes)


def channel_of(name: str, authenticity: Authenticity | None = None) -> SealedChannel:
    """What somebody of that name has in the study."""
    return SealedChannel("study", name, bytes(32), authenticity or shared_authenticity(KEY))


def test_who_consented_to_second_moments_sends_neither_response_nor_columns() -> None:
    one = agreed(MOMENTS_VARIANT)
    half = np.arange(120) < 60
    for request in (
        ResponseRequest("study", "y", half),
        DesignRequest("study", "all", ("a",), None, True, half, None),
    ):
        with pytest.raises(ProtocolError, match="not what was consented to"):
            one.handle(request)
    assert isinstance(one.handle(own_request(one)), MomentsReply)


@pytest.mark.parametrize(
    "names", [("right",), ("right", "third", "lead"), ("third", "right"), ("right", "coordinator")]
)
def test_keys_are_those_of_the_parties_in_the_federation_file(names: tuple[str, ...]) -> None:
    one = agreed(MOMENTS_VARIANT)
    own = own_request(one).keys[0]
    with pytest.raises(ProtocolError, match="keys are those of the federation's parties"):
        one.handle(own_request(one, keys=(own, *(channel_of(name).sign_public_key() for name in names))))
    assert len(one.vault.ledger) == 0


@pytest.mark.parametrize(("name", "kit"), [("coordinator", "server"), ("lead", "lead")])
def test_who_has_another_certificate_of_the_federation_is_no_party(tmp_path: Path, name: str, kit: str) -> None:
    """The coordinator's own key, signed with its certificate, would have a seed sealed for it: the raw columns."""
    made = Federation.from_dict({**federation().to_dict(), "network": {"host": "localhost"}})
    kits = {one.folder.name: one for one in provision(made, tmp_path / "kits")}
    table = align_tables(made, tables())["north"]
    party = make_study_party(
        table,
        noise=Untouchable(),
        policy=ALLOWED,
        authenticity=certificate_authenticity(kits["north"]),
        federation=made,
    )
    own = party.handle(MomentsKeyRequest("study"))
    assert isinstance(own, MomentsKeyReply)
    intruder = channel_of(name, certificate_authenticity(kits[kit])).sign_public_key()
    with pytest.raises(ProtocolError, match="keys are those of the federation's parties"):
        party.handle(MomentsRequest("study", None, SUBJECTS, None, (own.key, intruder)))
    assert len(party.control.ledger) == 0


def test_who_consented_to_columns_sends_no_second_moments() -> None:
    with pytest.raises(ProtocolError, match="not what was consented to"):
        agreed("verticopula").handle(MomentsKeyRequest("study"))


def test_one_set_of_sums_is_made_in_a_study() -> None:
    """The difference of two could be one person."""
    one = agreed(MOMENTS_VARIANT)
    first = own_request(one)
    reply = one.handle(first)
    paid = len(one.vault.ledger)
    with pytest.raises(ProtocolError, match="another moments was asked for"):
        one.handle(replace(first, folds=np.arange(60) % 2))
    with pytest.raises(ProtocolError, match="not consented to"):
        one.handle(replace(first, subjects=np.arange(120) < 59))
    assert encode(one.handle(first)) == encode(reply)  # type: ignore[arg-type]
    assert len(one.vault.ledger) == paid == 2


def sums_of(one: Member, study: str, subjects: NDArray[np.bool_]) -> MomentsReply:
    """What a coordinator that has everybody's consent gets over some subjects, in a study of their own."""
    opened = answered(one.handle(opening(study, method="raw-glm")))
    one.handle(place_request(study, opened.hashes))
    agree_in(one, study, method="raw-glm", subjects=subjects, variant=MOMENTS_VARIANT)
    key: Any = one.handle(MomentsKeyRequest(study))
    others = (SealedChannel(study, name, bytes(32), shared_authenticity(KEY)) for name in ("right", "third"))
    keys = (key.key, *(other.sign_public_key() for other in others))
    reply = one.handle(MomentsRequest(study, "y", subjects, None, keys))
    assert isinstance(reply, MomentsReply)
    return reply


def test_no_row_follows_from_the_sums_of_two_studies() -> None:
    """Whoever is left out, and though every study has places of its own: the rest of a sum is one person's row."""
    one, everybody = member("left", policy=RAW), np.ones(120, dtype=bool)
    sums_of(one, "first", everybody)
    with pytest.raises(PolicyRefused, match="at least 20 have to differ"):
        sums_of(one, "second", np.arange(120) != 7)  # 120 and 119 times both means differ by somebody's exact values
    assert len(one.vault.ledger) == 2
    sums_of(one, "third", everybody)
    sums_of(one, "fourth", np.arange(120) < 90)
    assert len(one.vault.ledger) == 6


def test_no_row_follows_from_the_sums_of_a_table_in_which_one_value_has_changed() -> None:
    one, everybody = member("left", policy=RAW), np.ones(120, dtype=bool)
    sums_of(one, "first", everybody)
    frame = member_tables()["left"]
    changed = frame.with_columns(a=pl.when(pl.int_range(pl.len()) == 5).then(0.5).otherwise(pl.col("a")))
    other = make_member(member_federation(), "left", changed, policy=RAW, vault=one.vault)
    with pytest.raises(PolicyRefused, match="at least 20 have to differ"):
        sums_of(other, "second", everybody)


def run_by(operator: str) -> Federation:
    made = member_federation().to_dict()
    return Federation.from_dict({**made, "network": {"operator": operator}})


@pytest.mark.parametrize("operator", ["third", "Third"])
def test_no_party_runs_the_coordinator_that_has_the_masked_columns(operator: str) -> None:
    """It has the seeds of all masks as a party."""
    federation_of_party = run_by(operator)
    one = make_member(federation_of_party, "left", member_tables()["left"], policy=RAW)
    digest = federation_fingerprint(federation_of_party)
    one.handle(place_of(answered(one.handle(opening(method="raw-glm", federation=digest)))))
    proposal = proposal_for(one, method="raw-glm", subjects=np.arange(120) < 60, variant=MOMENTS_VARIANT)
    with pytest.raises(ProtocolError, match="could read the raw columns of all others"):
        one.handle(ConsentRequest(replace(proposal, federation=digest)))
    with pytest.raises(SettingsError, match="could read the raw columns of all others"):
        VerticalGLM().fit_transport(InProcessTransport({}), federation_of_party)
    with pytest.raises(SettingsError, match="could read the raw columns of all others"):
        check_study(federation_of_party, "regression", {"family": "gaussian"}, 60.0)
    check_study(federation_of_party, "regression", {"family": "binomial"}, 60.0)
    check_study(run_by("office"), "regression", {"family": "gaussian"}, 60.0)


def test_what_was_consented_to_cannot_be_changed_in_memory() -> None:
    """It is decoded once for all requests of a study."""
    one = agreed(MOMENTS_VARIANT)
    consents = one._party(MomentsKeyRequest("study")).consents
    assert consents is not None
    subjects = consents.agreed("study").subjects
    assert subjects is not None
    with pytest.raises(ValueError, match="read-only"):
        subjects[:] = True


def test_a_variant_that_nobody_knows_is_not_consented_to() -> None:
    with pytest.raises(ProtocolError):
        agreed("other")


# ---- over members, restarts and the end of a study ---------------------------------------------


@pytest.mark.parametrize("select", ["bic", "cv"])
def test_a_regression_over_members_equals_one_over_parties_and_survives_restarts(tmp_path: Path, select: str) -> None:
    made: list[Any] = []

    class Restarted(InProcessTransport):
        """Every round meets organisations that were started anew on their vaults."""

        def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
            vaults = {name: Vault.open(tmp_path / name) for name in ("left", "right", "third")}
            try:
                own = {name: {"vault": vault} for name, vault in vaults.items()}
                members = make_members(member_federation(), member_tables(), policy=RAW, **own)
                replies = InProcessTransport(members).deliver(requests)
                again = InProcessTransport(members).deliver(requests)
            finally:
                for vault in vaults.values():
                    vault.close()
            for name, reply in replies.items():
                if not isinstance(next(iter(requests.values())), ConsentRequest):
                    assert encode(reply) == encode(again[name])
            made.append(requests)
            return replies

    settings: dict[str, Any] = {"select": select, "folds": 2, "n_strengths": 6}
    transport = Restarted({})
    begun = drive(begin_study(member_federation(), "glm", "raw-glm"), transport)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        there = VerticalGLM(**settings).fit_transport(transport, member_federation(), response="third.z", begun=begun)
        plain = InProcessTransport(make_members(member_federation(), member_tables(), policy=RAW))
        begun = drive(begin_study(member_federation(), "glm", "raw-glm"), plain)
        here = VerticalGLM(**settings).fit_transport(plain, member_federation(), response="third.z", begun=begun)
    for name, coef in here.coef_.items():
        np.testing.assert_array_equal(coef, there.coef_[name])
    before = plain.deliver({"left": MomentsKeyRequest("glm")})
    drive(close_study(member_federation(), "glm"), plain)
    assert plain.deliver({"left": MomentsKeyRequest("glm")}) == before  # the same secret, as long as it is kept


def test_another_table_has_another_mask() -> None:
    """A mask that hid two tables would show their difference."""
    members = parties()
    request = request_for(members, "north")
    before = own_of(members["north"], request)
    members["north"].control.table.columns["a"].values[0] += 1.0
    after = own_of(members["north"], request)
    moved = (after.masked - before.masked) % PRIME
    assert (moved != 0).mean() > 0.99


def test_the_policy_is_asked_as_for_other_regressions() -> None:
    members = parties({"north": Policy(methods=("vcds",))})
    with pytest.raises(PolicyRefused, match="raw-glm"):
        members["north"].handle(MomentsKeyRequest("s"))
