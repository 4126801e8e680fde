"""A party joins, leaves or changes its columns while real processes run: by consent, without a restart."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.network.attackers import EvilCoordinator
from tests.network.faults import ProcessStarter
from tests.network.harness import PARTIES, PATIENCE, POLICY, Net, network, small_federation, until
from tests.network.test_stewards import state_of, store_of
from tests.network.test_strict_network import two_parties
from verticopula.errors import SettingsError, VerticopulaError
from verticopula.network.connection.control_messages import (
    CHANGE_NAME,
    ChangeRequest,
    Refusal,
    StatusReply,
    StatusRequest,
)
from verticopula.network.kit.certificate_authority import Authority
from verticopula.network.kit.certificate_issuing import current_time, new_root
from verticopula.network.kit.provisioning import provision
from verticopula.network.kit.signed_federation import SIGNED_FEDERATION_FILE, sign_federation
from verticopula.network.lead.study_lead import Lead
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.study_messages import BeginRequest
from verticopula.protocol.study_proposal import federation_fingerprint
from verticopula.protocol.wire import encode
from verticopula.schema.federation import Federation
from verticopula.schema.federation_digest import federation_file_digest
from verticopula.storage.request_store import RequestStore
from verticopula.storage.steward_keys import Steward
from verticopula.storage.steward_requests import Verdict

pytestmark = pytest.mark.processes

FOURTH = {"name": "fourth", "column": [{"name": "x5", "kind": "binary"}]}
REVIEWED = {"middle": POLICY + 'review = "everything"\n'}


@pytest.fixture
def net(tmp_path: Path, starter: ProcessStarter) -> Iterator[Net]:
    with network(tmp_path, federation=small_federation(), policies=REVIEWED) as found:
        found.starter = starter.start
        found.start_all()
        with found.lead() as lead:  # a kit that no process has run on is not asked
            until(lambda: all(party.connected for party in status(lead).parties))
        yield found


def decide(store: RequestStore, study: str, verdict: Verdict, reason: str = "") -> str:
    """A steward's answer to the request of this name that waits, once it does."""
    request = until(lambda: next(iter(store.all("pending", study=study)), None))
    store.decide(request.id, Steward("anna").decide(request, verdict, reason))
    return str(request.id)


def changed(federation: Federation, version: int = 2, **changes: Any) -> Federation:
    """The federation with another version, and with other entries."""
    return Federation.from_dict({**federation.to_dict(), "version": version, **changes})


def with_fourth(federation: Federation) -> Federation:
    return changed(federation, party=[*federation.to_dict()["party"], FOURTH])


def without(federation: Federation, name: str) -> Federation:
    return changed(federation, party=[one for one in federation.to_dict()["party"] if one["name"] != name])


def propose(net: Net, federation: Federation) -> None:
    """As whoever provisions does: kits for those who are new, and the signed file for the coordinator."""
    provision(federation, net.folder / "kits")


def use(net: Net, federation: Federation) -> None:
    """Submit studies with this file from now on."""
    net.federation = federation


def status(lead: Lead) -> StatusReply:
    found: StatusReply = lead.ask(StatusRequest(), seconds=PATIENCE)
    return found


def answers(lead: Lead) -> dict[str, str]:
    """What everybody who stays says to the proposed file."""
    change = status(lead).change
    return {} if change is None else {answer.party: answer.state for answer in change.answers}


def wait_in_force(lead: Lead, version: int) -> None:
    """Until the coordinator and everybody who is connected have that version."""
    until(
        lambda: (
            (now := status(lead)).federation_version == version
            and {party.federation_version for party in now.parties if party.connected} == {version}
        )
    )


def versions_on_disk(net: Net, *names: str) -> list[int]:
    return [net.kit(name).federation.version for name in names]


def fourth_table(net: Net) -> None:
    ids = pl.read_csv(net.folder / "left.csv")["subject_id"]
    values = np.random.default_rng(5).integers(0, 2, len(ids))
    pl.DataFrame({"subject_id": ids, "x5": values}).write_csv(net.folder / "fourth.csv")
    (net.folder / "fourth.toml").write_text(POLICY, "utf-8")


