"""One organisation's side of a study: what it refuses, what leaves it, what survives a crash."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tests.builders import CONTINUOUS, fit_seeded, make_federation
from tests.members import KEY, SEEDED, MemoryVault, make_member, make_members, run
from verticopula import Federation, NotPrivateWarning, Policy, Synthesizer
from verticopula.blinding import points_of
from verticopula.errors import BudgetExceeded, LedgerError, PolicyRefused, ProtocolError, SettingsError, VersionMismatch
from verticopula.estimator import VerticalGLM
from verticopula.privacy.noise import SeededNoise
from verticopula.privacy.policy import Caps
from verticopula.privacy.vault import Vault
from verticopula.protocol.member import Member
from verticopula.protocol.messages import (
    BlockReply,
    BlockRequest,
    CloseReply,
    CloseRequest,
    ColumnOrder,
    MaskReply,
    MaskRequest,
    OpenReply,
    OpenRequest,
    PlaceRequest,
    PresenceReply,
    PresenceRequest,
    RawReviewRequest,
    ReleaseReply,
    ReleaseRequest,
    Reply,
    Request,
    ReviewRequest,
)
from verticopula.protocol.opening import close_study, deliver_blocks, federation_fingerprint, open_study
from verticopula.protocol.party import LocalParty
from verticopula.protocol.wire import REPLY_KINDS, REQUEST_KINDS, decode, encode
from verticopula.tables import align_tables, normalise_ids
from verticopula.transport.base import drive
from verticopula.transport.inprocess import InProcessTransport

N = 120
NUMBER = 7.123456789012345
ID = "zq-canary-4711"
WORD = "zqcanaryword"
RAW = Policy(allow_seeded=True, methods=("raw-glm", "vcds"))


def federation(**changes: Any) -> Federation:
    made = make_federation(
        {
            "left": {"y": {"kind": "binary"}, "a": CONTINUOUS},
            "right": {
                "n": {"kind": "count", "bounds": [0, 50]},
                "g": {"kind": "nominal", "categories": ["u", "v", WORD]},
            },
            "third": {"o": {"kind": "ordinal", "categories": [10, 20, 30]}, "z": CONTINUOUS},
        }
    )
    return Federation.from_dict({**made.to_dict(), **changes})


def tables() -> dict[str, pl.DataFrame]:
    """Blocks and cells missing, rows in any order, one planted subject."""
    rng = np.random.default_rng(8)
    ids = np.array([ID if i == 3 else f"s{i}" for i in range(N)])
    a = np.clip(rng.normal(size=N), -7, 7)
    a[3] = NUMBER
    y = (a + rng.normal(size=N) > 0).astype(int)
    n, z = rng.poisson(4, N) + y, a + rng.normal(size=N)
    z[3] = -NUMBER
    g = np.array(["u", "v", WORD])[rng.integers(0, 3, N)]
    o = np.array([10, 20, 30])[rng.integers(0, 3, N)]
    full = {
        "left": pl.DataFrame({"subject_id": ids, "y": y, "a": a}),
        "right": pl.DataFrame({"subject_id": ids, "n": n, "g": g})[:100],
        "third": pl.DataFrame({"subject_id": ids, "o": o, "z": z})[np.r_[0:10, 30:N]],
    }
    full["right"] = full["right"].with_columns(pl.when(pl.col("n") == 9).then(None).otherwise(pl.col("n")).alias("n"))
    return {name: frame.sample(fraction=1.0, shuffle=True, seed=len(name)) for name, frame in full.items()}


class FromWhere(NamedTuple):
    """A way of alignment, and the key that goes with it."""

    alignment: Any
    key: bytes | None


WAYS = [FromWhere("hash", KEY), FromWhere("psi", None)]
BY_WAY = pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way.alignment))


def opening(study: str = "study", **changes: Any) -> OpenRequest:
    asked = OpenRequest(study, "vcds", federation_fingerprint(federation()), "hash", None, 0, "")
    return replace(asked, **changes)


def member(name: str = "right", **settings: Any) -> Member:
    return make_member(federation(), name, tables()[name], **settings)


def answered(reply: Reply) -> OpenReply:
    assert isinstance(reply, OpenReply)
    return reply


def place_of(opened: OpenReply, n_subjects: int = N) -> PlaceRequest:
    return PlaceRequest("study", n_subjects, np.arange(opened.hashes.shape[0])[::-1].copy())


def placed(**settings: Any) -> Member:
    one = member(**settings)
    one.handle(place_of(answered(one.handle(opening()))))
    return one


RELEASE = ReleaseRequest("study", "vcds", "exact", (ColumnOrder("n", 1.0, 1.0), ColumnOrder("g", 1.0, 1.0)))


# ---- the same as in one process ----------------------------------------------------------


@BY_WAY
@pytest.mark.parametrize("method", ["vcds", "evcds", "ievcds", "refined"])
def test_a_seeded_study_over_members_equals_one_in_process(method: str, way: FromWhere) -> None:
    settings: dict[str, Any] = {"method": method, "epsilon": 20.0, "unit": "client"}
    if method == "ievcds":
        settings["rounds"] = 3
    here = fit_seeded(federation(), tables(), 11, **settings)
    members = make_members(federation(), tables(), key=way.key)
    with pytest.warns(NotPrivateWarning):
        there = Synthesizer(federation(), random_state=11, **settings).fit_transport(
            InProcessTransport(members), alignment=way.alignment
        )
    np.testing.assert_array_equal(there.result_.copula.correlation, here.result_.copula.correlation)
    for key, marginal in here.result_.copula.marginals.items():
        np.testing.assert_array_equal(there.result_.copula.marginals[key].probabilities, marginal.probabilities)
    assert there.missingness_.to_dict() == here.missingness_.to_dict()
    first, second = here.sample(), there.sample()
    assert all(first[name].equals(second[name]) for name in first)
    assert there.summary() == here.summary()
    # What the coordinator says was spent is what the parties wrote down.
    by_party = [entry for m in members.values() for entry in m.vault.ledger]
    assert sorted(map(priced, there.ledger_)) == sorted(map(priced, by_party)) == sorted(map(priced, here.ledger_))
    assert there.privacy_ == here.privacy_


def priced(entry: Any) -> tuple[Any, ...]:
    """An entry without its time, its study's name and its place in a chain."""
    skipped = {"time", "study", "previous", "hash", "table", "request"}
    return tuple(getattr(entry, f.name) for f in fields(entry) if f.name not in skipped)


