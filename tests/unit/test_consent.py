"""The steward's consent: what is shown, and which answers count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from verticopula.errors import PolicyRefused
from verticopula.network.consent import ConsentPrompt
from verticopula.privacy.release import Release

RANKS = Release(
    time="2026-01-01T00:00:00+00:00",
    study="study-1",
    party="bank",
    column="income",
    what="ranks",
    mechanism="randomized response on every comparison",
    n_subjects=1_234,
    epsilon=0.25,
    coins_epsilon=0.25,
    coins_count=1_233,
    noise="secure",
    bounds="public",
)
COUNTS = replace(RANKS, what="marginal", mechanism="discrete Laplace on cell counts", epsilon=0.5, coins_count=1)
EXACT = replace(RANKS, what="exact", mechanism="no noise", epsilon=float("inf"), coins_epsilon=float("inf"))


def prompt(*answers: str) -> ConsentPrompt:
    left = list(answers)
    return ConsentPrompt("bank", 1e-6, read=lambda: left.pop(0))


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_everything_that_would_leave_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    prompt("y\n").request("vcds", [RANKS, COUNTS], [replace(RANKS, study="earlier")])
    said = capsys.readouterr().out
    for part in ("study-1 (vcds)", "income", "noisy ranks", "noisy counts", "1,234", "0.25 per comparison"):
        assert part in said
    assert "0.5 per value" in said
    assert "epsilon per client: 0.25 so far, 1" in said
    assert "Send it? [y/N/all]" in said


def test_exact_values_are_said_loudly(capsys: pytest.CaptureFixture[str]) -> None:
    prompt("y\n").request("raw-glm", [EXACT], [])
    assert "EXACT VALUES" in capsys.readouterr().out


@pytest.mark.parametrize("answer", ["y\n", "Y\n", "yes\n", " YES \n", "all\n"])
def test_yes(answer: str) -> None:
    prompt(answer).request("vcds", [RANKS], [])


@pytest.mark.parametrize("answer", ["", "\n", "n\n", "no\n", "yess\n", "y y\n", "1\n", "\x1b[A\n", "alle\n"])
def test_everything_else_is_a_no_and_so_is_the_end_of_input(answer: str) -> None:
    with pytest.raises(PolicyRefused, match="'bank': its steward said no"):
        prompt(answer).request("vcds", [RANKS], [])


def test_a_yes_is_for_one_request() -> None:
    asked = prompt("y\n", "n\n")
    asked.request("vcds", [RANKS], [])
    with pytest.raises(PolicyRefused):
        asked.request("vcds", [RANKS], [])


def test_all_is_for_later_rounds_of_this_study() -> None:
    asked = prompt("all\n", "n\n")
    asked.request("ievcds", [RANKS, COUNTS], [])
    later = replace(RANKS, mechanism=f"{RANKS.mechanism}, completed column", coins_count=2_000)
    for _ in range(9):
        asked.request("ievcds", [later], [])
    with pytest.raises(PolicyRefused):
        asked.request("ievcds", [replace(RANKS, study="another")], [])


@pytest.mark.parametrize(
    "more",
    [
        replace(RANKS, epsilon=0.3),
        replace(RANKS, column="age"),
        replace(RANKS, noise="seeded"),
        replace(RANKS, n_subjects=2_000),
        replace(RANKS, mechanism="binomial ranks"),
        EXACT,
    ],
)
def test_all_is_not_for_more_than_was_shown(more: Release) -> None:
    asked = prompt("all\n", "n\n")
    asked.request("vcds", [RANKS, COUNTS], [])
    with pytest.raises(PolicyRefused):
        asked.request("vcds", [RANKS, more], [])


def test_no_name_moves_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    prompt("y\n").request("\x1b[2Jvcds\r\u202e[bold]", [replace(RANKS, column="x[red]")], [])
    said = capsys.readouterr().out
    assert "\x1b[2J" not in said
    assert "\u202e" not in said
    assert "\r" not in said
    assert "[bold]" in said
    assert "x[red]" in said


def test_it_is_known_when_a_person_is_waiting() -> None:
    seen: list[bool] = []
    asked: Any = None

    def read() -> str:
        seen.append(asked.is_waiting)
        return "y\n"

    reader: Callable[[], str] = read
    asked = ConsentPrompt("bank", 1e-6, read=reader)
    asked.request("vcds", [RANKS], [])
    assert seen == [True]
    assert not asked.is_waiting
