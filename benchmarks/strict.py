"""Strict mode on data whose truth is known. `python -m benchmarks strict [--quick] [--part ...]`.

1. *accuracy*: `make_sme`, five parties, blocks missing at random: correlations by pair of parties, margins, seconds.
2. *margins*: what settling noisy cells brings, over not settling them.
3. *truths*: other correlation matrices, none of them made for factors, at 20,000 people.
4. *downstream*: a regression on synthetic rows at (3, 1e-6) per person and on rows of the refinement without privacy.

All noise is included, that of all three compute parties. Seconds are processor time of one thread.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.record import Places, Report, Table, describe_machine
from benchmarks.strict_accuracy import measure_accuracy, measure_margins, tabulate_accuracy, tabulate_margins
from benchmarks.strict_downstream import measure_downstream, tabulate_downstream
from benchmarks.strict_truths import measure_truths, tabulate_truths

PARTS = ("accuracy", "margins", "truths", "downstream")
N = 71_827
DELTA = 1e-6


def run(places: Places, *, quick: bool, parts: Sequence[str] = ()) -> Report:
    """All parts, or those named; the others are kept from the last results. Writes the page `strict.md`."""
    n, seeds, splits = (3_000, 1, 1) if quick else (N, 3, 5)
    chosen = parts or PARTS
    found: dict[str, Any] = {}
    with threadpool_limits(1):
        if "accuracy" in chosen:
            found["accuracy"] = [measure_accuracy(n, epsilon, range(seeds)) for epsilon in (1.0, 3.0)]
        if "margins" in chosen:
            found["margins"] = [measure_margins(n, epsilon, range(seeds)) for epsilon in (1.0, 3.0)]
        if "truths" in chosen:
            found["truths"] = measure_truths(2_000 if quick else 20_000, (1.0, 3.0), range(seeds))
        if "downstream" in chosen:
            found["downstream"] = measure_downstream(n, 2_000 if quick else 20_000, range(splits))
    kept = read_kept(places.results / "strict.json")
    here = {"date": datetime.now(UTC).isoformat(timespec="seconds"), **describe_machine()}
    found["measured"] = {**kept.get("measured", {}), **dict.fromkeys(chosen, here)}
    found = {**kept, **found}
    tables = [
        *(tabulate_accuracy(found["accuracy"]) if "accuracy" in found else []),
        *([tabulate_margins(found["margins"])] if "margins" in found else []),
        *([tabulate_truths(found["truths"])] if "truths" in found else []),
        *(tabulate_downstream(found["downstream"]) if "downstream" in found else []),
    ]
    _write_page(places, tables, found["measured"])
    return Report("strict", {"n": n, "delta": DELTA, "unit": "person", "seeds": seeds, "splits": splits}, found, tables)


def read_kept(path: Path) -> dict[str, Any]:
    """What an earlier run measured, part by part."""
    return dict(json.loads(path.read_text(encoding="utf-8"))["results"]) if path.exists() else {}


def _write_page(places: Places, tables: Sequence[Table], measured: Mapping[str, Mapping[str, Any]]) -> None:
    assert __doc__ is not None
    about = __doc__.split("\n\n", 1)[1].strip()
    where = [f"- {part}: {run['date']}, {run['processor']}{run.get('note', '')}" for part, run in measured.items()]
    parts = ["# Strict mode: what it finds", "Written by `python -m benchmarks strict`.", about, "\n".join(where)]
    for table in tables:
        parts += [f"## {table.title}", table.to_markdown()]
    (places.pages / "strict.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
