"""What operators see of real processes: health, metrics and logs, and that nothing personal is in them."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import polars as pl
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.network.harness import LONG_DEADLINE, PARTIES, PATIENCE, POLICY, Net, network, small_federation, small_tables
from verticopula.network.connection.control_messages import SubmitRequest
from verticopula.network.coordinator.study_records import State
from verticopula.network.lead.study_lead import Lead
from verticopula.network.network_demo import free_port
from verticopula.protocol.study_proposal import federation_fingerprint

pytestmark = pytest.mark.processes

PERSON = "canary-person-00007"
VALUE = "4.7110815"
OUTSIDE = "97.4711"
REQUESTER = "Dr. Canary Requester of 5 Plover Lane"
PURPOSE = "to find out about Mrs. Canary"
CAPPED = POLICY.replace("allow_seeded = true\n", "") + "[caps]\nclient = 50.0\nblock = 1e9\n"


def planted_tables() -> dict[str, pl.DataFrame]:
    """Values and ids that are found again wherever they leave."""
    tables = small_tables()
    for name, table in tables.items():
        ids = pl.col("subject_id").str.replace("person-", "canary-person-")
        tables[name] = table.with_columns(ids)
    planted = pl.Series("x1", [float(VALUE), float(OUTSIDE), *tables["left"]["x1"][2:]])
    tables["left"] = tables["left"].with_columns(planted)
    assert PERSON in tables["left"]["subject_id"]
    return tables


class Monitored:
    """A federation whose processes log JSON and have pages for a monitoring system."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.ports = {name: free_port() for name in ("server", *PARTIES)}

    def start(self, *names: str) -> None:
        for name in names:
            extra = ("--log-format", "json", "--metrics-port", str(self.ports[name]))
            self.net.start(name, extra=extra)

    def page(self, name: str, path: str) -> tuple[int, str]:
        """Status and text; status 0 where nobody listens yet."""
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[name], timeout=PATIENCE)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, reply.read().decode()
        except ConnectionRefusedError:
            return 0, ""
        finally:
            connection.close()

    def wait_for(self, name: str, path: str, status: int) -> str:
        end = time.monotonic() + PATIENCE
        while (found := self.page(name, path))[0] != status:
            assert self.net.processes[name].poll() is None, self.net.output(name)
            assert time.monotonic() < end, found
            time.sleep(0.1)
        return found[1]

    def metrics(self, name: str) -> dict[tuple[str, str], float]:
        """(metric, its label's value) -> number."""
        status, text = self.page(name, "/metrics")
        assert status == 200
        families = text_string_to_metric_families(text)
        return {(s.name, next(iter(s.labels.values()), "")): s.value for family in families for s in family.samples}

    def log(self, name: str) -> list[dict[str, Any]]:
        """All entries; what is no JSON fails."""
        return [json.loads(line) for line in self.net.output(name).splitlines()]

    def submit(self, lead: Lead, **settings: Any) -> str:
        """A study of somebody, for some purpose."""
        request = SubmitRequest(
            federation_fingerprint(self.net.federation),
            "synthesis",
            json.dumps(settings),
            None,
            False,
            LONG_DEADLINE,
            os.urandom(16).hex(),
            "hash",
            REQUESTER,
            PURPOSE,
        )
        return str(lead.ask(request, seconds=PATIENCE).study)


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    policies = {"left": CAPPED, "middle": POLICY, "right": POLICY}
    folder = tmp_path_factory.mktemp("monitored")
    with network(folder, federation=small_federation(), tables=planted_tables(), policies=policies) as net:
        yield Monitored(net)


@pytest.fixture(scope="module")
def studies(monitored: Monitored) -> dict[str, str]:
    """One study that is done, one that a cap refuses; started, stopped and started again on the way."""
    found = {}
    monitored.start(*PARTIES)
    for name in PARTIES:
        assert monitored.wait_for(name, "/readyz", 503) == "no session with the coordinator\n"
        assert monitored.page(name, "/healthz") == (200, "ok\n")
    monitored.start("server")
    for name in ("server", *PARTIES):
        monitored.wait_for(name, "/readyz", 200)
    with monitored.net.lead() as lead:
        found["done"] = monitored.submit(lead, method="vcds", epsilon=8.0)
        assert monitored.net.wait(lead, found["done"]) == ("done", "")
        found["failed"] = monitored.submit(lead, method="vcds", epsilon=60.0)
        assert monitored.net.wait(lead, found["failed"])[0] == "failed"
        monitored.net.signal("right", signal.SIGTERM)
        monitored.net.wait_for_end("right")
        stdin = monitored.net.processes["right"].stdin
        assert stdin is not None
        stdin.close()
        monitored.start("right")
        monitored.wait_for("right", "/readyz", 200)
    return found


