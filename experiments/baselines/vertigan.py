"""Vertigan: one global generator, one discriminator per party, differentially private gradients at the discriminators.

Jiang, Zhang, Zhou and Grossklags (2023), "Distributed GAN-based privacy-preserving publication of
vertically-partitioned data". The generator makes whole rows; party k's discriminator (a Wasserstein critic) sees only
its own columns of real and generated rows, and is trained with DP-SGD: the gradient of every real row is clipped,
noise is added to their sum. The generator learns from the critics' answers alone, which is post-processing.

No critic sees two parties' columns, so nothing teaches the generator how they hang together; the response is given to
the last party with covariates, or it would be independent of everything. `epsilon` is taken for unit `block`: replacing
everything that a party holds about one person, at delta = 1e-6. Needs `pip install 'verticopula[gan]'`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, sqrt

import numpy as np
import polars as pl
from numpy.typing import NDArray

from experiments.study import MethodFailure, Outcome, Spent, Study, keep_common
from verticopula.privacy.statement import DEFAULT_DELTA
from verticopula.schema import Column, ColumnKey, Federation

Floats = NDArray[np.float64]

STEPS = 400  # of every critic; the generator moves once in CRITIC_STEPS
CRITIC_STEPS = 2
BATCH = 128
LATENT, HIDDEN, CRITIC_HIDDEN = 32, 128, 48
CLIP = 1.0
WEIGHT_BOUND = 0.1  # of the critics' weights, as in the Wasserstein GAN
RATE = 1e-3
ORDERS = (*range(2, 64), 80, 128, 256, 512)  # of Rényi divergence; whole ones are quick to account for


def fit(study: Study, *, steps: int = STEPS) -> Outcome:
    """Tables of generated rows."""
    tables = keep_common(study.federation, study.tables)
    scales = [Scale(key, study.federation.column(key)) for key in study.federation.keys]
    real = np.column_stack([s.encode(tables[s.key.party][s.key.column]) for s in scales])
    n = len(real)
    batch = min(BATCH, n)
    sigma = calibrate(study.epsilon, DEFAULT_DELTA, batch / n, steps)
    blocks = split_columns(study.federation)
    rows = train_and_generate(
        real, blocks, sigma, steps=steps, batch=batch, n_rows=study.rows_per_subject * n, seed=study.seed
    )
    made: dict[str, dict[str, pl.Series]] = {}
    for j, scale in enumerate(scales):
        made.setdefault(scale.key.party, {})[scale.key.column] = scale.decode(rows[:, j])
    person = replaced_epsilon(sigma, batch / n, steps * len(blocks), DEFAULT_DELTA)
    note = "(epsilon, delta) of the block itself, by DP-SGD"
    spent = Spent(study.epsilon, study.epsilon, person, note)
    return Outcome(spent, n, {party: pl.DataFrame(columns) for party, columns in made.items()})


def split_columns(federation: Federation) -> list[NDArray[np.int64]]:
    """Positions of each critic's columns; a party with the response alone joins the last one that has covariates."""
    owners = [key.party for key in federation.keys]
    alone = owners.count(federation.response.party) == 1
    if alone and len(set(owners)) > 1:
        last = [owner for owner in owners if owner != federation.response.party][-1]
        owners = [last if owner == federation.response.party else owner for owner in owners]
    return [np.flatnonzero(np.array(owners) == name) for name in dict.fromkeys(owners)]


@dataclass(frozen=True)
class Scale:
    """A column on [-1, 1] by its public range, and the way back."""

    key: ColumnKey
    column: Column

    @property
    def _range(self) -> tuple[float, float]:
        if self.column.categories is not None:
            return 0.0, max(len(self.column.categories) - 1.0, 1.0)
        low, high = self.column.bounds or (0.0, 1.0)
        return float(low), float(high)

    def encode(self, values: pl.Series) -> Floats:
        low, high = self._range
        if self.column.categories is not None:
            places = {str(category): float(i) for i, category in enumerate(self.column.categories)}
            numbers = np.array([places[text] for text in values.cast(pl.String)])
        else:
            numbers = np.clip(values.to_numpy().astype(np.float64), low, high)
        return 2.0 * (numbers - low) / (high - low) - 1.0

    def decode(self, numbers: Floats) -> pl.Series:
        low, high = self._range
        values = low + (np.clip(numbers, -1.0, 1.0) + 1.0) / 2.0 * (high - low)
        if self.column.kind == "continuous":
            return pl.Series(self.key.column, values)
        whole = np.rint(values).astype(np.int64)
        if self.column.categories is None:
            return pl.Series(self.key.column, whole)
        return pl.Series(self.key.column, self.column.categories).gather(whole)


# ---- privacy -------------------------------------------------------------------------------


