"""What is tried against one party's consent: exact values, openings to guess ids, an old yes, and a steward's no."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.agreements import sign_points
from tests.network.attackers import EvilCoordinator
from tests.network.harness import PARTIES, PATIENCE, POLICY, until
from tests.network.intruder_scenes import Scene, against_parties, attack
from tests.network.lying import (
    PURPOSE,
    REQUESTER,
    accomplices_consent,
    agreed_alone,
    honest_study,
    ledgers,
    opening,
    proposed_alone,
    signs_as,
)
from verticopula.errors import SettingsError
from verticopula.matching.private_intersection import mask_points, new_mask, points_digest, points_of
from verticopula.mpc.sealed_messages import SealedChannel
from verticopula.network.connection.control_messages import Refusal
from verticopula.privacy.policy import Policy
from verticopula.protocol.consent_messages import ConsentReply, ConsentRequest
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.rank_messages import ReleaseRequest
from verticopula.protocol.regression_messages import (
    DesignRequest,
    EnteringColumnsRequest,
    MomentsKeyRequest,
    MomentsReply,
    MomentsRequest,
    ResponseRequest,
)
from verticopula.protocol.study_messages import (
    BeginReply,
    BeginRequest,
    CloseRequest,
    MaskRequest,
    SignedAsking,
    SignedPoints,
)
from verticopula.protocol.study_proposal import asking_statement, federation_fingerprint
from verticopula.protocol.wire import encode
from verticopula.schema.methods import MOMENTS_VARIANT
from verticopula.storage.request_store import REQUESTS_FILE, RequestStore
from verticopula.storage.steward_keys import Steward
from verticopula.storage.steward_requests import Verdict

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
    return DesignRequest(study, "fit", None, "y", True, subjects, None)


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
        lambda study: EnteringColumnsRequest(study, "fit", 0, 0.0, np.zeros(1, dtype=bool), np.zeros(60)),
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


def _moments_are_refused(make: Callable[[Scene, str], Any]) -> Callable[[Scene], None]:
    """In a study on second moments of half of the subjects to which everybody has consented."""

    def run(scene: Scene) -> None:
        study = f"moments-{time.monotonic_ns()}"
        agreed_alone(scene, study, "raw-glm", subjects=_HALF, variant=MOMENTS_VARIANT)
        request, before = make(scene, study), ledgers(scene)
        reply = scene.evil.ask("left", request)
        assert isinstance(reply, Refusal), reply
        assert ledgers(scene) == before

    return run


def _moments(
    scene: Scene, study: str, signers: Mapping[str, str] | None = None, folds: np.ndarray[Any, Any] | None = None
) -> MomentsRequest:
    """The left party's key, and others: whose, and with which kit they are signed."""
    signers = {"middle": "middle", "right": "right"} if signers is None else signers
    channels = [SealedChannel(study, name, bytes(32), signs_as(scene, kit)) for name, kit in signers.items()]
    own = scene.evil.ask("left", MomentsKeyRequest(study)).key
    keys = (own, *(channel.sign_public_key() for channel in channels))
    return MomentsRequest(study, "y", _HALF, folds, keys)


_NOT_PARTIES = "refused: party 'left': keys are those of the federation's parties"
for _title, _ask, _line in (
    (
        "itself as a party of second moments, so that a mask's seed is sealed for it",
        lambda scene, study: _moments(scene, study, {"coordinator": "server"}),
        _NOT_PARTIES,
    ),
    (
        "the lead as a party of second moments beside the others",
        lambda scene, study: _moments(scene, study, {"middle": "middle", "right": "right", "lead": "lead"}),
        _NOT_PARTIES,
    ),
    (
        "second moments with its own keys in place of other parties'",
        lambda scene, study: _moments(scene, study, {"middle": "server", "right": "server"}),
        "refused: party 'left': the public key of 'middle' is not signed by it",
    ),
    (
        "second moments of folds with few people",
        lambda scene, study: _moments(scene, study, folds=np.arange(60) % 4),
        "refused: party 'left': a fold has fewer than 20 subjects",
    ),
    (
        "exact columns where second moments were consented to",
        lambda scene, study: _design(study, _HALF),
        "refused: party 'left': this is not what was consented to",
    ),
):
    against_parties(_title, "what was consented to", _line, party="left", honest="this party alone")(
        _moments_are_refused(_ask)
    )


