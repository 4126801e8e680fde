"""Pages of the documentation as notebooks: run, compared with what the page shows, written for the site.

A page is the only source. Of its fenced blocks

- `console` runs the lines that begin with `$ ` (and `> ` for a command that goes on), in bash; the others are output;
- `python` runs; a block `text` right behind it is its output;
- `toml` and others are shown, and written to a file where `<!-- file: NAME -->` stands before them.

A line `…` in an output stands for any number of lines. Remarks before a block, which no reader sees:

- `<!-- numbers vary -->`: the output has estimates from noise without a seed, so any number will do;
- `<!-- ends with an error -->`: its last command fails, as the page says;
- `<!-- not run: WHY -->`: it cannot run here;
- `<!-- setup` or `<!-- setup python`, lines, `-->`: what runs where the remark stands, and is not shown.

    python -m reporting.page_notebooks check docs/tutorials/first-study.md    # 1 where the page shows something else
    python -m reporting.page_notebooks write docs/tutorials/first-study.md    # puts what came out into the page
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verticopula.network.network_demo import free_port

ROOT = Path(__file__).resolve().parents[1]
RELATIVE = 0.02  # how far seeded estimates may be off: other versions of numpy and BLAS round otherwise
SECONDS = 900  # for one block
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
_REMARK = re.compile(r"<!--(.*?)-->\n?", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])[-−]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")


@dataclass
class Block:
    """Something that runs, and what the page says comes out.

    Attributes
    ----------
    kind : `console`, `python`, `file` or `setup`
    code : what runs; the content, for a file
    shown : output as the page has it; None where it has none
    span : where in the page the output stands, to be replaced
    name : of the file
    """

    kind: str
    code: str
    at: int
    shown: list[str] | None = None
    span: tuple[int, int] = (0, 0)
    numbers_vary: bool = False
    not_run: str = ""
    name: str = ""
    fails: bool = False

    @property
    def source(self) -> str:
        """The code as a notebook's cell."""
        if self.kind == "file":
            return f"%%writefile {self.name}\n{self.code}"
        return self.code if self.kind == "python" else f"%%bash{' --no-raise-error' if self.fails else ''}\n{self.code}"


@dataclass
class NotebookPage:
    """A page, cut into prose and blocks."""

    path: Path
    text: str
    blocks: list[Block] = field(default_factory=list)
    prose: list[tuple[int, str]] = field(default_factory=list)

    @property
    def run(self) -> list[Block]:
        """The blocks that run."""
        return [block for block in self.blocks if not block.not_run]


def read_page(path: Path) -> NotebookPage:
    """A page's blocks, in order."""
    text = path.read_text("utf-8")
    page, past = NotebookPage(path, text), 0
    for match in _FENCE.finditer(text):
        said, begin = text[past : match.start()], past
        remarks = [(begin + found.start(), found[1].strip()) for found in _REMARK.finditer(said)]
        for at, remark in remarks:
            language, _, code = remark.partition("\n")
            if language in ("setup", "setup python"):
                page.blocks.append(Block("python" if "python" in language else "setup", code, at))
        last = page.blocks[-1] if page.blocks else None
        is_output = match[1] == "text" and not _REMARK.sub("", said).strip() and past > 0 and last is not None
        if is_output and last is not None and last.kind == "python" and last.shown is None:
            last.shown, last.span = match[2].splitlines(), match.span(2)
            last.numbers_vary |= any(remark == "numbers vary" for _, remark in remarks)
            page.prose.append((begin, said))
            past = match.end()
            continue
        page.prose.append((begin, said))
        block = _block_of(match, dict(_said(remark) for _, remark in remarks))
        if block is not None:
            page.blocks.append(block)
        else:
            page.prose.append((match.start(), match[0]))
        past = match.end()
    page.prose.append((past, text[past:]))
    return page


def _said(remark: str) -> tuple[str, str]:
    name, _, value = remark.partition(":")
    return name.strip(), value.strip()


