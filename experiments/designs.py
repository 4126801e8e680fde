"""The paper's simulation designs: complete data (Section 5.1) and missing blocks (Section 5.2).

Conventions: n rows, p columns, K clients; columns stand in client order, so client k holds
`data.x[:, data.blocks[k]]`. Clients are counted from 0 in code and from 1 in names and formulas.

Two readings of the text that are ours:

- The blocks of Sigma_1 and the neighbours of Sigma_2 and Sigma_3 are positions in client order,
  and the shuffle moves the *kinds* over those positions. Shuffling the latent columns as well
  would leave no client a block of its own.
- The multinomial covariates enter the linear predictor as the numbers 1..C, and their
  probabilities are monotone in the latent variable: to the federation they are ordinal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit, softmax

from verticopula.errors import SettingsError
from verticopula.schema.columns import Kind
from verticopula.schema.federation import Federation

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Model = Literal["linear", "logistic"]
FAMILY_OF_MODEL: dict[Model, str] = {"linear": "gaussian", "logistic": "binomial"}
MarCase = Literal["simple", "complex"]
Effects = Literal["equal", "uniform"]

MIXTURE_WEIGHTS = (0.4, 0.3, 0.3)
MIXTURE_MEANS = (0.0, -1.0, 1.0)
COVARIATE_KINDS: tuple[Kind, ...] = ("continuous", "ordinal", "count", "binary")
SERVER = "server"
RESPONSE = "y"
ID = "subject_id"

# Departs from the text: the printed 0.95, ..., 0.75 leave no complete case as missing rates and 43.6 % as observation
# rates, while the table header says 77.32 % and 0.95^5 is 77.38 %.
MCAR_UNIFORM = (0.05, 0.05, 0.05, 0.05, 0.05)


@dataclass(frozen=True)
class SimulationDesign:
    """One setting of Section 5.1, with every number that the paper leaves open as an argument.

    Attributes
    ----------
    model : `linear` (standard normal errors) or `logistic`
    kind_counts : q_1..q_4, how many continuous, multinomial, Poisson and binary covariates
    n_clients : K; every client holds p / K covariates
    sparsity : s; the first ceil(s p_k) coefficients of every client are non-zero
    coef_size : their mean absolute value; the sign of the j-th is (-1)^j
    effects : `equal` is the paper's, all of one size; `uniform` spreads the sizes evenly between 0 and twice the mean
    category_slopes : w_1..w_C of the multinomial covariates
    rate_floor : smallest Poisson rate; 2 + 0.3 u is negative for u < -6.7
    shuffle_seed : fixes which column is of which kind; None draws it anew with every data set
    latents_move : shuffle columns with their latent variables, in place of the kinds over positions that stay
    continuous_bound, count_bound : public bounds [-b, b] and [0, b] of the covariates
    response_spread : a linear response's public bounds are its design mean +- this many design
        standard deviations
    """

    model: Model = "linear"
    kind_counts: tuple[int, int, int, int] = (25, 25, 25, 25)
    n_clients: int = 5
    sparsity: float = 0.6
    coef_size: float = 1 / 3
    effects: Effects = "equal"
    category_slopes: tuple[float, ...] = (0.0, 0.5, 1.0)
    rate_floor: float = 0.01
    shuffle_seed: int | None = None
    latents_move: bool = False
    continuous_bound: float = 6.0
    count_bound: int = 15
    response_spread: float = 5.0

    def __post_init__(self) -> None:
        if self.model not in ("linear", "logistic"):
            raise SettingsError(f"model must be 'linear' or 'logistic', got {self.model!r}")
        if self.effects not in ("equal", "uniform"):
            raise SettingsError(f"effects must be 'equal' or 'uniform', got {self.effects!r}")
        if self.n_clients < 1 or self.n_columns == 0 or self.n_columns % self.n_clients:
            raise SettingsError(f"{self.n_columns} columns cannot be dealt evenly to {self.n_clients} clients")
        if not 0 <= self.sparsity <= 1:
            raise SettingsError(f"sparsity must lie in [0, 1], got {self.sparsity}")

    @property
    def n_columns(self) -> int:
        """p, the number of covariates."""
        return sum(self.kind_counts)

    @property
    def n_categories(self) -> int:
        """C, the number of levels of a multinomial covariate."""
        return len(self.category_slopes)

    @property
    def client_size(self) -> int:
        """p_k, the number of covariates at each client."""
        return self.n_columns // self.n_clients

    @property
    def client_names(self) -> tuple[str, ...]:
        """The clients' names as parties of the federation."""
        return tuple(f"client{k}" for k in range(1, self.n_clients + 1))

    @property
    def blocks(self) -> tuple[slice, ...]:
        """The columns of each client."""
        return tuple(slice(k * self.client_size, (k + 1) * self.client_size) for k in range(self.n_clients))

    @property
    def coef(self) -> FloatArray:
        """beta*: at each client (-1)^j times a size for the first ceil(s p_k) columns, then 0."""
        j = np.arange(1, self.client_size + 1)
        # Rounded first: 0.07 * 100 is 7.000000000000001 in floating point, and its ceiling is 8.
        n_nonzero = ceil(round(self.sparsity * self.client_size, 9))
        coef = np.tile(np.where(j <= n_nonzero, (-1.0) ** j, 0.0), self.n_clients)
        coef[coef != 0.0] *= self._sizes(n_nonzero * self.n_clients)
        return coef

    def _sizes(self, count: int) -> FloatArray:
        """Absolute values of the non-zero coefficients: one, or an even grid in an order fixed once for all."""
        if self.effects == "equal":
            return np.full(count, self.coef_size)
        order = np.random.default_rng(0).permutation(count)
        return 2.0 * self.coef_size * (order + 0.5) / count

    def draw_order(self, *, rng: np.random.Generator) -> IntArray:
        """(p,) for every position the column that comes there, columns being sorted by kind."""
        rng = rng if self.shuffle_seed is None else np.random.default_rng(self.shuffle_seed)
        return rng.permutation(self.n_columns)

    def list_kinds(self, order: IntArray) -> tuple[Kind, ...]:
        """The kind of every column: the q_1..q_4 kinds in that order."""
        kinds = np.repeat(np.arange(len(COVARIATE_KINDS)), self.kind_counts)
        return tuple(COVARIATE_KINDS[code] for code in kinds[order])


