"""Pages are for tired readers: short sentences and paragraphs, narrow tables, one sentence a cell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
LONGEST_PARAGRAPH, LONGEST_MEAN, WIDEST = 95, 22, 5
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))


def parts_of(text: str) -> tuple[list[str], list[list[str]]]:
    """Paragraphs and items of lists, and rows of tables; without code, comments and the addresses of links."""
    text = re.sub(r"```.*?```|<!--.*?-->", "\n\n", text, flags=re.DOTALL)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`\n]*`", "code", text))
    blocks = [block.strip() for block in re.split(r"\n\s*\n|\n(?=\s*[-*] |\s*\d+\. |#|\|)", text)]
    rows = [re.split(r"(?<!\\)\|", block.strip("|")) for block in blocks if block.startswith("|")]
    return [block for block in blocks if block and block[0] not in "#|"], rows


def sentences_of(paragraph: str) -> list[str]:
    return re.split(r"(?<=[.!?:])\s+(?=[A-Z*])", " ".join(paragraph.split()))


@EVERY_PAGE
def test_a_page_has_no_marks_of_an_unfinished_merge(page: Path) -> None:
    assert re.findall(r"^(?:<{7}|>{7}) .*$", page.read_text("utf-8"), re.MULTILINE) == []


@EVERY_PAGE
def test_a_page_is_easy_to_read(page: Path) -> None:
    paragraphs, rows = parts_of(page.read_text("utf-8"))
    assert [text for text in paragraphs if len(text.split()) > LONGEST_PARAGRAPH] == []
    assert [row for row in rows if len(row) > WIDEST] == []
    assert [cell for row in rows for cell in row if re.search(r"[a-z0-9)]\. [A-Z]", cell)] == []
    words = [len(sentence.split()) for text in paragraphs for sentence in sentences_of(text)]
    assert sum(words) <= LONGEST_MEAN * max(len(words), 1)


def test_what_is_hard_to_read_is_found() -> None:
    paragraphs, rows = parts_of(
        "# Head\n\nOne two. Three `a b c` [four](x.md)\n- five\n\n| a. B | c |\n```\ncode\n```\n"
    )
    assert paragraphs == ["One two. Three code four", "- five"]
    assert rows == [[" a. B ", " c "]]
    assert sentences_of(paragraphs[0]) == ["One two.", "Three code four"]
