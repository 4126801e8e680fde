"""What the package says about itself."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import verticopula


def test_its_version_is_that_of_the_project_file() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert verticopula.__version__ == project["version"]


def test_a_name_that_it_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Copula'"):
        _ = verticopula.Copula
    assert {name for name in verticopula.__all__ if not hasattr(verticopula, name)} == set()
