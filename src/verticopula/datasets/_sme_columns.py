"""The columns of the SME study as data: kind, public range, margin and factor loadings of each.

Also the coefficients of the response and of the missing blocks. No draws are made here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy import stats

FloatArray = npt.NDArray[np.float64]


class _Distribution(Protocol):
    def cdf(self, x: Any) -> Any: ...
    def ppf(self, q: Any) -> Any: ...
    def mean(self) -> Any: ...
    def std(self) -> Any: ...


@dataclass(frozen=True)
class ContinuousMargin:
    """The population distribution of a continuous column, before it is rounded to its decimals.

    Attributes
    ----------
    distribution : one of SciPy's, frozen
    """

    distribution: _Distribution

    def cdf(self, x: npt.ArrayLike) -> FloatArray:
        """P(value <= x), elementwise.

        Parameters
        ----------
        x : values, before rounding
        """
        return np.asarray(self.distribution.cdf(x), dtype=np.float64)

    def quantile(self, probability: npt.ArrayLike) -> FloatArray:
        """The inverse of `cdf`, elementwise.

        Parameters
        ----------
        probability : between 0 and 1
        """
        return np.asarray(self.distribution.ppf(probability), dtype=np.float64)


Margin = ContinuousMargin | FloatArray


# Loadings are on four factors: size, financial health, business churn, regulatory risk.
FactorLoadings = tuple[float, float, float, float]


@dataclass(frozen=True)
class Spec:
    """One column: its entry in the federation file and what its values are drawn from."""

    column: dict[str, Any]  # as in a federation file
    loadings: FloatArray  # (n_latents of this column, 4)
    margin: Margin


def _continuous(
    name: str,
    loadings: FactorLoadings,
    distribution: _Distribution,
    bounds: tuple[float, float],
    decimals: int,
    scale: str = "linear",
) -> Spec:
    column = {"name": name, "kind": "continuous", "bounds": bounds, "scale": scale, "decimals": decimals}
    return Spec(column, np.array([loadings]), ContinuousMargin(distribution))


def _log_normal(
    name: str, loadings: FactorLoadings, median: float, spread: float, bounds: tuple[float, float], decimals: int
) -> Spec:
    return _continuous(name, loadings, stats.lognorm(s=spread, scale=median), bounds, decimals, "log")


def _count(
    name: str,
    loadings: FactorLoadings,
    mean: float,
    size: float,
    bounds: tuple[int, int],
    extra_zeros: float = 0.0,
) -> Spec:
    """A negative binomial above the lower bound (Poisson if `size` is infinite), cut at the upper one."""
    steps = np.arange(bounds[1] - bounds[0] + 1)
    law = stats.poisson(mean) if np.isinf(size) else stats.nbinom(size, size / (size + mean))
    cells = (1.0 - extra_zeros) * law.pmf(steps) / law.cdf(steps[-1])
    cells[0] += extra_zeros
    return Spec({"name": name, "kind": "count", "bounds": bounds}, np.array([loadings]), cells)


def _ordinal(name: str, loadings: FactorLoadings, cells: Mapping[str, float] | Mapping[int, float]) -> Spec:
    column = {"name": name, "kind": "ordinal", "categories": tuple(cells)}
    return Spec(column, np.array([loadings]), np.array(list(cells.values())))


def _binary(name: str, loadings: FactorLoadings, rate: float) -> Spec:
    return Spec({"name": name, "kind": "binary"}, np.array([loadings]), np.array([1.0 - rate, rate]))


def _nominal(name: str, cells: Mapping[str, tuple[float, FactorLoadings]]) -> Spec:
    loadings = np.array([category_loadings for _, category_loadings in cells.values()])
    column = {"name": name, "kind": "nominal", "categories": tuple(cells)}
    # Only differences between the category latents decide the cell, so a common shift is taken out.
    return Spec(column, loadings - loadings.mean(axis=0), np.array([rate for rate, _ in cells.values()]))


_OWNERSHIP: dict[str, tuple[float, FactorLoadings]] = {
    "private": (0.70, (-0.5, 0.0, 0.2, 0.1)),
    "state": (0.12, (0.5, -0.3, -0.3, -0.2)),
    "foreign": (0.18, (0.2, 0.4, 0.1, -0.3)),
}
_INDUSTRY: dict[str, tuple[float, FactorLoadings]] = {
    "manufacturing": (0.28, (0.4, 0.0, -0.2, 0.2)),
    "wholesale_retail": (0.27, (-0.2, 0.1, 0.1, -0.2)),
    "construction": (0.14, (0.3, -0.2, 0.2, 0.2)),
    "catering": (0.11, (-0.3, -0.2, 0.1, 0.3)),
    "transport": (0.10, (0.1, -0.1, -0.2, 0.1)),
    "services": (0.10, (-0.2, 0.3, 0.2, -0.3)),
}
_REGION: dict[str, tuple[float, FactorLoadings]] = {
    "north": (0.20, (0.2, -0.2, -0.2, 0.2)),
    "east": (0.40, (0.2, 0.3, 0.2, -0.3)),
    "south": (0.25, (-0.1, 0.2, 0.2, -0.1)),
    "west": (0.15, (-0.3, -0.3, -0.1, 0.3)),
}
# Bounds are far beyond the values of any realistic cohort; the tail outside is clipped to them.
COLUMNS: dict[str, tuple[Spec, ...]] = {
    "credit_agency": (
        _continuous("roe", (0.0, 0.65, -0.1, -0.3), stats.norm(0.08, 0.15), (-2, 2), 4),
        _log_normal("scale", (0.75, 0.2, 0.0, 0.1), 20.0, 0.7, (0.1, 2e3), 3),
        _nominal("ownership", _OWNERSHIP),
        _log_normal("revenue", (0.7, 0.3, 0.1, 0.0), 30.0, 1.1, (0.01, 5e4), 3),
        _continuous("profit", (0.4, 0.65, -0.1, -0.1), stats.johnsonsu(-0.5, 0.8), (-5e3, 5e3), 3, "symlog"),
        _continuous("leverage", (0.1, -0.5, 0.1, 0.3), stats.beta(4, 3), (0, 1), 4),
        _log_normal("current_ratio", (-0.1, 0.55, 0.0, -0.2), 1.4, 0.5, (0.02, 60), 4),
        _continuous("cash_ratio", (0.0, 0.5, 0.15, -0.2), stats.beta(1.5, 6), (0, 1), 4),
        _continuous("asset_turnover", (-0.2, 0.35, 0.4, 0.0), stats.gamma(2.5, scale=0.4), (0, 20), 4),
        _count("loans_open", (0.5, -0.1, 0.2, 0.0), 2.0, np.inf, (0, 20)),
        _count("late_payments_1y", (0.0, -0.5, 0.1, 0.4), 1.5, 0.9, (0, 30), extra_zeros=0.3),
        _ordinal(
            "credit_grade",
            (0.25, 0.6, 0.0, -0.35),
            {"C": 0.06, "B": 0.16, "BB": 0.28, "BBB": 0.27, "A": 0.16, "AA": 0.07},
        ),
        _binary("has_collateral", (0.5, 0.1, 0.0, 0.0), 0.45),
    ),
    "market_supervision": (
        _count("foi_3y", (0.2, -0.1, 0.25, 0.5), 3.0, 2.0, (0, 30)),
        _count("ci_3y", (0.4, 0.35, 0.2, -0.3), 2.2, 1.8, (0, 30)),
        _continuous("inspection_score", (0.2, 0.3, -0.1, -0.55), stats.beta(8, 2, scale=100), (0, 100), 2),
        _ordinal("quality_grade", (0.2, 0.35, -0.1, -0.45), {"D": 0.1, "C": 0.25, "B": 0.4, "A": 0.25}),
        _binary("annual_report_on_time", (0.1, 0.3, -0.2, -0.45), 0.8),
        _count("complaints_1y", (0.3, -0.1, 0.2, 0.5), 1.2, 0.7, (0, 40)),
    ),
    "judicial_authority": (
        _count("abnap", (-0.2, -0.2, 0.2, 0.55), 0.8, 0.6, (0, 20)),
        _count("removed", (-0.1, -0.1, 0.35, 0.45), 0.6, 0.8, (0, 20)),
        _count("lawsuits_3y", (0.45, -0.2, 0.2, 0.4), 2.0, 0.9, (0, 60)),
        _log_normal("disputed_amount", (0.6, -0.15, 0.1, 0.3), 500.0, 1.2, (0.1, 5e6), 2),
        _ordinal("enforcement_status", (0.0, -0.4, 0.1, 0.5), {"none": 0.65, "pending": 0.25, "enforced": 0.1}),
        _binary("dishonest_debtor", (0.0, -0.45, 0.1, 0.5), 0.08),
    ),
    "commerce_bureau": (
        _count("scope_1y", (0.1, 0.0, 0.6, 0.2), 0.7, 0.9, (0, 20)),
        _count("scope_3y", (0.1, 0.05, 0.65, 0.2), 1.8, 1.2, (0, 40)),
        _nominal("industry", _INDUSTRY),
        _nominal("region", _REGION),
        _log_normal("registered_capital", (0.7, 0.2, 0.0, -0.1), 5.0, 1.0, (0.005, 5e3), 3),
        _continuous("paid_in_share", (0.1, 0.35, -0.2, -0.25), stats.beta(2, 1.5), (0, 1), 4),
        _continuous("age_years", (0.45, 0.15, -0.45, -0.1), stats.gamma(2.2, scale=4), (0, 120), 3),
        _count("branches", (0.55, 0.1, 0.2, 0.0), 1.0, 0.5, (0, 40)),
        _count("shareholders", (0.45, 0.1, 0.2, 0.0), 2.0, 1.5, (1, 40)),
        _count("address_changes_3y", (-0.1, 0.0, 0.6, 0.15), 0.5, 1.0, (0, 20)),
        _count("legal_rep_changes_3y", (0.0, -0.15, 0.55, 0.2), 0.5, np.inf, (0, 20)),
        _ordinal("size_class", (0.75, 0.1, 0.0, 0.0), {"micro": 0.45, "small": 0.35, "medium": 0.2}),
        _ordinal("tax_grade", (0.25, 0.45, -0.1, -0.4), {"D": 0.06, "C": 0.14, "M": 0.3, "B": 0.34, "A": 0.16}),
        _binary("high_tech", (0.3, 0.35, 0.2, -0.1), 0.12),
        _binary("exporter", (0.45, 0.15, 0.15, -0.1), 0.18),
        _count("trademarks", (0.45, 0.2, 0.3, 0.0), 2.0, 0.5, (0, 60)),
        _count("patents", (0.4, 0.3, 0.25, -0.1), 2.5, 0.8, (0, 60), extra_zeros=0.4),
        _log_normal("site_area", (0.65, 0.0, -0.1, 0.15), 400.0, 0.9, (1, 2e5), 1),
        _continuous("largest_holding", (-0.35, 0.1, -0.3, 0.0), stats.uniform(0.05, 0.95), (0, 1), 4),
    ),
    "law_enforcement": (
        _binary("punished", (0.0, -0.2, 0.1, 0.7), 0.3),
        _count("fp1_3y", (0.1, -0.1, 0.15, 0.6), 1.5, 0.8, (0, 40)),
        _count("fp2_3y", (0.05, -0.15, 0.2, 0.65), 0.8, 0.7, (0, 30)),
        _count("fp3_3y", (0.0, -0.25, 0.15, 0.6), 0.3, 0.5, (0, 20)),
        _count("fap", (0.1, -0.15, 0.2, 0.7), 2.0, 0.9, (0, 60)),
        _log_normal("fine_exposure", (0.55, -0.1, 0.0, 0.35), 50.0, 0.9, (0.1, 5e4), 3),
        _continuous("days_since_check", (-0.25, 0.1, 0.0, -0.45), stats.uniform(0, 730), (0, 730), 1),
        _ordinal("hazard_level", (0.3, -0.1, 0.1, 0.5), {1: 0.4, 2: 0.3, 3: 0.2, 4: 0.1}),
        _binary("appeal_filed", (0.35, 0.1, 0.2, 0.25), 0.15),
        _continuous("response_days", (-0.1, -0.35, 0.1, 0.4), stats.gamma(2, scale=10), (0, 400), 2),
        # `penalised`, the response, follows from the others.
    ),
}

RESPONSE = "law_enforcement.penalised"

# Of standardised values; all other columns have none.
INTERCEPT = -1.65
COEFFICIENTS: dict[str, float] = {
    "credit_agency.roe": -0.30,
    "credit_agency.scale": 0.20,
    "market_supervision.foi_3y": 0.15,
    "market_supervision.ci_3y": -0.25,
    "judicial_authority.abnap": 0.20,
    "judicial_authority.removed": 0.15,
    "commerce_bureau.scope_1y": 0.15,
    "commerce_bureau.scope_3y": 0.20,
    "commerce_bureau.industry=construction": 0.15,
    "commerce_bureau.industry=catering": 0.20,
    "commerce_bureau.industry=services": -0.20,
    "law_enforcement.punished": 0.20,
    "law_enforcement.fp2_3y": 0.15,
    "law_enforcement.fp3_3y": 0.15,
    "law_enforcement.fap": 0.25,
}

# Residual correlation inside a party: `floor` between all columns, more between neighbours.
RESIDUAL_FLOOR = 0.15
RESIDUAL_DECAY: dict[str, float] = {
    "credit_agency": 0.5,
    "market_supervision": 0.4,
    "judicial_authority": 0.5,
    "commerce_bureau": 0.4,
    "law_enforcement": 0.6,
}

MISSING_RATES: dict[str, float] = {
    "credit_agency": 0.7234,
    "market_supervision": 0.8353,
    "judicial_authority": 0.8733,
    "commerce_bureau": 0.2711,
    "law_enforcement": 0.0,
}
# Log odds of being in a party's table, per standardised value of a column that is known for
# everybody (the response counts as 0 or 1), or for being in the table of a party further up.
PRESENCE: dict[str, dict[str, float]] = {
    "credit_agency": {"law_enforcement.fine_exposure": 0.6, "law_enforcement.fap": -0.35, RESPONSE: -0.2},
    "market_supervision": {
        "law_enforcement.hazard_level": 0.5,
        "law_enforcement.days_since_check": -0.4,
        RESPONSE: 0.2,
        "credit_agency": -0.3,
    },
    "judicial_authority": {
        "law_enforcement.fap": 0.4,
        "law_enforcement.punished": 0.3,
        RESPONSE: 0.2,
        "credit_agency": -0.2,
    },
    "commerce_bureau": {
        "law_enforcement.response_days": -0.5,
        "law_enforcement.fp1_3y": -0.3,
        RESPONSE: -0.1,
        "judicial_authority": -0.3,
    },
}
# Columns with single empty cells inside the observed blocks.
GAP_RATE = 0.005
GAPS: dict[str, str] = {
    "credit_agency": "cash_ratio",
    "market_supervision": "inspection_score",
    "commerce_bureau": "site_area",
}
