"""Opening a study: what the coordinator checks before anything is spent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.builders import CONTINUOUS, make_federation
from tests.members import make_members, run
from verticopula import Federation, Policy, Synthesizer
from verticopula.errors import ProtocolError, SchemaError, VersionMismatch
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.party.member import Member
from verticopula.protocol.study_lifecycle import BegunStudy, begin_study, deliver_blocks
from verticopula.protocol.study_messages import BeginReply, BlockReply, PlaceReply
from verticopula.protocol.study_proposal import federation_fingerprint
from verticopula.transport.delivery import drive
from verticopula.transport.in_process_transport import InProcessTransport

N = 40
OTHER_KEY = bytes(32)


def federation(rules: tuple[str, ...] = (), third: bool = True) -> Federation:
    parties: dict[str, Any] = {"left": {"y": CONTINUOUS}, "right": {"x": CONTINUOUS}}
    if third:
        parties["third"] = {"z": CONTINUOUS}
    raw = make_federation(parties).to_dict()
    return Federation.from_dict({**raw, "id": {"name": "subject_id", "rules": list(rules)}})


def tables(**ids: list[Any]) -> dict[str, pl.DataFrame]:
    """Each party's subjects; s0 to s39 unless they are given."""
    rng = np.random.default_rng(4)
    found = {}
    for name, column in {"left": "y", "right": "x", "third": "z"}.items():
        own = ids.get(name, [f"s{i}" for i in range(N)])
        found[name] = pl.DataFrame({"subject_id": own, column: rng.normal(size=len(own))})
    return found


def begun(members: Mapping[str, Member], fed: Federation | None = None, **settings: Any) -> BegunStudy:
    found = run(begin_study(fed or federation(), "study", "vcds", **settings), members)
    assert isinstance(found, BegunStudy)
    return found


def test_everybody_finds_a_place() -> None:
    some = [f"s{i}" for i in (7, 3, 30)]
    found = begun(make_members(federation(), tables(right=some), third={"policy": Policy(synthetic="keep")}))
    assert found.n_subjects == N
    assert found.keeps_block == {"left": False, "right": False, "third": True}


# ---- keys --------------------------------------------------------------------------------


def test_a_wrong_key_is_not_an_empty_overlap_and_its_holder_is_named() -> None:
    with pytest.raises(ProtocolError, match="a wrong key, not an empty overlap") as caught:
        begun(make_members(federation(), tables(), right={"key": OTHER_KEY}))
    assert "'right'" in str(caught.value)
    assert "'third'" not in str(caught.value)


def test_a_wrong_key_of_the_response_party_is_suspected() -> None:
    with pytest.raises(ProtocolError, match="it may be the key of 'left'"):
        begun(make_members(federation(), tables(), left={"key": OTHER_KEY}))


# ---- ids ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "spell"),
    [
        (("strip",), lambda i: f" s{i}  "),
        (("upper",), lambda i: f"S{i}" if i % 2 else f"s{i}"),
        (("strip", "lower"), lambda i: f"\tS{i}"),
    ],
)
def test_rules_bring_spellings_together(rules: tuple[str, ...], spell: Callable[[int], str]) -> None:
    raw = tables(right=[spell(i) for i in range(N)])
    assert begun(make_members(federation(rules), raw), federation(rules)).n_subjects == N
    with pytest.raises(ProtocolError, match="'right'"):
        begun(make_members(federation(), raw))


def test_leading_zeros_need_their_rule() -> None:
    raw = tables(left=list(range(N)), right=[f"{i:04}" for i in range(N)], third=[f"{i:04}" for i in range(N)])
    with pytest.raises(ProtocolError, match=r"no subject in common with 'left'.*zfill") as caught:
        begun(make_members(federation(), raw))
    assert "'third'" in str(caught.value)  # every party that is concerned, not only the first
    assert begun(make_members(federation(("zfill:4",)), raw), federation(("zfill:4",))).n_subjects == N


def test_strangers_are_counted_and_named_by_party_only() -> None:
    raw = tables(right=["s1", "s2", "zq-stranger", "zq-another"])
    with pytest.raises(ProtocolError, match=r"party 'right': 2 subject id\(s\) are unknown to 'left'") as caught:
        begun(make_members(federation(), raw))
    assert "zq" not in str(caught.value)


@pytest.mark.parametrize("ids", [["s1", "s1", "s2"], ["s1", None, "s2"], ["s1", "", "s2"]])
def test_a_table_with_repeated_or_blank_ids_makes_no_member(ids: list[Any]) -> None:
    with pytest.raises(SchemaError, match="subject id"):
        make_members(federation(), tables(right=ids))


def test_everything_wrong_with_a_table_is_said_at_once() -> None:
    raw = tables()
    raw["right"] = pl.DataFrame({"subject_id": ["s1", "s1"], "x": [True, False]})
    with pytest.raises(SchemaError) as caught:
        make_members(federation(), raw)
    assert len(caught.value.problems) == 2


# ---- replies that cannot be --------------------------------------------------------------


