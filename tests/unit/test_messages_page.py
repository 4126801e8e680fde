"""The page of messages has every warning and every kind of error, with what to do."""

from __future__ import annotations

import ast
import inspect

import pytest

from reporting.messages_page import ERRORS, WARNINGS, list_messages, said_in_code, text_of
from verticopula import errors
from verticopula.estimators.synthesizer import StudyNotFittedError
from verticopula.forecasting import preflight_checks
from verticopula.study.study_warnings import CATEGORIES, WARN_AT


@pytest.fixture(scope="module")
def lists() -> str:
    return list_messages()


def test_every_kind_of_error_and_warning_says_what_to_do() -> None:
    tree = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, Exception)]
    assert {*tree, StudyNotFittedError} == {*ERRORS, *WARNINGS}
    assert [kind.__name__ for kind in (*ERRORS, *WARNINGS) if "*What to do:*" not in (inspect.getdoc(kind) or "")] == []


def test_every_warning_stands_there_with_constants_filled_in(lists: str) -> None:
    codes = [said.texts[0] for said in said_in_code() if said.made == "StudyWarning"]
    assert len(codes) > 20
    assert [code for code in [*codes, *CATEGORIES] if f"### {code}\n" not in lists] == []
    assert f"… columns with fewer than {WARN_AT.few_observed} observed subjects" in lists
    assert "… earlier studies" in lists


def test_errors_stand_below_their_kind(lists: str) -> None:
    problems = lists[lists.index("### SchemaError") : lists.index("### SettingsError")]
    assert r"- at least one \[\[party.column\]\] is needed" in problems
    assert "- …\n" not in lists
    assert "- no row is cut by …, as the header is" in problems  # the call has it by a name
    assert "- has no table\n" in problems  # the other branch of a condition
    assert "**Selected columns are linearly dependent.** Their coefficients are not unique." in lists


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ('"plain"', "plain"),
        ('f"a {name!r} b"', "a … b"),
        ('f"{SPENDING_AT.few_subjects} or more"', "100 or more"),
        ("f\"{count_of(n, 'column')} of {count_of(n, 'study', 'studies')}\"", "… columns of … studies"),
        ('"one " + f"{two}"', "one …"),
        ("SPENDING_AT", "…"),
    ],
)
def test_a_text_as_it_stands_in_the_code(code: str, text: str) -> None:
    assert text_of(ast.parse(code, mode="eval").body, preflight_checks) == text
