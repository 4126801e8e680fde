"""Every command and every Python block of tutorials and how-to pages runs, and prints what the page shows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from reporting.page_notebooks import read_page

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for folder in ("tutorials", "how-to") for path in (ROOT / "docs" / folder).glob("*.md"))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_a_page_shows_what_its_blocks_print(page: Path) -> None:
    """As a notebook, with a kernel of its own in an empty folder."""
    if not read_page(page).run:
        # Nothing to run: every block says why, and tests/unit/test_page_notebooks.py lists each of them.
        assert all(block.not_run for block in read_page(page).blocks)
        return
    command = [sys.executable, "-m", "reporting.page_notebooks", "check", str(page)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]


IN_A_NOTEBOOK = """
import json
import nbformat
from nbclient import NotebookClient
code = '''
from verticopula import Synthesizer
from verticopula.datasets import make_sme
study = make_sme(300)
fitted = Synthesizer(study.federation, "refined", epsilon=50.0).fit(study.tables)
'''
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
NotebookClient(notebook, timeout=900, kernel_name="python3").execute()
print(json.dumps([output.get("data", {}) for output in notebook.cells[0].outputs]))
"""


def test_a_notebook_shows_progress_in_one_line_that_ends_at_its_total() -> None:
    done = subprocess.run([sys.executable, "-c", IN_A_NOTEBOOK], cwd=ROOT, capture_output=True, text=True, check=True)
    shown = [data for data in json.loads(done.stdout) if "<progress" in data.get("text/html", "")]
    assert len(shown) == 1
    assert "refining" in shown[0]["text/html"]
    assert "1 of 1" in shown[0]["text/html"]
    assert shown[0]["text/plain"] == ""
