"""Consent before anything is released: what is checked, stored and binding, and that a no costs nobody anything."""

from __future__ import annotations

import fcntl
import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.agreements import agree, consents_to
from tests.builders import CONTINUOUS, make_federation
from tests.members import KEY, MemoryVault, make_member, make_members
from tests.privacy.member_study import (
    RAW,
    RELEASE,
    WORD,
    agree_in,
    answered,
    federation,
    member,
    opening,
    place_of,
    placed,
    proposal_for,
    ready,
    tables,
)
from verticopula import Policy, Synthesizer, VerticalGLM
from verticopula.errors import BudgetExceeded, PartyUnavailable, PolicyRefused, ProtocolError, VerticopulaError
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.privacy.policy import Caps
from verticopula.privacy.policy_file import PolicyFile
from verticopula.privacy.pricing import Pricing
from verticopula.protocol.consent_messages import (
    AgreementRequest,
    ConsentReply,
    ConsentRequest,
    PresenceReply,
    PresenceRequest,
    SignedConsent,
    StudyProposal,
)
from verticopula.protocol.messages import Reply, Request, fingerprint
from verticopula.protocol.party import study_consents
from verticopula.protocol.party.consent_question import ConsentQuestion
from verticopula.protocol.party.member import Member
from verticopula.protocol.party.study_admission import StudyAdmission
from verticopula.protocol.rank_messages import CompletedRanksRequest, Imputation
from verticopula.protocol.regression_messages import ResponseRequest
from verticopula.protocol.study_lifecycle import begin_study
from verticopula.protocol.study_messages import BeginRequest, CloseRequest
from verticopula.protocol.study_proposal import (
    consent_statement,
    federation_fingerprint,
    mask_digest,
    presence_statement,
)
from verticopula.storage.vault import Vault
from verticopula.transport.delivery import drive
from verticopula.transport.in_process_transport import InProcessTransport

NAMED = {
    "n": {"kind": "count", "bounds": [0, 50]},
    "g": {"kind": "nominal", "categories": ["u", "v", WORD]},
}

# ---- what a party consents to ------------------------------------------------------------------


def louder(proposal: StudyProposal) -> StudyProposal:
    return replace(proposal, ranks=np.nextafter(proposal.ranks, np.inf))


def fewer_people(proposal: StudyProposal) -> StudyProposal:
    """Another party's count, with that party's old signature."""
    first = replace(proposal.presence[0], counts=(3, 3))
    return replace(proposal, presence=(first, *proposal.presence[1:]))


def another_mask(proposal: StudyProposal) -> StudyProposal:
    first = replace(proposal.presence[0], mask="0" * 64)
    return replace(proposal, presence=(first, *proposal.presence[1:]))


def own_mask(proposal: StudyProposal) -> StudyProposal:
    """Signed by the common key, so only the party itself can know better."""
    own = replace(proposal.presence[1], mask="0" * 64)
    message = presence_statement("study", own.party, own.counts, own.mask)
    own = replace(own, signature=shared_authenticity(KEY).sign(message))
    return replace(proposal, presence=(proposal.presence[0], own, proposal.presence[2]))


@pytest.mark.parametrize(
    "lie",
    [
        louder,
        fewer_people,
        another_mask,
        own_mask,
        lambda p: replace(p, cohort="0" * 64),
        lambda p: replace(p, n_subjects=p.n_subjects + 1),
        lambda p: replace(p, alignment="psi"),
        lambda p: replace(p, presence=p.presence[::-1]),
        lambda p: replace(p, presence=p.presence[:2]),
        lambda p: replace(p, epsilon_ranks=2.0),
        lambda p: replace(p, epsilon_ranks=math.nan),
        lambda p: replace(p, unit="person"),
        lambda p: replace(p, unit="household"),
        lambda p: replace(p, sampler="binomial ranks"),
        lambda p: replace(p, rounds=3),
        lambda p: replace(p, rounds=10**400),
        lambda p: replace(p, seed=7),
        lambda p: replace(p, federation="0" * 64),
        lambda p: replace(p, requester="somebody else"),
        lambda p: replace(p, marginals=p.marginals[:-1]),
        lambda p: replace(p, deviations=np.ones(6)),
        lambda p: replace(p, purpose="x" * 501),
        lambda p: replace(p, subjects=np.ones(p.n_subjects, dtype=bool)),
    ],
)
def test_a_proposal_that_the_party_does_not_compute_itself_is_refused(
    lie: Callable[[StudyProposal], StudyProposal],
) -> None:
    one = placed()
    with pytest.raises(ProtocolError):
        one.handle(ConsentRequest(lie(proposal_for(one))))
    assert one.vault.studies.get("consent:right/study") is None
    one.handle(ConsentRequest(proposal_for(one)))


def test_a_mask_signed_in_another_study_is_refused() -> None:
    one = placed()
    proposal = proposal_for(one)
    first = proposal.presence[0]
    message = presence_statement("another study", first.party, first.counts, first.mask)
    old = replace(first, signature=shared_authenticity(KEY).sign(message))
    with pytest.raises(ProtocolError, match="not signed by that party"):
        one.handle(ConsentRequest(replace(proposal, presence=(old, *proposal.presence[1:]))))


