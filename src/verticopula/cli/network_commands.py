"""Commands between organisations: serve, join, compute, submit, status, stop."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import shlex
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verticopula.cli.certificate_commands import show_connection
from verticopula.cli.service_options import LogStyle, MetricsHost, MetricsPort, ends_in_log, serve_metrics
from verticopula.cli.shared_options import (
    AsPrinted,
    ConditionTexts,
    Delta,
    DependenceName,
    Epsilon,
    FederationFile,
    MethodOption,
    MissingName,
    Overwrite,
    Quiet,
    RankCorrelationName,
    Seed,
    UnitName,
    progress_bar,
    whole_epsilon,
)
from verticopula.cli.study_inputs import (
    DEFAULT_QUERY_TIMEOUT,
    PartyData,
    PartyQuery,
    PasswordFile,
    QueryTimeout,
    show_marks,
)
from verticopula.errors import ProtocolError, SettingsError
from verticopula.formatting import format_time
from verticopula.schema.defaults import DEFAULT_ROUNDS, REPORT_FILE
from verticopula.schema.dependence import DEFAULT_DEPENDENCE
from verticopula.schema.methods import (
    IEVCDS,
    METHODS,
    PRINTED_VARIANT,
    RAW_REGRESSION,
    REFINED,
    VCDS,
)
from verticopula.schema.printed_choices import DEFAULT_RANK_CORRELATION
from verticopula.schema.progress import Progress

if TYPE_CHECKING:
    from verticopula.network.control_messages import ProposedChange, StudyState
    from verticopula.network.study_lead import Lead
    from verticopula.schema.federation import Federation

logger = logging.getLogger(__name__)

_POLL = 0.5
_POLICY_EXAMPLE = f"""a party joins with a policy of its own; write one such as

  methods = ["{VCDS.name}", "{REFINED.name}"]     # protocols it takes part in
  min_subjects = 50                 # smallest number of people behind a released column
  [caps]
  client = 8.0                      # largest epsilon ever spent on this table, over all studies"""

LeadKit = Annotated[Path, typer.Option("--kit", help="The study lead's start-up kit.")]
AnyKit = Annotated[Path, typer.Option("--kit", help="The study lead's start-up kit; or that of a party, for its own.")]
Deadline = Annotated[
    float | None,
    typer.Option(help="Seconds that a party has for one round. Default: the federation file's \\[network] deadline."),
]


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    for command in (serve, join, compute, submit, status, cancel, stop, demo_network):
        app.command(rich_help_panel="Between organisations")(command)


@ends_in_log
def serve(
    kit: Annotated[Path, typer.Argument(help="The coordinator's kit, such as kits/server.", show_default=False)],
    studies: Annotated[
        Path | None, typer.Option(help="Where studies are kept; default: inside the kit.", show_default=False)
    ] = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    log_format: LogStyle = "text",
    quiet: Quiet = False,
) -> None:
    """Be the coordinator: wait for the parties, run the studies that the lead submits. Ends with Ctrl-C or `stop`."""
    from verticopula.network.kit_process import keep_log, only_process, run_until_stopped
    from verticopula.network.startup_kit import Kit

    _need_flare()
    own = Kit.read(kit, "coordinator")
    with only_process(own):
        keep_log(own, quiet=quiet, log_format=log_format)
        from verticopula.network.coordinator import Coordinator

        coordinator = Coordinator(own, studies or own.folder / "studies")
        serve_metrics(own, coordinator, coordinator.folder, metrics_port, metrics_host)
        if not quiet and log_format == "text":
            print(f"Coordinator at {own.host}:{own.port}, studies in {coordinator.folder}", flush=True)
        run_until_stopped(coordinator)
    os._exit(0)  # FLARE's threads have nothing left to do, and would be waited for


