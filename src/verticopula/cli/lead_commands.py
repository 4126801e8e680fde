"""Commands of the study lead: submit, status, cancel."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verticopula.cli.certificate_commands import show_connection
from verticopula.cli.option_records import with_options
from verticopula.cli.shared_options import (
    AlignmentName,
    FederationFile,
    LeadOptions,
    Overwrite,
    Quiet,
    RowOptions,
    need_flare,
    progress_bar,
)
from verticopula.errors import ProtocolError, SettingsError
from verticopula.formatting import format_time
from verticopula.schema.progress import Progress
from verticopula.schema.setting_choices import BY_HASH

if TYPE_CHECKING:
    from verticopula.network.connection.control_messages import ProposedChange, ResumeRequest, StudyState, SubmitRequest
    from verticopula.network.kit.startup_kit import Kit
    from verticopula.network.lead.study_lead import Lead

_POLL = 0.5

LeadKit = Annotated[Path, typer.Option("--kit", help="The study lead's start-up kit.")]
AnyKit = Annotated[Path, typer.Option("--kit", help="The study lead's start-up kit; or that of a party, for its own.")]
Deadline = Annotated[
    float | None,
    typer.Option(help="Seconds that a party has for one round. Default: the federation file's \\[network] deadline."),
]


@with_options
def submit(
    federation: FederationFile,
    out: Annotated[Path, typer.Option("--out", help="Where to write the study.", show_default=False)],
    kit: LeadKit = Path("kits/lead"),
    *,
    asked: LeadOptions,
    rows: RowOptions,
    alignment: AlignmentName = BY_HASH,
    deadline: Deadline = None,
    resume: Annotated[
        str | None, typer.Option(help="Go on with this failed study instead of a new one.", show_default=False)
    ] = None,
    requester: Annotated[
        str, typer.Option("--requester", help="Who asks, for the parties' stewards: a name and an organisation.")
    ] = "",
    purpose: Annotated[str, typer.Option("--purpose", help="Why, for the parties' stewards: one sentence.")] = "",
    contact: Annotated[str, typer.Option("--contact", help="How the parties' stewards reach you.")] = "",
    use: Annotated[str, typer.Option("--use", help="What the tables will be used for, and by whom.")] = "",
    wait: Annotated[
        bool,
        typer.Option(
            "--wait/--no-wait",
            help="Wait for the result. With --no-wait the study is handed in; [bold]status[/] says how far it is, and "
            "--resume with its name fetches it.",
        ),
    ] = True,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Run a study between organisations and fetch what it made.

    If this command is interrupted the study goes on; give its name to [bold]--resume[/] to fetch it. Where stewards
    have to decide first, it waits for them, as long as that takes; [bold]cancel[/] ends it.
    """
    from verticopula.network.connection.control_messages import ResumeRequest
    from verticopula.network.lead.submission import Submission
    from verticopula.study.study_folder import check_folder

    need_flare()
    own = _read_kit(kit, federation)
    check_folder(out, overwrite=overwrite)
    submission = Submission(
        asked.study_or_regression(),
        rows=rows.rows,
        conditions=rows.conditions,
        missing=rows.missing or "",
        aligned=rows.aligned,
        alignment=alignment,
        deadline=deadline,
        requester=requester,
        purpose=purpose,
        contact=contact,
        use=use,
    )
    signed = submission.to_request(own)
    request = signed if resume is None else ResumeRequest(resume, signed.deadline)
    _run_study(own, request, out, wait=wait, quiet=quiet)


def _read_kit(folder: Path, federation: Path) -> Kit:
    """The study lead's kit; SettingsError where its federation file and the given one differ."""
    from verticopula.network.kit.startup_kit import Kit
    from verticopula.protocol.study_proposal import federation_fingerprint
    from verticopula.schema.federation import Federation

    own = Kit.read(folder, "lead")
    given = Federation.from_toml(federation)
    if federation_fingerprint(given) != federation_fingerprint(own.federation):
        both = (f"version {one.version} ({federation_fingerprint(one)[:12]})" for one in (given, own.federation))
        raise SettingsError(
            f"{federation} says something else than the kits were made from: it is {next(both)}, and that in "
            f"{own.folder} is {next(both)}. Copy the one that is in force into the kit, or provision again"
        )
    return own


def _run_study(own: Kit, request: SubmitRequest | ResumeRequest, out: Path, *, wait: bool, quiet: bool) -> None:
    """Hand a study in, wait for it if asked to, and write what it made."""
    from verticopula.network.connection.control_messages import ResultRequest
    from verticopula.network.lead.result_files import write_result
    from verticopula.network.lead.study_lead import Lead
    from verticopula.study.study_folder import LEDGER_FILE, file_names

    with Lead(own) as lead:
        name = lead.ask(request).study
        if not quiet:
            print(f"Study {name}", flush=True)
        if not wait:
            return
        with progress_bar(quiet) as progress:
            _wait(lead, name, progress)
        result = lead.ask(ResultRequest(name), seconds=3_600.0, again=120.0)
        written = write_result(result, out, file_names(own.federation), keep=(LEDGER_FILE,))
    if not quiet:
        _show_written(out, written)


