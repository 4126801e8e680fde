"""Vertigan: one global generator, one discriminator per party, differentially private gradients at the discriminators.

Jiang, Zhang, Zhou and Grossklags (2023), "Distributed GAN-based privacy-preserving publication of
vertically-partitioned data". The generator makes whole rows; party k's discriminator (a Wasserstein critic) sees only
its own columns of real and generated rows, and learns from gradients in which every real row is clipped and to whose
sum noise is added. The generator learns from the critics' answers alone, which is post-processing.

With a thousand subjects and a small epsilon there is information for little, so everything is as shallow as can be:

- A critic is linear in fixed features of its columns: first of their margins, then of their products with the response,
  which every party's critic sees beside its own columns (the parties would have to be given it, or to sum products
  under encryption; neither is simulated). The gradient over real rows is then the mean of their features, whatever the
  critic's weights are: it is asked for once, of all rows, and every later step reuses it. Asked for again with fresh
  noise, and composed, it would tell the same; from minibatches, less.
- The generator draws covariates one by one, since no critic looks at two of them together, and makes the response of
  them by a last layer with chance of its own.

`epsilon` is taken for unit `block`: replacing everything that a party holds about one person, at delta = 1e-6. The
response's block enters every critic, so their noise is that of all of them together; what a party's own block has left
goes to its margins. Clipping bounds and scales come from public ranges and from generated rows, never from real ones.
Needs `pip install 'verticopula[gan]'`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import pi, sqrt
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from experiments.study import MethodFailure, Outcome, Spent, Study, keep_complete_cases
from verticopula.privacy.gaussian_dp import compose, gaussian_epsilon, mu_of
from verticopula.schema.columns import Column, ColumnKey
from verticopula.schema.defaults import DEFAULT_DELTA
from verticopula.schema.federation import Federation

Floats = NDArray[np.float64]
Tensor = Any  # torch is imported where it is needed, and is not installed everywhere

STEPS = 300  # of the generator in each of its two rounds
BATCH = 500  # generated rows in a step; real ones are all in the one gradient that is asked for
RATE = 0.05  # falls to zero over a round
MEMORY = 0.9  # of the critics' weights from step to step
MOST_CATEGORIES = 10  # a count with more values is generated as a number and rounded
TEMPERATURE = 0.5  # of generated categories, where gradients pass through them
REACH = (
    5.0  # numbers are coded on [-REACH, REACH]: a public range of ten standard deviations makes one of them the unit
)
FREQUENCY = 0.8 * pi / REACH  # of the margins' waves: less than one over the range, so that no two places look the same
RESPONSE_MARGIN = 0.1  # share of the response's budget (mu^2) that goes to its margin
FARTHEST = 3.0  # where standardised values are cut before they are multiplied
LEAST_DEVIATION = 0.2  # by which values are standardised: a small one may be noise
LARGEST_WEIGHTS = 1.0  # norm of the response's weights, in deviations of its chance: at most half of it is explained
SAMPLE = 20_000  # generated rows by which the second round's critics standardise


def fit(study: Study, *, steps: int = STEPS) -> Outcome:
    """Tables of generated rows."""
    tables = keep_complete_cases(study).tables
    codings = [ColumnCoding(key, study.federation.column(key)) for key in study.federation.keys]
    real = [c.encode(tables[c.key.party][c.key.column]) for c in codings]
    n = len(real[0])
    budget = Budget.split(study.federation, mu_of(study.epsilon, DEFAULT_DELTA))
    rows = train_and_generate(
        codings,
        real,
        study.federation.response,
        budget,
        steps=steps,
        n_rows=study.rows_per_subject * n,
        seed=study.seed,
    )
    made: dict[str, dict[str, pl.Series]] = {}
    for coding, numbers in zip(codings, rows, strict=True):
        made.setdefault(coding.key.party, {})[coding.key.column] = coding.decode(numbers)
    note = "(epsilon, delta) of the block itself, by noise on clipped gradients"
    spent = Spent(study.epsilon, study.epsilon, gaussian_epsilon(budget.person, DEFAULT_DELTA), note)
    return Outcome(spent, n, {party: pl.DataFrame(columns) for party, columns in made.items()})


@dataclass(frozen=True)
class ColumnCoding:
    """A column as the networks see it: a number on [-REACH, REACH] by its public range, or indicators of categories."""

    key: ColumnKey
    column: Column

    @property
    def categories(self) -> tuple[str | int, ...]:
        """A count's values are categories too where they are no more than MOST_CATEGORIES; none for a number."""
        if self.column.categories is not None:
            return tuple(self.column.categories)
        low, high = self.column.bounds or (0.0, 1.0)
        if self.column.kind == "continuous" or high - low >= MOST_CATEGORIES:
            return ()
        return tuple(range(int(low), int(high) + 1))

    @property
    def width(self) -> int:
        return len(self.categories) or 1

    @property
    def scores(self) -> Floats:
        """(width, S) that turn coded cells into what is multiplied: places in an order, or indicators where none is."""
        if self.column.kind == "nominal":
            return np.eye(self.width)
        return np.arange(1.0, self.width + 1.0)[:, None]

    def encode(self, values: pl.Series) -> Floats:
        """(n, 1) numbers, or (n, C) indicators."""
        if self.categories:
            places = {str(category): i for i, category in enumerate(self.categories)}
            return np.eye(len(places))[[places[text] for text in values.cast(pl.String)]]
        low, high = (float(bound) for bound in self.column.bounds or (0.0, 1.0))
        numbers = np.clip(values.to_numpy().astype(np.float64), low, high)
        return (REACH * (2.0 * (numbers - low) / (high - low) - 1.0))[:, None]

    def decode(self, numbers: Floats) -> pl.Series:
        """The way back."""
        name = self.key.column
        if self.categories:
            return pl.Series(name, self.categories).gather(numbers.argmax(axis=1))
        low, high = (float(bound) for bound in self.column.bounds or (0.0, 1.0))
        values = low + (np.clip(numbers[:, 0] / REACH, -1.0, 1.0) + 1.0) / 2.0 * (high - low)
        return pl.Series(name, values if self.column.kind == "continuous" else np.rint(values).astype(np.int64))