@pytest.mark.parametrize("select", ["bic", "cv"])
def test_a_regression_over_members_equals_one_over_parties(select: str) -> None:
    parties = {
        name: LocalParty(table, SeededNoise(0), policy=RAW)
        for name, table in align_tables(federation(), tables()).items()
    }
    members = InProcessTransport(make_members(federation(), tables(), policy=RAW))
    drive(open_study(federation(), "glm", "raw-glm", seed=0), members)
    settings: dict[str, Any] = {"family": "binomial", "select": select, "n_strengths": 15}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here = VerticalGLM(**settings).fit_transport(InProcessTransport(parties), federation(), study="glm")
        there = VerticalGLM(**settings).fit_transport(members, federation(), study="glm")
    assert here.intercept_ == there.intercept_
    assert here.strength_ == there.strength_
    for name, coef in here.coef_.items():
        np.testing.assert_array_equal(coef, there.coef_[name])


def test_closing_a_study_forgets_its_fits(tmp_path: Path) -> None:
    with ExitStack() as stack:
        own = {name: {"vault": stack.enter_context(Vault.open(tmp_path / name))} for name in ("left", "right", "third")}
        members = InProcessTransport(make_members(federation(), tables(), policy=RAW, **own))
        drive(open_study(federation(), "glm", "raw-glm"), members)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            VerticalGLM("binomial", n_strengths=5).fit_transport(members, federation(), study="glm")
        assert list((tmp_path / "left" / "fits").iterdir())
        heads = drive(close_study(federation(), "glm"), members)
        assert heads["left"][0] == len(own["left"]["vault"].ledger) > 0
    assert not list(tmp_path.glob("*/fits/*"))


