"""Sealed messages: opened by whom they are for, once they are what was sent, and by nobody else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from verticopula.errors import ProtocolError
from verticopula.mpc.sealed_messages import Authenticity, SealedChannel, shared_authenticity

KEY = b"a key that all parties hold"
NAMES = ("a", "b", "c")


def channels(study: str = "study", salt: int = 0) -> dict[str, SealedChannel]:
    made = {
        name: SealedChannel(study, name, bytes([salt, number, *range(30)]), shared_authenticity(KEY))
        for number, name in enumerate(NAMES)
    }
    keys = [channel.sign_public_key() for channel in made.values()]
    for channel in made.values():
        channel.accept_keys(keys)
    return made


SEALED = channels()["a"].seal("b", "shares", 0, b"content")


def test_what_is_sealed_is_opened_and_looks_like_nothing() -> None:
    assert channels()["b"].open("a", "shares", 0, SEALED) == b"content"
    assert b"content" not in SEALED
    assert channels()["b"].open("a", "shares", 1, channels()["a"].seal("b", "shares", 1, b"")) == b""


def test_the_same_content_gives_the_same_ciphertext_and_other_content_another_key() -> None:
    assert channels()["a"].seal("b", "shares", 0, b"content") == SEALED
    other = channels()["a"].seal("b", "shares", 0, b"contents")
    assert other[:32] != SEALED[:32]  # another salt, hence another key


@given(st.integers(0, len(SEALED) - 1), st.integers(1, 255))
def test_no_byte_can_be_changed(position: int, change: int) -> None:
    broken = bytearray(SEALED)
    broken[position] ^= change
    with pytest.raises(ProtocolError, match="altered"):
        channels()["b"].open("a", "shares", 0, bytes(broken))


def test_nothing_can_be_cut_off_or_added() -> None:
    for broken in (b"", SEALED[:10], SEALED[:32], SEALED[:-1], SEALED + b"\x00"):
        with pytest.raises(ProtocolError, match="altered"):
            channels()["b"].open("a", "shares", 0, broken)


def test_a_sealed_message_cannot_be_sent_elsewhere_or_again() -> None:
    made = channels()
    attempts = [
        ("c", "a", "shares", 0),  # to another receiver
        ("a", "b", "shares", 0),  # back to the sender
        ("b", "c", "shares", 0),  # under another sender's name
        ("b", "a", "keys", 0),  # for another purpose
        ("b", "a", "shares", 1),  # in a later place
    ]
    for receiver, sender, purpose, counter in attempts:
        with pytest.raises(ProtocolError, match="meant for another place"):
            made[receiver].open(sender, purpose, counter, SEALED)
    with pytest.raises(ProtocolError, match="meant for another place"):
        channels("another study")["b"].open("a", "shares", 0, SEALED)
    with pytest.raises(ProtocolError, match="meant for another place"):
        channels(salt=1)["b"].open("a", "shares", 0, SEALED)  # the same study's name, other keys


def test_one_message_per_purpose_and_counter() -> None:
    made = channels()
    second = made["a"].seal("b", "shares", 0, b"other content")
    assert made["b"].open("a", "shares", 0, SEALED) == made["b"].open("a", "shares", 0, SEALED)
    with pytest.raises(ProtocolError, match="another message in this place"):
        made["b"].open("a", "shares", 0, second)


def test_public_keys_have_to_be_signed_by_their_party() -> None:
    made = channels()
    mine, theirs = made["a"].sign_public_key(), made["b"].sign_public_key()
    fresh = SealedChannel("study", "c", bytes(32), shared_authenticity(KEY))
    wrong = [
        replace(theirs, public=mine.public),
        replace(theirs, party="a"),
        replace(theirs, signature=bytes(32)),
        channels("another study")["b"].sign_public_key(),
        SealedChannel("study", "b", bytes(32), shared_authenticity(bytes(16))).sign_public_key(),
    ]
    for key in wrong:
        with pytest.raises(ProtocolError, match="not signed"):
            fresh.accept_keys([key])
    with pytest.raises(ProtocolError, match="does not know the public key"):
        fresh.seal("b", "shares", 0, b"")
    with pytest.raises(ProtocolError, match="does not know the public key"):
        fresh.open("b", "shares", 0, SEALED)
    with pytest.raises(ProtocolError, match="another public key"):
        made["a"].accept_keys([SealedChannel("study", "b", bytes(32), shared_authenticity(KEY)).sign_public_key()])
    with pytest.raises(ProtocolError, match="another public key"):  # our own key, replaced on the way
        made["a"].accept_keys([SealedChannel("study", "a", bytes(32), shared_authenticity(KEY)).sign_public_key()])


def test_keys_that_are_none_are_refused() -> None:
    fresh, forger = SealedChannel("study", "a", bytes(32), shared_authenticity(KEY)), shared_authenticity(KEY)
    for public in (bytes(32), b"short"):  # a point of small order; no point at all
        channel = SealedChannel("study", "b", bytes(32), forger)
        channel.public = public
        with pytest.raises(ProtocolError, match="is none"):
            fresh.accept_keys([channel.sign_public_key()])
    with pytest.raises(ProtocolError):
        SealedChannel("study", "a", bytes(31), forger)
    with pytest.raises(ProtocolError):
        shared_authenticity(b"short")


def test_common_keys_are_the_same_on_both_sides_and_only_there() -> None:
    made = channels()
    assert made["a"].common_key("b", "zero", "1") == made["b"].common_key("a", "zero", "1")
    keys = {
        made["a"].common_key("b", "zero", "1"),
        made["a"].common_key("b", "zero", "2"),
        made["a"].common_key("c", "zero", "1"),
        made["b"].common_key("c", "zero", "1"),
        channels("another study")["a"].common_key("b", "zero", "1"),
    }
    assert len(keys) == 5
    assert all(len(key) == 16 for key in keys)
    assert made["a"].derive("x") != made["a"].derive("y") != made["b"].derive("y")
    assert made["a"].derive("x", "yz") != made["a"].derive("xy", "z")  # labels do not run together
    assert made["a"].common_key("b", "x", "yz") != made["a"].common_key("b", "xy", "z")


def test_certificates_can_be_plugged_in() -> None:
    """Each party signs with a key of its own; the others know its public half, as from a certificate."""
    private = {name: Ed25519PrivateKey.generate() for name in NAMES}
    known = {
        name: key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        for name, key in private.items()
    }

    def verify(party: str, message: bytes, signature: bytes) -> bool:
        try:
            Ed25519PublicKey.from_public_bytes(known[party]).verify(signature, message)
        except Exception:
            return False
        return True

    made = {
        name: SealedChannel("study", name, bytes([number] * 32), Authenticity(private[name].sign, verify))
        for number, name in enumerate(NAMES)
    }
    keys = [channel.sign_public_key() for channel in made.values()]
    for channel in made.values():
        channel.accept_keys(keys)
    assert made["c"].open("a", "shares", 0, made["a"].seal("c", "shares", 0, b"content")) == b"content"
    with pytest.raises(ProtocolError, match="'b' is not signed"):
        made["a"].accept_keys([replace(keys[1], signature=keys[0].signature)])
