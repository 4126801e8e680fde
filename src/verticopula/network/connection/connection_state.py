"""What a party's process last knew about its connection, in its kit, for `verticopula status`."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from verticopula.network.connection.peer_admission import Introduction
from verticopula.network.kit.certificate_issuing import current_time
from verticopula.network.kit.startup_kit import Kit, write_private
from verticopula.schema.federation_digest import describe_federation

STATE_FILE = "connection.json"


@dataclass(frozen=True)
class ConnectionState:
    """How it stands with the coordinator.

    Attributes
    ----------
    since : when that began
    problem : why there is no connection; empty while there is one
    mismatch : what differs between the two ends although they are connected, with both versions
    """

    since: str
    problem: str
    mismatch: str = ""


def describe_mismatch(own: Introduction, coordinator: Introduction, whose: str = "") -> str:
    """What differs between the federation files of the two ends; empty where nothing does.

    Parameters
    ----------
    own : of the end that connects
    whose : its name, where the coordinator says it
    """
    if not own.federation or not coordinator.federation or own.federation == coordinator.federation:
        return ""
    theirs = describe_federation(coordinator.federation_version, coordinator.federation)
    mine = describe_federation(own.federation_version, own.federation)
    holder = f"that of {whose!r}" if whose else "this kit's"
    return f"the coordinator's federation file is {theirs}, {holder} is {mine}"


def write_state(kit: Kit, problem: str, mismatch: str) -> None:
    """Keep how it stands; a full disk is no reason to stop."""
    known = read_state(kit.folder)
    if known is not None and (known.problem, known.mismatch) == (problem, mismatch):
        return
    state = ConnectionState(f"{current_time():%Y-%m-%d %H:%M:%S} UTC", problem, mismatch)
    with contextlib.suppress(OSError):
        write_private(kit.folder / STATE_FILE, json.dumps(asdict(state), indent=1))


def read_state(folder: Path) -> ConnectionState | None:
    """How it stood when the process last wrote it down; None before the first time."""
    try:
        raw = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
        return ConnectionState(str(raw["since"]), str(raw["problem"]), str(raw["mismatch"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
