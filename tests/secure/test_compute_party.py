"""The third compute party of two: who may hold which role, and what an organisation without data answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.builders import make_federation
from tests.members import KEY, make_members
from verticopula import Federation, Synthesizer
from verticopula.errors import PolicyRefused, ProtocolError, SchemaError, SettingsError, VersionMismatch
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.privacy.noise import SecureNoise
from verticopula.protocol.consent_messages import PresenceRequest
from verticopula.protocol.coordinator_side import own_handler
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.party.compute_party import MOST_OPEN, OPEN_DAYS, ComputeParty
from verticopula.protocol.party.sums_handler import SumsHandler
from verticopula.protocol.secure_sums import close_sums
from verticopula.protocol.strict_messages import (
    SumsKeyRequest,
    SumsProofReply,
    SumsProofRequest,
    SumsRequest,
    SumsShareRequest,
    TablesRequest,
)
from verticopula.protocol.study_messages import CloseReply, CloseRequest
from verticopula.protocol.study_proposal import federation_fingerprint
from verticopula.protocol.study_rounds import study_rounds
from verticopula.schema.methods import STRICT, VCDS
from verticopula.schema.progress import show_nothing
from verticopula.schema.study_settings import StudySettings, check_roles
from verticopula.stats.strict.strict_plan import sums_roles
from verticopula.storage.record_store import FolderRecords, MemoryRecords
from verticopula.transport.delivery import drive
from verticopula.transport.in_process_transport import InProcessTransport

STUDY = "study"


def federation(**roles: str) -> Federation:
    columns = {"a": {"x": {"kind": "continuous", "bounds": (-6, 6)}}, "b": {"y": {"kind": "binary"}}}
    return Federation.from_dict({**make_federation(columns).to_dict(), "network": roles})


NOTARY = federation(operator="a", compute="notary")


def tables(n: int = 200) -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(5)
    x, ids = np.clip(rng.standard_normal(n), -6, 6), [f"s{i}" for i in range(n)]
    y = (x + rng.standard_normal(n) > 0).astype(int)
    return {"a": pl.DataFrame({"subject_id": ids, "x": x}), "b": pl.DataFrame({"subject_id": ids, "y": y})}


def notary(records: Any = None, study: Federation = NOTARY) -> ComputeParty:
    return ComputeParty(study, records=records or MemoryRecords(), authenticity=shared_authenticity(KEY))


class Kept:
    """Delivers, and keeps what each one was asked."""

    def __init__(self, handlers: dict[str, Any]) -> None:
        self.handlers, self.asked = handlers, dict[str, list[Request]]()

    def deliver(self, requests: Any) -> dict[str, Reply]:
        for name, request in requests.items():
            self.asked.setdefault(name, []).append(request)
        return InProcessTransport(self.handlers).deliver(requests)


def run(third: ComputeParty, study: Federation = NOTARY) -> tuple[Synthesizer, Kept]:
    way = Kept({**make_members(study, tables()), third.name: third})
    fitted = Synthesizer(study, "strict", 6.0, 1e-6)
    assert fitted.make_compute_handler(MemoryRecords(), shared_authenticity(KEY)) is None
    return fitted.fit_transport(way, study=STUDY), way


def asked_for_sums(way: Kept) -> SumsRequest:
    """The request for the first opening; one for tables may have followed."""
    return next(request for request in way.asked["notary"] if isinstance(request, SumsRequest))


# ---- roles ------------------------------------------------------------------------------------


def test_roles_follow_from_the_federation_file() -> None:
    assert sums_roles(NOTARY) == (("a", "b"), (1, 1), ("a", "b", "notary"))
    assert sums_roles(federation())[2] == ("a", "b", "coordinator")


@pytest.mark.parametrize("operator", ["a", "b", "B"])
def test_no_party_of_two_holds_a_second_role_through_its_coordinator(operator: str) -> None:
    with pytest.raises(SettingsError, match="two of the three compute roles and could read every score"):
        check_roles(federation(operator=operator), STRICT)
    check_roles(federation(operator=operator), VCDS)
    check_roles(federation(operator=operator, compute="notary"), STRICT)


def test_two_parties_say_who_runs_the_coordinator() -> None:
    with pytest.raises(SettingsError, match="needs three that compute, and there are two parties"):
        check_roles(federation(), STRICT)
    check_roles(federation(operator="office"), STRICT)


def test_a_study_of_two_parties_in_one_process_names_its_third_and_nothing_weaker_is_taken() -> None:
    asked = Synthesizer(federation())
    for begin in (asked.check, lambda: asked.fit(tables())):
        with pytest.raises(SettingsError, match=r"two parties.*compute = \"NAME\".*by name, such as vcds"):
            begin()
    assert not hasattr(asked, "study_")
    named = Synthesizer(federation(compute="notary")).fit(tables())
    assert named.settings_["method"] == "strict"
    assert Synthesizer(federation(), "vcds").check().method == "vcds"


@pytest.mark.parametrize(("roles", "said"), [({}, "needs three that compute"), ({"operator": "b"}, "two of the three")])
def test_a_party_refuses_such_a_study_before_it_sends_a_hash(roles: dict[str, str], said: str) -> None:
    study = federation(**roles)
    asked = StudySettings("strict", 6.0, 1e-6).checked(study)
    plain = {"alignment": "hash", "witnesses": None, "requester": "", "purpose": "", "server_seed": None}
    members = make_members(study, tables())
    own = own_handler(study, "strict", lambda _: SecureNoise(), MemoryRecords(), shared_authenticity(KEY))
    rounds = study_rounds(study, asked, STUDY, **plain, progress=show_nothing, compute_handler=own)  # type: ignore[arg-type]
    with pytest.raises(PolicyRefused, match=said):  # of a coordinator that does not ask itself
        drive(rounds, InProcessTransport(members))
    assert all(len(member.vault.ledger) == 0 for member in members.values())


def test_who_computes_is_part_of_what_is_agreed_on() -> None:
    roles: list[dict[str, str]] = [{}, {"operator": "a"}, {"compute": "c"}, {"compute": "d"}]
    assert len({federation_fingerprint(federation(**chosen)) for chosen in roles}) == 4
    assert federation_fingerprint(federation(host="x.example.org")) == federation_fingerprint(federation())


def test_the_third_holds_no_data_and_is_for_two_parties() -> None:
    for name in ("a", "B"):
        with pytest.raises(SchemaError, match="holds data"):
            federation(compute=name)
    for name in ("coordinator", "Coordinator", "lead"):  # the coordinator would compute under a name that hides it
        with pytest.raises(SchemaError, match="which is somebody else"):
            federation(operator="a", compute=name)
    with pytest.raises(SchemaError, match="letters, digits"):
        federation(compute="../x")
    raw = make_federation({name: {"x": {"kind": "binary"}} for name in "abc"}).to_dict()
    with pytest.raises(SchemaError, match="of three or more, the first three"):
        Federation.from_dict({**raw, "network": {"compute": "notary"}})


def test_the_file_keeps_the_roles(tmp_path: Path) -> None:
    NOTARY.to_toml(tmp_path / "federation.toml")
    assert Federation.from_toml(tmp_path / "federation.toml") == NOTARY


# ---- studies -----------------------------------------------------------------------------------


def test_a_study_over_members_and_a_third() -> None:
    fitted, way = run(notary())
    assert np.isfinite(fitted.result_.copula.correlation).all()
    kinds = [type(request) for request in way.asked["notary"]]
    assert kinds[:2] == [SumsKeyRequest, SumsShareRequest]
    first = kinds.index(SumsRequest)
    assert set(kinds[2:first]) == {SumsProofRequest}
    assert kinds[first + 1 :] in ([], [TablesRequest])  # noise decides whether tables are chosen


def test_the_third_is_not_told_what_the_plan_follows_from() -> None:
    """It cannot compute the plan, so it needs nobody's margins; parties with data get all of them."""
    _, way = run(notary())
    shown = {
        name: [request.evidence is not None for request in asked if isinstance(request, SumsShareRequest)]
        for name, asked in way.asked.items()
    }
    assert shown == {**{party.name: [True] for party in NOTARY.parties}, "notary": [False]}