def _show_written(out: Path, written: list[Path]) -> None:
    from verticopula.network.connection.sanitizing import sanitize
    from verticopula.study.study_folder import SUMMARY_FILE

    if out / SUMMARY_FILE in written:
        said = (out / SUMMARY_FILE).read_text(encoding="utf-8", errors="replace")
        print(sanitize(said, 1_000_000, lines=True))
    print("\nWritten:")
    for path in written:
        print(f"  {path}")


def status(
    kit: AnyKit = Path("kits/lead"),
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Who is connected, and how far the studies are; with the kit of a party, whether it is connected and why not."""
    from verticopula.network.connection.control_messages import StatusReply, StatusRequest
    from verticopula.network.kit.startup_kit import Kit

    need_flare()
    from verticopula.network.lead.study_lead import Lead

    own = Kit.read(kit)
    if own.role != "lead":
        show_connection(own, as_json)
        return
    with Lead(own) as lead:
        reply: StatusReply = lead.ask(StatusRequest(), seconds=10.0)
    if as_json:
        parties = {party.name: party.connected for party in reply.parties}
        studies = [
            {"study": s.study, "method": s.method, "state": s.state, "round": s.rounds, "note": s.note}
            | {"waiting_for": list(s.waiting_for), "stewards": {wait.party: wait.since for wait in s.stewards}}
            for s in reply.studies
        ]
        notes = {party.name: party.note for party in reply.parties if party.note}
        versions = {party.name: party.federation_version for party in reply.parties}
        said = {"parties": parties, "notes": notes, "studies": studies, "versions": versions}
        change = None if reply.change is None else asdict(reply.change)
        print(json.dumps({**said, "version": reply.federation_version, "change": change}, indent=1))
        return
    console = Console()
    table = Table("party", "connected", "federation file")
    for party in reply.parties:
        connected = Text("yes", style="green") if party.connected else Text("no", style="red")
        table.add_row(Text(party.name), connected, Text(_name_version(party.federation_version)))
    table.add_row(Text("the coordinator"), Text(""), Text(_name_version(reply.federation_version)))
    console.print(table)
    for line in _change_lines(reply.change):
        console.print(Text(line), soft_wrap=True)
    for party in reply.parties:
        if party.note:
            console.print(Text(f"{party.name}: {party.note}", style="red"), soft_wrap=True)
    for entry in reply.studies:
        line = f"{entry.study}  {entry.method}  {entry.state}"
        line += _describe_waiting(entry)
        console.print(Text(line, style="red" if entry.state == "failed" else ""), soft_wrap=True)
        if entry.note:
            console.print(Text(f"    {entry.note}"), soft_wrap=True)


def cancel(
    kit: Annotated[Path, typer.Argument(help="The study lead's kit, such as kits/lead.", show_default=False)],
    study: Annotated[str, typer.Argument(help="The study's name, as `status` shows it.", show_default=False)],
    reason: Annotated[str, typer.Option(help="Why, for those who are asked.")] = "",
) -> None:
    """End a study that is not done: nobody is asked any more. What was released stays released, and charged."""
    from verticopula.network.connection.control_messages import CancelRequest
    from verticopula.network.kit.startup_kit import Kit

    need_flare()
    from verticopula.network.lead.study_lead import Lead

    with Lead(Kit.read(kit, "lead")) as lead:
        print(f"{lead.ask(CancelRequest(study, reason)).study} is cancelled")


def _wait(lead: Lead, name: str, progress: Progress) -> None:
    """Until the study is done; ProtocolError with its reason if it failed."""
    from verticopula.network.connection.control_messages import StatusReply, StatusRequest

    while True:
        reply: StatusReply = lead.ask(StatusRequest(), seconds=600.0)
        found = next((entry for entry in reply.studies if entry.study == name), None)
        if found is None:
            raise ProtocolError("the coordinator does not know the study any more")
        if found.state == "done":
            return
        if found.state == "failed":
            raise ProtocolError(f"study {name} failed: {found.note}\nTo go on with it: --resume {name}")
        if found.state == "cancelled":
            raise ProtocolError(f"study {name} was cancelled")
        progress(f"{found.state}, round {found.rounds}{_describe_waiting(found)}", 0, 0)
        time.sleep(_POLL)


def _name_version(number: int) -> str:
    return f"version {number}" if number else ""


def _change_lines(change: ProposedChange | None) -> list[str]:
    """A federation file that is not in force yet, and what everybody says to it."""
    if change is None:
        return []
    words = {"accepted": "agrees", "refused": "does not agree", "unreached": "was not reached yet"}
    lines = [f"Version {change.federation_version} of the federation file is proposed, and not in force yet:"]
    for answer in change.answers:
        said = words.get(answer.state) or f"its stewards were asked {format_time(answer.since)}"
        lines.append(f"    {answer.party}: {said}{f' ({answer.note})' if answer.note else ''}")
    return lines


def _describe_waiting(entry: StudyState) -> str:
    """For whom a study waits, and since when where that is a person."""
    since = {wait.party: format_time(wait.since) for wait in entry.stewards}
    names = [f"the steward of {n} since {since[n]}" if n in since else n for n in entry.waiting_for]
    return f", waiting for {', '.join(names)}" if names else ""
