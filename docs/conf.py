"""Settings of the documentation site, and its pages: `make docs` builds it, and warnings are errors.

Sphinx reads a copy of the pages in build/site/source. There links lead to the site's own pages also where they lead out
of docs/ in the repository; the contents list is that of docs/README.md; commands are described by their own help, and
messages are read from the code.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import nbformat
import typer
from typer.cli import get_docs_for_click

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import verticopula
from reporting import messages_page, page_notebooks
from verticopula.cli.app import app as commands

project = html_title = "verticopula"
release = version = verticopula.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
default_role = "literal"  # as in Markdown
suppress_warnings = ["ref.python"]  # an attribute's name is no link, whatever else has the same name

html_theme = "furo"
html_show_copyright = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["wide_tables.css"]
myst_heading_anchors = 4
copybutton_prompt_text = "$ "

_ROUTING = ", ".join(f"set_{method}_request" for method in ("fit", "predict", "score", "transform"))
autodoc_default_options = {"members": True, "exclude-members": f"model_config, model_post_init, {_ROUTING}"}
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 80
napoleon_google_docstring = False
napoleon_use_ivar = True

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "build/site/notebooks"
html_extra_path = [str(NOTEBOOKS)]
# Where the site has pages of the repository that stand outside of docs/.
OUTSIDE = {
    "README.md": "index.md",
    "docs/README.md": "index.md",
    "CONTRIBUTING.md": "development/contributing.md",
    "SECURITY.md": "development/security.md",
    "CHANGELOG.md": "development/changelog.md",
    "experiments/README.md": "results/experiments.md",
    "experiments/results/missing.md": "results/missing.md",
}
_LINK = re.compile(r"\]\(([^)#\s:]+)(#[^)\s]*)?\)")
_ENTRY = re.compile(r"^(\s*)(\*{0,2}[a-zA-Z_][\w, *]*?) : (.*)$")
_PARAMETERS = re.compile(r'<dl>\n((?:<dd><em class="sig-param">.*</dd>\n)+)</dl>')
_ITEM = re.compile("dd>")
_LISTS = ("Parameters", "Attributes", "Returns", "Raises")


def on_site(path: str) -> str | None:
    """Where the site has a file of the repository; None where it has not."""
    if path in OUTSIDE:
        return "/" + OUTSIDE[path]
    return path.removeprefix("docs") if path.startswith("docs/") else None


def read_page(path: str) -> str:
    """A page of the repository, with links as the site has them; to what the site does not have there is none."""
    source = ROOT / path

    def led(match: re.Match[str]) -> str:
        there = (source.parent / match[1]).resolve()
        place = on_site(there.relative_to(ROOT).as_posix())
        return "]" if place is None else f"]({place}{match[2] or ''})"

    return _LINK.sub(led, source.read_text("utf-8"))


def contents() -> str:
    """The contents list, from docs/README.md: a caption for every heading, a page for every link."""
    parts = []
    for section in read_page("docs/README.md").split("\n## ")[1:]:
        caption, body = section.split("\n", 1)
        pages = [match[1].removesuffix(".md") for match in _LINK.finditer(body)]
        if caption == "Reference":
            pages.append("/reference/commands")
        listed = "\n".join(dict.fromkeys(pages))
        parts.append(f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{listed}\n```\n")
    return "\n".join(parts)


def describe_commands() -> str:
    """All commands, from their own help."""
    command = typer.main.get_command(commands)
    context = typer.Context(command, info_name="verticopula")
    text = get_docs_for_click(obj=command, ctx=context, name="verticopula", title="Commands")
    return re.sub(r"\[bold\](.*?)\[/\]", r"**\1**", text)


def write_pages(folder: Path) -> None:
    """All pages, as the site has them."""
    shutil.rmtree(folder, ignore_errors=True)
    docs = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    pages = {place: read_page(path) for path in (*docs, *OUTSIDE) if (place := on_site(path)) is not None}
    pages["/index.md"] = read_page("README.md") + "\n" + contents()
    pages["/reference/commands.md"] = describe_commands()
    pages["/reference/messages.md"] += "\n" + messages_page.list_messages()
    for place, text in pages.items():
        target = folder / place.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    shutil.copytree(ROOT / "docs/images", folder / "images")


def write_notebooks(pages: Path, folder: Path) -> None:
    """Every tutorial as a notebook, and a link to it below the page's title."""
    shutil.rmtree(folder, ignore_errors=True)
    for source in sorted((ROOT / "docs/tutorials").glob("*.md")):
        target = (folder / "tutorials" / source.name).with_suffix(".ipynb")
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(page_notebooks.to_notebook(page_notebooks.read_page(source)), target)
        page = pages / "tutorials" / source.name
        title, rest = page.read_text("utf-8").split("\n", 1)
        link = f'<p><a href="{target.name}" download>Download this page as a notebook</a></p>'
        page.write_text(f"{title}\n\n{link}\n{rest}", encoding="utf-8")


def place_descriptions(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings say `name : what it is`, since types stand in signatures; napoleon expects the description below."""
    listed, found = False, []
    for place, line in enumerate(lines):
        if line.strip() in _LISTS and place + 1 < len(lines) and set(lines[place + 1].strip()) == {"-"}:
            listed = True
        elif listed and (match := _ENTRY.match(line)):
            indent, names, said = match.groups()
            found += [f"{indent}{names}", f"{indent}    {said}"]
            continue
        found.append(line)
    lines[:] = found


def make_accessible(page: str) -> str:
    """A page whose captions have a level, whose boxes scroll by keyboard, whose lists of parameters are lists."""
    page = page.replace('role="heading"', 'role="heading" aria-level="2"')
    page = page.replace("<pre>", '<pre tabindex="0">')
    page = page.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')
    page = page.replace('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="All pages">')
    page = page.replace('<aside class="toc-drawer', '<aside aria-label="On this page" class="toc-drawer')
    return _PARAMETERS.sub(lambda found: f'<ul class="parameters">\n{_ITEM.sub("li>", found[1])}</ul>', page)


def finish_pages(app: Any, error: Exception | None) -> None:
    """What the theme leaves out of the pages."""
    for path in Path(app.outdir).rglob("*.html"):
        path.write_text(make_accessible(path.read_text("utf-8")), encoding="utf-8")


def setup(app: Any) -> None:
    write_pages(Path(app.srcdir))
    write_notebooks(Path(app.srcdir), NOTEBOOKS)
    app.connect("autodoc-process-docstring", place_descriptions, priority=400)
    app.connect("build-finished", finish_pages)
