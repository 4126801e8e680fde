"""`verticopula demo-network`: the built-in study between processes with mutual TLS, all on this machine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from verticopula.cli.lead_commands import status, submit
from verticopula.cli.shared_options import ChosenMethod, Delta, Epsilon, Quiet, need_flare
from verticopula.schema.defaults import REPORT_FILE
from verticopula.schema.study_settings import StudySettings


def demo_network(
    out: Annotated[Path, typer.Option("--out", help="Where to write.")] = Path("verticopula-network-demo"),
    subjects: Annotated[int, typer.Option(help="Number of simulated enterprises.")] = 5_000,
    method: ChosenMethod = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    quiet: Quiet = False,
) -> None:
    """All of it on this machine: kits, five parties and a coordinator as real processes with mutual TLS, a study."""
    from verticopula.datasets import make_sme
    from verticopula.study.study_folder import prepare_folder

    need_flare()
    from verticopula.network.network_demo import prepare_demo, running

    prepare_folder(out, overwrite=True)
    sme = make_sme(subjects)
    settings = StudySettings.from_options(method=method, epsilon=epsilon, delta=delta)
    _, kits = prepare_demo(out, sme.federation, sme.tables, {str(settings.unit): 2.0 * (settings.epsilon or 1.0)})
    console = Console(quiet=quiet, highlight=False)

    def say(line: str) -> None:
        console.print(Text(line), soft_wrap=True)

    given = {"method": settings.method, "epsilon": settings.epsilon, "delta": settings.delta}
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
