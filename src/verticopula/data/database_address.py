"""Where a database is and how one logs in: an address without a password, and where the password comes from."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from verticopula.errors import SettingsError

DatabaseKind = Literal["postgresql", "mysql", "sqlite", "duckdb"]

PASSWORD_VARIABLE = "VERTICOPULA_DATABASE_PASSWORD"
_SCHEMES: Mapping[str, DatabaseKind] = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
    "duckdb": "duckdb",
}
_NAMES = {"postgresql": "PostgreSQL", "mysql": "MySQL or MariaDB", "sqlite": "SQLite", "duckdb": "DuckDB"}
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_TLS_MODES = ("disable", "require", "verify-full")
_OPTIONS: Mapping[DatabaseKind, tuple[str, ...]] = {
    "postgresql": ("host", "sslmode", "sslrootcert", "sslcert", "sslkey"),
    "mysql": ("socket", "sslmode", "sslrootcert", "sslcert", "sslkey"),
    "sqlite": (),
    "duckdb": (),
}
_SECRETS = ("password", "passwd", "pwd", "sslpassword")


@dataclass(frozen=True)
class DatabaseAddress:
    """A database, without anything secret.

    Attributes
    ----------
    database : its name on the server; "" for a database in a file
    path : its file; None for a server
    options : what the address says after `?`
    """

    kind: DatabaseKind
    host: str = ""
    port: int | None = None
    user: str = ""
    database: str = ""
    path: Path | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What messages call it: neither its host nor its name, since messages leave the house."""
        return f"the {_NAMES[self.kind]} database"

    @property
    def tls_mode(self) -> str:
        """How the connection is encrypted: as the address says; with another machine, checked down to its name."""
        return self.options.get("sslmode") or ("prefer" if _is_here(self.host) else "verify-full")


def _is_here(host: str) -> bool:
    """Whether a host is this machine; without one, libraries connect through a socket in a folder."""
    try:
        return host in ("", "localhost") or ip_address(host).is_loopback
    except ValueError:
        return False


def is_address(text: str) -> bool:
    """Whether a text is the address of a database, and not a path.

    Parameters
    ----------
    text : as it was given; a path object has lost one of two slashes
    """
    return _ADDRESS.match(text) is not None


def parse_address(text: str, option: str = "--data") -> DatabaseAddress:
    """The address of a database; SettingsError where it makes no sense or holds a password.

    Parameters
    ----------
    text : such as `postgresql://user@host:5432/name`, `mysql://user@host/name`, `sqlite:///file`, `duckdb:///file`
    option : that it was given with, for messages, which never quote it
    """
    try:
        parts = urlsplit(text)
        port, options = parts.port, dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError:
        raise SettingsError(f"{option}: cannot be read as an address; expected {_EXAMPLES}") from None
    kind = _SCHEMES.get(parts.scheme.lower())
    if kind is None or not text.startswith(f"{parts.scheme}://"):
        raise SettingsError(f"{option}: no such kind of database; expected {_EXAMPLES}")
    if parts.password is not None or any(name.lower() in _SECRETS for name in options):
        raise SettingsError(
            f"{option}: the address has a password in it, which everybody on this machine can read in the list of "
            f"processes. Take it out, change it, and give it by --password-file, or in the environment variable "
            f"{PASSWORD_VARIABLE}{_own_ways(kind)}"
        )
    if unknown := sorted(set(options) - set(_OPTIONS[kind])):
        allowed = ", ".join(_OPTIONS[kind]) or "none"
        raise SettingsError(f"{option}: the address has {unknown[0]!r} after `?`; allowed there: {allowed}")
    if "sslmode" in options and options["sslmode"] not in _TLS_MODES:
        raise SettingsError(f"{option}: sslmode is one of {', '.join(_TLS_MODES)}")
    if not options.get("host", "/").startswith("/"):
        raise SettingsError(f"{option}: `host` after `?` is a folder with a socket; a machine stands before the port")
    name = unquote(parts.path).removeprefix("/")
    if kind in ("sqlite", "duckdb"):
        if parts.netloc or not name:
            raise SettingsError(f"{option}: expected {kind}:/// and a path, as in {kind}:///data/people.{kind}")
        return DatabaseAddress(kind, path=Path(name))
    if not name or "/" in name:
        raise SettingsError(f"{option}: the address does not name a database; expected {_EXAMPLES}")
    user = unquote(parts.username or "")
    return DatabaseAddress(kind, parts.hostname or "", port, user, name, None, options)


_EXAMPLES = "postgresql://user@host/name, mysql://user@host/name, sqlite:///file or duckdb:///file"


def find_password(address: DatabaseAddress, file: Path | None = None) -> str | None:
    """The password of a database's user; None where nobody gave one, or where the database's own library finds it.

    Parameters
    ----------
    address : whose it is
    file : holds it in its first line, and is readable by its owner only
    """
    if address.path is not None:
        return None
    if file is not None:
        return _read_password(file)
    if given := os.environ.get(PASSWORD_VARIABLE):
        return given
    return os.environ.get("MYSQL_PWD") if address.kind == "mysql" else None


def _read_password(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            if mode & 0o077:
                raise SettingsError(f"--password-file: others can read it (mode {mode:04o}); give it mode 0600")
            line = opened.readline().rstrip("\r\n")
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else type(error).__name__
        raise SettingsError(f"--password-file: cannot be read ({why})") from None
    except UnicodeDecodeError:
        raise SettingsError("--password-file: is not UTF-8 text") from None
    if not line:
        raise SettingsError("--password-file: its first line is empty; the password stands there")
    return line


def _own_ways(kind: DatabaseKind) -> str:
    if kind == "postgresql":
        return ", or in PGPASSWORD, PGPASSFILE or ~/.pgpass"
    return ", or in MYSQL_PWD" if kind == "mysql" else ""
