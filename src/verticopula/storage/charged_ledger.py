"""Caps in a study whose parties share a process: what they release is charged to a vault, and in the study's ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from verticopula.data.scratch_file import ROWS_IN_MEMORY
from verticopula.data.tables import OwnTable, RawTable
from verticopula.errors import SettingsError
from verticopula.privacy.policy import Policy
from verticopula.privacy.policy_file import has_end, remember_rules
from verticopula.privacy.release import Release
from verticopula.schema.federation import Federation, IdRule
from verticopula.storage.known_tables import TableAccount
from verticopula.storage.ledger import Ledger
from verticopula.storage.vault import Vault
from verticopula.storage.vault_files import read_withdrawals
from verticopula.storage.withdrawals import Table


class ChargedLedger(Ledger):
    """A vault's ledger that also writes every entry into the ledger of one study.

    An entry is on disk in both before anything is drawn, in the vault first. What the study's ledger held before and
    the vault does not know counts, too, for the party of that name: it was spent before there was a vault.
    """

    def __init__(self, vault: Ledger, study: Ledger) -> None:
        super().__init__()
        if vault.path is not None and study.path is not None and vault.path.resolve() == study.path.resolve():
            raise SettingsError("a study's ledger and a vault need folders of their own")
        self._vault, self._study = vault, study
        known = Counter(map(_mark, vault))
        self._earlier: list[Release] = []
        for entry in study:
            if known[_mark(entry)] > 0:
                known[_mark(entry)] -= 1
            else:
                self._earlier.append(replace(entry, table=""))

    def append(
        self, releases: Iterable[Release], approve: Callable[[list[Release]], None] = lambda entries: None
    ) -> None:
        """Record releases in both, all of them or none; `approve` is called with all that counts so far."""
        wanted = list(releases)
        self._vault.append(wanted, approve=lambda known: approve([*known, *self._earlier]))
        self._study.append(wanted)

    def catch_up(self) -> None:
        """As `Ledger.catch_up`, in both."""
        self._vault.catch_up()
        self._study.catch_up()

    def __iter__(self) -> Iterator[Release]:
        return iter((*self._vault, *self._earlier))

    def __len__(self) -> int:
        return len(self._vault) + len(self._earlier)


def leave_out_withdrawn(folder: Path, tables: Mapping[str, Table], rule: IdRule) -> dict[str, Table]:
    """Party -> its table without the people who withdrew, as a vault that all parties share knows them.

    Parameters
    ----------
    folder : the vault's; one that is not there yet knows nobody
    tables : party -> its raw table
    rule : where the tables have their ids
    """
    known = read_withdrawals(folder)
    return {name: known.leave_out(table, rule.name) for name, table in tables.items()}


def open_accounts(
    vault: Vault,
    federation: Federation,
    tables: Mapping[str, RawTable],
    rule: IdRule,
    *,
    remember: bool = True,
    rows_at_once: int = ROWS_IN_MEMORY,
) -> dict[str, TableAccount]:
    """Party -> whose budget its releases are charged to, in a vault that all parties share.

    Parameters
    ----------
    tables : party -> its raw table
    rule : where the tables have their ids, and how they are read
    remember : whether the vault shall know these tables from now on; otherwise it is only asked
    rows_at_once : as `align_tables` has it
    """
    own = {p.name: OwnTable.check(p, tables[p.name], rule, rows_at_once) for p in federation.parties}
    return vault.accounts(own, remember=remember)


def remember_policies(
    vault: Vault,
    accounts: Mapping[str, TableAccount],
    policies: Mapping[str, Policy],
    folder: Path | None = None,
    dropped: Collection[str] = (),
    *,
    keep: bool = True,
) -> None:
    """Keep the parties' rules in the vault; SettingsError if some are gone that it remembers for these people.

    Parameters
    ----------
    accounts : as `open_accounts` found them
    policies : party -> what it allows; a party that is missing gives no rules
    folder : where the policies were read, for messages; None where no files were given
    dropped : rules that are given up, as `party.rule`
    keep : whether they are kept; otherwise they are only compared
    """
    if unknown := [name for name in dropped if name.partition(".")[0] not in accounts]:
        raise SettingsError(f"--drop-rule {unknown[0]}: it begins with the name of no party of this federation")
    for name, account in accounts.items():
        file = None if folder is None else folder / f"{name}.toml"
        remember_rules(
            vault.studies,
            account.table,
            policies[name].rules() if name in policies else {},
            "" if file is None else str(file),
            [rule.removeprefix(f"{name}.") for rule in dropped if rule.startswith(f"{name}.")],
            f"{name}.",
            is_whole=file is None or not file.is_file() or has_end(file.read_text("utf-8")),
            overlapping=account.overlapping,
            keep=keep,
        )


def _mark(entry: Release) -> tuple[object, ...]:
    return entry.time, entry.study, entry.party, entry.column, entry.what, entry.request, entry.coins, entry.mu
