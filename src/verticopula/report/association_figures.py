"""Correlations, their errors and repairs: expected from the fit, and realised where real tables are here."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from verticopula.report.report_data import ReportData, real_columns
from verticopula.schema.columns import ColumnKey
from verticopula.study.correlation_errors import errors_of_pairs, population_errors
from verticopula.study.tilted_pairs import find_tilting

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MOST_COMPARED_ROWS = 5_000
FEWEST_COMMON = 30
MOST_TILTED = 20


def describe_correlation(subject: ReportData) -> dict[str, Any]:
    """The heat map's numbers in thousandths, lower triangle row by row, latents party by party."""
    result, layout = subject.result, subject.layout
    q = len(layout.labels)
    lower = np.tril_indices(q, -1)
    spans: list[list[Any]] = []
    for index, key in enumerate(subject.latent_keys):
        if not spans or spans[-1][0] != key.party:
            spans.append([key.party, index, index])
        spans[-1][2] = index + 1
    names = [label[len(key.party) + 1 :] for label, key in zip(layout.labels, subject.latent_keys, strict=True)]
    return {
        "names": names,
        "parties": spans,
        "r": np.round(1000 * result.copula.correlation[lower]).astype(int).tolist(),
        "se": np.round(1000 * population_errors(subject.fitted)[lower]).astype(int).tolist(),
        "n": result.report.overlap[lower].tolist(),
    }


def strongest_pairs(subject: ReportData, most: int = 12) -> list[dict[str, Any]]:
    """The text alternative to the heat map: the largest correlations between different columns."""
    result, keys, labels = subject.result, subject.latent_keys, subject.layout.labels
    own = np.array([[a == b for b in keys] for a in keys])
    errors = population_errors(subject.fitted)
    size = np.where(own | ~np.tri(len(keys), k=-1, dtype=bool), -1.0, np.abs(result.copula.correlation))
    order = np.argsort(-size, axis=None)[:most]
    pairs = [np.unravel_index(i, size.shape) for i in order if size.flat[i] >= 0.0]
    return [
        {
            "first": labels[k],
            "second": labels[j],
            "r": float(result.copula.correlation[j, k]),
            "se": float(errors[j, k]),
            "n": int(result.report.overlap[j, k]),
        }
        for j, k in pairs
    ]


def party_blocks(subject: ReportData) -> dict[str, Any]:
    """Typical size of correlations within and between parties."""
    keys = subject.latent_keys
    names = list(dict.fromkeys(key.party for key in keys))
    party = np.array([names.index(key.party) for key in keys])
    off = np.array([[a != b for b in keys] for a in keys])
    size = np.abs(subject.result.copula.correlation)
    rows = []
    for a in range(len(names)):
        masks = [off & (party == a)[:, None] & (party == b)[None, :] for b in range(len(names))]
        rows.append([float(np.sqrt(np.mean(size[mask] ** 2))) if mask.any() else None for mask in masks])
    return {"names": names, "rows": rows}


def expected_errors(subject: ReportData) -> dict[str, Any]:
    """Standard errors of latent correlations before shrinking, against the population: a histogram and its middle."""
    labels = subject.layout.labels
    pairs, errors = errors_of_pairs(subject.fitted)
    if not errors.size:
        return {"pairs": 0}
    width = next(w for w in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05) if w * 25 > errors.max())
    counts, edges = np.histogram(errors, bins=width * np.arange(max(math.ceil(errors.max() / width + 1e-9) + 1, 6)))
    worst = np.argsort(-errors)[:8]
    return {
        "pairs": len(pairs),
        "median": float(np.median(errors)),
        "upper": float(np.quantile(errors, 0.9)),
        "largest": float(errors.max()),
        "mean_error": float(np.mean(errors) * np.sqrt(2.0 / np.pi)),  # of a normal error, without its sign
        "counts": counts.tolist(),
        "edges": [round(float(edge), 4) for edge in edges],
        "worst": [
            {
                "first": labels[pairs[i][1]],
                "second": labels[pairs[i][0]],
                "se": float(errors[i]),
                "n": int(subject.result.report.overlap[pairs[i]]),
            }
            for i in worst
        ],
    }


