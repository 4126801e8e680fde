"""Certificates: renewal before and after the end, roots that are replaced, revocation, requests, own authorities."""

from __future__ import annotations

import base64
import json
import shutil
import time
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from nvflare.lighter.entity import Project
from nvflare.lighter.impl.cert import CertBuilder
from nvflare.lighter.impl.workspace import WorkspaceBuilder
from nvflare.lighter.provisioner import Provisioner

from tests.network.harness import small_federation
from verticopula.errors import SettingsError
from verticopula.network.connection.peer_admission import Introduction, PeerAdmission, coordinator_proof, proof_problem
from verticopula.network.kit import certificate_issuing
from verticopula.network.kit.certificate_authority import Authority
from verticopula.network.kit.certificate_expiry import ExpiryReminder, days_left, expiry_warning
from verticopula.network.kit.certificate_issuing import (
    Root,
    certificates_pem,
    current_time,
    fingerprint_of,
    issue_certificate,
    key_pem,
    new_key,
    new_root,
    read_certificates,
)
from verticopula.network.kit.enrolment import accept_answer, make_request, read_request
from verticopula.network.kit.key_signing import KitFiles, certificate_authenticity
from verticopula.network.kit.provisioning import ProvisionOrder, carry_out, provision, revoke_certificates
from verticopula.network.kit.startup_kit import Kit, write_private
from verticopula.network.kit.trust_store import read_notice, read_trust, sign_notice, take_notice
from verticopula.schema.federation import Federation

NOW = current_time()
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def small_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the smallest size that is accepted: this file makes many."""
    monkeypatch.setattr(certificate_issuing, "_NEW_KEY", 2048)


@pytest.fixture
def federation() -> Federation:
    return small_federation()


@pytest.fixture
def out(tmp_path: Path, federation: Federation) -> Path:
    carry_out(federation, tmp_path / "kits", ProvisionOrder(), NOW)
    return tmp_path / "kits"


def own(out: Path, folder: str) -> x509.Certificate:
    return read_certificates(out / folder / "certificate.pem")[0]


def problem(at: Path, whose: Path, name: str, now: datetime) -> str:
    """What the kit in one folder finds wrong with the certificate in another."""
    return read_trust(Kit.read_identity(at)).problem_with(read_certificates(whose / "certificate.pem")[0], name, now)


# ---- how long ------------------------------------------------------------------------------------


def test_a_root_lasts_ten_years_and_a_kit_one(out: Path) -> None:
    root = read_certificates(out / "left" / "authority.pem")[0]
    assert root.not_valid_after_utc == NOW + 3650 * DAY
    assert all(own(out, folder).not_valid_after_utc == NOW + 365 * DAY for folder in ("server", "lead", "left"))


def test_a_party_s_certificate_does_not_serve(out: Path) -> None:
    usage = {f: own(out, f).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value for f in ("server", "left")}
    assert [*usage["server"]] == [x509.ExtendedKeyUsageOID.SERVER_AUTH]
    assert [*usage["left"]] == [x509.ExtendedKeyUsageOID.CLIENT_AUTH]


@pytest.mark.parametrize("days", [300, 370, 900])
def test_renewal_before_and_after_the_end(out: Path, federation: Federation, days: int) -> None:
    old = out.parent / "old"
    shutil.copytree(out / "left", old)
    later = NOW + days * DAY
    carry_out(federation, out, ProvisionOrder(renew=["left"]), later)
    assert problem(out / "server", out / "left", "left", later) == ""
    said = problem(out / "server", old, "left", later)
    assert said == "" if days < 365 else f"expired on {NOW + 365 * DAY:%Y-%m-%d}" in said and "--renew left" in said


def test_a_root_that_would_end_before_a_kit_is_extended_under_the_same_key(out: Path, federation: Federation) -> None:
    before = read_certificates(out / "left" / "authority.pem")[0]
    later = NOW + 3400 * DAY
    made = carry_out(federation, out, ProvisionOrder(renew_all=True), later)
    after = read_certificates(out / "left" / "authority.pem")[0]
    assert any("would have ended" in note for note in made.notes)
    assert (after.public_key(), after.subject) == (before.public_key(), before.subject)
    assert after.not_valid_after_utc == later + 3650 * DAY
    assert own(out, "left").not_valid_after_utc == later + 365 * DAY
    assert certificate_issuing.is_issued_by(own(out, "left"), before), "also for who has the old root only"


# ---- kits of the version before ------------------------------------------------------------------------------------


@pytest.fixture
def flare_kits(tmp_path: Path, federation: Federation) -> Path:
    """Kits as NVIDIA FLARE's provisioning made them: 360 days, no notice, no key usage."""
    out, scratch = tmp_path / "old-kits", tmp_path / "scratch"
    project = Project("federation", "verticopula")
    project.set_server("coordinator", "federation", {"default_host": "localhost"})
    for name in ("lead", "left", "middle", "right"):
        project.add_client(name, name, {})

    class Silent:
        info = debug = warning = error = lambda self, *_: None

    context = Provisioner(str(scratch), [WorkspaceBuilder(), CertBuilder()]).provision(project, logger=Silent())
    authority = out / "authority"
    authority.mkdir(parents=True)
    known = json.loads((scratch / "federation" / "state" / "cert.json").read_text())
    (authority / "cert.json").write_text(json.dumps({key: known[key] for key in ("root_cert", "root_pri_key")}))
    (authority / "issued.json").write_text(
        json.dumps({"coordinator": "localhost", "lead": "", "left": "", "middle": "", "right": ""})
    )
    (authority / "id.key").write_text("00" * 32)
    for name in ("coordinator", "lead", "left", "middle", "right"):
        folder, base = (
            out / ("server" if name == "coordinator" else name),
            "server" if name == "coordinator" else "client",
        )
        folder.mkdir()
        made = Path(context.get_result_location()) / name / "startup"
        for old, new in ((f"{base}.crt", "certificate.pem"), (f"{base}.key", "private-key.pem")):
            shutil.copy(made / old, folder / new)
        shutil.copy(made / "rootCA.pem", folder / "authority.pem")
        role = {"coordinator": "coordinator", "lead": "lead"}.get(name, "party")
        Kit(folder, role, name, "localhost", federation.network.port).write()  # type: ignore[arg-type]
        federation.to_toml(folder / "federation.toml")
    return out


