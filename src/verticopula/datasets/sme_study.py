"""The SME study as parties hold it: tables with missing blocks and empty cells, and the truth behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import optimize, special

from verticopula.datasets._sme_columns import (
    COEFFICIENTS,
    GAP_RATE,
    GAPS,
    INTERCEPT,
    MISSING_RATES,
    PRESENCE,
    RESPONSE,
    FloatArray,
    Margin,
)
from verticopula.datasets._sme_population import (
    Population,
    decode_latents,
    linear_predictor,
    relevant_columns,
    sme_population,
    specs,
)
from verticopula.errors import SettingsError
from verticopula.schema.columns import Column
from verticopula.schema.federation import Federation

SMALLEST_STUDY = 50  # below it the rarest block may hold nobody


@dataclass(frozen=True)
class SmeTruth:
    """What the tables were drawn from.

    A nominal column has one latent per category, independent of each other; the cell is the
    category whose latent lies furthest above its offset. All other columns have one latent.

    Attributes
    ----------
    labels : one per latent, "party.column", or "party.column=category" for a nominal column
    correlation : (n_latents, n_latents), exact except in the response's row. The response is
        logistic, not a cut Gaussian; its row holds the biserial correlations
        E[latent * response] / density(threshold), integrated by Monte Carlo (error below 0.002).
    margins : "party.column" -> `ContinuousMargin`, or the probabilities of the categories in
        schema order, of low..high for a count
    coefficients : the non-zero ones, of values standardised by `centers` and `scales`;
        "party.column=category" is the standardised indicator of that category. An ordinal or
        binary column counts as 0, 1, 2, ... in schema order.
    centers, scales : population means and standard deviations, keyed as coefficients can be
    intercept : of the log odds of the response
    relevant : "party.column" of the columns with a coefficient
    complete : the tables without any gap, all in the same order of subjects
    probability : P(response = 1) of each subject in that order, given all other columns
    """

    labels: tuple[str, ...]
    correlation: FloatArray
    margins: dict[str, Margin]
    coefficients: dict[str, float]
    centers: dict[str, float]
    scales: dict[str, float]
    intercept: float
    relevant: tuple[str, ...]
    complete: dict[str, pl.DataFrame]
    probability: FloatArray


@dataclass(frozen=True)
class SmeStudy:
    """A federation, one table per party as the party would hold it, and the truth behind them.

    Attributes
    ----------
    federation : who holds which column
    tables : party name -> the enterprises that it knows, in an order of its own
    truth : what the tables were drawn from
    """

    federation: Federation
    tables: dict[str, pl.DataFrame]
    truth: SmeTruth


def make_sme(n: int = 71_827, *, random_state: int = 0) -> SmeStudy:
    """Draw the SME study: five parties, 55 columns, blocks missing at random.

    Parameters
    ----------
    n : number of enterprises, at least 50; the default is the paper's
    random_state : seed; the same seed and `n` give the same tables

    Returns
    -------
    SmeStudy
        Each table has only the enterprises its party knows, in an order of its own; three columns
        also have single empty cells. Inclusion depends only on law enforcement's columns, the
        response among them, and on who else knows the enterprise.

    Raises
    ------
    SettingsError
        If `n` is below 50.
    """
    if n < SMALLEST_STUDY:
        raise SettingsError(f"make_sme needs n of at least {SMALLEST_STUDY} enterprises, got {n}")
    rng = np.random.Generator(np.random.PCG64(random_state))
    population = sme_population()
    root = np.linalg.cholesky(population.correlation[:-1, :-1])
    values = decode_latents(rng.standard_normal((n, len(root))) @ root.T, specs())
    probability = np.asarray(special.expit(linear_predictor(values, population.centers, population.scales)))
    values[RESPONSE] = (rng.random(n) < probability).astype(np.float64)

    complete = _as_tables(values, population.federation)
    observed = _draw_observed(values, population, rng)
    tables = {party: _as_held(party, table, observed[party], rng) for party, table in complete.items()}
    truth = SmeTruth(
        labels=population.labels,
        correlation=population.correlation,
        margins=dict(population.margins),
        coefficients=dict(COEFFICIENTS),
        centers=dict(population.centers),
        scales=dict(population.scales),
        intercept=INTERCEPT,
        relevant=relevant_columns(),
        complete=complete,
        probability=probability,
    )
    return SmeStudy(population.federation, tables, truth)


def _as_tables(values: Mapping[str, FloatArray], federation: Federation) -> dict[str, pl.DataFrame]:
    n = len(values[RESPONSE])
    number = pl.int_range(1, n + 1, eager=True).cast(pl.String).str.zfill(6)
    ids = ("SME" + number).alias("subject_id")
    return {
        party.name: pl.DataFrame([ids, *(_as_series(c, values[f"{party.name}.{c.name}"]) for c in party.columns)])
        for party in federation.parties
    }


def _as_series(column: Column, values: FloatArray) -> pl.Series:
    if column.kind == "continuous":
        return pl.Series(column.name, values)
    whole = values.astype(np.int64)
    if column.categories is None:
        return pl.Series(column.name, whole)
    return pl.Series(column.name, column.categories).gather(whole)


def _draw_observed(
    values: Mapping[str, FloatArray], population: Population, rng: np.random.Generator
) -> dict[str, npt.NDArray[np.bool_]]:
    """Who is in which party's table; the mean probability of being there is exactly the wanted one."""
    n = len(values[RESPONSE])
    observed: dict[str, npt.NDArray[np.bool_]] = {}
    for party, missing_rate in MISSING_RATES.items():
        log_odds = np.zeros(n)
        for source, coefficient in PRESENCE.get(party, {}).items():
            if source in observed:
                log_odds += coefficient * observed[source]
            elif source == RESPONSE:
                log_odds += coefficient * values[source]
            else:
                log_odds += coefficient * (values[source] - population.centers[source]) / population.scales[source]
        observed[party] = rng.random(n) < _shift_to_mean(log_odds, 1.0 - missing_rate)
    return observed


def _shift_to_mean(log_odds: FloatArray, mean: float) -> FloatArray:
    """Probabilities whose log odds are the given ones plus a constant, and whose mean is `mean`."""
    if mean == 1.0:
        return np.ones_like(log_odds)
    reach = 50.0 + float(np.abs(log_odds).max())
    shift = optimize.brentq(lambda c: float(special.expit(log_odds + c).mean()) - mean, -reach, reach)
    return np.asarray(special.expit(log_odds + shift))


def _as_held(
    party: str, complete: pl.DataFrame, observed: npt.NDArray[np.bool_], rng: np.random.Generator
) -> pl.DataFrame:
    """The party's own table: its enterprises only, shuffled, with some cells empty."""
    held = complete[rng.permutation(np.flatnonzero(observed))]
    if party not in GAPS:
        return held
    empty = pl.Series(rng.random(len(held)) < GAP_RATE)
    return held.with_columns(pl.when(~empty).then(pl.col(GAPS[party])))