def test_other_parties_cannot_find_a_mask_from_its_digest_by_trying() -> None:
    """Where nearly everybody has a value there are few masks to try. The coordinator is told the salt, they are not."""
    one, other = placed(), placed()
    own = one.handle(PresenceRequest("study", "vcds"))
    assert isinstance(own, PresenceReply)
    shown = next(said.mask for said in proposal_for(one).presence if said.party == own.party)
    assert shown != mask_digest(own.observed)
    assert shown == mask_digest(own.observed, own.salt)
    assert len(own.salt) >= 16
    found = [party.handle(PresenceRequest("study", "vcds")) for party in (one, other)]
    assert [isinstance(reply, PresenceReply) and reply.salt == own.salt for reply in found] == [True, False]


def test_one_proposal_a_study() -> None:
    one = placed()
    one.handle(ConsentRequest(proposal_for(one)))
    with pytest.raises(ProtocolError, match="consented to another proposal"):
        one.handle(ConsentRequest(proposal_for(one, epsilon_ranks=0.5)))


# ---- everybody's consent ------------------------------------------------------------------


def test_nothing_is_released_before_everybody_has_consented() -> None:
    one = placed()
    with pytest.raises(ProtocolError, match="has not consented"):
        one.handle(RELEASE)
    proposal = proposal_for(one)
    own = one.handle(ConsentRequest(proposal))
    assert isinstance(own, ConsentReply)
    with pytest.raises(ProtocolError, match="not everybody has consented"):
        one.handle(RELEASE)
    assert len(one.vault.ledger) == 0
    one.handle(consents_to(proposal, SignedConsent("right", own.until, own.signature)))
    one.handle(RELEASE)
    assert len(one.vault.ledger) == 4


def test_consents_that_are_missing_forged_or_to_another_proposal_do_not_count() -> None:
    one = placed()
    proposal = proposal_for(one)
    own = one.handle(ConsentRequest(proposal))
    assert isinstance(own, ConsentReply)
    good = consents_to(proposal, SignedConsent("right", own.until, own.signature))
    left, right, third = good.consents
    signer = shared_authenticity(KEY)
    other = consent_statement("third", fingerprint(replace(proposal, purpose="something else")), own.until)
    for wrong in (
        (left, right),
        (left, right, right),
        (third, right, left),
        (left, right, SignedConsent("third", own.until, b"")),
        (left, right, SignedConsent("third", own.until, right.signature)),
        (left, right, SignedConsent("third", own.until, signer.sign(other))),
        (left, right, SignedConsent("third", own.until, shared_authenticity(bytes(32)).sign(b"x"))),
        (left, right, replace(third, until=third.until + 1.0)),
    ):
        with pytest.raises(ProtocolError):
            one.handle(replace(good, consents=wrong))
        with pytest.raises(ProtocolError):
            one.handle(RELEASE)
    assert len(one.vault.ledger) == 0


def test_an_agreement_of_another_study_is_not_one_of_this() -> None:
    vault = MemoryVault()
    one = ready(vault=vault)
    one.handle(replace(place_of(answered(one.handle(opening("next")))), study="next"))
    first = proposal_for(one)
    one.handle(ConsentRequest(proposal_for(one, "next")))
    old = consents_to(first, SignedConsent("right", 2e9, b""))
    with pytest.raises(ProtocolError, match="has not consented to the proposal"):
        one.handle(AgreementRequest("next", "vcds", old.consents))


# ---- nothing but what was consented to ------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        replace(RELEASE, queries=RELEASE.queries[:1]),
        replace(RELEASE, queries=RELEASE.queries[::-1]),
        replace(RELEASE, queries=tuple(replace(q, epsilon_ranks=1.0000001) for q in RELEASE.queries)),
        replace(RELEASE, queries=tuple(replace(q, epsilon_marginal=0.5) for q in RELEASE.queries)),
        replace(RELEASE, sampler="binomial"),
    ],
)
def test_another_release_than_was_consented_to_is_refused(more: Any) -> None:
    one = ready()
    with pytest.raises(ProtocolError, match="not what was consented to"):
        one.handle(more)
    assert len(one.vault.ledger) == 0


def test_rounds_are_those_that_were_consented_to_and_each_is_asked_for_once() -> None:
    one = member()
    one.handle(place_of(answered(one.handle(opening(method="ievcds")))))
    agree_in(one, method="ievcds", rounds=2, epsilon_ranks=2.0)
    first = replace(RELEASE, method="ievcds")
    one.handle(first)
    seen = proposal_for(one, method="ievcds", rounds=2, epsilon_ranks=2.0).presence[1].counts
    codes = [np.zeros(120 - count, dtype=np.int64) for count in seen]
    none = np.zeros(0)
    items = tuple(Imputation(q.column, 1.0, none, none, c) for q, c in zip(RELEASE.queries, codes, strict=True))
    second = CompletedRanksRequest("study", "ievcds", "exact", 2, items)
    for wrong in (
        replace(second, round_number=1),
        replace(second, round_number=3),
        replace(second, imputations=items[:1]),
        replace(second, imputations=tuple(replace(item, epsilon_ranks=1.5) for item in items)),
        replace(second, sampler="binomial"),
    ):
        with pytest.raises(ProtocolError, match="not what was consented to"):
            one.handle(wrong)
    one.handle(second)
    paid = len(one.vault.ledger)
    one.handle(second)
    other = tuple(replace(item, codes=1 + 0 * c) for item, c in zip(items, codes, strict=True))
    with pytest.raises(ProtocolError, match="another round 2"):
        one.handle(replace(second, imputations=other))
    assert len(one.vault.ledger) == paid