def test_in_one_process_somebody_plays_the_third() -> None:
    fitted = Synthesizer(NOTARY, "strict", 6.0, 1e-6).fit(tables())
    assert np.isfinite(fitted.result_.copula.correlation).all()


def test_a_restarted_third_gives_the_same_bytes_until_the_study_is_over(tmp_path: Path) -> None:
    _, way = run(notary(FolderRecords(tmp_path)))
    keys = way.asked["notary"][0]
    sums = next(request for request in way.asked["notary"] if isinstance(request, SumsRequest))
    again = notary(FolderRecords(tmp_path))
    lacking = again.handle(sums)  # large bodies are not kept on disk, and are sent once more
    assert isinstance(lacking, SumsProofReply)
    assert lacking.lacks_bodies
    bodies = next(request.bodies for request in way.asked["notary"] if isinstance(request, SumsProofRequest))
    first, second = (third.handle(replace(sums, bodies=bodies)) for third in (way.handlers["notary"], again))
    np.testing.assert_array_equal(first.term, second.term)
    drive(close_sums("notary", STUDY), InProcessTransport({"notary": again}))
    assert again.handle(CloseRequest(STUDY)) == CloseReply("notary", 0, "")
    secret = FolderRecords(tmp_path).get(SumsHandler.record_name("notary", STUDY))
    assert secret == {}
    for third in (again, notary(FolderRecords(tmp_path))):
        for request in (keys, sums):
            with pytest.raises(ProtocolError, match="this study is over"):
                third.handle(request)


