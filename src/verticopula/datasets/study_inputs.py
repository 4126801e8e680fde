"""An example study as files, so that commands can be tried on them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from verticopula.schema.federation import Federation


def write_inputs(federation: Federation, tables: Mapping[str, pl.DataFrame], folder: Path) -> None:
    """The federation file and every party's table, so that `check` and `run` can be tried on them."""
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    federation.to_toml(folder / "federation.toml")
    for name, table in tables.items():
        table.write_csv(data / f"{name}.csv")
