"""The lists of warnings and errors on the page of messages, read from the code.

What differs from study to study stands as `…`: a party, a column, a number. Constants are filled in.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import verticopula
from verticopula import errors
from verticopula.estimators.synthesizer import StudyNotFittedError

HOME = Path(verticopula.__file__).parent
GAP = "…"
_MARKUP, _ESCAPED = re.compile(r"([\[\]<>*_\\])"), r"\\\1"
LEVELS = {"stop": "Do not share or publish as it is", "care": "Results may mislead", "note": "Good to know"}
ERRORS = [
    *(errors.SchemaError, errors.SettingsError, errors.InputTypeError, errors.BudgetExceeded, errors.PolicyRefused),
    *(
        errors.ConsentPending,
        errors.PartyUnavailable,
        errors.VersionMismatch,
        errors.EngineError,
        errors.LedgerError,
        errors.VerticopulaError,
    ),
    *(errors.VerticopulaError, errors.ProtocolError, errors.WireError, StudyNotFittedError),
]
WARNINGS = [
    errors.NotPrivateWarning,
    errors.WeakPrivacyWarning,
    errors.WeakResultWarning,
    errors.AlignedWarning,
    errors.CellsWarning,
]


class Said(NamedTuple):
    """A call that makes a message: its name, and its arguments as text."""

    made: str
    texts: tuple[str, ...]


def said_in_code() -> Iterator[Said]:
    """Every warning, problem and error that some file makes: its text stands in the call, or in a name just before."""
    makers = {"StudyWarning", "Problem", *(error.__name__ for error in ERRORS)}
    for path in sorted(HOME.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for part in tree.body:
            made = [call for call in _calls(part) if call.func.id in makers and call.args]
            named = _assigned(part)
            for call in made:
                choices = [_choices(argument, named) for argument in call.args]
                for chosen in product(*choices):
                    yield Said(call.func.id, tuple(text_of(each, _module(path)) for each in chosen))


def _calls(part: ast.AST) -> list[ast.Call]:
    return [node for node in ast.walk(part) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]


def _assigned(part: ast.AST) -> dict[str, list[ast.expr]]:
    """Name -> the expressions that a function or class assigns to it."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(part):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
    return found


def _choices(node: ast.expr, named: dict[str, list[ast.expr]]) -> list[ast.expr]:
    """What an argument may be: either branch of a condition, any expression that its name stands for."""
    if isinstance(node, ast.IfExp):
        return [*_choices(node.body, named), *_choices(node.orelse, named)]
    if isinstance(node, ast.Name) and node.id in named:
        return [choice for value in named[node.id] for choice in _choices(value, {})]
    return [node]


def _module(path: Path) -> ModuleType:
    names = path.relative_to(HOME.parent).with_suffix("").parts
    return importlib.import_module(".".join(names[:-1] if names[-1] == "__init__" else names))


def text_of(node: ast.expr, module: ModuleType | None) -> str:
    """A text as it stands in the code: constants are filled in, anything else is a gap.

    Parameters
    ----------
    node : the expression
    module : whose constants count
    """
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part, module) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return text_of(node.value, module)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return text_of(node.left, module) + text_of(node.right, module)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "count_of":
        words = [text_of(argument, module) for argument in node.args[1:]]
        return f"{GAP} {words[1] if len(words) > 1 else words[0] + 's'}"
    try:
        value = ast.literal_eval(node) if isinstance(node, ast.Constant) else _constant(node, module)
    except (AttributeError, TypeError):
        return GAP
    return str(value)


def _constant(node: ast.expr, module: Any) -> str | int | float:
    """`NAME` or `NAME.attribute` of a module, where it is a text or a number."""
    if isinstance(node, ast.Attribute):
        found = getattr(getattr(module, node.value.id), node.attr)
    else:
        found = getattr(module, node.id)
    if not isinstance(found, str | int | float):
        raise TypeError
    return found


def list_messages() -> str:
    """All lists, in Markdown."""
    found = list(said_in_code())
    return "\n".join([*_study_warnings(found), *_python_warnings(), *_errors(found)])


def _study_warnings(found: list[Said]) -> Iterator[str]:
    warnings = sorted({said.texts for said in found if said.made == "StudyWarning"})
    for level, meaning in LEVELS.items():
        yield f"## Warnings: {level}\n\n{meaning}.\n"
        for code, _, title, means, action in (each for each in warnings if each[1] == level):
            yield f"### {code}\n\n**{title}.** {means}\n\n*What to do:* {action}\n"


def _python_warnings() -> Iterator[str]:
    yield "## Warnings in Python\n"
    for warning in WARNINGS:
        yield f"### {warning.__name__}\n\n{inspect.getdoc(warning)}\n"


def _bullets(texts: set[str]) -> str:
    return "\n".join(f"- {_MARKUP.sub(_ESCAPED, ' '.join(text.split()))}" for text in sorted(texts - {GAP})) + "\n"


def _errors(found: list[Said]) -> Iterator[str]:
    yield "## Errors\n"
    for error in ERRORS:
        made = ("Problem", 1) if error is errors.SchemaError else (error.__name__, 0)
        texts = {said.texts[made[1]] for said in found if said.made == made[0]}
        yield f"### {error.__name__}\n\n{inspect.getdoc(error)}\n\n{_bullets(texts)}"