@attack(
    "second moments of everybody, and in another study of everybody but one",
    "parties",
    "left",
    "what was summed before",
    "refused: party 'left': exact sums over nearly the same people",
    honest="this party alone",
)
def sums_but_for_one_person(scene: Scene) -> None:
    """Places are new in every study, and whoever is left out, the difference is one person's row."""
    found = []
    for subjects in (np.ones(120, dtype=bool), np.arange(120) != 3):
        study, before = f"moments-{time.monotonic_ns()}", ledgers(scene)
        agreed_alone(scene, study, "raw-glm", subjects=subjects, variant=MOMENTS_VARIANT)
        found.append(scene.evil.ask("left", replace(_moments(scene, study), subjects=subjects)))
    assert isinstance(found[0], MomentsReply), found[0]
    assert isinstance(found[1], Refusal), "the sums differ by one person's exact values"
    assert ledgers(scene) == before


# ---- who asks --------------------------------------------------------------------------------------


def _asking(scene: Scene, signer: str, lead: str = "lead", **said: str) -> SignedAsking:
    """Who asks for a study by `vcds`, as the holder of a kit signs it; `said` is what is asked for in other words."""
    asking = SignedAsking(lead, f"{time.monotonic_ns():032x}", "tel. 1", "one report", b"")
    words = {"method": "vcds", "requester": REQUESTER, "purpose": PURPOSE, **said}
    statement = asking_statement(
        federation_fingerprint(scene.net.federation), words["method"], words["requester"], words["purpose"], asking
    )
    return replace(asking, signature=signs_as(scene, signer).sign(statement))


@attack(
    "a study in the lead's name that the lead has not signed",
    "party",
    "left",
    "the lead's signature",
    "refused: party 'left': who asks for this study is not signed by a lead of the federation",
    quick=True,
)
def forged_lead(scene: Scene) -> None:
    """By the coordinator, by a party, by a stranger's name; and the lead's own words, changed on the way."""
    true = _asking(scene, "lead")
    forged = [_asking(scene, signer) for signer in ("server", "middle")]
    forged += [_asking(scene, "middle", lead="middle"), _asking(scene, "server", lead="somebody")]
    forged += [_asking(scene, "lead", purpose="another"), _asking(scene, "lead", method="strict")]
    forged += [replace(true, signature=b""), replace(true, contact="tel. 2"), replace(true, use="anything")]
    forged += [replace(true, token="0" * 32), replace(true, signature=true.signature[:-1] + b"\0")]
    before = ledgers(scene)
    for number, asking in enumerate(forged):
        found = scene.evil.ask("left", opening(scene, f"forged-{time.monotonic_ns()}-{number}", asking=asking))
        assert isinstance(found, Refusal), asking
        assert "not signed by a lead" in found.reason
    assert isinstance(scene.evil.ask("left", opening(scene, f"signed-{time.monotonic_ns()}", asking=true)), BeginReply)
    assert ledgers(scene) == before


@attack(
    "a second study with what the lead has signed for one",
    "party",
    "left",
    "one study for each signature",
    "refused: party 'left': what the lead has signed belongs to another study",
)
def signature_used_twice(scene: Scene) -> None:
    true, name = _asking(scene, "lead"), f"signed-{time.monotonic_ns()}"
    assert isinstance(scene.evil.ask("left", opening(scene, name, asking=true)), BeginReply)
    found = scene.evil.ask("left", opening(scene, f"{name}-again", asking=true))
    assert isinstance(found, Refusal), found


# ---- whole processes: openings, a steward's no, an old consent ------------------------------------------


