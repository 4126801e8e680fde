"""What is tried against an organisation that computes without data, by a coordinator that oversteps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.sums_plans import make_plan
from tests.network.intruder_scenes import THIRD, Scene, attack
from verticopula.mpc.sealed_messages import SealedChannel
from verticopula.network.connection.control_messages import Refusal
from verticopula.network.kit.key_signing import certificate_authenticity
from verticopula.protocol.consent_messages import PresenceRequest
from verticopula.protocol.strict_messages import SumsKeyRequest, SumsShareRequest
from verticopula.protocol.study_messages import CloseReply, CloseRequest

_WIDTHS = {"left": 2, "right": 2}


def _against_compute(name: str, by: str, expected: str, *, quick: bool = False) -> Any:
    return attack(name, "compute", THIRD, by, expected, quick=quick)


def _sums(scene: Scene, study: str, widths: Mapping[str, int], *, forged: bool) -> SumsShareRequest:
    """A request to take part in sums of all columns: with keys of the parties' own kits, or the coordinator's."""
    plan = make_plan(widths, np.ones((120, len(widths)), dtype=bool), 0.01, ("left", "right", THIRD), mu_tables=0.01)
    own = scene.evil.ask(THIRD, SumsKeyRequest(study, "strict")).key
    keys = [
        SealedChannel(study, name, bytes(32), certificate_authenticity(scene.kit("server" if forged else name)))
        for name in widths
    ]
    return SumsShareRequest(study, "strict", plan, (*(channel.sign_public_key() for channel in keys), own))


@_against_compute(
    "who is observed, asked of who holds no data",
    "roles",
    f"refused: party '{THIRD}' computes and holds no data",
    quick=True,
)
def presence_of_nobody(scene: Scene) -> None:
    assert isinstance(scene.evil.ask(THIRD, PresenceRequest("study", "strict")), Refusal)


@_against_compute(
    "the coordinator's own keys in place of both parties', for who computes",
    "signatures by certificates",
    f"refused: party '{THIRD}': the public key of 'left' is not signed by it",
)
def forged_keys(scene: Scene) -> None:
    assert isinstance(scene.evil.ask(THIRD, _sums(scene, "forged", _WIDTHS, forged=True)), Refusal)


@_against_compute(
    "more columns than the federation has, for who computes",
    "its own federation file",
    f"refused: party '{THIRD}': the plan of secure sums names other parties, columns or roles",
    quick=True,
)
def other_columns(scene: Scene) -> None:
    asked = _sums(scene, "wider", {"left": 2, "right": 200}, forged=False)
    assert isinstance(scene.evil.ask(THIRD, asked), Refusal)


@_against_compute(
    "sums of a study that is over", "its secret is gone", f"refused: party '{THIRD}': this study is over", quick=True
)
def sums_after_the_end(scene: Scene) -> None:
    asked = _sums(scene, "over", _WIDTHS, forged=False)
    assert isinstance(scene.evil.ask(THIRD, CloseRequest("over")), CloseReply)
    assert isinstance(scene.evil.ask(THIRD, asked), Refusal)
