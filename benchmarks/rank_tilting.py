"""Studies by ranks, with and without tables. `python -m benchmarks rank_tilting --data FOLDER [--part NAME ...]`.

Method `refined` at epsilon 1 per variable, four parties, 30 % of three parties' blocks missing at random, three seeds.
The noise is that of the exact sampler, drawn by the binomial one at twice the ranks' epsilon.

Models (logistic regression, gradient boosting) are trained on synthetic rows. They are tested on real rows that took no
part. Association errors are mean absolute errors of Spearman's correlation and Cramér's V, within parties and across.
Columns are in the public cells of `benchmarks/public_mixed.py`.

Constants were looked at on magic only; adult, shoppers and sba took no part. Generated tables have dependence beyond a
copula (networks, classes, log-linear) or none (factors). Where there is little or none, tables cost a little
association. The files are not part of the project.
"""

from __future__ import annotations

import time
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import rankdata

from benchmarks.generated_tables import FAMILIES, generate_table
from benchmarks.public_cells import TUNED_ON
from benchmarks.public_gaps import lose_blocks
from benchmarks.public_mixed import FILES, PARTIES, MixedColumn, MixedTable, model_areas, read_mixed
from benchmarks.smartnoise_measures import cramers_v
from reporting.catalogue import Measured, Places
from reporting.pages import markdown_page
from reporting.records import Record, write_text
from reporting.tables import Table
from verticopula import Federation, Synthesizer
from verticopula.errors import NotPrivateWarning
from verticopula.schema.dependence import COPULA_DEPENDENCE, TILTED_DEPENDENCE
from verticopula.schema.methods import REFINED

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GENERATED = tuple(f"{family} (generated)" for family in FAMILIES)
PARTS = (*GENERATED, *FILES)
EPSILON = 1.0
MISSING = 0.3
HELD_OUT = 0.3
SEEDS = 3
GENERATED_SEED = 300
GENERATED_PEOPLE = 15_000
MEASURES = ("logistic", "boosting", "within", "across")


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, help="folder with the tables (see benchmarks/public_mixed.py)")


def check(options: Namespace, parser: ArgumentParser) -> None:
    if options.data is None and not options.page and any(name in FILES for name in options.parts):
        parser.error("--data: which folder has the tables?")
    options.command = options.command.replace(str(options.data), "FOLDER")  # where it lies is nobody's business


def run(options: Namespace) -> Measured:
    """All tables, or those named; the others are kept from the last results."""
    seeds = 1 if options.quick else SEEDS
    found = dict(options.kept.results)
    for name in options.parts:
        table = read_mixed(options.data, name) if name in FILES else draw_table(name)
        found[name] = {"shape": list(table.codes.shape), "runs": [measure(table, seed) for seed in range(seeds)]}
        print(f"{name}: done", flush=True)
    return {"epsilon": EPSILON, "unit": "variable", "missing": MISSING, "seeds": seeds}, found


def draw_table(part: str) -> MixedTable:
    """A generated table whose last column is made binary: its upper half, or its first category."""
    drawn = generate_table(part.split(" ")[0], binary=False, seed=GENERATED_SEED, n=GENERATED_PEOPLE)
    codes = drawn.codes.copy()
    codes[:, -1] = codes[:, -1] > np.median(codes[:, -1]) - (codes[:, -1].max() == np.median(codes[:, -1]))
    sizes = (*drawn.sizes[:-1], 2)
    columns = tuple(
        MixedColumn(None, np.arange(size, dtype=np.float64), not nominal or size == 2)
        for size, nominal in zip(sizes, drawn.nominal, strict=True)
    )
    return MixedTable(part, codes, codes.astype(np.float64), columns)


def measure(table: MixedTable, seed: int) -> dict[str, Any]:
    """Measures by where the training rows come from, and seconds of processor time of both studies."""
    rng = np.random.default_rng([seed, 1])
    order = rng.permutation(len(table.codes))
    test, train = np.split(order, [int(HELD_OUT * order.size)])
    held = lose_blocks(table.codes[train], table.coded(), MISSING, rng)
    numbers, real = table.numbers, associations(table, table.codes[train])
    found: dict[str, Any] = {"real rows": [*model_areas(table, numbers[train], numbers[test]), 0.0, 0.0]}
    for dependence in (COPULA_DEPENDENCE, TILTED_DEPENDENCE):
        start = time.process_time()
        codes = synthesize(table, held, dependence, seed)
        seconds = time.process_time() - start
        rows = np.column_stack([c.decode(codes[:, j], rng.random(len(codes))) for j, c in enumerate(table.columns)])
        errors = association_errors(table, real, associations(table, codes))
        found[dependence] = [*model_areas(table, rows, numbers[test]), *errors]
        found[f"{dependence} seconds"] = seconds
    return found


