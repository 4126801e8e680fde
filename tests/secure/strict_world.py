"""Small strict studies: parties in this process, with or without vaults, and what they release."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tests.builders import identify
from tests.members import KEY
from tests.network.harness import small_federation, small_tables
from tests.secure.sums_world import Recorded
from tests.study_parties import make_study_party
from verticopula.data.tables import align_tables
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.mpc.sums_plan import SumsPlan, features_of_cells
from verticopula.privacy.budget import StudyBudget
from verticopula.privacy.noise import SecureNoise, SeededNoise
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.party.party_store import StudyStores
from verticopula.protocol.strict_method import StrictReleases, open_all
from verticopula.schema.federation import Federation
from verticopula.stats.strict.strict_plan import pool_cells
from verticopula.storage.known_tables import TableAccount
from verticopula.storage.vault import Vault
from verticopula.transport.delivery import Transport, drive

STUDY = "study"
FEDERATION = small_federation()
TABLES = small_tables(200)


def request(epsilon: float = 4.0, unit: str = "person", federation: Federation = FEDERATION) -> StudyBudget:
    return StudyBudget.build(federation, unit=unit, epsilon=epsilon, delta=1e-6)


def make_parties(
    tables: Mapping[str, pl.DataFrame] = TABLES,
    federation: Federation = FEDERATION,
    *,
    seed: int | None = None,
    vaults: Mapping[str, Vault] | None = None,
    own: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, LocalParty]:
    """All parties; `own` holds one party's own settings."""
    found = {}
    for name, table in align_tables(federation, dict(tables), need_overlap=False).items():
        settings: dict[str, Any] = {"noise": SecureNoise() if seed is None else SeededNoise(seed).derive(name)}
        if vaults is not None:
            vault = vaults[name]
            account = TableAccount(identify(vault, tables[name]["subject_id"].to_list()), {})
            settings |= {"ledger": vault.ledger, "stores": StudyStores.of(vault), "account": account}
        settings |= {"authenticity": shared_authenticity(KEY), "federation": federation}
        found[name] = make_study_party(table, **{**settings, **(own or {}).get(name, {})})
    return found


@contextlib.contextmanager
def open_vaults(folder: Path, names: tuple[str, ...] = tuple(TABLES)) -> Iterator[dict[str, Vault]]:
    with contextlib.ExitStack() as stack:
        yield {name: stack.enter_context(Vault.open(folder / name)) for name in names}


def release(
    parties: Mapping[str, LocalParty],
    transport: Transport | None = None,
    budget: StudyBudget | None = None,
    federation: Federation = FEDERATION,
) -> StrictReleases:
    """All rounds of a strict study of three parties, as bytes; without the fit."""
    rounds = open_all(federation, budget or request(federation=federation), STUDY, lambda *told: None, None)
    return drive(rounds, transport or Recorded(parties))


def same(first: StrictReleases, second: StrictReleases) -> bool:
    """Whether two studies have released the same."""
    pairs = zip(first.opened.tables, second.opened.tables, strict=True)
    sums = np.array_equal(first.opened.gram.matrix, second.opened.gram.matrix)
    sums = sums and all(a.pair == b.pair and np.array_equal(a.counts, b.counts) for a, b in pairs)
    margins = all(np.array_equal(m.probabilities, second.margins[k].probabilities) for k, m in first.margins.items())
    return sums and margins


def cells_of(party: LocalParty, plan: SumsPlan) -> NDArray[np.int64]:
    """The cells that a party shares, which nobody but a test can have."""
    handler = party._strict
    return pool_cells(plan, handler.name, handler.control.table)


def integers_of(party: LocalParty, plan: SumsPlan) -> NDArray[np.int64]:
    """What they stand for in the sums."""
    return features_of_cells(plan, party._strict.name, cells_of(party, plan))