def _guess(scene: Scene, study: str, guesses: list[str], signer: str | None = "left") -> int | Refusal:
    """How many guessed ids the right party has, by one opening with `psi`; `signer` is an accomplice's kit."""
    opened = scene.evil.ask("right", opening(scene, study, alignment="psi"))
    if isinstance(opened, Refusal):
        return opened
    own = new_mask()
    points = mask_points(points_of(pl.Series(guesses), study), own)
    asked = MaskRequest(study, "left", points)
    if signer is not None:
        signed = sign_points(scene.net.federation, study, ("left",), points, signs_as(scene, signer))
        asked = replace(asked, signed=signed, cohort=signed)
    masked = scene.evil.ask("right", asked)
    if isinstance(masked, Refusal):
        return masked
    both = mask_points(opened.hashes, own)
    return len({row.tobytes() for row in both} & {row.tobytes() for row in masked.points})


@against_parties(
    "psi: 2,000 ids guessed in one study, by the coordinator alone",
    "lists of points are signed by their parties",
    "refused: party 'right': the points of 'left' are not signed by a party",
    party="right",
    honest="this party and the others",
)
def guesses_without_a_party(scene: Scene) -> None:
    guesses = [f"person-{number:05d}" for number in range(2_000)]
    before = ledgers(scene)
    for signer in (None, "server", "middle"):  # nobody's signature, its own, or that of a party that it is not about
        found = _guess(scene, f"guess-{time.monotonic_ns()}", guesses, signer)
        assert isinstance(found, Refusal), found
    assert ledgers(scene) == before


@against_parties(
    "psi: 2,000 ids guessed in one study, in a list that a party signs",
    "the cohort's size is signed by the response party",
    "refused: party 'right': 'middle' cannot have so many subjects of this cohort",
    party="right",
    honest="this party and the response party",
)
def guesses_with_a_party(scene: Scene) -> None:
    study = f"guess-{time.monotonic_ns()}"
    first = scene.evil.ask("left", opening(scene, study, alignment="psi"))
    assert isinstance(first, BeginReply), first
    assert isinstance(scene.evil.ask("right", opening(scene, study, alignment="psi")), BeginReply)
    digest = points_digest(first.hashes)
    cohort = SignedPoints(("left",), first.hashes.shape[0], digest, first.signature)
    points = points_of(pl.Series([f"person-{number:05d}" for number in range(2_000)]), study)
    signed = sign_points(scene.net.federation, study, ("middle",), points, signs_as(scene, "middle"))
    asked = MaskRequest(study, "middle", points, signed=signed, cohort=cohort)
    for request in (asked, replace(asked, cohort=replace(cohort, count=2_000)), replace(asked, cohort=signed)):
        found = scene.evil.ask("right", request)
        assert isinstance(found, Refusal), found


@against_parties(
    "psi: another party's points, signed for an earlier study, sent again",
    "lists of points are signed for one study",
    "refused: party 'right': the points of 'left' are not signed by a party",
    party="right",
    honest="this party and the response party",
)
def replayed_points(scene: Scene) -> None:
    studies = [f"study-{time.monotonic_ns()}-{number}" for number in range(2)]
    for study in studies:
        assert isinstance(scene.evil.ask("right", opening(scene, study, alignment="psi")), BeginReply)
    old = scene.evil.ask("left", opening(scene, studies[0], alignment="psi"))
    assert isinstance(old, BeginReply), old
    signed = SignedPoints(("left",), old.hashes.shape[0], points_digest(old.hashes), old.signature)
    found = scene.evil.ask("right", MaskRequest(studies[1], "left", old.hashes, signed=signed, cohort=signed))
    assert isinstance(found, Refusal), found