@BY_WAY
def test_an_unseeded_study_works_in_the_order_of_hashes(way: FromWhere) -> None:
    members = make_members(federation(), tables(), policy=Policy(), key=way.key)
    settings: dict[str, Any] = {"method": "refined", "epsilon": 60.0, "unit": "variable"}
    fit = Synthesizer(federation(), **settings)
    fit.fit_transport(InProcessTransport(members), alignment=way.alignment)
    here = Synthesizer(federation(), **settings).fit(tables())
    assert fit.missingness_.patterns == here.missingness_.patterns  # everybody is where they belong
    np.testing.assert_allclose(fit.result_.copula.correlation, here.result_.copula.correlation, atol=0.15)
    assert fit.privacy_.is_private


# ---- what leaves -------------------------------------------------------------------------


class Recording(InProcessTransport):
    """Every message, as the bytes that a network would carry."""

    def __init__(self, members: Mapping[str, Member]) -> None:
        super().__init__(members)
        self.sent: list[bytes] = []
        self.received: list[bytes] = []

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        self.sent += [encode(request) for request in requests.values()]
        replies = super().deliver({name: decode(encode(r), REQUEST_KINDS) for name, r in requests.items()})
        self.received += [encode(reply) for reply in replies.values()]
        return {name: decode(encode(reply), REPLY_KINDS) for name, reply in replies.items()}


def canaries() -> list[bytes]:
    """The planted subject in every form in which it might leave."""
    found = [ID.encode(), WORD.encode()]
    for value in (NUMBER, -NUMBER):
        found += [np.float64(value).tobytes(), np.float32(value).tobytes(), repr(value)[:10].encode()]
    return found


