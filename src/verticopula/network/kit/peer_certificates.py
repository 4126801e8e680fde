"""The newest certificate of everybody who has connected, in the coordinator's kit."""

from __future__ import annotations

import json
from collections.abc import Mapping

from cryptography import x509

from verticopula.errors import SettingsError
from verticopula.network.kit.certificate_issuing import certificates_pem
from verticopula.network.kit.startup_kit import Kit, write_private

PEERS_FILE = "peers.json"


def read_peer_certificates(kit: Kit) -> dict[str, x509.Certificate]:
    """By name; empty before the first has connected."""
    path = kit.folder / PEERS_FILE
    if not path.is_file():
        return {}
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return {name: x509.load_pem_x509_certificate(text.encode("ascii")) for name, text in raw.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        raise SettingsError(f"{path} cannot be read; remove it, and it is written anew") from None


def write_peer_certificates(kit: Kit, newest: Mapping[str, x509.Certificate]) -> None:
    """Keep them, by name."""
    kept = {name: certificates_pem([found]) for name, found in newest.items()}
    write_private(kit.folder / PEERS_FILE, json.dumps(kept, indent=1))
