"""Public keys signed with the keys of certificates: how a party knows another's key although the coordinator relays it.

A signature carries the signer's certificate. It counts if the federation's authority issued that certificate to the
name that the key claims to belong to. Signing is deterministic: a party that was restarted sends the same bytes.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from verticopula.errors import SettingsError
from verticopula.mpc.sealed_messages import Authenticity
from verticopula.network.startup_kit import Kit

_LENGTH = struct.Struct("<I")
_SMALLEST_KEY = 2048
_CONTEXT = b"verticopula introduction 1\0"  # separates the domains: the same key is also used for TLS


def certificate_authenticity(kit: Kit) -> Authenticity:
    """Signs as this kit's organisation, and knows the others by the authority's certificates."""
    try:
        own = x509.load_pem_x509_certificate(kit.certificate.read_bytes())
        authority = x509.load_pem_x509_certificate(kit.authority.read_bytes())
        key = serialization.load_pem_private_key(kit.private_key.read_bytes(), None)
    except (OSError, ValueError, TypeError):
        raise SettingsError(f"{kit.folder}: its certificate or its key cannot be read") from None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise SettingsError(f"{kit.folder}: its key is not of the kind that `verticopula provision` makes")
    signer, front = key, own.public_bytes(serialization.Encoding.DER)

    def sign(message: bytes) -> bytes:
        signature = signer.sign(_CONTEXT + message, padding.PKCS1v15(), hashes.SHA256())
        return _LENGTH.pack(len(front)) + front + signature

    def verify(party: str, message: bytes, signature: bytes) -> bool:
        return _is_signed_by(authority, party, message, signature, datetime.now(UTC))

    return Authenticity(sign, verify)


def was_signed(authority: bytes, party: str, message: bytes, signature: bytes, moment: datetime) -> bool:
    """Whether a party signed the message, with a certificate of this authority that was valid at that moment.

    Parameters
    ----------
    authority : its certificate, PEM
    party, message, signature : who signed what, as `certificate_authenticity` signs
    moment : when it is said to have been signed
    """
    try:
        issuer = x509.load_pem_x509_certificate(authority)
    except ValueError:
        return False
    return _is_signed_by(issuer, party, message, signature, moment)


def fingerprint_of(certificate: bytes) -> str:
    """The SHA-256 of a certificate, for people to compare.

    Parameters
    ----------
    certificate : PEM, which was read before
    """
    return x509.load_pem_x509_certificate(certificate).fingerprint(hashes.SHA256()).hex(":")


def _is_signed_by(authority: x509.Certificate, party: str, message: bytes, signature: bytes, moment: datetime) -> bool:
    if len(signature) < _LENGTH.size:
        return False
    end = _LENGTH.size + _LENGTH.unpack_from(signature)[0]
    try:
        certificate = x509.load_der_x509_certificate(signature[_LENGTH.size : end])
        certificate.verify_directly_issued_by(authority)
        public = certificate.public_key()
        is_valid = certificate.not_valid_before_utc <= moment <= certificate.not_valid_after_utc
        if _name_of(certificate) != party or not is_valid:
            return False
        if not isinstance(public, rsa.RSAPublicKey) or public.key_size < _SMALLEST_KEY:
            return False
        public.verify(signature[end:], _CONTEXT + message, padding.PKCS1v15(), hashes.SHA256())
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _name_of(certificate: x509.Certificate) -> str:
    """The one common name; nothing where there are several."""
    names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""