@BY_WAY
@pytest.mark.parametrize("policy", [Policy(), SEEDED], ids=["unseeded", "seeded"])
def test_no_message_holds_a_planted_id_or_value(tmp_path: Path, policy: Policy, way: FromWhere) -> None:
    transport = Recording(make_members(federation(), tables(), policy=policy, out=tmp_path, key=way.key))
    fit = Synthesizer(federation(), "ievcds", rounds=2, random_state=5 if policy.allow_seeded else None, epsilon=4.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        fit.fit_transport(transport, study="study", alignment=way.alignment)
    everything = b"".join(transport.received + transport.sent)
    assert len(transport.received) == 3 * (6 if way.alignment == "hash" else 8)
    assert [canary for canary in canaries() if canary in everything] == []
    assert canaries()[2] in np.array([1.0, NUMBER]).tobytes()  # the search would find it


def test_the_order_of_the_table_does_not_show() -> None:
    frame = tables()["right"]
    replies = [
        answered(make_member(federation(), "right", order).handle(opening()))
        for order in (frame, frame.reverse(), frame.sort("subject_id"))
    ]
    assert all(np.array_equal(replies[0].hashes, reply.hashes) for reply in replies)
    rows = [bytes(row) for row in replies[0].hashes]
    assert rows == sorted(rows)


def test_only_a_seeded_study_goes_in_the_order_of_the_table() -> None:
    one = member(policy=SEEDED)
    seeded, secret = answered(one.handle(opening("s", seed=1))), answered(one.handle(opening("t")))
    ordered = [bytes(row) for row in seeded.hashes]
    assert ordered != sorted(ordered)
    assert [bytes(row) for row in secret.hashes] == sorted(bytes(row) for row in secret.hashes)


def test_a_subject_cannot_be_followed_from_study_to_study() -> None:
    one = member()
    first, second = answered(one.handle(opening("s"))), answered(one.handle(opening("t")))
    assert {bytes(row) for row in first.hashes}.isdisjoint(bytes(row) for row in second.hashes)
    assert not np.array_equal(first.key_check, second.key_check)


def test_a_member_shows_nothing_of_itself() -> None:
    one = placed()
    shown = repr(one) + str(one) + repr(one._table) + repr(one.vault.studies)
    assert not any(canary.decode() in shown for canary in (ID.encode(), WORD.encode()))
    assert KEY.hex() not in shown
    assert repr(KEY) not in shown


# ---- what is refused ---------------------------------------------------------------------


@pytest.mark.parametrize("what", ["bounds", "response", "another party", "rules"])
def test_another_federation_file_is_refused(what: str) -> None:
    raw = federation().to_dict()
    if what == "bounds":
        raw["party"][1]["column"][0]["bounds"] = [0, 51]
    elif what == "response":
        raw["response"] = "left.a"
    elif what == "another party":
        raw["party"].append({"name": "fourth", "column": [{"name": "q", "kind": "binary"}]})
    else:
        raw["id"] = {"name": "subject_id", "rules": ["upper"]}
    altered = federation_fingerprint(Federation.from_dict(raw))
    one = member()
    with pytest.raises(PolicyRefused, match="federation file is not the same"):
        one.handle(opening(federation=altered))
    with pytest.raises(ProtocolError, match="was not asked to open"):
        one.handle(RELEASE)


def test_a_seeded_study_is_refused_unless_the_policy_allows_it() -> None:
    with pytest.raises(PolicyRefused, match="allow_seeded"):
        member().handle(opening(seed=0))
    answered(member(policy=SEEDED).handle(opening(seed=0)))


@pytest.mark.parametrize(
    ("policy", "changes", "words"),
    [
        (Policy(methods=("evcds",)), {}, "does not take part in method 'vcds'"),
        (Policy(), {"method": "raw-glm"}, "the policy must name it"),
        (Policy(columns=("n",)), {}, "does not share column 'g'"),
        (Policy(), {"alignment": "names"}, "way of alignment"),
        (Policy(), {"study": ""}, "printable"),
        (Policy(), {"study": "x" * 201}, "printable"),
        (Policy(), {"study": "a\nb"}, "printable"),
    ],
)
def test_terms_are_checked_before_any_hash_is_sent(policy: Policy, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        member(policy=policy).handle(opening(**changes))


def test_every_request_of_another_version_is_refused() -> None:
    one = placed()
    for request in (opening(), PlaceRequest("study", N, np.arange(100)), RELEASE, CloseRequest("study")):
        with pytest.raises(VersionMismatch, match="99"):
            one.handle(replace(request, version=99))


def test_a_short_key_or_an_unknown_party_makes_no_member() -> None:
    with pytest.raises(SettingsError, match="at least 16"):
        member(key=b"short")
    with pytest.raises(SettingsError, match="no party 'nobody'"):
        Member(federation(), "nobody", tables()["left"], key=KEY, vault=MemoryVault())


def test_nothing_is_answered_before_its_time() -> None:
    one = member()
    for request in (RELEASE, PresenceRequest("study", "vcds"), PlaceRequest("study", N, np.arange(100))):
        with pytest.raises(ProtocolError, match="was not asked to open"):
            one.handle(request)
    one.handle(opening())
    requests = (RELEASE, ReviewRequest(RELEASE), PresenceRequest("study", "vcds"), BlockRequest("study", (), ()))
    for early in requests:
        with pytest.raises(ProtocolError, match="no cohort yet"):
            one.handle(early)
    assert len(one.vault.ledger) == 0


def test_a_study_stays_with_its_method() -> None:
    one = placed(policy=Policy(methods=("vcds", "evcds", "raw-glm")))
    for other in (
        replace(RELEASE, method="evcds"),
        ReviewRequest(replace(RELEASE, method="evcds")),
        RawReviewRequest("study", np.ones(N, dtype=bool)),
    ):
        with pytest.raises(ProtocolError, match="another method"):
            one.handle(other)


def test_a_study_is_not_opened_twice_on_other_terms() -> None:
    one = member(policy=Policy(allow_seeded=True, methods=("vcds", "evcds")))
    one.handle(opening())
    one.handle(opening())
    for changes in ({"method": "evcds"}, {"seed": 3}):
        with pytest.raises(ProtocolError, match="other terms"):
            one.handle(opening(**changes))
    one.handle(opening("simulation", seed=3))
    for changes in ({"seed": 4}, {}):
        with pytest.raises(ProtocolError, match="other terms"):
            one.handle(opening("simulation", **changes))


def test_seeds_do_not_answer_for_each_other_and_names_do_not_matter() -> None:
    one = member(policy=SEEDED)
    replies = []
    for study, seed in (("a", 3), ("b", 4), ("c", 3)):
        opened = answered(one.handle(opening(study, seed=seed)))
        one.handle(PlaceRequest(study, N, np.arange(opened.hashes.shape[0])))
        reply = one.handle(replace(RELEASE, study=study))
        assert isinstance(reply, ReleaseReply)
        replies.append(reply.columns[0].ranks)
    np.testing.assert_array_equal(replies[0], replies[2])
    assert not np.array_equal(replies[0], replies[1])


# ---- places ------------------------------------------------------------------------------


def shifted(positions: NDArray[np.int64], by: int) -> NDArray[np.int64]:
    return positions + by


@pytest.mark.parametrize(
    ("n_subjects", "positions", "words"),
    [
        (N, np.zeros(100, dtype=np.int64), "same place"),
        (N, np.r_[np.arange(99), 98], "same place"),
        (N, np.arange(100) - 1, "outside"),
        (N, np.arange(100) + 21, "outside"),
        (N, np.arange(100) + 2**40, "outside"),
        (N, np.arange(99), "each of its 100 rows"),
        (N, np.arange(101), "each of its 100 rows"),
        (N, np.arange(100).reshape(10, 10), "each of its 100 rows"),
        (N, np.arange(100).astype(np.float64), "each of its 100 rows"),
        (N, np.arange(100).astype(np.int32), "each of its 100 rows"),
        (99, np.arange(100), "cannot have this size"),
        (0, np.arange(100), "cannot have this size"),
        (-1, np.arange(100), "cannot have this size"),
        (10**12, np.arange(100), "cannot have this size"),
        (True, np.arange(100), "cannot have this size"),
    ],
)
def test_places_that_cannot_be_are_refused(n_subjects: int, positions: Any, words: str) -> None:
    one = member()
    one.handle(opening())
    with pytest.raises(ProtocolError, match=words):
        one.handle(PlaceRequest("study", n_subjects, positions))
    with pytest.raises(ProtocolError, match="no cohort yet"):
        one.handle(RELEASE)


def test_the_response_partys_subjects_are_the_cohort() -> None:
    one = member("left")
    one.handle(opening())
    with pytest.raises(ProtocolError, match="its own 120 subjects are the cohort"):
        one.handle(PlaceRequest("study", N + 1, np.arange(N)))


def test_a_settled_cohort_stays() -> None:
    one = placed()
    again = place_of(answered(one.handle(opening())))
    one.handle(again)
    with pytest.raises(ProtocolError, match="settled"):
        one.handle(replace(again, positions=shifted(again.positions, 1)))
    with pytest.raises(ProtocolError, match="settled"):
        one.handle(replace(again, n_subjects=N + 1))


# ---- alignment without a key -------------------------------------------------------------


def masking(origin: str = "third", n: int = 110, **changes: Any) -> MaskRequest:
    ids = pl.Series([f"guess {i}" for i in range(n)])
    return replace(MaskRequest("study", origin, points_of(ids, "study")), **changes)


def test_a_party_without_a_key_does_not_send_hashes() -> None:
    with pytest.raises(PolicyRefused, match="has no id key"):
        member(key=None).handle(opening())


def test_masked_points_show_nothing_that_a_dictionary_could_find() -> None:
    one = member(key=None)
    sent = {bytes(row) for row in answered(one.handle(opening(alignment="psi"))).hashes}
    ids = normalise_ids(tables()["right"]["subject_id"], federation().id)
    assert sent.isdisjoint(bytes(row) for row in points_of(ids, "study"))
    other = {bytes(row) for row in answered(member(key=None).handle(opening(alignment="psi"))).hashes}
    assert sent.isdisjoint(other)  # another mask, with the same table
    again = answered(one.handle(opening(alignment="psi")))
    assert sent == {bytes(row) for row in again.hashes}
    assert [bytes(row) for row in again.hashes] == sorted(sent)


def test_one_list_a_party_is_masked_and_none_after_the_cohort_is_settled() -> None:
    one = member(key=None)
    with pytest.raises(ProtocolError, match="was not asked to open"):
        one.handle(masking())
    opened = answered(one.handle(opening(alignment="psi")))
    first, second = one.handle(masking()), one.handle(masking())
    assert isinstance(first, MaskReply)
    assert isinstance(second, MaskReply)
    np.testing.assert_array_equal(first.points, second.points)
    with pytest.raises(ProtocolError, match="has masked another list"):
        one.handle(masking(n=109))
    one.handle(place_of(opened))
    with pytest.raises(ProtocolError, match="no longer"):
        one.handle(masking("left", 120))
    one.handle(masking())  # a late copy


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (masking("right"), "other parties only"),
        (masking("nobody"), "other parties only"),
        (masking("left", 99), "cannot have so many"),  # the cohort is not smaller than one of its parties
        (masking(points=np.empty((0, 32), dtype=np.uint8)), "cannot have so many"),
        (masking(points=np.ones((5, 31), dtype=np.uint8)), "32 bytes"),
        (masking(points=np.ones(32, dtype=np.uint8)), "32 bytes"),
        (masking(points=np.ones((5, 32), dtype=np.int64)), "32 bytes"),
        (masking(points=np.zeros((5, 32), dtype=np.uint8)), "is none"),
    ],
)
def test_points_that_cannot_be_are_not_masked(request_: MaskRequest, words: str) -> None:
    one = member(key=None)
    one.handle(opening(alignment="psi"))
    with pytest.raises(ProtocolError, match=words):
        one.handle(request_)


