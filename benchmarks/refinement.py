"""The server-side refinement: what it recovers, what it costs and how that grows.

1. Theorem 3's toy, where the truth is known: two columns with correlation 0.7, the first missing
   where the second is high.
2. Everything that `refined` does beyond the releases, in seconds, in rank releases and in memory;
   and IEVCDS, which buys its correction with ten rank releases.
3. Its growth in subjects, columns and missing patterns, and that of Eq. (6)'s adjustment in subjects.

All seconds are processor time of one thread.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.refinement_cost import (
    EPSILON,
    MOST_SECONDS,
    UNIT,
    Cost,
    make_design,
    measure_cost,
    rank_all,
    refine_fully,
    release,
    tabulate_costs,
)
from benchmarks.refinement_growth import (
    GROWTH_MISSING_RATE,
    GROWTH_ROUNDS,
    GrowthPoint,
    draw,
    find_exponents,
    masked,
    measure_adjustment,
    measure_growth,
    tabulate_adjustment,
    tabulate_exponents,
    tabulate_growth,
)
from benchmarks.refinement_ievcds import (
    MOST_PER_RELEASES,
    ROUNDS,
    compare,
    measure_ievcds,
    tabulate_ievcds,
)
from benchmarks.refinement_toy import TOY_TARGETS, ToyResult, measure_toy, tabulate_toy
from benchmarks.timing import Timing
from reporting.catalogue import Measured, Places
from reporting.pages import markdown_page
from reporting.records import Record, now, write_text
from reporting.tables import Table
from verticopula.data.tables import align_tables
from verticopula.datasets import make_sme

PARTS = ("toy", "cost", "ievcds", "growth")


def run(options: Namespace) -> Measured:
    """Toy, cost and growth; with `--part`, only those are measured and the others kept."""
    quick, chosen = options.quick, options.parts
    runs, repetitions = (2, 1) if quick else (20, 3)
    sizes = {"design": 1_000, "SME": 2_000} if quick else {"design": 5_000, "SME": 71_827}
    ievcds_repetitions = {4_000: 1} if quick else {10_000: 3, sizes["SME"]: 1}
    steps = (10_000, 100_000) if quick else (10_000, 30_000, 100_000, 300_000, 1_000_000)
    found = read_parts(options.kept.results) if options.kept.results else {}
    if "toy" in chosen:
        found["toy"] = measure_toy(runs, options.jobs)
    with threadpool_limits(1):
        _compile()
        if "cost" in chosen:
            found["cost"] = measure_costs(sizes, repetitions)
        if "ievcds" in chosen:
            found["ievcds"] = measure_ievcds(ievcds_repetitions)
        if "growth" in chosen:
            found["growth"], found["adjustment"] = measure_growth(quick=quick), measure_adjustment(steps, 5)
    measured = {part: now() if part in chosen else options.kept.results["measured"][part] for part in PARTS}
    costs, ievcds = found["cost"], found["ievcds"]
    return (
        {
            "unit": UNIT,
            "epsilon": EPSILON,
            "rounds": ROUNDS,
            "runs": runs,
            "repetitions": repetitions,
            "sizes": {**sizes, "ievcds": list(ievcds)},
            "growth_missing_rate": GROWTH_MISSING_RATE,
            "growth_rounds": GROWTH_ROUNDS,
        },
        {
            "measured": measured,
            "toy": [{**asdict(r), "biases": r.biases, "largest_biases": TOY_TARGETS[r.epsilon]} for r in found["toy"]],
            "cost": {
                name: {**asdict(c), "rank_releases": c.releases, "bytes_per_entry": c.bytes_per_entry}
                for name, c in costs.items()
            },
            "ievcds": {
                n: {
                    **{name: t.to_dict() for name, t in times.items()},
                    "rank_releases_ratio": compare(times),
                    "tied_rank_releases_ratio": compare(times, "tied"),
                }
                for n, times in ievcds.items()
            },
            "growth": {size: [asdict(p) for p in points] for size, points in found["growth"].items()},
            "adjustment": {n: t.to_dict() for n, t in found["adjustment"].items()},
            "exponent": find_exponents(found["growth"], found["adjustment"]),
            "target": {
                "seconds": {name: c.seconds <= MOST_SECONDS[name] for name, c in costs.items()},
                "ievcds": compare(ievcds[max(ievcds)]) <= MOST_PER_RELEASES,
            },
        },
    )


def present(record: Record, places: Places) -> list[Table]:
    """The page `refinement.md`, its figure and its tables."""
    found, exponents = read_parts(record.results), record.results["exponent"]
    draw(found["growth"], found["adjustment"], exponents, places.images / "refinement.png")
    tables = [
        tabulate_toy(found["toy"], record.settings["runs"]),
        tabulate_costs(found["cost"]),
        tabulate_ievcds(found["ievcds"]),
        tabulate_growth(found["growth"]),
        tabulate_adjustment(found["adjustment"]),
        tabulate_exponents(exponents),
    ]
    figure = "refinement.png" if places.images == places.pages else "../images/refinement.png"
    measured = ", ".join(f"{part} {date}" for part, date in record.results["measured"].items())
    parts = [
        f"Written by `python -m benchmarks refinement`. Measured: {measured}.",
        *_TEXT,
        f"![growth]({figure})",
        *tables,
    ]
    title = "The server-side refinement: what it recovers and what it costs"
    write_text(places.pages / "refinement.md", markdown_page(title, parts))
    return tables


def _compile() -> None:
    federation, tables = masked(500, 20, 5)
    rank_all(align_tables(federation, tables))
    refine_fully(release(federation, tables))


def measure_costs(sizes: Mapping[str, int], repetitions: int) -> dict[str, Cost]:
    """The refinement of the paper's design, with few and with many patterns, and of the SME study."""
    sme = make_sme(sizes["SME"])
    return {
        "design, 2 clients maskable": measure_cost(*make_design(sizes["design"], (2, 4)), repetitions),
        "design, 4 clients maskable": measure_cost(*make_design(sizes["design"], (2, 3, 4, 5)), repetitions),
        "SME": measure_cost(sme.federation, sme.tables, repetitions),
    }


