"""The page `public.md` and its figure, from what is saved of the grid. A cell that was not measured is a dash."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.ticker import LogLocator, NullFormatter

from benchmarks.public_cells import (
    AREA_BUDGET,
    CODED,
    COMPLETE_CASES,
    CURATOR_EPSILONS,
    DELTA,
    EPSILONS,
    IMPUTED,
    INDEPENDENT,
    LOOKED_AT,
    MIXED,
    PARTIES,
    REAL,
    RELATIONS,
    RESAMPLED,
    SDV,
    STRICT,
    TABLES,
    TUNED_ON,
    VERTIMRF,
    PublicSetting,
    read_all,
)
from reporting.catalogue import Places
from reporting.figures import COLORS, INK, new_figure, save_png
from reporting.pages import markdown_page
from reporting.records import Record, write_text
from reporting.tables import Table, mean, standard_error

ABSENT = "–"
TO_REACH = {"adult": 0.050, "br2000": 0.035, "acs": 0.010, "nltcs": 0.012}  # 3-way distance at epsilon 0.8
MOST_OF_AIM, MOST_OF_COMPLETE, LEAST_OF_REAL = 1.2, 1.5, 0.97
AREA_TABLES = ("adult_raw", "shoppers", "sba")

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class SavedGrid:
    """All that is saved."""

    folder: Path

    def values(self, setting: PublicSetting, entry: str, measure: Callable[[Entry], float]) -> list[float]:
        """One number a seed."""
        return [measure(one) for one in read_all(self.folder, setting, entry)]

    def distance(self, setting: PublicSetting, entry: str, ways: int = 3) -> list[float]:
        return self.values(setting, entry, lambda one: one["tvd"][ways - 2])

    def area(self, setting: PublicSetting, entry: str, model: str = "boosted") -> list[float]:
        return self.values(setting, entry, lambda one: one[model])

    def shape(self, table: str) -> str:
        """How many people and columns, if anything is saved of a table."""
        for setting in (PublicSetting(table, k, gaps) for k in PARTIES for gaps in (False, True)):
            for entry in (REAL, RESAMPLED):
                found = read_all(self.folder, setting, entry)
                if found:
                    n, p = found[0]["shape"]
                    return f"{n:,} × {p}"
        return ABSENT


def show(values: Sequence[float], digits: int = 4, *, spread: bool = False) -> str:
    """A mean, and its standard error where there are several seeds."""
    if not values:
        return ABSENT
    error = f" ± {standard_error(values):.{digits}f}" if spread and len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{error}"


def label_of(table: str) -> str:
    """A table's name, with what had been seen of it before it was measured."""
    mark = " (tuned on)" if table in TUNED_ON else " (seed 0 looked at)" if table in LOOKED_AT else ""
    return table + mark


def ratio(one: Sequence[float], other: Sequence[float]) -> str:
    """Of two means."""
    return f"{mean(one) / mean(other):.2f}" if one and other else ABSENT


def present(record: Record, places: Places) -> list[Table]:
    """The page, its figure, and the tables on it."""
    grid = SavedGrid(places.results)
    draw_figure(grid, places.images / "public.png")
    tables = [
        table
        for table in (
            tabulate_distances(grid),
            tabulate_ratios(grid),
            tabulate_relations(grid),
            tabulate_vertimrf(grid),
            tabulate_gaps(grid),
            tabulate_gap_rivals(grid),
            tabulate_ways(grid),
            tabulate_associations(grid),
            tabulate_areas(grid),
            tabulate_area_budgets(grid),
        )
        if table.rows
    ]
    image = "public.png" if places.images == places.pages else "../images/public.png"
    parts = [
        OPENING,
        f"![Distance of three-way marginals against epsilon]({image})",
        judge(grid),
        *tables,
        about(grid, record),
    ]
    write_text(places.pages / "public.md", markdown_page("Public tables: strict mode and its rivals", parts))
    return tables