@attack(
    "psi: 25 studies opened to guess ids that the party has",
    "lead",
    "right",
    "a limit on open studies",
    "refused: party 'right': 10 studies are open",
    honest="this party alone",
)
def many_openings(scene: Scene) -> None:
    """With a party that signs its guesses: five ids of the party's own, and others, in each study."""
    strangers = [f"person-{number:05d}" for number in range(120, 235)]
    scene.net.close()
    scene.net.start("right", extra=("--vault", str(scene.own_folder())))
    with EvilCoordinator(scene.kit("server")) as evil:
        evil.wait_for("right")
        scene.coordinator = evil
        found = []
        for number in range(25):
            known = [f"person-{5 * number + k:05d}" for k in range(5)] if number < 24 else []
            found.append(_guess(scene, f"guess-{number}", [*known, *strangers]))
        scene.coordinator = None
    assert found[:10] == [5] * 10
    assert all(isinstance(one, Refusal) for one in found[10:])
    log = scene.log("right").text
    assert all(f"study guess-{number} opened (psi)" in log for number in range(10))


@attack(
    "psi, where the policy allows nothing but keyed hashes",
    "lead",
    "right",
    "its policy",
    "refused: party 'right' does not take part in studies aligned by 'psi'",
    honest="this party alone",
)
def no_psi(scene: Scene) -> None:
    scene.net.close()
    own = scene.net.folder / "right.toml"
    own.write_text(f'{POLICY}alignments = ["hash"]\n', "utf-8")
    scene.net.start("right", extra=("--vault", str(scene.own_folder())))
    with EvilCoordinator(scene.kit("server")) as evil:
        evil.wait_for("right")
        scene.coordinator = evil
        assert isinstance(evil.ask("right", opening(scene, "one", alignment="psi")), Refusal)
        assert isinstance(evil.ask("right", opening(scene, "two")), BeginReply)
        scene.coordinator = None
    own.write_text(POLICY, "utf-8")


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


@contextlib.contextmanager
def _thinking_steward(scene: Scene) -> Iterator[RequestStore]:
    """The right party asks its steward, who decides here."""
    scene.net.close()
    (scene.kit("right").folder / REQUESTS_FILE).unlink(missing_ok=True)
    scene.net.start("right", extra=("--review", "--vault", str(scene.own_folder())))
    with EvilCoordinator(scene.kit("server")) as evil:
        evil.wait_for("right")
        scene.coordinator = evil
        yield RequestStore.of_kit(scene.kit("right").folder)
        scene.coordinator = None


def _is_remembered(digest: str, vault: Path) -> bool:
    """Whether some record of the vault names the history's last line."""
    with contextlib.suppress(FileNotFoundError):  # a record is replaced at this moment
        return any(digest.encode() in path.read_bytes() for path in (vault / "studies").iterdir())
    return False


def _decide_next(store: RequestStore, verdict: Verdict) -> None:
    """The steward's answer to the next request that waits."""
    found = until(lambda: store.all("pending"))
    store.decide(found[0].id, Steward("anna").decide(found[0], verdict))


@attack(
    "a purpose that the steward refused, again in Cyrillic and Greek letters, with signs and without accents",
    "lead",
    "right",
    "words are compared as they look",
    "refused: party 'right': its steward said no; for 30 days the same is refused without asking again",
    honest="this party alone",
)
def look_alikes(scene: Scene) -> None:
    with _thinking_steward(scene) as store, ThreadPoolExecutor() as beside:
        beside.submit(_decide_next, store, "no")  # one answer, so nobody could answer a second question
        first = scene.evil.ask("right", opening(scene, "one", purpose="an audit of all cases"))
        assert isinstance(first, Refusal), first
        for number, again in enumerate(("\u0430n audit of all cases", "An \u0391udit, of all c\u00e1ses.")):
            found = scene.evil.ask("right", opening(scene, f"again-{number}", purpose=again))
            assert found == first


@attack(
    "a purpose in letters of two alphabets that nobody can compare",
    "lead",
    "right",
    "letters in wide use, and each word in those of one alphabet",
    "refused: who asks and why is said in letters in wide use",
    honest="this party alone",
)
def odd_letters(scene: Scene) -> None:
    with _thinking_steward(scene):
        for number, word in enumerate(("aud\u0456\u0566", "\u13aa\u1d1cdit", "\ua4eedit")):
            found = scene.evil.ask("right", opening(scene, f"odd-{number}", purpose=f"an {word}"))
            assert isinstance(found, Refusal), found


