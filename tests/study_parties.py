"""Parties of one study for tests, made from a table and from what a test wants to be special about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.data.tables import AlignedTable
from verticopula.mpc.sealed_messages import Authenticity
from verticopula.privacy.noise import Noise, SecureNoise
from verticopula.privacy.policy import Policy
from verticopula.privacy.policy_file import PolicyFile
from verticopula.protocol.party.charging import Charging
from verticopula.protocol.party.column_work import ColumnWork
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.party.membership import Membership
from verticopula.protocol.party.release_control import ReleaseControl
from verticopula.schema.federation import Federation
from verticopula.storage.known_tables import NO_ACCOUNT, TableAccount
from verticopula.storage.ledger import Ledger


def make_study_party(
    table: AlignedTable,
    noise: Noise | None = None,
    *,
    policy: Policy | PolicyFile | None = None,
    ledger: Ledger | None = None,
    account: TableAccount = NO_ACCOUNT,
    federation: Federation | None = None,
    authenticity: Authenticity | None = None,
    ids: Callable[[NDArray[np.bool_]], Sequence[str]] | None = None,
    on_column: Callable[[int], None] = lambda comparisons: None,
    **settings: Any,
) -> LocalParty:
    """A party with real noise, no limits and a ledger in memory, but for what is said; `settings` are its own."""
    charging = Charging(Ledger() if ledger is None else ledger, account)
    return LocalParty(
        ReleaseControl(table, noise or SecureNoise(), Policy() if policy is None else policy, charging),
        membership=Membership(federation, authenticity, ids),
        work=ColumnWork(on_column=on_column),
        **settings,
    )
