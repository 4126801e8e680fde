"""What is tried against one party's consent: exact values, openings to guess ids, an old yes, and a steward's no."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from tests.network.attackers import EvilCoordinator
from tests.network.harness import PARTIES, POLICY
from tests.network.intruder_scenes import Scene, against_parties, attack
from tests.network.lying import (
    accomplices_consent,
    agreed_alone,
    honest_study,
    ledgers,
    opening,
    proposed_alone,
)
from verticopula.matching.private_intersection import mask_points, new_mask, points_of
from verticopula.network.control_messages import Refusal
from verticopula.protocol.messages import (
    ConsentReply,
    ConsentRequest,
    DesignRequest,
    MaskReply,
    MaskRequest,
    ReleaseRequest,
    ResponseRequest,
    UpdateRequest,
)

# ---- regressions on raw columns ------------------------------------------------------------------


def _raw(scene: Scene, *, agreed: bool) -> str:
    """A regression on half of the subjects; with `agreed`, the left party and its accomplices have consented to it."""
    study = f"raw-{time.monotonic_ns()}"
    if agreed:
        agreed_alone(scene, study, "raw-glm", subjects=_HALF)
    else:
        proposed_alone(scene, study, "raw-glm", subjects=_HALF)
    return study


_HALF = np.arange(120) < 60


def _design(study: str, subjects: np.ndarray[Any, Any] | None) -> DesignRequest:
    return DesignRequest(study, "fit", None, "y", True, subjects, None, "lasso", 3.7)


def _raw_is_refused(make: Callable[[str], Any], *, agreed: bool) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        request, before = make(_raw(scene, agreed=agreed)), ledgers(scene)
        reply = scene.evil.ask("left", request)
        assert isinstance(reply, Refusal), reply
        assert ledgers(scene) == before

    return run


for _name, _make, _agreed, _line in (
    ("exact responses before consent", lambda study: ResponseRequest(study, "y", _HALF), False, "has not consented"),
    ("a design on exact columns before consent", lambda study: _design(study, _HALF), False, "has not consented"),
    (
        "a step of a regression without a design",
        lambda study: UpdateRequest(study, "fit", 0, "main", "plain", 1.0, 1.0, 1e-6, False, np.zeros(60)),
        True,
        "was not asked to prepare this fit",
    ),
    (
        "exact responses of more people than were consented to",
        lambda study: ResponseRequest(study, "y", None),
        True,
        "exact values of these subjects were not consented to",
    ),
    (
        "a design on exact columns of more people than were consented to",
        lambda study: _design(study, np.arange(120) < 61),
        True,
        "exact values of these subjects were not consented to",
    ),
):
    against_parties(
        _name, "what was consented to", f"refused: party 'left'.*{_line}", party="left", honest="this party alone"
    )(_raw_is_refused(_make, agreed=_agreed))


# ---- whole processes: openings, a steward's no, an old consent ------------------------------------------


def _guess(scene: Scene, study: str, guesses: list[str]) -> int | Refusal:
    """How many guessed ids the right party has, by one opening with `psi`."""
    opened = scene.evil.ask("right", opening(scene, study, alignment="psi"))
    if isinstance(opened, Refusal):
        return opened
    own = new_mask()
    points = mask_points(points_of(pl.Series(guesses), study), own)
    masked = scene.evil.ask("right", MaskRequest(study, "left", points))
    assert isinstance(masked, MaskReply), masked
    both = mask_points(opened.hashes, own)
    return len({row.tobytes() for row in both} & {row.tobytes() for row in masked.points})


@attack(
    "psi: 25 studies opened to guess ids",
    "lead",
    "right",
    "a limit on open studies",
    "refused: party 'right': 10 studies are open",
    honest="this party alone",
)
def many_openings(scene: Scene) -> None:
    guesses = [f"person-{number:05d}" for number in range(120, 240)]
    scene.net.close()
    scene.net.start("right", extra=("--vault", str(scene.own_folder())))
    with EvilCoordinator(scene.kit("server")) as evil:
        evil.wait_for("right")
        scene.coordinator = evil
        found = [_guess(scene, f"guess-{number}", guesses) for number in range(25)]
        scene.coordinator = None
    assert found[:10] == [0] * 10
    assert all(isinstance(one, Refusal) for one in found[10:])
    log = scene.log("right").text
    assert all(f"study guess-{number} opened (psi)" in log for number in range(10))


@attack(
    "psi: ten studies that everybody agrees to and that are never run, then one more",
    "lead",
    "right",
    "a limit on open studies",
    "refused: party 'right': 10 studies are open",
    honest="this party alone",
)
def many_agreements(scene: Scene) -> None:
    scene.net.close()
    for name in PARTIES:
        scene.net.start(name, extra=("--vault", str(scene.own_folder())))
    with EvilCoordinator(scene.kit("server")) as evil:
        evil.wait_for(*PARTIES)
        scene.coordinator = evil
        for _ in range(10):
            honest_study(scene, "vcds", ReleaseRequest, alignment="psi", epsilon=1e-6)
        refused = evil.ask("right", opening(scene, "one-more", alignment="psi"))
        assert isinstance(refused, Refusal), refused
        scene.coordinator = None


@attack(
    "everybody's agreement, shown when a consent has ended",
    "lead",
    "left",
    "consents end",
    "refused: party 'left': consent to this study has ended; it has to be asked again",
    honest="this party alone",
)
def too_late(scene: Scene) -> None:
    scene.net.close()
    own, vault = scene.net.folder / "left.toml", scene.own_folder()
    own.write_text(f"{POLICY}consent_days = 2e-5\n", "utf-8")  # 1.7 s
    scene.net.start("left", extra=("--vault", str(vault)))
    with EvilCoordinator(scene.kit("server")) as evil:
        evil.wait_for("left")
        scene.coordinator = evil
        proposal = proposed_alone(scene, "late", "vcds")
        reply = evil.ask("left", ConsentRequest(proposal))
        assert isinstance(reply, ConsentReply), reply
        time.sleep(3.0)
        assert isinstance(evil.ask("left", accomplices_consent(scene, proposal, reply)), Refusal)
        scene.coordinator = None
    assert (vault / "ledger.jsonl").read_bytes() == b""
    own.write_text(POLICY, "utf-8")


@attack(
    "a steward's no, after the others have said yes",
    "lead",
    "right",
    "consent before any release",
    "refused: party 'right': its steward said no",
    honest="the party whose ledger it is",
)
def stewards_no(scene: Scene) -> None:
    scene.net.close()
    scene.net.start("server", "left", "middle")
    scene.net.start("right", extra=("--review",))
    steward = scene.net.processes["right"].stdin
    assert steward is not None
    with scene.net.lead() as lead:
        steward.write(b"y\ny\n")  # it may begin; and all of it
        steward.flush()
        first = scene.net.submit(lead, method="vcds", epsilon=8.0)
        assert scene.net.wait(lead, first)[0] == "done"
        before = ledgers(scene)
        assert all(before[name] for name in PARTIES)
        steward.write(b"y\nn\n")
        steward.flush()
        second = scene.net.submit(lead, method="vcds", epsilon=8.0)
        state, note = scene.net.wait(lead, second)
        assert (state, "its steward said no" in note) == ("failed", True)
    assert ledgers(scene) == before
    scene.net.signal("server", signal.SIGTERM)  # another attack needs its port
    scene.net.wait_for_end("server")
