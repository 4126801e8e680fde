"""A party's audit trail as a folder: everything that left and everything that was decided, for an auditor to verify.

It is made beside a running `join`, holds no data and no secret, and is signed by the party's certificate.
`verticopula ledger verify FOLDER` checks all of it without the party's help.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from verticopula.errors import LedgerError, SchemaError, SettingsError
from verticopula.formatting import count_of, format_time
from verticopula.network.kit.certificate_issuing import describe_fingerprints
from verticopula.network.kit.key_signing import certificate_authenticity, was_signed
from verticopula.network.kit.startup_kit import (
    AUTHORITY_FILE,
    CERTIFICATE_FILE,
    FEDERATION_FILE,
    Kit,
)
from verticopula.schema.federation import Federation
from verticopula.schema.federation_digest import federation_file_digest
from verticopula.storage.chained_file import ChainedFile, parse_chain, without_held
from verticopula.storage.ledger import GENESIS, read_ledger
from verticopula.storage.removals import REMOVALS_FILE, read_removal
from verticopula.storage.request_store import REMOVED, RequestEvent, RequestStore
from verticopula.storage.steward_keys import is_signed
from verticopula.storage.steward_requests import Decision, RequestContent, StewardRequest
from verticopula.storage.vault_files import HEAD, LEDGER, is_vault, read_entries, read_withdrawals
from verticopula.storage.withdrawals import WITHDRAWALS_FILE, count_left_out, event_of

TRAIL_FOLDER = "audit-trail"
_CONTENTS, _SIGNATURE = "audit.json", "audit.sig"
_REQUESTS_LIST, _EVENTS_LIST, _READ_ME = "requests.jsonl", "events.jsonl", "README.txt"
_LATER = {WITHDRAWALS_FILE, REMOVALS_FILE}  # that trails of before do not have
_CONTEXT = b"verticopula audit trail 1\0"
_TRIES = 20
_WORDS = """The audit trail of party {party}, made {made} by verticopula {version}.

To verify all of it:

    pip install verticopula
    verticopula ledger verify THIS-FOLDER

It says how many releases, requests and decisions there are, that nothing was changed, removed or put in another order,
who signed the trail, and which authority issued the signer's certificate. Compare that authority's fingerprint, and the
hash of the ledger's last entry, with what you got from somebody else: the coordinator keeps the hash that it last saw.

audit.json         what is in this folder: the SHA-256 of every file, and where the ledger and the history end
audit.sig          the party's signature of audit.json, with its certificate, in hexadecimal
ledger.jsonl       every release, one a line; each line holds the hash of the line before
head.json          how many releases the party's vault knows of
requests.jsonl     what stewards were asked, what they answered and why, with their signatures
events.jsonl       the history of these requests, one event a line, chained like the ledger
removed.jsonl      which stored replies the party has removed, because their studies had ended long ago; chained
withdrawals.jsonl  when how many people withdrew consent, or were taken in again, chained likewise; not who
federation.toml    who holds which columns
certificate.pem, authority.pem     the party's certificate and the authority's: both are public

