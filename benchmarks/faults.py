"""What happens when processes die: every party and the coordinator, in every round of every protocol.

The table is `tests/network/fault_table.py`, run by pytest.

One coordinator and three parties as real processes with mutual TLS. A study suffers the same fault of the same process
in every one of its rounds. Noise is secure, so a release that was made twice would show: tables are compared with those
that an undisturbed run makes of the releases in the parties' vaults, byte for byte.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.tested import run_tests
from reporting.catalogue import Measured, Places
from reporting.records import Record, write_text
from reporting.tables import Table
from verticopula.schema.methods import METHODS, RAW_REGRESSION

PARTS = (*METHODS, RAW_REGRESSION)
SERVER = "server"
TEST = "tests/network/test_faults.py::test_every_process_in_every_round"
FAULT_NAMES = {"kill": "SIGKILL", "stop": "SIGSTOP beyond the deadline", "restart": "SIGTERM"}
_HEADER = (
    "method",
    "round",
    "who",
    "fault",
    "point",
    "cases",
    "outcome",
    "until it went on, longest",
    "budget",
    "tables",
)


def _table(rows: Sequence[Mapping[str, Any]], methods: Sequence[str]) -> Table:
    """Parties that fared alike share a line."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        who = "coordinator" if row["who"] == SERVER else "a party"
        groups.setdefault((row["method"], row["round"], who, FAULT_NAMES[row["fault"]], row["point"]), []).append(row)
    order = {method: number for number, method in enumerate(methods)}
    lines = []
    for key in sorted(groups, key=lambda k: (order[k[0]], k[2], k[3])):
        group = groups[key]
        entries = sorted({row["entries"] for row in group})
        right, same = all(row["budget_right"] for row in group), all(row["tables_identical"] for row in group)
        budget = f"{', '.join(map(str, entries))} entries, {'as undisturbed' if right else 'WRONG'}"
        outcome = " / ".join(sorted({row["outcome"] for row in group}))
        longest = f"{max(row['seconds'] for row in group):.1f} s"
        lines.append((*key, str(len(group)), outcome, longest, budget, "identical" if same else "OTHER"))
    return Table("Faults", _HEADER, tuple(lines))


def _summary(rows: Sequence[Mapping[str, Any]]) -> Table:
    lines = []
    for who in ("coordinator", "a party"):
        for kind, name in FAULT_NAMES.items():
            group = [r for r in rows if r["fault"] == kind and (r["who"] == SERVER) == (who == "coordinator")]
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
    return Table("Summary", header, tuple(lines))


def run(options: Namespace) -> Measured:
    """The methods that are named, or all of them; the others' rows are kept. Quick: one method."""
    found = dict(options.kept.results.get("by_method", {}))
    for method in PARTS[:1] if options.quick else options.parts:
        start = time.monotonic()
        (story,) = run_tests(f"{TEST}[{method}]")
        found[method] = {"seconds": round(time.monotonic() - start, 1), **story}
    found = {method: found[method] for method in PARTS if method in found}
    results = {
        "studies": sum(one["studies"] for one in found.values()),
        "cases": sum(one["cases"] for one in found.values()),
        "seconds": round(sum(one["seconds"] for one in found.values()), 1),
        "resumed": sum(one["resumed"] for one in found.values()),
        "sent_again": sum(one["sent_again"] for one in found.values()),
        "named_after_longest": max(one["named_after_longest"] for one in found.values()),
        "problems": sorted({problem for one in found.values() for problem in one["problems"]}),
        "by_method": found,
    }
    deadlines = {one["stop_deadline"] for one in found.values()}
    return {"methods": list(found), "stop_deadline": max(deadlines)}, results


def present(record: Record, places: Places) -> list[Table]:
    """The page `faults.md`, and its tables."""
    rows = [row for one in record.results["by_method"].values() for row in one["rows"]]
    summary, table = _summary(rows), _table(rows, record.settings["methods"])
    write_text(places.pages / "faults.md", _page(record, summary, table))
    return [summary, table]


def _page(record: Record, summary: Table, table: Table) -> str:
    found, deadline = record.results, record.settings["stop_deadline"]
    return f"""# Faults

Written by `python -m benchmarks faults`; every case is in `benchmarks/results/faults.json`. Real processes on one
machine: a coordinator and three parties, mutual TLS. {found["studies"]} studies with secure noise suffered
{found["cases"]} faults. A process is killed (SIGKILL) and started again; or stopped (SIGSTOP) for longer than the
round's deadline, after which the failed study is resumed; or ended (SIGTERM) and started again. That deadline is ten
times the longest round of an undisturbed study, and {deadline:g} s at least. A study suffers the same fault in each of
its rounds, or at each step of one release; a regression in its first, a middle and its last update.

When a fault happens before everybody has agreed, every ledger is what it was before the study, byte for byte.
After every study: each ledger holds the entries of an undisturbed study, no more and no less, and held them before
anything left; a release that was sent twice was the same bytes; the tables are, byte for byte, those that an
undisturbed run makes of the releases in the vaults (a regression: fitted from its start). A party that was stopped was
named {found["named_after_longest"]:.1f} s after it stopped at the latest; studies were resumed
{found["resumed"]} times, and {found["sent_again"]} answers sent more than once.
{_list_problems(found["problems"])}

{summary.to_markdown()}

Times include starting the process again (a forked one, in a tenth of a second) and F3's pause before it connects again,
held at its first value, 1 s; left alone it doubles up to 10 s.

**Points**, in order. A party: *asked*; *unrecorded*: about to write its ledger; *half recorded*: in the middle of a
line; *recorded uncounted*: the ledger is written, the vault's head is not; *recorded*: nothing is drawn yet; *drawn*:
nothing is stored yet (a regression: the solver has moved; consent and agreement: no record is written); *half stored*;
*stored uncounted*; *stored*; *answered*: not sent yet; *sent*. The coordinator: *asking*: nobody is asked yet; *asked*;
*answered*: all answers are here, the journal has none; *half kept*: in the middle of the journal's record; *kept*; and
of the result *half written*, *renamed* (the study is still "running" on disk), *done*.

{table.to_markdown()}
"""


def _list_problems(problems: Sequence[str]) -> str:
    if not problems:
        return "Nothing was lost, nothing spent twice, in any of them."
    return "\n".join(["What went wrong:\n", *(f"- {problem}" for problem in problems)])