def test_a_fourth_party_joins_while_a_study_is_open(net: Net) -> None:
    """The open study ends with the old file, one that was submitted early waits for the new one, nobody restarts."""
    before = net.federation
    pids = {name: process.pid for name, process in net.processes.items()}
    with net.lead() as lead:
        opened = net.submit(lead, method="vcds", epsilon=8.0)
        until(lambda: state_of(lead, opened).state == "waiting")
        after = with_fourth(before)
        propose(net, after)
        fourth_table(net)
        net.start("fourth")  # before anybody has agreed: it is told so, and connects by itself later
        until(lambda: "takes part from version 2" in net.output("fourth"))
        request = until(lambda: store_of(net, "left").all("pending", study=CHANGE_NAME))[0]
        assert request.content.changes == ("Party fourth joins, with 1 column: x5 (binary, categories [0, 1]).",)
        assert (request.content.versions, request.content.stage) == ((1, 2), "federation")
        use(net, after)
        early = net.submit(lead, method="vcds", epsilon=8.0)
        waiting = until(lambda: (one := state_of(lead, early)).state == "waiting" and one)
        assert {wait.party for wait in waiting.stewards} == set(PARTIES)
        decide(store_of(net, "left"), CHANGE_NAME, "yes")
        until(lambda: {wait.party for wait in state_of(lead, early).stewards} == {"middle", "right"})
        use(net, before)  # meanwhile studies begin with the old file, also at those who have agreed
        beside = net.submit(lead, method="vcds", epsilon=8.0)
        decide(store_of(net), beside, "yes")
        decide(store_of(net), beside, "yes")
        assert net.wait(lead, beside) == ("done", "")
        decide(store_of(net, "middle"), CHANGE_NAME, "yes")
        decide(store_of(net, "right"), CHANGE_NAME, "yes")
        wait_in_force(lead, 2)
        decide(store_of(net), opened, "yes")  # asked with the old file, and ends with it
        decide(store_of(net), opened, "yes")
        assert net.wait(lead, opened) == ("done", "")
        decide(store_of(net), early, "yes")
        decide(store_of(net), early, "yes")
        assert net.wait(lead, early) == ("done", "")
        with pytest.raises(VerticopulaError, match=r"coordinator's is version 2 .* that of this study is version 1 "):
            net.submit(lead, method="vcds", epsilon=8.0)
        assert status(lead).change is None
    assert {name: net.processes[name].pid for name in pids} == pids
    assert all(process.poll() is None for process in net.processes.values())
    assert versions_on_disk(net, "server", *PARTIES, "fourth", "lead") == [2] * 6
    files = [{path.stem for path in net.result(study).rglob("*")} for study in (opened, beside, early)]
    assert ["fourth" in names for names in files] == [False, False, True]
    assert all("right" in names for names in files)
    said = [(event.what, event.detail) for event in store_of(net, "right").events()]
    digest = federation_file_digest(after)
    assert [what for what, _ in said] == ["asked", "yes", "approved", "used", "in force"]
    assert all(digest in detail for what, detail in said if what in ("used", "in force"))


@pytest.mark.network
def test_a_party_leaves_and_is_told(net: Net) -> None:
    before, after = net.federation, without(net.federation, "right")
    with net.lead() as lead:
        opened = net.submit(lead, method="vcds", epsilon=8.0)
        until(lambda: state_of(lead, opened).state == "waiting")
        propose(net, after)
        for name in ("left", "middle"):
            decide(store_of(net, name), CHANGE_NAME, "yes")
        until(lambda: status(lead).federation_version == 2)
        assert [party.name for party in status(lead).parties] == ["left", "middle"]
        decide(store_of(net), opened, "yes")
        decide(store_of(net), opened, "yes")
        assert net.wait(lead, opened) == ("done", "")  # with the one who has left: it had begun
        until(lambda: "'right' is not in the coordinator's federation file, version 2" in net.output("right"))
        use(net, after)
        later = net.submit(lead, method="vcds", epsilon=8.0)
        decide(store_of(net), later, "yes")
        decide(store_of(net), later, "yes")
        assert net.wait(lead, later) == ("done", "")
    assert store_of(net, "right").all() == []  # it was asked nothing
    assert {entry["study"] for entry in net.ledger("right")} == {opened}
    assert before.version == 1


