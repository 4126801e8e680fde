"""How time and memory of whole studies grow with people, columns, parties and missing patterns.

Processor seconds of all threads, in one process: checking tables, all rounds, the fit, and as many synthetic rows as
there are people. An exponent is the slope of log time on log N.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.growth import fit_exponent
from benchmarks.scale_cases import ScaleCase, measure_apart
from benchmarks.scale_files import HOUSE, KINDS, measure_files_apart
from benchmarks.scale_limits import measure_limits
from benchmarks.scale_strict import measure_strict_apart, tabulate_strict
from reporting.catalogue import Measured, Places
from reporting.pages import markdown_page
from reporting.records import Record, write_text
from reporting.tables import Table, verdict

PARTS = ("people", "files", "columns", "parties", "patterns", "limits", "strict")
SIZES = {
    "vcds": (62_500, 250_000, 1_000_000),
    "refined": (62_500, 250_000, 1_000_000),
}
FILE_SIZES = (250_000, 1_000_000)
STRICT_SIZES = (250_000, 1_000_000)
MOST_MB = 2_048.0  # of a process, whatever N is
QUICK_SIZES = dict.fromkeys(SIZES, (1_500, 3_000))
# Processor seconds at the largest size.
MOST_SECONDS = {"vcds": 12.0, "refined": 60.0}
MOST_SECONDS_WIDE = {"refined": 8.0}
MOST_RATIO = {"parties": 1.3, "patterns": 3.0}
LEAST_SHARE = {"sampling": 0.5, "pairwise": 0.7, "em": 0.3, "coins": 0.6}


def add_options(parser: ArgumentParser) -> None:
    """How often every study is repeated."""
    parser.add_argument("--repetitions", type=int, default=1, help="of every study; the fastest counts")
    parser.add_argument(
        "--people", type=int, nargs="+", default=FILE_SIZES, help="sizes of the part `files`; 10000000 take minutes"
    )
    parser.add_argument(
        "--file-kinds", nargs="+", default=KINDS, choices=KINDS, help="of the part `files`; others are kept"
    )
    parser.add_argument("--strict-people", type=int, nargs="+", default=STRICT_SIZES, help="sizes of the part `strict`")
    parser.add_argument(
        "--strict-designs", nargs="+", default=("sme", "wide", "parties"), help="of the part `strict`; others are kept"
    )
    parser.add_argument("--core-hour", type=float, default=0.05, help="assumed price of an hour of one core")
    parser.add_argument("--gigabyte", type=float, default=0.09, help="assumed price of a gigabyte that is sent")


def list_cases(part: str, quick: bool) -> list[ScaleCase]:
    """The studies that a part measures."""
    if part == "people":
        sizes = QUICK_SIZES if quick else SIZES
        return [ScaleCase(method, "sme", n) for method, each in sizes.items() for n in each]
    if part == "columns":
        return [ScaleCase(method, "wide", 1_500 if quick else 20_000) for method in ("vcds", "refined")]
    if part == "parties":
        return [ScaleCase("vcds", "parties", 1_500 if quick else 100_000, amount) for amount in (5, 50)]
    amounts = (4, 40) if quick else (16, 5_000)
    return [ScaleCase("refined", "patterns", 1_500 if quick else 100_000, amount) for amount in amounts]


def list_strict_cases(sizes: Sequence[int], quick: bool) -> list[ScaleCase]:
    """The studies of the part `strict`."""
    n = 1_500 if quick else 20_000
    people = [ScaleCase("strict", "sme", size) for size in sizes]
    return [*people, ScaleCase("strict", "wide", n), *(ScaleCase("strict", "parties", n, k) for k in (5, 50))]


def run(options: Namespace) -> Measured:
    """Measure the parts that are asked for."""
    results = dict(options.kept.results)
    repetitions = 1 if options.quick else options.repetitions
    for part in options.parts:
        if part == "limits":
            results[part] = measure_limits(2_000 if options.quick else 200_000, 3)
        elif part == "files":
            sizes = (1_500, 3_000) if options.quick else options.people
            kept = [] if options.quick else [{"kind": HOUSE, **case} for case in results.get(part, [])]
            known = {(case["kind"], case["n_subjects"]): case for case in kept}
            new = {(kind, n): measure_files_apart(n, kind) for kind in options.file_kinds for n in sizes}
            results[part] = sorted((known | new).values(), key=_by_kind)
        elif part == "strict":
            sizes = (1_500, 3_000) if options.quick else options.strict_people
            cases = [c for c in list_strict_cases(sizes, options.quick) if c.design in options.strict_designs]
            new = {str(case): measure_strict_apart(case) for case in cases}
            results[part] = new if options.quick else results.get(part, {}) | new
        else:
            results[part] = [measure_apart(case, repetitions) for case in list_cases(part, options.quick)]
    prices = {"core_hour": options.core_hour, "gigabyte": options.gigabyte}
    return {"repetitions": repetitions, "seed": 0, **prices}, results


def present(record: Record, places: Places) -> list[Table]:
    """The page `scale.md`, and its tables."""
    found = record.results
    tables = [_tabulate_people(found["people"])] if "people" in found else []
    if "files" in found:
        tables.append(_tabulate_files(found["files"]))
    if "columns" in found:
        tables.append(_tabulate_columns(found["columns"]))
    tables += [_tabulate_ratio(part, found[part]) for part in ("parties", "patterns") if part in found]
    if "limits" in found:
        tables.append(_tabulate_limits(found["limits"]))
    if "strict" in found:
        prices = (record.settings[name] for name in ("core_hour", "gigabyte"))
        tables += tabulate_strict(list(found["strict"].values()), *prices)
    about = f"""`python -m benchmarks scale`. Processor seconds of all threads, in one process: all rounds of a study