OPENING = f"""Written by `make bench-public DATA=FOLDER`.

How far are synthetic rows from real ones, on tables that papers on private synthesis report on? Budgets are for a whole
person who may be replaced, at δ = {DELTA:g}. `strict` has all noise of three compute parties and no trusted server.

Its rivals AIM and MST have a curator who sees everything. Two references stand beside them. Independent columns have
the same private margins and no dependence. The floor is real rows drawn again: what the draw of rows alone costs. AIM
and MST deal out rounded counts instead of drawing rows, so that they can lie below it.

Seven of the nine tables were not tuned on. Constants of `strict` were chosen on the other two,
{" and ".join(TUNED_ON)}. They are marked, and say less.
So are {" and ".join(LOOKED_AT)}, of which one of the reported splits had been looked at. The last section says for
what."""


def judge(grid: SavedGrid) -> str:
    """Each number to reach, and whether it is."""
    lines = []
    for table, target in TO_REACH.items():
        found = grid.distance(PublicSetting(table, 2, False), f"{STRICT}@0.8")
        if found:
            word = "reached" if mean(found) <= target else "not reached"
            lines.append(f"- {table}, ε = 0.8, three-way distance at most {target:.3f}: {mean(found):.4f}, {word}.")
    for table in CODED:
        for epsilon in CURATOR_EPSILONS:
            ours = grid.distance(PublicSetting(table, 2, False), f"{STRICT}@{epsilon:g}")
            theirs = grid.distance(PublicSetting(table, 2, False), f"aim-shares@{epsilon:g}")
            if ours and theirs:
                found_ratio = mean(ours) / mean(theirs)
                word = "reached" if found_ratio <= MOST_OF_AIM else "not reached"
                lines.append(
                    f"- {table}, ε = {epsilon:g}, at most {MOST_OF_AIM} times central AIM's with our noise: "
                    f"{found_ratio:.2f}, {word}."
                )
    for table in CODED:
        for epsilon in CURATOR_EPSILONS:
            whole, gaps = (
                grid.distance(PublicSetting(table, 2, missing), f"{STRICT}@{epsilon:g}") for missing in (False, True)
            )
            if whole and gaps:
                found_ratio = mean(gaps) / mean(whole)
                word = "reached" if found_ratio <= MOST_OF_COMPLETE else "not reached"
                lines.append(
                    f"- {table}, ε = {epsilon:g}, at most {MOST_OF_COMPLETE} times as far where blocks are missing: "
                    f"{found_ratio:.2f}, {word}."
                )
    for table in AREA_TABLES:
        setting = PublicSetting(table, 4, True)
        ours, real = grid.area(setting, f"{STRICT}@{AREA_BUDGET[0]:g}"), grid.area(setting, REAL)
        if ours and real:
            share = mean(ours) / mean(real)
            word = "reached" if share >= LEAST_OF_REAL else "not reached"
            lines.append(
                f"- {label_of(table)}, boosted model at {AREA_BUDGET}, at least {LEAST_OF_REAL:.0%} of real rows' "
                f"area: {share:.1%}, {word}."
            )
        plain = grid.area(setting, SDV)
        if ours and plain:
            word = "reached" if mean(ours) >= mean(plain) else "not reached"
            lines.append(
                f"- {label_of(table)}, boosted model at {AREA_BUDGET}, no lower area than SDV's without privacy: "
                f"{mean(ours):.4f} against {mean(plain):.4f}, {word}."
            )
    return "## Numbers to reach\n\n" + ("\n".join(lines) or "None of them is measured yet.")


def tabulate_distances(grid: SavedGrid) -> Table:
    rows = []
    for table in CODED:
        setting = PublicSetting(table, 2, False)
        floor = grid.distance(setting, RESAMPLED)
        for epsilon in EPSILONS:
            names = (f"{INDEPENDENT}@{epsilon:g}", f"{STRICT}@{epsilon:g}", f"aim-shares@{epsilon:g}")
            found = [grid.distance(setting, name) for name in names]
            if any(found):
                rows.append((f"{table}, ε = {epsilon:g}", *(show(one) for one in found), show(floor)))
    header = ("table", "independent", "`strict`", "AIM, our noise", "floor")
    note = (
        "Two parties, everybody known to both. A dash is a cell that was not measured. "
        "AIM is asked at ε = 0.8 and 3.2 only, and one run takes up to an hour."
    )
    return Table("Distance of three-way marginals", header, rows, note)