@pytest.mark.parametrize(
    "change",
    [
        {"parties": ("a", "c")},
        {"n_columns": (2, 1)},
        {"compute": ("a", "notary", "b")},
        {"compute": ("a", "b", "coordinator")},
    ],
    ids=str,
)
def test_the_third_takes_roles_from_its_own_file_only(change: dict[str, Any]) -> None:
    _, way = run(notary())
    shares, sums = way.asked["notary"][1], asked_for_sums(way)
    assert isinstance(shares, SumsShareRequest)
    fresh = notary()
    fresh.handle(SumsKeyRequest(STUDY, "strict"))
    for request in (shares, sums):
        with pytest.raises(ProtocolError):
            fresh.handle(replace(request, plan=replace(request.plan, **change)))


def test_a_plan_of_two_parties_is_none_for_the_third_of_others() -> None:
    """Even with the right secret: the same name, the same keys, and a federation file with other columns."""
    _, way = run(notary())
    name = SumsHandler.record_name("notary", STUDY)
    kept = way.handlers["notary"]._records.get(name)
    raw = NOTARY.to_dict()
    raw["party"][0]["column"].append({"name": "more", "kind": "binary"})
    records = MemoryRecords()
    records.put(name, {**kept, "plan": "", "inputs": "", "noise": ""})
    with pytest.raises(ProtocolError, match="names other parties, columns or roles"):
        notary(records, Federation.from_dict(raw)).handle(way.asked["notary"][1])


def test_noise_is_used_for_one_set_of_shares() -> None:
    """Whatever the record of the proofs says: noise that was drawn for other shares is used for no others."""
    _, way = run(notary())
    name = SumsHandler.record_name("notary", STUDY)
    records = MemoryRecords()
    records.put(name, {**way.handlers["notary"]._records.get(name), "inputs": "00" * 32})
    sums = asked_for_sums(way)
    bodies = next(request.bodies for request in way.asked["notary"] if isinstance(request, SumsProofRequest))
    with pytest.raises(ProtocolError, match="added up other shares"):
        notary(records).handle(replace(sums, bodies=bodies))


def test_invented_studies_fill_no_disk() -> None:
    records, now = MemoryRecords(), [1e9]
    third = ComputeParty(NOTARY, records=records, authenticity=shared_authenticity(KEY), clock=lambda: now[0])
    for k in range(MOST_OPEN):
        third.handle(SumsKeyRequest(f"study {k}", "strict"))
    kept = len(records._records)
    with pytest.raises(PolicyRefused, match="that are not over"):
        third.handle(SumsKeyRequest("one more", "strict"))
    for k in range(10):
        third.handle(CloseRequest(f"never opened {k}"))
    assert len(records._records) == kept
    third.handle(CloseRequest("study 0"))
    third.handle(SumsKeyRequest("one more", "strict"))
    with pytest.raises(PolicyRefused, match="that are not over"):
        third.handle(SumsKeyRequest("yet another", "strict"))
    now[0] += (OPEN_DAYS + 1.0) * 86_400  # studies that were given up do not stand in the way for ever
    third.handle(SumsKeyRequest("yet another", "strict"))


def test_the_third_answers_nothing_else() -> None:
    _, way = run(notary())
    for request in (PresenceRequest(STUDY, "strict"), way.asked["a"][0]):
        with pytest.raises(PolicyRefused, match="computes and holds no data"):
            notary().handle(request)
    with pytest.raises(PolicyRefused, match="by method 'strict' only"):
        notary().handle(SumsKeyRequest(STUDY, "vcds"))
    with pytest.raises(VersionMismatch):
        notary().handle(replace(SumsKeyRequest(STUDY, "strict"), version=99))
    for name in ("", "x" * 201, "a\nb"):
        with pytest.raises(ProtocolError, match="printable characters"):
            notary().handle(SumsKeyRequest(name, "strict"))
    with pytest.raises(SettingsError, match="names no compute party"):
        notary(study=federation())


def test_a_third_with_other_shares_is_refused_by_its_peers() -> None:
    """The coordinator cannot put itself in the third's place: parties know its key by the authority's signature."""
    members = make_members(NOTARY, tables())
    evil = ComputeParty(NOTARY, records=MemoryRecords(), authenticity=shared_authenticity(bytes(32)))
    with pytest.raises(ProtocolError, match="public key"):
        Synthesizer(NOTARY, "strict", 6.0, 1e-6).fit_transport(
            InProcessTransport({**members, "notary": evil}), study=STUDY
        )
