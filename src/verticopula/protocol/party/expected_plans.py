"""The plan of secure sums as a party computes it itself, and compares with the one that it is sent."""

from __future__ import annotations

from verticopula.protocol.consent_messages import StudyProposal
from verticopula.protocol.gathered_margins import gather_margins
from verticopula.protocol.messages import Reply, fingerprint
from verticopula.protocol.strict_messages import PlanEvidence
from verticopula.protocol.study_proposal import are_rows_agreed, strict_budget_of
from verticopula.schema.federation import Federation
from verticopula.stats.strict.strict_plan import plan_strict_sums


class ExpectedPlans:
    """Digests of plans, by what plans follow from.

    The plan of a study is the same at all parties. Parties of one process may share one of these: then it is computed
    once. Between organisations each has its own.
    """

    def __init__(self) -> None:
        self._last = "", ""  # what the last plan followed from, and its digest

    def digest(self, federation: Federation, proposal: StudyProposal, evidence: PlanEvidence) -> str:
        """The fingerprint of the plan that follows from the party's federation file, masks, margins and proposal.

        The arithmetic gives the same whole numbers on every machine (`stats/strict/strict_plan.py`).

        Parameters
        ----------
        federation : of which the proposal has the fingerprint
        proposal : what everybody consented to, with digests of all masks
        evidence : margins and masks, which are those of the proposal
        """
        follows_from, last = fingerprint((proposal, evidence.margins)), self._last  # another thread may change it
        if last[0] != follows_from:
            known = {
                party.name: mask
                for place, party in enumerate(federation.parties)
                if (mask := evidence.mask(place, proposal.n_subjects)) is not None  # as was checked
            }
            budget, rows_agreed = strict_budget_of(federation, proposal), are_rows_agreed(proposal.alignment)
            replies: dict[str, Reply] = {reply.party: reply for reply in evidence.margins}
            margins = gather_margins(federation, replies, known, budget)
            plan = plan_strict_sums(federation, known, margins, budget, rows_agreed=rows_agreed).sums
            self._last = last = follows_from, fingerprint(plan)
        return last[1]
