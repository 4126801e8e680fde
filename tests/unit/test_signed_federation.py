"""A new federation file: what differs, who signed it, what a party checks itself, and what is on disk at any moment."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.network.harness import small_federation
from verticopula.errors import (
    ConsentPending,
    EngineError,
    PolicyRefused,
    ProtocolError,
    SchemaError,
    SettingsError,
)
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.network.connection.control_messages import CHANGE_NAME, ChangeReply, ChangeRequest
from verticopula.network.kit.certificate_authority import Authority
from verticopula.network.kit.certificate_issuing import current_time, new_root
from verticopula.network.kit.provisioning import ProvisionOrder, carry_out, provision
from verticopula.network.kit.signed_federation import (
    SIGNED_FEDERATION_FILE,
    KitFederations,
    change_problem,
    read_signed_federation,
    sign_federation,
)
from verticopula.network.kit.startup_kit import FEDERATION_FILE, PID_FILE, Kit
from verticopula.network.party.federation_difference import describe_change
from verticopula.network.party.party_federations import FederationVersions, PartyFederations
from verticopula.privacy.policy import Policy
from verticopula.protocol.party.compute_party import ComputeParty, compute_began_under
from verticopula.protocol.strict_messages import SumsKeyRequest
from verticopula.protocol.study_messages import BeginRequest, CloseRequest
from verticopula.protocol.study_proposal import federation_fingerprint
from verticopula.schema.federation import Federation
from verticopula.schema.federation_digest import federation_file_digest
from verticopula.storage.record_store import MemoryRecords
from verticopula.storage.request_sentences import request_sections
from verticopula.storage.request_store import RequestStore
from verticopula.storage.steward_keys import Steward
from verticopula.storage.steward_requests import RequestContent, Verdict

FOURTH = {"name": "fourth", "column": [{"name": "x5", "kind": "continuous", "bounds": [0, 1]}]}

Change = Callable[[dict[str, Any]], object]


def changed(change: Change = lambda raw: None, version: int = 2) -> Federation:
    """The small federation with another version, and with something changed."""
    raw = copy.deepcopy(BEFORE.to_dict())
    change(raw)
    return Federation.from_dict({**raw, "version": version})


BEFORE = small_federation()

# ---- the difference -----------------------------------------------------------------------------------------------

CHANGES: list[tuple[Change, list[str]]] = [
    (
        lambda raw: raw["party"].append(FOURTH),
        ["Party fourth joins, with 1 column: x5 (continuous, bounds [0.0, 1.0])."],
    ),
    (
        lambda raw: raw["party"].pop(2),
        ["Party right leaves.", "Secure sums are computed by left, middle, coordinator; it was left, middle, right."],
    ),
    (
        lambda raw: raw["party"][0]["column"][1].update(bounds=[-9, 9]),
        ["Your column x1, bounds: [-9.0, 9.0]; it was [-6.0, 6.0]."],
    ),
    (
        lambda raw: raw["party"][0]["column"].append({"name": "z", "kind": "count", "bounds": [0, 9]}),
        ["Your column z is new: z (count, bounds [0, 9])."],
    ),
    (lambda raw: raw["party"][0]["column"].pop(), ["Your column x1 is taken out."]),
    (lambda raw: raw["party"][0].update(epsilon=2.5), ["Your epsilon: 2.5; it was nothing."]),
    (
        lambda raw: raw["party"][2]["column"][0].update(categories=["low", "mid", "high", "top"]),
        ["Column right.x3, categories gains top."],
    ),
    (lambda raw: raw["party"][2]["column"].reverse(), ["Party right, columns' order becomes x4, x3."]),
    (
        lambda raw: raw["party"].reverse(),
        [
            "The parties' order becomes right, middle, left.",
            "Secure sums are computed by right, middle, left; it was left, middle, right.",
        ],
    ),
    (
        lambda raw: raw.update(response="right.x4"),
        ["The response, whose party's people are the cohort: right.x4; it was left.y."],
    ),
    (
        lambda raw: raw.update(id={"name": "subject_id", "rules": ["upper"]}),
        ['The id column, or how ids are made alike: {"name": "subject_id", "rules": ["upper"]}; it was subject_id.'],
    ),
    (lambda raw: raw["network"].update(leads=["clinic"]), ['Who may ask for studies: ["clinic"]; it was ["lead"].']),
    (lambda raw: raw["network"].update(operator="bank"), ["Who runs the coordinator: bank; it was nothing."]),
    (lambda raw: raw["network"].update(deadline=5.0), ["Seconds that a party has for one round: 5.0; it was 60.0."]),
    (
        lambda raw: raw.update(bounds_source="from-data"),
        ["Where bounds and categories come from: from-data; it was public."],
    ),
]


@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_everything_that_differs_is_said(change: Change, said: list[str]) -> None:
    assert describe_change(BEFORE, changed(change), "left") == said


def test_no_difference_but_the_version_says_nothing() -> None:
    assert describe_change(BEFORE, changed()) == []


def test_what_is_about_the_reader_comes_first() -> None:
    def both(raw: dict[str, Any]) -> None:
        raw["party"][1]["column"].append({"name": "Your column", "kind": "binary"})
        raw["party"][2]["column"][1]["bounds"] = [-9, 9]

    said = describe_change(BEFORE, changed(both), "right")
    assert said == [
        "Your column x4, bounds: [-9.0, 9.0]; it was [-6.0, 6.0].",
        "Column middle.Your column is new: Your column (binary, categories [0, 1]).",
    ]


def test_two_parties_say_who_computes() -> None:
    two = changed(lambda raw: raw["party"].pop(2))
    raw = {**two.to_dict(), "version": 3}
    raw["network"]["compute"] = "notary"
    said = describe_change(two, Federation.from_dict(raw))
    assert said == [
        "Who computes without data: notary; it was nothing.",
        "Secure sums are computed by left, middle, notary; it was left, middle, coordinator.",
    ]


# ---- who signed it ------------------------------------------------------------------------------------------------


def test_a_signed_file_says_what_was_signed_and_nothing_else_passes() -> None:
    root, other, now = new_root(current_time()), new_root(current_time()), current_time()
    text = sign_federation(BEFORE, [root], now)
    found = read_signed_federation(text, [other.certificate, root.certificate])
    assert (found.federation, found.digest) == (BEFORE, federation_file_digest(BEFORE))
    with pytest.raises(SettingsError, match="not signed by a root that this kit trusts"):
        read_signed_federation(text, [other.certificate])
    raw = json.loads(text)
    raw["file"]["federation"]["party"][0]["column"][1]["bounds"] = [-9.0, 9.0]
    with pytest.raises(SettingsError, match="not signed"):
        read_signed_federation(json.dumps(raw), [root.certificate])
    for nonsense in ("", "[]", "{}", '{"file": 3, "signatures": {}}', "[" * 100_000, text[:-9]):
        with pytest.raises(SettingsError, match="cannot be read"):
            read_signed_federation(nonsense, [root.certificate])
    broken = {"federation": {"name": "x"}, "issued": "now"}
    from verticopula.network.kit.signed_federation import _CONTEXT
    from verticopula.network.kit.trust_store import sign_as_roots

    signed = json.dumps({"file": broken, "signatures": sign_as_roots(_CONTEXT, broken, [root])})
    with pytest.raises(SettingsError, match="none that this version"):
        read_signed_federation(signed, [root.certificate])


def test_provision_signs_again_for_a_new_root_and_after_the_old_one_is_gone(tmp_path: Path) -> None:
    out = tmp_path / "kits"
    provision(BEFORE, out)
    text = (out / "authority" / SIGNED_FEDERATION_FILE).read_text()
    provision(BEFORE, out)
    assert (out / "authority" / SIGNED_FEDERATION_FILE).read_text() == text
    for order in (ProvisionOrder(rotate_root=True), ProvisionOrder(retire_root=True)):
        carry_out(BEFORE, out, order)
        again = (out / "authority" / SIGNED_FEDERATION_FILE).read_text()
        roots = [root.certificate for root in Authority.read(out / "authority").roots]
        assert [read_signed_federation(again, [root]).federation for root in roots] == [BEFORE] * len(roots)


def test_a_kit_that_was_used_keeps_its_file_and_the_coordinators_gets_the_signed_one(tmp_path: Path) -> None:
    out = tmp_path / "kits"
    provision(BEFORE, out)
    for name in ("server", "left"):
        (out / name / PID_FILE).touch()
    made = carry_out(changed(lambda raw: raw["party"].append(FOURTH)), out, ProvisionOrder())
    assert {kit.name: kit.federation.version for kit in made.kits} == {
        "coordinator": 1, "lead": 2, "left": 1, "middle": 2, "right": 2, "fourth": 2,
    }  # fmt: skip
    assert [(out / name / SIGNED_FEDERATION_FILE).exists() for name in ("server", "left")] == [True, False]
    assert sum("keeps its federation file until its stewards have agreed" in note for note in made.notes) == 2
    with pytest.raises(SettingsError, match="count its `version` up"):
        provision(changed(lambda raw: raw["party"].append(FOURTH), 1), out)


def test_a_request_of_before_has_the_digest_of_before() -> None:
    said = json.loads(RequestContent("left", "study", "releases").to_json())
    assert not {"changes", "versions", "authority"} & said.keys()


# ---- what cannot be, whoever signed it ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "version", "why"),
    [
        (lambda raw: None, 1, "an earlier file does not come back"),
        (lambda raw: raw.update(name="other"), 2, "is of the federation 'other'"),
        (lambda raw: raw["network"].update(port=1), 2, "address would change"),
        (lambda raw: raw["network"].update(host="elsewhere"), 2, "address would change"),
        (lambda raw: raw["party"].append({**FOURTH, "name": "coordinator"}), 2, "cannot be called 'coordinator'"),
        (lambda raw: raw["party"].append({**FOURTH, "name": "localhost"}), 2, "coordinator's host name"),
        (lambda raw: (raw["party"].pop(2), raw["network"].update(compute="right")), 2, "right would have another role"),
    ],
)
def test_a_file_that_cannot_take_the_place_of_the_present_one(change: Change, version: int, why: str) -> None:
    assert why in change_problem(BEFORE, changed(change, version))


def test_a_party_that_joins_or_leaves_is_no_problem() -> None:
    assert change_problem(BEFORE, changed(lambda raw: raw["party"].append(FOURTH))) == ""
    assert change_problem(BEFORE, changed(lambda raw: raw["party"].pop(2))) == ""


# ---- a party ------------------------------------------------------------------------------------------------------


class Answering:
    """Answers under one file, and says which."""

    def __init__(self, federation: Federation) -> None:
        self.version = federation.version

    def handle(self, request: Any) -> Any:
        return self.version


class Side:
    """A party with a real kit and store, and an authority that signs for it."""

    def __init__(self, folder: Path) -> None:
        provision(BEFORE, folder)
        self.folder, self.kit = folder, Kit.read(folder / "left")
        self.store = RequestStore.of_kit(self.kit.folder)
        self.begun: dict[str, str] = {}
        self.policy = Policy()
        self.made: list[int] = []
        self.start()

    def start(self) -> None:
        """As a process that is started."""
        self.files = PartyFederations(self.kit, self.store, self.policy)
        self.versions = FederationVersions(self.files, self.make, self.begun.get)

    def make(self, federation: Federation) -> Answering:
        self.made.append(federation.version)
        return Answering(federation)

    def signed(self, federation: Federation) -> bytes:
        roots = Authority.read(self.folder / "authority").roots
        return sign_federation(federation, roots, current_time()).encode()

    def show(self, federation: Federation, *, in_force: bool = False) -> ChangeReply:
        reply: ChangeReply = self.versions.handle(ChangeRequest(self.signed(federation), in_force))
        return reply

    def decide(self, verdict: Verdict, reason: str = "") -> None:
        request = (
            self.store.all("pending", study=CHANGE_NAME)[0] if verdict != "withdrawn" else self.store.all("approved")[0]
        )
        self.store.decide(request.id, Steward("anna").decide(request, verdict, reason))

    def agree(self, federation: Federation) -> ChangeReply:
        with pytest.raises(ConsentPending):
            self.show(federation)
        self.decide("yes")
        return self.show(federation)

    def begin(self, federation: Federation, study: str = "s") -> Any:
        return self.versions.handle(
            BeginRequest(study, "vcds", federation_fingerprint(federation), "hash", None, 0, "")
        )

    @property
    def on_disk(self) -> int:
        return self.kit.federation.version


@pytest.fixture
def side(tmp_path: Path) -> Side:
    return Side(tmp_path / "kits")


def test_a_yes_is_kept_and_the_file_holds_once_everybody_has_agreed(side: Side) -> None:
    after, seen = changed(lambda raw: raw["party"].append(FOURTH)), []
    side.files.on_change = seen.append
    reply = side.agree(after)
    assert (reply.in_force, reply.federation_version, reply.digest) == (False, 1, federation_file_digest(after))
    assert (side.on_disk, side.begin(BEFORE), seen) == (1, 1, [])
    side.begun["old"] = federation_fingerprint(BEFORE)
    assert side.show(after, in_force=True).federation_version == 2
    assert (side.on_disk, side.begin(after), seen) == (2, 2, [after])
    assert side.versions.handle(CloseRequest("old")) == 1  # it began with the old file
    assert side.begin(BEFORE, "new") == 2  # and who asks for it anew meets the new one, which refuses
    side.start()
    assert (side.begin(after), side.versions.handle(CloseRequest("old"))) == (2, 1)
    assert [event.what for event in side.store.events()] == ["asked", "yes", "approved", "used", "in force"]
    assert side.show(after).in_force  # again: nothing happens
    assert side.store.verify()[0] == 5


def test_where_an_engine_is_stays_at_home_when_a_file_or_a_study_meets_it_lost(side: Side) -> None:
    """A table is read for a new file, and after a restart for the file that a study began with."""
    lost = EngineError("engine tls://inner.bank.example:8786 is lost (OSError). Look at its scheduler")

    def fail(federation: Federation) -> Answering:
        raise lost

    after = changed(lambda raw: raw["party"].append(FOURTH))
    side.agree(after)
    side.show(after, in_force=True)
    side.start()
    side.begun["old"] = federation_fingerprint(BEFORE)
    side.versions._make = fail
    newer = changed(lambda raw: raw["party"].append(FOURTH), version=3)
    with pytest.raises(ConsentPending):
        side.show(newer)
    side.decide("yes")
    for ask in (lambda: side.show(newer), lambda: side.versions.handle(CloseRequest("old"))):
        with pytest.raises(ProtocolError, match="cannot read its table at the moment") as caught:
            ask()
        assert "inner.bank.example" not in str(caught.value)


def test_a_steward_reads_what_changes(side: Side) -> None:
    after = changed(lambda raw: raw["party"][0]["column"][1].update(bounds=[-9, 9]))
    with pytest.raises(ConsentPending):
        side.show(after)
    request = side.store.all("pending")[0]
    sections = dict(request_sections(request))
    assert sections["What changes"] == [
        "The federation file changes from version 1 to version 2.",
        "Your column x1, bounds: [-9.0, 9.0]; it was [-6.0, 6.0].",
    ]
    assert federation_file_digest(after) in sections["What a yes means"][-1]
    assert RequestContent.from_json(request.content.to_json()) == request.content


def test_a_no_and_a_yes_that_was_taken_back_are_refused(side: Side) -> None:
    after = changed()
    with pytest.raises(ConsentPending):
        side.show(after)
    side.decide("no", "not ours")
    for in_force in (False, True):
        with pytest.raises(PolicyRefused, match="its steward said no: not ours"):
            side.show(after, in_force=in_force)
    side.agree(changed(version=3))
    side.decide("withdrawn")
    with pytest.raises(PolicyRefused, match="has taken back their yes"):
        side.show(changed(version=3), in_force=True)
    assert side.on_disk == 1


def test_an_older_or_another_file_of_a_version_does_not_supersede_what_was_shown(side: Side) -> None:
    newer = changed(version=3)
    with pytest.raises(ConsentPending):
        side.show(newer)
    with pytest.raises(PolicyRefused, match="version 3 was shown before"):
        side.show(changed(version=2))
    with pytest.raises(PolicyRefused, match="another file of version 3 was shown before"):
        side.show(changed(lambda raw: raw["party"].append(FOURTH), 3))
    assert [one.state for one in side.store.all()] == ["pending"]
    with pytest.raises(ConsentPending):  # a newer one does: nobody needs to decide about the old one any more
        side.show(changed(version=4))
    assert [one.state for one in side.store.all()] == ["superseded", "pending"]


def test_a_file_that_nobody_agreed_to_counts_for_nothing_wherever_it_is(side: Side) -> None:
    after = changed()
    (side.kit.folder / SIGNED_FEDERATION_FILE).write_bytes(side.signed(after))
    side.start()
    assert side.files.agreed is None
    with pytest.raises(ConsentPending):
        side.show(after, in_force=True)
    (side.kit.folder / SIGNED_FEDERATION_FILE).write_text("{")
    side.start()
    assert (side.on_disk, side.begin(BEFORE)) == (1, 1)


def test_two_people_where_the_policy_says_so(tmp_path: Path) -> None:
    keys = {name: Steward.create(name, tmp_path / f"{name}.pem") for name in ("anna", "bert")}
    side = Side(tmp_path / "kits")
    side.policy = Policy(approvals=2, stewards={name: one.public_key for name, one in keys.items()})
    side.start()
    for steward in keys.values():
        with pytest.raises(ConsentPending):
            side.show(changed())
        request = side.store.all("pending")[0]
        side.store.decide(request.id, steward.decide(request, "yes"))
    assert side.show(changed()).federation_version == 1
    side.policy = Policy(approvals=2, stewards={"anna": keys["anna"].public_key, "carl": "ab" * 32})
    side.start()  # bert is no steward any more: his yes does not count
    assert side.files.agreed is None


@pytest.mark.parametrize("killed_after", ["write", "use", "earlier", "replace"])
def test_killed_at_any_moment(side: Side, killed_after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the yes and the file in force: a start finds the old file or the new one, and goes on from there."""

    class Killed(BaseException):
        pass

    def dies(*_: object, **__: object) -> None:
        raise Killed

    after = changed(lambda raw: raw["party"].append(FOURTH))
    with pytest.raises(ConsentPending):
        side.show(after)
    side.decide("yes")
    if killed_after == "write":
        monkeypatch.setattr(side.store, "mark_used", dies)
    elif killed_after == "use":
        monkeypatch.setattr(side.files.files, "replace", dies)
    elif killed_after == "earlier":
        monkeypatch.setattr("verticopula.network.kit.signed_federation.FEDERATION_FILE", "no/such/folder")
    else:
        monkeypatch.setattr(side.store, "note", dies)
    with pytest.raises((Killed, OSError)):
        side.show(after, in_force=True)
    monkeypatch.undo()
    assert side.on_disk == (2 if killed_after == "replace" else 1)
    side.start()
    assert side.show(after, in_force=True).federation_version == 2
    assert (side.on_disk, side.begin(after)) == (2, 2)
    assert [event.what for event in side.store.events()] == ["asked", "yes", "approved", "used", "in force"]
    assert side.files.files.find(federation_fingerprint(BEFORE)) == BEFORE