and its fit, then as many synthetic rows as there are people. Repetitions: {record.settings["repetitions"]}. Memory is
the most that the process had. The tables, which it holds for all parties together, are in it. The machine had
{record.machine["cpu_count"]} cores and a load of {record.machine["load_average"]:.0f} when the last
part was measured: other work makes processor time longer, because it takes the caches."""
    write_text(places.pages / "scale.md", markdown_page("Scale", [about, *tables]))
    return tables


Rows = Sequence[Mapping[str, Any]]


def _tabulate_people(cases: Rows) -> Table:
    rows = []
    for method in dict.fromkeys(case["method"] for case in cases):
        own = [case for case in cases if case["method"] == method]
        exponent = fit_exponent([case["n_subjects"] for case in own], [_total(case) for case in own])
        for case in own:
            last = case is own[-1]
            target = MOST_SECONDS.get(method) if last and case["n_subjects"] == 1_000_000 else None
            judged = "" if target is None else f"{target:g}: {verdict(_total(case), target)}"
            slope = f"{exponent:.2f}" if last else ""
            rows.append((method, f"{case['n_subjects']:,}", *_spent(case), slope, judged))
    header = ("method", "N", "fit, s", "rows, s", "peak MB", "before the fit", "exponent of N", "target, s")
    note = "The SME study: 55 columns at five parties, blocks missing at random. Ranks by the binomial sampler."
    return Table("People", header, tuple(rows), note, heads=2)


def _by_kind(case: Mapping[str, Any]) -> tuple[int, int]:
    return KINDS.index(case["kind"]), case["n_subjects"]


def _tabulate_files(cases: Rows) -> Table:
    own = [case for case in cases if case["kind"] == HOUSE]
    exponent = fit_exponent([case["n_subjects"] for case in own], [_total(case) for case in own])
    rows = [
        (
            case["kind"],
            f"{case['n_subjects']:,}",
            *_spent(case),
            f"{MOST_MB:,.0f}: {verdict(case['peak_mb'], MOST_MB)}",
        )
        for case in cases
    ]
    header = ("files", "people", "fit, s", "rows, s", "peak MB", "before the fit", "target, MB")
    note = f"""`{cases[0]["method"]}` as above, but tables are files that are not held, and synthetic rows are written
in parts. *A vault*: people and columns are recognised, and the tables digested. *Five organisations*: each has a vault,
reads its file as `join` does, and finds its people by keyed hashes; all of them and the coordinator are in one process,
messages included. *Refined* is by that method. Time without a vault grows with N to the power {exponent:.2f}."""
    return Table("Files", header, tuple(rows), note, heads=2)


def _tabulate_columns(cases: Rows) -> Table:
    rows = []
    for case in cases:
        target = MOST_SECONDS_WIDE.get(case["method"])
        judged = "" if target is None else f"{target:g}: {verdict(_total(case), target)}"
        rows.append((case["method"], *_spent(case), judged))
    header = ("method", "fit, s", "rows, s", "peak MB", "before the fit", "target, s")
    note = f"500 covariates at five parties, blocks missing at random, N = {cases[0]['n_subjects']:,}."
    return Table("Columns", header, tuple(rows), note)


def _tabulate_ratio(part: str, cases: Rows) -> Table:
    few, many = cases
    ratio = _total(many) / _total(few)
    rows = [(f"{case['amount']:,}", *_spent(case), "") for case in cases]
    rows[1] = (*rows[1][:-1], f"{ratio:.2f}, at most {MOST_RATIO[part]:g}: {verdict(ratio, MOST_RATIO[part])}")
    what = {
        "parties": "100 covariates, complete",
        "patterns": "64 covariates at 16 parties, three of ten blocks missing",
    }
    note = f"`{few['method']}`, {what[part]}, N = {few['n_subjects']:,}."
    header = (part, "fit, s", "rows, s", "peak MB", "before the fit", "ratio of times")
    return Table(part.capitalize(), header, tuple(rows), note)


def _tabulate_limits(limits: Mapping[str, Mapping[str, float]]) -> Table:
    names = {
        "sampling": ("synthetic rows", "normals, a product, a distribution function"),
        "pairwise": ("pairwise correlations", "one product of the table with itself"),
        "moments": ("moments of patterns", "one product of the table with itself"),
        "em": ("a step of EM", "its operations at the speed of products"),
        "coins": ("exact coins", "the random bits they need, as keystream"),
    }
    rows = []
    for part, found in limits.items():
        share, least = found["limit"] / found["ours"], LEAST_SHARE.get(part)
        judged = "" if least is None else f"{least:.0%}: {verdict(-share, -least)}"
        rows.append((*names[part], f"{1e3 * found['ours']:.1f}", f"{1e3 * found['limit']:.1f}", f"{share:.0%}", judged))
    header = ("part", "limit", "ms", "limit, ms", "share of the limit", "target")
    return Table(
        "Limits",
        header,
        tuple(rows),
        "65 latents, five parties, a fifth of the blocks missing. Coins are as many as ranks of 45,000 people need.",
        heads=2,
    )


def _spent(case: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return f"{case['fit']:.1f}", f"{case['sample']:.1f}", f"{case['peak_mb']:,.0f}", f"{case['data_mb']:,.0f}"


def _total(case: Mapping[str, Any]) -> float:
    return float(case["fit"] + case["sample"])
