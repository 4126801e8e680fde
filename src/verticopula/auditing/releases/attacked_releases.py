"""What is attacked: the product's own code, called as a coordinator calls it.

Each release here asks a fresh `LocalParty` and returns what an attacker would look at: the noisy ranks of the
subjects that differ between the two data sets, and the noisy cells. Claims come from the entries that the party
itself wrote to its ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from verticopula.auditing.bounds.claims import Claim
from verticopula.auditing.bounds.trials import AUDIT_STUDY
from verticopula.data.tables import AlignedTable
from verticopula.errors import ProtocolError
from verticopula.privacy.noise import Noise
from verticopula.privacy.release import Release
from verticopula.privacy.statement import party_epsilons, state_privacy
from verticopula.protocol.party.charging import Charging
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.party.release_control import ReleaseControl
from verticopula.protocol.rank_messages import (
    ColumnQuery,
    CompletedRanksReply,
    CompletedRanksRequest,
    Imputation,
    ReleaseReply,
    ReleaseRequest,
)
from verticopula.schema.methods import IEVCDS, VCDS
from verticopula.schema.units import Unit
from verticopula.storage.ledger import Ledger

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PartyRelease:
    """Everything one party sends in the first round, or a part of it.

    Attributes
    ----------
    orders : what it is asked for, per column
    rows : the subjects whose ranks are looked at
    parts : `ranks`, `cells` or both
    """

    sampler: str
    orders: tuple[ColumnQuery, ...]
    rows: tuple[int, ...]
    parts: tuple[str, ...] = ("ranks", "cells")
    bounds_from_data: bool = False

    def __call__(self, table: AlignedTable, noise: Noise) -> Floats:
        return self._ask(table, noise, Ledger())

    def entries(self, table: AlignedTable, noise: Noise) -> list[Release]:
        """What the party writes to its ledger for it."""
        ledger = Ledger()
        self._ask(table, noise, ledger)
        return [e for e in ledger if ("cells" if e.what == "marginal" else e.what) in self.parts]

    def _ask(self, table: AlignedTable, noise: Noise, ledger: Ledger) -> Floats:
        party = LocalParty(
            ReleaseControl(table, noise, charging=Charging(ledger), bounds_from_data=self.bounds_from_data)
        )
        orders = tuple(o for o in self.orders if table.columns[o.column].observed.sum() > 1)  # fewer are refused
        if not orders:
            return np.empty(0)
        reply = party.handle(ReleaseRequest(AUDIT_STUDY, VCDS.name, self.sampler, orders))
        if not isinstance(reply, ReleaseReply):
            raise ProtocolError("the party under audit did not answer with releases")
        found: list[Floats] = []
        for column in reply.columns:
            if "ranks" in self.parts:
                seen = np.flatnonzero(table.columns[column.column].observed)
                at = np.searchsorted(seen, [row for row in self.rows if table.columns[column.column].observed[row]])
                found.append(column.ranks[at].ravel().astype(np.float64))
            if "cells" in self.parts:
                found.append(column.cells.astype(np.float64))
        return np.concatenate(found)


@dataclass(frozen=True)
class CompletedRelease:
    """One party's ranks in a round on completed columns (IEVCDS)."""

    sampler: str
    imputation: Imputation
    rows: tuple[int, ...]

    def __call__(self, table: AlignedTable, noise: Noise) -> Floats:
        return self._ask(table, noise, Ledger())

    def entries(self, table: AlignedTable, noise: Noise) -> list[Release]:
        """What the party writes to its ledger for it."""
        ledger = Ledger()
        self._ask(table, noise, ledger)
        return list(ledger)

    def _ask(self, table: AlignedTable, noise: Noise, ledger: Ledger) -> Floats:
        party = LocalParty(ReleaseControl(table, noise, charging=Charging(ledger)))
        reply = party.handle(CompletedRanksRequest(AUDIT_STUDY, IEVCDS.name, self.sampler, 2, (self.imputation,)))
        if not isinstance(reply, CompletedRanksReply):
            raise ProtocolError("the party under audit did not answer with ranks")
        return np.asarray(reply.ranks[0][list(self.rows)].ravel(), dtype=np.float64)


@dataclass(frozen=True)
class PersonRelease:
    """Everything all parties send about the same subjects."""

    parties: Mapping[str, PartyRelease]

    def __call__(self, tables: Mapping[str, AlignedTable], noise: Noise) -> Floats:
        # Seeded streams are labelled by study and column, so every party needs a source of its own.
        return np.concatenate([r(tables[name], own_noise(noise, name)) for name, r in self.parties.items()])

    def entries(self, tables: Mapping[str, AlignedTable], noise: Noise) -> list[Release]:
        """What all parties write to their ledgers for it."""
        return [e for name, r in self.parties.items() for e in r.entries(tables[name], own_noise(noise, name))]


def own_noise(noise: Noise, party: str) -> Noise:
    """A party's own source: seeded streams would otherwise be shared by parties with equal column names."""
    derive = getattr(noise, "derive", None)
    own: Noise = noise if derive is None else derive(party)
    return own


def claim_of(unit: Unit, entries: Iterable[Release], delta: float) -> Claim:
    """What the product prints for these entries at that unit, as a claim.

    `variable` and `client` add up epsilons per comparison and per value. With two subjects, one change touches one
    of each, and the sums are pure claims that can be attacked.
    """
    known = list(entries)
    coins = tuple(e.coins for e in known)
    if unit is Unit.PERSON:
        return Claim(unit.value, state_privacy(known, delta).person, delta, coins)
    stated = party_epsilons(known, delta)
    if unit is Unit.BLOCK:
        return Claim(unit.value, stated.block, delta, coins)
    return replace(Claim.pure(unit.value, getattr(stated, unit.value)), coins=coins)
