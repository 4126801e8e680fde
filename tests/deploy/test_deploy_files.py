"""The files in `deploy/`: each is checked by the tool that reads it, and against what the commands really take."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.utils import canonicalize_name

import verticopula.cli.service_commands as commands
from deploy.pin_versions import EXTRAS, installed_versions, requirements
from verticopula.network.operations.health_server import HealthServer

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
KUBERNETES = "1.33"
MOST_EXPOSED = 2.5  # of 10, by `systemd-analyze security`; a unit without any confinement has 9.6

pytestmark = pytest.mark.deploy


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """What the command prints; it must succeed."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=1200, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def tool(name: str) -> str:
    """A program of this environment, or of the machine."""
    own = Path(sys.executable).with_name(name)
    found = str(own) if own.exists() else shutil.which(name)
    assert found, f"{name} is missing: `make test-deploy` installs it"
    return found


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text("utf-8")))


# ---- image -------------------------------------------------------------------------------------------


def test_hadolint_finds_nothing_in_the_containerfile() -> None:
    # DL3008, DL3013: Debian's versions are those of BASE, Python's those of constraints.txt.
    run(tool("hadolint"), "--ignore", "DL3008", "--ignore", "DL3013", DEPLOY / "Containerfile")


def test_hadolint_would_find_something(tmp_path: Path) -> None:
    bad = tmp_path / "Containerfile"
    bad.write_text((DEPLOY / "Containerfile").read_text("utf-8").replace("USER 10001:10001", "USER root"))
    done = subprocess.run([tool("hadolint"), str(bad)], capture_output=True, text=True, timeout=1200)
    assert "DL3002" in done.stdout


def test_the_image_is_nobodys_and_writes_only_to_its_volumes() -> None:
    text = (DEPLOY / "Containerfile").read_text("utf-8")
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["10001:10001"]
    assert re.findall(r"^VOLUME (.*)$", text, re.MULTILINE) == ['["/var/lib/verticopula", "/tmp"]']
    assert "HEALTHCHECK" in text


def test_everything_that_is_copied_into_the_image_is_there_and_not_ignored() -> None:
    text = (DEPLOY / "Containerfile").read_text("utf-8")
    lines = re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE)
    copied = [name for line in lines for name in line.split()[:-1]]
    allowed = {line[1:] for line in (ROOT / ".containerignore").read_text("utf-8").splitlines() if line[:1] == "!"}
    assert "src" in copied
    for name in copied:
        assert (ROOT / name).exists(), name
        assert name in allowed, name
    assert (ROOT / ".containerignore").read_text("utf-8") == (ROOT / ".dockerignore").read_text("utf-8")


def test_every_version_in_the_image_is_pinned_and_fits_what_the_package_asks_for() -> None:
    lines = [line for line in (DEPLOY / "constraints.txt").read_text("ascii").splitlines() if line[:1] != "#"]
    pinned = {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}
    assert set(installed_versions()) <= set(pinned)
    for wanted in requirements():
        assert wanted.specifier.contains(pinned[canonicalize_name(wanted.name)]), str(wanted)
    assert f"'.[{','.join(EXTRAS)}]'" in (DEPLOY / "Containerfile").read_text("utf-8")


