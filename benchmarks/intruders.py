"""The intruder table: every attack of `tests/network` carried out by pytest, with the line its victim wrote down."""

from __future__ import annotations

from argparse import Namespace

from benchmarks.tested import run_tests
from reporting.catalogue import Measured, Places
from reporting.pages import markdown_page
from reporting.records import Record, write_text
from reporting.tables import Table

HEADER = ("attack", "against whom", "refused by what", "who must be honest", "what the victim wrote down")
VICTIMS = ("the coordinator", "a party", "who computes", "the study lead")
_INTRODUCTION = """
Every row was carried out by `python -m benchmarks intruders`, from the table that `make test-network` asserts. Victims
are real processes on loopback. Where the attack is about budgets over many studies, they are members in one process.
A row is here only if the attack was refused, the victim wrote the line in the last column to its kit's `log.txt` (the
lead: to its terminal), and went on working. Where code could have come along, a canary that unpickling would have
woken stayed silent.

Whoever is not named as honest may work together: for "this party alone" the
coordinator and all other parties do, each with its real certificate. Where a party is the victim, no ledger changed,
except where two public keys were shown: shares are paid for when they are made, and these could not be added up.
"""


def run(options: Namespace) -> Measured:
    """Carry out the table; RuntimeError if an attack is not refused and logged."""
    short, whole = "tests/network/test_intruders_short.py", "tests/network/test_intruders.py::test_refused_and_logged"
    rows = sorted(run_tests(short if options.quick else whole), key=lambda row: VICTIMS.index(row["against whom"]))
    return {"parties": 3}, {"attacks": len(rows), "refused": len(rows), "rows": rows}


def present(record: Record, places: Places) -> list[Table]:
    """The page `intruders.md`, and its table."""
    found = record.results
    rows = [(*(row[name] for name in HEADER[:-1]), f"`{row[HEADER[-1]]}`") for row in found["rows"]]
    table = Table("Intruders", HEADER, rows)
    count = f"{found['attacks']} attacks, {found['refused']} refused."
    write_text(places.pages / "intruders.md", markdown_page("Intruders", [_INTRODUCTION, count, table.to_markdown()]))
    return [table]