@ends_in_log
def join(
    kit: Annotated[Path, typer.Argument(help="The party's kit, such as kits/bank.", show_default=False)],
    data: PartyData,
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            help="The party's own rules (TOML). The file is read again for every request: a change holds at once.",
            show_default=False,
        ),
    ] = None,
    vault: Annotated[
        Path | None,
        typer.Option(
            help="The party's ledger and what it has sent; default: inside the kit. Give the same folder to all kits "
            "that use this table, so that caps hold across federations.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Where the party's own synthetic blocks go; default: inside the kit."),
    ] = None,
    drop_rule: Annotated[
        list[str] | None,
        typer.Option(
            help="A rule that is no longer in the policy file and is given up, such as caps.client; may be given "
            "several times. Otherwise a file that has lost a rule is taken for half written, and refused.",
            metavar="RULE",
        ),
    ] = None,
    review: Annotated[
        bool,
        typer.Option(
            "--review",
            help="Ask the party's stewards: before a study begins, and before everything that it would release, with "
            "its price. They answer with `approve` or `deny`, or right here if this is a terminal; no deadline runs. "
            "Nobody releases anything before every party has said yes. `review` in the policy says the same.",
        ),
    ] = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    log_format: LogStyle = "text",
    query: PartyQuery = None,
    password_file: PasswordFile = None,
    query_timeout: QueryTimeout = DEFAULT_QUERY_TIMEOUT,
    quiet: Quiet = False,
) -> None:
    """Take part as a party: answer what the policy allows, and write down what leaves. Ends with Ctrl-C or `stop`.

    It needs no terminal. What stewards have to decide waits in the kit ([bold]verticopula requests KIT[/]), also over
    restarts; other studies go on meanwhile.
    """
    from verticopula.data.table_source import party_source
    from verticopula.network.consent import ConsentPrompt
    from verticopula.network.key_signing import certificate_authenticity
    from verticopula.network.kit_process import keep_log, only_process, run_until_stopped
    from verticopula.network.retention import Retention
    from verticopula.network.startup_kit import Kit
    from verticopula.network.stored_consent import StoredConsent, decided_by_all
    from verticopula.privacy.policy_file import PolicyFile
    from verticopula.protocol.party.joined_study import begun_under
    from verticopula.protocol.party.member import Member
    from verticopula.protocol.party.refreshed_member import RefreshedMember
    from verticopula.protocol.study_proposal import federation_fingerprint
    from verticopula.storage.request_store import RequestStore
    from verticopula.storage.vault import Vault

    _need_flare()
    own = Kit.read(kit, "party")
    if policy is None or not policy.is_file():
        raise SettingsError(f"--policy {policy or ''}: no such file; {_POLICY_EXAMPLE}")
    rules = PolicyFile(policy, own.name, drop_rule or ())
    source = party_source(own.name, data, query, password_file, query_timeout)
    version = source.version()  # before it is read: a change in between is noticed later
    table = show_marks({own.name: source.load()})[own.name]
    store, stopped = RequestStore.of_kit(own.folder), threading.Event()
    prompt = ConsentPrompt(store)
    with only_process(own):
        keep_log(own, quiet=quiet, is_asking=lambda: prompt.is_waiting, log_format=log_format)
        from verticopula.network.party_federations import FederationVersions, PartyFederations
        from verticopula.network.party_process import PartyProcess

        kept = Vault.open(vault or own.folder / "vault")
        consents: list[StoredConsent] = []
        parties: list[RefreshedMember] = []
        authenticity, executor = certificate_authenticity(own), ThreadPoolExecutor(os.cpu_count())

        def make_party(federation: Federation) -> RefreshedMember:
            """The party under one version of the federation file, with the table as it is now."""
            fingerprint = federation_fingerprint(federation)
            consent = StoredConsent(own.name, store, rules, fingerprint, always=review, records=kept.studies)
            make_member = partial(
                Member,
                federation,
                own.name,
                key=own.id_key(),
                vault=kept,
                policy=rules,
                out=out or own.folder / "synthetic",
                authenticity=authenticity,
                executor=executor,
                ask_steward=consent.request,
                check_standing=consent.check_standing,
                on_close=consent.close,
            )
            first = version if not consents else source.version()  # before it is read, as above
            newest = table if not consents else source.read()
            parties.append(RefreshedMember(source, make_member, newest, first))
            consents.append(consent)
            return parties[-1]

        files = PartyFederations(own, store, rules)
        versions = FederationVersions(files, make_party, partial(begun_under, kept.studies, own.name))
        member = parties[0].current
        if log_format == "text":
            for note in member.notes:
                logger.warning("%s", note)
        elif member.notes:  # they count single cells, and a log of JSON leaves the machine
            logger.warning("notes about %d columns of the table; `verticopula check` shows them", len(member.notes))
        if member.left_out and log_format == "text":
            logger.info("%d rows are left out: these people have withdrawn", member.left_out)
        retention = Retention(own.name, kept, rules, store)
        threading.Thread(target=retention.run, args=(stopped,), name="retention", daemon=True).start()
        process = PartyProcess(own, versions, partial(decided_by_all, consents))
        serve_metrics(own, process, kept.folder, metrics_port, metrics_host)
        if review and sys.stdin.isatty() and not rules.current().stewards:
            threading.Thread(target=prompt.run, args=(stopped,), name="prompt", daemon=True).start()
        if not quiet and log_format == "text":
            print(f"Party {own.name}: {member.subjects:,} subjects, for {own.host}:{own.port}", flush=True)
        run_until_stopped(process)
        stopped.set()
    os._exit(0)


