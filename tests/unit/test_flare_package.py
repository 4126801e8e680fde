"""FLARE's package runs its own code only for those who use it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HEAVY = "nvflare.job_config.api"


def test_only_who_uses_the_package_itself_imports_all_of_it() -> None:
    steps = (
        ("import verticopula.network.coordinator.coordinator_process", "False"),
        ("import verticopula.network.party.party_process, verticopula.network.lead.study_lead", "False"),
        ("import nvflare; nvflare.__spec__, nvflare.FilterType", "True"),
        ("from nvflare import FedJob; FedJob.__name__", "True"),
    )
    told = "\n".join(f"{line}\nprint({HEAVY!r} in sys.modules)" for line, _ in steps)
    told = f"import sys\n{told}\nprint(hasattr(nvflare, 'no_such_name'))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [*(expected for _, expected in steps), "False"]


def test_who_imported_the_package_before_has_all_of_it() -> None:
    told = "import nvflare, verticopula.network.lead.study_lead, sys\nnvflare.FedJob\nprint({HEAVY!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", told.format(HEAVY=HEAVY)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "True"


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
from verticopula.network.connection.flare_link import Communicator, Endpoint
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