What it cannot show: a party that keeps two ledgers can show one of them. The last hash that the coordinator, or an
earlier trail, has seen tells such a ledger from the one that was used. Whether noise was really added is what
`verticopula audit` tests.
"""


@dataclass(frozen=True)
class AuditedTrail:
    """What a verified trail says.

    Attributes
    ----------
    releases, requests, events, decisions, signed : how many there are; `signed` are decisions with a steward's key
    last : hash of the ledger's last entry
    unasked : studies with releases that no stored yes is about
    federation : which federation file the trail has, and on whose yes it is in force
    authority : fingerprint of the certificate that issued the party's
    left_out : people who have withdrawn, by the history of withdrawals
    removed : studies whose stored replies were removed
    """

    party: str
    made: str
    releases: int
    requests: int
    events: int
    decisions: int
    signed: int
    last: str
    unasked: int
    authority: str
    left_out: int = 0
    removed: int = 0
    federation: str = ""

    def lines(self) -> list[str]:
        """Sentences about what the trail holds, and what to compare, for a reader of it."""
        return [
            f"{self.releases} releases, chain intact and complete; the last entry's hash is {self.last}",
            f"{self.requests} requests, {self.events} events, chain intact; {self.decisions} decisions, of which "
            f"{self.signed} are signed by a steward's own key",
            f"{self.unasked} studies with releases and without a stored yes: their party asked nobody, or asked "
            "before requests were stored",
            f"{count_of(self.left_out, 'person has', 'people have')} withdrawn, chain intact: later studies leave them "
            "out",
            f"stored replies of {count_of(self.removed, 'study', 'studies')} were removed; what they cost counts still",
            self.federation,
            f"signed by party {self.party} on {self.made}; its certificate is of the authority with the fingerprint",
            f"  {self.authority}",
            "Compare fingerprint and hash with what you got from somebody else.",
        ]


def export_audit_trail(kit: Kit, vault: Path, out: Path) -> Path:
    """Write a party's audit trail into a new folder.

    Parameters
    ----------
    kit : the party's
    vault : its vault, which another process may be using
    out : the folder; SettingsError where something is there
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SettingsError(f"{out} is there already; choose another folder, or remove it")
    if not is_vault(vault):
        raise SettingsError(f"{vault} is no vault: the party has not joined with it yet")
    made = datetime.now(UTC).isoformat(timespec="seconds")
    requests, events = _read_requests(RequestStore.of_kit(kit.folder))
    files = {
        HEAD: (vault / HEAD).read_bytes(),  # before the ledger, which may grow meanwhile
        LEDGER: _copy_ledger(vault),
        _REQUESTS_LIST: _lines([_request_line(request) for request in requests]),
        _EVENTS_LIST: _lines([asdict(event) for event in events]),
        REMOVALS_FILE: _lines(ChainedFile(vault / REMOVALS_FILE).lines()),
        WITHDRAWALS_FILE: _lines(without_held(read_withdrawals(vault).file.lines())),
        FEDERATION_FILE: (kit.folder / FEDERATION_FILE).read_bytes(),
        CERTIFICATE_FILE: kit.certificate.read_bytes(),
        AUTHORITY_FILE: kit.authority.read_bytes(),
        _READ_ME: _WORDS.format(party=kit.name, made=made, version=version("verticopula")).encode(),
    }
    contents = {
        "format": 1,
        "party": kit.name,
        "made": made,
        "files": {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())},
    }
    files[_CONTENTS] = (json.dumps(contents, indent=1, sort_keys=True) + "\n").encode()
    files[_SIGNATURE] = certificate_authenticity(kit).sign(_CONTEXT + files[_CONTENTS]).hex().encode() + b"\n"
    was_there = out.exists()
    out.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        for name, content in files.items():
            (out / name).write_bytes(content)
        verify_audit_trail(out)  # an auditor should not be the first to find out
    except BaseException:
        for name in files:
            (out / name).unlink(missing_ok=True)
        if not was_there:
            shutil.rmtree(out, ignore_errors=True)
        raise
    return out


def pack_audit_trail(folder: Path, archive: Path) -> None:
    """Put an audit trail's folder into one zip file.

    Parameters
    ----------
    folder : as `export_audit_trail` wrote it
    archive : the file
    """
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(folder.iterdir()):
            file.write(path, f"{TRAIL_FOLDER}/{path.name}")


def is_audit_trail(folder: Path) -> bool:
    """Whether the folder looks like an audit trail; whether it is right says `verify_audit_trail`."""
    return folder.is_dir() and (folder / _CONTENTS).is_file()


