"""The tables and the text of `glm_original`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from experiments.metrics import METRIC_NAMES
from reporting.tables import Table
from verticopula.glm.strength_path import PATH_TUNING

if TYPE_CHECKING:
    from benchmarks.glm_original import PublishedFigure

Averages = Mapping[str, Mapping[str, Mapping[str, tuple[float, float]]]]  # `model/N`, method and metric

SHORT = {"rmse": "RMSE", "gmeans": "G-Means", "fdr": "FDR"}


def tabulate_cells(metric: str, cells: Sequence[PublishedFigure], averages: Averages) -> Table:
    """One of the paper's tables, columns Original-C and Original-VFL."""
    rows = []
    mine = [cell for cell in cells if cell.metric == metric]
    for model, n in dict.fromkeys((cell.model, cell.n_subjects) for cell in mine):
        pair = {cell.method: cell for cell in mine if (cell.model, cell.n_subjects) == (model, n)}
        central, federated = pair["Original-C"], pair["Original-VFL"]
        found = averages[f"{model}/{n}"]
        rows.append(
            (
                model,
                f"{n:,}",
                with_error(found["central"][metric]),
                f"{central.paper:.4f}",
                describe(central),
                with_error(found["federated"][metric]),
                f"{federated.paper:.4f}",
                describe(federated),
                with_error(found["oracle"][metric]),
                with_error(found["every"][metric]),
                with_error(found["penalised"][metric]),
            )
        )
    header = (
        "model",
        "N",
        "Original-C",
        "paper's",
        "reached",
        "Original-VFL",
        "paper's",
        "reached",
        "oracle",
        "BIC on refits at every strength",
        "BIC on the penalised fit",
    )
    return Table(f"{METRIC_NAMES[metric]}, mean (standard error)", header, tuple(rows), heads=2)


def describe(cell: PublishedFigure) -> str:
    return "yes" if cell.reached else "within 2 s.e." if cell.reached_within_error else "no"


def with_error(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.4f} ({pair[1]:.4f})"


def tabulate_reach(cells: Sequence[PublishedFigure], averages: Averages) -> Table:
    """Where a cell is not reached: what the best refit of the path would have."""
    rows = []
    for model, n in dict.fromkeys((cell.model, cell.n_subjects) for cell in cells):
        found = averages[f"{model}/{n}"]
        rows.append(
            (
                model,
                f"{n:,}",
                *(with_error(found["best"][metric]) for metric in ("rmse", "gmeans")),
                *(with_error(found["central"][metric]) for metric in ("rmse", "gmeans")),
                *(
                    f"{_paper(cells, model, n, metric, 'Original-C'):.4f}"
                    f" / {_paper(cells, model, n, metric, 'Original-VFL'):.4f}"
                    for metric in ("rmse", "gmeans")
                ),
            )
        )
    header = (
        "model",
        "N",
        "best RMSE",
        "best G-Means",
        "RMSE chosen",
        "G-Means chosen",
        "paper's RMSE, C / VFL",
        "paper's G-Means, C / VFL",
    )
    return Table("The best refit of each path, chosen knowing the truth", header, tuple(rows), heads=2)


def _paper(cells: Sequence[PublishedFigure], model: str, n: int, metric: str, method: str) -> float:
    key = (model, n, metric, method)
    return next(c.paper for c in cells if (c.model, c.n_subjects, c.metric, c.method) == key)


def tabulate_agreement(agreement: Mapping[str, Mapping[str, Any]]) -> Table:
    """Original-VFL against Original-C, coefficient by coefficient."""
    rows = tuple(
        (
            key.partition("/")[0],
            f"{int(key.partition('/')[2]):,}",
            str(found["replications"]),
            str(found["same_support"]),
            f"{found['largest_difference']:.1e}",
            f"{found['largest_difference_any']:.1e}",
            str(found["short_paths"]),
            str(found["without_oracle"]),
        )
        for key, found in agreement.items()
    )
    header = (
        "model",
        "N",
        "replications run",
        "same columns selected",
        "largest difference of a coefficient there",
        "over all",
        "paths that ended early",
        "without an oracle",
    )
    return Table("Original-VFL against Original-C", header, rows, heads=2)


def introduce(cells: Sequence[PublishedFigure], replications: Mapping[str, Mapping[str, int]]) -> list[str]:
    """What was measured, and what came out."""
    repeated = "; ".join(
        f"{model}, " + ", ".join(f"{count} at N = {int(n):,}" for n, count in counts.items())
        for model, counts in replications.items()
    )
    reached, near = sum(c.reached for c in cells), sum(c.reached_within_error for c in cells)
    rmse = [cell for cell in cells if cell.metric == "rmse"]
    beyond = sum(cell.paper < cell.oracle for cell in rmse)
    return [
        f"Complete, unprotected data of Section 5.1, no intercept, as in the paper. Replications: {repeated}.\n\n"
        "- *Original-C* is the central solver, *Original-VFL* the federated one at five parties. Both have SCAD (a = "
        "3.7), 40 strengths and a tolerance of 0.001. The strength is chosen by BIC on refits (charge log N for a "
        "column), and the coefficients are the refit there.\n"
        "- *BIC on refits at every strength* is what Original-C would have if it never stopped refitting. The solvers "
        f"stop where the criterion has not improved for {PATH_TUNING.patience} models in a row.\n"
        "- *BIC on the penalised fit* chooses and reports the penalised coefficients instead, as the paper writes it "
        "(with 2N f + df log N for its formula, which would always select nothing).\n"
        "- *Oracle* is maximum likelihood on the true support, over the replications where that exists.",
        "A cell is *reached* if our mean is at least as good as the worse of the paper's figure and the oracle's, and "
        "*within 2 s.e.* if two standard errors of our mean would make it so. The oracle's G-Means is 1 and its FDR 0, "
        "so there the paper's figure decides.",
        f"Of {len(cells)} cells, {reached} are reached, {near} within two standard errors.",
        *name_rest(cells),
        "Original-VFL was run on as many replications as the last table says, where its coefficients are compared with "
        "Original-C's one by one; on the others it is given Original-C's scores.",
        "The paper does not say how many columns of which kind its design has. In our reading its RMSE is below "
        f"that of maximum likelihood on the true support in {beyond} of {len(rmse)} cells; these are judged by the "
        "oracle. The table before the last gives the best that any refit of the path has, the truth being known, "
        "each measure on its own: where even that misses the paper's figure, no choice of a strength could have "
        "reached it.",
    ]


def name_rest(cells: Sequence[PublishedFigure]) -> list[str]:
    rest = [cell for cell in cells if not cell.reached_within_error]
    if not rest:
        return []
    lines = [
        f"- {c.method}, {c.model}, N = {c.n_subjects:,}, {SHORT[c.metric]}: {c.ours:.4f} ({c.standard_error:.4f}) "
        f"against {c.bar:.4f}"
        for c in rest
    ]
    return ["Not reached:", "\n".join(lines)]
