"""How far results would move if blocks were missing because of what is in them: a delta adjustment.

The fit says where the subjects without a value lie: their distribution G is what the corrected margin holds beyond the
observed subjects' share. Suppose they lay `delta` of their standard deviations higher (or lower) than that. On the
latent normal scale this is Phi(Phi^-1(G) - delta) in place of G, and the margin moves with their share. For a
regression, rows are drawn from the copula; those that stand for subjects unknown to a party are chosen as the fit says
such subjects are distributed, their latents at that party are moved by delta, and the selected columns are fitted again
on the same rows. Everything is computed from the fit: no data, no budget.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from verticopula.formatting import format_number
from verticopula.glm.central_solver import maximise_likelihood
from verticopula.glm.families import find_family
from verticopula.glm.feature_design import Features
from verticopula.glm.feature_encoding import code_schema_column
from verticopula.report.margin_figures import format_value
from verticopula.report.report_data import ReportData
from verticopula.schema.columns import Column, ColumnKey
from verticopula.stats.margin_cells import from_unit
from verticopula.stats.marginals import Marginal

Floats = NDArray[np.float64]

DELTAS = (-0.5, -0.25, 0.0, 0.25, 0.5)
_ROWS = 6_000
_LEAST_MISSING = 1e-3
_EDGE = 1e-6


# ---- margins -----------------------------------------------------------------------------


def shift_missing(observed: Floats, corrected: Floats, missing: float, delta: float) -> Floats:
    """Distribution function of everybody, at the same points, if those without a value lay delta higher."""
    if missing < _LEAST_MISSING:
        return corrected
    unseen = (corrected - (1.0 - missing) * observed) / missing
    moved = ndtr(ndtri(np.clip(unseen, _EDGE, 1.0 - _EDGE)) - delta)
    # What the clipping alone would change is taken back: with delta 0 the corrected margin stays as it is.
    still = ndtr(ndtri(np.clip(unseen, _EDGE, 1.0 - _EDGE)))
    return np.clip(corrected + missing * (moved - still), 0.0, 1.0)


def margin_sensitivity(subject: ReportData) -> list[dict[str, Any]]:
    """Per column with missing values (and the response): its mean, median or probability at every delta.

    None where nobody is without a value.
    """
    if all(subject.missing_share(key) < _LEAST_MISSING for key in subject.layout.keys):
        return []
    found = []
    for key in subject.layout.keys:
        missing = subject.missing_share(key)
        if missing < _LEAST_MISSING and key != subject.federation.response:
            continue
        observed, corrected = subject.result.observed_margins[key], subject.result.copula.margins[key]
        name, values = _statistic(observed, corrected, missing)
        found.append(
            {
                "key": str(key),
                "party": key.party,
                "response": key == subject.federation.response,
                "missing": missing,
                "statistic": name,
                "dates": subject.federation.column(key).dates,
                "values": [float(value) / observed.column.per_day for value in values],
                "texts": [_format_statistic(float(value), observed.column) for value in values],
                "observed": float(_statistic(observed, observed, 0.0)[1][2]) / observed.column.per_day,
            }
        )
    return found


def _format_statistic(value: float, column: Column) -> str:
    return format_value(value, column) if column.dates else format_number(value)


def _statistic(observed: Marginal, corrected: Marginal, missing: float) -> tuple[str, list[float]]:
    """What is followed: a median, a mean, or the probability of a category."""
    column = observed.column
    if column.kind not in ("continuous", "count"):
        return _category_statistic(observed, corrected, missing)
    if column.kind == "continuous":
        values = from_unit(np.linspace(0.0, 1.0, 513), column.model_copy(update={"decimals": None}))
    else:
        values = corrected.upper_ends()
    before, after = observed.cdf(values), corrected.cdf(values)
    moved = [shift_missing(before, after, missing, delta) for delta in DELTAS]
    if column.kind == "count":
        middle = values - (np.diff(np.concatenate([[values[0] - 1.0], values])) - 1.0) / 2.0
        return "mean", [float(np.diff(np.concatenate([[0.0], cdf])) @ middle) for cdf in moved]
    return "median", [float(np.interp(0.5, np.maximum.accumulate(cdf), values)) for cdf in moved]


def _category_statistic(observed: Marginal, corrected: Marginal, missing: float) -> tuple[str, list[float]]:
    """The probability of the second of two, of more than the middle one, or of the most frequent one."""
    categories, shares = observed.column.categories or (), (observed.probabilities, corrected.probabilities)
    if len(categories) == 2:
        name, below = f"probability of {categories[1]}", [share[0] for share in shares]
    elif observed.column.kind == "nominal":
        top = int(np.argmax(shares[1]))
        name, below = f"probability of {categories[top]}", [1.0 - share[top] for share in shares]
    else:
        cut = min(int(np.searchsorted(np.cumsum(shares[1]), 0.5)), len(categories) - 2)
        name, below = f"probability of more than {categories[cut]}", [share[: cut + 1].sum() for share in shares]
    before, after = np.array(below[:1]), np.array(below[1:])
    return name, [1.0 - float(shift_missing(before, after, missing, delta)[0]) for delta in DELTAS]


# ---- regression --------------------------------------------------------------------------


def regression_sensitivity(subject: ReportData) -> dict[str, Any] | None:
    """Selected coefficients if one party's missing blocks lay delta higher; None without a regression."""
    facts = subject.regression
    rows = [row for row in (facts or {}).get("rows", ()) if row["party"]]
    missing = [
        name for name in subject.result.missingness.parties if subject.result.missingness.rate(name) > _LEAST_MISSING
    ]
    if facts is None or not rows or not missing or not facts["response"]:
        return None
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(subject.result.copula.correlation)
    latents = rng.standard_normal((_ROWS, root.shape[0])) @ root.T
    coins = rng.random(_ROWS)
    base = _fit(subject, facts, rows, latents)
    if base is None:
        return None
    parties: list[dict[str, Any]] = []
    for name in missing:
        hidden = coins < _chance_of_missing(subject, name, latents)
        moves = []
        for delta in DELTAS:
            coef = base if delta == 0.0 else _fit(subject, facts, rows, _move(subject, name, latents, hidden, delta))
            moves.append(None if coef is None else (coef - base).tolist())
        parties.append({"party": name, "share": float(hidden.mean()), "moves": moves})
    # The party that moves most first; a party none of whose blocks matter moves nothing.
    parties.sort(key=lambda part: -max(abs(value) for move in part["moves"] if move for value in move))
    return {"features": [f"{row['party']}.{row['feature']}" for row in rows], "parties": parties}