@pytest.mark.parametrize(("dead", "status"), [(0, 0), (1, 1)])
def test_the_health_check_says_what_the_process_says(dead: int, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.excepthook", lambda caught: None)
    server = HealthServer("127.0.0.1", 0, lambda: b"", lambda: "not ready")  # which is not the same as not well
    server.dead_threads = dead
    server.start()
    assert health_check(server.server_address[1]) == status
    server.shutdown()
    server.server_close()


def test_a_process_that_does_not_answer_is_not_well() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        assert health_check(silent.getsockname()[1]) == 1  # nobody listens
        silent.listen()
        assert health_check(silent.getsockname()[1]) == 1  # nobody answers


def health_check(port: int) -> int:
    environment = {"METRICS_PORT": str(port), "http_proxy": "http://127.0.0.1:1"}
    command = [sys.executable, "-I", str(DEPLOY / "healthcheck.py")]
    return subprocess.run(command, env=environment, timeout=1200, check=False).returncode


# ---- commands ----------------------------------------------------------------------------------------


def options_of(command: str) -> set[str]:
    """What `verticopula COMMAND --help` lists."""
    said = run(sys.executable, "-m", "verticopula", command, "--help")
    return set(re.findall(r"--[a-z-]+", said))


def check_command(arguments: list[str]) -> None:
    """The command is one, and takes these options."""
    assert hasattr(commands, arguments[0])
    given = {argument for argument in arguments if argument.startswith("--")}
    assert given <= options_of(arguments[0]), arguments


# ---- compose -----------------------------------------------------------------------------------------


def test_compose_runs_commands_that_exist_confined() -> None:
    services = documents(DEPLOY / "compose.yaml")[0]["services"]
    assert sum(service["command"][0] == "join" for service in services.values()) == 3
    for service in services.values():
        check_command(service["command"])
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["user"] == "10001:10001"
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "ports" not in service
        assert all(":/data:ro" in volume or volume.endswith("/kit") for volume in service["volumes"])
        assert service["logging"]["options"]["max-size"]


# ---- systemd -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_reads_a_unit_without_a_word(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text("utf-8")
    command = re.findall(r"^ExecStart=(\S+) (.*)$", text, re.MULTILINE)[0]
    assert command[0] == "/opt/verticopula/bin/verticopula"
    check_command(command[1].split())
    (tmp_path / unit.name).write_text(text.replace(command[0], str(Path(sys.executable).resolve())))
    said = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", tmp_path / unit.name)
    assert [line for line in said.splitlines() if unit.name in line] == []


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_is_confined(unit: Path) -> None:
    said = run("systemd-analyze", "security", "--offline=true", "--json=short", unit)
    found = {row["json_field"]: row for row in json.loads(said[said.index("[") :])}
    exposure = sum(float(row["exposure"] or 0) for row in found.values())
    assert exposure < MOST_EXPOSED
    for name in ("NoNewPrivileges", "ProtectSystem", "PrivateTmp", "ProtectHome", "UserOrDynamicUser"):
        assert not float(found[name]["exposure"] or 0), name


# ---- Kubernetes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_kubernetes_takes_a_manifest(path: Path) -> None:
    import kubernetes_validate  # `make test` collects this file without it

    for document in documents(path):
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_a_misspelt_manifest_would_be_found() -> None:
    import kubernetes_validate  # `make test` collects this file without it

    document = documents(DEPLOY / "kubernetes" / "party.yaml")[1]
    document["spec"]["template"]["spec"]["securityContexts"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


@pytest.mark.parametrize("name", ["coordinator.yaml", "party.yaml"])
def test_a_pod_is_confined_and_runs_a_command_that_exists(name: str) -> None:
    stateful = documents(DEPLOY / "kubernetes" / name)[1]["spec"]
    assert stateful["replicas"] == 1
    pod = stateful["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch"
    for container in (*pod["initContainers"], *pod["containers"]):
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
        written = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
        assert written <= {"/var/lib/verticopula", "/tmp"}
    main = pod["containers"][0]
    check_command(main["args"])
    assert {main[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")} == {"/healthz", "/readyz"}
    port = main["args"][main["args"].index("--metrics-port") + 1]
    assert int(port) in [one["containerPort"] for one in main["ports"]]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert "secret" in volumes["kit"]
    assert stateful["volumeClaimTemplates"][0]["metadata"]["name"] == "state"


def test_network_policies_deny_first_and_let_nobody_in_to_a_party() -> None:
    policies = {document["metadata"]["name"]: document["spec"] for document in documents(MANIFESTS[2])}
    assert policies["nothing"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert "ingress" not in policies["party"]
    assert {port["port"] for rule in policies["party"]["egress"] for port in rule["ports"]} == {53, 8102}
    assert [port["port"] for port in policies["metrics"]["ingress"][0]["ports"]] == [9102]
    assert policies["metrics"]["ingress"][0]["from"]


def test_nothing_secret_and_no_address_is_in_these_files() -> None:
    for path in DEPLOY.rglob("*"):
        if path.is_file() and path.suffix not in (".pyc",):
            text = path.read_text("utf-8")
            assert "PRIVATE KEY" not in text
            assert not re.search(r"\bkind: Secret\b|stringData|https?://(?!127\.0\.0\.1)", text), path


# ---- alerts ------------------------------------------------------------------------------------------


def test_every_alert_fires_where_it_should_and_not_before() -> None:
    folder = DEPLOY / "prometheus"
    said = run("promtool", "test", "rules", "verticopula.rules.test.yml", cwd=folder)
    assert "SUCCESS" in said
    rules = documents(folder / "verticopula.rules.yml")[0]["groups"][0]["rules"]
    tested = documents(folder / "verticopula.rules.test.yml")[0]["tests"]
    fired = {case["alertname"] for one in tested for case in one["alert_rule_test"] if case["exp_alerts"]}
    silent = {case["alertname"] for one in tested for case in one["alert_rule_test"] if not case["exp_alerts"]}
    assert fired == silent == {rule["alert"] for rule in rules}


def test_alerts_ask_for_metrics_that_there_are() -> None:
    asked = set(re.findall(r"verticopula_\w+", (DEPLOY / "prometheus" / "verticopula.rules.yml").read_text("utf-8")))
    source = (ROOT / "src/verticopula/network/operations/process_metrics.py").read_text("utf-8")
    named = set(re.findall(r'_(?:gauge|counter)\(\s*"(\w+)"', source))
    assert len(asked) > 8
    assert asked <= named


def test_the_page_says_what_to_do_about_every_alert() -> None:
    page = (ROOT / "docs/how-to/operations.md").read_text("utf-8")
    rules = documents(DEPLOY / "prometheus" / "verticopula.rules.yml")[0]["groups"][0]["rules"]
    assert [rule["alert"] for rule in rules if f"`{rule['alert']}`" not in page] == []


def test_yaml_is_tidy() -> None:
    run(tool("yamllint"), "--strict", "-c", ROOT / ".yamllint.yaml", DEPLOY)
