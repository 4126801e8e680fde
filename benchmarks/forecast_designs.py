"""Studies with a known truth on which forecasts are judged, and others on which they may be developed.

`FIRST_TEN` and `SECOND_TEN` were held out once; what they showed has led to changes, so they can judge nothing any
more. `HELD_OUT` was written after these changes and before anything was run on it. `TUNING` was there from the start
for looking at.
What a design knows and the forecast does not: the margins' shapes, the correlations and which columns drive who is
missing. What both know: the schema, N, the shares observed, epsilon; and what somebody who plans a study can say
roughly (`facts_of`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import optimize, stats
from scipy.special import expit, ndtr

from verticopula.schema.columns import Column, ColumnKey
from verticopula.schema.federation import Federation
from verticopula.simulate.assumptions import respect_nominal
from verticopula.stats.copula import Layout
from verticopula.stats.nominal import choose_category, solve_thresholds

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Design:
    """One study.

    Attributes
    ----------
    parties : one word each, a letter per column: c continuous, l continuous on a log scale, k count up to
        15, w count up to 5,000, h count up to 60, o ordinal (4), s ordinal (7), n nominal (4), m nominal (3), b binary;
        the response is the first column of the first
    missing : share of subjects that each party has nothing about
    mechanism : `none`, `mcar`, or `mar` (blocks go missing with the first party's values)
    truth : `factor`, `dense` (no structure), `toeplitz`, `blocks`, `general` (one factor behind everything) or `sparse`
        (a few strong pairs)
    strength : about the root mean square correlation
    pulls : log odds of presence per standard deviation of the first party's first and last latent, under `mar`
    alternating : the sign of the pulls changes from party to party
    """

    name: str
    n_subjects: int
    parties: tuple[str, ...]
    epsilon: float
    unit: str
    truth: str
    strength: float
    missing: tuple[float, ...] = ()
    mechanism: str = "none"
    pulls: tuple[float, float] = (1.2, 0.8)
    alternating: bool = True

    @property
    def n_columns(self) -> int:
        return sum(len(word) for word in self.parties)

    @property
    def observed(self) -> dict[str, float]:
        """Share of subjects that each party knows: public."""
        shares = self.missing or (0.0,) * len(self.parties)
        return {f"p{k}": 1.0 - share for k, share in enumerate(shares)}

    @property
    def method(self) -> str:
        """What the documentation recommends for such data."""
        return "refined" if self.mechanism == "mar" else "vcds"

    def federation(self) -> Federation:
        """The public schema."""
        parties = [
            {"name": f"p{k}", "column": [_describe(letter, i) for i, letter in enumerate(word)]}
            for k, word in enumerate(self.parties)
        ]
        network = {"operator": "office"}  # of two parties the coordinator is the third that computes
        return Federation.from_dict({"name": self.name, "response": "p0.x0", "network": network, "party": parties})


FIRST_TEN = (
    Design("a", 300, ("cb", "ck"), 4.0, "variable", "factor", 0.45),
    Design("b", 800, ("bcco", "kclb"), 8.0, "client", "toeplitz", 0.4, (0.0, 0.2), "mcar"),
    Design("c", 1_000, ("bcco", "nkcb", "cwlo"), 2.0, "variable", "dense", 0.1, (0.0, 0.3, 0.5), "mcar"),
    Design("d", 2_000, ("bccko", "cclbo", "nccbk", "wccob"), 1.0, "variable", "factor", 0.3, (0, 0.4, 0.4, 0.4), "mar"),
    Design("e", 3_000, ("cccbbokcbl", "ccckkonblc", "ccboccbwko"), 0.3, "variable", "blocks", 0.3),
    Design(
        "f", 5_000, ("bcc", "cck", "cbo", "lcn", "cokb"), 4.0, "client", "factor", 0.3, (0, 0.2, 0.4, 0.6, 0.7), "mar"
    ),
    Design("g", 8_000, ("cbcokccbcl",) * 4, 1.0, "client", "dense", 0.15, (0.0, 0.1, 0.1, 0.1), "mcar"),
    Design("h", 12_000, ("bccclokccb",) * 6, 2.0, "variable", "toeplitz", 0.15, (0, 0.1, 0.2, 0.3, 0.4, 0.5), "mar"),
    Design("i", 20_000, ("ccbcoklc", "ccbcokwc", "ccbcoklcn"), 0.5, "variable", "factor", 0.2, (0.0, 0.7, 0.3), "mcar"),
    Design("j", 20_000, ("bokbn", "obkob"), 0.3, "client", "blocks", 0.45, (0.0, 0.5), "mar"),
)

SECOND_TEN = (
    Design("k", 600, ("bccl", "ckoc"), 1.0, "variable", "general", 0.45),
    Design("l", 1_500, ("bcoc", "ckcl", "cbsc"), 6.0, "client", "sparse", 0.25, (0.0, 0.25, 0.45), "mcar"),
    Design("m", 2_500, ("bccckcl", "cclokbch"), 3.0, "variable", "toeplitz", 0.4, (0.0, 0.4), "mar", (1.0, 0.0)),
    Design(
        "n",
        4_000,
        ("bccs", "ckoc", "ccbl", "lcsm", "cchc"),
        2.0,
        "client",
        "blocks",
        0.3,
        (0, 0.1, 0.2, 0.3, 0.4),
        "mcar",
    ),
    Design(
        "o", 6_000, ("bcckolc",) * 4, 0.8, "variable", "factor", 0.25, (0, 0.2, 0.3, 0.4), "mar", (0.5, -0.7), False
    ),
    Design("p", 3_000, ("bcckc", "ccolc", "ccbhc"), 150.0, "block", "factor", 0.3),
    Design("q", 10_000, ("bokbs", "bhkob"), 1.0, "client", "general", 0.4, (0.0, 0.5), "mcar"),
    Design(
        "r",
        15_000,
        ("bccklocbc", "cchckolcb", "ccmcslbck"),
        4.0,
        "client",
        "blocks",
        0.25,
        (0, 0.3, 0.6),
        "mar",
        (0.9, 0.6),
    ),
    Design(
        "s", 30_000, ("cbchl", "ccokb", "ccscm", "lkccb"), 0.2, "variable", "dense", 0.2, (0.0, 0.6, 0.2, 0.4), "mcar"
    ),
    Design("t", 24_000, ("cccbbokccl", "chckoncblc"), 1.0, "client", "toeplitz", 0.25),
)

HELD_OUT = (
    Design("u", 400, ("bcck", "clo"), 10.0, "client", "factor", 0.3),
    Design("v", 900, ("ccbol", "cckbc"), 0.8, "variable", "toeplitz", 0.4, (0.0, 0.3), "mcar"),
    Design(
        "w", 2_000, ("bcc", "ckl", "cos", "ccb"), 5.0, "client", "general", 0.35, (0, 0.2, 0.4, 0.3), "mar", (0.8, 0.5)
    ),
    Design("x", 3_500, ("bcnck", "ccolh", "cbmck"), 1.5, "variable", "factor", 0.3, (0.0, 0.2, 0.35), "mcar"),
    Design("y", 5_000, ("bkohbl", "cokbcs"), 2.0, "variable", "dense", 0.25, (0.0, 0.35), "mar", (0.6, 0.6)),
    Design(
        "z",
        7_000,
        ("bcc", "cc", "kcl", "cbo", "chc", "lcs"),
        1.5,
        "client",
        "blocks",
        0.3,
        (0, 0.1, 0.3, 0.5, 0.2, 0.4),
        "mcar",
    ),
    Design("za", 2_000, ("bcck", "ccol", "cbhc"), 400.0, "person", "general", 0.3),
    Design(
        "zb",
        16_000,
        ("bcckolcn", "ccbhlcok", "cclcbsck"),
        3.0,
        "client",
        "sparse",
        0.25,
        (0, 0.25, 0.5),
        "mar",
        (1.0, -0.5),
        False,
    ),
    Design("zc", 40_000, ("bcckohl", "cclbscok"), 0.15, "variable", "factor", 0.35, (0.0, 0.5), "mcar"),
    Design("zd", 9_000, ("bcckolch", "ccbhlcok", "cclcbsck", "lccokbcc", "chcbccll"), 2.0, "client", "toeplitz", 0.25),
)

TUNING = (
    Design("t1", 500, ("bcc", "cok"), 2.0, "variable", "factor", 0.3, (0.0, 0.3), "mcar"),
    Design("t2", 1_500, ("bcccc", "ccobk", "nccl"), 4.0, "client", "dense", 0.15, (0.0, 0.2, 0.4), "mcar"),
    Design("t3", 4_000, ("bccoc", "ccckb", "lccnb"), 1.0, "variable", "factor", 0.25, (0.0, 0.5, 0.3), "mar"),
    Design("t4", 2_500, ("ccbcokc",) * 4, 0.5, "variable", "toeplitz", 0.25),
    Design("t5", 10_000, ("bcckoc", "ccbcwl"), 2.0, "client", "blocks", 0.3, (0.0, 0.6), "mar"),
)

DEVELOPMENT = (*FIRST_TEN, *SECOND_TEN)


# ---- drawing -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Truth:
    """What a design's tables are drawn from."""

    federation: Federation
    layout: Layout
    correlation: Floats
    margins: dict[ColumnKey, Any]


def draw_truth(design: Design, seed: int = 0) -> Truth:
    """The design's margins and correlation; the same for all its replications."""
    rng = np.random.default_rng([*design.name.encode(), seed])
    federation = design.federation()
    layout = Layout.of({key: federation.column(key) for key in federation.keys})
    margins = {key: _draw_margin(federation.column(key), rng) for key in federation.keys}
    return Truth(federation, layout, _draw_correlation(design, layout, rng), margins)


def draw_tables(design: Design, truth: Truth, rng: np.random.Generator) -> dict[str, pl.DataFrame]:
    """One table per party, with the design's blocks missing."""
    n = design.n_subjects
    latent = rng.standard_normal((n, truth.correlation.shape[0])) @ np.linalg.cholesky(truth.correlation).T
    seen = _draw_masks(design, truth, latent, rng)
    ids = pl.Series("subject_id", np.arange(n)).cast(pl.String)
    columns: dict[str, list[pl.Series]] = {party.name: [ids] for party in truth.federation.parties}
    for key, part in zip(truth.layout.keys, truth.layout.slices, strict=True):
        column = truth.federation.column(key)
        columns[key.party].append(_decode(column, truth.margins[key], latent[:, part]))
    return {name: pl.DataFrame(found).filter(pl.Series(seen[name])) for name, found in columns.items()}


def facts_of(design: Design, truth: Truth) -> dict[str, Any]:
    """What somebody who plans the study could say, as roughly as people say it.

    The typical size of the correlations and the categories' shares at their party to one digit, who is known to two
    parties to a twentieth, and how strongly presence depends on others' data to half a unit of log odds.
    """
    n, rng = 40_000, np.random.default_rng([*design.name.encode(), 99])
    latent = rng.standard_normal((n, truth.correlation.shape[0])) @ np.linalg.cholesky(truth.correlation).T
    seen = _draw_masks(replace(design, n_subjects=n), truth, latent, rng)
    shares = {}
    for key, part in zip(truth.layout.keys, truth.layout.slices, strict=True):
        column, margin = truth.federation.column(key), truth.margins[key]
        if column.categories is not None:
            found = _decode(column, margin, latent[seen[key.party], part])
            rough = np.array([max(_one_digit(float((found == c).mean())), 0.01) for c in column.categories])
            shares[key] = tuple(rough / rough.sum())
    free = np.triu(~truth.layout.nominal_blocks(), 1)
    facts: dict[str, Any] = {
        "typical_correlation": min(max(_one_digit(float(np.sqrt(np.mean(truth.correlation[free] ** 2)))), 0.05), 0.7),
        "shares": shares,
        "log_odds": 0.0,
    }
    if design.mechanism == "mar":
        first = [s.start for k, s in zip(truth.layout.keys, truth.layout.slices, strict=True) if k.party == "p0"]
        odds = latent[:, [first[0], first[-1]]] @ np.array(design.pulls)
        partial = [name for name, share in design.observed.items() if share < 1.0]
        facts["log_odds"] = max(round(2.0 * float(odds.std())) / 2.0, 0.5)
        facts["together"] = {
            (a, b): min(
                max(
                    round(20.0 * float(np.mean(seen[a] & seen[b]))) / 20.0,
                    design.observed[a] + design.observed[b] - 1,
                    0.01,
                ),
                design.observed[a],
                design.observed[b],
            )
            for j, b in enumerate(partial)
            for a in partial[:j]
        }
    return facts


def _one_digit(value: float) -> float:
    return float(f"{value:.1g}")


def true_cdf(column: Column, margin: Any, values: Floats) -> Floats:
    """True distribution function at values (codes for categories)."""
    if isinstance(margin, np.ndarray):
        return np.concatenate([[0.0], np.cumsum(margin)])[np.clip(np.floor(values).astype(int) + 1, 0, margin.size)]
    low, high = column.bounds or (0.0, 1.0)
    return np.where(values >= high, 1.0, np.where(values < low, 0.0, margin.cdf(values)))


def _describe(letter: str, index: int) -> dict[str, Any]:
    kinds: dict[str, dict[str, Any]] = {
        "c": {"kind": "continuous", "bounds": (-6.0, 6.0), "clamp": True},
        "l": {"kind": "continuous", "bounds": (0.01, 1e5), "scale": "log", "clamp": True},
        "k": {"kind": "count", "bounds": (0, 15), "clamp": True},
        "w": {"kind": "count", "bounds": (0, 5_000), "clamp": True},
        "h": {"kind": "count", "bounds": (0, 60), "clamp": True},
        "o": {"kind": "ordinal", "categories": ["1", "2", "3", "4"]},
        "s": {"kind": "ordinal", "categories": ["1", "2", "3", "4", "5", "6", "7"]},
        "n": {"kind": "nominal", "categories": ["r", "s", "t", "u"]},
        "m": {"kind": "nominal", "categories": ["r", "s", "t"]},
        "b": {"kind": "binary"},
    }
    return {"name": f"x{index}", **kinds[letter], "required": True}


def _draw_margin(column: Column, rng: np.random.Generator) -> Any:
    """A scipy distribution, or probabilities of the categories."""
    if column.kind == "binary":
        share = rng.uniform(0.1, 0.6)
        return np.array([1.0 - share, share])
    if column.categories is not None:
        return rng.dirichlet(np.full(len(column.categories), 5.0))
    if column.kind == "count":
        mean = 10.0 ** rng.uniform(0.2, 0.8) if (column.bounds or (0, 0))[1] < 100 else 10.0 ** rng.uniform(1.0, 2.5)
        return stats.nbinom(3.0, 3.0 / (3.0 + mean))
    if column.scale == "log":
        return stats.lognorm(s=rng.uniform(0.8, 2.0), scale=np.exp(rng.uniform(2.0, 5.0)))
    return [stats.norm(rng.uniform(-1, 1), 1.0), stats.t(4), stats.gamma(2.0, loc=-2.0)][int(rng.integers(3))]


def _draw_correlation(design: Design, layout: Layout, rng: np.random.Generator) -> Floats:
    q = len(layout.labels)
    size = design.strength
    if design.truth == "factor":
        loadings = rng.standard_normal((q, 3)) * np.sqrt(size / np.sqrt(3.0))
        loadings *= np.minimum(1.0, 0.9 / np.linalg.norm(loadings, axis=1))[:, None]
        matrix = loadings @ loadings.T
    elif design.truth == "dense":
        rows = rng.standard_normal((q, max(round(1.0 / size**2), 2)))
        rows /= np.linalg.norm(rows, axis=1)[:, None]
        matrix = rows @ rows.T
    elif design.truth == "toeplitz":
        order = rng.permutation(q)
        signs = rng.choice([-1.0, 1.0], q)
        base = {0.4: 0.75, 0.25: 0.8, 0.15: 0.7}[size]
        matrix = np.outer(signs, signs) * base ** np.abs(order[:, None] - order)
    elif design.truth == "general":
        loadings = rng.uniform(0.5, 1.0, q) * rng.choice([-1.0, 1.0], q) * np.sqrt(size / 0.6)
        matrix = np.outer(loadings, loadings)
    elif design.truth == "sparse":
        matrix = np.eye(q)
        for j, k in rng.permutation(q)[: q - q % 2].reshape(-1, 2):  # disjoint pairs, so that nothing needs repair
            matrix[j, k] = matrix[k, j] = rng.choice([-1.0, 1.0]) * rng.uniform(0.6, 0.9)
    else:
        group = rng.integers(0, 3, q)
        matrix = np.where(group[:, None] == group, 1.6 * size, 0.2 * size)
    np.fill_diagonal(matrix, 1.0)
    return respect_nominal(matrix, layout)


def _decode(column: Column, margin: Any, latent: Floats) -> pl.Series:
    if latent.shape[1] > 1:
        codes = choose_category(latent, solve_thresholds(margin))
    elif isinstance(margin, np.ndarray):
        codes = np.searchsorted(np.cumsum(margin)[:-1], ndtr(latent[:, 0]))
    else:
        low, high = column.bounds or (0.0, 1.0)
        values = np.clip(margin.ppf(ndtr(latent[:, 0])), low, high)
        return pl.Series(column.name, values.astype(np.int64) if column.kind == "count" else values)
    return pl.Series(column.name, column.categories).gather(codes)


def _draw_masks(design: Design, truth: Truth, latent: Floats, rng: np.random.Generator) -> dict[str, Bools]:
    masks = {}
    first = [s.start for k, s in zip(truth.layout.keys, truth.layout.slices, strict=True) if k.party == "p0"]
    pull = latent[:, [first[0], first[-1]]] @ np.array(design.pulls if design.mechanism == "mar" else (0.0, 0.0))
    for k, (name, share) in enumerate(design.observed.items()):
        if share == 1.0:
            masks[name] = np.ones(design.n_subjects, dtype=bool)
            continue
        odds = pull * (-1.0 if design.alternating else 1.0) ** k
        shift = optimize.brentq(lambda c, odds=odds, share=share: float(expit(odds + c).mean()) - share, -60, 60)
        masks[name] = rng.random(design.n_subjects) < expit(odds + shift)
    return masks
