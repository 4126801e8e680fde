"""Services of a kit and how they are stopped: serve, join, compute, stop."""

from __future__ import annotations

import logging
import os
import sys
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verticopula.cli.option_records import with_options
from verticopula.cli.service_options import LogStyle, ServiceOptions, ends_in_log, serve_metrics
from verticopula.cli.shared_options import Quiet, need_flare
from verticopula.cli.study_inputs import EngineOptions, PartyData, PartyDatabaseOptions, say_marks
from verticopula.engine.engine_address import EngineAddress
from verticopula.errors import SettingsError
from verticopula.schema.methods import DEFAULT_METHOD

if TYPE_CHECKING:
    from verticopula.data.table_source import TableSource
    from verticopula.data.tables import RawTable
    from verticopula.network.kit.startup_kit import Kit
    from verticopula.protocol.party.member import Member
    from verticopula.protocol.party.refreshed_member import ReadableTable

logger = logging.getLogger(__name__)

_POLICY_EXAMPLE = f"""a party joins with a policy of its own; write one such as

  methods = ["{DEFAULT_METHOD.name}"]              # protocols it takes part in
  min_subjects = 50                 # smallest number of people behind a released column
  [caps]
  person = 6.0                      # largest epsilon ever spent on a person, over all studies"""


@with_options
@ends_in_log
def serve(
    kit: Annotated[Path, typer.Argument(help="The coordinator's kit, such as kits/server.", show_default=False)],
    studies: Annotated[
        Path | None, typer.Option(help="Where studies are kept; default: inside the kit.", show_default=False)
    ] = None,
    *,
    service: ServiceOptions,
    quiet: Quiet = False,
) -> None:
    """Be the coordinator: wait for the parties, run the studies that the lead submits. Ends with Ctrl-C or `stop`."""
    from verticopula.network.kit.startup_kit import Kit
    from verticopula.network.operations.kit_process import keep_log, only_process, run_until_stopped

    need_flare()
    own = Kit.read(kit, "coordinator")
    with only_process(own):
        keep_log(own, quiet=quiet, log_format=service.log_format)
        from verticopula.network.coordinator.coordinator_process import Coordinator

        coordinator = Coordinator(own, studies or own.folder / "studies")
        serve_metrics(own, coordinator, coordinator.folder, service)
        if not quiet and service.log_format == "text":
            print(f"Coordinator at {own.host}:{own.port}, studies in {coordinator.folder}", flush=True)
        run_until_stopped(coordinator)
    os._exit(0)  # FLARE's threads have nothing left to do, and would be waited for


@with_options
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
    *,
    service: ServiceOptions,
    engine: EngineOptions,
    database: PartyDatabaseOptions,
    quiet: Quiet = False,
) -> None:
    """Take part as a party: answer what the policy allows, and write down what leaves. Ends with Ctrl-C or `stop`.

    It needs no terminal. What stewards have to decide waits in the kit ([bold]verticopula requests KIT[/]), also over
    restarts; other studies go on meanwhile.
    """
    from verticopula.data.table_source import party_source
    from verticopula.network.kit.startup_kit import Kit
    from verticopula.network.operations.kit_process import keep_log, only_process, run_until_stopped
    from verticopula.network.party.consent_prompt import ConsentPrompt
    from verticopula.privacy.policy_file import PolicyFile
    from verticopula.storage.request_store import RequestStore
    from verticopula.storage.vault import Vault

    need_flare()
    own = Kit.read(kit, "party")
    if policy is None or not policy.is_file():
        raise SettingsError(f"--policy {policy or ''}: no such file; {_POLICY_EXAMPLE}")
    rules = PolicyFile(policy, own.name, drop_rule or ())
    place = party_source(own.name, data, database.query, database.password_file, database.query_timeout)
    version = place.version()  # before it is read: a change in between is noticed later
    source, table = _open_source(own, place, engine.address())
    requests, stopped = RequestStore.of_kit(own.folder), threading.Event()
    prompt = ConsentPrompt(requests)
    with only_process(own):
        keep_log(own, quiet=quiet, is_asking=lambda: prompt.is_waiting, log_format=service.log_format)
        from verticopula.network.party.party_assembly import AssembledParty, PartyParts

        kept = Vault.open(vault or own.folder / "vault")
        parts = PartyParts(own, source, rules, requests, kept, out or own.folder / "synthetic", review)
        party = AssembledParty(parts, table, version)
        _log_table(party.member, service.log_format)
        party.start_retention(stopped)
        serve_metrics(own, party.process, kept.folder, service)
        if review and sys.stdin.isatty() and not rules.current().stewards:
            threading.Thread(target=prompt.run, args=(stopped,), name="prompt", daemon=True).start()
        if not quiet and service.log_format == "text":
            print(f"Party {own.name}: {party.member.subjects:,} subjects, for {own.host}:{own.port}", flush=True)
        run_until_stopped(party.process)
        stopped.set()
    os._exit(0)