def test_exact_values_are_of_subjects_that_were_consented_to() -> None:
    one = member("left", policy=RAW)
    one.handle(place_of(answered(one.handle(opening(method="raw-glm")))))
    allowed = np.arange(120) < 60
    agree_in(one, method="raw-glm", subjects=allowed)
    for subjects in (None, np.ones(120, dtype=bool), np.arange(120) == 60):
        with pytest.raises(ProtocolError, match="not consented to"):
            one.handle(ResponseRequest("study", "y", subjects))
    one.handle(ResponseRequest("study", "y", allowed))


# ---- the steward ------------------------------------------------------------------


class Steward:
    """Says what it is told to, and remembers what it was asked."""

    def __init__(self, *answers: bool) -> None:
        self.answers, self.asked = list(answers), list[ConsentQuestion]()

    def __call__(self, question: ConsentQuestion) -> None:
        self.asked.append(question)
        if not self.answers.pop(0):
            raise PolicyRefused("party 'right': its steward said no")


def test_the_steward_is_asked_when_a_study_is_opened_and_once_about_all_of_it() -> None:
    steward = Steward(True, True)
    one = placed(ask_steward=steward)
    agree_in(one)
    one.handle(opening())  # asked again, answered from the record
    agree_in(one)
    one.handle(RELEASE)
    first, second = steward.asked
    assert first.is_about_alignment
    assert first.alignment == "hash"
    assert [entry.column for entry in second.proposed] == ["n", "n", "g", "g"]
    assert second.spent == ()
    assert not steward.answers


def test_a_no_at_the_opening_keeps_the_hashes_in_the_house() -> None:
    one = member(ask_steward=Steward(False))
    with pytest.raises(PolicyRefused, match="steward said no"):
        one.handle(opening())
    assert one.vault.studies.get("study:right/study") is None
    assert one.vault.studies.get("openings:right") is None


def test_a_no_is_not_remembered_as_a_yes() -> None:
    now, steward = [1e9], Steward(True, False, True)
    one = placed(ask_steward=steward, clock=lambda: now[0])
    with pytest.raises(PolicyRefused):
        agree_in(one)
    with pytest.raises(ProtocolError, match="has not consented"):
        one.handle(RELEASE)
    now[0] += 31 * 86_400.0
    agree_in(one)
    one.handle(RELEASE)


def place_in(one: Member, study: str, **changes: Any) -> None:
    one.handle(replace(place_of(answered(one.handle(opening(study, **changes)))), study=study))


def test_a_no_is_remembered_as_long_as_a_yes_and_given_again_without_asking(tmp_path: Path) -> None:
    now, steward = [1e9], Steward(True, False, True)
    settings: dict[str, Any] = {"clock": lambda: now[0], "policy": Policy(consent_days=2), "ask_steward": steward}
    with Vault.open(tmp_path) as vault, pytest.raises(PolicyRefused, match="its steward said no") as first:
        agree_in(placed(vault=vault, **settings))
    now[0] += 1.9 * 86_400
    with Vault.open(tmp_path) as vault:  # after a restart
        one = member(vault=vault, **settings)
        with pytest.raises(PolicyRefused) as again:
            agree_in(one)
        assert str(again.value) == str(first.value)
        assert "for 2 days the same is refused without asking again" in str(first.value)
        with pytest.raises(PolicyRefused) as other:  # what was refused is not asked about in other terms
            agree_in(one, epsilon_ranks=0.5)
        assert str(other.value) == str(first.value)
        assert len(steward.asked) == 2
        assert len(vault.ledger) == 0
        now[0] += 0.2 * 86_400
        agree_in(one)
    assert len(steward.asked) == 3


def test_a_no_is_not_asked_about_again_under_another_name() -> None:
    steward = Steward(True, False, True, True)
    one = placed(ask_steward=steward)
    with pytest.raises(PolicyRefused, match="its steward said no"):
        agree_in(one)
    place_in(one, "again")
    with pytest.raises(PolicyRefused, match="its steward said no"):
        agree_in(one, "again")
    assert len(steward.asked) == 3  # the second opening; not the same study once more
    agree_in(one, "again", epsilon_ranks=0.5)  # another price is another question
    assert len(steward.asked) == 4


