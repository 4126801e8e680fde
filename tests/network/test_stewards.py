"""Studies that wait for people: over restarts of everybody, beside other studies, without a deadline."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network.faults import ProcessStarter
from tests.network.harness import PARTIES, PATIENCE, POLICY, Net, network, small_federation, until
from verticopula.errors import ProtocolError
from verticopula.network.connection.control_messages import CancelRequest, ResumeRequest, StatusRequest, StudyState
from verticopula.network.lead.study_lead import Lead
from verticopula.storage.request_store import RequestStore, standing_of
from verticopula.storage.steward_keys import Steward
from verticopula.storage.steward_requests import StewardRequest, Verdict

pytestmark = pytest.mark.processes

SHORT = 3.0  # seconds that a party has for a round; people take longer


def pending(net: Net, study: str, party: str = "middle") -> StewardRequest:
    """The request of this study that waits for a steward, once one does; a study that has failed asks nobody."""

    def look() -> StewardRequest | None:
        record = net.record(study)
        assert record.state != "failed", record.note
        return next(iter(store_of(net, party).all("pending", study=study)), None)

    found: StewardRequest = until(look)
    return found


def state_of(lead: Lead, study: str) -> StudyState:
    reply = lead.ask(StatusRequest(), seconds=PATIENCE)
    return next(entry for entry in reply.studies if entry.study == study)


def decide(net: Net, study: str, verdict: Verdict, reason: str = "") -> str:
    """The steward's answer to the request of this study that waits, once it does."""
    request = pending(net, study)
    store_of(net).decide(request.id, Steward("anna").decide(request, verdict, reason))
    return request.id


@pytest.fixture
def net(tmp_path: Path, starter: ProcessStarter) -> Iterator[Net]:
    policies = {"middle": POLICY + 'review = "everything"\n'}
    with network(tmp_path, federation=small_federation(), policies=policies) as found:
        found.starter = starter.start
        found.start_all()
        found.wait_until_connected()
        yield found


def store_of(net: Net, party: str = "middle") -> RequestStore:
    return RequestStore.of_kit(net.kit(party).folder)


def test_no_deadline_runs_while_people_think_and_others_go_on(net: Net) -> None:
    with net.lead() as lead:
        first = net.submit(lead, method="vcds", epsilon=8.0, deadline=SHORT)
        pending(net, first)
        waiting: StudyState = until(lambda: (one := state_of(lead, first)).state == "waiting" and one)
        assert [(wait.party, wait.since > 0) for wait in waiting.stewards] == [("middle", True)]
        time.sleep(2 * SHORT)
        second = net.submit(lead, method="vcds", epsilon=8.0)
        decide(net, second, "yes")  # the younger study passes the one that waits
        decide(net, second, "yes")
        assert net.wait(lead, second) == ("done", "")
        assert state_of(lead, first).state == "waiting"
    assert {entry["study"] for entry in net.ledger("middle")} == {second}


def test_a_study_waits_for_people_over_restarts(net: Net) -> None:
    store = store_of(net)
    with net.lead() as lead:
        study = net.submit(lead, method="vcds", epsilon=8.0)
        pending(net, study)
        for name in ("server", "middle"):  # neither side has to be there while somebody thinks
            net.signal(name, signal.SIGKILL)
        decide(net, study, "yes")
        net.start("server", "middle")
        request = pending(net, study)
        assert request.content.stage == "releases"
        assert {price.unit for price in request.content.prices} == {"variable", "client", "block", "person"}
        net.signal("middle", signal.SIGTERM)
        net.wait_for_end("middle")
        decide(net, study, "yes")
        lead.ask(ResumeRequest(study, 1200.0), seconds=PATIENCE)  # harmless: it has not failed
        net.start("middle")
        assert net.wait(lead, study)[0] == "done"
    assert len(net.ledger("middle")) == 2
    assert len(store.all()) == 2  # nobody was asked twice
    assert store.verify()[0] == len(store.events())


def test_a_no_costs_nobody_anything_and_a_cancelled_study_asks_nobody(net: Net) -> None:
    store = store_of(net)
    with net.lead() as lead:
        refused = net.submit(lead, method="vcds", epsilon=8.0)
        decide(net, refused, "yes")
        decide(net, refused, "no", reason="not for this")
        state, note = net.wait(lead, refused)
        assert (state, "its steward said no: not for this" in note) == ("failed", True)
        cancelled = net.submit(lead, method="vcds", epsilon=4.0)
        pending(net, cancelled)
        net.signal("middle", signal.SIGKILL)
        lead.ask(CancelRequest(cancelled, "not needed"), seconds=PATIENCE)
        assert state_of(lead, cancelled).state == "cancelled"
        net.start("middle")  # it was away, and is told when it comes back
        until(lambda: store.all("cancelled", study=cancelled))
        with pytest.raises(ProtocolError, match="was cancelled"):
            lead.ask(ResumeRequest(cancelled, 60.0), seconds=PATIENCE)
    assert [net.ledger(name) for name in PARTIES] == [[], [], []]