def _open_source(own: Kit, place: TableSource, address: EngineAddress | None) -> tuple[ReadableTable, RawTable]:
    """Where the party's table is, and the table as it is now: in this process, or with the workers of its engine."""
    from verticopula.data.engine_source import EngineSource
    from verticopula.engine.dask_engine import DaskEngine

    if address is None:
        opened = place.open()
        say_marks({own.name: opened.mark})
        return place, opened.table
    source = EngineSource.of(DaskEngine(address), place, own.id_key())
    return source, source.read()


def _log_table(member: Member, log_format: LogStyle) -> None:
    """Notes about a table; a log of JSON leaves the machine, so it has nothing that counts single cells or people."""
    if log_format == "text":
        for note in member.notes:
            logger.warning("%s", note)
        if member.left_out:
            logger.info("%d rows are left out: these people have withdrawn", member.left_out)
    elif member.notes:
        logger.warning("notes about %d columns of the table; `verticopula check` shows them", len(member.notes))


@with_options
@ends_in_log
def compute(
    kit: Annotated[Path, typer.Argument(help="The compute party's kit, such as kits/notary.", show_default=False)],
    *,
    service: ServiceOptions,
    quiet: Quiet = False,
) -> None:
    """Compute secure sums of two parties, without data: the third holder of shares. Ends with Ctrl-C or `stop`.

    Run it at an organisation that neither party nor the coordinator belongs to; two of three shares show every score.
    A new federation file waits in the kit for somebody's yes ([bold]verticopula requests KIT[/]).
    """
    from verticopula.network.kit.key_signing import certificate_authenticity
    from verticopula.network.kit.startup_kit import Kit
    from verticopula.network.operations.kit_process import keep_log, only_process, run_until_stopped
    from verticopula.network.party.stored_consent import decided_requests
    from verticopula.privacy.policy import Policy
    from verticopula.protocol.party.compute_party import ComputeParty, compute_began_under
    from verticopula.storage.record_store import FolderRecords
    from verticopula.storage.request_store import RequestStore

    need_flare()
    own = Kit.read(kit, "compute")
    with only_process(own):
        keep_log(own, quiet=quiet, log_format=service.log_format)
        from verticopula.network.party.party_federations import FederationVersions, PartyFederations
        from verticopula.network.party.party_process import PartyProcess

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
        serve_metrics(own, process, own.folder, service)
        if not quiet and service.log_format == "text":
            print(f"{own.name} computes without data, for {own.host}:{own.port}", flush=True)
        run_until_stopped(process)
    os._exit(0)


def stop(
    kits: Annotated[
        list[Path] | None, typer.Argument(help="Kits, or a folder of kits; default: kits", show_default=False)
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Stop the processes that run on this machine from these kits. Nothing is lost: started again, they go on."""
    from verticopula.network.operations.kit_process import stop_process

    folders = [path for given in kits or [Path("kits")] for path in (given, *sorted(given.glob("*/")))]
    if not any((folder / "kit.toml").is_file() for folder in folders):
        raise SettingsError("no start-up kits there")
    for folder in folders:
        if stop_process(folder) and not quiet:
            print(f"stopped {folder}")