def party_pairs(subject: ReportData) -> list[dict[str, Any]]:
    """Of a strict study, per pair of parties: errors of a correlation, and whether the data support one."""
    strict = subject.result.strict
    if strict is None:
        return []
    names = strict.parties
    found = []
    for a in range(len(names)):
        for b in range(a, len(names)):
            if not strict.raw_error[a, b] > 0.0:
                continue  # no two ordered columns
            found.append(
                {
                    "first": names[a],
                    "second": names[b],
                    "raw": float(strict.raw_error[a, b]),
                    "expected": float(strict.expected_error[a, b]),
                    "realised": float(strict.realised_error[a, b]) if np.isfinite(strict.raw_error[a, b]) else None,
                    "supported": bool(strict.supported[a, b]),
                }
            )
    return found


def tilted_pairs(subject: ReportData) -> dict[str, Any]:
    """The pairs whose tables tilt the copula: those that add most, how many there are, and where they were read."""
    tilting = find_tilting(subject.fitted)
    return {
        "total": len(tilting.pairs),
        "opened": sum(pair.opened for pair in tilting.pairs),
        "shown": [asdict(pair) for pair in tilting.pairs[:MOST_TILTED]],
        "by_ranks": tilting.by_ranks,
        "classes": tilting.classes,
        "response": tilting.response,
    }


def realised_errors(subject: ReportData) -> dict[str, Any] | None:
    """Rank correlations of real columns against those of synthetic ones, for every pair that is here."""
    real = real_columns(subject)
    if not real:
        return None
    together = len(subject.real) == len(subject.federation.parties)
    drawn = subject.draw(MOST_COMPARED_ROWS)
    parties: list[list[ColumnKey]] = [list(real)]
    if not together:  # rows of different parties then belong to different subjects
        parties = [[key for key in real if key.party == name] for name in subject.real]
    points: list[list[Any]] = []
    for keys in parties:
        labels, values, observed = _indicators(
            subject, keys, {k: real[k].values for k in keys}, {k: real[k].observed for k in keys}
        )
        _, synthetic, filled = _indicators(subject, keys, drawn, {k: np.isfinite(drawn[k]) for k in keys})
        owner = [key for key, name in labels]
        found, common = rank_correlation(values[:MOST_COMPARED_ROWS], observed[:MOST_COMPARED_ROWS])
        made, _ = rank_correlation(synthetic, filled)
        enough = (common >= FEWEST_COMMON) & np.isfinite(found + made)
        points += [
            [labels[k][1], labels[j][1], round(float(found[j, k]), 3), round(float(made[j, k]), 3)]
            for j in range(len(labels))
            for k in range(j)
            if owner[j] != owner[k] and enough[j, k]
        ]
    if not points:
        return None
    difference = np.array([point[3] - point[2] for point in points])
    order = np.argsort(-np.abs(difference))[:8]
    return {
        "points": points,
        "mean": float(np.mean(np.abs(difference))),
        "rms": float(np.sqrt(np.mean(difference**2))),
        "upper": float(np.quantile(np.abs(difference), 0.9)),
        "worst": [dict(zip(("first", "second", "real", "synthetic"), points[i], strict=True)) for i in order],
    }


def _indicators(
    subject: ReportData, keys: list[ColumnKey], values: dict[ColumnKey, Floats], observed: dict[ColumnKey, Bools]
) -> tuple[list[tuple[ColumnKey, str]], Floats, Bools]:
    """Columns side by side; one indicator per category where they have no order."""
    names, columns, masks = [], [], []
    for key in keys:
        column = subject.federation.column(key)
        categories = column.categories or ()
        if column.kind == "nominal" and len(categories) > 2:
            names += [(key, f"{key}={category}") for category in categories]
            columns += [(values[key] == code).astype(np.float64) for code in range(len(categories))]
            masks += [observed[key]] * len(categories)
        else:
            names.append((key, str(key)))
            columns.append(values[key])
            masks.append(observed[key])
    return names, np.column_stack(columns), np.column_stack(masks)


def rank_correlation(values: Floats, observed: Bools) -> tuple[Floats, Floats]:
    """Spearman's, every pair from the rows that have both, and how many these are."""
    grades = np.zeros_like(values)
    for j in range(values.shape[1]):
        seen = observed[:, j]
        grades[seen, j] = rankdata(values[seen, j]) / max(int(seen.sum()), 1) - 0.5
    mask = observed.astype(np.float64)
    n, cross = mask.T @ mask, grades.T @ grades
    first, second = grades.T @ mask, (grades**2).T @ mask  # sums over rows that the other has too
    with np.errstate(divide="ignore", invalid="ignore"):
        covariance = cross / n - (first / n) * (first.T / n)
        variance = second / n - (first / n) ** 2
        return covariance / np.sqrt(variance * variance.T), n
