"""The intruder table: every attack of tests/network/intruders.py carried out, with the line its victim wrote down."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from benchmarks.record import Places, Report, Table
from tests.network.intruders import Where, in_scene, scene_of

HEADER = ("attack", "against whom", "refused by what", "what the victim wrote down")
SCENES: tuple[Where, ...] = ("coordinator", "party", "lead")
_VICTIMS = {"server": "the coordinator", "lead": "the study lead"}

_INTRODUCTION = """# Intruders

Every row was carried out against real processes on loopback by `python -m benchmarks intruders`, from the table that
`make test-network` asserts. A row is here only if the attack was refused, the victim wrote the line in the last column
to its kit's `log.txt` (the lead: to its terminal), and went on working. Where code could have come along, a canary that
unpickling would have woken stayed silent.

"""


def run(places: Places, *, quick: bool) -> Report:
    """Carry out the table; AssertionError at the first attack that is not refused and logged."""
    logging.getLogger("nvflare").setLevel(logging.CRITICAL)  # the intruder's own side
    logging.getLogger("verticopula").setLevel(logging.CRITICAL)
    rows: list[tuple[str, str, str, str]] = []
    with tempfile.TemporaryDirectory() as scratch:
        for where in SCENES:
            if quick and where == "lead":
                continue
            folder = Path(scratch) / where
            folder.mkdir()
            with scene_of(where, folder, quick=quick) as scene:
                for row in in_scene(where, quick=quick):
                    line = row.carry_out(scene)
                    victim = _VICTIMS.get(row.against, "a party")
                    rows.append((row.name, victim, row.refused_by, f"`{line.replace('|', '/').replace('`', chr(39))}`"))
    table = Table("Intruders", HEADER, tuple(rows))
    page = f"{_INTRODUCTION}{len(rows)} attacks, {len(rows)} refused.\n\n{table.to_markdown()}\n"
    (places.pages / "intruders.md").write_text(page, encoding="utf-8")
    results = [dict(zip(HEADER, (*row[:3], row[3].strip("`")), strict=True)) for row in rows]
    return Report("intruders", {"parties": 3}, {"attacks": len(rows), "refused": len(rows), "rows": results}, [table])
