"""Public keys signed with certificates: only the organisation itself, only this authority, only this message."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.network.harness import small_federation
from verticopula.errors import SettingsError
from verticopula.network.kit.key_signing import certificate_authenticity
from verticopula.network.kit.provisioning import provision
from verticopula.network.kit.startup_kit import Kit


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("signing") / "kits"
    provision(small_federation(), out)
    return out


def of(kits: Path, name: str) -> Kit:
    return Kit.read(kits / name)


def test_everybody_knows_everybody_by_name(kits: Path) -> None:
    folders = {"server": "coordinator", "left": "left", "middle": "middle"}
    authenticity = {folder: certificate_authenticity(of(kits, folder)) for folder in folders}
    for folder, name in folders.items():
        signed = authenticity[folder].sign(b"message")
        for other in folders:
            verify = authenticity[other].verify
            assert verify(name, b"message", signed)
            assert not verify(name, b"another", signed)
            assert not any(verify(wrong, b"message", signed) for wrong in {*folders.values(), "lead", ""} - {name})


def test_signing_twice_gives_the_same_bytes(kits: Path) -> None:
    first, again = (certificate_authenticity(of(kits, "left")).sign(b"message") for _ in range(2))
    assert first == again


def test_bytes_that_are_no_signature(kits: Path) -> None:
    own = certificate_authenticity(of(kits, "left"))
    good = own.sign(b"message")
    for bad in (b"", b"\0", good[:3], good[:-1], good + b"\0", b"\xff" * 4 + good[4:], good[4:], bytes(len(good))):
        assert not own.verify("left", b"message", bad)
    for place in range(0, len(good), 41):
        flipped = bytearray(good)
        flipped[place] ^= 1
        assert not own.verify("left", b"message", bytes(flipped))


def test_another_authority_s_certificate_of_that_name_does_not_count(kits: Path, tmp_path: Path) -> None:
    provision(small_federation(), tmp_path / "kits")
    foreign = certificate_authenticity(of(tmp_path / "kits", "left")).sign(b"message")
    assert not certificate_authenticity(of(kits, "middle")).verify("left", b"message", foreign)


def signed_by_authority(kits: Path, folder: Path, key: object, days: int, *names: str) -> Kit:
    """A kit with a certificate that the authority itself might have made, had it been careless."""
    known = json.loads((kits / "authority" / "cert.json").read_text("utf-8"))
    root = serialization.load_pem_private_key(known["root_pri_key"].encode(), None)
    issuer = x509.load_pem_x509_certificate(known["root_cert"].encode())
    shutil.copytree(kits / "left", folder)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name) for name in names])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())  # type: ignore[attr-defined]
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=100))
        .not_valid_after(now + timedelta(days=days))
        .sign(root, hashes.SHA256())  # type: ignore[arg-type]
    )
    (folder / "certificate.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret = key.private_bytes(  # type: ignore[attr-defined]
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "private-key.pem").write_bytes(secret)
    return Kit.read(folder)


@pytest.mark.parametrize(
    ("days", "names", "bits", "counts"),
    [
        (5, ("left",), 2048, True),
        (-1, ("left",), 2048, True),
        (-31, ("left",), 2048, False),
        (5, ("left", "middle"), 2048, False),
    ],
    ids=["as it should be", "expired while a study was open", "expired", "two names"],
)
def test_certificates_that_do_not_count(
    kits: Path, tmp_path: Path, days: int, names: tuple[str, ...], bits: int, counts: bool
) -> None:
    kit = signed_by_authority(kits, tmp_path / "kit", rsa.generate_private_key(65537, bits), days, *names)
    signed = certificate_authenticity(kit).sign(b"message")
    assert certificate_authenticity(of(kits, "right")).verify("left", b"message", signed) == counts


def test_keys_of_another_kind_and_files_that_are_none(kits: Path, tmp_path: Path) -> None:
    other = signed_by_authority(kits, tmp_path / "kit", ec.generate_private_key(ec.SECP256R1()), 5, "left")
    with pytest.raises(SettingsError, match="not of the kind that is expected: RSA"):
        certificate_authenticity(other)
    (tmp_path / "kit" / "private-key.pem").write_text("")
    with pytest.raises(SettingsError, match="cannot be read"):
        certificate_authenticity(other)
