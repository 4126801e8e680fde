"""A whole study in this process: the one way to run it on tables at hand, or to repeat it on others.

`Synthesizer.fit`, the bootstrap, the audit's attacks on whole studies and its hold-outs all come through here.

A forecast repeats no study: there is none yet. It may be about ten million people of whom nobody has a row, and answers
in seconds. So it draws what parties would release, from assumed data of fewer people with the noise of all
(`rank_simulation.py`, `strict_simulation.py`), and hands that to the fits that a study ends with: `correlate_pairs`,
`refine`, `plan_strict_sums`, `fit_strict`. Messages, coins and shares would add time and nothing else.
`tests/unit/test_forecast.py` and docs/results/forecast.md compare it with whole studies.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from verticopula.data.tables import AlignedTable
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.privacy.budget import StudyBudget
from verticopula.privacy.noise import Noise
from verticopula.privacy.policy import Policy
from verticopula.protocol.coordinator_side import CoordinatorSide, own_handler
from verticopula.protocol.method_registry import find_protocol
from verticopula.protocol.party.charging import Charging
from verticopula.protocol.party.column_work import ColumnWork
from verticopula.protocol.party.expected_plans import ExpectedPlans
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.party.membership import Membership
from verticopula.protocol.party.release_control import ReleaseControl
from verticopula.protocol.party.study_consents import StudyConsents
from verticopula.protocol.party.sums_handler import SumsHandler
from verticopula.schema.federation import Federation
from verticopula.schema.printed_choices import PrintedChoices
from verticopula.schema.progress import Progress, show_nothing
from verticopula.schema.study_settings import StudySettings
from verticopula.stats.copula import latent_count
from verticopula.stats.fit_result import FitResult
from verticopula.storage.known_tables import NO_ACCOUNT, TableAccount
from verticopula.storage.ledger import Ledger
from verticopula.storage.record_store import MemoryRecords
from verticopula.transport.delivery import RequestHandler, drive
from verticopula.transport.in_process_transport import InProcessTransport


def run_in_process(
    federation: Federation,
    settings: StudySettings,
    tables: Mapping[str, AlignedTable],
    *,
    study: str,
    noise: Callable[[str], Noise],
    rng: np.random.Generator,
    ledger: Ledger,
    policies: Mapping[str, Policy] | None = None,
    accounts: Mapping[str, TableAccount] | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
    ask_consent: bool = True,
    budget: StudyBudget | None = None,
    printed_choices: PrintedChoices | None = None,
) -> FitResult:
    """The result of a study whose parties all live in this process.

    Parameters
    ----------
    settings : of the study
    tables : party -> its checked and aligned table
    study : its name, under which seeded noise is drawn, too
    noise : party (or the coordinator) -> its own source
    rng : of the coordinator's draws, which protect nobody
    ledger : where all parties record their releases
    policies : party -> what it allows; none means no limits
    accounts : party -> whose budget its releases are charged to; none where no vault keeps track
    progress : called with (what, done, total)
    threads : at work on columns at a time; None for one per core
    ask_consent : whether parties compute the proposal themselves and consent to it; not where a budget was made by hand
    budget : what may be spent, where it is not what the settings give
    printed_choices : likewise, how the paper's algorithms as printed read what it leaves open
    """
    budget = budget or StudyBudget.of(federation, settings)
    printed_choices = printed_choices or settings.printed_choices
    no_limits = Policy(allow_as_printed=True)
    total = sum(_comparisons(table, budget.rounds) for table in tables.values())
    counter = _Counter(progress, "flipping comparisons", total)
    authenticity, plans = shared_authenticity(secrets.token_bytes(32)), ExpectedPlans()
    with ThreadPoolExecutor(max_workers=threads or os.cpu_count()) as executor:
        parties: dict[str, RequestHandler] = {
            name: LocalParty(
                ReleaseControl(
                    table,
                    noise(name),
                    (policies or {}).get(name, no_limits),
                    Charging(ledger, (accounts or {}).get(name, NO_ACCOUNT)),
                    federation.bounds_from_data,
                ),
                membership=Membership(federation, authenticity, plans=plans),
                work=ColumnWork(executor, counter.add),
                consents=StudyConsents(name, federation, MemoryRecords(), authenticity) if ask_consent else None,
                printed_choices=printed_choices,
            )
            for name, table in tables.items()
        }
        third = federation.network.compute
        if third is not None:
            parties[third] = SumsHandler(
                third, None, records=MemoryRecords(), noise=noise(third), authenticity=authenticity
            )
        compute_handler = own_handler(federation, settings.method, noise, MemoryRecords(), authenticity)
        side = CoordinatorSide(
            rng,
            progress or show_nothing,
            compute_handler,
            printed_choices=printed_choices,
            dependence=settings.dependence,
        )
        protocol = find_protocol(settings.method, settings.variant)
        return drive(protocol(federation, budget, study, side), InProcessTransport(parties))


def _comparisons(table: AlignedTable, rounds: int) -> int:
    """Comparisons to be flipped: of the observed subjects once, of all of them in every later round."""
    total = 0
    for column in table.party.columns:
        seen = table.columns[column.name].observed
        n, everybody = int(seen.sum()), seen.size
        total += latent_count(column) * (n * (n - 1) // 2 + (rounds - 1) * everybody * (everybody - 1) // 2)
    return total


class _Counter:
    """Adds up work from several threads for a progress callback."""

    def __init__(self, progress: Progress | None, what: str, total: int) -> None:
        self._progress, self._what, self._total, self._done = progress, what, total, 0
        self._lock = threading.Lock()

    def add(self, amount: int) -> None:
        with self._lock:
            self._done += amount
            if self._progress is not None:
                self._progress(self._what, self._done, self._total)
