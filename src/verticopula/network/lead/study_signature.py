"""The study lead's signature: who asks for a study, for whom parties cannot see and the coordinator cannot make up."""

from __future__ import annotations

from dataclasses import replace

from verticopula.network.connection.control_messages import SubmitRequest
from verticopula.network.kit.key_signing import certificate_authenticity
from verticopula.network.kit.startup_kit import Kit
from verticopula.protocol.study_messages import SignedAsking
from verticopula.protocol.study_proposal import asking_statement


def sign_study(kit: Kit, request: SubmitRequest, method: str, contact: str = "", use: str = "") -> SubmitRequest:
    """The request with the lead's signature of who asks, why, and by which method.

    Parameters
    ----------
    kit : the lead's
    request : as it would be sent
    method : its name
    contact, use : how to reach the lead, and what the tables will be used for
    """
    asking = SignedAsking(kit.name, request.token, contact, use, b"")
    said = asking_statement(request.federation, method, request.requester, request.purpose, asking)
    return replace(request, asking=replace(asking, signature=certificate_authenticity(kit).sign(said)))
