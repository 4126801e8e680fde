"""Options that are declared as the fields of a dataclass, and how a command gets them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from verticopula.cli.option_records import with_options

Colour = Annotated[str, typer.Option(help="of the paint")]
Coats = Annotated[int, typer.Option("--coats", "-c", help="one over the other")]


@dataclass(frozen=True)
class Paint:
    colour: Colour = "white"
    coats: Coats = 1


said: list[tuple[Path, Paint, bool]] = []


@with_options
def paint(wall: Path, *, paint: Paint, dry: bool = False) -> None:
    """Paint a wall."""
    said.append((wall, paint, dry))


@pytest.fixture(autouse=True)
def nothing_said() -> None:
    said.clear()


def typed(*words: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(paint)
    done = CliRunner().invoke(app, words, env={"COLUMNS": "120", "TERM": "dumb"})
    return done.exit_code, done.output


def test_fields_are_options_with_their_help_and_short_names() -> None:
    code, output = typed("--help")
    assert code == 0
    for word in ("Paint a wall", "--colour", "of the paint", "--coats", "-c", "--dry"):
        assert word in output
    assert "--paint" not in output


def test_what_was_typed_is_put_together_again() -> None:
    assert typed("north", "--colour", "red", "-c", "3", "--dry")[0] == 0
    assert typed("south")[0] == 0
    assert said == [(Path("north"), Paint("red", 3), True), (Path("south"), Paint(), False)]


def test_a_command_can_be_called_with_fields_by_name() -> None:
    paint(Path("east"), coats=2)  # type: ignore[call-arg]
    assert said == [(Path("east"), Paint(coats=2), False)]
    with pytest.raises(TypeError, match="colours"):
        paint(Path("west"), colours="red")  # type: ignore[call-arg]


def test_its_signature_has_the_fields() -> None:
    assert list(inspect.signature(paint).parameters) == ["wall", "colour", "coats", "dry"]