# ---- privacy -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Budget:
    """Gaussian privacy (mu) of a replaced row in each answer about real rows.

    Attributes
    ----------
    margins : of each party's critic of margins
    products : of every party's critic of products with the response
    n_products : how many of these there are, which the response's block enters all
    """

    margins: Mapping[str, float]
    products: float
    n_products: int

    @classmethod
    def split(cls, federation: Federation, mu: float) -> Budget:
        """No block's answers compose to more than mu, and every block's to just mu."""
        owner = federation.response.party
        n_products = len(split_columns(federation))
        products = mu * sqrt((1.0 - RESPONSE_MARGIN) / max(n_products, 1))
        margins = {key.party: sqrt(mu**2 - products**2) for key in federation.keys}
        return cls(margins | {owner: mu * sqrt(RESPONSE_MARGIN)}, products, n_products)

    @property
    def person(self) -> float:
        """Of all answers together."""
        return compose([*self.margins.values(), *[self.products] * self.n_products])


def split_columns(federation: Federation) -> dict[str, list[int]]:
    """Positions of every party's covariates; a party that has none but the response needs no critic of products."""
    found: dict[str, list[int]] = {}
    for place, key in enumerate(federation.keys):
        if key != federation.response:
            found.setdefault(key.party, []).append(place)
    return found


# ---- training ------------------------------------------------------------------------------


def train_and_generate(
    codings: Sequence[ColumnCoding],
    real: Sequence[Floats],
    response: ColumnKey,
    budget: Budget,
    *,
    steps: int,
    n_rows: int,
    seed: int,
) -> list[Floats]:
    """Generated columns, coded as the real ones."""
    try:
        import torch
    except ImportError as error:
        raise MethodFailure("Vertigan needs torch: pip install 'verticopula[gan]'") from error
    torch.set_num_threads(1)
    dice = torch.Generator().manual_seed(seed)
    data = torch.tensor(np.concatenate(real, axis=1), dtype=torch.float32)
    features = CodedFeatures(codings, response)
    generator = Generator(features)

    margins, _ = _ask(features.margins(data), features.margin_places, features.margin_norms, budget.margins, dice)
    _train(generator, features.margins, margins, [generator.place, generator.spread], steps, dice)

    scale = generator.scale = Scale.of(features, generator.draw(SAMPLE, dice).detach())
    spent = dict.fromkeys(features.product_places, budget.products)
    products, noise = _ask(features.products(data, scale), features.product_places, features.product_norms, spent, dice)
    # How large the noise is is public: products are shrunk by its share in them (James and Stein). Otherwise the
    # response would follow the covariates the more closely the less is known about it.
    products = products * max(0.0, 1.0 - noise / max(float(products @ products), 1e-12))
    own = features.margin_places[response.party]

    def seen(rows: Tensor) -> Tensor:
        return torch.cat([features.products(rows, scale), features.margins(rows)[:, own]], dim=1)

    _train(generator, seen, torch.cat([products, margins[own]]), [generator.place, generator.weight], steps, dice)
    rows = generator.draw(n_rows, dice).detach().double().numpy()
    return [np.asarray(rows[:, span]) for span in features.spans]


