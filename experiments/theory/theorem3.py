"""Theorem 3: is the margin of EVCDS consistent where blocks are missing at random?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from experiments.theory.gaussian import ROUNDS, fit, make_federation, make_tables, margin_at
from experiments.theory.theorem1 import flip_prob
from experiments.theory.theory_findings import (
    Check,
    MeasuredPoint,
    Panel,
    Verdict,
    fit_slope,
    judge_rate,
    of_series,
    point,
)
from verticopula.privacy.noise import SeededNoise
from verticopula.stats.ranks import flip_comparisons

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

CORRELATION, EPSILON = 0.7, 1.0
TRUTH = 0.5  # F1(0)
PREMISE = "true latents (the theorem's premise)"
# A further variant is one more line here; `refined` has no theorem and is drawn only.
METHODS = {
    "evcds": "EVCDS",
    "evcds as-printed": "EVCDS as printed",
    "ievcds": f"IEVCDS, {ROUNDS} rounds",
    "ievcds as-printed": f"IEVCDS as printed, {ROUNDS} rounds",
    "refined": "refined (ours)",
}
JUDGED = tuple(name for name in METHODS if name != "refined")
OBSERVED = "observed values alone"
SIZES = (1, 1)


def run(*, quick: bool = False) -> Check:
    """All of Theorem 3."""
    replications = 3 if quick else 20
    sizes = (100, 200, 400) if quick else (500, 1_000, 2_000, 4_000, 8_000, 16_000)
    points = [p for n in sizes for p in measure(n, replications)]
    return Check(
        "Theorem 3",
        "Two columns; X2 is complete and X1 missing at random. F~1(x) = Φ(max{Z'_i1 : R~(X_i1) ≤ R~(x), i observed}) "
        "is within O(1/((1 − 2θ)√N)) of F1(x): consistent under missing at random.",
        f"r = {CORRELATION:g}; X1 is missing where X2 is above a N(0, 1/4) draw, half of the subjects; the truth is "
        f"F1(0) = {TRUTH:g}; epsilon {EPSILON:g} per comparison and per value, in every round; {replications} "
        "replications. 'True latents' puts the Z_i behind the data for Z'_i, which nobody has; EVCDS draws them by Eq. "
        "6.",
        [
            Panel(
                "Error of F1(0)", [p for p in points if p.measure == "error"], "N", "root mean square error", slope=-0.5
            ),
            Panel("F1(0)", [p for p in points if p.measure == "mean"], "N", "mean", level=TRUTH, log_y=False),
        ],
        judge(points),
        "The proof needs latents that have the right distribution among the observed subjects. One pass of Eq. 6 does "
        "not give such: with n distinct ranks each latent has an interval of width 1/n, so the latents of the observed "
        "subjects stay standard normal, and the margin stays that of the observed values. IEVCDS, iterated until it "
        "rests, does give such: the completed values stand between the observed ones, and the observed subjects' "
        "latents take their places among all. Ten rounds leave a bias, which is not the theorem's failure: every round "
        "removes a share of what is left. That is our variant, which draws missing latents anew in every round, given "
        "noisy readings. As printed they are drawn once, and later rounds follow the noisy ranks of what was filled in "
        "then; the margin is also a polynomial of a low degree, which smooths.",
    )


def draw(n: int, replication: int) -> tuple[Floats, Bools]:
    """(n, 2) values, x0 complete, and who is observed in x1."""
    rng = np.random.default_rng([3, replication, n])
    complete, rest, threshold = rng.standard_normal((3, n))
    values = np.column_stack([complete, CORRELATION * complete + np.sqrt(1.0 - CORRELATION**2) * rest])
    return values, complete <= 0.5 * threshold


def measure(n: int, replications: int) -> list[MeasuredPoint]:
    """F1(0) by every way, and its error."""
    federation = make_federation(SIZES)
    found: dict[str, list[float]] = {}
    for replication in range(replications):
        values, seen = draw(n, replication)
        tables = make_tables(values, SIZES, np.column_stack([np.ones(n, dtype=bool), seen]))
        found.setdefault(OBSERVED, []).append(float(np.mean(values[seen, 1] <= 0.0)))
        found.setdefault(PREMISE, []).append(read_true_latents(values[seen, 1], replication))
        for method, name in METHODS.items():
            result = fit(method, federation, tables, EPSILON, replication).result_
            found.setdefault(name, []).append(float(margin_at(result, 1, np.zeros(1))[0]))
    return [
        p
        for name, values in found.items()
        for p in (
            point(name, "N", n, "error", np.array(values) - TRUTH, squared=True),
            point(name, "N", n, "mean", values),
        )
    ]


def read_true_latents(latents: Floats, replication: int) -> float:
    """F~1(0) with the latents that truly lie behind the observed values (here the values themselves)."""
    n, theta = latents.size, flip_prob(EPSILON)
    ranks = flip_comparisons(latents, EPSILON, SeededNoise(replication).stream("theorem3", str(n)))
    rng = np.random.default_rng([33, replication, n])
    below = int(np.sum(latents <= 0.0))
    noisy = 1 + below - rng.binomial(below, theta) + rng.binomial(n - below, theta)
    return float(ndtr(np.max(latents[ranks <= max(noisy, int(ranks.min()))])))


def judge(points: Sequence[MeasuredPoint]) -> list[Verdict]:
    errors = [p for p in points if p.measure == "error"]
    claim = "|F~1(x) − F1(x)| falls like N^(−1/2)"
    premise = of_series(errors, PREMISE)
    # A maximum over noisy ranks: as in Theorem 2.
    slope = fit_slope(premise, [p.x / np.log(p.x) for p in premise])
    plain = f"{PREMISE} (against N itself: slope {fit_slope(premise)}); against N/log N"
    found = {PREMISE: judge_rate(f"{claim}, judged up to a factor √log N", slope, -0.5, what=plain)}
    for name in (METHODS[method] for method in JUDGED):
        found[name] = judge_rate(claim, fit_slope(of_series(errors, name)), -0.5, what=name)
    return [_with_last(verdict, of_series(points, name, "mean")[-1]) for name, verdict in found.items()]


def _with_last(verdict: Verdict, last: MeasuredPoint) -> Verdict:
    """The verdict, with F1(0) at the largest size among what was measured."""
    at = f"F1(0) = {last.mean:.3f} (s.e. {last.error:.3f}) at N = {last.x:,.0f}"
    return replace(verdict, measured=f"{verdict.measured}; {at}")
