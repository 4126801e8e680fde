"""The server-side refinement: what it recovers, what it costs and how that grows.

1. Theorem 3's toy, where the truth is known: two columns with correlation 0.7, the first missing
   where the second is high.
2. Everything that `refined` does beyond the releases, in seconds, in rank releases and in memory;
   and IEVCDS, which buys its correction with ten rank releases.
3. Its growth in subjects, columns and missing patterns, and that of Eq. (6)'s adjustment in subjects.

All seconds are processor time of one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from threadpoolctl import threadpool_limits

from benchmarks.record import Places, Report, Table
from benchmarks.refinement_cost import (
    EPSILON,
    MOST_PER_RELEASES,
    MOST_SECONDS,
    ROUNDS,
    UNIT,
    compare_with_ranks,
    make_design,
    measure_cost,
    measure_ievcds,
    rank_all,
    refine_fully,
    release,
    tabulate_costs,
    tabulate_ievcds,
)
from benchmarks.refinement_growth import (
    GROWTH_MISSING_RATE,
    GROWTH_ROUNDS,
    draw,
    find_exponents,
    masked,
    measure_adjustment,
    measure_growth,
    tabulate_adjustment,
    tabulate_exponents,
    tabulate_growth,
)
from benchmarks.refinement_toy import TOY_TARGETS, measure_toy, tabulate_toy
from verticopula.datasets import make_sme
from verticopula.tables import align_tables


def run(places: Places, *, quick: bool) -> Report:
    """Toy, cost and growth; writes the page `refinement.md` and its figure."""
    runs, repetitions = (2, 1) if quick else (20, 3)
    sizes = {"design": 1_000, "SME": 2_000} if quick else {"design": 5_000, "SME": 71_827}
    ievcds_repetitions = {4_000: 1} if quick else {10_000: 3, sizes["SME"]: 1}
    toy = measure_toy(runs)
    with threadpool_limits(1):
        federation, compiling = masked(500, 20, 5)
        rank_all(align_tables(federation, compiling))
        refine_fully(release(federation, compiling))
        sme = make_sme(sizes["SME"])
        costs = {
            "design, 2 clients maskable": measure_cost(*make_design(sizes["design"], (2, 4)), repetitions),
            "design, 4 clients maskable": measure_cost(*make_design(sizes["design"], (2, 3, 4, 5)), repetitions),
            "SME": measure_cost(sme.federation, sme.tables, repetitions),
        }
        ievcds = {n: measure_ievcds(n, times) for n, times in ievcds_repetitions.items()}
        growth = measure_growth(quick=quick)
        adjustment = measure_adjustment(
            (10_000, 100_000) if quick else (10_000, 30_000, 100_000, 300_000, 1_000_000), 5
        )
    ratios = {n: compare_with_ranks(times) for n, times in ievcds.items()}
    exponents = find_exponents(growth, adjustment)
    draw(growth, adjustment, exponents, places.images / "refinement.png")
    tables = [
        tabulate_toy(toy, runs),
        tabulate_costs(costs),
        tabulate_ievcds(ievcds),
        tabulate_growth(growth),
        tabulate_adjustment(adjustment),
        tabulate_exponents(exponents),
    ]
    _write_page(places, tables)
    return Report(
        "refinement",
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
            "toy": [{**asdict(r), "biases": r.biases, "largest_biases": TOY_TARGETS[r.epsilon]} for r in toy],
            "cost": {
                name: {**asdict(c), "rank_releases": c.releases, "bytes_per_entry": c.bytes_per_entry}
                for name, c in costs.items()
            },
            "ievcds": {
                n: {**{name: t.to_dict() for name, t in times.items()}, "rank_releases_ratio": ratios[n]}
                for n, times in ievcds.items()
            },
            "growth": {size: [asdict(p) for p in points] for size, points in growth.items()},
            "adjustment": {n: t.to_dict() for n, t in adjustment.items()},
            "exponent": exponents,
            "target": {
                "seconds": {name: c.seconds <= MOST_SECONDS[name] for name, c in costs.items()},
                "ievcds": ratios[max(ratios)] <= MOST_PER_RELEASES,
            },
        },
        tables,
    )


def _write_page(places: Places, tables: Sequence[Table]) -> None:
    figure = "refinement.png" if places.images == places.pages else "../images/refinement.png"
    parts = [
        "# The server-side refinement: what it recovers and what it costs",
        "Written by `python -m benchmarks refinement`.",
        "*The refinement* is everything that `refined` does beyond VCDS's releases (`refine` and "
        "`latent_correlation`). Seconds are processor time of one thread, the fastest run; *rank releases* is that "
        "time over that of flipping all comparisons of all columns of the same data once. Peak memory is what the "
        "refinement needs above the releases it starts from. IEVCDS is compared with rank releases of the table "
        "without gaps, which is what all but its first round make; the larger N is the one to judge by, because "
        "ranks take N² and the rest N.",
        f"![growth]({figure})",
    ]
    for table in tables:
        parts += [f"## {table.title[0].upper()}{table.title[1:]}", table.to_markdown()]
    (places.pages / "refinement.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
