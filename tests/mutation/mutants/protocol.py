"""Mistakes in proposals and in what they are compared by."""

from __future__ import annotations

from tests.mutation.judges import AGREEMENT_ATTACKS, COMPUTE_PARTY, CONSENT, CONSENT_ROUNDS, PLAN_EVIDENCE
from tests.mutation.runner import Mutant, one_of

MUTANTS = (
    Mutant(
        "refusals-one-alphabet-only",
        "protocol/confusables.py",
        'or c == "|").translate(_FOLDED)',
        'or c == "|")',
        "a Cyrillic letter in the purpose would make another question",
        one_of(CONSENT_ROUNDS, "a_no_is_not_asked_about_again_in_words_that_look_the_same"),
    ),
    Mutant(
        "third-told-margins",
        "protocol/secure_sums.py",
        "evidence if name in plan.parties else None",
        "evidence",
        "who has no data would be sent everybody's margins",
        one_of(COMPUTE_PARTY, "the_third_is_not_told_what_the_plan_follows_from"),
    ),
    Mutant(
        "proposal-consent-of-anybody",
        "protocol/study_proposal.py",
        'fingerprint(("consent", party, proposal, float(until)))',
        'fingerprint(("consent", proposal, float(until)))',
        "one party's consent would be everybody's, where they sign with a common key",
        CONSENT_ROUNDS,
    ),
    Mutant(
        "proposal-any-file",
        "protocol/study_proposal.py",
        "    if proposal.federation != federation_fingerprint(federation):",
        "    if False:",
        "two federation files, each with another cohort",
        AGREEMENT_ATTACKS,
        equivalent="a stored consent to another file's proposal is refused when everybody's consent is shown",
    ),
    Mutant(
        "proposal-tolerance",
        "protocol/study_proposal.py",
        "all(np.array_equal(one, other) for one, other in zip(said, expected, strict=True))",
        "all(np.allclose(one, other, rtol=1e-9) for one, other in zip(said, expected, strict=True))",
        "a proposal could ask for a little less noise than its settings say",
        one_of(CONSENT_ROUNDS, "a_proposal_that_the_party_does_not_compute_itself_is_refused"),
    ),
    Mutant(
        "proposal-masks-of-any-study",
        "protocol/study_proposal.py",
        'return fingerprint(("presence", study, party, tuple(counts), mask)).encode()',
        'return fingerprint(("presence", party, tuple(counts), mask)).encode()',
        "a mask of another study would do",
        one_of(CONSENT_ROUNDS, "a_mask_signed_in_another_study_is_refused"),
    ),
    Mutant(
        "evidence-margins-without-cells",
        "protocol/study_proposal.py",
        'fingerprint(("margins", proposal, reply.party, reply.cells))',
        'fingerprint(("margins", proposal, reply.party))',
        "signed margins could be exchanged for others",
        PLAN_EVIDENCE,
    ),
    Mutant(
        "evidence-margins-of-any-study",
        "protocol/study_proposal.py",
        'fingerprint(("margins", proposal, reply.party, reply.cells))',
        'fingerprint(("margins", reply.party, reply.cells))',
        "margins of another study would do",
        PLAN_EVIDENCE,
    ),
    Mutant(
        "points-signed-for-any-study",
        "protocol/study_proposal.py",
        'fingerprint(("points", study, federation, tuple(masked_by), int(count), digest))',
        'fingerprint(("points", federation, tuple(masked_by), int(count), digest))',
        "points of an earlier study would be masked again",
        (
            "tests/privacy/test_member_alignment.py::test_points_that_were_signed_for_another_study_or_by_the_party_itself_are_not_masked",
        ),
    ),
    Mutant(
        "purposes-have-many-lines",
        "protocol/study_proposal.py",
        'if not all(character.isprintable() or character in _BLANK for character in "".join(said)):',
        "if not all(character.isprintable() or character in _BLANK for character in requester):",
        "a purpose could draw a prompt of its own",
        one_of(CONSENT, "who_asks_and_why_is_one_line"),
    ),
    Mutant(
        "purpose-in-any-letters",
        "protocol/study_proposal.py",
        "if any(map(has_disallowed_script, said)):",
        "if has_disallowed_script(requester):",
        "a purpose could be repeated in letters that nobody compares",
        one_of(CONSENT_ROUNDS, "a_purpose_in_letters_that_nobody_compares_is_refused"),
    ),
)
