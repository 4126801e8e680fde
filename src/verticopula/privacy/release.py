"""One release as a ledger entry: what accounting needs and what a steward asks; never data."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from verticopula.formatting import json_numbers
from verticopula.privacy.accounting import Coins

_OLD_NAMES = {"exact": "raw", "moments": "gram"}  # what ledgers of version 0.1 say
_IF_SAID = ("lead", "requester", "purpose", "contact", "use")  # not in the line of an entry that lacks them
_MAY_BE_INFINITE = ("epsilon", "mu", "mu_person")
ALL_COLUMNS = "*"  # what stands in an entry's column where it is about all of the party's columns together


@dataclass(frozen=True)
class Release:
    """One release of one column; `gram` and `tables` are of all of a party's columns, together with the other
    parties', and `selection` is of all of its own.

    Attributes
    ----------
    time, study, party, column : when, in which study, whose, and of which column
    what : `ranks`, `marginal`, `gram`, `tables`, `selection`; `raw` (values as they are) or `raw-moments` (their sums
        and products, exact): epsilon is infinite
    mechanism : how it was made, for a reader
    n_subjects : people whom it is about
    epsilon : per comparison (`ranks`), per person's value in this column (`marginal`); infinite where the noise is
        Gaussian, so that a reader who does not know `mu` counts too much and never too little
    coins_epsilon, coins_count : the coins that replacing one person's value may touch
    noise : `secure`, or `seeded` (not private)
    bounds : `public`, or `from-data` (the marginal's range is then not private: epsilon is infinite)
    previous, hash : digests of the line before and of this one, so that no line can be changed unnoticed
    table : whom it is about, whatever the file or the party is called; "" where nobody kept track. Tables that
        turned out to be about the same people have their names joined by "+".
    request : fingerprint of the request that it answers; "" in old ledgers
    mu : Gaussian noise: how many standard deviations replacing everything the party holds about one person moves the
        release; 0 for other noise
    mu_person : the same for replacing what all parties hold about that person
    joint : digest of the study, plan and keys of a release made from several parties' data, the same in all of their
        entries; "" where it is the party's alone. Old entries have the study's name.
    content : which column it is, whatever it is called (`Vault.account`); "" where nobody kept track. A column
        that turned out to be several known ones has their names joined by "+".
    snapshot : keyed digest of the table as it was read (`storage/snapshot_digest.py`): which data left; "" where there
        is no vault whose secret is the key
    lead, requester, purpose, contact, use : who asked, by certificate and in their own words, why, how to reach them,
        and what for; "" where nobody said
    """

    time: str
    study: str
    party: str
    column: str
    what: Literal["ranks", "marginal", "gram", "tables", "selection", "raw", "raw-moments"]
    mechanism: str
    n_subjects: int
    epsilon: float
    coins_epsilon: float
    coins_count: int
    noise: Literal["secure", "seeded"]
    bounds: Literal["public", "from-data"]
    previous: str = ""
    hash: str = ""
    table: str = ""
    request: str = ""
    mu: float = 0.0
    mu_person: float = 0.0
    joint: str = ""
    content: str = ""
    snapshot: str = ""
    lead: str = ""
    requester: str = ""
    purpose: str = ""
    contact: str = ""
    use: str = ""

    @property
    def is_gaussian(self) -> bool:
        """Whether `mu`, in place of the coins, says what it costs."""
        return self.mu > 0.0 and self.mu_person >= self.mu

    @property
    def coins(self) -> Coins:
        return Coins(self.coins_epsilon, self.coins_count)

    def to_json(self) -> str:
        """One line. Infinite epsilons become the string "inf": JSON has no word for them."""
        said = {name: value for name, value in vars(self).items() if value != "" or name not in _IF_SAID}
        return json.dumps(json_numbers(said, "inf"), sort_keys=True, ensure_ascii=True)

    @classmethod
    def from_json(cls, line: str) -> Release:
        """The entry that a ledger's line holds; ValueError where a price is no number, or below 0.

        Parameters
        ----------
        line : what `to_json` gave
        """
        raw: dict[str, Any] = json.loads(line)
        known = {f.name for f in fields(cls)}
        values: dict[str, Any] = {
            k: float("inf") if v == "inf" and k.endswith(_MAY_BE_INFINITE) else v for k, v in raw.items() if k in known
        }
        values["what"] = _OLD_NAMES.get(str(values.get("what")), values.get("what"))
        entry = cls(**values)
        _check_prices(entry)
        return entry

    def sealed(self, previous: str) -> Release:
        """This entry with its place in the chain and its hash.

        Parameters
        ----------
        previous : the hash of the entry before it
        """
        open_entry = replace(self, previous=previous, hash="")
        return replace(open_entry, hash=_hash_text(open_entry.to_json()))


def _check_prices(entry: Release) -> None:
    """ValueError for prices that are no numbers, or below 0: they would hide what was spent."""
    numbers = (entry.epsilon, entry.coins_epsilon, entry.mu, entry.mu_person)
    if not all(type(number) is float or (type(number) is int and abs(number) < 2**53) for number in numbers):
        raise ValueError("a price is a number")
    if type(entry.coins_count) is not int or any(map(math.isnan, numbers)):
        raise ValueError("a price is a number")
    if min(entry.epsilon, entry.coins_epsilon, entry.coins_count) < 0:
        raise ValueError("a price is not below 0")


def hash_line(raw: Mapping[str, Any]) -> str:
    """Hash of a line as it stands, its own hash left out: fields this version does not know count too."""
    return _hash_text(json.dumps({**raw, "hash": ""}, sort_keys=True, ensure_ascii=True))


def _hash_text(line: str) -> str:
    """Hash of a line whose own hash is empty."""
    return hashlib.sha256(line.encode()).hexdigest()


def spent_on(entries: Iterable[Release], party: str, table: str, overlapping: Iterable[str] = ()) -> list[Release]:
    """What counts against a table's caps.

    Everything about the same people, whatever the party was called in that study and through all joined names, and
    about other tables with some of them; and, to be safe, this party's entries that do not say whom they are about.
    Without a table, all of the party's.
    """
    known = list(entries)
    if not table:
        return [entry for entry in known if entry.party == party]
    links = {frozenset(entry.table.split("+")) for entry in known if entry.table}
    names = {*table.split("+"), *overlapping}
    while more := {name for link in links if link & names for name in link} - names:
        names |= more
    return [entry for entry in known if (names & set(entry.table.split("+")) if entry.table else entry.party == party)]


def spent_on_people(
    entries: Iterable[Release], party: str, table: str, overlapping: Iterable[str] = (), others: Iterable[str] = ()
) -> list[Release]:
    """What counts against a cap at `person`: everything in the ledger about these people, by whatever party.

    That is what `spent_on` says, what is known of other parties' tables with some of these people, and all entries
    that do not say whom they are about. Without a table it is the whole ledger.

    Parameters
    ----------
    others : the names of other parties' tables with somebody in common, where parties share a ledger
    """
    known = list(entries)
    if not table:
        return known
    about = spent_on(known, party, table, (*overlapping, *others))
    return [*about, *(entry for entry in known if not entry.table and entry.party != party)]
