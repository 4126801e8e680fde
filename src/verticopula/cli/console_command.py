"""`verticopula console`: pages in a browser on this machine, for a party's steward or the study lead."""

from __future__ import annotations

import getpass
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verticopula.cli.request_commands import PASSPHRASE, key_path, load_key
from verticopula.cli.shared_options import need_flare
from verticopula.errors import SettingsError

if TYPE_CHECKING:
    from verticopula.console.page_interface import PageSet
    from verticopula.network.kit.startup_kit import Kit


def console(
    kit: Annotated[Path, typer.Argument(help="A party's kit, or the study lead's.", show_default=False)],
    port: Annotated[int, typer.Option("--port", help="Where to listen; 0 for a free port.")] = 0,
    host: Annotated[str, typer.Option("--host", help="127.0.0.1 or ::1: this machine, and no other.")] = "127.0.0.1",
    vault: Annotated[
        Path | None,
        typer.Option(help="The party's vault, as `join` has it; default: inside the kit.", show_default=False),
    ] = None,
    steward: Annotated[
        str | None,
        typer.Option("--steward", help="Who decides, as the policy names them; default: your account's name."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            help="Your key, if the policy names stewards; default: where `verticopula steward` put it. Its passphrase "
            f"is asked for here, or read from the environment variable {PASSPHRASE}.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The lead's kit: where studies are kept; default: inside it.", show_default=False),
    ] = None,
) -> None:
    """Look at requests, budgets and studies in a browser, and decide there. Ends with Ctrl-C.

    The address and a token for one login are printed here and nowhere else. Of a party's kit the console shows what
    stewards are asked, what was spent and is left, and the audit trail; it works beside a running [bold]join[/]. Of the
    lead's kit it submits studies, shows how far they are, and fetches what they made. Needs the extra
    [bold]console[/]: pip install 'verticopula\\[console]'. To use it from another machine, forward the port with ssh.
    """
    from verticopula.network.kit.startup_kit import Kit

    if importlib.util.find_spec("starlette") is None or importlib.util.find_spec("uvicorn") is None:
        raise SettingsError("this needs the extra console: pip install 'verticopula[console]'")
    own = Kit.read(kit, "party", "lead")
    from verticopula.console.console_server import run_console

    pages = _party_pages(own, vault, steward, key) if own.role == "party" else _lead_pages(own, out)
    run_console(own, pages, host=host, port=port, say=lambda line: print(line, flush=True))


def _party_pages(kit: Kit, vault: Path | None, name: str | None, key: Path | None) -> PageSet:
    from verticopula.console.steward_pages import StewardPages
    from verticopula.storage.steward_keys import Steward

    who = name or getpass.getuser()
    path = key or key_path(kit.folder, who)
    # Without a key everything can be read; where the policy names stewards, the page says that a key is needed.
    signer = load_key(who, path) if key is not None or path.is_file() else Steward(who)
    return StewardPages(kit, vault or kit.folder / "vault", signer)


def _lead_pages(kit: Kit, out: Path | None) -> PageSet:
    from verticopula.console.lead_pages import LeadPages

    need_flare()
    return LeadPages(kit, out or kit.folder / "studies")
