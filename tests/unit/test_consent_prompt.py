"""The steward's consent: what is shown, and which answers count."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verticopula.errors import ProtocolError
from verticopula.network.party.consent_prompt import ConsentPrompt, drop_typed_ahead
from verticopula.network.party.stored_consent import describe_request
from verticopula.privacy.policy import Caps, Policy
from verticopula.privacy.release import Release
from verticopula.protocol.party.consent_question import ConsentQuestion
from verticopula.protocol.study_proposal import check_requester_and_purpose
from verticopula.storage.request_store import RequestStore
from verticopula.storage.steward_keys import Steward
from verticopula.storage.steward_requests import RequestContent, StewardRequest

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
RAW = replace(RANKS, what="raw", mechanism="no noise", epsilon=float("inf"), coins_epsilon=float("inf"))


POLICY = Policy(caps=Caps(client=4.0))


def question(method: str, proposed: list[Release], spent: list[Release], **changes: Any) -> ConsentQuestion:
    said: dict[str, Any] = {"requester": "Dr Who, Ministry", "purpose": "waiting times", "alignment": "hash", **changes}
    study = proposed[0].study if proposed else "study-1"
    return ConsentQuestion(study, method, **said, proposed=tuple(proposed), spent=tuple(spent))


@pytest.fixture
def store(tmp_path: Path) -> RequestStore:
    return RequestStore.of_kit(tmp_path)


def described(asked: ConsentQuestion) -> RequestContent:
    return describe_request(asked, "bank", "federation", POLICY)


def ask(store: RequestStore, asked: ConsentQuestion, answer: str = "y\n") -> StewardRequest:
    """The request after the steward has answered at the terminal."""
    request = store.ask(described(asked))
    ConsentPrompt(store, lambda: answer, lambda: None, Steward("anna")).ask(request)
    return store.get(request.id)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_everything_that_would_leave_is_shown(store: RequestStore, capsys: pytest.CaptureFixture[str]) -> None:
    asked = question("vcds", [RANKS, COUNTS], [replace(RANKS, study="earlier")], lead="anna-berg", use="one report")
    ask(store, replace(asked, people=asked.spent, contact="tel. 1"))
    said = capsys.readouterr().out
    for part in (
        "A study by vcds",
        "| study: study-1",
        "income",
        "noisy ranks",
        "noisy counts",
        "1,234",
        "0.25 per comparison",
    ):
        assert part in said
    assert "0.5 per value" in said
    assert "Epsilon per client: 0.25 so far, 0.75 for this study, 1 with it" in said
    assert "cap 4, of which 3.75 left before, 3 after" in said
    assert "asked by: anna-berg, by certificate" in said
    for line in ("says to be: Dr Who, Ministry", "because: waiting times", "contact: tel. 1", "tables: one report"):
        assert f"| {line}" in said or f"| use of the {line}" in said
    assert "Do you consent? [y/N]" in said


def test_exact_values_are_said_loudly(store: RequestStore, capsys: pytest.CaptureFixture[str]) -> None:
    ask(store, question("raw-glm", [RAW], []))
    assert "RAW VALUES" in capsys.readouterr().out


@pytest.mark.parametrize("answer", ["y\n", "Y\n", "yes\n", " YES \n"])
def test_yes(store: RequestStore, answer: str) -> None:
    assert ask(store, question("vcds", [RANKS], []), answer).state == "approved"


@pytest.mark.parametrize("answer", ["\n", "n\n", "no\n", "yess\n", "y y\n", "1\n", "\x1b[A\n", "all\n"])
def test_everything_else_is_a_no(store: RequestStore, answer: str) -> None:
    assert ask(store, question("vcds", [RANKS], []), answer).state == "denied"


def test_the_end_of_input_is_no_answer(store: RequestStore) -> None:
    """Nobody is at the terminal: the request goes on waiting for whoever answers by command."""
    request = store.ask(described(question("vcds", [RANKS], [])))
    assert not ConsentPrompt(store, lambda: "", lambda: None).ask(request)
    assert store.get(request.id).state == "pending"


def test_an_answer_that_comes_after_another_one_changes_nothing(
    store: RequestStore, capsys: pytest.CaptureFixture[str]
) -> None:
    request = store.ask(described(question("vcds", [RANKS], [])))

    def read() -> str:
        store.decide(request.id, Steward("ben").decide(request, "no", "by command"))
        return "y\n"

    assert ConsentPrompt(store, read, lambda: None, Steward("anna")).ask(request)
    assert store.get(request.id).state == "denied"
    assert "is denied, not pending" in capsys.readouterr().out


def test_the_prompt_asks_one_after_the_other_until_it_is_stopped(store: RequestStore) -> None:
    for study in ("one", "two"):
        store.ask(replace(described(question("vcds", [RANKS], [])), study=study))
    answers, stopped = ["y\n", "n\n"], threading.Event()

    def read() -> str:
        if len(answers) == 1:
            stopped.set()
        return answers.pop(0)

    ConsentPrompt(store, read, lambda: None, Steward("anna")).run(stopped)
    assert [request.state for request in store.all()] == ["approved", "denied"]


def test_no_name_moves_the_cursor(store: RequestStore, capsys: pytest.CaptureFixture[str]) -> None:
    asked = question("\x1b[2Jvcds\r\u202e[bold]", [replace(RANKS, column="x[red]")], [], purpose="\x1b[2Jfree\r")
    ask(store, asked)
    said = capsys.readouterr().out
    assert "\x1b[2J" not in said
    assert "\u202e" not in said
    assert "\r" not in said
    assert "[bold]" in said
    assert "x[red]" in said


def test_it_is_known_when_a_question_stands_there(store: RequestStore) -> None:
    seen: list[bool] = []
    asked: Any = None

    def read() -> str:
        seen.append(asked.is_waiting)
        return "y\n"

    asked = ConsentPrompt(store, read, lambda: None)
    asked.ask(store.ask(described(question("vcds", [RANKS], []))))
    assert seen == [True]
    assert not asked.is_waiting


@pytest.mark.parametrize(("alignment", "words"), [("hash", "Keyed hashes"), ("psi", "test guessed ids")])
def test_a_beginning_says_what_leaves(
    store: RequestStore, alignment: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(store, question("vcds", [], [], alignment=alignment, purpose=""))
    said = capsys.readouterr().out
    assert words in said
    assert "because: not said" in said
    assert "Let it begin? [y/N]" in said


@pytest.mark.parametrize(
    ("method", "words"),
    [("vcds", "Which of your cells are empty"), ("strict", "All other parties are told whom you have any value of")],
)
def test_a_beginning_says_what_everybody_learns_about_whom_a_party_knows(
    store: RequestStore, method: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ask(store, question(method, [], []))
    assert words in " ".join(capsys.readouterr().out.split())


def test_equal_releases_are_one_line_with_their_number(store: RequestStore, capsys: pytest.CaptureFixture[str]) -> None:
    completed = replace(RANKS, mechanism=f"{RANKS.mechanism}, completed column", epsilon=90.0)
    ask(store, question("ievcds", [completed] * 9, []))
    said = capsys.readouterr().out
    assert "noisy ranks, 9 times" in said
    assert "90 per value" in said
    assert "Epsilon per person, as far as your ledger knows" in said


def test_the_steward_is_told_that_noise_from_a_seed_is_none(
    store: RequestStore, capsys: pytest.CaptureFixture[str]
) -> None:
    for proposed in ([], [replace(RANKS, noise="seeded"), replace(COUNTS, noise="seeded")]):
        ask(store, question("vcds", proposed, [], seeded=True))
        said = capsys.readouterr().out
        assert "NOT PRIVATE: the noise came from a seed" in said
        assert proposed == [] or "Epsilon per client: 0 so far, infinite for this study, infinite with it" in said
        assert proposed == [] or "cap 4, of which 4 left before, 0 after" in said
    ask(store, replace(question("vcds", [RANKS], []), study="another"))
    assert "seed" not in capsys.readouterr().out


def test_what_is_typed_before_a_question_stands_there_answers_nothing(store: RequestStore) -> None:
    order: list[str] = []

    class Told(ConsentPrompt):
        def _show(self, request: StewardRequest) -> None:
            order.append("shown")

    def read() -> str:
        order.append("read")
        return "y\n"

    request = store.ask(described(question("vcds", [RANKS], [])))
    Told(store, read, lambda: order.append("dropped")).ask(request)
    assert order == ["shown", "dropped", "read"]


def test_a_terminal_forgets_what_was_typed_and_a_pipe_does_not() -> None:
    master, terminal = os.openpty()
    source, sink = os.pipe()
    try:
        for end in (master, sink):
            os.write(end, b"y\n")
        with os.fdopen(os.dup(terminal)) as one, os.fdopen(os.dup(source)) as other:
            assert select.select([terminal], [], [], 5.0)[0]
            drop_typed_ahead(one)
            drop_typed_ahead(other)
        assert not select.select([terminal], [], [], 0.0)[0]
        assert os.read(source, 9) == b"y\n"
    finally:
        for end in (master, terminal, source, sink):
            os.close(end)


def test_a_long_purpose_cannot_look_like_lines_of_the_prompt(
    store: RequestStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    padded = "audit" + " " * 48 + "epsilon per client: 0 so far, 0 with this study" + " " * 9 + "Nothing leaves."
    ask(store, question("vcds", [RANKS], [], purpose=padded))
    lines = capsys.readouterr().out.splitlines()
    assert sum("because:" in line for line in lines) == 1
    theirs = [line for line in lines if "0 so far, 0 with" in line or "Nothing leaves." in line]
    assert theirs
    assert all(line.startswith("  | ") and len(line) <= 60 for line in theirs)


def test_a_long_name_of_a_study_cannot_look_like_lines_of_the_prompt(
    store: RequestStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    padded = "audit (strict)" + " " * 40 + "epsilon per person, as far as this ledger knows: 0.01 with this study"
    ask(store, replace(question("vcds", [RANKS], []), study=padded))
    lines = capsys.readouterr().out.splitlines()
    theirs = [line for line in lines if "strict" in line or "0.01" in line]
    assert theirs
    assert all(line.startswith("  | ") and len(line) <= 60 for line in theirs)
    assert lines[0] == "A study by vcds"


def test_nothing_else_is_written_while_a_question_stands_on_the_terminal() -> None:
    """A log line that a peer causes would push the question out of sight."""
    script = (
        "import logging; from pathlib import Path; from verticopula.network.kit.startup_kit import Kit;"
        "from verticopula.network.operations.kit_process import keep_log; import tempfile; asking = [False];"
        "kit = Kit(Path(tempfile.mkdtemp()), 'party', 'left', 'localhost', 1);"
        "keep_log(kit, quiet=False, is_asking=lambda: asking[0]); log = logging.getLogger('verticopula');"
        "log.warning('before it'); asking[0] = True; log.error('beside it'); asking[0] = False;"
        "log.warning('after it'); print('FILE', (kit.folder / 'log.txt').read_text())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=1200)
    screen, _, file = done.stdout.partition("FILE")
    assert "before it" in screen
    assert "after it" in screen
    assert "beside it" not in screen + done.stderr
    assert "beside it" in file


@pytest.mark.parametrize("words", ["a\nb", "a\rb", "a\x1b[2Jb", "a\u202eb", "a\u200bb", "a\u2028b", "x" * 501])
def test_who_asks_and_why_is_one_line(words: str) -> None:
    for said in ((words, ""), ("", words)):
        with pytest.raises(ProtocolError, match="who asks and why"):
            check_requester_and_purpose(*said)
    check_requester_and_purpose("Ministère, 保健省\u3000一課", "waiting times: 2026 (را می\u200cخواهد)")
