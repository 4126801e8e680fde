"""`sampler="auto"`: exact coins while they are few enough, the binomial sampler then, and the study says which."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from verticopula import SettingsError, Synthesizer
from verticopula.data.tables import align_tables
from verticopula.datasets import SmeStudy, make_sme
from verticopula.errors import ProtocolError
from verticopula.forecasting.preflight_checks import propose_releases, warn_before_spending
from verticopula.privacy.budget import StudyBudget, coins_per_comparison
from verticopula.protocol.consent_messages import ConsentRequest
from verticopula.protocol.party.local_party import LocalParty
from verticopula.schema.setting_choices import AUTO_SAMPLER
from verticopula.schema.study_settings import StudySettings
from verticopula.stats import sampler_choice
from verticopula.stats.copula import latent_count
from verticopula.stats.sampler_choice import choose_sampler, count_comparisons, describe_work

MECHANISMS = {"exact": "randomized response on every comparison", "binomial": "binomial ranks"}


@pytest.fixture(scope="module")
def study() -> SmeStudy:
    return make_sme(200)


def limit(monkeypatch: pytest.MonkeyPatch, comparisons: float) -> None:
    tuning = replace(sampler_choice.SAMPLER_TUNING, comparisons=comparisons)
    monkeypatch.setattr(sampler_choice, "SAMPLER_TUNING", tuning)
    monkeypatch.setattr("verticopula.forecasting.preflight_checks.SAMPLER_TUNING", tuning)


def fit(study: SmeStudy, sampler: str, method: str = "vcds", **how: Any) -> Synthesizer:
    made = Synthesizer(study.federation, method, 2.0, unit="variable", random_state=1, sampler=sampler, **how)
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        return made.fit(study.tables)


def test_comparisons_are_those_of_every_latent_s_pairs(study: SmeStudy) -> None:
    counts = dict.fromkeys(study.federation.keys, 10)
    latents = sum(latent_count(study.federation.column(key)) for key in counts)
    assert count_comparisons(study.federation, counts, 20, 1) == latents * 45
    assert count_comparisons(study.federation, counts, 20, 3) == latents * (45 + 2 * 190)


@pytest.mark.parametrize("comparisons", [0.0, 1e15])
@pytest.mark.parametrize("method", ["vcds", "ievcds"])
def test_auto_is_the_study_by_the_sampler_that_it_names(
    study: SmeStudy, comparisons: float, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, comparisons)
    chosen = "exact" if comparisons else "binomial"
    found, expected = fit(study, AUTO_SAMPLER, method, rounds=2), fit(study, chosen, method, rounds=2)
    np.testing.assert_array_equal(found.correlation_, expected.correlation_)
    assert found.settings_["sampler"] == chosen == found.study_.budget.sampler
    assert found.sampler == AUTO_SAMPLER  # what was asked for stays as it was given
    ranks = [entry for entry in found.ledger_ if entry.what == "ranks"]
    assert {entry.mechanism.removesuffix(", completed column") for entry in ranks} == {MECHANISMS[chosen]}
    assert [entry.coins for entry in found.ledger_] == [entry.coins for entry in expected.ledger_]
    assert f"sampler: {chosen}" in found.summary()
    assert ("half the epsilon" in found.summary()) == (chosen == "binomial")


def test_a_party_consents_to_one_of_the_two_and_never_to_auto(study: SmeStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    handle = LocalParty.handle

    def look(party: LocalParty, request: Any) -> Any:
        if isinstance(request, ConsentRequest):
            asked.append(request.proposal.sampler)
            if len(asked) == 1:
                with pytest.raises(ProtocolError, match="unknown sampler 'auto'; known: exact, binomial"):
                    handle(party, ConsentRequest(replace(request.proposal, sampler=AUTO_SAMPLER)))
        return handle(party, request)

    monkeypatch.setattr(LocalParty, "handle", look)
    limit(monkeypatch, 0.0)
    fit(study, AUTO_SAMPLER)
    assert asked == ["binomial"] * len(study.federation.parties)


def test_what_is_not_chosen_has_no_price(study: SmeStudy) -> None:
    with pytest.raises(KeyError):
        coins_per_comparison(study.federation.column(study.federation.keys[0]), AUTO_SAMPLER)
    with pytest.raises(SettingsError, match="unknown sampler 'fast'; known: exact, binomial, auto"):
        Synthesizer(study.federation, "vcds", sampler="fast").check()


def test_a_sampler_that_is_named_is_never_another(study: SmeStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, 0.0)
    counts = dict.fromkeys(study.federation.keys, 10)
    for sampler in ("exact", "binomial"):
        settings = StudySettings("vcds", 1.0, unit="variable", sampler=sampler)
        budget = StudyBudget.of(study.federation, settings)
        assert choose_sampler(study.federation, budget, counts, 10) is budget


@pytest.mark.parametrize(("comparisons", "said"), [(0.0, "takes the binomial sampler"), (1e15, "takes exact coins")])
def test_before_a_study_its_price_and_the_time_of_exact_coins_are_said(
    study: SmeStudy, comparisons: float, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, comparisons)
    aligned = align_tables(study.federation, study.tables)
    settings = Synthesizer(study.federation, "vcds", 1.0, unit="variable", sampler=AUTO_SAMPLER).check()
    (found,) = [w for w in warn_before_spending(study.federation, settings, aligned) if w.code == "auto-sampler"]
    assert said in found.title
    assert "of one core for all parties" in found.meaning
    assert ("half the epsilon" in found.meaning) == (not comparisons)
    entries = propose_releases(study.federation, settings, aligned)
    assert {e.mechanism for e in entries if e.what == "ranks"} == {MECHANISMS["exact" if comparisons else "binomial"]}


def test_durations_are_said_in_seconds_minutes_or_hours() -> None:
    assert "about 60 seconds" in describe_work(3e11)
    assert "about 10 minutes" in describe_work(3e12)
    assert "about 10 hours" in describe_work(1.8e14)
