"""The SME study's population: the latent correlation, and how latents become values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import linalg, optimize, special

from verticopula.datasets._sme_columns import (
    COEFFICIENTS,
    COLUMNS,
    GAPS,
    INTERCEPT,
    RESIDUAL_DECAY,
    RESIDUAL_FLOOR,
    RESPONSE,
    ContinuousMargin,
    FloatArray,
    Margin,
    Spec,
)
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation


@dataclass(frozen=True)
class Population:
    """Everything about the study that no draw changes. Shared between studies: arrays are read-only.

    Attributes
    ----------
    labels : one per latent, the response's last
    correlation : (n_latents, n_latents)
    margins : by "party.column", the response included
    centers, scales : means and standard deviations of values and of category indicators
    """

    federation: Federation
    labels: tuple[str, ...]
    correlation: FloatArray
    margins: dict[str, Margin]
    centers: dict[str, float]
    scales: dict[str, float]


@cache
def sme_population() -> Population:
    """Build the population from its columns; the same in every call."""
    covariates = covariate_correlation()
    margins: dict[str, Margin] = {key: spec.margin for key, spec in specs().items()}
    centers, scales = _moments()
    rate, response_row = _response_summary(covariates, centers, scales)
    margins[RESPONSE] = np.array([1.0 - rate, rate])
    correlation = np.block([[covariates, response_row[:, None]], [response_row[None, :], np.ones((1, 1))]])
    for array in (correlation, *(m for m in margins.values() if isinstance(m, np.ndarray))):
        array.setflags(write=False)
    labels = (*covariate_labels(), RESPONSE)
    return Population(_federation(), labels, correlation, margins, centers, scales)


@cache
def specs() -> dict[str, Spec]:
    """The specs of all columns but the response, by "party.column", in schema order."""
    return {f"{party}.{spec.column['name']}": spec for party, columns in COLUMNS.items() for spec in columns}


def latent_labels(key: str) -> list[str]:
    """The labels of a column's latents: its own, or one per category of a nominal column."""
    column = specs()[key].column
    return [f"{key}={c}" for c in column["categories"]] if column["kind"] == "nominal" else [key]


def covariate_labels() -> list[str]:
    """The labels of all latents but the response's, in schema order."""
    return [label for key in specs() for label in latent_labels(key)]


def _federation() -> Federation:
    response = ColumnKey(*RESPONSE.split("."))
    parties = [
        {"name": party, "column": [{**s.column, "required": s.column["name"] != GAPS.get(party)} for s in columns]}
        for party, columns in COLUMNS.items()
    ]
    holder = next(party for party in parties if party["name"] == response.party)
    holder["column"] = [*holder["column"], {"name": response.column, "kind": "binary", "required": True}]
    return Federation.from_dict({"name": "sme", "response": RESPONSE, "id": "subject_id", "party": parties})


# ---- the latent correlation ------------------------------------------------------------------


def covariate_correlation() -> FloatArray:
    """The correlation of all latents but the response's: four factors plus what a party's columns share.

    Returns
    -------
    (n_latents - 1, n_latents - 1), positive definite. Inside a nominal column it is the identity,
    and the rows of its categories sum to zero elsewhere.
    """
    loadings = np.vstack([spec.loadings for spec in specs().values()])
    residual = linalg.block_diag(*(_party_residual(party) for party in COLUMNS))
    correlation = loadings @ loadings.T + residual
    return np.asarray((correlation + correlation.T) / 2.0, dtype=np.float64)


def _party_residual(party: str) -> FloatArray:
    """What the factors leave over inside one party."""
    columns = COLUMNS[party]
    loadings = np.vstack([spec.loadings for spec in columns])
    own = np.repeat(np.arange(len(columns)), [len(spec.loadings) for spec in columns])
    single = np.array([len(columns[i].loadings) == 1 for i in own])

    # Neighbours that the factors move in opposite directions do so in the residual as well.
    direction = np.sign(np.take_along_axis(loadings, np.abs(loadings).argmax(axis=1)[:, None], axis=1)[:, 0])
    distance = np.abs(own[:, None] - own[None, :])
    pattern = RESIDUAL_FLOOR + (1.0 - RESIDUAL_FLOOR) * RESIDUAL_DECAY[party] ** distance
    unique = np.sqrt(1.0 - np.sum(loadings**2, axis=1))
    residual = np.outer(direction * unique, direction * unique) * pattern * np.outer(single, single)

    for i in np.flatnonzero([len(spec.loadings) > 1 for spec in columns]):
        block = np.ix_(own == i, own == i)
        residual[block] = np.eye(int(np.sum(own == i))) - columns[i].loadings @ columns[i].loadings.T
    return np.asarray(residual, dtype=np.float64)


# ---- latents to values -----------------------------------------------------------------------


def decode_latents(latent: FloatArray, keys: Iterable[str]) -> dict[str, FloatArray]:
    """The values of the columns at `keys` from their latents.

    Parameters
    ----------
    latent : (n, n_latents), the latents of these columns side by side

    Returns
    -------
    (n,) values by "party.column"; categories come as 0, 1, 2, ... in schema order
    """
    values: dict[str, FloatArray] = {}
    start = 0
    for key in keys:
        stop = start + len(latent_labels(key))
        values[key] = _decode_column(specs()[key], latent[:, start:stop])
        start = stop
    return values


