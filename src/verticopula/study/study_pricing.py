"""The releases that a finished study asked its parties for, at their prices: what a coordinator knows of ledgers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verticopula.privacy.budget import StudyBudget
from verticopula.privacy.pricing import Pricing
from verticopula.privacy.release import Release
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation
from verticopula.schema.methods import OWN_VARIANT, PRINTED_VARIANT
from verticopula.schema.study_settings import StudySettings
from verticopula.stats.fit_result import FitResult, StrictSpending
from verticopula.stats.sampler_choice import choose_sampler
from verticopula.stats.strict.gaussian_margins import margin_mu
from verticopula.study.fitted_study import FittedStudy


def name_sampler(settings: StudySettings, federation: Federation, result: FitResult) -> StudySettings:
    """The settings with the sampler that drew the ranks, where it was left open."""
    budget, known = StudyBudget.of(federation, settings), result.missingness
    return replace(settings, sampler=choose_sampler(federation, budget, known.observed, known.n_subjects).sampler)


def price_study(study: str, federation: Federation, settings: StudySettings, result: FitResult) -> FittedStudy:
    """The fitted study of this name, with what its parties were asked for.

    Parameters
    ----------
    settings : as they were checked, with the sampler filled in
    """
    budget = StudyBudget.of(federation, settings)
    entries = price_releases(
        federation, budget, study, result, is_private=settings.is_private, variant=settings.variant
    )
    return FittedStudy(study, federation, settings, result, tuple(entries))


def price_releases(
    federation: Federation,
    study_budget: StudyBudget,
    study: str,
    result: FitResult,
    *,
    is_private: bool,
    variant: str = OWN_VARIANT,
) -> Iterator[Release]:
    """Party by party for a strict study, round by round for the others."""
    pricings = {
        party.name: Pricing(study, party.name, is_private, federation.bounds_from_data) for party in federation.parties
    }
    if result.spending is not None:
        yield from _price_strict(federation, study, pricings, result, result.spending)
        return
    if variant == PRINTED_VARIANT:
        yield from _price_printed(federation, study_budget.rounds, pricings, result)
        return
    for round_number in range(study_budget.rounds):
        for key, budget in result.budgets.items():
            pricing, column, n = pricings[key.party], federation.column(key), result.missingness.observed[key]
            if round_number == 0:
                yield from pricing.first_round(
                    column, study_budget.sampler, n, budget.epsilon_ranks, budget.epsilon_marginal
                )
            else:
                n_missing = result.n_subjects - n
                yield pricing.completed_round(column, study_budget.sampler, n, n_missing, budget.epsilon_ranks)


def _price_printed(
    federation: Federation, rounds: int, pricings: dict[str, Pricing], result: FitResult
) -> Iterator[Release]:
    """Every round's ranks, and the margins."""
    for key, budget in result.budgets.items():
        pricing, column, n = pricings[key.party], federation.column(key), result.missingness.observed[key]
        for round_number in range(rounds):
            n_missing = result.n_subjects - n if round_number else 0
            yield pricing.printed_ranks(column, n, n_missing, budget.epsilon_ranks)
        yield pricing.printed_margin(column, n)


def _price_strict(
    federation: Federation, study: str, pricings: dict[str, Pricing], result: FitResult, spent: StrictSpending
) -> Iterator[Release]:
    """Every party's margins, its part in both openings, and its features by presence."""
    for party in federation.parties:
        pricing, factor = pricings[party.name], spent.factors[party.name]
        for column in party.columns:
            key = ColumnKey(party.name, column.name)
            n, deviation = result.missingness.observed[key], spent.deviations[key]
            mu = margin_mu(column, n, deviation, may_be_empty=key in spent.empties)
            yield pricing.gaussian_margin(column, n, mu)
        known, selection = spent.subjects[party.name], spent.selection.get(party.name, 0.0)
        if factor > 0.0:
            yield pricing.gram(known, spent.mu * factor, spent.mu_person, joint=study)
        if known and spent.tables > 0.0:
            yield pricing.tables(known, spent.tables, spent.tables_person, joint=f"{study}, tables")
        if selection > 0.0:
            yield pricing.selection(known, selection)
