"""What precedes a regression on raw columns: who has a value everywhere, and their responses.

Nothing here adds noise. Parties refuse unless their policies name the method; see `LocalParty`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import ProtocolError, SettingsError
from verticopula.glm.feature_encoding import check_response_kind
from verticopula.protocol.messages import (
    ConsentReply,
    PresenceRequest,
    RawConsentRequest,
    ResponseReply,
    ResponseRequest,
)
from verticopula.protocol.shared_rounds import Rounds, gather_presence
from verticopula.schema.federation import ColumnKey, Federation
from verticopula.schema.methods import RAW_REGRESSION


def complete_responses(
    federation: Federation, response: ColumnKey, study: str
) -> Rounds[tuple[NDArray[np.float64], NDArray[np.bool_]]]:
    """Responses of the subjects with a value in every column, and which subjects these are."""
    if response not in federation.keys:
        raise SettingsError(f"no column {str(response)!r} in the federation; a response is named party.column")
    check_response_kind(federation.column(response))
    replies = yield {party.name: PresenceRequest(study, RAW_REGRESSION) for party in federation.parties}
    masks = gather_presence(federation, replies)
    complete = np.logical_and.reduce(list(masks.values()))
    if complete.sum() < 2:
        raise ProtocolError("fewer than two subjects have a value in every column: nothing to fit on")
    replies = yield {party.name: RawConsentRequest(study, complete) for party in federation.parties}
    for party in federation.parties:  # if one refuses, no other has sent anything yet
        if not isinstance(replies.get(party.name), ConsentReply):
            raise ProtocolError(f"party {party.name!r} did not agree to a regression on raw columns")
    replies = yield {response.party: ResponseRequest(study, response.column, complete)}
    reply = replies.get(response.party)
    if not isinstance(reply, ResponseReply) or reply.values.shape != (int(complete.sum()),):
        raise ProtocolError(f"party {response.party!r} did not answer with the response")
    return reply.values, complete
