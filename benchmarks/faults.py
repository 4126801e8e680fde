"""What happens when processes die: every party and the coordinator, in every round of every protocol.

One coordinator and three parties as real processes with mutual TLS. A study suffers the same fault of the same process
in every one of its rounds. Noise is secure, so a release that was made twice would show: tables are compared with those
that an undisturbed run makes of the releases in the parties' vaults, byte for byte.
"""

from __future__ import annotations

import logging
import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import Places, Report, Table
from tests.network.faults import (
    DESIGN_POINTS,
    METHODS,
    RELEASE_POINTS,
    RESULT_POINTS,
    SERVER,
    SERVER_POINTS,
    SHARE_POINTS,
    STEP_POINTS,
    STOP_DEADLINE,
    Fault,
    Kind,
    Story,
    ward,
)
from tests.network.harness import PARTIES

PAGE = "faults.md"
FAULT_NAMES: dict[Kind, str] = {"kill": "SIGKILL", "stop": "SIGSTOP beyond the deadline", "restart": "SIGTERM"}
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


@dataclass(frozen=True)
class Plan:
    """The faults of one study, by the names of rounds that an undisturbed one showed; `last` is its last update."""

    method: str
    faults: tuple[Fault, ...]


def rounds_of(method: str, last_update: int) -> list[str]:
    """The rounds in which something happens; of a regression's many, the first, a middle one and the last."""
    opening, end = ["open", "place", "presence", "review"], ["close"]
    if method == "raw-glm":
        updates = [f"update {number}" for number in (0, last_update // 2, last_update)]
        return [*opening, "response", "design", "strength", *updates, "coefficients", *end]
    if method == "strict":
        return [*opening, "margins", "keys", "shares", "sums", "block", *end]
    ranks = [f"ranks {number}" for number in range(2, METHODS[method].get("rounds", 1) + 1)]
    return [*opening, "release", *ranks, "block", *end]


def plans_of(method: str, last_update: int, parties: Sequence[str] = PARTIES) -> Iterator[Plan]:
    """All studies of one method."""
    rounds = rounds_of(method, last_update)
    for party in parties:
        own = [name for name in rounds if name != "response" or party == "left"]
        kinds: dict[Kind, str] = {"kill": "answered", "restart": "asked", "stop": "asked"}
        for kind, point in kinds.items():
            yield Plan(method, tuple(Fault(party, kind, name, point) for name in own))
        for name, chains in _fine_points(method, last_update).items():
            if name in own:
                yield from (Plan(method, tuple(Fault(party, "kill", name, p) for p in chain)) for chain in chains)
    points = SERVER_POINTS if method == "vcds" else ("answered",)
    killed = [Fault(SERVER, "kill", name, point) for name in rounds for point in points]
    if method != "raw-glm":
        killed.insert(len(killed) - len(points), Fault(SERVER, "kill", "result", "half written"))
    yield Plan(method, (*killed, *(Fault(SERVER, "kill", "result", point) for point in RESULT_POINTS)))
    yield Plan(method, tuple(Fault(SERVER, "restart", name, "asked") for name in rounds))
    yield Plan(method, tuple(Fault(SERVER, "stop", name, "asked") for name in rounds))


def _fine_points(method: str, last_update: int) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Rounds in which a party is killed at every step of its work."""
    return {
        "vcds": {"release": RELEASE_POINTS},
        "ievcds": {"ranks 3": RELEASE_POINTS},
        "strict": {"margins": RELEASE_POINTS, "keys": STEP_POINTS, "shares": SHARE_POINTS, "sums": STEP_POINTS},
        "raw-glm": {
            "response": RELEASE_POINTS,
            "design": DESIGN_POINTS,
            f"update {last_update // 2}": STEP_POINTS,
            "coefficients": STEP_POINTS,
        },
    }.get(method, {})


def measure_share(methods: Sequence[str], share: int, shares: int, parties: Sequence[str] = PARTIES) -> list[Story]:
    """Every `shares`-th study, in a federation of its own."""
    logging.getLogger("verticopula.network").setLevel(logging.ERROR)  # lost lines are what this is about
    with tempfile.TemporaryDirectory() as folder, ward(Path(folder)) as found:
        plans: list[Plan] = []
        for method in methods:
            updates = [name for name in found.reference(method).rounds if name.startswith("update")]
            plans += plans_of(method, len(updates) - 1, parties)
        costs = [sum(1.0 if fault.kind == "stop" or fault.who == SERVER else 0.2 for fault in p.faults) for p in plans]
        order = sorted(range(len(plans)), key=lambda number: -costs[number])
        return [found.suffer(plans[number].method, plans[number].faults) for number in sorted(order[share::shares])]


def measure(methods: Sequence[str] = tuple(METHODS), workers: int = 4, parties: Sequence[str] = PARTIES) -> list[Story]:
    """All studies, in several federations at a time."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        runs = [pool.submit(measure_share, methods, share, workers, parties) for share in range(workers)]
        return [story for run in runs for story in run.result()]


def rows_of(stories: Sequence[Story]) -> list[dict[str, Any]]:
    """One record for every fault that happened."""
    return [
        {
            "method": story.method,
            "round": one.fault.round,
            "who": one.fault.who,
            "fault": one.fault.kind,
            "point": one.fault.point,
            "outcome": one.outcome,
            "seconds": round(one.seconds, 2),
            "named_after": None if one.named_after is None else round(one.named_after, 2),
            "entries": story.entries,
            "budget_right": story.is_budget_right,
            "tables_identical": story.are_tables_same,
            "problems": list(story.problems),
        }
        for story in stories
        for one in story.suffered
    ]


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    """Parties that fared alike share a line."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        who = "coordinator" if row["who"] == SERVER else "a party"
        groups.setdefault((row["method"], row["round"], who, FAULT_NAMES[row["fault"]], row["point"]), []).append(row)
    order = {method: number for number, method in enumerate(METHODS)}
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


def _summary(rows: Sequence[dict[str, Any]]) -> Table:
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


def write_page(path: Path, report: Report) -> None:
    text = f"""# Faults

Written by `python -m benchmarks faults`; every case is in `benchmarks/results/faults.json`. Real processes on one
machine: a coordinator and three parties, mutual TLS. {report.results["studies"]} studies with secure noise suffered
{report.results["cases"]} faults. A process is killed (SIGKILL) and started again; or stopped (SIGSTOP) for longer than
the round's deadline of {STOP_DEADLINE:g} s, after which the failed study is resumed; or ended (SIGTERM) and started
again. A study suffers the same fault in each of its rounds, or at each step of one release; a regression in its first,
a middle and its last update.

After every study: each ledger holds the entries of an undisturbed study, no more and no less, and held them before
anything left; a release that was sent twice was the same bytes; the tables are, byte for byte, those that an
undisturbed run makes of the releases in the vaults (a regression: fitted from its start). A party that was stopped was
named {report.results["named_after_longest"]:.1f} s after it stopped at the latest; studies were resumed
{report.results["resumed"]} times, and {report.results["sent_again"]} answers sent more than once.
{_list_problems(report.results["problems"])}

{report.tables[0].to_markdown()}

Times include starting the process again (a forked one, in a tenth of a second) and F3's pause before it connects again,
held at its first value, 1 s; left alone it doubles up to 10 s.

**Points**, in order. A party: *asked*; *unrecorded*: about to write its ledger; *half recorded*: in the middle of a
line; *recorded uncounted*: the ledger is written, the vault's head is not; *recorded*: nothing is drawn yet; *drawn*:
nothing is stored yet (a regression: the solver has moved); *half stored*; *stored uncounted*; *stored*; *answered*: not
sent yet; *sent*. The coordinator: *asking*: nobody is asked yet; *asked*; *answered*: all answers are here, the journal
has none; *half kept*: in the middle of the journal's record; *kept*; and of the result *half written*, *renamed*
(the study is still "running" on disk), *done*.

{report.tables[1].to_markdown()}
"""
    path.write_text(text, encoding="utf-8")


def _list_problems(problems: Sequence[str]) -> str:
    if not problems:
        return "Nothing was lost, nothing spent twice, in any of them."
    return "\n".join(["What went wrong:\n", *(f"- {problem}" for problem in problems)])


def describe(results: dict[str, Any], methods: Sequence[str]) -> Report:
    """The report of what `run` has measured."""
    rows = results["rows"]
    settings = {"methods": list(methods), "stop_deadline": STOP_DEADLINE}
    return Report("faults", settings, results, [_summary(rows), _table(rows)])


def run(places: Places, *, quick: bool) -> Report:
    """The whole table; quick: one method, one party and the coordinator."""
    start = time.monotonic()
    methods, parties = (("vcds",), ("left",)) if quick else (tuple(METHODS), PARTIES)
    stories = measure(methods, parties=parties)
    rows = rows_of(stories)
    results = {
        "studies": len(stories),
        "cases": len(rows),
        "seconds": round(time.monotonic() - start, 1),
        "resumed": sum(story.resumed for story in stories),
        "sent_again": sum(story.sent_again for story in stories),
        "named_after_longest": max((row["named_after"] or 0.0 for row in rows), default=0.0),
        "problems": sorted({f"{story.method}: {problem}" for story in stories for problem in story.problems}),
        "rows": rows,
    }
    report = describe(results, methods)
    write_page(places.pages / PAGE, report)
    return report