def test_kits_of_the_version_before_work_and_are_renewed(flare_kits: Path, federation: Federation) -> None:
    signed = certificate_authenticity(Kit.read(flare_kits / "left")).sign(b"message")
    assert certificate_authenticity(Kit.read(flare_kits / "right")).verify("left", b"message", signed)
    old = flare_kits.parent / "handed-over"
    shutil.move(flare_kits / "right", old)
    day_370 = current_time() + 370 * DAY
    assert "expired" in problem(old, flare_kits / "left", "left", day_370)
    carry_out(federation, flare_kits, ProvisionOrder(renew=["left", "right"]), day_370)
    assert problem(flare_kits / "right", flare_kits / "left", "left", day_370) == ""
    # Who has an old kit takes the notice, because the key of the root is the same.
    text = (flare_kits / "server" / "notice.json").read_text()
    assert take_notice(Kit.read(old), text, read_trust(Kit.read(old))) is not None
    assert problem(old, flare_kits / "left", "left", day_370) == ""


# ---- roots ------------------------------------------------------------------------------------


def test_both_roots_count_while_the_new_one_spreads(out: Path, federation: Federation) -> None:
    elsewhere = out.parent / "elsewhere"
    shutil.move(out / "right", elsewhere)
    old_root = fingerprint_of(read_certificates(elsewhere / "authority.pem")[0])
    later = NOW + 100 * DAY
    carry_out(federation, out, ProvisionOrder(rotate_root=True), later)
    assert len(read_certificates(out / "server" / "authority.pem")) == 2
    assert problem(out / "server", elsewhere, "right", later) == "", "the old certificate still counts"
    text = (out / "server" / "notice.json").read_text()
    taken = take_notice(Kit.read(elsewhere), text, read_trust(Kit.read(elsewhere)))
    assert taken is not None
    assert take_notice(Kit.read(elsewhere), text, taken) is None, "once is enough"
    carry_out(federation, out, ProvisionOrder(renew=["left", "coordinator"]), later + DAY)
    assert problem(elsewhere, out / "left", "left", later + DAY) == "", "the new root counts where the notice was taken"
    carry_out(federation, out, ProvisionOrder(retire_root=True), later + 2 * DAY)
    assert "not signed by a root" in problem(out / "server", elsewhere, "right", later + 2 * DAY)
    assert old_root not in {fingerprint_of(r) for r in read_certificates(out / "server" / "authority.pem")}
    text = (out / "server" / "notice.json").read_text()
    assert take_notice(Kit.read(elsewhere), text, read_trust(Kit.read(elsewhere))) is not None
    with pytest.raises(SettingsError, match="no earlier root"):
        carry_out(federation, out, ProvisionOrder(retire_root=True), later + 3 * DAY)


