"""The intruder table: what somebody tries, against whom, what refuses it, and the line that the victim writes down.

Every attack is real: processes with kits on one side, and on the other forged certificates, altered kits, hand-written
frames, or a coordinator that does what it likes. `python -m benchmarks intruders` makes the page from the same table.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

# Importing them fills the table.
from tests.network import (  # noqa: F401
    attacks_by_parts,
    attacks_on_agreements,
    attacks_on_budgets,
    attacks_on_compute,
    attacks_on_consent,
    attacks_on_coordinator,
    attacks_on_lead,
    attacks_on_party,
)
from tests.network.intruder_scenes import (
    ATTACKS,
    MANY_STUDIES,
    THIRD,
    Attack,
    Scene,
    Where,
    compute_alone,
    coordinator_alone,
    nobody_yet,
    parties_alone,
)

__all__ = ["ATTACKS", "Attack", "Scene", "Where", "describe", "in_scene", "scene_of"]


def in_scene(where: Where, *, quick: bool = False) -> list[Attack]:
    """The table's rows for one scene, in its order."""
    return [row for row in ATTACKS if row.where == where and (row.quick or not quick)]


def describe(row: Attack, line: str) -> str:
    """A row of the page that `python -m benchmarks intruders` writes, as JSON; `line` is the victim's."""
    victim = {"server": "the coordinator", "lead": "the study lead", THIRD: "who computes"}.get(row.against, "a party")
    return json.dumps(
        {
            "attack": row.name,
            "against whom": victim,
            "refused by what": row.refused_by,
            "who must be honest": row.honest,
            "what the victim wrote down": line.replace("|", "/").replace("`", "'"),
        }
    )


@contextlib.contextmanager
def scene_of(where: Where, folder: Path, *, quick: bool = False) -> Iterator[Scene]:
    if where == "coordinator":
        with coordinator_alone(folder) as scene:
            yield scene
    elif where == "party":
        with parties_alone(folder, *(["left"] if quick else ["left", "middle", "right"])) as scene:
            yield scene
    elif where == "compute":
        with compute_alone(folder) as scene:
            yield scene
    elif where == "parties":
        with parties_alone(folder, "left", "middle", "right", policies=MANY_STUDIES) as scene:
            yield scene
    else:
        with nobody_yet(folder) as scene:
            yield scene
