"""What a study file says: parties and columns as in any federation file, how to recode, which blocks to remove.

A study file is a federation file (`docs/`, `Federation.from_toml`) with two more sections::

    [recode.urban_rural]          # before anything else; values not named stay as they are
    empty = "unknown"             # what an empty cell becomes
    values = { "1" = "urban" }

    [[remove]]                    # one per party that is to lose blocks
    party = "bank"
    rate = 0.3                    # expected share of subjects without a block
    on = { "agency.approval_fy" = 1.0, "agency.default" = -0.5 }

`on` holds the weights of a logistic model in columns brought to mean 0 and standard deviation 1. These columns belong
to parties that lose nothing, so that blocks are missing at random.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from verticopula.errors import SettingsError
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Recoding:
    """How one column's raw values become those of the schema."""

    empty: str | None = None
    values: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Removal:
    """Which party loses blocks, how many, and what that depends on."""

    party: str
    rate: float
    on: Mapping[ColumnKey, float]


@dataclass(frozen=True)
class Description:
    """A study file."""

    federation: Federation
    recodings: Mapping[str, Recoding]
    removals: tuple[Removal, ...]


def read_description(path: Path) -> Description:
    """Check a study file; SettingsError or SchemaError says what is wrong."""
    try:
        raw: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path.name} cannot be read as a study file: {error}") from None
    recode, remove = raw.pop("recode", {}), raw.pop("remove", [])
    federation = Federation.from_dict(raw)
    removals = tuple(
        Removal(r["party"], float(r["rate"]), {ColumnKey.parse(k): float(w) for k, w in r.get("on", {}).items()})
        for r in remove
    )
    _check_removals(federation, removals)
    return Description(federation, {name: Recoding(**how) for name, how in recode.items()}, removals)


def _check_removals(federation: Federation, removals: tuple[Removal, ...]) -> None:
    if not removals:
        raise SettingsError("the study file has no [[remove]]: nothing would be missing")
    losing = {removal.party for removal in removals}
    names = {party.name for party in federation.parties}
    if not losing <= names or federation.response.party in losing:
        raise SettingsError("[[remove]] must name parties of the federation other than the response's")
    for removal in removals:
        if not 0.0 < removal.rate < 1.0:
            raise SettingsError(f"[[remove]] for {removal.party!r}: rate must lie between 0 and 1")
        for key in removal.on:
            if key not in federation.keys or key.party in losing:
                raise SettingsError(f"[[remove]] for {removal.party!r}: {key} is not a column that stays observed")


def read_rows(path: Path, description: Description) -> pl.DataFrame:
    """The CSV's columns that the study names, recoded; rows with an empty cell are left out."""
    federation = description.federation
    name = federation.id.name
    wanted = [name, *(key.column for key in federation.keys)]
    frame = pl.read_csv(path, infer_schema_length=None)
    absent = [column for column in wanted if column not in frame.columns]
    if absent:
        raise SettingsError(f"the CSV has no column {', '.join(map(repr, absent))}")
    return frame.select(recode(frame[column], description, column) for column in wanted).drop_nulls()


def recode(values: pl.Series, description: Description, column: str) -> pl.Series:
    """A column's values as the schema has them: categories as text, numbers as numbers."""
    how = description.recodings.get(column, Recoding())
    key = next((key for key in description.federation.keys if key.column == column), None)
    if key is None or description.federation.column(key).kind in ("continuous", "count"):
        return values
    texts = as_text(values)
    if how.values:
        texts = texts.replace(dict(how.values))
    return texts if how.empty is None else texts.fill_null(how.empty)


def as_text(values: pl.Series) -> pl.Series:
    """Whole numbers without a decimal point, however the CSV wrote them."""
    if values.dtype.is_float() and (values.drop_nulls() == values.drop_nulls().round()).all():
        values = values.cast(pl.Int64)
    return values.cast(pl.String)


def split_parties(federation: Federation, rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """One complete table per party."""
    name = federation.id.name
    return {party.name: rows.select(name, *(c.name for c in party.columns)) for party in federation.parties}


def remove_blocks(
    description: Description, tables: Mapping[str, pl.DataFrame], rng: np.random.Generator
) -> dict[str, pl.DataFrame]:
    """The same tables without the blocks that the study file removes."""
    left = dict(tables)
    for removal in description.removals:
        gone = rng.random(tables[removal.party].height) < chance_of_removal(removal, tables)
        left[removal.party] = tables[removal.party].filter(pl.Series(~gone))
    return left


def chance_of_removal(removal: Removal, tables: Mapping[str, pl.DataFrame]) -> Floats:
    """(n,) probabilities with the removal's rate as their mean."""
    n = tables[removal.party].height
    score = np.zeros(n)
    for key, weight in removal.on.items():
        values = tables[key.party][key.column].cast(pl.Float64).to_numpy()
        score += weight * (values - values.mean()) / max(float(values.std()), 1e-12)
    shift = brentq(lambda s: float(np.mean(expit(score + s))) - removal.rate, -50.0, 50.0)
    return np.asarray(expit(score + shift))