def test_a_notice_that_skips_the_rotation_is_taken_by_a_kit_that_knows_the_old_root_only(
    out: Path, federation: Federation
) -> None:
    elsewhere = out.parent / "elsewhere"
    shutil.move(out / "right", elsewhere)
    carry_out(federation, out, ProvisionOrder(rotate_root=True), NOW + DAY)
    carry_out(federation, out, ProvisionOrder(retire_root=True), NOW + 2 * DAY)
    kit = Kit.read(elsewhere)
    assert take_notice(kit, (out / "server" / "notice.json").read_text(), read_trust(kit)) is not None
    assert len(read_certificates(elsewhere / "authority.pem")) == 1


def test_a_process_that_is_given_notices_alone_follows_the_roots(out: Path, federation: Federation) -> None:
    home = out.parent / "home"
    shutil.copytree(out / "server", home)
    files = KitFiles(Kit.read(home))
    for order in (ProvisionOrder(rotate_root=True), ProvisionOrder(retire_root=True), ProvisionOrder(rotate_root=True)):
        carry_out(federation, out, order, NOW)
        shutil.copy(out / "server" / "notice.json", home)
        assert files.trust() == read_trust(Kit.read(out / "server"))
    revoke_certificates(out, "left")
    shutil.copy(out / "server" / "notice.json", home)
    assert [one.name for one in files.trust().revocations] == ["left"]
    assert KitFiles(Kit.read(home)).trust() == files.trust(), "also after a restart"
    (home / "notice.json").write_text("{}")
    assert [one.name for one in files.trust().revocations] == ["left"], "what cannot be read changes nothing"


def test_notices_that_are_not_taken(out: Path) -> None:
    kit, stranger = Kit.read(out / "left"), new_root(NOW)
    known = read_trust(kit)
    forged = sign_notice(99, known.roots, (), [stranger], NOW)
    honest = json.loads((out / "server" / "notice.json").read_text())
    altered = {**honest, "notice": {**honest["notice"], "number": 99}}
    empty = sign_notice(99, (), (), [Authority.read(out / "authority").root], NOW)
    before = [(out / "left" / name).read_bytes() for name in ("authority.pem", "notice.json")]
    for text in (
        forged,
        json.dumps(altered),
        empty,
        "",
        "{}",
        "[]",
        '{"notice": 1, "signatures": []}',
        "x" * (2 << 20),
    ):
        with pytest.raises(SettingsError, match="notice"):
            take_notice(kit, text, known)
    assert [(out / "left" / name).read_bytes() for name in ("authority.pem", "notice.json")] == before
    again = read_notice(known.text, known.federation_roots)
    assert again == known


# ---- revocation ------------------------------------------------------------------------------------


def test_a_stolen_kit_is_told_that_it_was_revoked(tmp_path: Path, federation: Federation) -> None:
    out = tmp_path / "kits"
    provision(federation, out)
    stolen = tmp_path / "stolen"
    shutil.copytree(out / "left", stolen)
    revoke_certificates(out, "left", reason="stolen with a laptop")
    provision(federation, out, renew=["left"])
    later = current_time() + timedelta(seconds=2)
    said = problem(out / "server", stolen, "left", later)
    assert "revoked (stolen with a laptop)" in said
    assert "--renew left" in said
    assert problem(out / "right", out / "left", "left", later) == ""
    signed = certificate_authenticity(Kit.read(stolen)).sign(b"message")
    assert not certificate_authenticity(Kit.read(out / "right")).verify("left", b"message", signed)


