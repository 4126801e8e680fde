"""What happens when processes die: every party and the coordinator, in every round of every protocol.

The table is `tests/network/fault_table.py`, run by pytest. `tests/network/consent_faults.py` is its part `stewards`,
every test with the mark `fault_row` a row of its part `others`.

One coordinator and three parties as real processes with mutual TLS. A study suffers the same fault of the same process
in every one of its rounds. Noise is secure, so a release that was made twice would show: tables are compared with those
that an undisturbed run makes of the releases in the parties' vaults, byte for byte.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from benchmarks.tested import run_tests
from reporting.catalogue import Measured, Places
from reporting.records import Record, write_text
from reporting.tables import Table
from verticopula.schema.methods import METHODS, RAW_REGRESSION

STEWARDS, OTHERS = "stewards", "others"
PARTS = (*METHODS, RAW_REGRESSION, STEWARDS, OTHERS)
FILE = "tests/network/test_faults.py"
TESTS = {part: (f"{FILE}::test_every_process_in_every_round[{part}]",) for part in PARTS} | {
    STEWARDS: (f"{FILE}::test_consent_of_a_steward_killed_at_every_step",),
    OTHERS: ("-m", "fault_row", "tests/network", "tests/databases"),
}
WHO = {"server": "coordinator", "steward": "a steward's command"}  # everybody else is a party
FAULT_NAMES = {"kill": "SIGKILL", "stop": "SIGSTOP beyond the deadline", "restart": "SIGTERM"}
_HEADER = ("round", "fault", "point", "cases, and the longest until it went on", "outcome, ledger, tables")


def _table(rows: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> Table:
    """Parties that fared alike share a line."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        who = WHO.get(row["who"], "a party")
        groups.setdefault((row["method"], row["round"], who, FAULT_NAMES[row["fault"]], row["point"]), []).append(row)
    order = {method: number for number, method in enumerate(methods)}
    lines = []
    for key in sorted(groups, key=lambda k: (order[k[0]], k[2], k[3])):
        group = groups[key]
        entries = sorted({row["entries"] for row in group})
        right, same = all(row["budget_right"] for row in group), all(row["tables_identical"] for row in group)
        budget = f"{', '.join(map(str, entries))} entries {'as undisturbed' if right else 'WRONG'}"
        outcome = " / ".join(sorted({row["outcome"] for row in group}))
        longest = f"{max(row['seconds'] for row in group):.1f} s"
        method, asked, who, fault, point = key
        ended = f"{outcome}; {budget}; {'identical' if same else 'OTHER'}"
        lines.append((f"{method}, {asked}", f"{who}, {fault}", point, f"{len(group)}, {longest}", ended))
    return Table("Faults", _HEADER, tuple(lines))


def _summary(rows: Sequence[Mapping[str, Any]]) -> Table:
    lines = []
    for who in (*WHO.values(), "a party"):
        for kind, name in FAULT_NAMES.items():
            group = [r for r in rows if r["fault"] == kind and WHO.get(r["who"], "a party") == who]
            if not group:
                continue
            seconds = sorted(row["seconds"] for row in group)
            lines.append(
                (
                    who,
                    name,
                    str(len(group)),
                    str(sum(row["budget_right"] for row in group)),
                    str(sum(row["tables_identical"] for row in group)),
                    f"{seconds[len(seconds) // 2]:.1f} s, {seconds[-1]:.1f} s",
                )
            )
    header = ("who", "fault", "cases", "budget as undisturbed", "tables identical", "until it went on: median, longest")
    return Table("Summary", header, tuple(lines), heads=2)


def run(options: Namespace) -> Measured:
    """The parts that are named, or all of them; the others' rows are kept. Quick: one method."""
    found = dict(options.kept.results.get("by_method", {}))
    others = options.kept.results.get(OTHERS, [])
    for part in PARTS[:1] if options.quick else options.parts:
        start = time.monotonic()
        stories = run_tests(*TESTS[part])
        if part == OTHERS:
            others = stories
        else:
            ended = datetime.now(UTC).isoformat(timespec="minutes")
            found[part] = {"date": ended, "seconds": round(time.monotonic() - start, 1), **stories[0]}
    found = {part: found[part] for part in PARTS if part in found}
    results = {
        "studies": sum(one["studies"] for one in found.values()),
        "cases": sum(one["cases"] for one in found.values()),
        "seconds": round(sum(one["seconds"] for one in found.values()), 1),
        "resumed": sum(one["resumed"] for one in found.values()),
        "sent_again": sum(one["sent_again"] for one in found.values()),
        "named_after_longest": max(one["named_after_longest"] for one in found.values()),
        "problems": sorted({problem for one in found.values() for problem in one["problems"]}),
        "by_method": found,
        OTHERS: others,
    }
    deadlines = {one["stop_deadline"] for one in found.values()}
    return {"methods": list(found), "stop_deadline": max(deadlines)}, results