def _block_of(match: re.Match[str], said: dict[str, str]) -> Block | None:
    """What a fenced block runs; None where it is only to be read."""
    language, body, at = match[1], match[2], match.start()
    common: dict[str, Any] = {"numbers_vary": "numbers vary" in said, "not_run": said.get("not run", "")}
    if language == "console":
        lines = body.splitlines()
        commands = [line[2:] for line in lines if line.startswith(("$ ", "> "))]
        shown = [line for line in lines if not line.startswith(("$ ", "> "))]
        spans = [(found.start(), found.end()) for found in re.finditer(r"^(?![$>] ).*\n", body, re.MULTILINE)]
        begin = match.start(2)
        span = (begin + spans[0][0], begin + spans[-1][1]) if spans else (match.end(2), match.end(2))
        fails = "ends with an error" in said
        return Block("console", "\n".join(commands), at, shown or None, span, fails=fails, **common)
    if language == "python":
        return Block("python", body.rstrip("\n"), at, **common)
    if "file" in said:
        return Block("file", body.rstrip("\n"), at, name=said["file"], **common)
    return None


# ---- comparing


def differences(shown: Sequence[str], printed: Sequence[str], *, numbers_vary: bool = False) -> list[str]:
    """The shown lines that were not printed, each after the one before it; a line `…` stands for any others."""
    printed = [line for line in printed if line.strip()]
    wrong, at, free = [], 0, False
    for line in filter(str.strip, shown):
        if line.strip() == "…":
            free = True
            continue
        reach = len(printed) if free else min(at + 1, len(printed))
        found = next((i for i in range(at, reach) if same_line(line, printed[i], numbers_vary=numbers_vary)), None)
        if found is None:
            wrong.append(line)
            free = True  # what comes after may still be right
        else:
            at, free = found + 1, False
    return wrong if wrong or free or at == len(printed) else [f"{len(printed) - at} more lines: {printed[at]}"]


def same_line(shown: str, printed: str, *, numbers_vary: bool = False) -> bool:
    """Whether the words are the same and the numbers close: whole ones equal, others within rounding or 2 %."""
    if _words(shown) != _words(printed):
        return False
    pairs = zip(_NUMBER.findall(shown), _NUMBER.findall(printed), strict=True)
    return numbers_vary or all(_close(one, other) for one, other in pairs)


def _words(line: str) -> list[str]:
    """A line with every number as #; rules and blanks are as long as the numbers beside them."""
    return re.sub(r"[─━═-]{3,}", "─", _NUMBER.sub("#", line)).split()


def _close(one: str, other: str) -> bool:
    if one == other:
        return True
    if not set(".eE") & set(one + other):
        return False
    first, second = (float(text.replace(",", "").replace("−", "-")) for text in (one, other))
    digits = one.split("e")[0].split("E")[0].partition(".")[2]
    last = 10.0 ** -len(digits) if "e" not in one.lower() else 0.0
    return abs(first - second) <= max(RELATIVE * max(abs(first), abs(second)), 1.01 * last)


# ---- running


def to_notebook(page: NotebookPage, *, quiet: bool = False) -> Any:
    """The page as a notebook, with the outputs that it shows unless `quiet`."""
    from nbformat import v4

    parts: list[tuple[int, Any]] = []
    for at, said in page.prose:
        text = _LINK.sub(r"\1", _REMARK.sub("", said)).strip()
        if text:
            parts.append((at, v4.new_markdown_cell(text, id=f"text-{at}")))
    for number, block in enumerate(page.run):
        cell = v4.new_code_cell(block.source, id=f"code-{number}", metadata={"block": number})
        if block.shown and not quiet:
            cell.outputs = [v4.new_output("stream", name="stdout", text="\n".join(block.shown) + "\n")]
        parts.append((block.at, cell))
    parts.sort(key=lambda part: part[0])
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return v4.new_notebook(cells=[cell for _, cell in parts], metadata=kernel)