def test_one_certificate_alone_is_revoked(tmp_path: Path, federation: Federation) -> None:
    out = tmp_path / "kits"
    provision(federation, out)
    shutil.copytree(out / "left", tmp_path / "first")
    provision(federation, out, renew=["left"])
    revoke_certificates(out, "left", certificate=tmp_path / "first" / "certificate.pem")
    assert "revoked" in problem(out / "server", tmp_path / "first", "left", current_time())
    assert problem(out / "server", out / "left", "left", current_time()) == ""
    for name, file in (("nobody", None), ("left", out / "right" / "certificate.pem")):
        with pytest.raises(SettingsError):
            revoke_certificates(out, name, certificate=file)
    with pytest.raises(SettingsError, match="one line"):
        revoke_certificates(out, "left", reason="two\nlines")


# ---- requests ------------------------------------------------------------------------------------


def request_file(folder: Path, name: str, key: Any = None, *extensions: x509.ExtensionType, names: int = 1) -> Path:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)] * 1 if names == 1 else [])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    made = builder.sign(key or rsa.generate_private_key(65537, 2048), hashes.SHA256())
    path = folder / f"{name.replace('/', '_')}.csr"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return path


def test_a_key_that_was_made_at_home_never_leaves_it(out: Path, federation: Federation, tmp_path: Path) -> None:
    home = tmp_path / "home"
    request = make_request(home, "left")
    secret = (home / "private-key.next.pem").read_text().splitlines()[5]
    with pytest.raises(SettingsError, match="add --renew left"):
        carry_out(federation, out, ProvisionOrder(requests=[home / "request.csr"]), NOW)
    order = ProvisionOrder(renew=["left"], requests=[home / "request.csr"])
    made = carry_out(federation, out, order, current_time())
    assert made.requests[0].fingerprint == request.fingerprint
    answer = out / "left"
    assert not (answer / "private-key.pem").exists()
    assert not (answer / "id.key").exists()
    everything = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file())
    assert secret.encode() not in everything
    id_key = (out / "authority" / "id.key").read_text()
    assert id_key.strip() not in (answer / "id.key.sealed").read_text()
    kit = accept_answer(home, answer, current_time())
    assert (kit.name, kit.role) == ("left", "party")
    assert (home / "id.key").read_text() == id_key
    assert not (home / "private-key.next.pem").exists()
    signed = certificate_authenticity(kit).sign(b"message")
    assert certificate_authenticity(Kit.read(out / "right")).verify("left", b"message", signed)
    with pytest.raises(SettingsError, match="made at home"):
        carry_out(federation, out, ProvisionOrder(renew=["left"]), current_time())
    carry_out(federation, out, ProvisionOrder(renew_all=True), current_time())
    assert not (answer / "private-key.pem").exists()


def test_a_renewal_at_home_keeps_the_old_key_until_the_answer_is_there(
    out: Path, federation: Federation, tmp_path: Path
) -> None:
    home, today = tmp_path / "home", current_time()
    make_request(home, "left")
    carry_out(federation, out, ProvisionOrder(renew=["left"], requests=[home / "request.csr"]), today)
    accept_answer(home, out / "left", today)
    before = (home / "private-key.pem").read_bytes()
    make_request(home, "left")
    assert (home / "private-key.pem").read_bytes() == before
    with pytest.raises(SettingsError, match="kit of 'left'"):
        make_request(home, "right")
    accept_answer(home, out / "left", today)  # the old answer again: nothing is lost
    assert Kit.read(home).name == "left"


