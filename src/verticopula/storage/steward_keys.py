"""A steward's credential: an Ed25519 key of their own, whose public half stands in the party's policy.

The private half is a PEM file, mode 0600, under a passphrase if one is given. One steward, one key: two people who
share a key, or an account on one machine without passphrases, are one person to everybody else.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from verticopula.errors import SettingsError
from verticopula.storage.steward_requests import Decision, StewardRequest, Verdict, decision_statement


@dataclass(frozen=True, repr=False)
class Steward:
    """Somebody who decides about requests; `key` is None where the policy names no stewards."""

    name: str
    key: Ed25519PrivateKey | None = None

    @classmethod
    def create(cls, name: str, path: Path, passphrase: bytes | None = None) -> Steward:
        """A steward with a new key, written to a file that must not be there yet.

        Parameters
        ----------
        name : as it will stand in the policy
        path : where the private key goes
        passphrase : under which it is kept; None for none
        """
        key = Ed25519PrivateKey.generate()
        hidden: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if passphrase:
            hidden = serialization.BestAvailableEncryption(passphrase)
        text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise SettingsError(f"{path} is there already: a steward has one key; delete it to make another") from None
        with os.fdopen(handle, "wb") as file:
            file.write(text)
        return cls(name, key)

    @classmethod
    def load(cls, name: str, path: Path, passphrase: bytes | None = None) -> Steward:
        """A steward with the key from a file; SettingsError where it cannot be read.

        Parameters
        ----------
        name, path, passphrase : as `create` has them
        """
        try:
            key = serialization.load_pem_private_key(path.read_bytes(), passphrase or None)
        except FileNotFoundError:
            raise SettingsError(f"{path}: no such key; `verticopula steward` makes one") from None
        except TypeError:
            wanted = "needs a passphrase" if not passphrase else "has no passphrase, and one was given"
            raise SettingsError(f"{path}: this key {wanted}") from None
        except (OSError, ValueError):
            raise SettingsError(f"{path}: the key cannot be read, or the passphrase is wrong") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise SettingsError(f"{path} is not a key that `verticopula steward` has made")
        return cls(name, key)

    @property
    def public_key(self) -> str:
        """The public half, in hex; "" without a key."""
        return "" if self.key is None else self.key.public_key().public_bytes_raw().hex()

    def decide(
        self, request: StewardRequest, verdict: Verdict, reason: str = "", clock: Callable[[], float] = time.time
    ) -> Decision:
        """This steward's decision about a request, signed; it counts once `RequestStore.decide` has taken it.

        Parameters
        ----------
        request : what it is about, as the steward has seen it
        verdict : `yes`, `no`, or `withdrawn` for a yes that is taken back
        reason : for the record, and for a no also for the study lead
        clock : seconds since 1970
        """
        when = clock()
        statement = decision_statement(request, self.name, verdict, reason, when)
        signature = "" if self.key is None else self.key.sign(statement).hex()
        return Decision(self.name, verdict, reason, when, signature)


def is_signed(request: StewardRequest, decision: Decision, public_key: str) -> bool:
    """Whether the owner of this public key has made this decision about this request."""
    said = decision_statement(request, decision.steward, decision.verdict, decision.reason, decision.when)
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
        key.verify(bytes.fromhex(decision.signature), said)
    except (ValueError, InvalidSignature):
        return False
    return True
