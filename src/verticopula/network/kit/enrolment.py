"""Enrolment: an organisation makes its private key at home, and sends a request (PKCS #10) that the authority signs.

What comes back has no secret in clear: the parties' id key is encrypted for the requested key (RSA-OAEP).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

from verticopula.errors import SettingsError
from verticopula.network.kit.certificate_issuing import (
    certificates_pem,
    fingerprint_of,
    key_fingerprint,
    key_pem,
    key_problem,
    name_of,
    new_key,
    read_certificates,
    read_private_key,
)
from verticopula.network.kit.startup_kit import (
    AUTHORITY_FILE,
    AUTHORITY_NOTICE_FILE,
    CERTIFICATE_FILE,
    FEDERATION_FILE,
    ID_KEY_FILE,
    KIT_FILE,
    PRIVATE_KEY_FILE,
    Kit,
    write_private,
)
from verticopula.network.kit.trust_store import read_trust

REQUEST_FILE = "request.csr"
SEALED_ID_KEY_FILE = "id.key.sealed"
_NEXT_KEY_FILE = "private-key.next.pem"  # in use once its certificate is there
_LARGEST_REQUEST = 1 << 16
_OAEP = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), b"verticopula id key")


@dataclass(frozen=True)
class EnrolmentRequest:
    """A request that was checked: who asks, for which public key."""

    name: str
    key: rsa.RSAPublicKey

    @property
    def fingerprint(self) -> str:
        return key_fingerprint(self.key)


# ---- at home ------------------------------------------------------------------------------------


def make_request(folder: Path, name: str) -> EnrolmentRequest:
    """A new private key and the request for its certificate, in a folder; a key in use there stays until then."""
    if (folder / KIT_FILE).is_file() and Kit.read_identity(folder).name != name:
        raise SettingsError(f"{folder} is the kit of {Kit.read_identity(folder).name!r}; expected one of {name!r}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = new_key()
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .sign(key, hashes.SHA256())
    )
    write_private(folder / _NEXT_KEY_FILE, key_pem(key))
    write_private(folder / REQUEST_FILE, request.public_bytes(serialization.Encoding.PEM).decode("ascii"))
    return EnrolmentRequest(name, key.public_key())


def accept_answer(folder: Path, answer: Path, now: datetime) -> Kit:
    """Put what the authority sent back into the folder of the request; returns the kit, which can be used at once.

    SettingsError, and nothing is changed, unless the certificate is for the key in that folder, and for the name that
    the kit has already. An existing kit keeps its federation file: its steward decides about another one.
    """
    kit = Kit.read_identity(answer)
    certificate = read_certificates(kit.certificate)[0]
    path = next((p for p in (folder / _NEXT_KEY_FILE, folder / PRIVATE_KEY_FILE) if _fits(p, certificate)), None)
    if path is None:
        raise SettingsError(
            f"the certificate in {answer} is not for the key in {folder}; send its {REQUEST_FILE} again"
        )
    is_known = (folder / KIT_FILE).is_file()
    if is_known and Kit.read_identity(folder).name != kit.name:
        raise SettingsError(f"{folder} is the kit of {Kit.read_identity(folder).name!r}, {answer} of {kit.name!r}")
    wrong = read_trust(kit).problem_with(certificate, kit.name, now)
    if wrong:
        raise SettingsError(f"{answer}: {wrong}")
    if is_known and not {fingerprint_of(r) for r in _roots(folder)} & {fingerprint_of(r) for r in _roots(answer)}:
        raise SettingsError(
            f"{answer} comes from an authority that {folder} does not know; put its authority.pem there by hand, if "
            "who provisions the federation confirms its fingerprint"
        )
    key = read_private_key(path)
    id_key = _open_id_key(answer, key)
    for name in (AUTHORITY_FILE, AUTHORITY_NOTICE_FILE, KIT_FILE, *(() if is_known else (FEDERATION_FILE,))):
        if (answer / name).is_file():
            write_private(folder / name, (answer / name).read_text(encoding="utf-8"))
    if id_key is not None:
        write_private(folder / ID_KEY_FILE, id_key)
    write_private(folder / CERTIFICATE_FILE, certificates_pem(read_certificates(kit.certificate)))
    write_private(folder / PRIVATE_KEY_FILE, key_pem(key))
    (folder / _NEXT_KEY_FILE).unlink(missing_ok=True)
    (folder / REQUEST_FILE).unlink(missing_ok=True)
    return Kit.read(folder)


def _fits(path: Path, certificate: x509.Certificate) -> bool:
    return path.is_file() and read_private_key(path).public_key() == certificate.public_key()


def _roots(folder: Path) -> list[x509.Certificate]:
    return read_certificates(folder / AUTHORITY_FILE)


def _open_id_key(answer: Path, key: rsa.RSAPrivateKey) -> str | None:
    path = answer / SEALED_ID_KEY_FILE
    if not path.is_file():
        return None
    try:
        return key.decrypt(bytes.fromhex(path.read_text(encoding="ascii")), _OAEP).decode("ascii")
    except (OSError, ValueError):
        raise SettingsError(f"{path} cannot be opened with the key in this folder") from None


# ---- at the authority ------------------------------------------------------------------------------------


def read_request(path: Path) -> EnrolmentRequest:
    """A request from a file; SettingsError unless it is plain, signed by its own key, and that key is strong."""
    try:
        if path.stat().st_size > _LARGEST_REQUEST:
            raise ValueError
        request = x509.load_pem_x509_csr(path.read_bytes())
        is_signed = request.is_signature_valid
        extras = len(request.extensions) + len(list(request.attributes))
    except (OSError, ValueError, TypeError):
        raise SettingsError(
            f"{path} cannot be read as a certificate request (PEM): `verticopula enrol` makes one"
        ) from None
    if not is_signed:
        raise SettingsError(f"{path}: the request is not signed by the key that it is for")
    if extras:
        raise SettingsError(f"{path}: the request asks for extensions; expected none: `verticopula enrol` makes it so")
    key = request.public_key()
    wrong = key_problem(key)
    if wrong or not isinstance(key, rsa.RSAPublicKey):
        raise SettingsError(f"{path}: {wrong}")
    name = name_of(request)
    if not name:
        raise SettingsError(f"{path}: the request has no common name, or several; expected the party's name")
    return EnrolmentRequest(name, key)


def write_answer(folder: Path, certificates: str, key: rsa.RSAPublicKey | None, id_key: str | None) -> None:
    """The certificate, and for a party the id key that only the requested key opens; no private key stays here."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for name in (PRIVATE_KEY_FILE, ID_KEY_FILE, SEALED_ID_KEY_FILE):
        (folder / name).unlink(missing_ok=True)
    write_private(folder / CERTIFICATE_FILE, certificates)
    if key is not None and id_key is not None:
        write_private(folder / SEALED_ID_KEY_FILE, key.encrypt(id_key.encode("ascii"), _OAEP).hex())
