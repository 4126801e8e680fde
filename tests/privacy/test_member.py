"""One organisation's side of a study: the same as in one process, what leaves it, what it refuses."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.agreements import place_request
from tests.builders import fit_seeded, make_federation
from tests.members import KEY, SEEDED, MemoryVault, make_member, make_members
from tests.privacy.member_study import (
    BY_WAY,
    ID,
    NUMBER,
    RAW,
    RELEASE,
    WORD,
    FromWhere,
    N,
    agree_in,
    answered,
    federation,
    member,
    opening,
    place_of,
    placed,
    proposal_for,
    tables,
)
from tests.study_parties import make_study_party
from verticopula import Federation, NotPrivateWarning, Policy, Synthesizer, VerticalGLM
from verticopula.data.tables import align_tables
from verticopula.errors import BudgetExceeded, PolicyRefused, ProtocolError, SettingsError, VersionMismatch
from verticopula.privacy.noise import SeededNoise
from verticopula.privacy.policy import Caps
from verticopula.privacy.policy_file import PolicyFile
from verticopula.privacy.pricing import Pricing
from verticopula.protocol.consent_messages import ConsentRequest, PresenceRequest
from verticopula.protocol.messages import REPLY_KINDS, REQUEST_KINDS, Reply, Request
from verticopula.protocol.party import member as member_module
from verticopula.protocol.party.member import Member
from verticopula.protocol.rank_messages import ReleaseReply
from verticopula.protocol.study_lifecycle import begin_study, close_study
from verticopula.protocol.study_messages import BlockRequest, CloseRequest, PlaceRequest
from verticopula.protocol.study_proposal import federation_fingerprint
from verticopula.protocol.wire import decode, encode
from verticopula.schema.columns import Column
from verticopula.storage.vault import Vault
from verticopula.transport.delivery import drive
from verticopula.transport.in_process_transport import InProcessTransport

NARROW = {"kind": "binary"}

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
    for key, margin in here.result_.copula.margins.items():
        np.testing.assert_array_equal(there.result_.copula.margins[key].probabilities, margin.probabilities)
    assert there.missingness_.to_dict() == here.missingness_.to_dict()
    first, second = here.sample(), there.sample()
    assert all(first[name].equals(second[name]) for name in first)
    assert there.summary() == here.summary()
    # What the coordinator says was spent is what the parties wrote down.
    by_party = [entry for m in members.values() for entry in m.vault.ledger]
    assert sorted(map(priced, there.ledger_)) == sorted(map(priced, by_party)) == sorted(map(priced, here.ledger_))
    assert there.privacy_ == here.privacy_


PLACE = PlaceRequest("study", N, np.arange(100), np.zeros((N, 16), dtype=np.uint8))


def priced(entry: Any) -> tuple[Any, ...]:
    """An entry without its time, its study's name and its place in a chain."""
    skipped = {"time", "study", "previous", "hash", "table", "content", "request"}
    return tuple(getattr(entry, f.name) for f in fields(entry) if f.name not in skipped)


@pytest.mark.parametrize("select", ["bic", "cv"])
def test_a_regression_over_members_equals_one_over_parties(select: str) -> None:
    parties = {
        name: make_study_party(table, SeededNoise(0), policy=RAW)
        for name, table in align_tables(federation(), tables()).items()
    }
    members = InProcessTransport(make_members(federation(), tables(), policy=RAW))
    begun = drive(begin_study(federation(), "glm", "raw-glm", seed=0), members)
    settings: dict[str, Any] = {"family": "binomial", "select": select, "n_strengths": 6}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        here = VerticalGLM(**settings).fit_transport(InProcessTransport(parties), federation(), study="glm")
        there = VerticalGLM(**settings).fit_transport(members, federation(), begun=begun)
    assert here.intercept_ == there.intercept_
    assert here.strength_ == there.strength_
    for name, coef in here.coef_.items():
        np.testing.assert_array_equal(coef, there.coef_[name])


def test_closing_a_study_forgets_its_fits(tmp_path: Path) -> None:
    with ExitStack() as stack:
        own = {name: {"vault": stack.enter_context(Vault.open(tmp_path / name))} for name in ("left", "right", "third")}
        members = InProcessTransport(make_members(federation(), tables(), policy=RAW, **own))
        begun = drive(begin_study(federation(), "glm", "raw-glm"), members)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            VerticalGLM("binomial", n_strengths=5).fit_transport(members, federation(), begun=begun)
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
    assert len(transport.received) == 3 * (7 if way.alignment == "hash" else 9)
    assert [canary for canary in canaries() if canary in everything] == []
    assert canaries()[2] in np.array([1.0, NUMBER]).tobytes()  # the search would find it


@BY_WAY
def test_what_leaves_before_consent_is_in_the_log(way: FromWhere, caplog: pytest.LogCaptureFixture) -> None:
    members = make_members(federation(), tables(), policy=Policy(), key=way.key)
    with caplog.at_level(logging.INFO):
        Synthesizer(federation(), "vcds", 2.0, unit="variable").fit_transport(
            InProcessTransport(members), study="st", alignment=way.alignment
        )
    said = [record.getMessage() for record in caplog.records]
    before = said[: next(i for i, line in enumerate(said) if "releases recorded" in line)]
    for party in members:
        assert f"party {party}: study st opened ({way.alignment})" in before
        assert f"party {party}: study st is told who is observed, before consent" in before
        for other in members.keys() - {party}:
            masked = f"party {party}: study st: masked {len(tables()[other])} points of {other}"
            assert (masked in before) == (way.alignment == "psi")


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