@dataclass(frozen=True)
class SimulatedData:
    """A complete data set drawn from a design.

    Attributes
    ----------
    x : (n, p), columns in client order, discrete ones as whole numbers
    y : (n,), 0 or 1 in the logistic model
    kinds : one per column
    design : what it was drawn from
    """

    design: SimulationDesign
    x: FloatArray
    y: FloatArray
    kinds: tuple[Kind, ...]

    @property
    def coef(self) -> FloatArray:
        """(p,) the true coefficients."""
        return self.design.coef

    @property
    def blocks(self) -> tuple[slice, ...]:
        """The columns of each client."""
        return self.design.blocks

    def federation(self) -> Federation:
        """The public schema; see `describe_federation`."""
        return describe_federation(self.design, self.kinds)

    def tables(self, observed: BoolArray | None = None) -> dict[str, pl.DataFrame]:
        """One table per party, in the layout of `federation()`.

        Parameters
        ----------
        observed : (n, K), True where client k knows subject i; a subject that a client does not
            know has no row there. None: everybody is known everywhere.
        """
        seen = np.ones((len(self.y), self.design.n_clients), dtype=bool) if observed is None else observed
        ids = pl.Series(ID, [f"s{i:06d}" for i in range(len(self.y))])
        tables = {}
        for party, block, rows in zip(self.design.client_names, self.blocks, seen.T, strict=True):
            table = pl.DataFrame([ids, *(self._series(j) for j in range(block.start, block.stop))])
            tables[party] = table.filter(pl.Series(rows))
        tables[SERVER] = pl.DataFrame([ids, _typed(RESPONSE, self.y, whole=self.design.model == "logistic")])
        return tables

    def _series(self, j: int) -> pl.Series:
        return _typed(_column_name(j), self.x[:, j], whole=self.kinds[j] != "continuous")


def _column_name(j: int) -> str:
    return f"x{j + 1}"


def _typed(name: str, values: FloatArray, *, whole: bool) -> pl.Series:
    return pl.Series(name, values.astype(np.int64) if whole else values)


# ---- complete data, Section 5.1 ----------------------------------------------------------------


def make_complete(design: SimulationDesign, n: int, *, rng: np.random.Generator) -> SimulatedData:
    """Draw n rows of covariates and response from the design, nothing missing."""
    order = design.draw_order(rng=rng)
    kinds, latent = design.list_kinds(order), draw_latent(design, n, rng=rng)
    if design.latents_move:
        latent = latent[:, order]
    x = np.empty_like(latent)
    for kind in COVARIATE_KINDS:
        columns = np.flatnonzero(np.array(kinds) == kind)
        x[:, columns] = draw_covariates(design, kind, latent[:, columns], rng=rng)
    predictor = x @ design.coef
    if design.model == "linear":
        y = predictor + rng.standard_normal(n)
    else:
        y = (rng.random(n) < expit(predictor)).astype(np.float64)
    return SimulatedData(design, x, y, kinds)


