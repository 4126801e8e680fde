"""Pages as notebooks: what is a block, and when a page shows something else than came out."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from reporting.page_notebooks import NotebookPage, differences, printed_by, problems_of, read_page, renewed, same_line

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for folder in ("tutorials", "how-to") for path in (ROOT / "docs" / folder).glob("*.md"))
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")

# Blocks that cannot run in a test, with the reason that stands in the page. As few as possible.
NOT_RUN = {
    ("withdrawals.md", "needs a party's kit"): 3,
    ("operations.md", "needs a party's kit"): 1,
    ("deployment.md", "needs the coordinator's machine; tutorials/one-machine.md runs the same on one"): 2,
    ("approve-a-study.md", "needs a study between organisations"): 2,
    ("approve-a-study.md", "asks for a passphrase"): 1,
    ("change-parties.md", "needs kits that are in use"): 1,
    ("change-parties.md", "needs a party that is asked"): 1,
    ("cluster.md", "needs a cluster; tests/cluster runs the same on one machine"): 2,
    ("cluster.md", "needs a cluster and a kit; tests/cluster runs the same on one machine"): 1,
    ("console.md", "it serves pages until it is stopped"): 1,
    ("console.md", "needs a party's kit"): 1,
    ("data-sources.md", "needs a server; tests/databases runs the same against PostgreSQL and MariaDB"): 1,
    ("data-sources.md", "the digest and the study's name are new each time; this is what one run printed"): 1,
    ("data-sources.md", "the study's name is new each time; this is what one run printed"): 1,
    ("operations.md", "needs a container engine"): 1,
    ("operations.md", "needs root and systemd"): 1,
}

TEXT = """# A page

<!-- setup
mkdir here
-->
Words.

```console
$ echo one \\
> two
one two
```

<!-- numbers vary -->
```python
print(0.5)
```
```text
0.5
```

<!-- file: study.toml -->
```toml
name = "study"
```

<!-- not run: needs a second machine -->
```console
$ verticopula serve kits/server
```

```toml
name = "only to be read"
```
"""


@pytest.fixture
def page(tmp_path: Path) -> NotebookPage:
    path = tmp_path / "page.md"
    path.write_text(TEXT, encoding="utf-8")
    return read_page(path)


def test_blocks_are_found_with_what_they_show(page: NotebookPage) -> None:
    setup, console, python, file, far = page.blocks
    assert (setup.kind, setup.code, setup.shown) == ("setup", "mkdir here", None)
    assert (console.kind, console.code, console.shown) == (
        "console",
        "echo one \\\ntwo",
        ["one two"],
    )
    assert (python.kind, python.code, python.shown, python.numbers_vary) == ("python", "print(0.5)", ["0.5"], True)
    assert (file.source, file.shown) == ('%%writefile study.toml\nname = "study"', None)
    assert far.not_run == "needs a second machine"
    assert page.run == [setup, console, python, file]


def test_a_block_may_end_with_an_error(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("<!-- ends with an error -->\n```console\n$ false\n```\n", encoding="utf-8")
    (block,) = read_page(path).blocks
    assert block.source == "%%bash --no-raise-error\nfalse"


def test_lines_are_the_same_words_with_numbers_that_are_close() -> None:
    assert same_line("mean 0.521, of 442 people", "mean  0.522, of 442 people")
    assert not same_line("mean 0.521, of 442 people", "mean 0.541, of 442 people")
    assert not same_line("442 people", "443 people")
    assert same_line("442 people", "17 people", numbers_vary=True)
    assert not same_line("442 people", "442 persons", numbers_vary=True)
    assert same_line("-1.02e-06", "-1.01e-06")
    assert not same_line("coefficient -2.4", "coefficient 2.4")
    assert same_line("┃ ──── 1.50 ┃", "┃ ─────── 1.51 ┃")


def test_an_ellipsis_stands_for_lines_and_nothing_else_does() -> None:
    printed = ["first", "", "second", "third"]
    assert differences(["first", "second", "third"], printed) == []
    assert differences(["…", "second", "…"], printed) == []
    assert differences(["first", "second"], printed) == ["1 more lines: third"]
    assert differences(["first", "third"], printed) == ["third"]
    assert differences(["…", "third", "second"], printed) == ["second"]
    assert differences(["…", "fourth", "…"], printed) == ["fourth"]


def test_problems_name_the_block_and_renewing_mends_it(page: NotebookPage) -> None:
    _, console, python, file, _ = page.blocks
    ran = [(console, ["one three"]), (python, ["0.75"]), (file, ["Writing study.toml"])]
    (problem,) = problems_of(ran)
    assert "echo one" in problem
    assert "one three" in problem
    page.path.write_text(renewed(page, ran), encoding="utf-8")
    again = read_page(page.path)
    assert [block.shown for block in again.blocks] == [None, ["one three"], ["0.75"], None, None]
    assert page.path.read_text("utf-8") == TEXT.replace("one two\n```", "one three\n```").replace("\n0.5\n", "\n0.75\n")


def test_only_chosen_lines_are_renewed_where_others_are_left_out(page: NotebookPage) -> None:
    console = page.blocks[1]
    console.shown = ["…", "mean 1.5", "…"]
    assert "…\nmean 2.5\n…\n" in renewed(page, [(console, ["other", "mean 2.5", "more"])])


def test_output_comes_in_pieces_in_colours_and_with_warnings_beside_it() -> None:
    def stream(name: str, text: str) -> SimpleNamespace:
        return SimpleNamespace(output_type="stream", name=name, text=text)

    shown = SimpleNamespace(output_type="execute_result", data={"text/plain": "3"})
    outputs = [
        stream("stdout", "a lo"),
        stream("stdout", "ng \x1b[31mline\x1b[0m\n"),
        stream("stderr", "warning\n"),
        shown,
    ]
    gone = SimpleNamespace(output_type="display_data", data={"text/html": "", "text/plain": ""})
    assert printed_by(SimpleNamespace(source="f()", outputs=[gone, *outputs])) == ["a long line", "3"]
    assert printed_by(SimpleNamespace(source="%%bash\nf", outputs=outputs)) == ["a long line", "warning", "3"]


@EVERY_PAGE
def test_every_block_says_what_it_is_and_every_command_is_in_one_that_runs(page: Path) -> None:
    text = page.read_text("utf-8")
    fences = re.findall(r"(?m)^```(\w*)", text)
    assert set(fences[::2]) <= {"console", "python", "sql", "text", "toml"}
    assert set(fences[1::2]) <= {""}
    shown = [block for block in re.findall(r"(?ms)^```(?:text|toml)\n(.*?)^```", text) if re.search(r"(?m)^\$ ", block)]
    assert shown == []
    assert all(block.code for block in read_page(page).blocks)
    if page.parent.name == "tutorials":  # a notebook has nothing that a page hides
        assert "<!-- setup" not in text
        assert read_page(page).run


def test_blocks_that_do_not_run_are_few_and_say_why() -> None:
    found = Counter((page.name, block.not_run) for page in PAGES for block in read_page(page).blocks if block.not_run)
    assert found == NOT_RUN
