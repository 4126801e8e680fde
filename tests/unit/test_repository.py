"""What stands beside the code: the workflow, issue templates, the citation, what the package says of itself."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
TEMPLATES = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))


def test_the_workflow_runs_what_must_pass_and_nothing_else() -> None:
    text = (ROOT / ".github/workflows/checks.yml").read_text("utf-8")
    workflow = yaml.safe_load(text)
    (job,) = workflow["jobs"].values()
    runs = [step["run"] for step in job["steps"] if "run" in step]
    assert runs[-1] == "./.ci/run"
    assert all(run.startswith("sudo apt-get update") for run in runs[:-1])
    assert workflow["permissions"] == {"contents": "read"}
    known = {line.rsplit(" ", 1)[1] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)}
    assert set(job["strategy"]["matrix"]["python"]) <= known
    assert "secrets." not in text


def test_what_must_pass_is_a_program_of_make_targets_that_exist() -> None:
    program = ROOT / ".ci/run"
    assert program.stat().st_mode & 0o111
    wanted = set(re.findall(r"(?m)^make ([a-z-]+)", program.read_text("utf-8")))
    targets = set(re.findall(r"(?m)^([a-z0-9-]+):", (ROOT / "Makefile").read_text("utf-8")))
    assert wanted
    assert wanted <= targets


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_issue_templates_ask_for_no_data(path: Path) -> None:
    form = yaml.safe_load(path.read_text("utf-8"))
    if path.name == "config.yml":
        assert form == {"blank_issues_enabled": True}
        return
    assert form["name"]
    assert form["description"]
    ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert ids
    assert len(set(ids)) == len(ids)
    assert {part["type"] for part in form["body"]} <= {"markdown", "textarea", "input", "checkboxes"}


def test_the_defect_template_says_where_weaknesses_go_and_that_data_stay() -> None:
    text = (ROOT / ".github/ISSUE_TEMPLATE/defect.yml").read_text("utf-8")
    assert "SECURITY.md" in text
    assert "do not attach data" in text


def test_the_citation_has_the_version_and_the_licence_of_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert str(citation["version"]) == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    (paper,) = citation["references"]
    page = " ".join((ROOT / "docs/reference/citation.md").read_text("utf-8").split())
    names = [f"{author['given-names']} {author['family-names']}" for author in paper["authors"]]
    number = paper["identifiers"][0]["value"]
    said = [citation["title"], f"Version {PROJECT['version']}", paper["title"], *names, number]
    assert [text for text in said if text not in page] == []