def draw_latent(design: SimulationDesign, n: int, *, rng: np.random.Generator) -> FloatArray:
    """Draw U, (n, p), from the mixture of three multivariate normals."""
    component = rng.choice(len(MIXTURE_WEIGHTS), size=n, p=MIXTURE_WEIGHTS)
    latent = rng.standard_normal((n, design.n_columns))
    for c, (mean, covariance) in enumerate(zip(MIXTURE_MEANS, component_covariances(design), strict=True)):
        rows = component == c
        latent[rows] = mean + latent[rows] @ np.linalg.cholesky(covariance).T
    return latent


def component_covariances(design: SimulationDesign) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sigma_1 (blocks), Sigma_2 (Toeplitz) and Sigma_3 (two neighbours), each (p, p)."""
    position = np.arange(design.n_columns)
    client = position // design.client_size
    blocks = np.where(client[:, None] == client, 0.3, 0.1)
    np.fill_diagonal(blocks, 1.0)
    distance = np.abs(position[:, None] - position)
    neighbours = np.select([distance == 0, distance == 1, distance == 2], [1.0, 0.5, 0.25], 0.0)
    return blocks, 0.5**distance, neighbours


def _category_probabilities(design: SimulationDesign, latent: FloatArray) -> FloatArray:
    """(..., C): the softmax of w_c u."""
    return np.asarray(softmax(np.multiply.outer(latent, np.array(design.category_slopes)), axis=-1))


def _poisson_rate(design: SimulationDesign, latent: FloatArray) -> FloatArray:
    return np.maximum(2.0 + 0.3 * latent, design.rate_floor)


def draw_covariates(
    design: SimulationDesign, kind: Kind, latent: FloatArray, *, rng: np.random.Generator
) -> FloatArray:
    """Turn latent columns into covariates of one kind, each cell independently given U."""
    if kind == "continuous":
        return latent
    if kind == "count":
        return rng.poisson(_poisson_rate(design, latent)).astype(np.float64)
    uniform = rng.random(latent.shape)
    if kind == "binary":
        return (uniform < expit(0.5 * latent)).astype(np.float64)
    cumulative = np.cumsum(_category_probabilities(design, latent), axis=-1)[..., :-1]
    return np.asarray(1.0 + (uniform[..., None] > cumulative).sum(axis=-1))


# ---- what is public: kinds, bounds, categories -------------------------------------------------


def describe_federation(design: SimulationDesign, kinds: Sequence[Kind]) -> Federation:
    """The schema of a data set, with bounds and categories from the design alone.

    Departs from the text: the response sits at a sixth party of its own, `server`. In the paper one of the K clients
    holds it and its own covariates may be missing while the response never is; in a federation the
    response's party defines the cohort and knows every subject in it, so the two are parted.
    """
    ranges: dict[Kind, dict[str, Any]] = {
        "continuous": {"bounds": (-design.continuous_bound, design.continuous_bound), "clamp": True},
        "ordinal": {"categories": tuple(range(1, design.n_categories + 1))},
        "count": {"bounds": (0, design.count_bound), "clamp": True},
        "binary": {},
    }
    parties: list[dict[str, Any]] = [
        {
            "name": name,
            "column": [
                {"name": _column_name(j), "kind": kinds[j], **ranges[kinds[j]]} for j in range(block.start, block.stop)
            ],
        }
        for name, block in zip(design.client_names, design.blocks, strict=True)
    ]
    parties.append({"name": SERVER, "column": [_describe_response(design, kinds)]})
    return Federation.from_dict(
        {"name": f"simulation-{design.model}", "response": f"{SERVER}.{RESPONSE}", "id": ID, "party": parties}
    )


def _describe_response(design: SimulationDesign, kinds: Sequence[Kind]) -> dict[str, Any]:
    if design.model == "logistic":
        return {"name": RESPONSE, "kind": "binary"}
    mean, sd = predictor_moments(design, kinds)
    reach = design.response_spread * np.hypot(sd, 1.0)
    bounds = (float(np.floor(mean - reach)), float(np.ceil(mean + reach)))
    return {"name": RESPONSE, "kind": "continuous", "bounds": bounds, "clamp": True}


def predictor_moments(design: SimulationDesign, kinds: Sequence[Kind]) -> tuple[float, float]:
    """Mean and standard deviation of x' beta* under the design, given the columns' kinds.

    Column means and variances are exact. Covariances between columns take E(X_j | U_j) for its
    best linear predictor, which is exact for continuous columns, exact up to the rate floor for
    Poisson ones, and a good approximation for the others: enough for a public bound.
    """
    margins = {kind: _margin(design, kind) for kind in COVARIATE_KINDS}
    mean, variance, slope = np.array([margins[kind] for kind in kinds]).T
    latent_covariance = _latent_covariance(design)
    covariance = slope[:, None] * latent_covariance * slope
    np.fill_diagonal(covariance, variance)
    return float(mean @ design.coef), float(np.sqrt(design.coef @ covariance @ design.coef))


def _latent_covariance(design: SimulationDesign) -> FloatArray:
    """Cov(U): the mixture of the components' covariances plus the spread of their means."""
    weights, means = np.array(MIXTURE_WEIGHTS), np.array(MIXTURE_MEANS)
    within = np.einsum("c,cjk->jk", weights, np.stack(component_covariances(design)))
    return np.asarray(within + weights @ means**2 - (weights @ means) ** 2)