def _move(subject: ReportData, party: str, latents: Floats, hidden: NDArray[np.bool_], delta: float) -> Floats:
    """Latents of hidden rows moved where they have a direction: not where categories have no order."""
    moved = latents.copy()
    for key, part in zip(subject.layout.keys, subject.layout.slices, strict=True):
        if key.party == party and part.stop - part.start == 1:
            moved[hidden, part.start] += delta
    return moved


def _chance_of_missing(subject: ReportData, party: str, latents: Floats) -> Floats:
    """For every row, the chance that the party does not know such a subject: an exponential tilt.

    It gives the missing subjects the latent means that the margins say they have: b = R^-1 mu.
    """
    part = [j for j, key in enumerate(subject.latent_keys) if key.party == party]
    means = np.array([_latent_mean(subject, j) for j in part])
    own = subject.result.copula.correlation[np.ix_(part, part)]
    tilt = np.linalg.solve(own + 0.05 * np.eye(len(part)), means)
    weight = np.exp(latents[:, part] @ tilt - 0.5 * float(tilt @ own @ tilt))
    return np.minimum(subject.result.missingness.rate(party) * weight, 1.0)


def _latent_mean(subject: ReportData, latent: int) -> float:
    """Where the missing subjects' latent lies on average, from both margins."""
    key = subject.latent_keys[latent]
    first = next(s.start for k, s in zip(subject.layout.keys, subject.layout.slices, strict=True) if k == key)
    missing = subject.missing_share(key)
    if missing < _LEAST_MISSING:
        return 0.0
    pair = [subject.result.observed_margins[key], subject.result.copula.margins[key]]
    several = len(pair[0].latents()) > 1
    below = [
        np.array([1.0 - m.probabilities[latent - first]]) if several else np.cumsum(m.probabilities)[:-1] for m in pair
    ]
    unseen = np.clip((below[1] - (1.0 - missing) * below[0]) / missing, 1e-3, 1.0 - 1e-3)
    everybody = ndtri(np.clip(below[1], 1e-3, 1.0 - 1e-3))
    weight = np.exp(-0.5 * everybody**2)
    return float(np.clip(np.sum(weight * (everybody - ndtri(unseen))) / np.sum(weight), -1.0, 1.0))


def _fit(subject: ReportData, facts: Any, rows: list[Any], latents: Floats) -> Floats | None:
    """Coefficients of the selected features on these rows; None if there is no maximum."""
    values = subject.result.copula.decode([latents], latents.shape[0])
    columns = [feature_values(subject, ColumnKey(r["party"], r["column"]), r["feature"], values) for r in rows]
    features = Features.plain(np.column_stack(columns), [r["feature"] for r in rows])
    y = values[ColumnKey.parse(facts["response"])]
    if np.ptp(y) == 0.0:
        return None
    coef, _, fine = maximise_likelihood(features, y, find_family(facts["family"]), fit_intercept=facts["intercept"])
    return coef if fine else None


def feature_values(subject: ReportData, key: ColumnKey, feature: str, values: dict[ColumnKey, Floats]) -> Floats:
    """A regression's feature from values or codes."""
    coding = code_schema_column(subject.federation.column(key))
    return np.asarray(coding.spread(values[key])[:, coding.names.index(feature)])
