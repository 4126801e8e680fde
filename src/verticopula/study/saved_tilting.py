"""A tilted copula, or one for each class of the response, as plain values and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import VerticopulaError
from verticopula.schema.columns import ColumnKey
from verticopula.stats.copula import FittedCopula, Layout
from verticopula.stats.tilted_ranks.class_tilting import ClassMixture
from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.tilted_model import Pair, TiltedCopula
from verticopula.stats.tilting.tilted_study import TiltedStudyCopula

Floats = NDArray[np.float64]

_MOST_CELLS = 255  # a row holds its cells in bytes


def tilted_to_dict(copula: TiltedStudyCopula) -> dict[str, Any]:
    """Cells, latents and tables; margins and names stand elsewhere in the file."""
    model = copula.model
    return {
        "columns": [
            {
                "groups": column.groups.tolist(),
                "probabilities": column.probabilities.tolist(),
                "ordered": column.ordered,
                "empty": column.empty,
                "tilt": tilt.tolist(),
            }
            for column, tilt in zip(model.columns, model.tilts, strict=True)
        ],
        "latent_of": model.latent_of.tolist(),
        "correlation": model.correlation.tolist(),
        "tables": [
            {"pair": list(pair), "theta": theta.tolist(), "target": copula.targets[pair].tolist()}
            for pair, theta in model.tables.items()
        ],
        "shifts": [{"column": j, "covariance": own.tolist()} for j, own in model.shifts.items()],
    }


def tilted_from_dict(copula: FittedCopula, raw: Mapping[str, Any]) -> TiltedStudyCopula:
    """What `tilted_to_dict` wrote, checked; VerticopulaError if it does not fit the study's columns.

    Parameters
    ----------
    copula : margins and names
    """
    columns = tuple(
        PooledColumn(
            np.array(column["groups"], dtype=np.int64),
            np.array(column["probabilities"], dtype=np.float64),
            bool(column["ordered"]),
            bool(column["empty"]),
        )
        for column in raw["columns"]
    )
    tilts = tuple(np.array(column["tilt"], dtype=np.float64) for column in raw["columns"])
    q = len(raw["correlation"])
    correlation = np.array(raw["correlation"], dtype=np.float64).reshape(q, q)
    tables = {tuple(table["pair"]): np.array(table["theta"], dtype=np.float64) for table in raw["tables"]}
    targets = {tuple(table["pair"]): np.array(table["target"], dtype=np.float64) for table in raw["tables"]}
    latent_of = np.array(raw["latent_of"], dtype=np.int64)
    shifts = {
        int(own["column"]): np.array(own["covariance"], dtype=np.float64).reshape(-1, q)
        for own in raw.get("shifts", ())
    }
    model = TiltedCopula(columns, latent_of, correlation, tilts, tables, shifts)
    if not _fits(copula, model, targets):
        raise VerticopulaError("the saved study's cells or tables do not fit its columns")
    return TiltedStudyCopula(copula.layout, copula.margins, copula.correlation, model, targets)


def classes_to_dict(mixture: ClassMixture) -> dict[str, Any]:
    """The response, its classes' shares and their models; every class's margins stand in its cells."""
    return {
        "response": [mixture.response.party, mixture.response.column],
        "shares": mixture.shares.tolist(),
        "models": [tilted_to_dict(model) for model in mixture.models],
    }


def classes_from_dict(copula: FittedCopula, raw: Mapping[str, Any]) -> ClassMixture:
    """What `classes_to_dict` wrote, checked; VerticopulaError if it does not fit the study's columns.

    Parameters
    ----------
    copula : margins and names
    """
    response, shares = ColumnKey(*raw["response"]), np.array(raw["shares"], dtype=np.float64)
    keys = [key for key in copula.layout.keys if key != response]
    sizes = {len(model["columns"]) for model in raw["models"]}
    known = copula.margins[response].probabilities.size if response in copula.layout.keys else 0
    whole = np.isfinite(shares).all() and (shares >= 0.0).all() and shares.sum() > 0.0
    if sizes != {len(keys)} or shares.shape != (known,) or len(raw["models"]) != known or not whole:
        raise VerticopulaError("the saved study's classes do not fit its response")
    layout = Layout.of({key: copula.margins[key].column for key in keys})
    models = []
    for model in raw["models"]:
        margins = {
            key: replace(copula.margins[key], probabilities=np.array(column["probabilities"], dtype=np.float64))
            for key, column in zip(keys, model["columns"], strict=True)
        }
        plain = FittedCopula(layout, margins, np.eye(len(layout.labels)))
        if any(margins[key].probabilities.size != copula.margins[key].probabilities.size for key in keys):
            raise VerticopulaError("the saved study's cells or tables do not fit its columns")
        models.append(tilted_from_dict(plain, model))
    return ClassMixture(copula.layout, copula.margins, copula.correlation, response, shares, tuple(models))


def _fits(copula: FittedCopula, model: TiltedCopula, targets: Mapping[Pair, Floats]) -> bool:
    """Whether every cell, latent and table is where the others expect it: rows are drawn by compiled code."""
    columns, p, q = model.columns, len(copula.layout.keys), len(model.correlation)
    if len(columns) != p or model.latent_of.shape != (p,) or model.correlation.shape != (q, q):
        return False
    numbers = [model.correlation, *model.tilts, *model.tables.values(), *targets.values(), *model.shifts.values()]
    if not all(np.isfinite(values).all() for values in numbers):
        return False
    held = model.latent_of[model.latent_of >= 0]
    if sorted(held.tolist()) != list(range(q)) or (model.latent_of < -1).any():
        return False
    for column, tilt, key in zip(columns, model.tilts, copula.layout.keys, strict=True):
        n = copula.margins[key].probabilities.size
        cells = column.probabilities
        if column.groups.shape != cells.shape or cells.size not in (n, n + 1) or not (cells >= 0.0).all():
            return False
        if set(column.groups.tolist()) != set(range(column.n_cells)) or column.n_cells > _MOST_CELLS:
            return False
        if tilt.shape != (column.n_cells,) or not np.isfinite(cells).all() or column.n_filled < 1:
            return False
    for j, own in model.shifts.items():
        if not 0 <= j < p or model.latent_of[j] >= 0 or own.shape != (columns[j].n_cells, q):
            return False
    for (a, b), theta in model.tables.items():
        if not 0 <= a < b < p or theta.shape != (columns[a].n_cells, columns[b].n_cells):
            return False
        if targets[a, b].shape != theta.shape or not (targets[a, b] >= 0.0).all():
            return False
    return True
