"""What precedes a regression on raw columns: who has a value everywhere, everybody's consent, and the responses.

Nothing here adds noise. Parties refuse unless their policies name the method; see `LocalParty`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import ProtocolError, SettingsError
from verticopula.glm.feature_encoding import check_response_kind
from verticopula.protocol.regression_messages import ResponseReply, ResponseRequest
from verticopula.protocol.shared_rounds import Rounds, ask_consent, ask_presence
from verticopula.protocol.study_proposal import NO_CONTEXT, StudyContext, propose_raw
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation
from verticopula.schema.methods import OWN_VARIANT, RAW_REGRESSION


def agree_on_subjects(
    federation: Federation,
    response: ColumnKey,
    study: str,
    context: StudyContext = NO_CONTEXT,
    variant: str = OWN_VARIANT,
) -> Rounds[NDArray[np.bool_]]:
    """The subjects with a value in every column, to whose part in the regression everybody has consented."""
    if response not in federation.keys:
        raise SettingsError(f"no column {str(response)!r} in the federation; a response is named party.column")
    check_response_kind(federation.column(response))
    masks, presence = yield from ask_presence(federation, study, RAW_REGRESSION)
    complete = np.logical_and.reduce(list(masks.values()))
    if complete.sum() < 2:
        raise ProtocolError("fewer than two subjects have a value in every column: nothing to fit on")
    yield from ask_consent(federation, propose_raw(federation, study, presence, complete, context, variant))
    return np.asarray(complete)


def ask_response(response: ColumnKey, study: str, subjects: NDArray[np.bool_]) -> Rounds[NDArray[np.float64]]:
    """The responses of these subjects."""
    replies = yield {response.party: ResponseRequest(study, response.column, subjects)}
    reply = replies.get(response.party)
    if not isinstance(reply, ResponseReply) or reply.values.shape != (int(subjects.sum()),):
        raise ProtocolError(f"party {response.party!r} did not answer with the response")
    return reply.values