def tabulate_ratios(grid: SavedGrid) -> Table:
    rows = []
    for table in CODED:
        setting = PublicSetting(table, 2, False)
        for epsilon in CURATOR_EPSILONS:
            ours = grid.distance(setting, f"{STRICT}@{epsilon:g}")
            shares, replaced = (grid.distance(setting, f"aim-{r}@{epsilon:g}") for r in ("shares", "replaced"))
            if shares or replaced:
                seeds = f"{len(ours)} / {len(shares)} / {len(replaced)}"
                rows.append(
                    (f"{table}, ε = {epsilon:g}", show(ours), ratio(ours, shares), ratio(ours, replaced), seeds)
                )
    header = ("table", "`strict`", "to AIM with our noise", "to AIM with a curator's", "seeds")
    note = (
        f"The goal is at most {MOST_OF_AIM} times AIM's distance where AIM gets our noise of three shares. "
        "Both columns have one person replaced."
    )
    return Table("Strict mode over central AIM", header, rows, note)


def tabulate_relations(grid: SavedGrid) -> Table:
    rows = []
    for table in CODED:
        for method in ("aim", "mst"):
            for epsilon in CURATOR_EPSILONS:
                setting = PublicSetting(table, 2, False)
                found = [grid.distance(setting, f"{method}-{r}@{epsilon:g}") for r in RELATIONS]
                if any(found):
                    label = f"{table}, ε = {epsilon:g}, {method.upper()}"
                    seeds = " / ".join(str(len(one)) for one in found)
                    rows.append((label, *(show(one) for one in found), seeds))
    header = ("table", "added or removed", "replaced", "replaced, our noise", "seeds")
    note = (
        "Who may differ decides the noise. The authors add or remove a person. Replacing one asks for √2 times the "
        "noise, and three shares of which two must suffice for √1.5 times more."
    )
    return Table("Curators under three relations", header, rows, note)


def tabulate_vertimrf(grid: SavedGrid) -> Table:
    rows = []
    setting = PublicSetting("nltcs", 2, False)
    for epsilon in CURATOR_EPSILONS:
        ours, theirs = (grid.distance(setting, f"{source}@{epsilon:g}") for source in (STRICT, VERTIMRF))
        if theirs:
            seeds = f"{len(ours)} / {len(theirs)}"
            rows.append((f"nltcs, ε = {epsilon:g}", show(ours), show(theirs), ratio(theirs, ours), seeds))
    header = ("table", "`strict`", "VertiMRF", "ratio", "seeds")
    note = "Three-way distance, two parties of eight columns, no curator in either."
    return Table("VertiMRF, without a curator", header, rows, note)


def tabulate_gaps(grid: SavedGrid) -> Table:
    rows = []
    for table in CODED:
        for parties in PARTIES:
            for epsilon in EPSILONS:
                whole, gaps = (
                    grid.distance(PublicSetting(table, parties, missing), f"{STRICT}@{epsilon:g}")
                    for missing in (False, True)
                )
                if whole or gaps:
                    label = f"{table}, {parties} parties, ε = {epsilon:g}"
                    seeds = f"{len(whole)} / {len(gaps)}"
                    rows.append((label, show(whole), show(gaps), ratio(gaps, whole), seeds))
    header = ("table", "complete", "30 % missing", "ratio", "seeds")
    note = (
        "Three-way distance of `strict` to the table without any gap. "
        f"The goal is a ratio of at most {MOST_OF_COMPLETE}."
    )
    return Table("Missing blocks", header, rows, note)


def tabulate_gap_rivals(grid: SavedGrid) -> Table:
    rows = []
    for table in CODED:
        setting = PublicSetting(table, 2, True)
        plain = grid.distance(setting, SDV)
        for epsilon in CURATOR_EPSILONS:
            names = (f"{STRICT}@{epsilon:g}", f"{IMPUTED}@{epsilon:g}", f"{COMPLETE_CASES}@{epsilon:g}")
            found = [grid.distance(setting, name) for name in names]
            if any(found):
                rows.append((f"{table}, ε = {epsilon:g}", *(show(one) for one in found), show(plain)))
    header = ("table", "`strict`", "AIM, mean-imputed", "AIM, complete cases", "SDV, no privacy")
    note = "Three-way distance, two parties. AIM has our noise. SDV's copula gets mean-imputed rows and no noise."
    return Table("Missing blocks, by rivals", header, rows, note)