def _margin(design: SimulationDesign, kind: Kind) -> tuple[float, float, float]:
    """Mean and variance of a column of that kind, and its regression slope on the latent one."""
    nodes, hermite_weights = np.polynomial.hermite_e.hermegauss(64)
    latent = np.add.outer(MIXTURE_MEANS, nodes).ravel()
    weights = np.multiply.outer(MIXTURE_WEIGHTS, hermite_weights / hermite_weights.sum()).ravel()
    first, second = _conditional_moments(design, kind, latent)
    mean, latent_mean = weights @ first, weights @ latent
    slope = (weights @ (first * latent) - mean * latent_mean) / (weights @ latent**2 - latent_mean**2)
    return float(mean), float(weights @ second - mean**2), float(slope)


def _conditional_moments(design: SimulationDesign, kind: Kind, latent: FloatArray) -> tuple[FloatArray, FloatArray]:
    """E(X | U = u) and E(X^2 | U = u)."""
    if kind == "continuous":
        return latent, latent**2
    if kind == "count":
        rate = _poisson_rate(design, latent)
        return rate, rate + rate**2
    if kind == "binary":
        return expit(0.5 * latent), expit(0.5 * latent)
    levels = np.arange(1, design.n_categories + 1)
    probabilities = _category_probabilities(design, latent)
    return probabilities @ levels, probabilities @ levels**2


# ---- missing blocks, Section 5.2 ---------------------------------------------------------------


def mask_mcar(n: int, *, rng: np.random.Generator, missing_rates: Sequence[float] = MCAR_UNIFORM) -> BoolArray:
    """Hide blocks completely at random.

    Parameters
    ----------
    missing_rates : one per client

    Returns
    -------
    (n, K), True where client k's block of subject i is observed
    """
    return rng.random((n, len(missing_rates))) >= np.asarray(missing_rates)


def mask_mar(
    data: SimulatedData,
    *,
    rng: np.random.Generator,
    case: MarCase = "simple",
    maskable: BoolArray | None = None,
) -> BoolArray:
    """Hide blocks at random given what is observed.

    Parameters
    ----------
    case : `simple` depends on the covariates of the clients that are always observed; `complex`
        also on the response and on the missingness at the maskable clients before
    maskable : (K,), the clients whose blocks may be missing (Delta_mis); None draws them with
        `draw_maskable_clients`

    Returns
    -------
    (n, K), True where client k's block of subject i is observed
    """
    if case not in ("simple", "complex"):
        raise SettingsError(f"case must be 'simple' or 'complex', got {case!r}")
    n_clients = data.design.n_clients
    delta_mis = draw_maskable_clients(n_clients, rng=rng) if maskable is None else maskable
    logit = 1.0 + _observed_score(data, ~delta_mis)
    if case == "complex":
        logit -= data.y
    missing = np.zeros((len(data.y), n_clients), dtype=bool)
    for k in np.flatnonzero(delta_mis).tolist():
        missing[:, k] = rng.random(len(data.y)) < expit(logit)
        if case == "complex":
            logit += _client_sign(k) * missing[:, k]
    return ~missing


def draw_maskable_clients(n_clients: int, *, rng: np.random.Generator, probability: float = 0.5) -> BoolArray:
    """Draw which clients may have missing blocks, M^k ~ Bernoulli(probability).

    Departs from the text: draws that make every client maskable, or none, are drawn again. With
    none nothing is missing; with all there is no observed covariate that missingness could depend
    on. For K = 5 that is 1 draw in 16.
    """
    if n_clients < 2 or not 0 < probability < 1:
        raise SettingsError("a client-level mask needs two clients or more and a probability inside (0, 1)")
    while True:
        maskable = rng.random(n_clients) < probability
        if maskable.any() and not maskable.all():
            return maskable


def _client_sign(k: int) -> float:
    """(-1)^j of the client with number j = k + 1."""
    return -1.0 if k % 2 == 0 else 1.0


def _observed_score(data: SimulatedData, always_observed: BoolArray) -> FloatArray:
    """The sum over Delta_obs of (-1)^j zeta_j' x^j, with zeta_ja = 1 / (j a)."""
    score = np.zeros(len(data.y))
    for k in np.flatnonzero(always_observed).tolist():
        block = data.x[:, data.blocks[k]]
        zeta = 1.0 / ((k + 1) * np.arange(1, block.shape[1] + 1))
        score += _client_sign(k) * (block @ zeta)
    return score