@pytest.mark.network
def test_who_computes_without_data_has_to_agree_too(tmp_path: Path, starter: ProcessStarter) -> None:
    federation, tables = two_parties(operator="left", compute="notary")
    raw = federation.to_dict()["party"]
    raw[0]["column"][1]["bounds"] = [-7.0, 7.0]
    after = changed(federation, party=raw)
    with network(tmp_path, federation=federation, tables=tables) as net:
        net.starter = starter.start
        net.start("server", "left", "right", "notary")
        with net.lead() as lead:
            until(lambda: all(party.connected for party in status(lead).parties))
            propose(net, after)
            for name in ("left", "right"):
                decide(store_of(net, name), CHANGE_NAME, "yes")
            until(lambda: answers(lead) == {"left": "accepted", "right": "accepted", "notary": "asked"})
            (asked,) = store_of(net, "notary").all("pending")
            assert asked.content.changes == ("Column left.x1, bounds: [-7.0, 7.0]; it was [-6.0, 6.0].",)
            assert versions_on_disk(net, "server", "left", "notary") == [1, 1, 1]
            decide(store_of(net, "notary"), CHANGE_NAME, "yes")
            wait_in_force(lead, 2)
            use(net, after)
            study = net.submit(lead, method="strict", epsilon=8.0, delta=1e-6)
            assert net.wait(lead, study) == ("done", "")
        assert versions_on_disk(net, "server", "left", "right", "notary") == [2] * 4
        assert f"study {study} is over" in net.output("notary")


@pytest.mark.network
def test_a_no_leaves_everything_as_it_was(net: Net) -> None:
    before, after = net.federation, with_fourth(net.federation)
    with net.lead() as lead:
        propose(net, after)
        decide(store_of(net, "left"), CHANGE_NAME, "yes")
        use(net, after)
        waiting = net.submit(lead, method="vcds", epsilon=8.0)
        decide(store_of(net, "right"), CHANGE_NAME, "no", reason="not with them")
        state, note = net.wait(lead, waiting)
        assert (state, "'right': its steward said no: not with them" in note) == ("failed", True), note
        assert "version 1 (" in note
        assert "version 2 (" in note
        until(lambda: answers(lead) == {"left": "accepted", "middle": "asked", "right": "refused"})
        use(net, before)
        study = net.submit(lead, method="vcds", epsilon=8.0)
        decide(store_of(net), study, "yes")
        decide(store_of(net), study, "yes")
        assert net.wait(lead, study) == ("done", "")  # at the one who agreed, too
        better = changed(after, 3)  # what was wrong is mended, and shown again
        propose(net, better)
        for name in PARTIES:
            decide(store_of(net, name), CHANGE_NAME, "yes")
        wait_in_force(lead, 3)
    assert versions_on_disk(net, "server", *PARTIES) == [3] * 4


@pytest.mark.network
def test_killed_between_the_yes_and_the_file(net: Net) -> None:
    """Whatever of it is on disk: the process that is started again goes on from there, and nobody is asked twice."""
    after = changed(net.federation)
    with net.lead() as lead:
        propose(net, after)
        store = store_of(net, "left")
        until(lambda: store.all("pending", study=CHANGE_NAME))
        net.signal("left", signal.SIGKILL)
        request = decide(store, CHANGE_NAME, "yes")  # the yes is there, and no process that could store the file
        assert not (net.kit("left").folder / SIGNED_FEDERATION_FILE).exists()
        net.start("left")
        until(lambda: store.get(request).used)
        until(lambda: answers(lead).get("left") == "accepted")
        assert (net.kit("left").folder / SIGNED_FEDERATION_FILE).exists()
        assert versions_on_disk(net, "left") == [1]
        net.signal("left", signal.SIGKILL)  # agreed, and not in force
        for name in ("middle", "right"):
            decide(store_of(net, name), CHANGE_NAME, "yes")
        until(lambda: status(lead).federation_version == 2)  # while it is away
        net.signal("server", signal.SIGKILL)
        net.start("server", "left")
        wait_in_force(lead, 2)
        use(net, after)
        study = net.submit(lead, method="vcds", epsilon=8.0)
        decide(store_of(net), study, "yes")
        decide(store_of(net), study, "yes")
        assert net.wait(lead, study) == ("done", "")
    assert [one.id for one in store.all(study=CHANGE_NAME)] == [request]
    assert [event.what for event in store.events()] == ["asked", "yes", "approved", "used", "in force"]
    assert store.verify()[0] == 5