def read_parts(results: Mapping[str, Any]) -> dict[str, Any]:
    """What a record holds, part by part."""
    return {
        "toy": [
            ToyResult(r["method"], r["epsilon"], tuple(r["correlation"]), tuple(r["margin"])) for r in results["toy"]
        ],
        "cost": {name: Cost(**{f.name: c[f.name] for f in fields(Cost)}) for name, c in results["cost"].items()},
        "ievcds": {
            int(n): {name: Timing.of(t) for name, t in times.items() if isinstance(t, dict)}
            for n, times in results["ievcds"].items()
        },
        "growth": {size: [GrowthPoint(**point) for point in points] for size, points in results["growth"].items()},
        "adjustment": {int(n): Timing.of(t) for n, t in results["adjustment"].items()},
    }


_TEXT = (
    "*The refinement* is everything that `refined` does beyond VCDS's releases (`refine` and "
    "`latent_correlation`). Seconds are processor time of one thread, the fastest run; *rank releases* is that "
    "time over that of flipping all comparisons of all columns of the same data once. Peak memory is what the "
    "refinement needs above the releases it starts from.",
    "IEVCDS, everything included, is compared with as many rank releases of the same study without gaps, and "
    "nothing else. All its rounds but the first rank a completed table, in which every column that is not nominal "
    "stands in a strict order: values that are tied, and subjects without a value, get places of their own.\n\nSo "
    "the release to judge by ranks the complete table in a strict order as well; beside it the release with "
    "ties, which is cheaper, because a tied comparison needs only a fair coin. Both run on one processor. The "
    "target is for the larger N: ranks take N², the rest N.",
)