@pytest.mark.parametrize(
    "purpose",
    [
        *("an audit ", " an  audit", "an\u00a0audit", "An Audit", "ａｎ audit", "an\u200d audit", "an au\u200cdit"),
        *("an audit.", "an-audit", "an, audit!", "án äudit", "an aud1t", "an audlt", "an audıt", "an auđit"),
        *("\u0430n audit", "\u03b1n audit", "an \u0430udit", "an aud\u0456t", "an audi\u0442", "\u0410n Audi\u03a4"),
        *("an \U0001d41aud\u2170t", "an a\u03c5dit", "a\u03b7 audit", "an au\u0501it", "a\u3164n audit"),
    ],
)
def test_a_no_is_not_asked_about_again_in_words_that_look_the_same(purpose: str) -> None:
    steward = Steward(False)
    one = member(ask_steward=steward)
    for study, said in (("one", "an audit"), ("two", purpose)):
        with pytest.raises(PolicyRefused, match="its steward said no"):
            one.handle(opening(study, purpose=said))
    assert len(steward.asked) == 1


@pytest.mark.parametrize(
    "purpose",
    [
        *("an aud\u0458\u0585t", "\u13aan audit", "an \u1d00udit", "an \ua4ddudit", "an \u2c81udit", "an au\u10f7it"),
        *("a\u0578 audit", "an \U00010450udit"),
    ],
)
def test_a_purpose_in_letters_that_nobody_compares_is_refused(purpose: str) -> None:
    """Armenian, Cherokee, phonetic, Lisu, Coptic, Georgian and Shavian letters that look like Latin ones."""
    steward = Steward(True)
    one = member(ask_steward=steward)
    with pytest.raises(ProtocolError, match="each word in those of one alphabet"):
        one.handle(opening("two", purpose=purpose))
    assert steward.asked == []


@pytest.mark.parametrize(
    "purpose",
    [
        *("Étude des coûts à l'hôpital", "Größe, Łódź, Ærø und Þórr", "Исследование HIV 2026"),
        *("دراسة HIV", "מחקר HIV", "HIV感染症の調査ー", "연구 HIV", "स्वास्थ्य अध्ययन", "การศึกษา"),
        *("Μελέτη για το COVID-19", "дослідження зв\u02bcязку"),
        *("Nghiên cứu sức khỏe", "Sağlık araştırması ığüşöç", "ɓera ɗan ƙasa"),
    ],
)
def test_a_purpose_may_be_in_any_language(purpose: str) -> None:
    steward = Steward(True)
    member(ask_steward=steward).handle(opening("one", purpose=purpose))
    assert [question.purpose for question in steward.asked] == [purpose]


@pytest.mark.parametrize("method", ["vcds ", "VCDS", "", "vcds, which leaves nothing" + 80 * " " + "epsilon: 0"])
def test_a_method_that_there_is_not_is_shown_to_no_steward(method: str) -> None:
    steward = Steward(True)
    with pytest.raises(PolicyRefused, match="does not know the method"):
        member(ask_steward=steward).handle(opening("one", method=method))
    assert steward.asked == []


def test_two_purposes_are_two_questions() -> None:
    steward = Steward(False, True, True, True)
    one = member(ask_steward=steward)
    with pytest.raises(PolicyRefused, match="its steward said no"):
        one.handle(opening("one", purpose="аудит больницы"))
    for number, other in enumerate(("аудит клиники", "an audit", "больница")):
        one.handle(opening(f"other {number}", purpose=other))
    assert len(steward.asked) == 4


def test_questions_that_wait_together_get_one_no() -> None:
    """Sixteen threads ask the same in studies of other names, before the steward has answered the first."""
    began, may_answer, asked = threading.Event(), threading.Event(), list[str]()

    def thinks(question: ConsentQuestion) -> None:
        asked.append(question.study)
        began.set()
        may_answer.wait()
        raise PolicyRefused("party 'right': its steward said no")

    one, refused = member(ask_steward=thinks), list[str]()

    def ask(study: str) -> None:
        try:
            one.handle(opening(study, purpose="an audit"))
        except PolicyRefused as error:
            refused.append(str(error))

    threads = [threading.Thread(target=ask, args=(f"study {number}",)) for number in range(16)]
    threads[0].start()
    began.wait()
    for thread in threads[1:]:
        thread.start()
    may_answer.set()
    for thread in threads:
        thread.join()
    assert asked == ["study 0"]
    assert len(refused) == 16
    assert len(set(refused)) == 1


def test_other_studies_go_on_while_the_steward_thinks() -> None:
    """About the opening of another study, and about its releases."""
    began, may_answer, is_slow = threading.Event(), threading.Event(), list[bool]()

    def thinks(question: ConsentQuestion) -> None:
        if is_slow:
            began.set()
            may_answer.wait()

    one = placed(ask_steward=thinks)
    place_in(one, "two")
    proposal = proposal_for(one, "two")
    agree_in(one)
    is_slow.append(True)
    questions: list[Request] = [opening("three", purpose="an audit"), ConsentRequest(proposal)]
    for number, question in enumerate(questions):
        thread = threading.Thread(target=one.handle, args=(question,), daemon=True)
        thread.start()
        began.wait()
        other = threading.Thread(target=one.handle, args=((RELEASE, CloseRequest("study"))[number],), daemon=True)
        other.start()
        other.join(60.0)  # a study that has to wait would wait for ever
        went_on = not other.is_alive()
        may_answer.set()
        thread.join()
        other.join()
        assert went_on
        began.clear()
        may_answer.clear()
    assert len(one.vault.ledger) == 4


