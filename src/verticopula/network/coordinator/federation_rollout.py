"""The coordinator's side of a change of the federation file: show it to everybody who stays, and wait for their yes.

Until all of them have agreed, the file of before is in force and studies go on with it. So a no costs nobody anything.
The coordinator decides nothing here: it passes on what the authority signed, and every party looks at it itself.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from verticopula.errors import ProtocolError, SettingsError, VerticopulaError
from verticopula.network.connection.control_messages import (
    ChangeAnswer,
    ChangeReply,
    ChangeRequest,
    InProgress,
    ProposedChange,
    Refusal,
    Topic,
)
from verticopula.network.connection.refusal_errors import as_error
from verticopula.network.connection.sessions import PeerSessions
from verticopula.network.kit.key_signing import KitFiles
from verticopula.network.kit.signed_federation import (
    SIGNED_FEDERATION_FILE,
    KitFederations,
    SignedFederation,
    change_problem,
    members_of,
    read_kept,
    read_signed_federation,
)
from verticopula.network.kit.startup_kit import Kit, file_stamp, write_private
from verticopula.protocol.message_files import Body
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.wire import decode, encode

logger = logging.getLogger(__name__)

IN_FORCE_FILE = "federation-in-force.json"  # with the authority's signature, for those who were away

_LOOK = 1.0  # seconds between two looks at the kit
_AGAIN = 20.0  # seconds after which a party that says nothing is shown the file again
_AGAIN_LATER = 300.0  # one that has said something, but not yes: what stands in the way may have gone


@dataclass
class _Shown:
    """What one party was shown last, and when; `said`: it answered that its stewards were asked, or no."""

    key: str
    signed: SignedFederation
    in_force: bool
    when: float
    said: bool = False


@dataclass
class FederationRollout:
    """Who agrees to the file that is proposed, and which file is in force.

    Attributes
    ----------
    on_agreed : called when everybody who stays has agreed; it has `put_in_force` called
    on_answer : called when a party has said something about the proposed file
    clock : seconds since 1970
    files : the kit's federation files
    proposed : a signed file that is not in force yet
    """

    kit: Kit
    sessions: PeerSessions
    on_agreed: Callable[[], None]
    on_answer: Callable[[], None]
    clock: Callable[[], float] = time.time
    proposed: SignedFederation | None = field(default=None, init=False)
    _answers: dict[str, ChangeAnswer] = field(default_factory=dict, init=False)
    _shown: dict[str, _Shown] = field(default_factory=dict, init=False)  # by party, until it has agreed
    _since: float = field(default=0.0, init=False)
    _looked: tuple[int, int, int] = field(default=(0, 0, 0), init=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)
    _stopped: threading.Event = field(default_factory=threading.Event, init=False)

    def __post_init__(self) -> None:
        self.files = KitFederations(self.kit)
        self._certificates = KitFiles(self.kit)
        self._signed = self._read_in_force()

    def start(self) -> None:
        """Look at the kit from now on."""
        threading.Thread(target=self._watch, name="federation", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            try:
                self.look()
                self._show_again()
            except (VerticopulaError, OSError) as error:
                logger.error("the federation file: %s", error)
            self._stopped.wait(_LOOK)

    # ---- what is proposed ---------------------------------------------------------------------

    def look(self) -> None:
        """Take the signed file that was put into the kit, if it is a new one."""
        with self._lock:
            stamp = file_stamp(self.kit.folder / SIGNED_FEDERATION_FILE)
            if stamp == self._looked:
                return
            self._looked = stamp
            try:
                found = read_kept(self.kit.folder, self._certificates.trust().federation_roots)
            except SettingsError as error:
                logger.warning("%s", error)
                return
            if found is None or found.fingerprint == self.files.fingerprint:
                return
            wrong = change_problem(self.files.in_force, found.federation)
            if not wrong and self.proposed is not None and found.version <= self.proposed.version:
                is_same = found.digest == self.proposed.digest
                wrong = "" if is_same else f"version {self.proposed.version} is proposed already: count the version up"
            if wrong:
                logger.warning("the signed federation file in the kit was not taken: %s", wrong)
            elif self.proposed is None or found.digest != self.proposed.digest:
                self._propose(found)

    def _propose(self, found: SignedFederation) -> None:
        stay = [name for name in members_of(found.federation) if name in members_of(self.files.in_force)]
        self.proposed, self._since = found, self.clock()
        self._answers = {name: ChangeAnswer(name, "unreached") for name in stay}
        self._shown = {name: one for name, one in self._shown.items() if one.in_force}
        logger.info(
            "%s of the federation file is proposed; %s is in force, and %s are asked",
            found.description,
            self.files.description,
            ", ".join(stay) or "nobody",
        )
        for name in stay:
            self._show(name)
        self._look_whether_agreed()
        self.on_answer()

    # ---- parties ------------------------------------------------------------------------------

    def on_session(self, name: str) -> None:
        """Somebody has connected: show them what they may not have."""
        with self._lock:
            self._show(name)

    def take(self, name: str, topic: Topic, key: str, body: Body) -> bool:
        """Whether a message is the answer to what was shown; then it was read.

        Parameters
        ----------
        name, topic, key, body : as sessions have them
        """
        with self._lock:
            shown = self._shown.get(name)
            if shown is None or shown.key != key:
                return False
            if topic == "working":
                said = decode(body, (InProgress,))
                if said.waits_for == "steward":
                    shown.said = True
                    self._answered(name, shown, ChangeAnswer(name, "asked", float(said.since)))
                elif shown.said:  # its stewards have decided: the next look shows it again, however often it says so
                    shown.said, shown.when = False, -math.inf
            elif topic == "refusal":
                shown.said = True
                error = as_error(decode(body, (Refusal,)))
                logger.warning("%s of the federation file: %s", shown.signed.description, error)
                self._answered(name, shown, ChangeAnswer(name, "refused", note=str(error)[:500]))
            else:
                del self._shown[name]
                self._agreed(name, shown, decode(body, (ChangeReply,)))
            return True

    def _agreed(self, name: str, shown: _Shown, reply: ChangeReply) -> None:
        if (reply.party, reply.digest) != (name, shown.signed.digest):
            raise ProtocolError("it agrees to another federation file than it was shown")
        if self.sessions.admission is not None:
            self.sessions.admission.has_federation(name, reply.federation, reply.federation_version)
        what = "has in force" if shown.in_force else "agrees to"
        logger.info("%s %s %s, digest %s", name, what, shown.signed.description, shown.signed.digest)
        if shown.in_force:
            if reply.federation != shown.signed.fingerprint:
                raise ProtocolError("it was told which federation file is in force, and keeps another one")
            self._show(name)  # there may be a newer one
        else:
            self._answered(name, shown, ChangeAnswer(name, "accepted"))

    def _answered(self, name: str, shown: _Shown, answer: ChangeAnswer) -> None:
        if self.proposed is None or shown.in_force or shown.signed.digest != self.proposed.digest:
            return
        if self._answers.get(name) != answer:
            self._answers[name] = answer
            self._look_whether_agreed()
            self.on_answer()

    def _look_whether_agreed(self) -> None:
        if all(answer.state == "accepted" for answer in self._answers.values()):
            self.on_agreed()

    def _show(self, name: str) -> None:
        """Show a party what it lacks: the file that is in force, or the one that is proposed."""
        signed, in_force = self._lacks(name)
        if signed is None:
            self._shown.pop(name, None)
            return
        request = ChangeRequest(signed.text.encode("utf-8"), in_force)
        key = fingerprint(request)
        self._shown[name] = _Shown(key, signed, in_force, time.monotonic())
        self.sessions.send(name, "ask", key, encode(request))

    def _lacks(self, name: str) -> tuple[SignedFederation | None, bool]:
        said = None if self.sessions.admission is None else self.sessions.admission.introduced(name)
        other = said is not None and said.federation not in ("", self.files.fingerprint)
        if self._signed is not None and other and name in members_of(self.files.in_force):
            return self._signed, True
        answer = self._answers.get(name)
        if self.proposed is None or answer is None or answer.state == "accepted":
            return None, False
        return self.proposed, False

    def _show_again(self) -> None:
        with self._lock:
            now = time.monotonic()
            for name, shown in list(self._shown.items()):
                if now - shown.when > (_AGAIN_LATER if shown.said else _AGAIN):
                    self._show(name)

    # ---- in force -----------------------------------------------------------------------------

    def put_in_force(self) -> bool:
        """Whether the proposed file is in force now; False where there is none, or not everybody agrees after all."""
        with self._lock:
            proposed = self.proposed
            if proposed is None or any(answer.state != "accepted" for answer in self._answers.values()):
                return False
            before = self.files.description
            write_private(self.kit.folder / IN_FORCE_FILE, proposed.text)
            self.files.replace(proposed.federation)
            self._signed, self.proposed, self._answers, self._shown = proposed, None, {}, {}
            logger.info("%s of the federation file is in force; it was %s", proposed.description, before)
            return True

    def tell(self) -> None:
        """Tell everybody of the file that is in force."""
        with self._lock:
            for name in members_of(self.files.in_force):
                self._show(name)

    def is_telling(self, name: str) -> bool:
        """Whether a party was told which file is in force, and has not said anything to that yet."""
        with self._lock:
            shown = self._shown.get(name)
            return shown is not None and shown.in_force and not shown.said

    def _read_in_force(self) -> SignedFederation | None:
        path = self.kit.folder / IN_FORCE_FILE
        if not path.is_file():
            return None
        try:
            roots = self._certificates.trust().federation_roots
            found = read_signed_federation(path.read_text(encoding="utf-8"), roots)
        except (SettingsError, OSError, UnicodeDecodeError):
            return None
        return found if found.fingerprint == self.files.fingerprint else None

    # ---- for people ---------------------------------------------------------------------------

    def describe(self) -> ProposedChange | None:
        """The file that is proposed, and what everybody says to it; None where there is none."""
        with self._lock:
            if self.proposed is None:
                return None
            return ProposedChange(self.proposed.version, self.proposed.fingerprint, tuple(self._answers.values()))

    def waits_for(self) -> dict[str, float]:
        """Party -> since when the proposed file waits for it."""
        with self._lock:
            waiting = [answer for answer in self._answers.values() if answer.state != "accepted"]
            return {answer.party: answer.since or self._since for answer in waiting}

    def refusal(self) -> str:
        """Why somebody does not agree to the proposed file; empty while nobody has refused."""
        with self._lock:
            notes = [answer.note for answer in self._answers.values() if answer.state == "refused"]
            return notes[0] if notes else ""

    def coming(self, name: str) -> str:
        """Why somebody whom the proposed file names cannot connect yet; empty for everybody else."""
        with self._lock:
            if self.proposed is None or name not in members_of(self.proposed.federation):
                return ""
            return (
                f"{name!r} takes part from {self.proposed.description} of the federation file on, which waits for "
                f"{', '.join(self.waits_for()) or 'nobody'}; {self.files.description} is in force until then"
            )
