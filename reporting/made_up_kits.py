"""Kits of a made-up bank and agency, for tests and pictures: vault, history and requests, without running a study."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from verticopula.data.column_encoding import EncodedColumn
from verticopula.network.kit.provisioning import provision
from verticopula.privacy.policy import Policy
from verticopula.privacy.policy_file import remember_rules
from verticopula.privacy.release import Release
from verticopula.schema.federation import Federation
from verticopula.schema.methods import REFINED
from verticopula.storage.steward_requests import LeavingEntry, RequestContent, UnitPrice
from verticopula.storage.vault import Vault

BEGIN = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
COLUMNS = ("turnover", "sector")
FEDERATION = {
    "name": "loans",
    "response": "agency.default",
    "network": {"host": "localhost", "port": 8102},
    "party": [
        {
            "name": "bank",
            "column": [
                {"name": "turnover", "kind": "continuous", "bounds": [1, 1e9], "scale": "log"},
                {"name": "sector", "kind": "nominal", "categories": ["11", "21", "22"]},
            ],
        },
        {"name": "agency", "column": [{"name": "default", "kind": "binary"}]},
    ],
}


def make_kits(folder: Path) -> Path:
    """The kits of a bank and an agency."""
    provision(Federation.from_dict(FEDERATION), folder / "kits")
    return folder / "kits"


def release(
    study: str,
    column: str,
    epsilon: float,
    days: float,
    n_subjects: int = 1_200,
    begin: datetime = BEGIN,
    **more: object,
) -> Release:
    """One release of ranks, so many days after the beginning."""
    time = (begin + timedelta(days=days)).isoformat(timespec="seconds")
    entry = Release(
        time,
        study,
        "bank",
        column,
        "ranks",
        "noisy ranks",
        n_subjects,
        epsilon,
        epsilon,
        n_subjects - 1,
        "secure",
        "public",
    )
    return replace(entry, **more)  # type: ignore[arg-type]


def fill_vault(folder: Path, entries: list[Release], policy: Policy | None = None, people: str = "person") -> str:
    """A vault that knows one table, its policy and these releases; the table's name."""
    rng = np.random.default_rng(5)
    columns = {name: EncodedColumn(rng.standard_normal(60), np.ones(60, dtype=bool)) for name in COLUMNS}
    with Vault.open(folder) as vault:
        account = vault.account([f"{people}-{i}" for i in range(60)], columns)
        if policy is not None:
            remember_rules(vault.studies, account.table, policy.rules(), "bank.toml")
        vault.ledger.append(
            [replace(e, table=account.table, content=account.columns.get(e.column, "")) for e in entries]
        )
    return account.table


def content(study: str = "loans-winter", **more: object) -> RequestContent:
    """A request for releases as `join` makes one."""
    whole = RequestContent(
        "bank",
        study,
        "releases",
        lead="lead",
        requester="Dr. Ada Lovelace, Agency",
        contact="ada@agency.example",
        purpose="Which sectors default more often?",
        use="A working paper; tables stay at the agency.",
        method=REFINED.name,
        alignment="hash",
        proposal="p" * 64,
        leaves=(
            LeavingEntry("turnover", "ranks", "noisy ranks", 1_200, "flipped comparisons", "0.5 per comparison"),
            LeavingEntry("sector", "marginal", "noisy counts", 1_180, "Laplace noise", "0.5 per value"),
        ),
        prices=(
            UnitPrice("variable", 1.5, 0.5, 2.0),
            UnitPrice("client", 3.0, 0.75, 3.75, 4.0, 1.0, 0.25),
            UnitPrice("block", 410.0, 130.0, 540.0, 5_000.0, 4_500.0, 4_370.0),
            UnitPrice("person", 410.0, 130.0, 540.0),
        ),
        delta=1e-6,
        table="t" * 64,
        policy="q" * 64,
    )
    return replace(whole, **more)  # type: ignore[arg-type]