@pytest.mark.parametrize("factor", [1.0 - 1e-9, 1.0 + 1e-9, 0.95, 1.05])
def test_a_no_is_not_asked_about_again_at_nearly_the_same_price(factor: float) -> None:
    steward = Steward(True, False, True)
    one = placed(ask_steward=steward)
    with pytest.raises(PolicyRefused, match="its steward said no"):
        agree_in(one)
    place_in(one, "again")
    with pytest.raises(PolicyRefused, match="its steward said no"):
        agree_in(one, "again", epsilon_ranks=factor, epsilon_marginals=factor)
    assert len(steward.asked) == 3  # both openings


def test_the_number_of_studies_holds_for_the_people_whatever_the_party_is_called(tmp_path: Path) -> None:
    """Two federations call the same table right and other; a no is about one of them, and counts in both."""
    frame = tables()["right"]
    names = {name: make_federation({"hub": {"y": CONTINUOUS}, name: NAMED}) for name in ("right", "other")}
    rules, steward = Policy(new_studies=4), Steward(False, True, True, True)
    with Vault.open(tmp_path) as vault:
        one, two = (
            make_member(made, name, frame, vault=vault, policy=rules, ask_steward=steward)
            for name, made in names.items()
        )

        def ask(of: Member, study: str, purpose: str) -> None:
            of.handle(opening(study, federation=federation_fingerprint(of.federation), purpose=purpose))

        with pytest.raises(PolicyRefused, match="'right': its steward said no"):
            ask(one, "a", "an audit")
        with pytest.raises(PolicyRefused, match="without asking again"):
            ask(one, "b", "an audit")
        ask(two, "b", "an audit")
        ask(one, "c", "another reason")
        ask(two, "d", "another reason")
        for of in (one, two):
            with pytest.raises(PolicyRefused, match="4 studies were begun"):
                ask(of, "e", "a third reason")
    assert len(steward.asked) == 4


# ---- a question that waits --------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [2, 24 * 29])
def test_a_yes_that_is_said_after_the_round_is_over_counts_when_the_study_is_resumed(
    tmp_path: Path, hours: float
) -> None:
    """A round has a deadline of an hour; the coordinator has given up when the steward answers, and nobody hears it."""
    now, asked = [1e9], list[str]()

    def thinks(question: ConsentQuestion) -> None:
        asked.append(question.study)
        now[0] += hours * 3_600.0

    settings: dict[str, Any] = {"clock": lambda: now[0], "policy": Policy(), "ask_steward": thinks}
    with Vault.open(tmp_path) as vault:
        one = placed(vault=vault, **settings)
        one.handle(ConsentRequest(proposal_for(one)))  # what it answers is lost
    now[0] += 3_600.0
    with Vault.open(tmp_path) as vault:  # and the party was started again meanwhile
        one = member(vault=vault, **settings)
        agree_in(one)
        one.handle(RELEASE)
        with pytest.raises(ProtocolError, match="consented to another proposal"):  # it is bound to the proposal
            one.handle(ConsentRequest(proposal_for(one, epsilon_ranks=0.5)))
    assert asked == ["study", "study"]  # the opening, and the consent; each once


def test_a_no_that_is_said_after_the_round_is_over_counts_too(tmp_path: Path) -> None:
    now, steward = [1e9], Steward(True, False)

    def thinks(question: ConsentQuestion) -> None:
        now[0] += 7_200.0
        steward(question)

    settings: dict[str, Any] = {"clock": lambda: now[0], "policy": Policy(), "ask_steward": thinks}
    with Vault.open(tmp_path) as vault, pytest.raises(PolicyRefused):
        agree_in(placed(vault=vault, **settings))
    with Vault.open(tmp_path) as vault, pytest.raises(PolicyRefused, match="its steward said no"):
        agree_in(member(vault=vault, **settings))
    assert len(steward.asked) == 2


def test_a_question_lives_as_long_as_a_consent_would() -> None:
    """Thirty days by default: a yes to what was asked before that is a yes to nothing."""
    now, days, asked = [1e9], [30.1, 0.1], list[str]()

    def thinks(question: ConsentQuestion) -> None:
        if not question.is_about_alignment:
            asked.append(question.study)
            now[0] += days.pop(0) * 86_400.0

    one = placed(clock=lambda: now[0], policy=Policy(), ask_steward=thinks)
    with pytest.raises(ProtocolError, match="asked more than 30 days ago"):
        agree_in(one)
    with pytest.raises(ProtocolError, match="has not consented"):
        one.handle(RELEASE)
    agree_in(one)
    one.handle(RELEASE)
    assert len(asked) == 2