def test_a_table_that_does_not_fit_the_new_file_keeps_the_old_one(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    def does_not_fit(federation: Federation) -> Answering:
        if federation.version == 2:
            raise SchemaError([])
        return Answering(federation)

    monkeypatch.setattr(side, "make", does_not_fit)
    side.start()
    with pytest.raises(ConsentPending):
        side.show(changed())
    side.decide("yes")
    with pytest.raises(ProtocolError, match="its table does not fit version 2"):
        side.show(changed(), in_force=True)
    assert (side.on_disk, side.files.agreed) == (1, None)
    monkeypatch.undo()
    side.start()
    assert side.show(changed(), in_force=True).federation_version == 2  # nobody is asked again


def test_a_study_that_was_asked_about_with_the_old_file_begins_with_it(side: Side) -> None:
    asked = RequestContent("left", "s", "beginning", federation=federation_fingerprint(BEFORE))
    side.store.ask(asked)
    side.agree(changed())
    side.show(changed(), in_force=True)
    assert side.begin(BEFORE) == 1
    assert side.begin(BEFORE, "another") == 2


@pytest.mark.parametrize("end", ["no", "expired", "cancelled"])
def test_a_question_that_is_over_begins_no_study_with_the_old_file(side: Side, end: str) -> None:
    """A coordinator could otherwise keep an old file alive by asking once, and beginning after the file has changed."""
    asked = side.store.ask(RequestContent("left", "s", "beginning", federation=federation_fingerprint(BEFORE)))
    if end == "no":
        side.store.decide(asked.id, Steward("anna").decide(asked, "no", "not this"))
    elif end == "expired":
        side.store.expire(asked.id)
    else:
        side.store.cancel("s", "coordinator")
    side.agree(changed())
    side.show(changed(), in_force=True)
    assert side.begin(BEFORE) == 2


def test_a_study_of_the_same_name_ends_no_question_about_the_file(side: Side) -> None:
    with pytest.raises(ConsentPending):
        side.show(changed())
    side.store.cancel(CHANGE_NAME, "coordinator")
    assert [one.state for one in side.store.all()] == ["pending"]


def test_nobody_is_buried_under_versions(side: Side) -> None:
    for version in range(2, 42):
        with pytest.raises(ConsentPending):
            side.show(changed(version=version))
    with pytest.raises(PolicyRefused, match="40 others were shown in the last 30 days"):
        side.show(changed(version=42))
    with pytest.raises(ConsentPending):  # the last one that was shown can still be decided about
        side.show(changed(version=41))
    assert [one.content.versions[1] for one in side.store.all("pending")] == [41]


def test_who_computes_without_data_keeps_a_study_with_the_file_it_began_with(tmp_path: Path) -> None:
    two = changed(lambda raw: (raw["party"].pop(2), raw["network"].update(compute="notary")), 1)
    provision(two, tmp_path / "kits")
    kit, records = Kit.read(tmp_path / "kits/notary", "compute"), MemoryRecords()
    store = RequestStore.of_kit(kit.folder)
    made: list[int] = []

    def make(federation: Federation) -> ComputeParty:
        made.append(federation.version)
        return ComputeParty(federation, records=records, authenticity=shared_authenticity(b"k" * 32))

    versions = FederationVersions(PartyFederations(kit, store, Policy()), make, partial(compute_began_under, records))
    versions.handle(SumsKeyRequest("old", "strict"))
    raw = {**two.to_dict(), "version": 2}
    raw["party"][1]["column"].append({"name": "z", "kind": "binary"})
    text = sign_federation(
        Federation.from_dict(raw), Authority.read(tmp_path / "kits/authority").roots, current_time()
    ).encode()
    with pytest.raises(ConsentPending):
        versions.handle(ChangeRequest(text, in_force=False))
    request = store.all("pending")[0]
    assert request.content.changes[0] == "Column middle.z is new: z (binary, categories [0, 1])."
    store.decide(request.id, Steward("notary").decide(request, "yes"))
    assert versions.handle(ChangeRequest(text, in_force=True)).federation_version == 2
    versions.handle(SumsKeyRequest("new", "strict"))
    began = [compute_began_under(records, study) for study in ("old", "new", "none")]
    assert began == [federation_fingerprint(two), federation_fingerprint(Federation.from_dict(raw)), None]
    versions.handle(SumsKeyRequest("old", "strict"))
    assert compute_began_under(records, "old") == began[0]
    assert made == [1, 2]


def test_an_earlier_file_is_found_by_its_fingerprint_alone(tmp_path: Path) -> None:
    provision(BEFORE, tmp_path / "kits")
    kit = Kit.read(tmp_path / "kits/left")
    files = KitFederations(kit)
    files.replace(changed())
    first = federation_fingerprint(BEFORE)
    assert KitFederations(kit).find(first) == BEFORE
    for name in ("", "..", "../federation", first[:-1], federation_fingerprint(changed(version=9))):
        assert files.find(name) is None
    path = kit.folder / "earlier-federations" / f"{first}.toml"
    changed(version=7).to_toml(path)  # altered on disk
    assert files.find(first) is None
    assert (kit.folder / FEDERATION_FILE).read_text() == changed().to_toml()


def test_who_shows_less_than_a_signed_file_is_refused(side: Side) -> None:
    good = side.signed(changed())
    for raw in (b"", b"\xff\xfe", good[:-1], good.replace(b'"version": 2', b'"version": 3')):
        with pytest.raises(PolicyRefused):
            side.versions.handle(ChangeRequest(raw, in_force=True))
    assert side.store.all() == []