def test_the_cohorts_party_masks_no_list_longer_than_its_own() -> None:
    one = member("left", key=None)
    one.handle(opening(alignment="psi"))
    one.handle(masking(n=N))
    with pytest.raises(ProtocolError, match="cannot have so many"):
        one.handle(masking("right", N + 1))


def test_nothing_is_masked_in_a_study_aligned_by_hashes() -> None:
    one = member()
    one.handle(opening())
    with pytest.raises(ProtocolError, match="nothing is to be masked"):
        one.handle(masking())


# ---- restarts ----------------------------------------------------------------------------


@BY_WAY
@pytest.mark.parametrize("seed", [None, 6])
def test_a_member_made_anew_goes_on_where_it_was(seed: int | None, way: FromWhere) -> None:
    policy, vault = Policy(allow_seeded=True), MemoryVault()
    asked = opening(seed=seed, alignment=way.alignment)
    first = member(policy=policy, vault=vault, key=way.key)
    opened = answered(first.handle(asked))
    second = member(policy=policy, vault=vault, key=way.key)
    np.testing.assert_array_equal(answered(second.handle(asked)).hashes, opened.hashes)
    second.handle(place_of(opened))
    third = member(policy=policy, vault=vault, key=way.key)
    presence = third.handle(PresenceRequest("study", "vcds"))
    assert isinstance(presence, PresenceReply)
    expected = first.handle(PresenceRequest("study", "vcds"))
    assert isinstance(expected, PresenceReply)
    np.testing.assert_array_equal(presence.observed, expected.observed)


