"""A cluster with Dask's own mutual TLS: reached with a certificate of its authority, and by nobody else."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.cluster.dask_processes import DaskProcesses
from tests.cluster.test_dask_engine import assert_same, fit
from verticopula import EngineError, SettingsError

ROLES = ("scheduler", "worker", "client")


def make_certificates(folder: Path) -> dict[str, str]:
    """Dask's settings, with an authority of the cluster's own and one certificate for all of its processes."""
    folder.mkdir()
    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root = _certificate("authority", authority, "authority", authority, is_authority=True)
    own = _certificate("cluster", key, "authority", authority, is_authority=False)
    encoding = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(root.public_bytes(encoding))
    (folder / "own.pem").write_bytes(own.public_bytes(encoding))
    (folder / "own.key").write_bytes(
        key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    settings = {"ca-file": str(folder / "ca.pem")}
    for role in ROLES:
        settings |= {f"{role}.cert": str(folder / "own.pem"), f"{role}.key": str(folder / "own.key")}
    return {f"distributed.comm.tls.{name}": value for name, value in settings.items()}


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return make_certificates(tmp_path_factory.mktemp("tls") / "own")


@pytest.fixture(scope="module")
def encrypted(settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskProcesses]:
    named = {f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": value for name, value in settings.items()}
    processes = DaskProcesses(tmp_path_factory.mktemp("dask-tls"), named, "tls")
    try:
        processes.add_worker()
        yield processes
    finally:
        processes.stop()


def test_a_study_over_tls(encrypted: DaskProcesses, settings: dict[str, str], paths: dict[str, Path]) -> None:
    assert encrypted.engine.startswith("tls://")
    from dask import config  # not everywhere where tests are collected

    with config.set(settings):
        found = fit(paths, encrypted.engine)
    assert np.isfinite(found.correlation_.to_numpy()).all()
    assert_same(found, fit(paths))


def test_without_certificates_the_settings_are_named(encrypted: DaskProcesses, paths: dict[str, Path]) -> None:
    with pytest.raises(SettingsError, match=r"distributed\.comm\.tls"):
        fit(paths, encrypted.engine)


def test_another_authority_s_certificate_opens_nothing(
    encrypted: DaskProcesses, paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verticopula.engine.dask_engine._CONNECT_SECONDS", 2.0)
    from dask import config

    with config.set(make_certificates(tmp_path / "others")), pytest.raises(EngineError, match="no Dask scheduler"):
        fit(paths, encrypted.engine)


def test_plain_messages_open_nothing(
    encrypted: DaskProcesses, paths: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verticopula.engine.dask_engine._CONNECT_SECONDS", 2.0)
    with pytest.raises(EngineError, match="do both sides have TLS, or neither"):
        fit(paths, f"dask://127.0.0.1:{encrypted.port}")
