"""Kits as they are read: what is missing or does not fit is said."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.network.harness import small_federation
from verticopula.errors import SettingsError
from verticopula.network.connection.flare_link import peers_of
from verticopula.network.kit.startup_kit import Kit, new_id_key, write_private


def make(folder: Path, role: str = "party", name: str = "left") -> Kit:
    folder.mkdir(exist_ok=True)
    for file in ("certificate.pem", "private-key.pem", "authority.pem"):
        (folder / file).write_text("")
    small_federation().to_toml(folder / "federation.toml")
    kit = Kit(folder, role, name, "example.org", 7707)  # type: ignore[arg-type]
    kit.write()
    return kit


def test_a_kit_is_read_as_it_was_written(tmp_path: Path) -> None:
    kit = make(tmp_path)
    assert Kit.read(tmp_path, "party") == Kit.read(tmp_path) == kit


def test_no_kit_at_all(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="holds no start-up kit: `verticopula provision`"):
        Kit.read(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "role = 3", "role = [", 'role = "king"\nname = "x"\nhost = "x"\nport = 1', "\xff"]
)
def test_a_file_that_is_no_kit(tmp_path: Path, text: str) -> None:
    make(tmp_path)
    (tmp_path / "kit.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(SettingsError, match="cannot be read as a kit"):
        Kit.read(tmp_path)


def test_the_wrong_role_is_named(tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(SettingsError, match="the kit of a party; this command takes that of a coordinator or lead"):
        Kit.read(tmp_path, "coordinator", "lead")


def test_missing_files_are_named(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "private-key.pem").unlink()
    with pytest.raises(SettingsError, match=r"not complete: private-key\.pem missing"):
        Kit.read(tmp_path)


def test_the_id_key(tmp_path: Path) -> None:
    kit = make(tmp_path)
    assert kit.id_key() is None
    write_private(tmp_path / "id.key", new_id_key())
    key = kit.id_key()
    assert key is not None
    assert len(key) == 32
    for wrong in ("", "00", "zz" * 32, "00" * 33):
        (tmp_path / "id.key").write_text(wrong)
        with pytest.raises(SettingsError, match="expected 32 bytes") as error:
            kit.id_key()
        assert "zz" not in str(error.value)
    assert new_id_key() != new_id_key()


def test_a_private_file_is_private_even_where_one_was(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_who_talks_to_whom(tmp_path: Path) -> None:
    assert peers_of(make(tmp_path)) == {"coordinator"}
    assert peers_of(make(tmp_path, "lead", "lead")) == {"coordinator"}
    assert peers_of(make(tmp_path, "coordinator", "coordinator")) == {"lead", "left", "middle", "right"}
