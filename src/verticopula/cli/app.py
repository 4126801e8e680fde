"""The command line: which commands there are, and what becomes of their errors."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from verticopula.cli.audit_commands import audit
from verticopula.cli.certificate_commands import certificates, enrol, propose_change, provision, revoke
from verticopula.cli.check_command import check
from verticopula.cli.console_command import console
from verticopula.cli.demo_command import demo
from verticopula.cli.demo_network_command import demo_network
from verticopula.cli.forecast_command import forecast
from verticopula.cli.glm_command import glm
from verticopula.cli.init_command import init
from verticopula.cli.lead_commands import cancel, status, submit
from verticopula.cli.ledger_commands import ledger_app
from verticopula.cli.people_commands import people_app
from verticopula.cli.report_command import report
from verticopula.cli.request_commands import approve, deny, expire, prune, requests, steward, withdraw
from verticopula.cli.run_command import run
from verticopula.cli.service_commands import compute, join, serve, stop
from verticopula.cli.write_table_command import write_table
from verticopula.errors import (
    AlignedWarning,
    NotPrivateWarning,
    VerticopulaError,
    WeakPrivacyWarning,
    WeakResultWarning,
)
from verticopula.formatting import readable

app = typer.Typer(
    name="verticopula",
    help="Private synthetic data from tables that are split by column across organisations.\n\n"
    "Start with [bold]verticopula demo[/]. For your own tables: [bold]init[/] writes a federation file, "
    "[bold]check[/] says what is wrong or open, [bold]run[/] makes synthetic tables.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,  # its tracebacks show local variables, which may hold data
)
_COMMANDS: dict[str | None, tuple[Callable[..., None], ...]] = {  # by panel of the help; None for its first one
    None: (demo, init, check, run, report, write_table, glm, forecast, audit),
    "Between organisations": (
        *(provision, propose_change, enrol, revoke, certificates),
        *(serve, join, compute, submit, status, cancel, stop, demo_network, console),
    ),
    "For a party's stewards": (requests, approve, deny, withdraw, expire, steward, prune),
}
for panel, commands in _COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(ledger_app, name="ledger")
app.add_typer(people_app, name="people", rich_help_panel="For a party's stewards")


_INTERRUPTED = "interrupted; what is in the ledger stays charged, and nothing else was"


def main() -> None:
    """Entry point: errors in one place, in words, and without any cell of anybody's data."""
    screen = Console(stderr=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotPrivateWarning)  # the summary says it first
            warnings.simplefilter("ignore", AlignedWarning)  # and this
            warnings.simplefilter("ignore", WeakPrivacyWarning)  # and this
            warnings.simplefilter("ignore", WeakResultWarning)  # and this
            app()
    except VerticopulaError as error:
        screen.print(Text.assemble(("error: ", "bold red"), readable(str(error))))
        sys.exit(1)
    except KeyboardInterrupt:
        screen.print(_INTERRUPTED)
        sys.exit(130)
    except SystemExit as ended:
        if isinstance(ended.__context__, typer.Exit) and isinstance(ended.__context__.__cause__, KeyboardInterrupt):
            screen.print(_INTERRUPTED)  # typer ends without a word
        raise
    except BrokenPipeError:  # whoever read the output has gone, as in `verticopula ledger show study | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else type(error).__name__
        where = f"{error.filename}: " if isinstance(error.filename, str) else ""
        what = f"{where}cannot be read or written ({why}); choose another place, or ask for permission"
        screen.print(Text.assemble(("error: ", "bold red"), readable(what)))
        sys.exit(1)
    except Exception as error:
        # A message from below may quote data, so only its kind is shown.
        screen.print(Text.assemble(("internal error: ", "bold red"), f"{type(error).__name__}. "), end="")
        screen.print("This is a defect; please report it with the command you ran, not with your data.")
        sys.exit(70)


@app.callback(invoke_without_command=True)
def _root(
    show_version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False,
) -> None:
    if show_version:
        print(version("verticopula"))
        raise typer.Exit