def present(record: Record, places: Places) -> list[Table]:
    """The page `faults.md`, and its tables."""
    rows = [row for one in record.results["by_method"].values() for row in one["rows"]]
    summary, table = _summary(rows), _table(rows, record.settings["methods"])
    others = Table(
        "Other faults",
        ("fault", "how it ended"),
        [(row["fault"], row["ended"]) for row in record.results.get(OTHERS, ())],
    )
    write_text(places.pages / "faults.md", _page(record, summary, table, others))
    return [summary, others, table]


def _page(record: Record, summary: Table, table: Table, others: Table) -> str:
    found, deadline = record.results, record.settings["stop_deadline"]
    return f"""# Faults

Written by `python -m benchmarks faults`; every case is in `benchmarks/results/faults.json`. Real processes on one
machine: a coordinator and three parties, mutual TLS. {found["studies"]} studies with secure noise suffered
{found["cases"]} faults. {_list_dates(found["by_method"])}

{_list_problems(found["problems"])}

{summary.to_markdown()}

## What is done
A process suffers one of three faults:

- It is killed (SIGKILL) and started again.
- It is stopped (SIGSTOP) for longer than the round's deadline, and the failed study is resumed. That deadline is ten
  times the longest round of an undisturbed study, and {deadline:g} s at least.
- It is ended (SIGTERM) and started again.

A study suffers the same fault in each of its rounds, or at each step of one release.

In the part `stewards` the steward of one party is asked about everything, and answers by `verticopula approve` once the
coordinator has set the study aside. The party, the coordinator and that command are killed at every step between the
question and the yes. Nobody was asked twice.

## What is checked
When a fault happens before everybody has agreed, every ledger is what it was before the study, byte for byte. After
every study:

- Each ledger holds the entries of an undisturbed study, no more and no less, and held them before anything left.
- A release that was sent twice was the same bytes.
- The tables are, byte for byte, those that an undisturbed run makes of the releases in the vaults. A regression is
  fitted from its start.

A party that was stopped was named {found["named_after_longest"]:.1f} s after it stopped at the latest. Studies were
resumed {found["resumed"]} times, and {found["sent_again"]} answers sent more than once.

Times include starting the process again (a forked one, in a tenth of a second). They also include F3's pause before it
connects again, held at its first value, 1 s; left alone it doubles up to 10 s.

## Points of a round
| who | point | what has happened |
|---|---|---|
| a party | asked | the request is there |
| a party | unrecorded | it is about to write its ledger |
| a party | half recorded | it is in the middle of a line |
| a party | recorded uncounted | the ledger is written, the vault's head is not |
| a party | recorded | nothing is drawn yet |
| a party | drawn | nothing is stored yet; a regression: the solver has moved; consent: no record is written |
| a party | half stored, stored uncounted, stored | as the names say |
| a party | answered, sent | not sent yet; sent |
| a party | question unstored, half stored, stored, told | of the question to its stewards; told: to the coordinator |
| a party | decision seen, told | the steward has decided; the coordinator is to send its request again |
| a party | yes unused, half used, used | of the request store, before the party consents |
| a steward's command | undecided, half decided, decided | of the request store |
| the coordinator | question heard, kept | it is about to write that the study waits; it has |
| the coordinator | decision heard | it is about to take the study up again |
| the coordinator | asking, asked | nobody is asked yet; all are |
| the coordinator | answered | all answers are here, the journal has none |
| the coordinator | half kept, kept | in the middle of the journal's record; after it |
| the coordinator | half written, renamed, done | of the result; at *renamed* the study is still "running" on disk |

{_list_others(others)}
## All cases
{table.to_markdown()}
"""


def _list_others(others: Table) -> str:
    if not others.rows:
        return ""
    words = 'Each row is a test that passed. "As undisturbed" and "identical" are checked as above.'
    return f"## Other faults\n{words}\n\n{others.to_markdown()}\n"


def _list_dates(parts: Mapping[str, Mapping[str, Any]]) -> str:
    """When each part was measured: a part that is named alone leaves the others as they were."""
    days: dict[str, list[str]] = {}
    for part, one in parts.items():
        days.setdefault(one["date"], []).append(part)
    return "Measured: " + "; ".join(f"{', '.join(days[day])} until {day}" for day in sorted(days)) + "."


def _list_problems(problems: Sequence[str]) -> str:
    if not problems:
        return "Nothing was lost, nothing spent twice, in any of them."
    return "\n".join(["What went wrong:\n", *(f"- {problem}" for problem in problems)])