class CodedFeatures:
    """What the critics see of rows whose coded columns stand side by side.

    Attributes
    ----------
    spans : where each column stands
    margin_places, product_places : by party, which features are its critics'
    margin_norms, product_norms : what no row's features of that party exceed, whatever stands in it
    """

    def __init__(self, codings: Sequence[ColumnCoding], response: ColumnKey) -> None:
        import torch

        ends = np.cumsum([c.width for c in codings]).tolist()
        self.spans = [slice(end - c.width, end) for end, c in zip(ends, codings, strict=True)]
        self.width: int = ends[-1]
        pairs = list(zip(codings, self.spans, strict=True))
        alike: dict[int, list[list[int]]] = {}
        for coding, span in pairs:
            if coding.categories:
                alike.setdefault(coding.width, []).append([*range(span.start, span.stop)])
        self.numbers = torch.tensor([s.start for c, s in pairs if not c.categories], dtype=torch.long)
        self.categories = [
            torch.tensor(places) for places in alike.values()
        ]  # (columns, C), columns of equal C together
        self._indicators = torch.tensor(
            [i for places in alike.values() for row in places for i in row], dtype=torch.long
        )
        parties = np.array([c.key.party for c in codings for _ in range(c.width)])
        owners = parties[torch.cat([self._indicators, self.numbers, self.numbers]).numpy()]
        columns = [c.key.party for c in codings]
        self.margin_places = {party: torch.tensor(np.flatnonzero(owners == party)) for party in dict.fromkeys(columns)}
        self.margin_norms = {party: sqrt(columns.count(party)) for party in self.margin_places}

        place = [c.key for c in codings].index(response)
        self.response, self.response_is_number = self.spans[place], not codings[place].categories
        self.response_score = torch.tensor(self._spread_scores(*pairs[place])[:, -1], dtype=torch.float32)
        rest = [pair for pair in pairs if pair[0].key != response]
        self.scores = torch.tensor(np.hstack([self._spread_scores(*pair) for pair in rest]), dtype=torch.float32)
        scored = np.array([c.key.party for c, _ in rest for _ in range(c.scores.shape[1])])
        self.product_places = {
            name: torch.tensor(np.flatnonzero(scored == name)) for name in dict.fromkeys(scored.tolist())
        }
        self.product_norms = {party: sqrt(len(places)) for party, places in self.product_places.items()}

    def _spread_scores(self, coding: ColumnCoding, span: slice) -> Floats:
        """(width, S) a column's scores, with zeros at all other columns."""
        scores = np.zeros((self.width, coding.scores.shape[1]))
        scores[span] = coding.scores
        return scores

    def margins(self, rows: Tensor) -> Tensor:
        """Indicators as they are, of a number its two waves: every column's features have norm 1."""
        import torch

        angles = FREQUENCY * rows[:, self.numbers]
        return torch.cat([rows[:, self._indicators], torch.cos(angles), torch.sin(angles)], dim=1)

    def products(self, rows: Tensor, scale: Scale) -> Tensor:
        """Standardised covariates times the standardised response, clipped row by row at each party."""
        import torch

        covariates = scale.covariates(rows, self).clamp(-FARTHEST, FARTHEST)
        response = (rows @ self.response_score - scale.response_mean) / scale.response_deviation
        product = covariates * response.clamp(-FARTHEST, FARTHEST)[:, None]
        clipped = torch.empty_like(product)
        for party, places in self.product_places.items():
            norms = product[:, places].norm(dim=1, keepdim=True).clamp(min=1e-9)
            clipped[:, places] = product[:, places] * (self.product_norms[party] / norms).clamp(max=1.0)
        return clipped


@dataclass(frozen=True)
class Scale:
    """Means and standard deviations of generated rows, by which generated and real ones are standardised."""

    mean: Tensor
    deviation: Tensor
    response_mean: float
    response_deviation: float

    @classmethod
    def of(cls, features: CodedFeatures, rows: Tensor) -> Scale:
        scores, response = rows @ features.scores, rows @ features.response_score
        deviation = max(float(response.std()), LEAST_DEVIATION)
        return cls(scores.mean(dim=0), scores.std(dim=0).clamp(min=LEAST_DEVIATION), float(response.mean()), deviation)

    def covariates(self, rows: Tensor, features: CodedFeatures) -> Tensor:
        return (rows @ features.scores - self.mean) / self.deviation