def test_a_partys_metrics_say_what_is_spent_and_left(monitored: Monitored, studies: dict[str, str]) -> None:
    found = monitored.metrics("left")
    assert found["verticopula_epsilon_spent", "client"] == pytest.approx(8.0)
    assert found["verticopula_epsilon_cap", "client"] == 50.0
    assert found["verticopula_epsilon_left", "client"] == pytest.approx(42.0)
    for unit in ("variable", "client", "block", "person"):
        assert found["verticopula_epsilon_spent", unit] > 0.0
    assert ("verticopula_epsilon_left", "person") not in found  # without a cap nothing is left over
    assert found["verticopula_ledger_entries", ""] == len(monitored.net.ledger("left"))
    assert found["verticopula_refusals_total", "BudgetExceeded"] == 1.0
    assert found["verticopula_requests_pending", ""] == 0.0
    assert found["verticopula_connected", "coordinator"] == 1.0
    assert 0.0 <= found["verticopula_last_contact_seconds", "coordinator"] < PATIENCE
    assert found["verticopula_bytes_total", "sent"] > 1_000
    assert found["verticopula_bytes_total", "received"] > 1_000
    assert found["verticopula_certificate_days_left", "own"] > 300.0
    assert found["verticopula_scrape_errors", ""] == 0.0
    assert found["verticopula_ready", ""] == 1.0


def test_the_coordinators_metrics_say_how_studies_stand(monitored: Monitored, studies: dict[str, str]) -> None:
    found = monitored.metrics("server")
    assert found["verticopula_studies", "done"] == 1.0
    assert found["verticopula_studies", "failed"] == 1.0
    assert found["verticopula_studies", "running"] == 0.0
    assert found["verticopula_rounds_total", ""] > 5.0
    for party in PARTIES:
        assert found["verticopula_connected", party] == 1.0
        assert found["verticopula_waiting_for", party] == 0.0
    assert found["verticopula_scrape_errors", ""] == 0.0


def test_metrics_have_no_study_and_few_labels(monitored: Monitored, studies: dict[str, str]) -> None:
    known = {"", *PARTIES, "coordinator", "lead", "variable", "client", "block", "person", "own", "authority"}
    known |= {"sent", "received", "refused", *get_args(State)}
    for name in ("server", *PARTIES):
        text = monitored.page(name, "/metrics")[1]
        assert not any(study in text for study in studies.values())
        assert not any(word in text for word in (PERSON, VALUE, REQUESTER, "Canary"))
        labels = {label for metric, label in monitored.metrics(name) if "build" not in metric and "refus" not in metric}
        assert labels <= known


def test_every_line_of_a_log_is_json_and_what_belongs_to_a_study_names_it(
    monitored: Monitored, studies: dict[str, str]
) -> None:
    for name in ("server", *PARTIES):
        entries = monitored.log(name)
        assert {entry["who"] for entry in entries} == {"coordinator" if name == "server" else name}
        for entry in entries:
            assert not entry["logger"].startswith("nvflare")
            assert ("study" in entry["event"]) <= ("study" in entry), entry
        assert {entry.get("study") for entry in entries} - {None} <= set(studies.values())
    events = [entry["event"] for entry in monitored.log("left") if entry.get("study") == studies["done"]]
    assert "party %s: %d releases recorded" in events
    refused = [entry for entry in monitored.log("left") if entry.get("study") == studies["failed"]]
    assert any("above its cap" in entry["message"] for entry in refused)


def test_a_party_that_is_stopped_reads_like_one(monitored: Monitored, studies: dict[str, str]) -> None:
    lines = [entry for entry in monitored.log("server") if entry["message"].startswith("right ")]
    assert [(line["level"], line["message"]) for line in lines] == [
        ("info", "right connected"),
        ("info", "right disconnected"),
        ("info", "right connected"),
    ]
    assert [e["event"] for e in monitored.log("right") if e["logger"].endswith("kit_process")] == [
        "started, release %s",
        "stopped",
        "started, release %s",
    ]


def test_nothing_planted_is_in_any_log(monitored: Monitored, studies: dict[str, str]) -> None:
    kits = monitored.net.folder / "kits"
    secrets = [path.read_text("ascii").split("\n")[1] for path in kits.glob("*/private-key.pem")]
    secrets += [(kits / "left" / "id.key").read_text("ascii").strip()]
    assert len(secrets) == 6
    planted = [
        PERSON,
        "canary-person",
        VALUE,
        OUTSIDE,
        REQUESTER,
        "Plover",
        PURPOSE,
        str(monitored.net.folder),
        *secrets,
    ]
    for name in ("server", *PARTIES):
        text = monitored.net.output(name)
        assert text
        assert [word for word in planted if word in text] == []
        assert "Traceback" not in text
        assert not (kits / name / "log.txt").exists()


def test_an_end_for_want_of_something_is_the_last_line(monitored: Monitored, studies: dict[str, str]) -> None:
    net = Net(monitored.net.folder, monitored.net.federation)
    with contextlib.closing(net):
        net.start("left", extra=("--log-format", "json"))  # its kit is in use
        assert net.wait_for_end("left") == 1
    last = monitored.log("left")[-1]
    assert last["level"] == "error"
    assert last["event"] == "cannot go on: %s"
    assert "is already running" in last["message"]


def test_a_policy_that_cannot_be_read_is_not_ready(monitored: Monitored, studies: dict[str, str]) -> None:
    policy: Path = monitored.net.folder / "middle.toml"
    kept = policy.read_text("utf-8")
    policy.write_text("methods = [", "utf-8")
    status, said = monitored.page("middle", "/readyz")
    found = monitored.metrics("middle")
    policy.write_text(kept, "utf-8")
    assert (status, said) == (503, "the policy file cannot be read, or has lost a rule; the log says more\n")
    assert found["verticopula_ready", ""] == 0.0
    assert found["verticopula_scrape_errors", ""] == 1.0
    assert monitored.page("middle", "/readyz") == (200, "ok\n")
