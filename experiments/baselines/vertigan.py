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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log, sqrt

import numpy as np
import polars as pl
from numpy.typing import NDArray

from experiments.study import MethodFailure, Outcome, Spent, Study, keep_common
from verticopula.privacy.statement import DEFAULT_DELTA
from verticopula.schema import Column, ColumnKey, Federation

Floats = NDArray[np.float64]

STEPS = 200  # of every critic; the generator moves once in CRITIC_STEPS
CRITIC_STEPS = 2
BATCH = 128
LATENT, HIDDEN, CRITIC_HIDDEN = 8, 128, 48
MOST_CATEGORIES = 20  # a discrete column with more values is generated as a number and rounded
TEMPERATURE = 0.5  # of generated categories
SPREAD = 0.07  # of generated numbers around their scores, to begin with
CLIP = 1.0
WEIGHT_BOUND = 0.1  # of the critics' weights, as in the Wasserstein GAN
RATE = 1e-3
ORDERS = (*range(2, 64), 80, 128, 256, 512)  # of Rényi divergence; whole ones are quick to account for


def fit(study: Study, *, steps: int = STEPS) -> Outcome:
    """Tables of generated rows."""
    tables = keep_common(study.federation, study.tables)
    codings = [Coding(key, study.federation.column(key)) for key in study.federation.keys]
    real = [c.encode(tables[c.key.party][c.key.column]) for c in codings]
    n = len(real[0])
    batch = min(BATCH, n)
    sigma = calibrate(study.epsilon, DEFAULT_DELTA, batch / n, steps)
    blocks = split_columns(study.federation)
    rows = train_and_generate(
        real, blocks, sigma, steps=steps, batch=batch, n_rows=study.rows_per_subject * n, seed=study.seed
    )
    made: dict[str, dict[str, pl.Series]] = {}
    for coding, numbers in zip(codings, rows, strict=True):
        made.setdefault(coding.key.party, {})[coding.key.column] = coding.decode(numbers)
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
class Coding:
    """A column as the networks see it: a number on [-1, 1] by its public range, or one indicator per category."""

    key: ColumnKey
    column: Column

    @property
    def _categories(self) -> tuple[str | int, ...]:
        """A count's values are categories too where they are no more than MOST_CATEGORIES."""
        if self.column.categories is not None:
            return tuple(self.column.categories)
        low, high = self.column.bounds or (0.0, 1.0)
        if self.column.kind == "continuous" or high - low >= MOST_CATEGORIES:
            return ()
        return tuple(range(int(low), int(high) + 1))

    def encode(self, values: pl.Series) -> Floats:
        """(n, 1) numbers, or (n, C) indicators."""
        if self._categories:
            places = {str(category): i for i, category in enumerate(self._categories)}
            return np.eye(len(places))[[places[text] for text in values.cast(pl.String)]]
        low, high = (float(bound) for bound in self.column.bounds or (0.0, 1.0))
        numbers = np.clip(values.to_numpy().astype(np.float64), low, high)
        return (2.0 * (numbers - low) / (high - low) - 1.0)[:, None]

    def decode(self, numbers: Floats) -> pl.Series:
        """The way back."""
        name = self.key.column
        if self._categories:
            return pl.Series(name, self._categories).gather(numbers.argmax(axis=1))
        low, high = (float(bound) for bound in self.column.bounds or (0.0, 1.0))
        values = low + (np.clip(numbers[:, 0], -1.0, 1.0) + 1.0) / 2.0 * (high - low)
        return pl.Series(name, values if self.column.kind == "continuous" else np.rint(values).astype(np.int64))


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
    real: Sequence[Floats],
    blocks: Sequence[NDArray[np.int64]],
    sigma: float,
    *,
    steps: int,
    batch: int,
    n_rows: int,
    seed: int,
) -> list[Floats]:
    """Generated columns, coded as the real ones; `sigma` is the noise in units of the clipping bound, 0 for none."""
    try:
        import torch
    except ImportError as error:
        raise MethodFailure("Vertigan needs torch: pip install 'verticopula[gan]'") from error
    torch.set_num_threads(1)
    dice = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)
    ends = np.cumsum([column.shape[1] for column in real])
    spans = [slice(end - column.shape[1], end) for end, column in zip(ends.tolist(), real, strict=True)]
    places = [torch.tensor(np.concatenate([np.arange(*spans[j].indices(ends[-1])) for j in block])) for block in blocks]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        generator = torch.nn.Sequential(
            torch.nn.Linear(LATENT, HIDDEN),
            torch.nn.ReLU(),
            torch.nn.Linear(HIDDEN, HIDDEN),
            torch.nn.ReLU(),
            torch.nn.Linear(HIDDEN, int(ends[-1])),
        )
        critics = [
            torch.nn.Sequential(
                torch.nn.Linear(len(place), CRITIC_HIDDEN), torch.nn.LeakyReLU(0.2), torch.nn.Linear(CRITIC_HIDDEN, 1)
            )
            for place in places
        ]

    spread = torch.nn.Parameter(torch.full((int(ends[-1]),), log(SPREAD)))

    def generate(count: int):  # type: ignore[no-untyped-def]
        scores = generator(torch.randn(count, LATENT, generator=dice))
        return _activate(scores, spread.exp(), spans, dice)

    learn = torch.optim.RMSprop([*generator.parameters(), spread], lr=RATE)
    data = torch.tensor(np.concatenate(real, axis=1), dtype=torch.float32)
    for step in range(steps):
        with torch.no_grad():
            made = generate(batch)
        for critic, place in zip(critics, places, strict=True):
            seen = np.flatnonzero(rng.random(len(data)) < batch / len(data))
            _critic_step(critic, data[seen][:, place], made[:, place], sigma, batch, dice)
        if step % CRITIC_STEPS == CRITIC_STEPS - 1:
            made = generate(batch)
            loss = -sum(critic(made[:, place]).mean() for critic, place in zip(critics, places, strict=True))
            learn.zero_grad()
            loss.backward()
            learn.step()
    with torch.no_grad():
        rows = generate(n_rows).double().numpy()
    return [np.asarray(rows[:, span]) for span in spans]


def _activate(scores, spread, spans: Sequence[slice], dice):  # type: ignore[no-untyped-def]
    """Every column by chance around its score: numbers between -1 and 1, categories by Gumbel's trick.

    Without chance of its own a column would be a function of the latents alone, and all columns of each other.
    """
    import torch

    uniform = torch.rand(scores.shape, generator=dice).clamp(1e-9, 1.0 - 1e-7)
    categories = (scores - torch.log(-torch.log(uniform))) / TEMPERATURE
    numbers = torch.tanh(scores + spread * torch.randn(scores.shape, generator=dice))
    parts = [
        numbers[:, span] if span.stop - span.start == 1 else torch.softmax(categories[:, span], dim=1) for span in spans
    ]
    return torch.cat(parts, dim=1)


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
