"""Margin curves: from the margin of the observed subjects to the margin of everybody.

A curve maps a grade among the observed to a grade in the population, F = A(F_observed). It is
computed from releases alone, so the only private part of a corrected margin is the ordinary
distribution function of the observed values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from verticopula.schema.columns import ColumnKey
from verticopula.stats.copula import Layout
from verticopula.stats.marginals import Marginal

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MarginCurve:
    """A non-decreasing map of [0, 1] onto itself, linear between its knots.

    Attributes
    ----------
    observed, population : (k,) grades, both increasing; (0, 0) and (1, 1) are understood
    """

    observed: Floats
    population: Floats

    def __call__(self, grades: Floats) -> Floats:
        knots = np.concatenate([[0.0], self.observed, [1.0]])
        values = np.concatenate([[0.0], self.population, [1.0]])
        return np.asarray(np.interp(grades, knots, np.maximum.accumulate(np.clip(values, 0.0, 1.0))))


def apply_curves(
    layout: Layout, margins: Mapping[ColumnKey, Marginal], curves: Sequence[MarginCurve]
) -> dict[ColumnKey, Marginal]:
    """Every column's margin in the population, from one curve per latent."""
    return {key: _correct(margins[key], curves[part]) for key, part in zip(layout.keys, layout.slices, strict=True)}


def _correct(margin: Marginal, curves: Sequence[MarginCurve]) -> Marginal:
    if len(curves) == 1:
        cumulative = np.concatenate([[0.0], np.cumsum(margin.probabilities)])
        cumulative[-1] = 1.0
        probabilities = np.maximum(np.diff(curves[0](np.minimum(cumulative, 1.0))), 0.0)
    else:  # one indicator per category: its curve moves the share of "not this one"
        probabilities = np.array(
            [1.0 - float(curve(1.0 - p)) for curve, p in zip(curves, margin.probabilities, strict=True)]
        )
    return replace(margin, probabilities=np.asarray(probabilities / probabilities.sum()))


def curve_from_latents(latents: Floats) -> MarginCurve:
    """The margin of Eqs. (7), (8) and (10), as a map of grades: the k-th smallest of n values has the
    grade Phi of the k-th smallest latent of the observed subjects."""
    ordered = np.sort(latents)
    return MarginCurve(np.arange(1, ordered.size) / ordered.size, ndtr(ordered[:-1]))


def conditional_sensitivity(latents: Floats) -> float:
    """Largest change of Phi(Z(x)) at any x when one value is replaced, the latents being public.

    Replacing a value moves the values between by one place, and the margin at x by one gap between
    neighbouring Phi(Z); the gaps to 0 and 1 count too. About log(n)/n, where the paper says 1/n.
    """
    return float(np.max(np.diff(np.sort(ndtr(latents)), prepend=0.0, append=1.0)))
