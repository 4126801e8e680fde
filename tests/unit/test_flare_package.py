"""FLARE's package runs its own code only for those who use it."""

from __future__ import annotations

import subprocess
import sys

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
