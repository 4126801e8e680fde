"""How often 95 % intervals of a regression on synthetic tables hold the truth.

A small federation, again and again: a party with the response and two columns, another with two columns that lacks 30 %
of the subjects; VCDS with noise, as many synthetic rows as subjects, maximum likelihood on all four columns. The
likelihood's own intervals are set beside those of the bootstrap from the fitted copula.
"""

from __future__ import annotations

import warnings
from argparse import Namespace

import numpy as np
import polars as pl

from reporting.catalogue import Measured, Places
from reporting.records import Record
from reporting.tables import Table
from verticopula import Federation, Synthesizer, VerticalGLM
from verticopula.errors import NotPrivateWarning
from verticopula.glm.inference import Inference

SLOPES = np.array([0.5, -0.4, 0.5, 0.3])
SUBJECTS = 400
KNOWN_LEFT = 280
EPSILON = 2.0
LEVEL = 0.95
REPETITIONS = 20


def make_federation() -> Federation:
    """Bounds wide enough for normal columns."""
    column = {"kind": "continuous", "bounds": [-8.0, 8.0], "clamp": True}
    parties = {"hub": ("y", "a", "b"), "left": ("c", "d")}
    listed = [{"name": p, "column": [{"name": c, **column} for c in names]} for p, names in parties.items()]
    return Federation.from_dict({"name": "coverage", "response": "hub.y", "id": "id", "party": listed})


def run_study(seed: int) -> Synthesizer:
    """One cohort and its release; `left` knows 280 of 400 subjects."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((SUBJECTS, 4)) @ np.linalg.cholesky(np.full((4, 4), 0.3) + 0.7 * np.eye(4)).T
    ids = [f"s{i:04d}" for i in range(SUBJECTS)]
    y = x @ SLOPES + rng.standard_normal(SUBJECTS)
    known = np.sort(rng.choice(SUBJECTS, KNOWN_LEFT, replace=False))
    tables = {
        "hub": pl.DataFrame({"id": ids, "y": y, "a": x[:, 0], "b": x[:, 1]}),
        "left": pl.DataFrame({"id": ids, "c": x[:, 2], "d": x[:, 3]})[known],
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        return Synthesizer(make_federation(), "vcds", EPSILON, unit="variable", random_state=seed).fit(tables)


def measure(studies: int) -> dict[str, tuple[float, float]]:
    """Share of slopes whose interval holds the truth, and its standard error over studies."""
    held: dict[str, list[float]] = {"likelihood": [], "copies": [], "bootstrap": []}
    for seed in range(studies):
        synthesizer = run_study(seed)
        model = VerticalGLM(penalty="none").fit(synthesizer.sample(), "hub.y")
        held["likelihood"].append(_share_held(model.inference_))
        held["copies"].append(_share_held(model.combine(synthesizer, 5).inference_))
        bootstrap = model.bootstrap(synthesizer, REPETITIONS, random_state=seed)
        held["bootstrap"].append(_share_held(bootstrap.inference_))
    return {name: (float(np.mean(s)), float(np.std(s, ddof=1) / np.sqrt(studies))) for name, s in held.items()}


def _share_held(found: Inference | None) -> float:
    if found is None:
        raise ValueError("the fit has no standard errors")
    low, high = found.intervals(LEVEL)
    return float(np.mean((low[1:] <= SLOPES) & (high[1:] >= SLOPES)))


def run(options: Namespace) -> Measured:
    """Coverage of three kinds of intervals."""
    studies = 4 if options.quick else 200
    settings = {
        "studies": studies,
        "subjects": SUBJECTS,
        "epsilon": EPSILON,
        "unit": "variable",
        "level": LEVEL,
        "repetitions": REPETITIONS,
    }
    return settings, {"coverage": measure(studies)}


def present(record: Record, places: Places) -> list[Table]:
    """One table."""
    said = record.settings
    title = (
        f"Coverage of {said['level']:.0%} intervals, {said['studies']} studies of {said['subjects']} subjects, "
        f"ε = {said['epsilon']:g} per variable"
    )
    rows = [(name, f"{share:.3f}", f"{error:.3f}") for name, (share, error) in record.results["coverage"].items()]
    return [Table(title, ("standard errors from", "coverage of the slopes", "s.e."), rows)]
