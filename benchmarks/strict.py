"""Strict mode on data whose truth is known. `python -m benchmarks strict [--quick] [--part ...]`.

1. *accuracy*: `make_sme`, five parties, blocks missing at random: correlations by pair of parties, margins, seconds.
2. *margins*: what settling noisy cells brings, over not settling them.
3. *truths*: other correlation matrices, none of them made for factors, at 20,000 people.
4. *downstream*: a regression on synthetic rows at (3, 1e-6) per person and on rows of the refinement without privacy.

All noise is included, that of all three compute parties. Seconds are processor time of one thread.
"""

from __future__ import annotations

from argparse import Namespace

from threadpoolctl import threadpool_limits

from benchmarks.strict_accuracy import measure_accuracy, measure_margins, tabulate_accuracy, tabulate_margins
from benchmarks.strict_downstream import measure_downstream, tabulate_downstream
from benchmarks.strict_truths import measure_truths, tabulate_truths
from reporting.catalogue import Measured, Places
from reporting.pages import markdown_page
from reporting.records import Record, describe_machine, now, write_text
from reporting.tables import Table

PARTS = ("accuracy", "margins", "truths", "downstream")
N = 71_827
DELTA = 1e-6
EPSILONS = (1.0, 3.0)


def run(options: Namespace) -> Measured:
    """All parts, or those named; the others are kept from the last results."""
    n, seeds, splits = (3_000, 1, 1) if options.quick else (N, 3, 5)
    n_truths = 2_000 if options.quick else 20_000
    measure = {
        "accuracy": lambda: [measure_accuracy(n, epsilon, range(seeds)) for epsilon in EPSILONS],
        "margins": lambda: [measure_margins(n, epsilon, range(seeds)) for epsilon in EPSILONS],
        "truths": lambda: measure_truths(n_truths, EPSILONS, range(seeds)),
        "downstream": lambda: measure_downstream(n, n_truths, range(splits)),
    }
    with threadpool_limits(1):
        found = {part: measure[part]() for part in PARTS if part in options.parts}
    here = {"date": now(), **describe_machine()}
    measured = {**options.kept.results.get("measured", {}), **dict.fromkeys(found, here)}
    settings = {"n": n, "delta": DELTA, "unit": "person", "seeds": seeds, "splits": splits}
    return settings, {**options.kept.results, **found, "measured": measured}


def present(record: Record, places: Places) -> list[Table]:
    """The page `strict.md`, and its tables."""
    found = record.results
    tables = [
        *(tabulate_accuracy(found["accuracy"]) if "accuracy" in found else []),
        *([tabulate_margins(found["margins"])] if "margins" in found else []),
        *([tabulate_truths(found["truths"])] if "truths" in found else []),
        *(tabulate_downstream(found["downstream"]) if "downstream" in found else []),
    ]
    assert __doc__ is not None
    about = __doc__.split("\n\n", 1)[1]
    where = "\n".join(
        f"- {part}: {made['date']}, {made['processor']}{made.get('note', '')}"
        for part, made in found["measured"].items()
    )
    parts = ["Written by `python -m benchmarks strict`.", about, where, *tables]
    write_text(places.pages / "strict.md", markdown_page("Strict mode: what it finds", parts))
    return tables