@BY_WAY
def test_a_restart_on_disk_repeats_the_release_and_pays_once(tmp_path: Path, way: FromWhere) -> None:
    with Vault.open(tmp_path) as vault:
        one = member(vault=vault, key=way.key)
        one.handle(place_of(answered(one.handle(opening(alignment=way.alignment)))))
        first = one.handle(RELEASE)
    with Vault.open(tmp_path) as vault:
        two = member(vault=vault, key=way.key)
        second = two.handle(RELEASE)
        assert len(vault.ledger) == 4
        assert len({entry.table for entry in vault.ledger}) == 1
    assert encode(first) == encode(second)


def test_caps_hold_over_studies_and_restarts(tmp_path: Path) -> None:
    policy = Policy(caps=Caps(variable=3.0))
    with Vault.open(tmp_path) as vault:
        placed(vault=vault, policy=policy).handle(RELEASE)
    with Vault.open(tmp_path) as vault:
        one = member(vault=vault, policy=policy)
        one.handle(replace(place_of(answered(one.handle(opening("next")))), study="next"))
        with pytest.raises(BudgetExceeded, match="above its cap"):
            one.handle(replace(RELEASE, study="next"))
        one.handle(RELEASE)  # sent before


def test_consent_is_asked_before_anything_is_recorded() -> None:
    def refuse(method: str, proposed: list[Any], spent: list[Any]) -> None:
        raise PolicyRefused("no")

    one = placed(consent=refuse)
    with pytest.raises(PolicyRefused, match="no"):
        one.handle(RELEASE)
    assert len(one.vault.ledger) == 0


