"""A study as its lead asks for it: what `submit` and the console take, turned into a request to the coordinator."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from verticopula.errors import SettingsError
from verticopula.network.control_messages import SubmitRequest
from verticopula.network.startup_kit import Kit
from verticopula.network.study_signature import sign_study
from verticopula.protocol.study_proposal import federation_fingerprint
from verticopula.schema.defaults import DEFAULT_ROUNDS
from verticopula.schema.dependence import DEFAULT_DEPENDENCE
from verticopula.schema.methods import OWN_VARIANT, PRINTED_VARIANT, RAW_REGRESSION, default_method
from verticopula.schema.printed_choices import DEFAULT_RANK_CORRELATION
from verticopula.schema.study_settings import StudySettings, strength_or_rule

Alignment = Literal["hash", "psi"]


@dataclass(frozen=True)
class Submission:
    """Everything that a study lead may say about a study.

    Attributes
    ----------
    method : None for the one that suits studies between organisations
    epsilon : None for 1, or where its two parts are given
    conditions, missing : what all synthetic rows are to have, and their gaps, as `SubmitRequest` has them
    family, penalty, select : of a regression on raw columns; `select` is a rule or a strength
    requester, purpose, contact, use : who asks, why, how to reach them, and what the tables will be used for; the
        parties' stewards are shown it
    deadline : seconds that a party has for one round; None for the federation's
    token : the lead's own name for the request; the same token again is the same study
    """

    method: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    unit: str | None = None
    epsilon_ranks: float | None = None
    epsilon_marginals: float | None = None
    rows: int | None = None
    conditions: tuple[str, ...] = ()
    missing: str = ""
    sampler: str = "exact"
    rounds: int = DEFAULT_ROUNDS
    per_round: bool = False
    aligned: bool = False
    as_printed: bool = False
    rank_correlation: str = DEFAULT_RANK_CORRELATION
    dependence: str = DEFAULT_DEPENDENCE
    family: str = "gaussian"
    penalty: str = "scad"
    select: str = "bic"
    alignment: str = "hash"
    seed: int | None = None
    deadline: float | None = None
    requester: str = ""
    purpose: str = ""
    contact: str = ""
    use: str = ""
    token: str = field(default_factory=lambda: secrets.token_hex(16))

    def to_request(self, kit: Kit) -> SubmitRequest:
        """What the coordinator is sent, with the lead's signature; SettingsError for what makes no sense.

        Parameters
        ----------
        kit : the lead's
        """
        federation = kit.federation
        method = self.method or default_method(None, as_printed=self.as_printed).name
        is_regression = method == RAW_REGRESSION
        if is_regression and self.as_printed:
            raise SettingsError(f"{PRINTED_VARIANT} is not for {RAW_REGRESSION}")
        settings = self._regression() if is_regression else self._synthesis(method)
        seconds = federation.network.deadline if self.deadline is None else self.deadline
        request = SubmitRequest(
            federation_fingerprint(federation),
            "regression" if is_regression else "synthesis",
            json.dumps(settings),
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
        return sign_study(kit, request, method, self.contact, self.use)

    def _alignment(self) -> Alignment:
        if self.alignment not in ("hash", "psi"):
            raise SettingsError("--alignment is hash or psi")
        return "psi" if self.alignment == "psi" else "hash"

    def _regression(self) -> Mapping[str, Any]:
        return {"family": self.family, "penalty": self.penalty, "select": strength_or_rule(self.select)}

    def _synthesis(self, method: str) -> Mapping[str, Any]:
        parts = self.epsilon_ranks, self.epsilon_marginals
        if self.epsilon is not None and parts != (None, None):
            raise SettingsError("give either epsilon, or epsilon for ranks and epsilon for marginals")
        asked = StudySettings(
            method,
            1.0 if self.epsilon is None and parts == (None, None) else self.epsilon,
            self.delta,
            self.unit,
            self.seed,
            *parts,
            self.sampler,
            self.rounds,
            self.per_round,
            PRINTED_VARIANT if self.as_printed else OWN_VARIANT,
            self.rank_correlation,
            self.dependence,
        )
        return asked.to_dict()