def tabulate_ways(grid: SavedGrid) -> Table:
    rows = []
    for table in TABLES:
        for parties in PARTIES:
            setting = PublicSetting(table, parties, False)
            for epsilon in EPSILONS:
                found = [grid.distance(setting, f"{STRICT}@{epsilon:g}", k) for k in (2, 3, 4)]
                if any(found):
                    label = f"{label_of(table)}, {parties} parties, ε = {epsilon:g}"
                    rows.append((label, *(show(one) for one in found), show(grid.distance(setting, RESAMPLED))))
    header = ("table", "2-way", "3-way", "4-way", "floor, 3-way")
    note = "Complete data. Columns of numbers are cut at the real table's octiles."
    return Table("Marginals of two, three and four columns", header, rows, note)


def tabulate_associations(grid: SavedGrid) -> Table:
    rows = []
    for table in TABLES:
        for parties in PARTIES:
            for epsilon in EPSILONS:
                found = [
                    grid.values(
                        PublicSetting(table, parties, missing),
                        f"{STRICT}@{epsilon:g}",
                        lambda one, kind=kind: one[kind],
                    )
                    for missing in (False, True)
                    for kind in ("within", "across")
                ]
                if any(found):
                    label = f"{label_of(table)}, {parties} parties, ε = {epsilon:g}"
                    rows.append((label, *(show(one) for one in found)))
    header = ("table", "within", "across", "within, missing", "across, missing")
    note = (
        "Mean absolute error of `strict`: Spearman's correlation of two ordered columns, Cramér's V of any other pair. "
        "Within: both columns at one party."
    )
    return Table("Associations", header, rows, note)


def tabulate_areas(grid: SavedGrid) -> Table:
    rows = []
    labels = {REAL: "real rows", f"{STRICT}@{AREA_BUDGET[0]:g}": "`strict`", SDV: "SDV, no privacy"}
    labels[f"{INDEPENDENT}@{AREA_BUDGET[0]:g}"] = "independent"
    for table in MIXED:
        setting = PublicSetting(table, 4, True)
        real = grid.area(setting, REAL)
        for entry, label in labels.items():
            boosted = grid.area(setting, entry)
            if boosted:
                share = f"{mean(boosted) / mean(real):.1%}" if real else ABSENT
                rows.append((label_of(table), label, show(grid.area(setting, entry, "linear")), show(boosted), share))
    header = ("table", "trained on", "logistic regression", "gradient boosting", "boosting, of real rows")
    note = f"Four parties, 30 % missing, {AREA_BUDGET} per person. The real rows are those of the study, without gaps."
    return Table("Area under the curve on people held out", header, rows, note)


def tabulate_area_budgets(grid: SavedGrid) -> Table:
    rows = []
    for table in MIXED:
        for parties in PARTIES:
            for missing in (False, True):
                setting = PublicSetting(table, parties, missing)
                found = [grid.area(setting, f"{STRICT}@{epsilon:g}") for epsilon in EPSILONS]
                if any(found):
                    label = f"{label_of(table)}, {parties} parties, {'30 % missing' if missing else 'complete'}"
                    rows.append((label, *(show(one) for one in found)))
    header = ("table", *(f"ε = {epsilon:g}" for epsilon in EPSILONS))
    return Table("Gradient boosting on rows of strict mode, by budget", header, rows, f"δ = {DELTA:g} per person.")