def federation_of(table: MixedTable) -> Federation:
    """Four parties; numbers are ordinal columns of public cells."""
    parties: dict[str, list[dict[str, Any]]] = {}
    for j, (column, coded) in enumerate(zip(table.columns, table.coded(), strict=True)):
        kind = "binary" if column.n_cells == 2 else "ordinal" if column.ordered else "nominal"
        own = {"name": f"c{j}", "kind": kind, "categories": [str(i) for i in range(column.n_cells)]}
        parties.setdefault(f"party{coded.party}", []).append(own)
    response = f"party{PARTIES - 1}.c{len(table.columns) - 1}"
    listed = [{"name": name, "column": columns} for name, columns in parties.items()]
    return Federation.from_dict({"name": "ranks", "id": "id", "response": response, "party": listed})


def tables_of(table: MixedTable, federation: Federation, held: Ints) -> dict[str, pl.DataFrame]:
    """What each party holds about those whom it knows."""
    ids, found = np.array([f"{i:06d}" for i in range(len(held))]), {}
    for party in federation.parties:
        own = [int(column.name[1:]) for column in party.columns]
        known = (held[:, own] >= 0).any(axis=1)
        columns = {f"c{j}": _text(held[known, j], table.columns[j].n_cells) for j in own}
        found[party.name] = pl.DataFrame({"id": ids[known], **columns})
    return found


def _text(codes: Ints, n_cells: int) -> pl.Series:
    """Codes as text; empty where a value is."""
    return pl.Series([str(code) if 0 <= code < n_cells else None for code in codes.tolist()], dtype=pl.String)


def synthesize(table: MixedTable, held: Ints, dependence: str, seed: int) -> Ints:
    """As many synthetic rows as people, in codes."""
    federation = federation_of(table)
    study = Synthesizer(
        federation,
        REFINED.name,
        None,
        unit="variable",
        random_state=seed,
        epsilon_ranks=EPSILON,  # half of it, twice for the binomial sampler's two coins
        epsilon_marginals=EPSILON / 2.0,
        sampler="binomial",
        dependence=dependence,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        drawn = study.fit(tables_of(table, federation, held)).sample(len(held))
    codes = [drawn[p.name][c.name].cast(str).cast(int).to_numpy() for p in federation.parties for c in p.columns]
    return np.column_stack(codes).astype(np.int64)


def associations(table: MixedTable, codes: Ints) -> Floats:
    """(p, p) Spearman's correlation of two ordered columns, Cramér's V where one is nominal; below the diagonal."""
    p = len(table.columns)
    ordered = [column.ordered for column in table.columns]
    found = np.zeros((p, p))
    for a in range(p):
        for b in range(a):
            filled = (codes[:, a] < table.columns[a].n_cells) & (codes[:, b] < table.columns[b].n_cells)
            first, second = codes[filled, a], codes[filled, b]
            if ordered[a] and ordered[b]:
                ranks = rankdata(first), rankdata(second)
                varies = min(float(np.ptp(r)) for r in ranks) > 0.0
                found[a, b] = np.corrcoef(*ranks)[0, 1] if varies else 0.0
            else:
                found[a, b] = cramers_v(first, second)
    return found


def association_errors(table: MixedTable, real: Floats, made: Floats) -> tuple[float, float]:
    """Mean absolute errors within parties and across."""
    owners = np.array([column.party for column in table.coded()])
    below = np.tril(np.ones(real.shape, dtype=bool), -1)
    same = owners[:, None] == owners
    error = np.abs(real - made)
    return float(error[below & same].mean()), float(error[below & ~same].mean())


def present(record: Record, places: Places) -> list[Table]:
    """The page `rank_tilting.md`, and its tables."""
    areas, errors = [], []
    for name, found in record.results.items():
        mark = " (tuned on)" if name in TUNED_ON else ""
        start = f"{name}{mark}, {found['shape'][0]:,} × {found['shape'][1]}"
        means = {label: _means(found["runs"], label) for label in ("real rows", COPULA_DEPENDENCE, TILTED_DEPENDENCE)}
        for label, values in means.items():
            share = f"{100.0 * values[1] / means['real rows'][1]:.1f} %"
            areas.append((start, label, f"{values[0]:.3f}", f"{values[1]:.3f}", share))
        for label in (COPULA_DEPENDENCE, TILTED_DEPENDENCE):
            seconds = mean(run[f"{label} seconds"] for run in found["runs"])
            errors.append((start, label, f"{means[label][2]:.4f}", f"{means[label][3]:.4f}", f"{seconds:.0f}"))
    tables = [
        Table(
            "Area under the curve on real rows held out",
            ("table", "trained on", "logistic regression", "gradient boosting", "boosting, of real rows"),
            areas,
        ),
        Table("Association error", ("table", "dependence", "within", "across", "s of processor time"), errors),
    ]
    assert __doc__ is not None
    parts = ["Written by `python -m benchmarks rank_tilting`.", __doc__.split("\n\n", 1)[1], *tables]
    write_text(places.pages / "rank_tilting.md", markdown_page("Ranks with and without tables", parts))
    return tables


def _means(runs: list[Mapping[str, Any]], label: str) -> list[float]:
    return [mean(run[label][k] for run in runs) for k in range(len(MEASURES))]