@pytest.mark.network
def test_by_command_with_two_people_and_kits_elsewhere(tmp_path: Path, starter: ProcessStarter) -> None:
    """As operators would: a signed file that travels, `propose-change`, `requests`, two approvals, `status`, audit."""

    def command(*arguments: object, fails: str = "") -> str:
        own = [sys.executable, "-m", "verticopula", *map(str, arguments)]
        home = {"XDG_CONFIG_HOME": str(tmp_path / "home"), "VERTICOPULA_STEWARD_PASSPHRASE": "secret", "COLUMNS": "300"}
        environment = {**os.environ, **home}
        done = subprocess.run(own, capture_output=True, text=True, env=environment, timeout=PATIENCE, check=False)
        assert (done.returncode != 0) == bool(fails), done.stderr
        assert fails in " ".join(done.stderr.split())
        return done.stdout

    with network(tmp_path, federation=small_federation()) as net:
        net.starter = starter.start
        kits, middle = net.folder / "kits", net.folder / "kits/middle"
        keys = "".join(command("steward", middle, name).splitlines()[-1] + "\n" for name in ("anna", "bert"))
        (net.folder / "middle.toml").write_text(f"{POLICY}approvals = 2\n[stewards]\n{keys}", "utf-8")
        shutil.copytree(kits / "authority", tmp_path / "elsewhere/authority")
        shutil.copytree(kits / "lead", tmp_path / "elsewhere/lead")
        net.start_all()
        raw = net.federation.to_dict()
        raw["party"][1]["column"][0]["bounds"] = [-9, 9]
        after = changed(net.federation, party=raw["party"])
        after.to_toml(tmp_path / "new.toml")
        command("provision", tmp_path / "new.toml", "--out", tmp_path / "elsewhere")
        signed = tmp_path / "elsewhere/authority" / SIGNED_FEDERATION_FILE
        with net.lead() as lead:
            until(lambda: all(party.connected for party in status(lead).parties))
            said = command("propose-change", signed, kits / "server")
            assert "Column middle.x2, bounds: [-9.0, 9.0]; it was [-6.0, 6.0]." in said
            store = store_of(net)
            request = until(lambda: store.all("pending", study=CHANGE_NAME))[0]
            assert "to change the federation file from version 1 to 2" in command("requests", middle)
            shown = command("requests", middle, request.id)
            assert "Your column x2, bounds: [-9.0, 9.0]; it was [-6.0, 6.0]." in shown
            assert federation_file_digest(after) in shown
            assert "1 more needed" in command("approve", middle, request.id, "--yes", "--steward", "anna")
            command("approve", middle, request.id, "--yes", "--steward", "anna", fails="has decided about")
            assert "approved" in command("approve", middle, request.id, "--yes", "--steward", "bert")
            until(lambda: "not in force yet" in command("status", "--kit", middle))
            for name in ("left", "right"):
                other = until(lambda name=name: store_of(net, name).all("pending", study=CHANGE_NAME))[0]
                command("approve", kits / name, other.id, "--yes")
            wait_in_force(lead, 2)
        said = command("status", "--kit", kits / "lead")
        assert said.count("version 2") == 4
        assert "federation file: version 2" in command("status", "--kit", middle)
        command("propose-change", signed, kits / "server", fails="an earlier file does not come back")
        study = ("submit", tmp_path / "new.toml", "--kit", kits / "lead", "--method", "vcds", "--out", tmp_path / "out")
        command(*study, fails="version 1")
        shutil.copy(tmp_path / "elsewhere/lead/federation.toml", kits / "lead/federation.toml")
        command(*study, "--epsilon", 8)
        command("ledger", "export", middle, "--out", tmp_path / "trail")
        trail = command("ledger", "verify", tmp_path / "trail")
        assert f"federation file version 2, digest {federation_file_digest(after)}, agreed to by anna on" in trail