@pytest.mark.parametrize("rules", ['methods = ["strict"]\n', "min_subjects = 101\n", 'columns = ["n"]\n'])
def test_a_policy_that_is_tightened_while_the_steward_thinks_holds_for_what_was_asked(
    rules: str, tmp_path: Path
) -> None:
    path, tightens = tmp_path / "right.toml", list[bool]()
    path.write_text("")

    def thinks(question: ConsentQuestion) -> None:
        if tightens.pop(0):
            path.write_text(rules)

    one = member(policy=PolicyFile(path, "right"), ask_steward=thinks)
    tightens += [True]
    with pytest.raises(PolicyRefused, match="'right'"):
        one.handle(opening())
    path.unlink()
    path.write_text("")
    tightens += [False, True]
    two = placed(policy=PolicyFile(path, "right"), ask_steward=thinks)
    proposal = proposal_for(two)
    with pytest.raises(PolicyRefused, match="'right'"):
        two.handle(ConsentRequest(proposal))
    with pytest.raises(PolicyRefused):  # and nothing was signed
        two.handle(ConsentRequest(proposal))


def test_two_questions_at_once_are_one_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second yes does not forget what was asked for after the first."""
    first, second, replies = threading.Event(), threading.Event(), list[Reply]()
    gates, entered, ask = [first, second], list[str](), StudyAdmission.ask

    def thinks(question: ConsentQuestion) -> None:
        if not question.is_about_alignment:
            gates.pop(0).wait()

    def enters(self: StudyAdmission, question: ConsentQuestion) -> None:
        if not question.is_about_alignment:
            entered.append(question.study)
        ask(self, question)

    monkeypatch.setattr(StudyAdmission, "ask", enters)
    one = placed(ask_steward=thinks)
    request = ConsentRequest(proposal_for(one))
    threads = [threading.Thread(target=lambda: replies.append(one.handle(request))) for _ in range(2)]
    for thread in threads:
        thread.start()
    while len(entered) < 2:  # neither knows that the other will be told yes
        time.sleep(0.01)
    first.set()
    while gates or not replies:  # the second question is asked when the first is answered
        time.sleep(0.01)
    told = replies[0]
    assert isinstance(told, ConsentReply)
    one.handle(consents_to(request.proposal, SignedConsent("right", told.until, told.signature)))
    one.handle(RELEASE)
    second.set()
    for thread in threads:
        thread.join()
    assert len(replies) == 2
    one.handle(RELEASE)  # everybody's agreement still stands
    raw = one.vault.studies.get("consent:right/study")
    assert raw is not None
    assert (raw["agreed"], list(raw["asked"])) == (True, ["release"])


def test_a_no_that_is_said_while_another_question_waits_is_not_forgotten() -> None:
    vault, asked = MemoryVault(), list[str]()

    def slow(question: ConsentQuestion) -> None:
        if question.is_about_alignment:
            return
        asked.append(question.study)
        with pytest.raises(PolicyRefused):
            member(vault=vault, ask_steward=Steward(False)).handle(opening("meanwhile", purpose="another"))
        raise PolicyRefused("party 'right': its steward said no")

    with pytest.raises(PolicyRefused):
        agree_in(placed(vault=vault, ask_steward=slow))
    with pytest.raises(PolicyRefused, match="steward said no"):
        member(vault=vault, ask_steward=Steward()).handle(opening("meanwhile", purpose="another"))
    assert asked == ["study"]


def test_a_no_at_the_opening_is_remembered_until_somebody_else_asks_or_for_another_reason() -> None:
    steward = Steward(False, False, True)
    one = member(ask_steward=steward)
    for name in ("study", "study", "another name"):
        with pytest.raises(PolicyRefused, match="its steward said no"):
            one.handle(opening(name))
    assert len(steward.asked) == 1
    with pytest.raises(PolicyRefused, match="its steward said no"):
        one.handle(opening("third", purpose="waiting times"))
    one.handle(opening("fourth", purpose="waiting times", requester="Dr Who"))
    assert len(steward.asked) == 3


def test_a_policy_that_says_no_and_a_steward_who_cannot_be_asked_are_asked_again() -> None:
    def absent(question: ConsentQuestion) -> None:
        if not question.is_about_alignment:
            raise ProtocolError("party 'right': its steward could not be asked")

    vault = MemoryVault()
    with pytest.raises(BudgetExceeded):
        agree_in(placed(vault=vault, policy=Policy(caps=Caps(variable=0.1))))
    with pytest.raises(ProtocolError, match="could not be asked"):
        agree_in(member(vault=vault, ask_steward=absent))
    agree_in(member(vault=vault, ask_steward=Steward(True)))


def test_the_steward_is_asked_after_the_policy_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    asked: list[int] = []
    with Vault.open(tmp_path) as vault:

        def consent(question: ConsentQuestion) -> None:
            if question.is_about_alignment:
                return
            assert vault.ledger.path is not None
            if vault.ledger.path.exists():
                with vault.ledger.path.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            asked.append(len(question.spent))

        one = ready(vault=vault, ask_steward=consent)
        one.handle(RELEASE)
        one.handle(replace(place_of(answered(one.handle(opening("next")))), study="next"))
        agree_in(one, "next")
        assert asked == [0, 4]
        strict = member(vault=vault, ask_steward=consent, policy=Policy(caps=Caps(variable=1.0)))
        strict.handle(replace(place_of(answered(strict.handle(opening("more")))), study="more"))
        with pytest.raises(BudgetExceeded):
            agree_in(strict, "more")
        assert asked == [0, 4]


def test_a_cohort_of_another_size_is_refused_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small message about three thousand million people took half a minute of work, before a signature was read."""
    one = placed()
    said = proposal_for(one)
    n = 3_000_000_000
    counts = [replace(p, counts=tuple(n - 1 for _ in p.counts), signature=b"") for p in said.presence]
    monkeypatch.setattr(study_consents, "check_proposal", lambda *of: pytest.fail("it was computed"))
    with pytest.raises(ProtocolError, match="a cohort of another size"):
        one.handle(ConsentRequest(replace(said, n_subjects=n, presence=tuple(counts))))


