"""A study as its lead asks for it: what `submit` and the console take, turned into a request to the coordinator."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass, field

from verticopula.errors import SettingsError
from verticopula.network.connection.control_messages import SubmitRequest
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.lead.study_signature import sign_study
from verticopula.protocol.study_proposal import federation_fingerprint
from verticopula.schema.methods import RAW_REGRESSION
from verticopula.schema.raw_regression_settings import RawRegressionSettings
from verticopula.schema.setting_choices import ALIGNMENTS, BY_HASH, Alignment
from verticopula.schema.study_settings import StudySettings


@dataclass(frozen=True)
class Submission:
    """Everything that a study lead may say about a study.

    Attributes
    ----------
    settings : of the study, or of a regression on raw columns
    rows : how many synthetic rows; None for as many as subjects
    conditions, missing : what all synthetic rows are to have, and their gaps, as `SubmitRequest` has them
    aligned : whether synthetic row i follows subject i
    alignment : how rows of one person are found
    requester, purpose, contact, use : who asks, why, how to reach them, and what the tables will be used for; the
        parties' stewards are shown it
    deadline : seconds that a party has for one round; None for the federation's
    token : the lead's own name for the request; the same token again is the same study
    """

    settings: StudySettings | RawRegressionSettings
    rows: int | None = None
    conditions: tuple[str, ...] = ()
    missing: str = ""
    aligned: bool = False
    alignment: str = BY_HASH
    deadline: float | None = None
    requester: str = ""
    purpose: str = ""
    contact: str = ""
    use: str = ""
    token: str = field(default_factory=lambda: secrets.token_hex(16))

    @property
    def method(self) -> str:
        """The method's name, or that of a regression on raw columns."""
        return RAW_REGRESSION if isinstance(self.settings, RawRegressionSettings) else self.settings.method

    def to_request(self, kit: Kit) -> SubmitRequest:
        """What the coordinator is sent, with the lead's signature; SettingsError for what makes no sense.

        Parameters
        ----------
        kit : the lead's
        """
        federation = kit.federation
        seconds = federation.network.deadline if self.deadline is None else self.deadline
        request = SubmitRequest(
            federation_fingerprint(federation),
            "regression" if isinstance(self.settings, RawRegressionSettings) else "synthesis",
            json.dumps(self.settings.to_dict()),
            self.rows,
            self.aligned,
            float(seconds),
            self.token,
            self._alignment(),
            self.requester,
            self.purpose,
            self.conditions,
            self.missing,
        )
        return sign_study(kit, request, self.method, self.contact, self.use)

    def _alignment(self) -> Alignment:
        for known in ALIGNMENTS:
            if self.alignment == known:
                return known
        raise SettingsError(f"--alignment is {' or '.join(ALIGNMENTS)}")