def verify_audit_trail(folder: Path) -> AuditedTrail:
    """What the trail says, if all of it belongs together; LedgerError says what does not.

    Parameters
    ----------
    folder : as `export_audit_trail` wrote it
    """
    raw = _read(folder, _CONTENTS)
    try:
        contents = json.loads(raw)
        party, made, listed = str(contents["party"]), str(contents["made"]), dict(contents["files"])
        moment = datetime.fromisoformat(made)
        if contents["format"] != 1 or moment.tzinfo is None:
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise LedgerError(f"{_CONTENTS} cannot be read, or is of a later version of verticopula") from None
    _check_files(folder, listed)
    authority = _read(folder, AUTHORITY_FILE)
    try:
        signature = bytes.fromhex(_read(folder, _SIGNATURE).decode("ascii").strip())
    except ValueError:
        signature = b""
    if not was_signed(authority, party, _CONTEXT + raw, signature, moment):
        raise LedgerError(f"{_CONTENTS} is not signed by {party!r} with a certificate of this authority")
    entries = read_entries(folder)
    requests, events = _read_lists(folder)
    signed = _check_requests(requests, events)
    agreed = {request.content.study for request in requests if request.yeses and request.content.stage == "releases"}
    agreed |= _agreed_and_removed(events)
    return AuditedTrail(
        party,
        made,
        len(entries),
        len(requests),
        len(events),
        sum(len(request.decisions) for request in requests),
        signed,
        entries[-1].hash if entries else GENESIS,
        len({entry.study for entry in entries} - agreed),
        describe_fingerprints(authority),
        _count_withdrawn(folder, listed),
        _count_removed(folder, listed, {entry.request for entry in entries}),
        _describe_agreement(folder, requests),
    )


def _count_withdrawn(folder: Path, listed: Mapping[str, Any]) -> int:
    """How many people have withdrawn; 0 in a trail of before there was such a history."""
    if WITHDRAWALS_FILE not in listed:
        return 0
    lines = parse_chain(WITHDRAWALS_FILE, _read(folder, WITHDRAWALS_FILE))
    return count_left_out(event_of(line) for line in lines)


def _count_removed(folder: Path, listed: Mapping[str, Any], paid: set[str]) -> int:
    """How many studies' replies were removed; LedgerError where the ledger does not have what they cost."""
    if REMOVALS_FILE not in listed:
        return 0
    events = [read_removal(line) for line in parse_chain(REMOVALS_FILE, _read(folder, REMOVALS_FILE))]
    if not {key for event in events for key in event.requests} <= paid:
        raise LedgerError(f"{REMOVALS_FILE} names replies to requests that the ledger does not know")
    return len({event.study for event in events})


def _describe_agreement(folder: Path, requests: list[StewardRequest]) -> str:
    """Which federation file the trail has, and who agreed to it when."""
    try:
        federation = Federation.from_toml(folder / FEDERATION_FILE)
    except SchemaError:
        raise LedgerError(f"{FEDERATION_FILE} cannot be read, or is of a later version of verticopula") from None
    digest = federation_file_digest(federation)
    agreed = [one for one in requests if one.content.stage == "federation" and one.content.proposal == digest]
    said = [f"{yes.steward} on {format_time(yes.when)}" for one in agreed for yes in one.yeses]
    words = f"agreed to by {', '.join(said)}" if said else "as it was in the kit"
    return f"federation file version {federation.version}, digest {digest}, {words}"


def _check_files(folder: Path, listed: Mapping[str, Any]) -> None:
    """LedgerError unless exactly the listed files are there, as they were listed."""
    wanted = {LEDGER, HEAD, _REQUESTS_LIST, _EVENTS_LIST, CERTIFICATE_FILE, AUTHORITY_FILE, FEDERATION_FILE, _READ_ME}
    if set(listed) - _LATER != wanted:
        raise LedgerError(f"{_CONTENTS} does not list the files of an audit trail")
    there = {path.name for path in folder.iterdir()}
    if more := sorted(there - set(listed) - {_CONTENTS, _SIGNATURE}):
        raise LedgerError(f"{len(more)} files in the folder do not belong to the trail; take them away")
    for name in sorted(listed):
        if hashlib.sha256(_read(folder, name)).hexdigest() != listed[name]:
            raise LedgerError(f"{name} is not the file that was signed")