@ends_in_log
def compute(
    kit: Annotated[Path, typer.Argument(help="The compute party's kit, such as kits/notary.", show_default=False)],
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = "127.0.0.1",
    log_format: LogStyle = "text",
    quiet: Quiet = False,
) -> None:
    """Compute secure sums of two parties, without data: the third holder of shares. Ends with Ctrl-C or `stop`.

    Run it at an organisation that neither party nor the coordinator belongs to; two of three shares show every score.
    A new federation file waits in the kit for somebody's yes ([bold]verticopula requests KIT[/]).
    """
    from verticopula.network.key_signing import certificate_authenticity
    from verticopula.network.kit_process import keep_log, only_process, run_until_stopped
    from verticopula.network.startup_kit import Kit
    from verticopula.network.stored_consent import decided_requests
    from verticopula.privacy.policy import Policy
    from verticopula.protocol.party.compute_party import ComputeParty, compute_began_under
    from verticopula.storage.records import FolderRecords
    from verticopula.storage.request_store import RequestStore

    _need_flare()
    own = Kit.read(kit, "compute")
    with only_process(own):
        keep_log(own, quiet=quiet, log_format=log_format)
        from verticopula.network.party_federations import FederationVersions, PartyFederations
        from verticopula.network.party_process import PartyProcess

        records = FolderRecords(own.folder / "sums", own.folder / "sums.json")
        records.prepare()
        if own.federation.network.compute not in (None, own.name):
            named = own.federation.network.compute
            raise SettingsError(f"{own.folder} belongs to {own.name!r}, its federation file names {named!r}")
        make_party = partial(ComputeParty, records=records, authenticity=certificate_authenticity(own))
        store = RequestStore.of_kit(own.folder)
        files = PartyFederations(own, store, Policy())
        versions = FederationVersions(files, make_party, partial(compute_began_under, records))
        process = PartyProcess(own, versions, partial(decided_requests, store))
        serve_metrics(own, process, own.folder, metrics_port, metrics_host)
        if not quiet and log_format == "text":
            print(f"{own.name} computes without data, for {own.host}:{own.port}", flush=True)
        run_until_stopped(process)
    os._exit(0)