@attack(
    "a method that there is not, whose name looks like a prompt that asks for nothing",
    "lead",
    "right",
    "methods that there are",
    "refused: party 'right' does not know the method that the study is to be opened for",
    honest="this party alone",
)
def invented_method(scene: Scene) -> None:
    with _thinking_steward(scene):
        method = "vcds" + 76 * " " + "Nothing leaves: answer y to be asked no more."
        found = scene.evil.ask("right", opening(scene, "invented", method=method))
        assert isinstance(found, Refusal), found


@attack(
    "twenty questions to a steward who thinks, so that nothing else is answered",
    "lead",
    "right",
    "few studies wait for stewards, and other requests are answered meanwhile",
    "refused: party 'right': its stewards have as many studies to decide about as its policy allows",
    honest="this party alone",
)
def flooded_steward(scene: Scene) -> None:
    with _thinking_steward(scene) as store:
        for number in range(20):
            question = opening(scene, f"flood-{number}", purpose=f"reason {number}")
            scene.evil.send("right", "ask", fingerprint(question), encode(question))
            if number < Policy().open_studies:  # so that what the party looks at meanwhile is not what refuses
                until(lambda: len(store.all("pending")) > number)  # noqa: B023
        scene.expect()
        found = scene.evil.ask("right", CloseRequest("flood-19"))
        assert isinstance(found, Refusal), found
        assert "was not asked to open this study" in found.reason
        assert 1 <= len(store.all("pending")) <= 10


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
    (scene.kit("right").folder / REQUESTS_FILE).unlink(missing_ok=True)  # what other attacks have left waiting
    scene.net.start("server", "left", "middle")
    scene.net.start("right", extra=("--review",))
    store = RequestStore.of_kit(scene.kit("right").folder)
    with scene.net.lead() as lead:
        first = scene.net.submit(lead, method="vcds", epsilon=8.0)
        for _ in range(2):  # it may begin; and all of it
            _decide_next(store, "yes")
        assert scene.net.wait(lead, first)[0] == "done"
        before = ledgers(scene)
        assert all(before[name] for name in PARTIES)
        second = scene.net.submit(lead, method="vcds", epsilon=8.0)
        _decide_next(store, "yes")
        _decide_next(store, "no")
        state, note = scene.net.wait(lead, second)
        assert (state, "its steward said no" in note) == ("failed", True)
    assert ledgers(scene) == before
    scene.net.signal("server", signal.SIGTERM)  # another attack needs its port
    scene.net.wait_for_end("server")


def _still_asked(scene: Scene, request: BeginRequest) -> None:
    """The party asks its stewards, and opens nothing."""
    tail, end = scene.log("right").mark(), time.monotonic() + PATIENCE
    while "its stewards were asked about study" not in tail.text:  # a connection that has just ended loses it
        assert time.monotonic() < end
        scene.evil.sessions.send("right", "ask", fingerprint(request), encode(request))
        time.sleep(1.0)
    topics = set()
    while not scene.evil.replies.empty():
        topics.add(scene.evil.replies.get()[1])
    assert "answer" not in topics