def _check_requests(requests: list[StewardRequest], events: list[RequestEvent]) -> int:
    """How many decisions are signed; LedgerError where requests, decisions and history do not belong together."""
    _check_chain(events)
    asked = {event.request: event.detail for event in events if event.what == "asked"}
    said = [(event.request, event.actor, event.what, event.detail) for event in events]
    gone = {event.request for event in events if event.what == REMOVED}
    if set(asked) - gone != {request.id for request in requests}:
        raise LedgerError("the history has other requests than the list of requests")
    signed = 0
    for request in requests:
        if asked[request.id] != request.digest:
            raise LedgerError(f"request {request.id} is not what was asked, by the history")
        told = [line for line in said if line[0] == request.id and line[2] in ("yes", "no", "withdrawn")]
        given = [(request.id, one.steward, one.verdict, one.reason) for one in request.decisions]
        if [line for line in told if line in given] != given or not set(told) <= set(given):
            raise LedgerError(f"the decisions about request {request.id} are not those of the history")
        for one in request.decisions:
            key = request.content.stewards.get(one.steward, "")
            if request.content.stewards and not is_signed(request, one, key):
                raise LedgerError(f"a decision about request {request.id} is not signed by its steward's key")
            signed += bool(request.content.stewards)
    return signed


def _agreed_and_removed(events: list[RequestEvent]) -> set[str]:
    """The studies to whose releases somebody said yes, by a request that is gone."""
    said = {event.request for event in events if event.what == "yes"}
    gone = [event for event in events if event.what == REMOVED and event.request in said]
    return {event.detail.partition(" ")[2] for event in gone if event.detail.startswith("releases ")}


def _check_chain(events: list[RequestEvent]) -> None:
    previous = GENESIS
    for number, event in enumerate(events, start=1):
        if (event.number, event.previous, event.hash) != (number, previous, event.seal):
            raise LedgerError(f"{_EVENTS_LIST}: line {number} was altered, or lines before it are missing")
        previous = event.hash


def _read_requests(store: RequestStore) -> tuple[list[StewardRequest], list[RequestEvent]]:
    """All requests and their history, of one moment: other processes may be writing."""
    for _ in range(_TRIES):
        before = store.verify()
        requests, events = store.all(), store.events()
        if store.head() == before:
            return requests, events
    raise LedgerError("requests are being decided too fast to be copied; try again")


def _read_lists(folder: Path) -> tuple[list[StewardRequest], list[RequestEvent]]:
    try:
        requests = [_request_of(json.loads(line)) for line in _read(folder, _REQUESTS_LIST).splitlines()]
        events = [RequestEvent(**json.loads(line)) for line in _read(folder, _EVENTS_LIST).splitlines()]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise LedgerError(f"{_REQUESTS_LIST} or {_EVENTS_LIST} cannot be read") from None
    return requests, events


def _request_line(request: StewardRequest) -> dict[str, Any]:
    return {
        "id": request.id,
        "asked": request.asked,
        "expires": request.expires,
        "state": request.state,
        "used": request.used,
        "content": request.content.to_json(),  # as text: a digest is of these letters
        "decisions": [asdict(one) for one in request.decisions],
    }


def _request_of(raw: Mapping[str, Any]) -> StewardRequest:
    decisions = tuple(Decision(**one) for one in raw["decisions"])
    content = RequestContent.from_json(raw["content"])
    return StewardRequest(raw["id"], content, raw["asked"], raw["expires"], raw["state"], decisions, raw["used"])


def _copy_ledger(vault: Path) -> bytes:
    """The ledger as it stands, whole lines only."""
    read_ledger(vault / LEDGER)
    with (vault / LEDGER).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # nobody is in the middle of a line
        data = file.read()
    return data[: data.rfind(b"\n") + 1]


def _lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, sort_keys=True, ensure_ascii=True) + "\n" for row in rows).encode()


def _read(folder: Path, name: str) -> bytes:
    path = folder / name
    if path.is_symlink() or not path.is_file():
        raise LedgerError(f"{name} is missing from the audit trail")
    return path.read_bytes()