def run_page(page: NotebookPage, folder: Path) -> list[tuple[Block, list[str]]]:
    """What every block printed, as a notebook in that folder; its error, where one fails."""
    from nbclient import NotebookClient

    start = folder.parent / f"{folder.name}.bashrc"
    start.write_text("set -e\nexec 2>&1\n", encoding="utf-8")  # errors stand where they happened
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    modules = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    own = {"PATH": paths, "PYTHONPATH": modules, "BASH_ENV": str(start), "XDG_DATA_HOME": str(folder.parent / "home")}
    os.environ.update({**own, "PORT": str(free_port())})  # a kernel has its parent's
    notebook = to_notebook(page, quiet=True)
    client = NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": folder}})
    with client.setup_kernel():
        group = client.km.provisioner.pid
        for index, cell in enumerate(notebook.cells):
            client.execute_cell(cell, index)
    with contextlib.suppress(ProcessLookupError):  # whatever a page started and did not stop
        os.killpg(group, signal.SIGTERM)
    cells = {cell.metadata["block"]: cell for cell in notebook.cells if cell.cell_type == "code"}
    return [(block, printed_by(cells[number])) for number, block in enumerate(page.run)]


def printed_by(cell: Any) -> list[str]:
    """The lines that a cell printed, warnings left out, then what it shows."""
    found = ""
    for output in cell.outputs:
        if output.output_type == "stream" and (output.name == "stdout" or cell.source.startswith("%%")):
            found += output.text  # a long line may come in pieces
        elif output.output_type in ("execute_result", "display_data"):
            said = output.data.get("text/plain", "")
            found += f"{said}\n" if said else ""  # a bar that has gone
    return [line.rstrip() for line in _COLOUR.sub("", found).splitlines()]


def problems_of(ran: Sequence[tuple[Block, list[str]]]) -> list[str]:
    """What a page shows that did not come out, in words."""
    wrong = []
    for block, printed in ran:
        missed = differences(block.shown, printed, numbers_vary=block.numbers_vary) if block.shown else []
        if missed:
            told = ["shown, but not printed:", *missed, "printed:", *printed]
            wrong.append("\n    ".join([block.code.splitlines()[0], *told]))
    return wrong


def renewed(page: NotebookPage, ran: Sequence[tuple[Block, list[str]]]) -> str:
    """The page with what came out. Lines are found again by their words; an output `?` is put in whole."""
    text = page.text
    for block, printed in sorted(ran, key=lambda one: -one[0].span[0]):
        if not block.shown:
            continue
        lines = printed if block.shown == ["?"] else _found_again(block.shown, printed)
        begin, end = block.span
        text = text[:begin] + "".join(f"{line}\n" for line in lines) + text[end:]
    return text


def _found_again(shown: Sequence[str], printed: Sequence[str]) -> list[str]:
    if "…" not in [line.strip() for line in shown]:
        return list(printed)
    found, at = [], 0
    for line in shown:
        place = next((i for i in range(at, len(printed)) if _words(line) == _words(printed[i])), None)
        if place is None:
            found.append(line)  # `…`, or a line that a person must look at: `check` names it
        else:
            found.append(printed[place])
            at = place + 1
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Check pages, write what came out into them, or write notebooks; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m reporting.page_notebooks", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("check", "write", "print"))
    parser.add_argument("pages", nargs="+", type=Path)
    given = parser.parse_args(argv)
    status = 0
    for path in given.pages:
        page = read_page(path)
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "page"
            place.mkdir()
            ran = run_page(page, place)
        if given.what == "write":
            path.write_text(renewed(page, ran), encoding="utf-8")
        elif given.what == "print":
            for block, printed in ran:
                print(f"\n>>> {block.code}", *printed, sep="\n")
        for problem in problems_of(ran) if given.what == "check" else ():
            print(f"{path}: {problem}\n")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