@pytest.mark.parametrize("kind", ["another key", "another name", "another authority"])
def test_answers_that_are_not_taken(out: Path, federation: Federation, tmp_path: Path, kind: str) -> None:
    home, today = tmp_path / "home", current_time()
    make_request(home, "left")
    carry_out(federation, out, ProvisionOrder(renew=["left"], requests=[home / "request.csr"]), today)
    accept_answer(home, out / "left", today)
    make_request(home, "left")
    source = out
    order = ProvisionOrder(renew=["left"], requests=[home / "request.csr"])
    if kind == "another authority":
        source = tmp_path / "others"
        carry_out(federation, source, replace(order, renew=()), today)
    elif kind == "another name":
        carry_out(federation, out, order, today)
        kit = Kit.read_identity(out / "left")
        replace(kit, name="right").write()
    else:
        carry_out(federation, out, ProvisionOrder(renew=["right"]), today)
    before = {path.name: path.read_bytes() for path in home.iterdir()}
    with pytest.raises(SettingsError):
        accept_answer(home, source / ("right" if kind == "another key" else "left"), today)
    assert {path.name: path.read_bytes() for path in home.iterdir()} == before


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda f: request_file(f, "stranger"), "nobody here is called stranger"),
        (lambda f: request_file(f, "../left"), "nobody here is called"),
        (lambda f: request_file(f, "left", rsa.generate_private_key(65537, 1024)), "1024 bits"),
        (lambda f: request_file(f, "left", rsa.generate_private_key(3, 2048)), "small exponent"),
        (lambda f: request_file(f, "left", ec.generate_private_key(ec.SECP256R1())), "not RSA"),
        (lambda f: request_file(f, "left", None, x509.BasicConstraints(True, None)), "asks for extensions"),
        (
            lambda f: request_file(f, "left", None, x509.SubjectAlternativeName([x509.DNSName("localhost")])),
            "asks for extensions",
        ),
        (lambda f: request_file(f, "left", names=2), "no common name"),
    ],
    ids=["stranger", "path", "short", "exponent", "curve", "authority", "host", "nameless"],
)
def test_requests_that_are_refused(out: Path, federation: Federation, tmp_path: Path, make: Any, match: str) -> None:
    file = make(tmp_path)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(SettingsError, match=match):
        carry_out(federation, out, ProvisionOrder(renew=["left"], requests=[file]), NOW)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_request_that_was_altered_or_is_none(tmp_path: Path) -> None:
    raw = bytearray(request_file(tmp_path, "left").read_bytes())
    der = bytearray(x509.load_pem_x509_csr(bytes(raw)).public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    body = base64.encodebytes(bytes(der)).decode()
    altered = f"-----BEGIN CERTIFICATE REQUEST-----\n{body}-----END CERTIFICATE REQUEST-----\n"
    for text in (altered, "", "nonsense", "x" * (1 << 17)):
        (tmp_path / "bad.csr").write_text(text)
        with pytest.raises(SettingsError):
            read_request(tmp_path / "bad.csr")


def test_one_key_has_one_name(out: Path, federation: Federation, tmp_path: Path) -> None:
    key, today = rsa.generate_private_key(65537, 2048), current_time()
    first, second = request_file(tmp_path, "left", key), request_file(tmp_path, "right", key)
    carry_out(federation, out, ProvisionOrder(renew=["left"], requests=[first]), today)
    with pytest.raises(SettingsError, match="certified for 'left' before"):
        carry_out(federation, out, ProvisionOrder(renew=["right"], requests=[second]), today)


# ---- an organisation's own authority -----------------------------------------------------------------


@pytest.fixture
def bank(tmp_path: Path) -> tuple[Root, Path]:
    """An authority of one organisation, and a folder for its files."""
    folder = tmp_path / "bank"
    folder.mkdir()
    root = new_root(current_time())
    write_private(folder / "ca.pem", certificates_pem([root.certificate]))
    return root, folder


def certified(root: Root, folder: Path, name: str, **changes: Any) -> Path:
    key = new_key()
    made = issue_certificate(root, name, key.public_key(), changes.get("now", current_time()), changes.get("host"))
    write_private(folder / f"{name}.pem", certificates_pem([made]))
    write_private(folder / f"{name}.key", key_pem(key))
    return folder / f"{name}.pem"


def test_an_own_authority_counts_for_its_name_alone(
    tmp_path: Path, federation: Federation, bank: tuple[Root, Path]
) -> None:
    out, (root, folder) = tmp_path / "kits", bank
    provision(federation, out)
    shutil.copytree(out / "left", tmp_path / "before")
    file = certified(root, folder, "left")
    carry_out(federation, out, ProvisionOrder(organisations={"left": (file, folder / "ca.pem")}))
    today = current_time()
    assert problem(out / "server", out / "left", "left", today) == ""
    assert not (out / "left" / "private-key.pem").exists()
    assert "not signed by a root that is trusted here for that name" in problem(
        out / "server", tmp_path / "before", "left", today
    ), "who provisions cannot pass for an organisation with an authority of its own"
    for victim in ("right", "lead", "coordinator"):
        certified(root, folder, victim, host="localhost" if victim == "coordinator" else None)
        forged = tmp_path / f"forged-{victim}"
        forged.mkdir()
        shutil.copy(folder / f"{victim}.pem", forged / "certificate.pem")
        assert "not signed by a root" in problem(out / "server", forged, victim, today)
    tls_roots = {fingerprint_of(one) for one in read_certificates(out / "right" / "authority.pem")}
    assert fingerprint_of(root.certificate) not in tls_roots, "nor for the coordinator at anybody else's"
    certified(root, folder, "left")  # renews itself, without the authority of the federation
    shutil.copy(folder / "left.pem", out / "left" / "certificate.pem")
    assert problem(out / "server", out / "left", "left", current_time()) == ""
    with pytest.raises(SettingsError, match="made at home"):
        provision(federation, out, renew=["left"])


def test_certificates_of_an_own_authority_that_are_refused(
    tmp_path: Path, federation: Federation, bank: tuple[Root, Path]
) -> None:
    out, (root, folder), other = tmp_path / "kits", bank, new_root(current_time())
    provision(federation, out)

    def refuse(match: str, name: str, certificate: Path, authority: Path) -> None:
        with pytest.raises(SettingsError, match=match):
            carry_out(federation, out, ProvisionOrder(organisations={name: (certificate, authority)}))

    good = certified(root, folder, "left")
    write_private(folder / "other.pem", certificates_pem([other.certificate]))
    write_private(folder / "both.pem", certificates_pem([other.certificate, root.certificate]))
    refuse("common name is 'left'", "right", good, folder / "ca.pem")
    refuse("did not sign it", "left", good, folder / "other.pem")
    refuse("2 certificates", "left", good, folder / "both.pem")

    refuse("nobody here", "stranger", good, folder / "ca.pem")
    refuse("server authentication", "coordinator", certified(root, folder, "coordinator"), folder / "ca.pem")
    wrong_host = certified(root, folder, "coordinator", host="elsewhere.example")
    refuse("lack the host localhost", "coordinator", wrong_host, folder / "ca.pem")
    old = certified(root, folder, "middle", now=current_time() - 400 * DAY)
    refuse("it is valid from", "middle", old, folder / "ca.pem")
    serving = certified(root, folder, "left", host="localhost")
    refuse("client authentication", "left", serving, folder / "ca.pem")
    refuse("is none, or is not valid", "left", certified(root, folder, "left"), folder / "left.pem")
    carry_out(federation, out, ProvisionOrder(organisations={"left": (folder / "left.pem", folder / "ca.pem")}))
    second = certified(root, folder, "right")
    refuse("an authority of its own", "right", second, folder / "ca.pem")


# ---- the id key ------------------------------------------------------------------------------------


def test_a_new_id_key_reaches_the_parties_alone(out: Path, federation: Federation) -> None:
    before = {path.parent.name: path.read_text() for path in out.glob("*/id.key")}
    carry_out(federation, out, ProvisionOrder(rotate_id_key=True), NOW)
    after = {path.parent.name: path.read_text() for path in out.glob("*/id.key")}
    assert set(after) == set(before)
    assert len(set(after.values())) == 1
    assert set(after.values()).isdisjoint(before.values())


# ---- who may connect ------------------------------------------------------------------------------------


@pytest.fixture
def admission(tmp_path: Path, federation: Federation) -> tuple[PeerAdmission, Path]:
    out = tmp_path / "kits"
    provision(federation, out)
    kit = Kit.read(out / "server")
    made = PeerAdmission(kit, KitFiles(kit))
    made.use(federation, {"lead", "left", "middle", "right"})
    return made, out


def test_the_newest_certificate_wins_and_the_other_is_told(
    admission: tuple[PeerAdmission, Path], federation: Federation
) -> None:
    door, out = admission
    old, said = own(out, "left"), Introduction.new()
    assert door.refusal("left", old, said) == ""
    carry_out(federation, out, ProvisionOrder(renew=["left"]), current_time() + timedelta(seconds=5))
    new = own(out, "left")
    assert "not valid before" in door.refusal("left", new, said)
    carry_out(federation, out, ProvisionOrder(renew=["left"]), old.not_valid_before_utc + timedelta(seconds=1))
    new = own(out, "left")
    while current_time() < new.not_valid_before_utc:  # a second after the old one, which may be younger than that
        time.sleep(0.05)
    for door_now in (door, PeerAdmission(door.kit, door.files, door.own, door.peers)):
        assert door_now.refusal("left", new, Introduction.new()) == ""
        told = door_now.refusal("left", old, said)
        assert "a newer certificate of 'left' is in use" in told
        assert "stop the old one" in told
    again = PeerAdmission(door.kit, door.files, door.own, door.peers)  # a coordinator that was started again
    assert "a newer certificate" in again.refusal("left", old, said)
    assert "a newer certificate" in again.note("left")


def test_of_two_processes_with_one_kit_the_later_one_wins_without_a_war(
    admission: tuple[PeerAdmission, Path],
) -> None:
    door, out = admission
    certificate = own(out, "left")
    first = Introduction.new()
    second = replace(Introduction.new(), started=first.started + 1.0)
    assert door.refusal("left", certificate, first) == ""
    assert door.refusal("left", certificate, second, [first]) == ""
    for _ in range(3):
        assert "was started later" in door.refusal("left", certificate, first, [second])
        assert door.refusal("left", certificate, second, [second]) == ""
    assert "was started later" in door.refusal("left", certificate, None, [second]), "nor by saying nothing"
    assert door.refusal("lead", own(out, "lead"), first, [second]) == "", "the lead may look at several studies"


def test_strangers_and_other_versions_are_told_both_sides(admission: tuple[PeerAdmission, Path]) -> None:
    door, out = admission
    said = replace(Introduction.new(), federation="ab" * 32, federation_version=7)
    door.use(small_federation(), {"lead", "left"})
    told = door.refusal("right", own(out, "right"), said)
    assert "'right' is not in the coordinator's federation file, version 1" in told
    assert "yours is version 7 (abababababab)" in told
    other = replace(said, messages=4, software="0.9")
    told = door.refusal("left", own(out, "left"), other)
    assert "'left' speaks message version 4 (verticopula 0.9), the coordinator" in told
    assert door.note("left") == told
    assert door.note("right") == ""


@pytest.mark.parametrize(
    "raw",
    [b"", b"{}", b"[]", b"\xff", b'{"process": "a"}', b'{"process": "", "started": 1}', b"[" * 100_000],
)
def test_introductions_that_make_no_sense(raw: bytes) -> None:
    assert Introduction.from_bytes(raw) is None
    said = json.loads(Introduction.new().to_bytes())
    for key, value in (("started", "nan"), ("started", 1e999), ("messages", "x"), ("process", "")):
        assert Introduction.from_bytes(json.dumps({**said, key: value}).encode()) is None


def test_the_coordinator_proves_itself_to_one_peer_once(admission: tuple[PeerAdmission, Path], tmp_path: Path) -> None:
    door, out = admission
    trust = read_trust(Kit.read(out / "left"))
    proof = coordinator_proof(door.files, "left", "nonce")
    assert proof_problem(proof, trust, "left", "nonce") == ""
    for peer, nonce in (("right", "nonce"), ("left", "other")):
        assert "does not prove" in proof_problem(proof, trust, peer, nonce)
    for raw in (b"", b"{}", proof[:-9], b"[]"):
        assert "does not prove" in proof_problem(raw, trust, "left", "nonce")
    party = coordinator_proof(KitFiles(Kit.read(out / "right")), "left", "nonce")
    assert "not one of 'coordinator'" in proof_problem(party, trust, "left", "nonce")
    revoke_certificates(out, "coordinator", reason="moved")
    assert "revoked (moved)" in proof_problem(proof, read_trust(Kit.read(out / "left")), "left", "nonce")


# ---- warnings ------------------------------------------------------------------------------------


def test_warnings_at_60_30_and_7_days_then_every_day(out: Path, caplog: pytest.LogCaptureFixture) -> None:
    reminder = ExpiryReminder(Kit.read(out / "left"))
    due = [days for days in range(365, -10, -1) if reminder.look(NOW + (365 - days) * DAY)]
    assert due == [60, 30, *range(7, -10, -1)]
    assert "ends in 7 days" in caplog.text
    assert "ended 9 days ago" in caplog.text
    assert days_left(Kit.read(out / "left"), NOW) == {"certificate": 365.0, "root": 3650.0}
    assert expiry_warning("root", 61.0) == ""
    assert "provision" in expiry_warning("root", 5.0)


def test_a_restart_in_the_last_weeks_warns_at_once(out: Path) -> None:
    assert len(ExpiryReminder(Kit.read(out / "left")).look(NOW + 350 * DAY)) == 1
    assert ExpiryReminder(Kit.read(out / "left")).look(NOW + 200 * DAY) == []