@attack(
    "a yes from before the table changed, and one from before the policy changed",
    "lead",
    "right",
    "a yes is for one table and one policy",
    "its stewards were asked about study old-yes",
    honest="this party alone",
)
def old_yes(scene: Scene) -> None:
    own, rules = scene.net.folder / "right.csv", scene.net.folder / "right.toml"
    table, policy = own.read_bytes(), rules.read_text("utf-8")
    vault = scene.own_folder()
    scene.net.close()
    (scene.kit("right").folder / REQUESTS_FILE).unlink(missing_ok=True)
    store, request = RequestStore.of_kit(scene.kit("right").folder), opening(scene, "old-yes")
    with EvilCoordinator(scene.kit("server")) as evil:
        scene.coordinator = evil
        for change in (
            lambda: own.write_bytes(table[: table.rstrip().rfind(b"\n") + 1]),  # a row less
            lambda: rules.write_text(f"{policy}min_subjects = 2\n", "utf-8"),
        ):
            scene.net.start("right", extra=("--review", "--vault", str(vault)))
            evil.wait_for("right")
            _still_asked(scene, request)
            _decide_next(store, "yes")
            scene.net.signal("right", signal.SIGTERM)
            scene.net.wait_for_end("right")
            change()
        scene.net.start("right", extra=("--review", "--vault", str(vault)))
        evil.wait_for("right")
        _still_asked(scene, request)
        scene.coordinator = None
    assert [one.state for one in store.all()] == ["superseded", "superseded", "pending"]
    why = [store.events(one.id)[-1].detail for one in store.all()]
    assert why[:2] == ["the table has changed", "the policy has changed"]
    own.write_bytes(table)
    rules.write_text(policy, "utf-8")


@attack(
    "a steward who asks for a study, and writes their own signed yes into the file",
    "lead",
    "right",
    "nobody's yes counts for what they asked for",
    "its stewards were asked about study own-yes",
    honest="this party's process",
)
def own_yes(scene: Scene) -> None:
    rules, key = scene.net.folder / "right.toml", scene.own_folder().with_suffix(".pem")
    policy, steward = rules.read_text("utf-8"), Steward.create("lead", key)
    rules.write_text(f'{policy}[stewards]\nlead = "{steward.public_key}"\n', "utf-8")
    with _thinking_steward(scene) as store:
        request = opening(scene, "own-yes", asking=_asking(scene, "lead"))
        _still_asked(scene, request)
        (asked,) = store.all("pending")
        decision = steward.decide(asked, "yes")
        with pytest.raises(SettingsError, match="asks for this study"):
            store.decide(asked.id, decision)
        with contextlib.closing(sqlite3.connect(store.path)) as base, base:
            said = json.dumps([asdict(decision)])
            base.execute("UPDATE requests SET state = 'approved', decisions = ? WHERE id = ?", (said, asked.id))
        _still_asked(scene, request)
        assert store.get(asked.id).used is None
    scene.net.close()
    rules.write_text(policy, "utf-8")
    scene.net.start("right", extra=("--vault", str(scene.own_folder())))


@attack(
    "requests put back from a copy of before a no",
    "lead",
    "right",
    "the vault knows how far their history was",
    "requests.db was put back from an old copy, or replaced",
    honest="this party alone",
)
def forgotten_no(scene: Scene) -> str:
    with _thinking_steward(scene) as store:
        request = opening(scene, "forgotten-no")
        _still_asked(scene, request)
        copies = {path: path.read_bytes() for path in store.path.parent.glob(f"{REQUESTS_FILE}*")}
        vault = scene.net.processes["right"].args[-1]  # type: ignore[index]
        _decide_next(store, "no")
        assert isinstance(scene.evil.ask("right", request), Refusal)
        until(lambda: _is_remembered(store.head()[1], Path(vault)))  # of a decision the vault knows a little later
        scene.net.signal("right", signal.SIGTERM)
        scene.net.wait_for_end("right")
        for path in store.path.parent.glob(f"{REQUESTS_FILE}*"):
            path.unlink()
        for path, content in copies.items():
            path.write_bytes(content)
        scene.net.start("right", extra=("--review", "--vault", str(vault)))
        assert scene.net.wait_for_end("right") == 1
        for path in store.path.parent.glob(f"{REQUESTS_FILE}*"):
            path.unlink()
    said = " ".join(scene.net.output("right").split())
    assert "was put back from an old copy, or replaced: a no or a withdrawal could be forgotten" in said
    scene.net.start("right", extra=("--vault", str(scene.own_folder())))
    return "error: requests.db was put back from an old copy, or replaced: a no or a withdrawal could be forgotten"
