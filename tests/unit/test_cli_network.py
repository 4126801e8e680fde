"""The commands between organisations, where they cannot work: each says what is wrong, and soon."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.builders import CONTINUOUS, Call, make_federation
from tests.network.harness import POLICY, Net, small_federation
from verticopula.errors import PartyUnavailable, PolicyRefused, ProtocolError, SettingsError
from verticopula.network.connection.control_messages import (
    LeadReply,
    LeadRequest,
    ResultFile,
    ResultReply,
    ResultRequest,
    StatusReply,
    StatusRequest,
    StudyState,
    SubmitReply,
)
from verticopula.network.connection.sanitizing import sanitize
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.lead import result_files, study_lead
from verticopula.network.lead.result_files import write_result
from verticopula.network.lead.study_lead import Lead
from verticopula.network.operations import kit_process
from verticopula.schema.raw_regression_settings import RawRegressionSettings, read_settings
from verticopula.schema.study_settings import StudySettings
from verticopula.storage.vault import Vault
from verticopula.study.study_folder import file_names

COMMANDS = ("provision", "serve", "join", "compute", "submit", "status", "stop", "demo-network")


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Net:
    return Net.prepare(tmp_path_factory.mktemp("cli"), small_federation())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(call: Call, command: str) -> None:
    said = call(command, "--help")
    assert said.code == 0
    assert "Usage" in said.out


def test_a_table_of_kits_and_a_warning_about_the_authority(call: Call, tmp_path: Path) -> None:
    small_federation().to_toml(tmp_path / "federation.toml")
    said = call("provision", tmp_path / "federation.toml", "--out", tmp_path / "kits", "--host", "h.example.org")
    assert said.code == 0
    assert "the coordinator, at h.example.org" in said.out
    assert "party middle" in said.out
    assert "Keep" in said.out
    assert "to yourself" in said.out
    assert call("provision", tmp_path / "none.toml", "--out", tmp_path / "x").code != 0
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("command", "kit", "expected"),
    [
        (["serve"], "left", "is the kit of a party; this command takes that of a coordinator"),
        (["join"], "server", "is the kit of a coordinator; this command takes that of a party"),
        (["join"], "lead", "is the kit of a lead"),
        (["serve"], "authority", "holds no start-up kit"),
        (["submit", "federation.toml", "--out", "study", "--kit"], "left", "takes that of a lead"),
    ],
)
def test_the_wrong_kit(call: Call, net: Net, command: list[str], kit: str, expected: str) -> None:
    data = ["--data", net.folder / "left.csv"] if command == ["join"] else []
    said = call(*command, net.folder / "kits" / kit, *data)
    assert said.code == 1
    assert expected in said.err


def test_no_party_joins_without_rules(call: Call, net: Net) -> None:
    for policy in ([], ["--policy", net.folder / "none.toml"]):
        said = call("join", net.folder / "kits" / "left", "--data", net.folder / "left.csv", *policy)
        assert said.code == 1
        assert "no such file; a party joins with a policy of its own" in said.err
        assert "min_subjects = 50" in said.err


def test_a_policy_with_a_mistake_is_no_policy(call: Call, net: Net, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(POLICY + "min_subject = 50\n")
    files = ["--data", net.folder / "left.csv", "--policy", tmp_path / "policy.toml"]
    said = call("join", net.folder / "kits" / "left", *files)
    assert said.code == 1
    assert "min_subject" in said.err


def test_another_federation_file(call: Call, net: Net, tmp_path: Path) -> None:
    text = (net.folder / "federation.toml").read_text("utf-8").replace("x4", "x5")
    (tmp_path / "other.toml").write_text(text)
    kit = net.folder / "kits" / "lead"
    said = call("submit", tmp_path / "other.toml", "--kit", kit, "--out", tmp_path / "out")
    assert said.code == 1
    assert "provision again" in said.err
    assert not (tmp_path / "out").exists()


def test_stop_without_kits_and_without_processes(call: Call, net: Net, tmp_path: Path) -> None:
    said = call("stop", tmp_path)
    assert said.code == 1
    assert "no start-up kits there" in said.err
    assert call("stop", net.folder / "kits").code == 0


def test_a_coordinator_that_is_not_there(net: Net) -> None:
    expected = f"the coordinator at localhost:{net.federation.network.port} does not answer: is `verticopula serve`"
    with net.lead() as lead, pytest.raises(PartyUnavailable, match=expected):
        lead.ask(StatusRequest(), seconds=1.0)


def test_status_gives_a_coordinator_ten_seconds(net: Net, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def ask(lead: Lead, request: StatusRequest, seconds: float) -> None:
        given.append(seconds)
        raise PartyUnavailable("it does not answer")

    monkeypatch.setattr(Lead, "ask", ask)
    said = call("status", "--kit", net.folder / "kits" / "lead")
    assert said.code == 1
    assert "it does not answer" in said.err
    assert given == [10.0]


def test_a_party_whose_policy_lost_a_rule_does_not_join_before_that_is_confirmed_by_name(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Net.prepare(tmp_path, small_federation())

    def run(service: object) -> None:
        raise SettingsError("it runs")

    monkeypatch.setattr(kit_process, "keep_log", lambda kit, **how: None)
    monkeypatch.setattr(kit_process, "run_until_stopped", run)
    policy = tmp_path / "left.toml"
    policy.write_text("[caps]\nclient = 8.0\n")

    def join(*more: str) -> str:
        return call("join", tmp_path / "kits" / "left", "--data", tmp_path / "left.csv", "--policy", policy, *more).err

    with Vault.open(tmp_path / "vault") as vault:
        monkeypatch.setattr(Vault, "open", lambda folder: vault)  # a process that ends closes its vault
        assert "it runs" in join()
        policy.write_text("[caps]\n")
        said = join()
        assert "left.toml has no caps.client" in said
        assert "add --drop-rule caps.client" in said
        assert "it runs" in join("--drop-rule", "caps.client")


@pytest.mark.network
def test_the_command_says_so_too(net: Net) -> None:
    command = [sys.executable, "-m", "verticopula", "status", "--kit", str(net.folder / "kits" / "lead")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    said = " ".join(done.stderr.split())
    assert done.returncode == 1
    assert f"the coordinator at localhost:{net.federation.network.port} does not answer" in said
    assert "`verticopula serve` running there?" in said
    assert "Traceback" not in said


# ---- what a coordinator may send ---------------------------------------------------------------------


def reply(*names: str, content: bytes = b"content") -> ResultReply:
    return ResultReply(tuple(ResultFile(name, np.frombuffer(content, dtype=np.uint8)) for name in names))


NAMES = file_names(make_federation({"left": {"y": CONTINUOUS}, "right": {"z": CONTINUOUS}}))


def test_results_are_written_below_the_folder(tmp_path: Path) -> None:
    names = ["summary.txt", "synthetic/left.csv", "diagnostics/margins.csv"]
    written = write_result(reply(*names), tmp_path / "out", NAMES)
    assert [path.relative_to(tmp_path / "out").as_posix() for path in written] == names
    assert (tmp_path / "out" / "synthetic" / "left.csv").read_bytes() == b"content"
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {Path(name).name for name in names}


@pytest.mark.parametrize(
    "name",
    [
        "../x", "/etc/x", "a/../../x", "..", ".", "", "a\x00b", "a\x1b[2Jb", "a\nb", "..\\x", "a\u202eb",
        ".bashrc", ".git/hooks/post-checkout", "Makefile", "conftest.py", "synthetic/left.py", "synthetic/stranger.csv",
        "synthetic/../summary.txt", "./summary.txt", "summary.txt/", "synthetic//left.csv", "SUMMARY.TXT", "synthetic",
        "report-in-house.html", "federation.toml", "kits/lead/kit.toml", "summary.txt ", "synthetic/left.csv\x00",
    ],
)  # fmt: skip
def test_results_go_nowhere_else(tmp_path: Path, name: str) -> None:
    with pytest.raises(ProtocolError, match="a file whose name is none of this study's"):
        write_result(reply("summary.txt", name), tmp_path / "out", NAMES)
    assert list(tmp_path.rglob("*")) == []


def test_no_result_comes_twice_or_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProtocolError, match="a file whose name"):
        write_result(reply("summary.txt", "summary.txt"), tmp_path / "out", NAMES)
    monkeypatch.setitem(result_files._MOST_BYTES, ".txt", 6)
    with pytest.raises(ProtocolError, match="too large"):
        write_result(reply("study.json", "summary.txt"), tmp_path / "out", NAMES)
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize("kind", ["symbolic", "hard"])
def test_what_a_link_in_the_folder_points_to_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    precious, out = tmp_path / "precious", tmp_path / "out"
    precious.write_text("mine")
    out.mkdir()
    (out / "summary.txt").symlink_to(precious) if kind == "symbolic" else (out / "summary.txt").hardlink_to(precious)
    write_result(reply("summary.txt"), out, NAMES)
    assert precious.read_text() == "mine"
    assert not (out / "summary.txt").is_symlink()
    assert (out / "summary.txt").read_bytes() == b"content"


def test_no_result_goes_through_a_folder_that_is_a_link(tmp_path: Path) -> None:
    elsewhere, out = tmp_path / "elsewhere", tmp_path / "out"
    elsewhere.mkdir()
    out.mkdir()
    (out / "synthetic").symlink_to(elsewhere)
    with pytest.raises(ProtocolError, match="is a link or a file, not a folder"):
        write_result(reply("synthetic/left.csv"), out, NAMES)
    assert list(elsewhere.iterdir()) == []


def test_a_folder_in_a_files_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "summary.txt").mkdir()
    with pytest.raises(ProtocolError, match=r"a folder stands where the study's summary\.txt belongs"):
        write_result(reply("summary.txt"), tmp_path, NAMES)
    assert [path.name for path in tmp_path.iterdir()] == ["summary.txt"]


def test_no_ledger_of_an_earlier_study_is_replaced(tmp_path: Path) -> None:
    def fetch(content: bytes) -> list[str]:
        written = write_result(reply("ledger.jsonl", content=content), tmp_path, NAMES, keep=("ledger.jsonl",))
        return [path.name for path in written]

    assert fetch(b"first\n") == ["ledger.jsonl"]
    assert fetch(b"first\n") == ["ledger.jsonl"]  # the same study again
    assert fetch(b"first\nmore\n") == ["ledger.jsonl"]  # which went on
    assert fetch(b"second\n") == ["ledger.jsonl", "ledger.1.jsonl"]
    assert fetch(b"third\n") == ["ledger.jsonl", "ledger.2.jsonl"]
    kept = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert kept == {
        "ledger.jsonl": b"third\n", "ledger.1.jsonl": b"first\nmore\n", "ledger.2.jsonl": b"second\n",
    }  # fmt: skip


def test_a_link_in_the_place_of_a_ledger_is_kept_and_not_written_through(tmp_path: Path) -> None:
    precious, out = tmp_path / "precious", tmp_path / "out"
    precious.write_text("mine")
    out.mkdir()
    (out / "ledger.jsonl").symlink_to(precious)
    write_result(reply("ledger.jsonl"), out, NAMES, keep=("ledger.jsonl",))
    assert precious.read_text() == "mine"
    assert (out / "ledger.1.jsonl").is_symlink()
    assert (out / "ledger.jsonl").read_bytes() == b"content"


class Answering:
    """A coordinator that refuses a study, or sends a ledger."""

    content: bytes | None = None

    def __init__(self, kit: Kit) -> None:
        self.kit = kit

    def __enter__(self) -> Answering:
        return self

    def __exit__(self, *_: object) -> None: ...

    def ask(self, request: LeadRequest, **_: float) -> LeadReply:
        if self.content is None:
            raise PolicyRefused("party 'left': its steward said no")
        if isinstance(request, ResultRequest):
            return reply("ledger.jsonl", content=self.content)
        if isinstance(request, StatusRequest):
            return StatusReply((), (StudyState("study", "vcds", "done", 1, (), ""),))
        return SubmitReply("study")


def test_submit_makes_no_folder_for_a_refused_study_and_keeps_the_ledger_of_another(
    call: Call, net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_lead, "Lead", Answering)
    out = tmp_path / "new" / "out"
    command = ["submit", net.folder / "federation.toml", "--kit", net.folder / "kits" / "lead", "--out", out]
    said = call(*command)
    assert "its steward said no" in said.err
    assert list(tmp_path.iterdir()) == []
    for content in (b"first\n", b"second\n"):
        monkeypatch.setattr(Answering, "content", content)
        assert call(*command, "--overwrite").code == 0
    assert (out / "ledger.1.jsonl").read_bytes() == b"first\n"


def test_submit_says_before_the_study_that_it_cannot_write(call: Call, net: Net, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    lead = net.folder / "kits" / "lead"
    said = call("submit", net.folder / "federation.toml", "--kit", lead, "--out", tmp_path / "file" / "out")
    assert "cannot be made or written" in said.err


def test_words_of_others_are_made_plain() -> None:
    assert sanitize("\x1b[31mred\x07\r\n\u202eend\u2028") == " [31mred    end "
    assert sanitize("two\nlines\x0b", lines=True) == "two\nlines "
    assert sanitize("ε ≤ 0.5 – größer") == "ε ≤ 0.5 – größer"
    assert sanitize("x" * 10, 3) == "xxx …"


def test_epsilon_and_its_parts_do_not_go_together() -> None:
    assert StudySettings.from_options(epsilon=None).epsilon == 3.0
    assert StudySettings.from_options(method="vcds").epsilon == 1.0
    assert StudySettings.from_options(epsilon_ranks=0.5, epsilon_marginals=0.5).epsilon is None
    with pytest.raises(SettingsError, match="give either"):
        StudySettings.from_options(epsilon=1.0, epsilon_ranks=0.5)


@pytest.mark.parametrize("given", [{"epsilon": 1.0}, {"delta": 1e-6}, {"unit": "person"}, {"epsilon_ranks": 0.5}])
def test_a_budget_for_exact_values_is_an_error(given: dict[str, Any]) -> None:
    """Who gave one would believe that it holds."""
    assert read_settings(method="raw-glm", variant=None) == RawRegressionSettings()
    with pytest.raises(SettingsError, match=f"{next(iter(given))} cannot be given for raw-glm: .* epsilon is infinite"):
        read_settings(method="raw-glm", variant=None, **given)


def test_status_imports_nothing_heavy() -> None:
    """It would take three times as long: what is left is FLARE's own import, for the most part."""
    heavy = ("numba", "scipy", "pandas", "sklearn", "jinja2", "verticopula.protocol.messages")
    code = (
        "import sys; import verticopula.cli.app; from verticopula.network.lead.study_lead import Lead;"
        "from verticopula.network.kit.startup_kit import Kit;"
        "from verticopula.network.connection.control_messages import StatusRequest;"
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "[]"