# ---- who lies -----------------------------------------------------------------------------------------------------


def signed_by(net: Net, federation: Federation) -> str:
    """A file that the federation's own authority has signed."""
    return sign_federation(federation, Authority.read(net.folder / "kits/authority").roots, current_time())


def test_a_lying_coordinator_changes_nothing_at_a_party(tmp_path: Path, starter: ProcessStarter) -> None:
    """It shows files that nobody signed, that are old, that change a column or add it, and calls them in force."""
    raw = small_federation().to_dict()
    raw["version"] = 5
    with network(tmp_path, federation=Federation.from_dict(raw)) as net:
        net.starter = starter.start
        net.start("left")
        store, kit = store_of(net, "left"), net.kit("left")
        own = (kit.folder / "federation.toml").read_bytes()
        wider = net.federation.to_dict()
        wider["party"][0]["column"][1]["bounds"] = [-9, 9]
        column = changed(net.federation, 6, party=wider["party"])
        with EvilCoordinator(net.kit("server")) as evil:
            evil.wait_for("left")

            def show(text: str, in_force: bool = True) -> str:
                reply = evil.ask("left", ChangeRequest(text.encode(), in_force))
                assert isinstance(reply, Refusal)
                return reply.reason

            outsider = [new_root(current_time())]
            assert "not signed by a root" in show(sign_federation(column, outsider, current_time()))
            good = json.loads(signed_by(net, column))
            good["file"]["federation"]["party"][0]["column"][1]["bounds"] = [-99, 99]
            assert "not signed by a root" in show(json.dumps(good))  # altered after it was signed
            assert "cannot be read" in show("{")
            assert "an earlier file does not come back" in show(signed_by(net, changed(net.federation, 4)))
            same = changed(column, 5)
            assert "an earlier file does not come back" in show(signed_by(net, same))
            assert "is of the federation" in show(signed_by(net, changed(net.federation, 6, name="other")))
            others = net.federation.to_dict()["party"][1:]
            gone = changed(net.federation, 6, party=others, response="right.x4")
            assert "there is nothing to agree to" in show(signed_by(net, gone))
            named = {"name": "coordinator", "column": [{"name": "z", "kind": "binary"}]}
            itself = changed(net.federation, 6, party=[*net.federation.to_dict()["party"], named])
            assert "cannot be called 'coordinator'" in show(signed_by(net, itself))
            assert store.all() == []  # no steward was shown any of these

            # A file that is signed, by an authority that works together with it: the steward is asked, and sees it.
            request = ChangeRequest(signed_by(net, column).encode(), True)
            evil.send("left", "ask", fingerprint(request), encode(request))
            asked = until(lambda: store.all("pending"))[0]
            assert asked.content.changes == ("Your column x1, bounds: [-9.0, 9.0]; it was [-6.0, 6.0].",)
            other = changed(net.federation, 6, party=[*net.federation.to_dict()["party"], FOURTH])
            assert "another file of version 6 was shown before" in show(signed_by(net, other))
            decide(store, CHANGE_NAME, "no", reason="mine")
            assert "its steward said no: mine" in show(request.signed.decode())
            begin_six(evil, column)
            assert (kit.folder / "federation.toml").read_bytes() == own
            assert not (kit.folder / SIGNED_FEDERATION_FILE).exists()


def begin_six(evil: EvilCoordinator, federation: Federation) -> None:
    """A study with a file that was not agreed to is refused."""
    begun = BeginRequest("study", "vcds", federation_fingerprint(federation), "hash", None, 0, "")
    reply = evil.ask("left", begun)
    assert isinstance(reply, Refusal)
    assert "federation file is not the same as this party's own" in reply.reason


@pytest.mark.network
def test_provision_wants_another_version_for_a_file_that_was_used(net: Net) -> None:
    until(lambda: (net.kit("left").folder / "process.pid").exists())
    with pytest.raises(SettingsError, match="count its `version` up"):
        provision(changed(with_fourth(net.federation), 1), net.folder / "kits")
    assert not (net.folder / "kits/fourth").exists()
