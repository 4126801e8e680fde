"""Mistakes in what keeps coordinators and parties that lie from learning more than was agreed to."""

from __future__ import annotations

from tests.mutation.mutants import ADAPTIVE, ALIGNMENT, MEMBER, POLICY, VAULT
from tests.mutation.runner import Mutant, one_of

PRINTED = ("tests/privacy/test_printed_members.py",)
REFUSALS = ("tests/privacy/test_refusals_tell_nothing.py",)

LYING_MUTANTS = (
    Mutant(
        "client-filter-makes-room",
        "privacy/policy.py",
        "client = max(client, count((coin",
        "client = max(0.0, count((coin",
        "a strict study would make room under a cap at client that is spent",
        one_of(ADAPTIVE, "a_strict_study_makes_no_room_under_a_cap_that_is_spent"),
    ),
    Mutant(
        "variable-filter-makes-room",
        "privacy/policy.py",
        "variable = max(variable, *(count",
        "variable = max(0.0, *(count",
        "the same at variable",
        one_of(ADAPTIVE, "a_strict_study_makes_no_room_under_a_cap_that_is_spent"),
    ),
    Mutant(
        "columns-of-one-table-are-compared",
        "storage/known_tables.py",
        "gone = [j for j, column in enumerate(known) if not columns.keys() & set(column.called)]",
        "gone = list(range(len(known)))",
        "a cap would tell whether two columns of a table agree, person by person",
        one_of(VAULT, "a_new_name_is_not_compared_with_columns_that_are_still_there"),
    ),
    Mutant(
        "columns-that-keep-their-name-are-compared",
        "storage/known_tables.py",
        "new = {name: places for name, places in columns.items() if name not in here}",
        "new = dict(columns)",
        "a column that keeps its name would be looked for among those that are gone",
        one_of(VAULT, "a_column_that_stays_is_not_compared_with_one_that_is_gone"),
    ),
    Mutant(
        "constant-columns-are-new",
        "storage/column_sketch.py",
        "return bool(a.min() == a.max() and b.min() == b.max())",
        "return False",
        "a constant column would have a new budget under every name, and the refusal of others would tell",
        one_of(VAULT, "a_constant_column_is_known_like_its_neighbour"),
    ),
    Mutant(
        "new-names-are-new-parties",
        "storage/known_tables.py",
        "if not present and not own:",
        "if not present and own is None:",
        "a renamed party with columns cut otherwise would have a new budget in `run`",
        one_of(VAULT, "a_new_name_counts_with_parties_that_are_absent_whatever_its_columns_are"),
    ),
    Mutant(
        "refusals-say-how-much-was-spent",
        "protocol/party/member.py",
        """f"party {self.name!r}: epsilon per {error.unit or 'unit'} would go above its cap; nothing was drawn",""",
        "str(error),",
        "the sum in a refusal would tell whether somebody is in another table of the organisation",
        one_of(REFUSALS, "no_refusal_by_a_cap_says_how_much_was_spent"),
    ),
    Mutant(
        "printed-ranks-leave-after-a-no",
        "protocol/party/local_party.py",
        "self.policy.check_printed(self.name)  #",
        "pass  #",
        "ranks as printed would leave although the policy forbids them by now",
        one_of(PRINTED, "a_policy_that_forbids_it_after_consent_stops_ranks_too"),
    ),
    Mutant(
        "seeded-noise-counts-as-noise",
        "privacy/policy.py",
        'if any(entry.noise == "seeded" for entry in (*known, *everything)):',
        "if False:",
        "noise that the coordinator knows would have a finite price",
        one_of(MEMBER, "no_cap_allows_a_seeded_study"),
    ),
    Mutant(
        "seeded-studies-under-caps-are-opened",
        "protocol/party/member.py",
        "if request.seed is not None and self.policy.caps != Caps():",
        "if request.seed is not None and self.policy.caps is None:",
        "hashes in the table's order would leave for a study that no cap allows",
        one_of(MEMBER, "no_cap_allows_a_seeded_study"),
    ),
    Mutant(
        "points-need-no-signature",
        "protocol/party/member.py",
        "return self._authenticity.verify(by[-1], message, signed.signature)",
        "return True",
        "a coordinator could have any number of guessed ids masked",
        one_of(ALIGNMENT, "points_that_no_other_party_signed_are_not_masked"),
    ),
    Mutant(
        "points-signed-for-any-list",
        "protocol/party/member.py",
        "if (signed.count, signed.digest) != (request.points.shape[0], points_digest(request.points)):",
        "if signed.count < 0:",
        "a signature of one list would let any other be masked",
        one_of(ALIGNMENT, "points_that_no_other_party_signed_are_not_masked"),
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
        "points-beyond-the-cohort",
        "protocol/party/member.py",
        "if request.points.shape[0] > cohort.count or record.listed",
        "if record.listed",
        "a party that helps the coordinator could sign ten million guesses",
        one_of(ALIGNMENT, "no_list_is_longer_than_the_cohort_that_its_party_signed"),
    ),
    Mutant(
        "alignments-are-not-asked",
        "protocol/party/member.py",
        "if allowed is not None and alignment not in allowed:",
        "if allowed == ():",
        "a party that refuses psi would take part in it",
        one_of(ALIGNMENT, "a_policy_may_refuse_a_way_of_alignment"),
    ),
    Mutant(
        "rules-are-forgotten-in-a-new-table",
        "privacy/policy_file.py",
        'met = [f"policy:{name}" for name in overlapping]',
        "met: list[str] = []",
        "a file without its caps would be taken for a new policy where half of the people are others",
        one_of(POLICY, "a_new_table_with_some_of_the_people_has_their_rules_to_keep"),
    ),
)