def test_what_was_spent_while_the_steward_thought_counts() -> None:
    vault, policy = MemoryVault(), Policy(caps=Caps(variable=2.0))

    def slow(question: ConsentQuestion) -> None:
        if not question.is_about_alignment:
            quick = member(vault=vault, policy=policy)
            quick.handle(replace(place_of(answered(quick.handle(opening("quicker")))), study="quicker"))
            agree_in(quick, "quicker").handle(replace(RELEASE, study="quicker"))

    one = placed(vault=vault, policy=policy, ask_steward=slow)
    with pytest.raises(BudgetExceeded):  # now, and not when the others have released
        agree_in(one)
    with pytest.raises(ProtocolError, match="has not consented"):
        one.handle(RELEASE)
    assert {entry.study for entry in vault.ledger} == {"quicker"}


def test_what_was_spent_after_consent_counts() -> None:
    vault, policy = MemoryVault(), Policy(caps=Caps(variable=2.0))
    one = ready(vault=vault, policy=policy)
    quick = member(vault=vault, policy=policy)
    quick.handle(replace(place_of(answered(quick.handle(opening("quicker")))), study="quicker"))
    agree_in(quick, "quicker").handle(replace(RELEASE, study="quicker"))
    with pytest.raises(BudgetExceeded):
        one.handle(RELEASE)
    assert {entry.study for entry in vault.ledger} == {"quicker"}


# ---- how long it lives ------------------------------------------------------------------


def test_a_consent_ends_and_has_to_be_asked_for_again() -> None:
    now, vault = [1e9], MemoryVault()
    steward = Steward(True, True, True)
    settings: dict[str, Any] = {"vault": vault, "clock": lambda: now[0], "policy": Policy(consent_days=2)}
    ready(**settings, ask_steward=steward)
    now[0] += 2.1 * 86_400
    later = member(**settings, ask_steward=steward)
    with pytest.raises(ProtocolError, match="has ended"):
        later.handle(RELEASE)
    agree(later, "right", proposal_for(later))
    later.handle(RELEASE)
    assert len(steward.asked) == 3
    now[0] -= 10 * 86_400.0
    with pytest.raises(ProtocolError, match="asked again"):
        member(**settings).handle(replace(RELEASE, sampler="binomial"))


def test_a_renewed_consent_remembers_what_was_asked_for() -> None:
    now, vault = [1e9], MemoryVault()
    settings: dict[str, Any] = {"vault": vault, "clock": lambda: now[0], "policy": Policy(consent_days=2)}
    one = member(**settings)
    one.handle(place_of(answered(one.handle(opening(method="ievcds")))))
    asked: dict[str, Any] = {"method": "ievcds", "rounds": 2, "epsilon_ranks": 2.0}
    agree_in(one, **asked)
    seen = proposal_for(one, **asked).presence[1].counts
    none, codes = np.zeros(0), [np.zeros(120 - count, dtype=np.int64) for count in seen]
    items = tuple(Imputation(q.column, 1.0, none, none, c) for q, c in zip(RELEASE.queries, codes, strict=True))
    second = CompletedRanksRequest("study", "ievcds", "exact", 2, items)
    one.handle(second)
    paid = len(vault.ledger)
    now[0] += 2.1 * 86_400
    agree_in(one, **asked)
    other = tuple(replace(item, codes=1 + 0 * c) for item, c in zip(items, codes, strict=True))
    with pytest.raises(ProtocolError, match="another round 2"):
        one.handle(replace(second, imputations=other))
    assert len(vault.ledger) == paid


def test_a_consent_outlives_the_process(tmp_path: Path) -> None:
    with Vault.open(tmp_path) as vault:
        ready(vault=vault, ask_steward=Steward(True, True))
    with Vault.open(tmp_path) as vault:
        member(vault=vault, ask_steward=Steward()).handle(RELEASE)


# ---- openings ------------------------------------------------------------------


