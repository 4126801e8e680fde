"""Pages, docstrings and comments name only what exists: links, files, functions, commands, options, targets."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
import typer

from benchmarks.__main__ import ENTRIES as BENCHMARKS
from experiments.__main__ import ENTRIES as EXPERIMENTS
from verticopula.cli.app import app

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "deploy", "docs", "experiments", "reporting", "src", "tests")
BASES = (ROOT, ROOT / "src/verticopula", ROOT / "experiments", ROOT / "benchmarks")
SOURCES = sorted(path for folder in FOLDERS for path in ROOT.glob(f"{folder}/**/*.py"))
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(path for folder in FOLDERS for path in ROOT.glob(f"{folder}/**/*.md"))]
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

# A path is a file of Python or Markdown anywhere, or whatever is said to lie in one of the repository's folders.
INSIDE = "|".join(FOLDERS)
PATH = re.compile(rf"(?<![\w./*-])(?:(?:[\w-]+/)*\w[\w-]*\.(?:py|md)|(?:{INSIDE})/[\w./-]*\w)(?![\w/*]|\.\w)")
DOTTED = re.compile(r"([a-z_]\w*(?:\.[a-z_]\w*)*)\.([a-z_]\w*)(?:\(.*\))?")  # `em.em_step`, `em.em_step(...)`
NAME = re.compile(r"([a-z]+_[a-z]\w*|[A-Z][a-z]+[A-Z]\w*)(?:\(\))?")  # `em_step`, `RefineReport`
OBJECTS, FOREIGN = ("syn", "model", "search"), ("check_estimator",)  # in examples; of other libraries
ENDINGS = ("csv", "example", "html", "json", "jsonl", "md", "npz", "parquet", "py", "toml", "txt")


def code_of(page: Path) -> list[str]:
    """Return the inline code of a page and the lines of its code blocks."""
    parts = re.split(r"(?m)^```.*\n", page.read_text("utf-8"))
    lines = [line for block in parts[1::2] for line in block.replace("\\\n", " ").splitlines()]
    return [*re.findall(r"`([^`\n]+)`", "\n".join(parts[::2])), *(re.sub(r"^\$ | +# .*", "", line) for line in lines)]


def comments_of(source: Path) -> str:
    """Return the docstrings and comments of a file of Python."""
    text, kinds = source.read_text("utf-8"), ast.Module | ast.ClassDef | ast.FunctionDef
    found = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join([*found, *(token.string for token in tokens if token.type == tokenize.COMMENT)])


@cache
def definitions() -> tuple[set[str], dict[str, list[str]]]:
    """Return all words of the code, and by name the modules that define it at their top level or hand it on."""
    words, modules = set(FOREIGN), defaultdict(list)
    words |= {word for path in ROOT.glob("deploy/**/*.yml") for word in re.findall(r"\w+", path.read_text("utf-8"))}
    for path in SOURCES:
        text, module = path.read_text("utf-8"), "." + ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        words |= set(re.findall(r"\w+", text))
        exported = re.findall(r'^    "(\w+)"', text, re.MULTILINE) if path.name == "__init__.py" else []
        for name in [*re.findall(r"^(?:def |class |)(\w+)(?= ?[:=(])", text, re.MULTILINE), *exported]:
            modules[name].append(module)
    return words, modules


def wrong_names(spans: list[str]) -> list[str]:
    """Return the spans that name a function or class which is not there, or not in that module."""
    words, modules = definitions()
    wrong = [span for span in spans if (found := NAME.fullmatch(span)) and found[1] not in words]
    for head, name in (found.groups() for found in map(DOTTED.fullmatch, spans) if found):
        right = any(module.endswith(f".{head}") for module in modules[name]) if name in modules else name in words
        wrong += [] if right or head in OBJECTS or name in ENDINGS else [f"{head}.{name}"]
    return wrong


def wrong_paths(text: str, own: Path) -> list[str]:
    """Return the paths in a text that are not there; a bare name may lie anywhere, or be written by an experiment."""
    written = {name for entry in EXPERIMENTS.values() for name in entry.writes.split(", ")}
    named = set(PATH.findall(text)) - {path.name for path in [*SOURCES, *PAGES]} - written
    return sorted(name for name in named if not any((base / name).exists() for base in (*BASES, own.parent)))


def words_after(command: str, code: list[str]) -> set[str]:
    """Return the names that follow a command: `make check test` has two."""
    pattern = rf"(?:^|[;&(] *|time ){command}((?: +[a-z][a-z0-9_-]*)+)"
    return {word for line in code for rest in re.findall(pattern, line) for word in rest.split()}


@EVERY_PAGE
def test_links_lead_somewhere_and_the_index_has_every_page(page: Path) -> None:
    index = (ROOT / "docs/README.md").read_text("utf-8")
    assert ROOT / "docs" not in page.parents[1:] or f"({page.relative_to(ROOT / 'docs')})" in index
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if not re.match(r"[a-z]+:", target):
            name, _, anchor = target.partition("#")
            there = page.parent / name if name else page
            assert there.exists(), target
            heads = re.findall(r"^#+ (.*)", there.read_text("utf-8"), re.MULTILINE) if anchor else []
            slugs = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
            assert not anchor or anchor in slugs, target


@EVERY_PAGE
def test_what_pages_name_exists(page: Path) -> None:
    code = code_of(page)
    assert wrong_paths("\n".join(code), page) == []
    assert page.name == "CHANGELOG.md" or wrong_names(code) == []  # it also has names as they were
    assert words_after("make", code) <= set(re.findall(r"(?m)^([a-z0-9-]+):", (ROOT / "Makefile").read_text("utf-8")))
    assert words_after("(?:python -m )?benchmarks", code) <= set(BENCHMARKS)
    assert words_after("(?:python -m )?experiments", code) <= set(EXPERIMENTS)
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, rest in re.findall(r"(?:^|[;&] *)verticopula +([a-z][a-z-]*)([^;&\n]*)", "\n".join(code), re.MULTILINE):
        assert name in commands
        named = [commands[name]]
        if below := getattr(commands[name], "commands", None):  # of `ledger` and `people`; pages have `show|verify`
            named = [below[one] for one in "".join(rest.split()[:1]).split("|") if one]
        known = {option for one in named for each in one.params for option in (*each.opts, *each.secondary_opts)}
        assert set(re.findall(r"(?<!\S)--[a-z][a-z-]*", rest)) <= known, (name, rest)


def test_what_docstrings_and_comments_name_exists() -> None:
    said = ((path, comments_of(path)) for path in SOURCES)
    wrong = {path: wrong_paths(text, path) + wrong_names(re.findall(r"`([^`\n]+)`", text)) for path, text in said}
    assert {str(path): found for path, found in wrong.items() if found} == {}
