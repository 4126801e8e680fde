"""Pages: Markdown for the documentation, HTML in one file that opens offline."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from reporting.tables import Table

STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #222; }
table { border-collapse: collapse; margin: .5em 0 1.5em; }
th, td { border: 1px solid #ccc; padding: .3em .5em; vertical-align: top; text-align: right; white-space: nowrap; }
th { background: #f3f3f3; text-align: left; }
td small { color: #555; display: block; }
.better { background: #d9f2dc; } .equal { background: #fdf6d0; } .worse { background: #f8d7d7; }
.worse.reach { background: #ece4f3; } .none { background: #fff; }
p { max-width: 60em; }
svg { max-width: 100%; height: auto; }
"""


def markdown_page(title: str, parts: Sequence[str | Table]) -> str:
    """A title, then paragraphs and tables; a table's title becomes a heading."""
    blocks = [f"# {title}"]
    for part in parts:
        if isinstance(part, Table):
            blocks += [f"## {part.title}", *filter(None, [part.note]), part.to_markdown()]
        else:
            blocks.append(part.strip())
    return "\n\n".join(blocks) + "\n"


def html_page(title: str, parts: Sequence[str], made_by: str, style: str = "") -> str:
    """A title, HTML elements, and at the foot how the page was made."""
    opening = (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        f"<meta name='viewport' content='width=device-width'><title>{escape(title, quote=False)}</title>",
        f"<style>{STYLE}{style}</style></head><body><h1>{escape(title, quote=False)}</h1>",
    )
    return "\n".join((*opening, *parts, f"<p><small>{escape(made_by)}</small></p></body></html>")) + "\n"