def test_a_block_that_is_to_be_kept_by_now_stops_a_study_that_was_opened_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "right.toml"
    path.write_text('synthetic = "lead"\n')
    one = member(policy=PolicyFile(path, "right"))
    opened = answered(one.handle(opening()))
    assert not opened.keeps_block
    one.handle(place_of(opened))
    path.write_text('synthetic = "keep"\n')
    with pytest.raises(PolicyRefused, match="keeps its synthetic block by now"):
        agree_in(one)
    assert answered(one.handle(opening())).keeps_block  # and the coordinator is told
    agree_in(one)


def test_a_cohort_that_would_not_fit_into_memory_is_refused_before_consent() -> None:
    one = member()
    opened = answered(one.handle(opening()))
    n = 100_000_001
    with pytest.raises(ProtocolError, match="cannot have this size"):
        one.handle(PlaceRequest("study", n, np.arange(100), opened.hashes))
    wide = make_federation({"left": {"y": {"kind": "binary"}}, "right": {f"c{j}": NARROW for j in range(20)}})
    frame = pl.DataFrame({"subject_id": [f"s{i}" for i in range(30)], **{f"c{j}": [0, 1] * 15 for j in range(20)}})
    two = make_member(wide, "right", frame)
    two.handle(replace(opening(), federation=federation_fingerprint(wide)))
    with pytest.raises(ProtocolError, match="would not fit into memory"):
        two.handle(PlaceRequest("study", 4_000_000, np.arange(30), np.zeros((1, 16), dtype=np.uint8)))


def test_open_studies_together_hold_no_more_than_one_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_module, "MOST_CELLS", 3 * 120 * 2)  # three studies of 120 people and two columns
    one = member(policy=Policy(open_studies=20))
    for number in range(6):
        study = f"study {number}"
        hashes = answered(one.handle(opening(study))).hashes
        one.handle(place_request(study, hashes, np.arange(hashes.shape[0])[::-1].copy(), 120))
        agree_in(one, study)
    assert list(one._parties) == ["study 3", "study 4", "study 5"]
    one.handle(replace(RELEASE, study="study 0"))  # made ready again
    assert list(one._parties) == ["study 4", "study 5", "study 0"]


@pytest.mark.parametrize("unit", ["variable", "client", "block", "person"])
def test_no_cap_allows_a_seeded_study(unit: str) -> None:
    """Whoever knows the seed takes the noise off: epsilon is infinite."""
    capped = Policy(allow_seeded=True, caps=Caps(**{unit: 1e9}))
    with pytest.raises(PolicyRefused, match="its policy has caps"):
        member(policy=capped).handle(opening(seed=0))
    entries = Pricing("s", "right", is_private=False).first_round(Column(name="n", kind="binary"), "exact", 9, 1.0, 1.0)
    for proposed, spent in ((entries, ()), ((), entries)):  # or was released before there was a cap
        with pytest.raises(BudgetExceeded, match=f"{unit} would become infinite"):
            capped.check("right", "vcds", proposed, spent)


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
    for request in (opening(), PLACE, RELEASE, CloseRequest("study")):
        with pytest.raises(VersionMismatch, match="99"):
            one.handle(replace(request, version=99))


def test_a_short_key_or_an_unknown_party_makes_no_member() -> None:
    with pytest.raises(SettingsError, match="at least 16"):
        member(key=b"short")
    with pytest.raises(SettingsError, match="no party 'nobody'"):
        Member(federation(), "nobody", tables()["left"], key=KEY, vault=MemoryVault())


def test_nothing_is_answered_before_its_time() -> None:
    one = member()
    for request in (RELEASE, PresenceRequest("study", "vcds"), PLACE):
        with pytest.raises(ProtocolError, match="was not asked to open"):
            one.handle(request)
    one.handle(opening())
    proposal = proposal_for(placed())
    requests = (RELEASE, ConsentRequest(proposal), PresenceRequest("study", "vcds"), BlockRequest("study", (), ()))
    for early in requests:
        with pytest.raises(ProtocolError, match="no cohort yet"):
            one.handle(early)
    assert len(one.vault.ledger) == 0


def test_a_study_stays_with_its_method() -> None:
    one = placed(policy=Policy(methods=("vcds", "evcds", "raw-glm")))
    for other in (
        replace(RELEASE, method="evcds"),
        ConsentRequest(replace(proposal_for(one), method="evcds")),
        ConsentRequest(replace(proposal_for(one), method="raw-glm")),
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
        one.handle(place_request(study, opened.hashes, None, N))
        agree_in(one, study)
        reply = one.handle(replace(RELEASE, study=study))
        assert isinstance(reply, ReleaseReply)
        replies.append(reply.columns[0].ranks)
    np.testing.assert_array_equal(replies[0], replies[2])
    assert not np.array_equal(replies[0], replies[1])
