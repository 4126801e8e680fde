"""Messages from party to party that the coordinator relays and cannot read, alter, repeat or send elsewhere.

Every party makes an X25519 key pair per study and signs the public key with something the others trust: the key of
its certificate, or a key that all parties hold. A sealed message is AES-256-GCM under a key of its own, derived
(HKDF-SHA256) from the two parties' common secret, a salt, and all of: study, sender, receiver, purpose, counter, both
public keys.

The salt depends on the sender's secret and the content. So the same content makes the same bytes, after a restart
too, and no key is ever used for two contents.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from verticopula.errors import ProtocolError

SECRET_BYTES = 32
KEY_BYTES = 32
_SALT_BYTES = 32
_NONCE = bytes(12)  # a key is used once, so the nonce may be the same
_LONGEST = 2**31 - 64  # what one call of AES-GCM takes
_LEAST_SHARED = 16


@dataclass(frozen=True, repr=False)
class Authenticity:
    """How a party proves that a public key is its own, and how it knows the others'.

    Attributes
    ----------
    sign : message -> signature
    verify : party, message, signature -> whether that party signed it
    """

    sign: Callable[[bytes], bytes]
    verify: Callable[[str, bytes, bytes], bool]


def shared_authenticity(key: bytes) -> Authenticity:
    """For parties that all hold one key, which the relay must not have: HMAC. The message names the signer."""
    if len(key) < _LEAST_SHARED:
        raise ProtocolError(f"a common key has at least {_LEAST_SHARED} bytes")
    own = hashlib.sha256(b"verticopula public keys" + key).digest()

    def sign(message: bytes) -> bytes:
        return hmac.digest(own, message, "sha256")

    return Authenticity(sign, lambda party, message, signature: hmac.compare_digest(sign(message), signature))


@dataclass(frozen=True)
class SignedPublicKey:
    """A party's public key in one study, signed."""

    WIRE_NAME = "Introduction"  # its name in stored and sent messages

    party: str
    public: bytes
    signature: bytes


