"""Which engine a command names, and whether its messages may be read on the way."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from verticopula.errors import SettingsError

LOCAL_ENGINE = "local"
_FORMS = "local, tls://host:port, or dask://127.0.0.1:port for a cluster on this machine"


@dataclass(frozen=True)
class EngineAddress:
    """The scheduler of a party's Dask cluster.

    Attributes
    ----------
    host, port : where it listens
    is_encrypted : by Dask's own mutual TLS
    without_tls : whether somebody said by name that messages may travel in the clear
    """

    host: str
    port: int
    is_encrypted: bool
    without_tls: bool = False

    @property
    def url(self) -> str:
        """As Dask writes it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'tls' if self.is_encrypted else 'tcp'}://{host}:{self.port}"

    def allows(self, place: str) -> bool:
        """Whether a scheduler or worker at this address, as Dask writes it, may be sent a party's rows.

        Parameters
        ----------
        place : such as `tcp://10.0.0.7:40123`
        """
        parts = urlsplit(place)
        return self.without_tls or parts.scheme in ("tls", "inproc") or is_loopback(parts.hostname or "")


def parse_engine(text: str, *, without_tls: bool = False) -> EngineAddress | None:
    """The address of a Dask scheduler; None for the local engine. SettingsError where it is neither.

    Parameters
    ----------
    text : `local`, `tls://host:port` or `dask://host:port`
    without_tls : allows `dask://` to another machine
    """
    if text == LOCAL_ENGINE:
        return None
    parts = _split(text)
    if parts is None or parts.scheme not in ("dask", "tls"):
        raise SettingsError(f"engine {text!r}: expected {_FORMS}")
    host, port = parts.hostname, parts.port
    extra = parts.username or parts.password or parts.path.strip("/") or parts.query or parts.fragment
    if not host or not port or extra:
        raise SettingsError(f"engine {text!r}: expected a host and a port, and nothing else: tls://host:8786")
    is_encrypted = parts.scheme == "tls"
    if not is_encrypted and not without_tls and not is_loopback(host):
        raise SettingsError(
            f"engine {text!r}: rows and keys would travel in the clear to another machine. Start scheduler and workers "
            "with TLS and give tls://, or say --engine-without-tls (engine_without_tls=True) on a network that "
            "nobody else can read"
        )
    return EngineAddress(host, port, is_encrypted, without_tls)


def _split(text: str) -> SplitResult | None:
    try:
        parts = urlsplit(text)
        _ = parts.port  # ValueError where it is no number
    except ValueError:
        return None
    return parts


def is_loopback(host: str) -> bool:
    """Whether messages to this host stay on this machine.

    Parameters
    ----------
    host : a name or an address
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