class Tampering:
    """Delivers faithfully, but changes one party's replies on the way."""

    def __init__(self, change: Callable[[Reply], Reply]) -> None:
        self._inner = InProcessTransport(make_members(federation(), tables()))
        self._change = change

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        replies = self._inner.deliver(requests)
        return {**replies, "right": self._change(replies["right"])}


def changed(**fields: Callable[[BeginReply], Any]) -> Callable[[Reply], Reply]:
    def change(reply: Reply) -> Reply:
        if isinstance(reply, BeginReply):
            return replace(reply, **{name: make(reply) for name, make in fields.items()})
        return reply

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed(party=lambda r: "third"), "did not say whether"),
        (changed(key_check=lambda r: r.key_check[:31]), "wrong shape"),
        (changed(key_check=lambda r: r.key_check.astype(np.int64)), "wrong shape"),
        (changed(hashes=lambda r: r.hashes[:, :15]), "wrong shape"),
        (changed(hashes=lambda r: r.hashes.ravel()), "wrong shape"),
        (changed(hashes=lambda r: np.array(3, dtype=np.uint8)), "wrong shape"),
        (changed(hashes=lambda r: r.hashes.astype(np.int64)), "wrong shape"),
        (changed(hashes=lambda r: r.hashes[:0]), "no subjects"),
        (changed(hashes=lambda r: r.hashes[[0, 0, 1]]), "1 row.s. repeat"),
        (changed(ledger_count=lambda r: -1), "where its ledger ends"),
        (lambda r: PlaceReply("right", 3, ""), "did not say whether"),
        (lambda r: replace(r, n_subjects=3) if isinstance(r, PlaceReply) else r, "order of the cohort"),
    ],
)
def test_malformed_replies_are_errors(change: Callable[[Reply], Reply], words: str) -> None:
    with pytest.raises(ProtocolError, match=words) as caught:
        drive(begin_study(federation(), "study", "vcds"), Tampering(change))
    assert "'right'" in str(caught.value)


def test_another_message_version_is_named() -> None:
    with pytest.raises(VersionMismatch, match="'right' speaks message version 99"):
        drive(begin_study(federation(), "study", "vcds"), Tampering(changed(version=lambda r: 99)))


# ---- before anything is spent ------------------------------------------------------------


def test_columns_that_never_meet_stop_the_study_before_it_costs_anything() -> None:
    raw = tables(right=[f"s{i}" for i in range(20)], third=[f"s{i}" for i in range(20, N)])
    members = make_members(federation(), raw)
    synthesizer = Synthesizer(federation(), "vcds")
    with pytest.raises(SchemaError, match=r"right\.x and third\.z are never observed together"):
        synthesizer.fit_transport(InProcessTransport(members), study="s")
    assert all(len(member.vault.ledger) == 0 for member in members.values())
    with pytest.raises(SchemaError, match=r"right\.x and third\.z are never observed together"):
        Synthesizer(federation(), "vcds").fit(raw)
    Synthesizer(federation(), "refined").fit_transport(InProcessTransport(members), study="t")


# ---- the federation's fingerprint --------------------------------------------------------


def test_the_fingerprint_is_of_the_schema_and_not_of_the_network() -> None:
    raw = federation().to_dict()
    same = Federation.from_dict({**raw, "network": {"host": "elsewhere.example", "port": 4711}})
    assert federation_fingerprint(same) == federation_fingerprint(federation())
    assert federation_fingerprint(Federation.from_dict(raw)) == federation_fingerprint(federation())


@pytest.mark.parametrize("what", ["bounds", "kind", "name", "response", "rules", "clamp", "epsilon", "order"])
def test_the_fingerprint_changes_with_every_part(what: str) -> None:
    raw = federation().to_dict()
    first = raw["party"][1]
    column = first["column"][0]
    if what == "bounds":
        column["bounds"] = [-8, 9]
    elif what == "kind":
        first["column"][0] = {"name": "x", "kind": "ordinal", "categories": [1, 2]}
    elif what == "name":
        column["name"] = "w"
    elif what == "response":
        raw["response"] = "right.x"
    elif what == "rules":
        raw["id"] = {"name": "subject_id", "rules": ["strip"]}
    elif what == "clamp":
        column["clamp"] = True
    elif what == "epsilon":
        first["epsilon"] = 2.0
    else:
        raw["party"].reverse()
    assert federation_fingerprint(Federation.from_dict(raw)) != federation_fingerprint(federation())


# ---- blocks ------------------------------------------------------------------------------


def test_every_party_gets_its_own_columns_and_must_say_that_it_wrote_them() -> None:
    values = {key: np.zeros(5) for key in federation().keys}
    rounds = deliver_blocks(federation(), "study", values)
    requests = next(rounds)
    assert list(requests) == [party.name for party in federation().parties]
    for party in federation().parties:
        assert requests[party.name].columns == tuple(column.name for column in party.columns)
    replies = {name: BlockReply(name, 5) for name in requests}
    with pytest.raises(ProtocolError, match="'right' did not write"):
        rounds.send({**replies, "right": PlaceReply("right", 5, "")})
