"""A start-up kit: the folder that one organisation needs to take its place in a federation.

    kit.toml          who this is, where the coordinator listens
    federation.toml   the agreed schema; a party answers for no other
    certificate.pem, private-key.pem, authority.pem      mutual TLS; the private key is this organisation's own
    notice.json       what the authority has signed: whose roots count, and which certificates were revoked
    federation-signed.json   a new federation file that the authority has signed, once there is one
    id.key            parties only: the common key under which subject ids are hashed

A kit is handed over on a channel that the organisations trust: whoever holds it can act under its name.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import tomli_w

from verticopula.errors import SettingsError
from verticopula.schema.defaults import COORDINATOR

if TYPE_CHECKING:
    from verticopula.schema.federation import Federation

Role = Literal["coordinator", "party", "lead", "compute"]

KIT_FILE = "kit.toml"
FEDERATION_FILE = "federation.toml"
CERTIFICATE_FILE = "certificate.pem"
PRIVATE_KEY_FILE = "private-key.pem"
AUTHORITY_FILE = "authority.pem"
AUTHORITY_NOTICE_FILE = "notice.json"
ID_KEY_FILE = "id.key"
PID_FILE = "process.pid"  # there since a process first ran on the kit

LEAD = "lead"
RESERVED_NAMES = (COORDINATOR, LEAD, "server", "authority")

_ID_KEY_BYTES = 32


@dataclass(frozen=True)
class Kit:
    """One organisation's kit on this machine's disk."""

    folder: Path
    role: Role
    name: str
    host: str
    port: int

    @classmethod
    def read(cls, folder: str | Path, *roles: Role) -> Kit:
        """Read a kit; SettingsError if it is none, or not of one of these roles."""
        kit = cls.read_identity(folder)
        path = kit.folder
        if roles and kit.role not in roles:
            raise SettingsError(f"{path} is the kit of a {kit.role}; this command takes that of a {' or '.join(roles)}")
        missing = [p.name for p in (kit.certificate, kit.private_key, kit.authority) if not p.is_file()]
        if missing:
            raise SettingsError(f"{path} is not complete: {', '.join(missing)} missing")
        return kit

    @classmethod
    def read_identity(cls, folder: str | Path) -> Kit:
        """Whose kit it is, also where its files are not complete; SettingsError if it is none."""
        path = Path(folder)
        try:
            raw = tomllib.loads((path / KIT_FILE).read_text(encoding="utf-8"))
            kit = cls(path, raw["role"], str(raw["name"]), str(raw["host"]), int(raw["port"]))
        except FileNotFoundError:
            raise SettingsError(f"{path} holds no start-up kit: `verticopula provision` makes them") from None
        except (OSError, ValueError, KeyError, TypeError):
            raise SettingsError(f"{path / KIT_FILE} cannot be read as a kit") from None
        if kit.role not in get_args(Role):
            raise SettingsError(f"{path / KIT_FILE} cannot be read as a kit")
        return kit

    def write(self) -> None:
        text = tomli_w.dumps({"role": self.role, "name": self.name, "host": self.host, "port": self.port})
        (self.folder / KIT_FILE).write_text(text, encoding="utf-8")

    @property
    def certificate(self) -> Path:
        return self.folder / CERTIFICATE_FILE

    @property
    def private_key(self) -> Path:
        return self.folder / PRIVATE_KEY_FILE

    @property
    def authority(self) -> Path:
        return self.folder / AUTHORITY_FILE

    @property
    def notice(self) -> Path:
        return self.folder / AUTHORITY_NOTICE_FILE

    @property
    def federation(self) -> Federation:
        from verticopula.schema.federation import Federation  # a lead's `status` needs none, and it takes a while

        return Federation.from_toml(self.folder / FEDERATION_FILE)

    def id_key(self) -> bytes | None:
        """The parties' common key; None in the coordinator's and the lead's kits, or where a party took it out."""
        path = self.folder / ID_KEY_FILE
        if not path.exists():
            return None
        try:
            key = bytes.fromhex(path.read_text(encoding="ascii").strip())
        except (OSError, ValueError):
            key = b""
        if len(key) != _ID_KEY_BYTES:
            raise SettingsError(f"{path}: expected {_ID_KEY_BYTES} bytes in hexadecimal")
        return key


def file_stamp(path: str | Path) -> tuple[int, int, int]:
    """Differs when a file was replaced; zeros where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def new_id_key() -> str:
    """A fresh common key, as the text of its file."""
    return os.urandom(_ID_KEY_BYTES).hex() + "\n"


def write_private(path: Path, text: str) -> None:
    """A file that nobody but its owner can read, from its first byte on; it is there whole, or as it was before."""
    partly = path.with_name(f".{path.name}.part")
    partly.unlink(missing_ok=True)
    with os.fdopen(os.open(partly, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partly, path)