def submit(
    federation: FederationFile,
    out: Annotated[Path, typer.Option("--out", help="Where to write the study.", show_default=False)],
    kit: LeadKit = Path("kits/lead"),
    method: Annotated[
        str | None,
        typer.Option(
            "--method",
            help=f"{', '.join(METHODS)}; or {RAW_REGRESSION}, a regression on the raw columns, which every party's "
            f"policy must name. Default: {REFINED.name}, because who is missing is not known before; {VCDS.name} with "
            f"--{PRINTED_VARIANT}.",
            show_default=False,
        ),
    ] = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    unit: UnitName = None,
    epsilon_ranks: Annotated[float | None, typer.Option(help="Instead of --epsilon: the ranks' part.")] = None,
    epsilon_marginals: Annotated[float | None, typer.Option(help="Instead of --epsilon: the marginals' part.")] = None,
    rows: Annotated[int | None, typer.Option("--rows", help="Synthetic rows. Default: as many as subjects.")] = None,
    condition: ConditionTexts = None,
    missing: MissingName = None,
    sampler: Annotated[str, typer.Option(help="exact, or binomial for very many subjects.")] = "exact",
    rounds: Annotated[int, typer.Option(help=f"{IEVCDS.name}: how often ranks are sent.")] = DEFAULT_ROUNDS,
    per_round: Annotated[
        bool, typer.Option("--per-round", help=f"{IEVCDS.name}: the ranks' epsilon in every round.")
    ] = False,
    aligned: Annotated[bool, typer.Option("--aligned", help="Row i follows subject i. For comparisons only.")] = False,
    as_printed: AsPrinted = False,
    rank_correlation: RankCorrelationName = DEFAULT_RANK_CORRELATION,
    dependence: DependenceName = DEFAULT_DEPENDENCE,
    family: Annotated[str, typer.Option(help=f"{RAW_REGRESSION}: gaussian, binomial or poisson.")] = "gaussian",
    penalty: Annotated[str, typer.Option(help=f"{RAW_REGRESSION}: scad, mcp, lasso or none.")] = "scad",
    select: Annotated[str, typer.Option(help=f"{RAW_REGRESSION}: bic, cv or a strength.")] = "bic",
    alignment: Annotated[
        str,
        typer.Option(
            help="How subjects are matched: hash (of ids, under the kits' common key) or psi (no common key; slower)."
        ),
    ] = "hash",
    seed: Seed = None,
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
    from verticopula.network.control_messages import ResultRequest, ResumeRequest
    from verticopula.network.sanitizing import sanitize
    from verticopula.network.startup_kit import Kit
    from verticopula.network.submission import Submission
    from verticopula.protocol.study_proposal import federation_fingerprint
    from verticopula.schema.federation import Federation
    from verticopula.study.study_folder import LEDGER_FILE, SUMMARY_FILE, check_folder, file_names

    _need_flare()
    own = Kit.read(kit, "lead")
    study = Federation.from_toml(federation)
    if federation_fingerprint(study) != federation_fingerprint(own.federation):
        both = (f"version {one.version} ({federation_fingerprint(one)[:12]})" for one in (study, own.federation))
        raise SettingsError(
            f"{federation} says something else than the kits were made from: it is {next(both)}, and that in "
            f"{own.folder} is {next(both)}. Copy the one that is in force into the kit, or provision again"
        )
    seconds = own.federation.network.deadline if deadline is None else deadline
    check_folder(out, overwrite=overwrite)
    asked = Submission(
        method=method,
        epsilon=whole_epsilon(epsilon, epsilon_ranks, epsilon_marginals),
        delta=delta,
        unit=unit,
        epsilon_ranks=epsilon_ranks,
        epsilon_marginals=epsilon_marginals,
        rows=rows,
        conditions=tuple(condition or ()),
        missing=missing or "",
        sampler=sampler,
        rounds=rounds,
        per_round=per_round,
        aligned=aligned,
        as_printed=as_printed,
        rank_correlation=rank_correlation,
        dependence=dependence,
        family=family,
        penalty=penalty,
        select=select,
        alignment=alignment,
        seed=seed,
        deadline=deadline,
        requester=requester,
        purpose=purpose,
        contact=contact,
        use=use,
    )
    signed = asked.to_request(own)
    from verticopula.network.result_files import write_result
    from verticopula.network.study_lead import Lead

    with Lead(own) as lead:
        name = lead.ask(signed if resume is None else ResumeRequest(resume, float(seconds))).study
        if not quiet:
            print(f"Study {name}", flush=True)
        if not wait:
            return
        with progress_bar(quiet) as progress:
            _wait(lead, name, progress)
        result = lead.ask(ResultRequest(name), seconds=3_600.0, again=120.0)
        written = write_result(result, out, file_names(own.federation), keep=(LEDGER_FILE,))
    if not quiet:
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
    from verticopula.network.control_messages import StatusReply, StatusRequest
    from verticopula.network.startup_kit import Kit

    _need_flare()
    from verticopula.network.study_lead import Lead

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
        table.add_row(Text(party.name), connected, Text(_version_words(party.federation_version)))
    table.add_row(Text("the coordinator"), Text(""), Text(_version_words(reply.federation_version)))
    console.print(table)
    for line in _change_lines(reply.change):
        console.print(Text(line), soft_wrap=True)
    for party in reply.parties:
        if party.note:
            console.print(Text(f"{party.name}: {party.note}", style="red"), soft_wrap=True)
    for entry in reply.studies:
        line = f"{entry.study}  {entry.method}  {entry.state}"
        line += _waiting_words(entry)
        console.print(Text(line, style="red" if entry.state == "failed" else ""), soft_wrap=True)
        if entry.note:
            console.print(Text(f"    {entry.note}"), soft_wrap=True)


def cancel(
    kit: Annotated[Path, typer.Argument(help="The study lead's kit, such as kits/lead.", show_default=False)],
    study: Annotated[str, typer.Argument(help="The study's name, as `status` shows it.", show_default=False)],
    reason: Annotated[str, typer.Option(help="Why, for those who are asked.")] = "",
) -> None:
    """End a study that is not done: nobody is asked any more. What was released stays released, and charged."""
    from verticopula.network.control_messages import CancelRequest
    from verticopula.network.startup_kit import Kit

    _need_flare()
    from verticopula.network.study_lead import Lead

    with Lead(Kit.read(kit, "lead")) as lead:
        print(f"{lead.ask(CancelRequest(study, reason)).study} is cancelled")


def stop(
    kits: Annotated[
        list[Path] | None, typer.Argument(help="Kits, or a folder of kits; default: kits", show_default=False)
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Stop the processes that run on this machine from these kits. Nothing is lost: started again, they go on."""
    from verticopula.network.kit_process import stop_process

    folders = [path for given in kits or [Path("kits")] for path in (given, *sorted(given.glob("*/")))]
    if not any((folder / "kit.toml").is_file() for folder in folders):
        raise SettingsError("no start-up kits there")
    for folder in folders:
        if stop_process(folder) and not quiet:
            print(f"stopped {folder}")


def demo_network(
    out: Annotated[Path, typer.Option("--out", help="Where to write.")] = Path("verticopula-network-demo"),
    subjects: Annotated[int, typer.Option(help="Number of simulated enterprises.")] = 5_000,
    method: MethodOption = REFINED.name,
    epsilon: Epsilon = 4.0,
    delta: Delta = None,
    quiet: Quiet = False,
) -> None:
    """All of it on this machine: kits, five parties and a coordinator as real processes with mutual TLS, a study."""
    from verticopula.datasets import make_sme
    from verticopula.study.study_folder import prepare_folder

    _need_flare()
    from verticopula.network.network_demo import prepare_demo, running

    prepare_folder(out, overwrite=True)
    sme = make_sme(subjects)
    _, kits = prepare_demo(out, sme.federation, sme.tables, cap=2.0 * (epsilon or 1.0))
    console = Console(quiet=quiet, highlight=False)

    def say(line: str) -> None:
        console.print(Text(line), soft_wrap=True)

    given = {"method": method, "epsilon": epsilon, "delta": delta}
    asked = " ".join(f"--{name} {value}" for name, value in given.items() if value is not None)
    parties = sum(kit.role == "party" for kit in kits)
    say(
        f"A coordinator and {parties} parties, each a process of its own on this machine, with mutual TLS and made-up "
        f"tables about {subjects:,} enterprises."
    )
    say("Lines with $ are the commands that do the same by hand.")
    say("")
    say(f"$ verticopula provision {out}/federation.toml --out {out}/kits")
    for kit in kits:
        if kit.role == "coordinator":
            say(f"$ verticopula serve {kit.folder} &")
        elif kit.role == "party":
            files = f"--data {out}/data/{kit.name}.csv --policy {out}/policies/{kit.name}.toml"
            say(f"$ verticopula join {kit.folder} {files} &")
    say(f"Waiting until all {parties} parties are connected …")
    with running(out, kits):
        say(f"$ verticopula status --kit {out}/kits/lead")
        if not quiet:
            status(out / "kits" / "lead")
        say(f"$ verticopula submit {out}/federation.toml --kit {out}/kits/lead {asked} --out {out}/study")
        submit(
            out / "federation.toml",
            out / "study",
            out / "kits" / "lead",
            method=method,
            epsilon=epsilon,
            delta=delta,
            overwrite=True,
            quiet=quiet,
        )
        say(f"$ verticopula stop {out}/kits")
    say("")
    say("All processes are stopped. Each party's own synthetic block is in its kit, below synthetic/.")
    say(f"Open:      {out}/study/{REPORT_FILE} in a browser")
    say(f"Try next:  verticopula glm {out}/study")
    say(f"           verticopula ledger verify {kits[-1].folder}/vault")
    say(f"Again:     verticopula demo-network --out {shlex.quote(str(out))} --subjects {subjects} {asked}")


def _wait(lead: Lead, name: str, progress: Progress) -> None:
    """Until the study is done; ProtocolError with its reason if it failed."""
    from verticopula.network.control_messages import StatusReply, StatusRequest

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
        progress(f"{found.state}, round {found.rounds}{_waiting_words(found)}", 0, 0)
        time.sleep(_POLL)


def _version_words(number: int) -> str:
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


def _waiting_words(entry: StudyState) -> str:
    """For whom a study waits, and since when where that is a person."""
    since = {wait.party: format_time(wait.since) for wait in entry.stewards}
    names = [f"the steward of {n} since {since[n]}" if n in since else n for n in entry.waiting_for]
    return f", waiting for {', '.join(names)}" if names else ""


def _need_flare() -> None:
    if importlib.util.find_spec("nvflare") is None:
        raise SettingsError("this needs NVIDIA FLARE: pip install 'verticopula[nvflare]'")