class Generator:
    """Covariates one by one, then the response: its own chance, and what standardised covariates add to it.

    `scale` is None in the first round, in which the response has its margin only.
    """

    def __init__(self, features: CodedFeatures) -> None:
        import torch

        self._features = features
        self.place = torch.zeros(features.width, requires_grad=True)
        self.spread = torch.zeros(features.width, requires_grad=True)
        self.weight = torch.zeros(features.scores.shape[1], requires_grad=True)
        self.scale: Scale | None = None

    def draw(self, count: int, dice: Any) -> Tensor:
        """(count, width) coded rows."""
        import torch

        features, numbers = self._features, self._features.numbers
        rows = torch.zeros(count, features.width)
        chance = torch.randn(count, len(numbers), generator=dice)
        rows[:, numbers] = self.place[numbers] + self.spread[numbers].exp() * chance
        for places in features.categories:
            rows[:, places] = _choose(self.place[places].expand(count, -1, -1), dice)
        if self.scale is None:
            return rows
        rows, span = rows.detach(), features.response
        signal = (self.scale.covariates(rows, features) @ self.weight)[:, None]
        if features.response_is_number:
            # Divided so that its margin stays what it was, whatever the weights are.
            mixed = (signal + torch.randn(count, 1, generator=dice)) / (1.0 + self.weight @ self.weight).sqrt()
            response = self.place[span] + self.spread[span].exp() * mixed
        else:
            signal = signal * pi / sqrt(3.0)  # in deviations of logistic chance
            response = _choose(self.place[span] + signal * torch.arange(span.stop - span.start), dice)
        return torch.cat([rows[:, : span.start], response, rows[:, span.stop :]], dim=1)

    def bound_weights(self) -> None:
        """Keep chance in the response: products that do not fit together would drive all of it out."""
        size = float(self.weight.detach().norm())
        self.weight.data *= min(1.0, LARGEST_WEIGHTS / max(size, 1e-12))


def _choose(scores: Tensor, dice: Any) -> Tensor:
    """Indicators of categories drawn by Gumbel's trick; gradients pass as if they were shares."""
    import torch

    uniform = torch.rand(scores.shape, generator=dice).clamp(1e-9, 1.0 - 1e-7)
    soft = torch.softmax((scores - torch.log(-torch.log(uniform))) / TEMPERATURE, dim=-1)
    hard = torch.nn.functional.one_hot(soft.argmax(dim=-1), soft.shape[-1])
    return hard + soft - soft.detach()


def _ask(
    features: Tensor, places: Mapping[str, Tensor], norms: Mapping[str, float], mus: Mapping[str, float], dice: Any
) -> tuple[Tensor, float]:
    """The critics' gradients over all real rows, noised party by party, and the noise's expected sum of squares.

    A row that is replaced moves the sum of a party's features by twice their norm at most.
    """
    import torch

    answer, noise = features.mean(dim=0), 0.0
    for party, mine in places.items():
        deviation = 2.0 * norms[party] / mus[party] / len(features)
        answer[mine] += deviation * torch.randn(len(mine), generator=dice)
        noise += deviation**2 * len(mine)
    return answer, noise


def _train(
    generator: Generator,
    features: Callable[[Tensor], Tensor],
    real: Tensor,
    parameters: Sequence[Tensor],
    steps: int,
    dice: Any,
) -> None:
    """Critics and generator step by step against each other, all of it post-processing of `real`.

    A linear critic whose weights' squares are charged wants to be the difference of real and generated features; it
    moves there with MEMORY of where it was, since generated rows are few.
    """
    import torch

    learn = torch.optim.Adam(parameters, lr=RATE)
    fade = torch.optim.lr_scheduler.LambdaLR(learn, lambda step: 1.0 - step / steps)
    critic = torch.zeros_like(real)
    for _ in range(steps):
        made = features(generator.draw(BATCH, dice)).mean(dim=0)
        learn.zero_grad()
        (-(critic @ made)).backward()
        learn.step()
        fade.step()
        generator.bound_weights()
        critic = MEMORY * critic + (1.0 - MEMORY) * (real - made.detach())
