"""Attacks on aligned rows, where row i was made from person i."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from verticopula.auditing.bounds.epsilon_bounds import two_sided
from verticopula.auditing.tables.encoded_rows import EncodedRows, nearest
from verticopula.auditing.tables.findings import Finding, normal_interval
from verticopula.auditing.tables.table_attacks import TABLE_ATTACK_TUNING
from verticopula.privacy.coins import flip_probability
from verticopula.schema.columns import ColumnKey


def attack_aligned(
    people: EncodedRows,
    rows: EncodedRows,
    epsilons: Mapping[ColumnKey, float],
    confidence: float,
    rng: np.random.Generator,
) -> Iterator[Finding]:
    """Row i was made from person i: how well does one find the other?

    `epsilons` are those of single coins, by column.
    """
    chosen = np.sort(rng.permutation(len(people))[: TABLE_ATTACK_TUNING.most_people])
    found = nearest(people.rows(chosen), rows)[0][:, 0]
    hits = int((found == chosen).sum())
    low, high = two_sided(hits, chosen.size, confidence)
    means = "Whoever knows your record finds the row that was made from you this often."
    chance = 1.0 / len(rows)
    yield Finding("own row found", hits / chosen.size, low, high, chance, chance, means)
    smooth = [k for k, column in enumerate(rows.columns) if not column.is_discrete]
    if smooth:
        yield _percentile_error(people, rows, smooth, epsilons, confidence)


def _percentile_error(
    people: EncodedRows,
    rows: EncodedRows,
    smooth: Sequence[int],
    epsilons: Mapping[ColumnKey, float],
    confidence: float,
) -> Finding:
    """Root mean square difference of a person's percentile and the row's, against the coins' own error."""
    squares, formula = [], []
    for k in smooth:
        seen = np.flatnonzero(~np.isnan(people.values[:, k]))
        if seen.size < 2:
            continue
        real, made = (np.argsort(np.argsort(part.values[seen, k])) / seen.size for part in (people, rows))
        squares.append((real - made) ** 2)
        theta = flip_probability(epsilons[people.keys[k]])
        formula.append(theta * (1.0 - theta) / seen.size / (1.0 - 2.0 * theta) ** 2)
    together = np.concatenate(squares)
    value = float(np.sqrt(together.mean()))
    error = float(together.std(ddof=1) / np.sqrt(together.size) / (2.0 * value)) if value > 0.0 else 0.0
    low, high = normal_interval(value, error, confidence)
    low = max(low, 0.0)
    expected = float(np.sqrt(np.mean(formula)))
    means = f"The row made from you tells your percentile to within {100 * value:.1f} points (the coins' own error: "
    means += f"{100 * expected:.1f})."
    details = {"sqrt(theta(1-theta)/n)/(1-2 theta)": expected}
    nothing = float(np.sqrt(1.0 / 6.0))  # two unrelated percentiles
    return Finding("percentile error of aligned rows", value, low, high, nothing, None, means, details, worse="lower")