def test_a_changed_table_does_not_go_on_with_an_old_study() -> None:
    vault = MemoryVault()
    placed(vault=vault)
    frame = tables()["right"]
    other = frame.with_columns(pl.when(pl.col("n") == 3).then(4).otherwise(pl.col("n")).alias("n"))
    changed = make_member(federation(), "right", other, vault=vault)
    with pytest.raises(ProtocolError, match="has changed since"):
        changed.handle(RELEASE)
    with pytest.raises(ProtocolError, match="another table"):
        changed.handle(opening())
    make_member(federation(), "right", frame.reverse(), vault=vault).handle(RELEASE)  # the same table


@pytest.mark.parametrize("seed", [None, 2])
def test_a_table_or_key_changed_before_the_place_is_known_does_not_go_on(seed: int | None) -> None:
    vault, frame = MemoryVault(), tables()["right"]
    opened = answered(member(vault=vault, policy=SEEDED).handle(opening(seed=seed)))
    for other in (
        make_member(federation(), "right", frame, vault=vault, key=bytes(32)),
        make_member(federation(), "right", frame[1:], vault=vault),
    ):
        with pytest.raises(ProtocolError, match="has changed since"):
            other.handle(place_of(opened))


def test_one_organisation_may_be_two_parties() -> None:
    vault = MemoryVault()
    members = make_members(federation(), tables(), right={"vault": vault}, third={"vault": vault})
    Synthesizer(federation()).fit_transport(InProcessTransport(members), study="study")
    assert {entry.party for entry in vault.ledger} == {"right", "third"}


def test_a_ledger_that_lost_entries_is_not_opened_again() -> None:
    one = placed()
    one.handle(RELEASE)
    closed = one.handle(CloseRequest("study"))
    assert isinstance(closed, CloseReply)
    assert closed.ledger_count == 4
    one.handle(opening("next", witness_count=closed.ledger_count, witness_head=closed.ledger_head))
    with pytest.raises(LedgerError):
        member().handle(opening("next", witness_count=closed.ledger_count, witness_head=closed.ledger_head))
    with pytest.raises(LedgerError):
        one.handle(opening("more", witness_count=4, witness_head="0" * 64))