def replaced_epsilon(sigma: float, rate: float, steps: int, delta: float) -> float:
    """Epsilon for replacing a row: Poisson-sampled Gaussian steps, a row taken out and another put in."""
    import dp_accounting as dp

    accountant = dp.rdp.RdpAccountant(orders=ORDERS)
    accountant.compose(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(sigma)), steps)
    epsilon = 0.0
    for _ in range(20):  # delta is shared with the other half, which e^epsilon magnifies
        renewed = float(accountant.get_epsilon(delta / (1.0 + exp(min(epsilon, 500.0)))))
        if renewed <= epsilon * (1.0 + 1e-9):
            break
        epsilon = renewed
    return 2.0 * epsilon


def calibrate(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The least noise multiplier (to 1 %) whose steps stay within (epsilon, delta) for a replaced row."""
    low, high = 0.1, 1.0
    while replaced_epsilon(high, rate, steps, delta) > epsilon:
        low, high = high, 2.0 * high
        if high > 1e4:
            raise MethodFailure("no noise multiplier below 10,000 gives this epsilon")
    while high / low > 1.01:
        middle = sqrt(low * high)
        low, high = (low, middle) if replaced_epsilon(middle, rate, steps, delta) <= epsilon else (middle, high)
    return high


# ---- training ------------------------------------------------------------------------------


def train_and_generate(
    real: Floats,
    blocks: list[NDArray[np.int64]],
    sigma: float,
    *,
    steps: int,
    batch: int,
    n_rows: int,
    seed: int,
) -> Floats:
    """(n_rows, p) generated rows on [-1, 1]; `sigma` is the noise in units of the clipping bound, 0 for none."""
    try:
        import torch
    except ImportError as error:
        raise MethodFailure("Vertigan needs torch: pip install 'verticopula[gan]'") from error
    torch.set_num_threads(1)
    dice = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        generator = torch.nn.Sequential(
            torch.nn.Linear(LATENT, HIDDEN),
            torch.nn.ReLU(),
            torch.nn.Linear(HIDDEN, HIDDEN),
            torch.nn.ReLU(),
            torch.nn.Linear(HIDDEN, real.shape[1]),
            torch.nn.Tanh(),
        )
        critics = [
            torch.nn.Sequential(
                torch.nn.Linear(block.size, CRITIC_HIDDEN), torch.nn.LeakyReLU(0.2), torch.nn.Linear(CRITIC_HIDDEN, 1)
            )
            for block in blocks
        ]
    learn = torch.optim.RMSprop(generator.parameters(), lr=RATE)
    data = torch.tensor(real, dtype=torch.float32)
    places = [torch.tensor(block) for block in blocks]
    for step in range(steps):
        with torch.no_grad():
            made = generator(torch.randn(batch, LATENT, generator=dice))
        for critic, place in zip(critics, places, strict=True):
            seen = np.flatnonzero(rng.random(len(real)) < batch / len(real))
            _critic_step(critic, data[seen][:, place], made[:, place], sigma, batch, dice)
        if step % CRITIC_STEPS == CRITIC_STEPS - 1:
            made = generator(torch.randn(batch, LATENT, generator=dice))
            loss = -sum(critic(made[:, place]).mean() for critic, place in zip(critics, places, strict=True))
            learn.zero_grad()
            loss.backward()
            learn.step()
    with torch.no_grad():
        return np.asarray(generator(torch.randn(n_rows, LATENT, generator=dice)).double().numpy())


def _critic_step(critic, real, made, sigma: float, batch: int, dice) -> None:  # type: ignore[no-untyped-def]
    """One DP-SGD step of a party's critic: real rows' gradients clipped one by one, summed and noised."""
    import torch
    from torch.func import functional_call, grad, vmap

    parameters: Mapping[str, torch.Tensor] = {name: p.detach() for name, p in critic.named_parameters()}

    def answer(weights, row):  # type: ignore[no-untyped-def]
        return functional_call(critic, weights, (row[None],)).squeeze()

    def answers(weights, rows):  # type: ignore[no-untyped-def]
        return functional_call(critic, weights, (rows,)).mean()

    # Generated rows are no one's data: their gradient needs neither clipping nor noise.
    fake = grad(answers)(dict(parameters), made)
    each = vmap(grad(answer), in_dims=(None, 0))(dict(parameters), real) if len(real) else None
    norms = None if each is None else torch.sqrt(sum(g.reshape(len(real), -1).pow(2).sum(dim=1) for g in each.values()))
    with torch.no_grad():
        for name, weight in critic.named_parameters():
            total = torch.zeros_like(weight)
            if each is not None and norms is not None:
                shrink = (CLIP / norms.clamp(min=1e-12)).clamp(max=1.0)
                total = torch.tensordot(shrink, each[name], dims=1)
            total = total + sigma * CLIP * torch.randn(weight.shape, generator=dice)
            weight += 10.0 * RATE * (total / batch - fake[name])
            weight.clamp_(-WEIGHT_BOUND, WEIGHT_BOUND)
