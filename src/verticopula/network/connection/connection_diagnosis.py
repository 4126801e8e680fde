"""Why TLS with the coordinator fails, in words: gRPC says little about it, so one handshake is tried by the way."""

from __future__ import annotations

import contextlib
import socket
import ssl
import tempfile
from pathlib import Path

from verticopula.network.kit.certificate_issuing import certificates_pem, key_pem
from verticopula.network.kit.key_signing import KitFiles
from verticopula.network.kit.startup_kit import Kit, write_private
from verticopula.schema.defaults import COORDINATOR

_PATIENCE_SECONDS = 5.0
_ASK = "ask who provisions the federation for the present authority.pem and notice.json"
_VERIFY_CODES = {  # of OpenSSL: what is wrong with the coordinator's certificate
    9: "is not valid yet; check the clock of this machine",
    10: "has expired; its kit has to be renewed (`verticopula provision --renew coordinator`)",
    18: f"was not signed by a root that this kit trusts; {_ASK}",
    19: f"was not signed by a root that this kit trusts; {_ASK}",
    20: f"was not signed by a root that this kit trusts; {_ASK}",
    26: "is not one of a coordinator",
    62: "is for another host than this kit's",
    64: "is for another host than this kit's",
}
_ALERTS = {  # of TLS: what the coordinator says about this kit's certificate
    "CERTIFICATE_EXPIRED": "has expired",
    "UNKNOWN_CA": f"was not signed by a root that the coordinator trusts: {_ASK}",
    "BAD_CERTIFICATE": "cannot be read",
    "UNSUPPORTED_CERTIFICATE": "is not one to connect with",
    "CERTIFICATE_UNKNOWN": "is not accepted",
    "CERTIFICATE_REVOKED": "was revoked",
}


def diagnose_tls(kit: Kit, files: KitFiles) -> str:
    """What keeps the two ends from connecting; empty where TLS works, or nobody listens there."""
    try:
        context = _context(files)
        with (
            socket.create_connection((kit.host, kit.port), _PATIENCE_SECONDS) as line,
            context.wrap_socket(line, server_hostname=kit.host) as wrapped,
        ):
            wrapped.recv(1)  # with TLS 1.3, the coordinator's verdict comes after the handshake
    except ssl.SSLCertVerificationError as error:
        known = _VERIFY_CODES.get(error.verify_code, f"is refused: {error.verify_message}")
        return f"the coordinator's certificate {known}"
    except ssl.SSLError as error:
        reason = str(error.reason or "")
        found = next((words for alert, words in _ALERTS.items() if alert in reason), "")
        return f"the certificate of {kit.name!r} {found}" if found else ""
    except (OSError, ValueError):
        return ""
    return ""


def _context(files: KitFiles) -> ssl.SSLContext:
    signer, trust = files.signer(), files.trust()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # an organisation's own authority may be no root
    context.load_verify_locations(cadata=certificates_pem(trust.roots_for(COORDINATOR)))
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(ssl.SSLError):
        path = Path(folder) / "pair.pem"
        write_private(path, signer.chain + key_pem(signer.key))
        context.load_cert_chain(path)
    return context
