"""Small studies for tests."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tests.study_parties import make_study_party
from verticopula import Federation, NotPrivateWarning, Synthesizer
from verticopula.data.column_encoding import EncodedColumn
from verticopula.data.table_source import federation_sources, load_all
from verticopula.data.tables import AlignedTable
from verticopula.privacy.noise import Noise, SecureNoise
from verticopula.privacy.policy import Policy
from verticopula.protocol.party.local_party import LocalParty
from verticopula.storage.ledger import Ledger
from verticopula.storage.vault import Vault

Floats = NDArray[np.float64]


class Said(NamedTuple):
    """What a command answered, its lines joined."""

    code: int
    out: str
    err: str


Call = Callable[..., Said]

CONTINUOUS = {"kind": "continuous", "bounds": [-8, 8]}


def make_federation(parties: Mapping[str, Mapping[str, Mapping[str, Any]]], **extra: Any) -> Federation:
    """From {party: {column: settings}}; the first column is the response."""
    first = next(iter(parties))
    return Federation.from_dict(
        {
            "name": "study",
            "response": f"{first}.{next(iter(parties[first]))}",
            **({"network": {"operator": "office"}} if len(parties) == 2 else {}),  # two need a third that computes
            "party": [
                {
                    "name": name,
                    **({"epsilon": extra[name]} if name in extra else {}),
                    "column": [{"name": column, **settings} for column, settings in columns.items()],
                }
                for name, columns in parties.items()
            ],
        }
    )


def all_required(federation: Federation, but: Collection[str] = ()) -> Federation:
    """The federation whose columns never have empty values, but for those named."""
    raw = federation.to_dict()
    for party in raw["party"]:
        party["column"] = [{**column, "required": column["name"] not in but} for column in party["column"]]
    return Federation.from_dict(raw)


def identify(vault: Vault, ids: Iterable[str]) -> str:
    """A vault's name of the table about these subjects: the one it has had, or a new one."""
    return vault.account(ids, {}).table


def make_tables(federation: Federation, values: Mapping[str, Sequence[Any] | Floats]) -> dict[str, pl.DataFrame]:
    """One frame per party from {column: values}; everybody is observed everywhere."""
    size = len(next(iter(values.values())))
    ids = [f"s{i}" for i in range(size)]
    return {
        party.name: pl.DataFrame({"subject_id": ids, **{c.name: values[c.name] for c in party.columns}})
        for party in federation.parties
    }


def tables_in(federation: Federation, folder: Path) -> dict[str, pl.DataFrame]:
    """The tables of all parties, from files as a command finds them."""
    sources = federation_sources([party.name for party in federation.parties], str(folder))
    return {name: loaded.table for name, loaded in load_all(sources.values()).items()}


def unit_of(method: str) -> dict[str, Any]:
    """The unit with the least noise that a method has, for tests of all methods."""
    return {"unit": "person", "delta": 1e-6} if method == "strict" else {"unit": "variable"}


def fit_seeded(federation: Federation, tables: Mapping[str, pl.DataFrame], seed: int, **settings: Any) -> Synthesizer:
    """A seeded fit without its (deserved) warning, by `vcds` where no method is named."""
    settings.setdefault("method", "vcds")
    settings |= unit_of(settings["method"]) if settings.get("unit") == "variable" else {}
    synthesizer = Synthesizer(federation, random_state=seed, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        return synthesizer.fit(tables)


def make_party(
    federation: Federation,
    name: str,
    values: Mapping[str, Sequence[float] | Floats],
    *,
    noise: Noise | None = None,
    ledger: Ledger | None = None,
    policy: Policy | None = None,
) -> LocalParty:
    """A party whose columns are all observed."""
    party = federation.party(name)
    columns = {
        c.name: EncodedColumn(np.asarray(values[c.name], dtype=np.float64), np.ones(len(values[c.name]), dtype=bool))
        for c in party.columns
    }
    return make_study_party(
        AlignedTable(party, columns),
        noise=SecureNoise() if noise is None else noise,
        ledger=Ledger() if ledger is None else ledger,
        policy=Policy() if policy is None else policy,
    )


def correlated_normals(correlation: Floats, n: int, rng: np.random.Generator) -> Floats:
    """(n, q) latents."""
    return rng.standard_normal((n, correlation.shape[0])) @ np.linalg.cholesky(correlation).T
