"""FLARE's package runs its own code only for those who use it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = "nvflare.job_config.api"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("import verticopula.network.study_lead",), "False"),
        (("import verticopula.network.coordinator", "import verticopula.network.party_process"), "False"),
        (("import verticopula.network.study_lead", "from nvflare import FedJob", "FedJob.__name__"), "True"),
        (("import verticopula.network.study_lead", "import nvflare", "nvflare.__spec__", "nvflare.FilterType"), "True"),
        (("import nvflare", "import verticopula.network.study_lead", "nvflare.FedJob"), "True"),
    ],
)
def test_only_who_uses_the_package_itself_imports_all_of_it(lines: tuple[str, ...], expected: str) -> None:
    told = "\n".join(("import sys", *lines, f"print({HEAVY!r} in sys.modules)"))
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == expected


def test_a_name_that_the_package_does_not_have_is_an_error() -> None:
    told = "import verticopula.network.study_lead, nvflare\nprint(hasattr(nvflare, 'no_such_name'))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


_CANARY = """import pathlib
pathlib.Path({!r}).write_text("woken")
from nvflare.fuel.f3.drivers.base_driver import BaseDriver
class Canary(BaseDriver):
    pass
"""


def test_settings_that_lie_about_are_not_searched_for_and_name_no_code(tmp_path: Path) -> None:
    (tmp_path / "drivers").mkdir()
    (tmp_path / "drivers" / "canary.py").write_text(_CANARY.format(str(tmp_path / "woken")), "utf-8")
    (tmp_path / "deep" / "down").mkdir(parents=True)
    settings = json.dumps({"comm_driver_path": str(tmp_path / "drivers"), "heartbeat_interval": 1234})
    (tmp_path / "deep" / "down" / "comm_config.json").write_text(settings, "utf-8")
    told = """import sys
sys.addaudithook(lambda event, given: print("searched") if event == "os.scandir" and given[0] == "." else None)
from verticopula.network.flare_link import Communicator, Endpoint
from nvflare.fuel.f3.comm_config import CommConfigurator
from nvflare.fuel.f3.communicator import load_comm_drivers
load_comm_drivers()
Communicator(Endpoint("somebody"))
print(CommConfigurator().get_heartbeat_interval(7))
"""
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["60"]  # its own default: neither the search nor what it would find
    assert not (tmp_path / "woken").exists()
