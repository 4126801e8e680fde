"""Commands of a party's stewards: requests, approve, deny, withdraw, expire, steward, prune."""

from __future__ import annotations

import getpass
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verticopula.errors import SettingsError
from verticopula.formatting import count_of, format_time, readable

if TYPE_CHECKING:
    from verticopula.storage.request_store import RequestStore
    from verticopula.storage.steward_keys import Steward
    from verticopula.storage.steward_requests import StewardRequest, Verdict

PASSPHRASE = "VERTICOPULA_STEWARD_PASSPHRASE"

_PartyKit = Annotated[Path, typer.Argument(help="The party's kit, such as kits/bank.", show_default=False)]
_AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
_Id = Annotated[str, typer.Argument(metavar="ID", help="The request, or the beginning of its name.")]
_Name = Annotated[
    str | None,
    typer.Option("--steward", help="Who decides, as the policy names them; default: your account's name."),
]
_Key = Annotated[
    Path | None,
    typer.Option(
        "--key",
        help="Your key, if the policy names stewards; default: where `verticopula steward` put it. Its passphrase is "
        f"asked for, or read from the environment variable {PASSPHRASE}.",
        show_default=False,
    ),
]


def requests(
    kit: _PartyKit,
    request: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Show this request; without it, list what waits.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="List also what is decided or over.")] = False,
    as_json: _AsJson = False,
) -> None:
    """List what a party's stewards are asked; with ID show who asks and why, what leaves, to whom, and its price.

    A new version of the federation file is such a request, too; with ID you see everything that changes.

    Then [bold]approve[/] it, or [bold]deny[/] it. A running [bold]join[/] sees that within seconds. It need not run
    while you decide, and loses nothing when it is stopped.
    """

    store = _store(kit)
    if request is not None:
        _show(store, store.get(request), as_json)
        return
    found = store.all() if everything else store.all("pending")
    if as_json:
        print(json.dumps([one.to_dict() for one in found], indent=1))
        return
    if not found:
        waits = "No request was ever asked" if everything else "No request waits for a decision"
        print(f"{waits}.{'' if everything else ' With --all: what was decided before.'}")
        return
    from verticopula.storage.request_sentences import what_is_asked, who_asks

    table = Table("id", "study", "asks", "for", "since", "state")
    for one in found:
        content = one.content
        asks, what = who_asks(content), what_is_asked(content)
        state = f"{one.state}, {len(one.yeses)} of {content.approvals}"
        cells = (one.id, content.study, asks, what, format_time(one.asked), state)
        table.add_row(*(Text(readable(cell)) for cell in cells))
    console = Console()
    console.print(table)
    console.print(f"One of them: verticopula requests {kit} ID", highlight=False, soft_wrap=True)


def _show(store: RequestStore, request: StewardRequest, as_json: bool = False) -> None:
    from verticopula.storage.request_sentences import request_sections, what_is_asked
    from verticopula.storage.request_store import standing_of

    events = store.events(request.id)
    if as_json:
        history = [{"time": e.time, "actor": e.actor, "what": e.what, "detail": e.detail} for e in events]
        print(json.dumps({**request.to_dict(), "history": history}, indent=1))
        return
    console = Console()

    def say(line: str, style: str = "") -> None:
        # One line: a steward's reason must not look like lines of the history.
        console.print(Text(readable(line).replace("\n", " "), style=style), soft_wrap=True)

    say(f"Request {request.id}: {request.content.study}, {what_is_asked(request.content)}", "bold")
    for title, lines in request_sections(request):
        say(title, "bold")
        for line in lines:
            say(f"  {line}")
    content = request.content
    if standing_of(request, content.stewards, content.approvals, time.time()) != request.state:
        say("! Its signatures do not fit the policy's stewards: the file was changed by hand. It counts as pending.")
    say("History", "bold")
    for event in events:
        said = "" if event.what == "asked" or not event.detail else f": {event.detail}"
        say(f"  {format_time(event.time)}  {event.actor}: {event.what}{said}")
    if request.state == "pending":
        say(f"Decide: verticopula approve {store.path.parent} {request.id}")
        say(f"        verticopula deny {store.path.parent} {request.id} --reason '...'")


def approve(
    kit: _PartyKit,
    request: _Id,
    by: _Name = None,
    key: _Key = None,
    reason: Annotated[str, typer.Option(help="A comment for the record.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do not show it and ask once more.")] = False,
) -> None:
    """Say yes to a request: to exactly what [bold]requests[/] shows, for as many days as the policy says.

    Where the policy asks for several approvals, each is by another steward, with a key of their own. Nobody approves
    what they asked for. If the table or the policy changes before the yes is used, you are asked again.
    """
    store = _store(kit)
    found = store.get(request)
    if not yes:
        _show(store, found)
        typer.confirm("Do you consent?", abort=True)
    _decide(store, found, "yes", reason, by, key)


def deny(
    kit: _PartyKit,
    request: _Id,
    reason: Annotated[str, typer.Option(help="Why; the study lead is told.", show_default=False)],
    by: _Name = None,
    key: _Key = None,
) -> None:
    """Say no to a request. One no is enough. The same question is refused for as many days as a yes would live."""
    store = _store(kit)
    _decide(store, store.get(request), "no", reason, by, key)


