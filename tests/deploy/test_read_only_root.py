"""The image's promise without an image: all roles run where nothing but the state and /tmp can be written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.network.harness import PARTIES, Net, network

pytestmark = pytest.mark.deploy

# In namespaces of its own: the whole tree read-only, the federation's folder at /mnt, an empty /tmp.
CONFINED = """
set -e
mount --make-rprivate /
mount --bind "$1" /mnt
mount -t tmpfs tmpfs /tmp
mount -o remount,ro,bind /
shift
if touch /var/lib/x "$HOME/x" 2>/dev/null; then echo "the root can be written" >&2; exit 9; fi
exec "$@"
"""


ROOT = Path(__file__).parents[2]


def check_nothing_is_hidden() -> None:
    """Fail at once: processes without their own code would be waited for, until the test's time is over."""
    hidden = [path for path in (ROOT, Path(sys.prefix)) if path.resolve().is_relative_to(Path("/tmp").resolve())]
    assert not hidden, (
        f"this test gives processes an empty /tmp, and {hidden[0]} lies there: run it from another folder"
    )


def start(net: Net, name: str) -> None:
    command = ["serve", f"/mnt/kits/{name}"]
    if name != "server":
        command = ["join", f"/mnt/kits/{name}", "--data", f"/mnt/{name}.csv", "--policy", f"/mnt/{name}.toml"]
    alone = ["unshare", "--user", "--map-root-user", "--mount", "bash", "-c", CONFINED, "_", str(net.folder)]
    with (net.folder / "kits" / name / "output.txt").open("ab") as output:
        net.processes[name] = subprocess.Popen(
            [*alone, sys.executable, "-m", "verticopula", *command, "--log-format", "json"],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            # As in the Containerfile.
            env={**os.environ, "HOME": "/root", "PYTHONDONTWRITEBYTECODE": "1", "NUMBA_CACHE_DIR": "/tmp/numba"},
        )


def test_a_study_runs_where_nothing_but_the_state_can_be_written(tmp_path: Path) -> None:
    check_nothing_is_hidden()
    with network(tmp_path) as net:
        for name in ("server", *PARTIES):
            start(net, name)
        with net.lead() as lead:
            study = net.submit(lead, method="refined", epsilon=8.0)
            state, note = net.wait(lead, study)
        said = {name: net.output(name) for name in net.processes}
        assert state == "done", (note, said)
        assert (net.result(study) / "report.html").is_file()
        for name, text in said.items():
            assert [json.loads(line)["message"] for line in text.splitlines() if '"error"' in line] == [], name