def test_closing_tells_every_ledgers_end() -> None:
    members = make_members(federation(), tables())
    Synthesizer(federation(), epsilon=1.0).fit_transport(InProcessTransport(members), study="study")
    heads = run(close_study(federation(), "study"), members)
    assert heads == {name: m.vault.head() for name, m in members.items()}
    again = Synthesizer(federation(), epsilon=1.0)
    again.fit_transport(InProcessTransport(members), study="next", witnesses=heads)
    with pytest.raises(ProtocolError, match="was not asked to open"):
        run(close_study(federation(), "unknown"), members)


# ---- synthetic blocks --------------------------------------------------------------------


def block(**values: Any) -> BlockRequest:
    given = {"n": np.array([0.0, 3.0, 50.0]), "g": np.array([0.0, 2.0, 1.0]), **values}
    return BlockRequest("study", tuple(given), tuple(given.values()))


def test_a_block_is_written_at_its_own_party_only(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in tables()}
    members = make_members(federation(), tables(), **{name: {"out": folder} for name, folder in folders.items()})
    fit = Synthesizer(federation(), epsilon=8.0).fit_transport(InProcessTransport(members), study="study")
    values = fit.draw(30)
    run(deliver_blocks(federation(), "study", values), members)
    expected = fit.decode(values)
    for name, folder in folders.items():
        files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        assert files == [f"study/{name}.csv", f"study/{name}.parquet"]
        assert pl.read_parquet(folder / "study" / f"{name}.parquet").equals(expected[name])


def test_a_seeded_block_says_that_it_is_not_private(tmp_path: Path) -> None:
    members = make_members(federation(), tables(), out=tmp_path)
    with pytest.warns(NotPrivateWarning):
        fit = Synthesizer(federation(), random_state=1).fit_transport(InProcessTransport(members), study="study")
    run(deliver_blocks(federation(), "study", fit.draw(5)), members)
    assert "NOT PRIVATE" in (tmp_path / "study" / "READ-ME-FIRST.txt").read_text()


def test_a_party_may_want_no_block() -> None:
    reply = placed().handle(block())
    assert isinstance(reply, BlockReply)
    assert reply.rows == 0


@pytest.mark.parametrize(
    "request_",
    [
        block(n=np.array([0.0, 3.0, 51.0])),
        block(n=np.array([0.0, -1.0, 5.0])),
        block(n=np.array([0.0, 0.5, 5.0])),
        block(n=np.array([0.0, np.nan, 5.0])),
        block(n=np.array([0.0, np.inf, 5.0])),
        block(n=np.array([0, 1, 5])),
        block(g=np.array([0.0, 3.0, 1.0])),
        block(g=np.array([0.0, 0.5, 1.0])),
        block(g=np.array([0.0, 1.0])),
        block(n=np.empty(0), g=np.empty(0)),
        block(other=np.zeros(3)),
        BlockRequest("study", ("g", "n"), (np.zeros(3), np.zeros(3))),
        BlockRequest("study", ("n", "g"), (np.zeros(3),)),
        BlockRequest("study", (), ()),
    ],
)
def test_a_block_that_does_not_fit_is_not_written(tmp_path: Path, request_: BlockRequest) -> None:
    with pytest.raises(ProtocolError, match="does not fit"):
        placed(out=tmp_path).handle(request_)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("study", ["../up", "/etc/passwd", "..", ".", "a/../../b", "nul:", "über", "a b"])
def test_a_study_cannot_be_named_out_of_its_folder(tmp_path: Path, study: str) -> None:
    out = tmp_path / "out"
    one = member(out=out)
    opened = answered(one.handle(opening(study)))
    one.handle(replace(place_of(opened), study=study))
    one.handle(replace(block(), study=study))
    written = list(tmp_path.rglob("*.csv"))
    assert len(written) == 1
    assert written[0].parent.parent == out


def test_keep_or_lead() -> None:
    assert not answered(member().handle(opening())).keeps_block
    assert answered(member(policy=Policy(synthetic="keep")).handle(opening())).keeps_block