def test_a_yes_that_is_taken_back_in_mid_study_stops_the_party(net: Net) -> None:
    store = store_of(net)
    with net.lead() as lead:
        study = net.submit(lead, method="vcds", epsilon=8.0)
        decide(net, study, "yes")
        pending(net, study)
        net.signal("right", signal.SIGSTOP)  # so that the study cannot go on
        request = decide(net, study, "yes")
        until(lambda: store.get(request).used)
        store.decide(request, Steward("anna").decide(store.get(request), "withdrawn"))
        net.signal("right", signal.SIGCONT)
        state, note = net.wait(lead, study)
        assert (state, "has taken back their yes" in note) == ("failed", True)
    assert net.ledger("middle") == []


def test_two_people_by_command_for_a_lead_with_a_certificate(tmp_path: Path, starter: ProcessStarter) -> None:
    """As an operator would: keys, a policy, `submit` with all words, `status`, two approvals, the ledger."""
    made = small_federation().to_dict()
    made["network"]["leads"] = ["register", "clinic"]
    home = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "home"), "VERTICOPULA_STEWARD_PASSPHRASE": "secret"}

    def command(*arguments: object, fails: str = "") -> str:
        own = [sys.executable, "-m", "verticopula", *map(str, arguments)]
        done = subprocess.run(own, capture_output=True, text=True, env=home, timeout=PATIENCE, check=False)
        assert (done.returncode != 0) == bool(fails), done.stderr
        assert fails in " ".join(done.stderr.split())
        return done.stdout

    with network(tmp_path, federation=type(small_federation()).from_dict(made)) as net:
        net.starter = starter.start
        kit = net.folder / "kits/middle"
        keys = "".join(command("steward", kit, name).splitlines()[-1] + "\n" for name in ("anna", "register"))
        rules = f'{POLICY}review = "releases"\napprovals = 2\n[stewards]\n{keys}'
        (net.folder / "middle.toml").write_text(rules, "utf-8")
        net.start_all()
        words = ("--purpose", "waiting times", "--contact", "tel. 1", "--use", "one report", "--requester", "Dr. Berg")
        lead = ("--kit", net.folder / "kits/register")
        settings = ("--method", "vcds", "--epsilon", 8, "--out", tmp_path / "out")
        said = command("submit", net.folder / "federation.toml", *lead, *settings, *words, "--no-wait")
        study = said.split()[1]
        until(lambda: store_of(net).all("pending"))
        (request,) = store_of(net).all()
        assert (request.content.lead, request.content.use) == ("register", "one report")
        assert "the steward of middle since" in until(
            lambda: "waiting" in (shown := command("status", *lead)) and " ".join(shown.split())
        )
        assert json.loads(command("status", "--kit", net.folder / "kits/clinic", "--json"))["studies"] == []
        command("cancel", net.folder / "kits/clinic", study, fails="no study of that name")
        approve = ("approve", kit, request.id, "--yes", "--steward")
        assert "1 more needed" in command(*approve, "anna")
        command(*approve, "anna", fails="has decided about request")
        command(*approve, "register", fails="asks for this study")  # who asks does not approve
        ben = Steward.create("ben", tmp_path / "ben.pem")
        (net.folder / "middle.toml").write_text(f'{rules}ben = "{ben.public_key}"\n', "utf-8")
        # The policy has changed since anna's yes, so both are asked again.
        store = store_of(net)
        net.signal("middle", signal.SIGTERM)
        net.wait_for_end("middle")
        net.start("middle")
        again = until(lambda: next((one for one in store.all("pending") if one.id != request.id), None))
        assert store.get(request.id).state == "superseded"
        command("approve", kit, again.id, "--yes", "--steward", "anna")
        store.decide(again.id, ben.decide(again, "yes"))
        resumed = ("submit", net.folder / "federation.toml", *lead, "--out", tmp_path / "out", "--resume", study)
        command(*resumed, "--quiet")
        assert (tmp_path / "out/synthetic/left.csv").is_file()
        entry = net.ledger("middle")[0]
        assert [entry[name] for name in ("lead", "purpose", "contact", "use")] == [
            *("register", "waiting times", "tel. 1", "one report")
        ]
        stewards = {**again.content.stewards}
        assert standing_of(store.get(again.id), stewards, 2, time.time()) == "approved"