def test_few_studies_are_open_from_which_nothing_was_released() -> None:
    now = [1e9]
    policy = Policy(open_studies=3, consent_days=30)
    one = member(policy=policy, clock=lambda: now[0])
    for name in ("a", "b", "c"):
        one.handle(opening(name))
    one.handle(opening("a"))
    with pytest.raises(PolicyRefused, match="open_studies"):
        one.handle(opening("d"))
    one.handle(replace(place_of(answered(one.handle(opening("a")))), study="a"))
    agree_in(one, "a")
    with pytest.raises(PolicyRefused, match="open_studies"):  # consent costs a coordinator nothing
        one.handle(opening("d"))
    one.handle(replace(RELEASE, study="a"))
    one.handle(opening("d"))
    with pytest.raises(PolicyRefused, match="open_studies"):
        one.handle(opening("e"))
    now[0] += 31 * 86_400.0
    one.handle(opening("e"))


def test_few_studies_are_begun_however_little_they_cost() -> None:
    """A study of next to no epsilon is released and closed, and the next one begins: that is limited, too."""
    now = [1e9]
    one = member(policy=Policy(new_studies=4, consent_days=30), clock=lambda: now[0])
    for name in ("a", "b", "c", "d"):
        place_in(one, name)
        agree_in(one, name, epsilon_ranks=1e-9, epsilon_marginals=1e-9)
        cheap = tuple(replace(q, epsilon_ranks=1e-9, epsilon_marginal=1e-9) for q in RELEASE.queries)
        one.handle(replace(RELEASE, study=name, queries=cheap))
        one.handle(CloseRequest(name))
        now[0] += 86_400.0
    with pytest.raises(PolicyRefused, match=r"4 studies were begun in the last 30 days.*\(new_studies\).*its steward"):
        one.handle(opening("e"))
    one.handle(opening("d"))  # it was begun before
    now[0] += 26.1 * 86_400
    one.handle(opening("e"))
    with pytest.raises(PolicyRefused, match="new_studies"):
        one.handle(opening("f"))


def test_a_steward_is_not_asked_about_more_studies_than_may_be_begun() -> None:
    steward = Steward(False, False, False)
    one = member(policy=Policy(new_studies=3), ask_steward=steward)
    for number in range(5):
        with pytest.raises(PolicyRefused):
            one.handle(opening(f"study {number}", purpose=f"reason {number}"))
    assert len(steward.asked) == 3


def test_studies_that_may_be_begun_are_counted_over_restarts(tmp_path: Path) -> None:
    for number in range(3):
        with Vault.open(tmp_path) as vault:
            one = member(vault=vault, policy=Policy(new_studies=2))
            if number < 2:
                one.handle(opening(f"study {number}"))
            else:
                with pytest.raises(PolicyRefused, match="new_studies"):
                    one.handle(opening(f"study {number}"))


def test_too_few_subjects_for_the_policy_send_no_hashes() -> None:
    with pytest.raises(PolicyRefused, match="fewer subjects"):
        member(policy=Policy(min_subjects=101)).handle(opening())


# ---- whole studies: one no, silence, or a crash before the last yes ------------------------------------------

METHODS = ("vcds", "evcds", "ievcds", "refined", "strict", "raw-glm")


class Stopping(InProcessTransport):
    """A party says no, is silent, or is gone, from one kind of request on."""

    def __init__(self, members: Mapping[str, Member], at: type, how: str) -> None:
        super().__init__(members)
        self.at, self.how = at, how

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        replies = {}
        for name, request in requests.items():
            if name == "third" and isinstance(request, self.at):
                if self.how == "silence":
                    continue
                if self.how == "no":
                    raise PolicyRefused("party 'third': its steward said no")
                raise PartyUnavailable("party 'third' is gone")
            replies |= super().deliver({name: request})
        return replies


def begin(method: str, transport: InProcessTransport) -> None:
    if method == "raw-glm":
        begun = drive(begin_study(federation(), "study", method), transport)
        VerticalGLM("binomial", n_strengths=4).fit_transport(transport, federation(), begun=begun)
        return
    unit = {"unit": "person", "delta": 1e-6} if method == "strict" else {"unit": "variable"}
    Synthesizer(federation(), method, 8.0, **unit).fit_transport(transport, study="study")


@pytest.mark.parametrize("how", ["no", "silence", "crash"])
@pytest.mark.parametrize("at", [BeginRequest, ConsentRequest, AgreementRequest])
@pytest.mark.parametrize("method", METHODS)
def test_before_the_last_yes_every_ledger_stays_as_it_is(method: str, at: type, how: str, tmp_path: Path) -> None:
    policy = Policy(methods=METHODS)
    with ExitStack() as stack:
        own = {name: {"vault": stack.enter_context(Vault.open(tmp_path / name))} for name in tables()}
        for name, settings in own.items():  # something is in each ledger already
            column = federation().party(name).columns[0]
            settings["vault"].ledger.append(
                list(Pricing("earlier", name, True, False).first_round(column, "exact", 9, 1, 1))
            )
        before = {path: path.read_bytes() for path in tmp_path.rglob("ledger.jsonl")}
        members = make_members(federation(), tables(), policy=policy, **own)
        # The last yes is everybody's, so the last party asked is the one that stops.
        with pytest.raises(VerticopulaError):
            begin(method, Stopping(members, at, how))
        assert all(len(settings["vault"].ledger) == 2 for settings in own.values())
        assert {path: path.read_bytes() for path in tmp_path.rglob("ledger.jsonl")} == before