def withdraw(
    kit: _PartyKit,
    request: _Id,
    reason: Annotated[str, typer.Option(help="Why; for the record.")] = "",
    by: _Name = None,
    key: _Key = None,
) -> None:
    """Take back a yes. The party releases nothing more in that study; what has left by then cannot come back.

    A yes to a federation file can be taken back until that file is in force.
    """
    store = _store(kit)
    _decide(store, store.get(request), "withdrawn", reason, by, key)


def expire(
    kit: _PartyKit,
    request: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="The request; default: all whose time is over.")
    ] = None,
) -> None:
    """End requests without a decision: one of them now, or all that nobody answered in time."""
    ended = _store(kit).expire(request, getpass.getuser())
    for one in ended:
        print(f"{one.id} is expired")
    if not ended:
        print("No request is older than its time.")


def steward(
    kit: _PartyKit,
    name: Annotated[str, typer.Argument(help="The steward, such as anna.", show_default=False)],
    key: Annotated[
        Path | None,
        typer.Option("--key", help="Where the private key goes; default: in your own account's configuration."),
    ] = None,
    unprotected: Annotated[
        bool, typer.Option("--no-passphrase", help="Keep the key without a passphrase, for programs.")
    ] = False,
) -> None:
    """Make a steward's own key, and print the line that registers it in the party's policy.

    With keys in the policy, a yes or a no counts only with a steward's signature. Every steward runs this on their own
    account, and sends the printed line to whoever keeps the policy file.
    """
    from verticopula.storage.steward_keys import Steward

    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii() or len(name) > 40:
        raise SettingsError("a steward's name has letters, digits, - and _, at most 40 of them")
    _store(kit)
    path = key or key_path(kit, name)
    secret = None
    if not unprotected:
        given = os.environ.get(PASSPHRASE)
        secret = given or typer.prompt("Passphrase for the new key", hide_input=True, confirmation_prompt=True)
    made = Steward.create(name, path, None if secret is None else str(secret).encode())
    print(f"Private key: {path}")
    print("For the party's policy:")
    print(f'  [stewards]\n  {name} = "{made.public_key}"')


def prune(
    kit: _PartyKit,
    policy: Annotated[Path, typer.Option("--policy", help="The party's own rules (TOML).", show_default=False)],
    vault: Annotated[
        Path | None,
        typer.Option(help="The party's vault, as `join` has it; default: inside the kit.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")] = False,
) -> None:
    """Remove what is stored of studies that ended more than the policy's retention_days ago.

    Replies, records and requests go. The ledger stays whole, and what was spent stays spent. A running [bold]join[/]
    does the same when it starts and once a day, so this is for a party whose process is stopped.
    """
    from verticopula.network.party.retention import Retention
    from verticopula.privacy.policy import Policy
    from verticopula.storage.vault import Vault
    from verticopula.storage.vault_files import is_vault

    store, folder, rules = _store(kit), vault or kit / "vault", Policy.from_toml(policy)
    if not is_vault(folder):
        raise SettingsError(f"{folder} is no vault; name the one that `join` uses (--vault)")
    if rules.retention_days is None:
        raise SettingsError(f"{policy} has no retention_days, so everything is kept; write retention_days = 365 to it")
    with Vault.open(folder) as opened:
        retention = Retention(_party_of(kit), opened, rules, store, getpass.getuser())
        if dry_run:
            for study in retention.ended():
                print(readable(f"would remove what is stored of study {study}"))
            return
        gone = retention.apply()
    for study in gone.studies:
        print(readable(f"removed what was stored of study {study}"))
    print(f"{count_of(gone.replies, 'reply', 'replies')} and {count_of(gone.requests, 'request')} removed")


def _store(kit: Path) -> RequestStore:
    from verticopula.storage.request_store import RequestStore

    if not (kit / "kit.toml").is_file():
        raise SettingsError(f"{kit} holds no start-up kit: `verticopula provision` makes them")
    return RequestStore.of_kit(kit)


def _decide(
    store: RequestStore, found: StewardRequest, verdict: Verdict, reason: str, by: str | None, key: Path | None
) -> None:
    """Sign what was shown, whatever the file says by now."""
    who = _signer(store, found, by, key)
    after = store.decide(found.id, who.decide(found, verdict, reason))
    more = f"; {after.missing} more needed" if after.state == "pending" else ""
    print(f"{after.id} is {after.state}{more}")


def _signer(store: RequestStore, request: StewardRequest, name: str | None, key: Path | None) -> Steward:
    from verticopula.storage.steward_keys import Steward

    who = name or getpass.getuser()
    if not request.content.stewards:
        return Steward(who)
    if who not in request.content.stewards:
        return Steward(who)  # the store says who may decide
    return load_key(who, key or key_path(store.path.parent, who))


def load_key(name: str, path: Path) -> Steward:
    """A steward with their key; its passphrase is asked for at the terminal, or read from the environment."""
    from verticopula.storage.steward_keys import Steward

    secret = os.environ.get(PASSPHRASE)
    if secret is None and path.is_file() and b"ENCRYPTED" in path.read_bytes():
        secret = str(typer.prompt(f"Passphrase of {name}", hide_input=True))
    return Steward.load(name, path, secret.encode() if secret else None)


def _party_of(kit: Path) -> str:
    import tomllib

    return str(tomllib.loads((kit / "kit.toml").read_text(encoding="utf-8")).get("name", "party"))


def key_path(kit: Path, name: str) -> Path:
    """In the steward's own account, not in the kit: `join` must not be able to sign for anybody."""
    party = _party_of(kit)
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return home / "verticopula" / "stewards" / f"{party}-{name}.pem"