def about(grid: SavedGrid, record: Record) -> str:
    """What was measured how, on which machine, and what was tuned on what."""
    seeds: dict[str, int] = {}
    devices: set[str] = set()
    for path in sorted((grid.folder / "public").glob("*/*.json")):
        for name, entry in json.loads(path.read_text(encoding="utf-8"))["results"]["entries"].items():
            source = name.partition("@")[0]
            seeds[source] = max(seeds.get(source, 0), int(path.stem) + 1)
            devices |= {f"{entry['device']}, {entry['versions']}"} if "device" in entry else set()
    used = ", ".join(f"{source} {count}" for source, count in sorted(seeds.items()))
    sizes = "; ".join(f"{table} {grid.shape(table)}" for table in TABLES if grid.shape(table) != ABSENT)
    machine = f"{record.machine.get('processor', 'unknown')}, {record.machine.get('cpu_count', '?')} processors"
    where = "; ".join(sorted(devices)) or "nothing measured"
    return f"""## How it was measured
*Tables.* People in the study and columns: {sizes}.

The first four are coded as PrivMRF's authors do, and all people are in the study. Of the others 30 % are held out, and
models are tested on them. Columns are dealt out in their order, as many to each party as can be.

*Missing.* Every party but the last loses 30 % of its people. Who is lost depends on the last party's first two columns.

*Distance.* Mean total variation distance of 200 random marginals, the same ones for all sources.

*Strict mode.* A whole study for coded tables. Numbers have public cells of their own (`benchmarks/public_mixed.py`),
so their openings are simulated in one process, with the protocol's noise.

*AIM and MST.* `benchmarks/curator_baseline.py`, on mbi 2.0, at their authors' settings: three-way workload, a model of
at most 80 MB, 1,000 steps a round. mbi 2.0 has graphical models and no mechanisms: the choice of marginals and the
noise are written after the papers.

*VertiMRF* (KDD 2024). Its authors' public code at its own settings: 2,000 sketches a value, and its split of the
budget. It is written for the sixteen columns of NLTCS, so no other table was run. Epsilon is as that code counts it,
with δ = 1/n for sketches. It ran elsewhere on current libraries, with calls that they no longer have restored.
Under which relation it counts was not examined; `strict` has one person replaced.

*Rivals were run on* {where}.

*Tuning.* Constants of `strict` were tuned on generated tables (`python -m benchmarks tilted_tuning`), magic and bean.
That all tables of a response with few classes are opened was decided on these, too. The idea came from looking at
shoppers and SBA loans, with the earlier fit and splits (seeds) 0, 10 and 11. So one reported split of each, seed 0, had
been seen. The constants of the rule were chosen elsewhere.

All splits of shoppers, SBA loans and Adult have been measured once with merged cells in the response's tables. Bean and
magic ruled these out. No constant has changed since.
AIM and MST have their authors' constants, SDV its defaults.

*Seeds*, the most of any cell: {used}. Seeds begin at 0. Figures are means over seeds.

*Not here.* CaPS (arXiv:2402.08614) and "Distributed Synthesis" (USENIX Security 2026) run AIM inside secure
computation. By their abstracts its utility is close to central AIM's, or the same. Their figures could not be had, so
none is quoted.

*Machine* of everything else: {machine}. Last command: `{record.command}`, {record.date}."""


def draw_figure(grid: SavedGrid, path: Path) -> None:
    """Three-way distance against epsilon, one panel a coded table."""
    figure, axes = new_figure(1, len(CODED), width=3.4, height=3.2)
    lines = {
        INDEPENDENT: ("independent columns", COLORS[5], "-"),
        STRICT: ("strict", COLORS[0], "-"),
        "aim-shares": ("AIM with our noise", COLORS[1], "--"),
        "aim-added": ("AIM, its authors' relation", COLORS[3], "--"),
        "mst-shares": ("MST with our noise", COLORS[4], ":"),
    }
    for ax, table in zip(axes, CODED, strict=True):
        setting = PublicSetting(table, 2, False)
        for source, (label, color, style) in lines.items():
            points = [(e, grid.distance(setting, f"{source}@{e:g}")) for e in EPSILONS]
            drawn = [(e, mean(found)) for e, found in points if found]
            if drawn:
                ax.plot(*zip(*drawn, strict=True), style, color=color, marker="o", markersize=4, label=label)
        floor = grid.distance(setting, RESAMPLED)
        if floor:
            ax.axhline(mean(floor), color=INK, linewidth=0.8, label="real rows drawn again")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
        ax.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.set_title(table, fontsize=10)
        ax.set_xlabel("ε for a person")
    axes[0].set_ylabel("distance of 3-way marginals")
    handles, labels = max((ax.get_legend_handles_labels() for ax in axes), key=lambda found: len(found[0]))
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    save_png(figure, path)