def _decode_column(spec: Spec, latent: FloatArray) -> FloatArray:
    if isinstance(spec.margin, ContinuousMargin):
        low, high = spec.column["bounds"]
        values = spec.margin.quantile(special.ndtr(latent[:, 0]))
        return values.round(spec.column["decimals"]).clip(low, high)
    if spec.column["kind"] == "nominal":
        return np.asarray(np.argmax(latent - category_offsets(spec.margin), axis=1), dtype=np.float64)
    cuts = special.ndtri(np.cumsum(spec.margin)[:-1])
    return _lowest(spec) + np.searchsorted(cuts, latent[:, 0]).astype(np.float64)


def category_offsets(probabilities: FloatArray) -> FloatArray:
    """Offsets t, the first of them 0, such that argmax over c of (Z_c - t_c) has these probabilities.

    Z is standard normal and independent over the categories, so that
    P(c) = E[prod over d != c of Phi(Z_c - t_c + t_d)], integrated by Gauss-Hermite quadrature.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    diagonal = np.arange(len(probabilities))

    def cell_errors(free_offsets: FloatArray) -> FloatArray:
        offsets = np.concatenate([[0.0], free_offsets])
        wins = special.ndtr(nodes[:, None, None] - offsets[:, None] + offsets[None, :])
        wins[:, diagonal, diagonal] = 1.0
        cells = weights @ wins.prod(axis=2) / weights.sum()
        return np.asarray((cells - probabilities)[1:], dtype=np.float64)

    solution = optimize.root(cell_errors, np.zeros(len(probabilities) - 1), tol=1e-12)
    return np.concatenate([[0.0], solution.x])


def _lowest(spec: Spec) -> float:
    return float(spec.column["bounds"][0]) if spec.column["kind"] == "count" else 0.0


def _moments() -> tuple[dict[str, float], dict[str, float]]:
    """Population means and standard deviations, of the indicators for a nominal column."""
    centers: dict[str, float] = {}
    scales: dict[str, float] = {}
    for key, spec in specs().items():
        if isinstance(spec.margin, ContinuousMargin):
            centers[key] = float(spec.margin.distribution.mean())
            scales[key] = float(spec.margin.distribution.std())
        elif spec.column["kind"] == "nominal":
            for label, rate in zip(latent_labels(key), spec.margin, strict=True):
                centers[label] = float(rate)
                scales[label] = float(np.sqrt(rate * (1.0 - rate)))
        else:
            values = _lowest(spec) + np.arange(len(spec.margin))
            centers[key] = float(values @ spec.margin)
            scales[key] = float(np.sqrt((values - centers[key]) ** 2 @ spec.margin))
    return centers, scales


# ---- the response ----------------------------------------------------------------------------


def relevant_columns() -> tuple[str, ...]:
    """The "party.column" of every column with a coefficient, in schema order."""
    with_coefficient = {label.partition("=")[0] for label in COEFFICIENTS}
    return tuple(key for key in specs() if key in with_coefficient)


def linear_predictor(values: dict[str, FloatArray], centers: dict[str, float], scales: dict[str, float]) -> FloatArray:
    """The log odds of the response, from the decoded values of at least the relevant columns."""
    total = np.full(len(values[relevant_columns()[0]]), INTERCEPT)
    for label, coefficient in COEFFICIENTS.items():
        key, is_category, category = label.partition("=")
        x = values[key]
        if is_category:
            x = (x == specs()[key].column["categories"].index(category)).astype(np.float64)
        total += coefficient * (x - centers[label]) / scales[label]
    return total


def _response_summary(
    covariates: FloatArray, centers: dict[str, float], scales: dict[str, float]
) -> tuple[float, FloatArray]:
    """The response's rate, and its biserial correlation with every other latent.

    Were the response a normal cut at a threshold, then E[Z_k * response] would be their correlation
    times the density at the threshold. Given the latents Z_S of the relevant columns, the response
    tells nothing more about Z_k, so E[Z_k * response] = correlation[k, S] slopes, where slopes are
    those of the least-squares line of the response's probability on Z_S.
    """
    keys = relevant_columns()
    columns = np.array([label.partition("=")[0] for label in covariate_labels()])
    chosen = np.flatnonzero(np.isin(columns, keys))
    inner = covariates[np.ix_(chosen, chosen)]

    rng = np.random.Generator(np.random.PCG64(20_240_601))
    half = rng.standard_normal((2**17, len(chosen))) @ np.linalg.cholesky(inner).T
    latent = np.vstack([half, -half])  # antithetic pairs: the mean of the latents is exactly zero
    values = decode_latents(latent, keys)
    probability = special.expit(linear_predictor(values, centers, scales))

    rate = float(probability.mean())
    density = np.exp(-0.5 * special.ndtri(rate) ** 2) / np.sqrt(2.0 * np.pi)
    slopes = np.linalg.solve(latent.T @ latent, latent.T @ probability)
    row = covariates[:, chosen] @ slopes / density
    # The mean latent of a nominal column is independent of the cell, hence of the response: what
    # the Monte Carlo leaves of their correlation is taken out.
    for key in keys:
        if specs()[key].column["kind"] == "nominal":
            row[columns == key] -= row[columns == key].mean()
    return rate, row
