"""On `results.html`: how far the algorithms as printed are from what is printed, and what that hangs on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

from experiments.draws import MODELS, Cell
from experiments.methods import PRINTED, find_row
from experiments.one_reading import NEAREST, Reread
from experiments.open_choices import ALL_READINGS, BY_INDEX, FREE, MECHANISMS, OURS, TIES
from experiments.page_cells import HtmlTable, render_number
from experiments.results import NEAR, Figure, count_near


@dataclass(frozen=True)
class Readings:
    """What other readings of the paper's text change.

    Attributes
    ----------
    effects : by method and design: reading, RMSE, difference
    errors : their RMSE, by method and design, and by reading
    everywhere : one of them in many cells
    """

    effects: Mapping[str, Sequence[tuple[str, str, str]]] = field(default_factory=dict)
    errors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    everywhere: Sequence[Reread] = ()


def render_far(figures: Sequence[Figure], readings: Readings) -> str:
    """Cells of the algorithms as printed that are not within 15 % of the printed RMSE, and what they hang on.

    Parameters
    ----------
    figures : of the algorithms as printed, by the paper's judge
    """
    own = [f for f in figures if f.key.metric == "rmse" and f.printed is not None]
    if not own:
        return ""
    near, cells = count_near(own)
    groups: dict[tuple[str, str, str], list[Figure]] = {}
    for f in own:
        groups.setdefault((find_row(f.key.method), f.key.model, f.key.mechanism), []).append(f)
    rows = []
    for (method, model, mechanism), found in groups.items():
        inside, total = count_near(found)
        off = [100.0 * f.off_by for f in found]
        rows.append(
            (
                method,
                model,
                mechanism,
                f"{inside} of {total}",
                f"{np.mean(off):+.0f} %",
                f"{min(off):+.0f} to {max(off):+.0f} %",
                _name_nearest(found, readings),
            )
        )
    header = ("method", "model", "blocks", "within 15 %", "mean difference", "range", "nearest reading")
    caption = (
        f"RMSE of the algorithms as printed against the printed RMSE, by the paper's judge: {near} of {cells} cells "
        f"within {100.0 * NEAR:.0f} %. A cell is one N and one ε. Nearest reading: of those below, the one that "
        "comes nearest to the printed RMSE at N = 1,000 and ε = 1, and what it leaves of the difference. It was "
        "looked for with the printed figures in sight, so it explains a difference and proves nothing; a dash where no "
        "other reading was run."
    )
    parts = HtmlTable(caption, header, rows, heads=3), _list_far(own), _render_others(own, readings.everywhere)
    return f"{''.join(map(str, parts))}{_render_effects(readings.effects)}"


def _list_far(figures: Sequence[Figure]) -> str:
    """Every cell further off than that, to be opened."""
    rows = [
        (
            find_row(f.key.method),
            f.key.model,
            f.key.mechanism,
            f"{f.key.n_subjects:,}",
            f"{f.key.epsilon:g}",
            f"{f.printed.mean:.3f}",
            render_number(f),
            f"{100.0 * f.off_by:+.0f} %",
        )
        for f in figures
        if f.printed is not None and abs(f.off_by) > NEAR
    ]
    if not rows:
        return ""
    header = ("method", "model", "blocks", "N", "ε", "printed", "as printed", "difference")
    caption = f"Cells further than {100.0 * NEAR:.0f} % from the printed RMSE, by the paper's judge."
    return f"<details><summary>All {len(rows)} of them</summary>{HtmlTable(caption, header, rows, heads=5)}</details>"


def _render_others(figures: Sequence[Figure], everywhere: Sequence[Reread]) -> str:
    """The readings that explain most, each beside ours in every cell that it was run in."""
    readings = dict.fromkeys(found.reading for found in everywhere)
    return "".join(_render_one(figures, [f for f in everywhere if f.reading == reading]) for reading in readings)


def _render_one(figures: Sequence[Figure], cells: Sequence[Reread]) -> str:
    """One reading beside ours."""
    beside = {(f.key.method, _cell(f), f.key.epsilon): f for f in figures}
    rows, near, ours_near = [], 0, 0
    for found in cells:
        ours = beside.get((found.method + PRINTED, found.cell, found.epsilon))
        if ours is None or ours.printed is None or not found.errors:
            continue
        off = found.mean / ours.printed.mean - 1.0
        near, ours_near = near + (abs(off) <= NEAR), ours_near + (abs(ours.off_by) <= NEAR)
        rows.append(
            (
                found.method,
                found.cell.model,
                found.cell.mechanism,
                f"{found.cell.n_subjects:,}",
                f"{found.epsilon:g}",
                f"{ours.printed.mean:.3f}",
                render_number(ours),
                f"{100.0 * ours.off_by:+.0f} %",
                f"{found.mean:.3f}{'' if math.isnan(found.error) else f' ± {found.error:.3f}'}",
                f"<td class='{'equal' if abs(off) <= NEAR else 'none'}'>{100.0 * off:+.0f} %</td>",
            )
        )
    if not rows:
        return ""
    sets, reading = max(len(found.errors) for found in cells), cells[0].reading
    method, model = NEAREST[reading]
    header = ("method", "model", "blocks", "N", "ε", "printed", "our reading", "off by", reading, "off by")
    caption = (
        f"{_ABOUT[reading]}: RMSE of the algorithms as printed, by the paper's judge, {sets} data sets (our reading: "
        f"all of the tables). Within {100.0 * NEAR:.0f} % of the printed RMSE (grey): {near} of {len(rows)} cells by "
        f"this reading, {ours_near} of the same by ours. It was chosen with one cell in sight, {method}, "
        f"{model} and complete, N = 1,000, ε = 1; the others took no part in that."
    )
    return str(HtmlTable(caption, header, rows, heads=5))


def _cell(figure: Figure) -> Cell:
    return Cell(figure.key.model, figure.key.mechanism, figure.key.n_subjects)  # type: ignore[arg-type]


def _name_nearest(figures: Sequence[Figure], readings: Readings) -> str:
    """The reading that comes nearest to the printed RMSE, and how far it is from it."""
    figure = next((f for f in figures if (f.key.n_subjects, f.key.epsilon) == (1_000, 1.0)), None)
    errors = {} if figure is None else _find_errors(figure, readings)
    if figure is None or figure.printed is None or not errors:
        return "–"
    printed = figure.printed.mean
    nearest = min(errors, key=lambda reading: abs(errors[reading] - printed))
    return f"{escape(nearest)}: {100.0 * (errors[nearest] / printed - 1.0):+.0f} %"


def _find_errors(figure: Figure, readings: Readings) -> dict[str, float]:
    """RMSE of one cell by reading; empty where no other was run."""
    method, cell = find_row(figure.key.method), _cell(figure)
    found = dict(readings.errors.get(f"{method.lower()} as printed, {cell.model}, {cell.mechanism}", {}))
    others = [r for r in readings.everywhere if (r.method, r.cell, r.epsilon) == (method, cell, figure.key.epsilon)]
    for other in others:
        found |= {OURS: found.get(OURS, figure.mean), other.reading: other.mean}
    return found


def _render_effects(effects: Mapping[str, Sequence[tuple[str, str, str]]]) -> str:
    """What the text leaves open, and what each other reading of it would change: a table a model, and the design."""
    real = {label: rows for label, rows in effects.items() if label.startswith("real data")}
    parts = []
    for model in MODELS:
        own = {label: rows for label, rows in effects.items() if f", {model}, " in label and label not in real}
        parts.append(_render_effect_table(_READINGS.format(model=model), own))
    return "".join([*parts, _render_effect_table(_REAL_READINGS, real)])


def _render_effect_table(caption: str, effects: Mapping[str, Sequence[tuple[str, str, str]]]) -> str:
    """A column for each method and design, in the paper's order of methods; empty without any."""
    labels = sorted(effects, key=lambda label: (_FIRST_WORDS.index(label.partition(" ")[0]), label))
    found = {label: {name: more or value for name, value, more in effects[label]} for label in labels}
    names = sorted({name for own in found.values() for name in own}, key=_place_reading)
    lines = [(name, *(own.get(name, "") for own in found.values())) for name in names]
    header = ("reading", *(label.replace(" as printed", "") for label in labels))
    return str(HtmlTable(caption, header, lines)) if lines else ""


def _place_reading(name: str) -> int:
    return ALL_READINGS.index(name)


_FIRST_WORDS = (*MECHANISMS, "real")  # of the labels, in the paper's order


_ABOUT = {
    BY_INDEX: "Eq. 8 read as the value at the index R~, in place of a reordering",
    FREE: "Rows drawn from the fitted copula, in place of rows rearranged to follow the subjects",
    TIES: "Equal values ranked in random order, in place of the order of rows",
}
_READINGS = (
    "What the text leaves open in the algorithms and in the judge, {model} model: RMSE of our reading at N = 1,000, by "
    "the paper's judge, and how much others add to it. <code>docs/development/departures.md</code> has the sentences, "
    "<code>experiments/results/open_choices.md</code> how this was made."
)
_REAL_READINGS = (
    "What the text leaves open in the design: how many covariates are of which kind, and whether latent variables are "
    "shuffled with them. RMSE of the paper's judge on real data, N = 1,000, with 25 of each kind over latents that "
    "stay (our reading), and how much other readings add to it."
)
