"""X.509 certificates of a federation: keys, roots, certificates of organisations, and what is checked about them.

A root certifies for ten years and a kit's certificate for one. Both are RSA: signatures repeat byte for byte, which
`key_signing` relies on. NVIDIA FLARE's messaging layer needs the organisation's name as the common name, and the
coordinator's host as an alternative name. Extended key usage keeps a party's certificate from passing for the server's.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from verticopula.errors import SettingsError

ROOT_YEARS = 10
KIT_DAYS = 365
_SMALLEST_KEY = 2048
_LARGEST_KEY = 8192  # a larger one costs every peer seconds for every signature

_NEW_KEY = 3072
_EXPONENT = 65537
_ROOT_NAME = "federation"
_YEAR = timedelta(days=KIT_DAYS)


@dataclass(frozen=True)
class Root:
    """A root certificate with its private key."""

    certificate: x509.Certificate
    key: rsa.RSAPrivateKey


# ---- making ------------------------------------------------------------------------------------


def current_time() -> datetime:
    """Now, in whole seconds, as certificates have it."""
    return datetime.now(UTC).replace(microsecond=0)


def new_key() -> rsa.RSAPrivateKey:
    """A fresh private key."""
    return rsa.generate_private_key(_EXPONENT, _NEW_KEY)


def new_root(now: datetime) -> Root:
    """A fresh root of ten years."""
    key = new_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _ROOT_NAME)])
    return Root(_sign_root(name, key, now), key)


def extend_root(root: Root, now: datetime) -> Root:
    """The same root key and name certified for ten more years: what it signed before still counts."""
    return Root(_sign_root(root.certificate.subject, root.key, now), root.key)


def ends_within_a_year(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether a kit that is made now would outlive this root."""
    return certificate.not_valid_after_utc < now + _YEAR


def issue_certificate(
    root: Root, name: str, key: rsa.RSAPublicKey, now: datetime, host: str | None = None
) -> x509.Certificate:
    """A certificate of one year for an organisation; with a host, for the coordinator that is reached there."""
    server = host is not None
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if server else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        _builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), root, key, now)
        .not_valid_after(min(now + _YEAR, root.certificate.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(root=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    )
    if host is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general_name(host)]), critical=False)
    return builder.sign(root.key, hashes.SHA256())


def _sign_root(name: x509.Name, key: rsa.RSAPrivateKey, now: datetime) -> x509.Certificate:
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + ROOT_YEARS * _YEAR)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(root=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _builder(subject: x509.Name, root: Root, key: rsa.RSAPublicKey, now: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(root.certificate.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(root.key.public_key()), critical=False)
    )


def _key_usage(*, root: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not root,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=root,
        crl_sign=root,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


# ---- reading ------------------------------------------------------------------------------------


def read_certificates(path: Path) -> list[x509.Certificate]:
    """The certificates of a PEM file, in its order; SettingsError if there is none."""
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError):
        raise SettingsError(f"{path} cannot be read as certificates (PEM)") from None


def read_private_key(path: Path) -> rsa.RSAPrivateKey:
    """The private key of a PEM file; SettingsError if there is none, or of another kind than RSA."""
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError):
        raise SettingsError(f"{path} cannot be read as a private key (PEM, without a passphrase)") from None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise SettingsError(f"{path}: the key is not of the kind that is expected: RSA of {_SMALLEST_KEY} bits or more")
    return key


def certificates_pem(certificates: Iterable[x509.Certificate]) -> str:
    """Certificates as PEM text."""
    return "".join(one.public_bytes(serialization.Encoding.PEM).decode("ascii") for one in certificates)


def key_pem(key: rsa.RSAPrivateKey) -> str:
    """A private key as PEM text, without a passphrase."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode("ascii")


def fingerprint_of(certificate: x509.Certificate) -> str:
    """A certificate's SHA-256 in hexadecimal."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def describe_fingerprints(pem: bytes) -> str:
    """The SHA-256 of every certificate in PEM bytes that were read before, for people to compare.

    Parameters
    ----------
    pem : certificates
    """
    found = x509.load_pem_x509_certificates(pem)
    return ", ".join(one.fingerprint(hashes.SHA256()).hex(":") for one in found)


def key_fingerprint(key: rsa.RSAPublicKey) -> str:
    """A public key's SHA-256 in hexadecimal, to be compared on the telephone."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(
        key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo),
    )
    return digest.finalize().hex()


def name_of(certificate: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """The one common name; nothing where there are several."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


# ---- checking ------------------------------------------------------------------------------------


def key_problem(key: object) -> str:
    """What is wrong with a public key; empty for one that may be used."""
    if not isinstance(key, rsa.RSAPublicKey):
        return f"its key is not RSA; expected RSA of {_SMALLEST_KEY} to {_LARGEST_KEY} bits"
    if not _SMALLEST_KEY <= key.key_size <= _LARGEST_KEY:
        return f"its key has {key.key_size} bits; expected RSA of {_SMALLEST_KEY} to {_LARGEST_KEY} bits"
    if key.public_numbers().e < _EXPONENT:
        return f"its key has a small exponent; expected {_EXPONENT}"
    return ""


def is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Whether the issuer's key signed it, under the issuer's name."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def is_current(certificate: x509.Certificate, now: datetime, grace: timedelta = timedelta(0)) -> bool:
    """Whether it is valid now, or was until `grace` ago."""
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc + grace


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether it may sign other certificates."""
    try:
        return bool(certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except (x509.ExtensionNotFound, ValueError):
        return False


def serves_as(certificate: x509.Certificate, host: str | None) -> str:
    """What keeps a certificate from being used by the coordinator at a host, or by somebody who connects (None)."""
    try:
        purposes = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        purposes = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    except ValueError:
        return "its extensions cannot be read"
    wanted = ExtendedKeyUsageOID.CLIENT_AUTH if host is None else ExtendedKeyUsageOID.SERVER_AUTH
    if wanted not in purposes:
        return f"its extended key usage lacks {'client' if host is None else 'server'} authentication"
    if host is None:
        return ""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return f"it has no subject alternative name; expected {host}"
    return "" if _general_name(host) in list(names) else f"its subject alternative names lack the host {host}"
