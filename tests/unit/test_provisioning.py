"""Provisioning: names that would be dangerous, files that are private, keys that stay."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.network.harness import small_federation
from verticopula.errors import SchemaError, SettingsError
from verticopula.network.kit.provisioning import provision
from verticopula.schema.federation import Federation

FOLDERS = ("server", "lead", "left", "middle", "right")


def renamed(old: str = "", new: str = "", **network: Any) -> Federation:
    said = small_federation().to_dict()
    for party in said["party"]:
        party["name"] = new if party["name"] == old else party["name"]
    said["response"] = said["response"].replace(f"{old}.", f"{new}.") if old else said["response"]
    said["network"] = {**said["network"], **network}
    return Federation.from_dict(said)


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("provision") / "kits"
    provision(small_federation(), out)
    return out


def content(out: Path, file: str) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in out.glob(f"*/{file}")}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_one_kit_each(kits: Path) -> None:
    assert sorted(path.name for path in kits.iterdir()) == sorted((*FOLDERS, "authority"))
    assert len(set(content(kits, "private-key.pem").values())) == 5
    assert len(set(content(kits, "authority.pem").values())) == 1


def test_private_files_are_private(kits: Path) -> None:
    for folder in (*FOLDERS, "authority"):
        assert mode(kits / folder) == 0o700
    for path in (*kits.glob("*/private-key.pem"), *kits.glob("*/id.key"), kits / "authority" / "cert.json"):
        assert mode(path) == 0o600, path.name
    assert sorted(path.name for path in (kits / "authority").iterdir()) == [
        "cert.json",
        "federation-signed.json",
        "id.key",
        "issued.json",
        "notice.json",
        "trust.json",
    ], "nothing is left"


def test_the_id_key_is_the_parties_own(kits: Path) -> None:
    keys = content(kits, "id.key")
    assert sorted(keys) == ["authority", "left", "middle", "right"]
    assert len(set(keys.values())) == 1
    secret = keys["left"].strip()
    for folder in ("server", "lead"):
        assert not any(secret in path.read_bytes() for path in (kits / folder).iterdir())


def test_certificates_name_their_holder_and_the_authority_signed_them(kits: Path) -> None:
    for folder in FOLDERS:
        certificate = x509.load_pem_x509_certificate((kits / folder / "certificate.pem").read_bytes())
        authority = x509.load_pem_x509_certificate((kits / folder / "authority.pem").read_bytes())
        name = "coordinator" if folder == "server" else folder
        assert certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value == name
        key = authority.public_key()
        assert isinstance(key, rsa.RSAPublicKey)
        assert certificate.signature_hash_algorithm is not None
        signed = (certificate.tbs_certificate_bytes, padding.PKCS1v15(), certificate.signature_hash_algorithm)
        key.verify(certificate.signature, *signed)


def test_again_everybody_keeps_their_key(tmp_path: Path) -> None:
    out = tmp_path / "kits"
    provision(small_federation(), out)
    keys, ids = content(out, "private-key.pem"), content(out, "id.key")
    certificates = content(out, "certificate.pem")
    said = small_federation().to_dict()
    said["party"].append({"name": "fourth", "column": [{"name": "x5", "kind": "binary"}]})
    provision(Federation.from_dict(said), out)
    again = content(out, "private-key.pem")
    assert again.pop("fourth") not in keys.values()
    assert again == keys
    assert {**ids, "fourth": ids["left"]} == content(out, "id.key")
    provision(renamed(host="elsewhere.example.org"), out)  # the coordinator moves
    moved = content(out, "certificate.pem")
    assert moved["server"] != certificates["server"]
    assert all(moved[name] == certificates[name] for name in FOLDERS if name != "server")
    found = x509.load_pem_x509_certificate(moved["server"]).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    assert "elsewhere.example.org" in found.value.get_values_for_type(x509.DNSName)


def test_the_authority_has_nobodys_private_key(kits: Path) -> None:
    kept = b"".join(path.read_bytes() for path in (kits / "authority").iterdir())
    for folder in FOLDERS:
        middle = (kits / folder / "private-key.pem").read_text().splitlines()[5]
        assert middle.encode() not in kept


def test_a_kit_that_was_handed_over_is_not_made_again_unless_asked(tmp_path: Path) -> None:
    out = tmp_path / "kits"
    provision(small_federation(), out)
    key = content(out, "private-key.pem")["left"]
    shutil.move(out / "left", tmp_path / "handed-over")
    assert "left" not in {kit.name for kit in provision(small_federation(), out)}
    assert not (out / "left").exists()
    assert "left" in {kit.name for kit in provision(small_federation(), out, renew=["left"])}
    assert content(out, "private-key.pem")["left"] != key
    with pytest.raises(SettingsError, match="nobody here is called stranger"):
        provision(small_federation(), out, renew=["stranger"])


@pytest.mark.parametrize("name", ["coordinator", "lead", "server", "authority", "Lead", "SERVER"])
def test_reserved_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="cannot be called"):
        provision(renamed("left", name), tmp_path / "kits")
    assert not (tmp_path / "kits").exists()


@pytest.mark.parametrize("federation", [renamed(host="left"), renamed(host="LEFT"), renamed(host="lead")])
def test_nobody_has_the_coordinators_host_name(tmp_path: Path, federation: Federation) -> None:
    with pytest.raises(SettingsError, match="host"):
        provision(federation, tmp_path / "kits")


def test_names_that_differ_in_case_only(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="case does not count"):
        provision(renamed("left", "RIGHT"), tmp_path / "kits")


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(SettingsError, match="not empty and holds no earlier kits"):
        provision(small_federation(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]