class SealedChannel:
    """One party's keys in one study, with which it seals messages and opens them. The repr leaves out its secret.

    Parameters
    ----------
    secret : 32 bytes of this party, for this study only; the same secret gives the same keys and ciphertexts
    """

    def __init__(self, study: str, party: str, secret: bytes, authenticity: Authenticity) -> None:
        if len(secret) != SECRET_BYTES:
            raise ProtocolError(f"a study's secret has {SECRET_BYTES} bytes")
        self.study = study
        self.party = party
        self._secret = secret
        self._authenticity = authenticity
        self._private = X25519PrivateKey.from_private_bytes(self.derive("private key"))
        self.public = self._private.public_key().public_bytes_raw()
        self._common: dict[str, bytes] = {}
        self._publics: dict[str, bytes] = {party: self.public}
        self._opened: dict[tuple[str, str, int], bytes] = {}

    def __repr__(self) -> str:
        return f"SealedChannel({self.party!r})"

    def derive(self, *label: str, size: int = 32) -> bytes:
        """Bytes that only this party can make, for one use each."""
        return _expand(self._secret, b"", _joined(self.study, self.party, *label), size)

    def sign_public_key(self) -> SignedPublicKey:
        """This party's public key, signed for the others."""
        message = _key_statement(self.study, self.party, self.public)
        return SignedPublicKey(self.party, self.public, self._authenticity.sign(message))

    def accept_keys(self, others: Iterable[SignedPublicKey]) -> None:
        """Accept the parties' public keys; ProtocolError where one is not signed by its party, or has changed."""
        for other in others:
            message = _key_statement(self.study, other.party, other.public)
            if not self._authenticity.verify(other.party, message, other.signature):
                raise ProtocolError(f"party {self.party!r}: the public key of {other.party!r} is not signed by it")
            known = self._publics.get(other.party)
            if known is not None and known != other.public:
                raise ProtocolError(f"party {self.party!r}: {other.party!r} had another public key in this study")
            if known is None:
                self._common[other.party] = self._agree(other)
                self._publics[other.party] = other.public

    def _agree(self, other: SignedPublicKey) -> bytes:
        try:
            return self._private.exchange(X25519PublicKey.from_public_bytes(other.public))
        except ValueError:  # not 32 bytes, or a point of small order
            raise ProtocolError(f"party {self.party!r}: the public key of {other.party!r} is none") from None

    def common_key(self, other: str, *label: str, size: int = 16) -> bytes:
        """A key that these two parties have in common and nobody else has: the same on both sides."""
        pair = sorted(((self.party, self.public), (other, self._public_of(other))))
        context = _joined("common", self.study, *(name for name, _ in pair), *(p.hex() for _, p in pair), *label)
        return _expand(self._common[other], b"", context, size)

    def seal(self, receiver: str, purpose: str, counter: int, content: bytes) -> bytes:
        """A message that only `receiver` can open, and only for this purpose and counter."""
        if len(content) > _LONGEST:
            raise ProtocolError(f"party {self.party!r}: a sealed message has at most {_LONGEST} bytes")
        context = self._context(self.party, receiver, purpose, counter)
        digest = hashlib.sha256(content).hexdigest()
        salt = self.derive("salt", receiver, purpose, str(counter), digest, size=_SALT_BYTES)
        key = _expand(self._common[receiver], salt, context, KEY_BYTES)
        return salt + AESGCM(key).encrypt(_NONCE, content, context)

    def open(self, sender: str, purpose: str, counter: int, sealed: bytes) -> bytes:
        """The content that `sender` sealed; ProtocolError unless it is for this party, this purpose and this counter.

        There is one message per purpose and counter: the same one may be opened again, another one not.
        """
        context = self._context(sender, self.party, purpose, counter)
        slot, digest = (sender, purpose, counter), hashlib.sha256(sealed).digest()
        if self._opened.get(slot, digest) != digest:
            raise ProtocolError(f"party {self.party!r}: {sender!r} has sent another message in this place before")
        key = _expand(self._common[sender], sealed[:_SALT_BYTES], context, KEY_BYTES)
        try:
            content = AESGCM(key).decrypt(_NONCE, memoryview(sealed)[_SALT_BYTES:], context)
        except (InvalidTag, ValueError):
            raise ProtocolError(
                f"party {self.party!r}: a sealed message is not what {sender!r} sent here: it was altered, or meant "
                "for another place"
            ) from None
        self._opened[slot] = digest
        return content

    def _public_of(self, party: str) -> bytes:
        if party not in self._common:
            raise ProtocolError(f"party {self.party!r} does not know the public key of {party!r}")
        return self._publics[party]

    def _context(self, sender: str, receiver: str, purpose: str, counter: int) -> bytes:
        other = receiver if sender == self.party else sender
        keys = {self.party: self.public, other: self._public_of(other)}
        return _joined(  # "box" is part of the key derivation: old ciphertexts need it
            "box", self.study, sender, receiver, purpose, str(counter), keys[sender].hex(), keys[receiver].hex()
        )


def _key_statement(study: str, party: str, public: bytes) -> bytes:
    """What a party signs: that this public key is its own in this study."""
    return _joined("public key", study, party, public.hex())


def _joined(*parts: str) -> bytes:
    return join_with_lengths("verticopula sealed 1", *parts)


def join_with_lengths(*parts: str | bytes) -> bytes:
    """Every part with its length, so that different parts cannot run together."""
    coded = [part.encode() if isinstance(part, str) else part for part in parts]
    return b"".join(len(part).to_bytes(8, "little") + part for part in coded)


def _expand(secret: bytes, salt: bytes, context: bytes, size: int) -> bytes:
    return HKDF(algorithm=hashes.SHA256(), length=size, salt=salt or None, info=context).derive(secret)
