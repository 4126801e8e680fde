"""What somebody should know before a study spends anything: said by `check` and `run`, with what to do instead.

Warnings about who is known, sizes and caps rest on public facts. Those about ranges rest on cells: they are for whoever
holds the tables, are shown on the screen and are written nowhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from verticopula.data.tables import AlignedTable, knows_everybody
from verticopula.errors import PolicyRefused, SettingsError, StudyWarning
from verticopula.forecasting.advice import ADVICE_TUNING
from verticopula.forecasting.forecast import forecast
from verticopula.formatting import count_of, format_percent, join_names
from verticopula.privacy.budget import StudyBudget, plan_budget
from verticopula.privacy.policy import Caps, Policy
from verticopula.privacy.pricing import Pricing
from verticopula.privacy.release import Release, spent_on, spent_on_people
from verticopula.privacy.statement import format_epsilon, state_privacy
from verticopula.report.report_data import CapChange, CapUse
from verticopula.schema.columns import ColumnKey
from verticopula.schema.defaults import DEFAULT_DELTA
from verticopula.schema.federation import Federation
from verticopula.schema.methods import OWN_VARIANT
from verticopula.schema.setting_choices import AUTO_SAMPLER, BINOMIAL_SAMPLER
from verticopula.schema.study_settings import StudySettings
from verticopula.schema.units import Unit
from verticopula.stats.margin_cells import to_unit
from verticopula.stats.sampler_choice import (
    BINOMIAL_COST,
    SAMPLER_TUNING,
    choose_sampler,
    count_comparisons,
    describe_work,
)
from verticopula.stats.strict.noise_budget import plan_strict_budget
from verticopula.storage.known_tables import NO_ACCOUNT, TableAccount
from verticopula.study.study_warnings import gravest_first, warn_of_unit


@dataclass(frozen=True)
class SpendingThresholds:
    """When somebody is warned before a study. All were chosen by hand, not tuned.

    Attributes
    ----------
    few_subjects : with fewer, noise is larger than most of what a study could find
    narrow : share of the public range, on the column's scale, in which 98 of 100 values lie
    clamped : share of a column's values outside its bounds
    cap_used : share of a cap
    """

    few_subjects: int = 100
    narrow: float = 0.05
    clamped: float = 0.5
    cap_used: float = 0.8


SPENDING_AT = SpendingThresholds()
_REFUSED, _ABOVE_CAP = "would-refuse", "above-cap"
_CLAMPED, _WIDE = _FROM_CELLS = "mostly-clamped", "wide-bounds"


def warn_before_spending(
    federation: Federation,
    settings: StudySettings,
    tables: Mapping[str, AlignedTable],
    *,
    policies: Mapping[str, Policy] | None = None,
    spent: Iterable[Release] = (),
    accounts: Mapping[str, TableAccount] | None = None,
) -> list[StudyWarning]:
    """Everything that speaks against a study as it is asked for, the gravest first. For the tables' holder only.

    Parameters
    ----------
    federation : who holds which column
    settings : what is asked for, checked
    tables : party -> its table, aligned
    policies : party -> what it allows
    spent : what the ledger holds that caps are counted on
    accounts : party -> whose budget its releases are charged to; None where no vault keeps track
    """
    n_subjects = next(iter(tables.values())).n_subjects
    needed = bool(policies) or _counts_comparisons(settings)
    proposed = propose_releases(federation, settings, tables) if needed else []
    found = [
        *_missing_blocks(settings, tables),
        *_size(n_subjects),
        *_ranges(tables),
        *_sampler(federation, settings, tables),
        *_unit(settings, proposed),
        *_refusals(federation, settings, policies or {}, proposed),
        *_caps(settings, policies or {}, list(spent), accounts or {}, proposed),
    ]
    return gravest_first(found)


def _missing_blocks(settings: StudySettings, tables: Mapping[str, AlignedTable]) -> Iterator[StudyWarning]:
    if not knows_everybody(tables) and not settings.record.models_missing:
        yield settings.record.missing_blocks


def _size(n_subjects: int) -> Iterator[StudyWarning]:
    if n_subjects < SPENDING_AT.few_subjects:
        yield StudyWarning(
            "few-subjects",
            "care",
            f"The study has {count_of(n_subjects, 'subject')}",
            "Noise that hides one of so few people hides most of what they have in common.",
            f"Wait until there are {SPENDING_AT.few_subjects} or more, or use it for trying things out only.",
        )


def _ranges(tables: Mapping[str, AlignedTable]) -> Iterator[StudyWarning]:
    wide, clamped = [], []
    for name, table in tables.items():
        for column in table.party.columns if table.source is None else ():  # values on an engine stay there
            cells = table.columns[column.name]
            values = cells.values[cells.observed]
            if column.bounds is None or values.size < 2 or cells.has_open_mark:
                continue
            if cells.clamped > SPENDING_AT.clamped * values.size:
                clamped.append(f"{name}.{column.name}")
            low, high = np.quantile(to_unit(values, column), (0.01, 0.99))
            if 0.0 < high - low < SPENDING_AT.narrow:
                wide.append(f"{name}.{column.name}")
    if clamped:
        yield StudyWarning(
            _CLAMPED,
            "care",
            f"Most values are outside the public bounds in {count_of(len(clamped), 'column')}",
            f"They will all count as a bound: {join_names(clamped)}.",
            "Look at the unit: are the bounds in thousands, or in another currency? Then mend the federation file.",
        )
    if wide:
        yield StudyWarning(
            _WIDE,
            "care",
            f"Bounds are much wider than the values in {count_of(len(wide), 'column')}",
            f"Nearly all values lie in a twentieth of the range, so margins will be coarse: {join_names(wide)}.",
            'Look up narrower public bounds, or try scale = "log"; do not take them from the data.',
        )


def _counts_comparisons(settings: StudySettings) -> bool:
    """Whether the budget's unit is one of single comparisons, and the study has an epsilon at all."""
    return settings.unit in (Unit.VARIABLE.value, Unit.CLIENT.value) and settings.variant == OWN_VARIANT


def _unit(settings: StudySettings, proposed: list[Release]) -> Iterator[StudyWarning]:
    """What `run` says of the unit after a study, before it."""
    if _counts_comparisons(settings):
        yield warn_of_unit(Unit.parse(str(settings.unit)), state_privacy(proposed, settings.delta))


def _sampler(
    federation: Federation, settings: StudySettings, tables: Mapping[str, AlignedTable]
) -> Iterator[StudyWarning]:
    if not settings.record.ranks or settings.sampler == BINOMIAL_SAMPLER or settings.variant != OWN_VARIANT:
        return
    counts, n_subjects = _observed_counts(tables), next(iter(tables.values())).n_subjects
    rounds = StudyBudget.of(federation, settings).rounds
    total = count_comparisons(federation, counts, n_subjects, rounds)
    if settings.sampler == AUTO_SAMPLER:
        is_exact = total <= SAMPLER_TUNING.comparisons
        yield StudyWarning(
            "auto-sampler",
            "note",
            f"Sampler auto takes {'exact coins' if is_exact else 'the binomial sampler'}",
            f"Exact coins {'flip' if is_exact else 'would flip'} {describe_work(total)}."
            + ("" if is_exact else f" {BINOMIAL_COST}"),
            "--sampler exact or --sampler binomial chooses one of them.",
        )
    elif total > SAMPLER_TUNING.comparisons:
        yield StudyWarning(
            "slow-sampler",
            "note",
            f"The exact sampler will flip {describe_work(total)}",
            "Its work grows with the square of the number of people, that of the binomial sampler with the number.",
            f"--sampler binomial is faster. {BINOMIAL_COST}",
        )


def _observed_counts(tables: Mapping[str, AlignedTable]) -> dict[ColumnKey, int]:
    """How many subjects have a value, by column."""
    return {
        ColumnKey(name, column): int(cells.observed.sum())
        for name, table in tables.items()
        for column, cells in table.columns.items()
    }


def without_cells(found: Iterable[StudyWarning]) -> list[StudyWarning]:
    """Those warnings that rest on public facts: they may be written down.

    Parameters
    ----------
    found : as `warn_before_spending` gave them
    """
    return [warning for warning in found if warning.code not in _FROM_CELLS]


# ---- what parties refuse -----------------------------------------------------------------


def would_refuse(found: Iterable[StudyWarning]) -> list[StudyWarning]:
    """Those warnings that say that a party would refuse the study.

    Parameters
    ----------
    found : as `warn_before_spending` gave them
    """
    return [warning for warning in found if warning.code in (_REFUSED, _ABOVE_CAP)]


def _refusals(
    federation: Federation, settings: StudySettings, policies: Mapping[str, Policy], proposed: list[Release]
) -> Iterator[StudyWarning]:
    """Every rule of a policy but its caps: methods, columns, how many people, the paper's algorithms as printed."""
    for name, policy in policies.items():
        planned = [release for release in proposed if release.party == name]
        try:
            policy.check_columns(name, (column.name for column in federation.party(name).columns))
            if settings.variant != OWN_VARIANT:
                policy.check_printed(name)
            policy.model_copy(update={"caps": Caps()}).check(name, settings.method, planned, ())
        except PolicyRefused as error:
            yield StudyWarning(
                _REFUSED,
                "stop",
                f"Party {name} would refuse the study",
                f"Its policy says: {error}.",
                "Change what the study asks for. Only the party's steward can change the policy.",
            )


def _caps(
    settings: StudySettings,
    policies: Mapping[str, Policy],
    spent: list[Release],
    accounts: Mapping[str, TableAccount],
    proposed: list[Release],
) -> Iterator[StudyWarning]:
    for change in change_of_caps(settings, policies, spent, accounts, proposed):
        would_be = change.before if change.at_most else change.after
        if would_be >= SPENDING_AT.cap_used * change.cap:
            yield _cap_warning(change.party, change.unit, change.cap, would_be)


def change_of_caps(
    settings: StudySettings,
    policies: Mapping[str, Policy],
    spent: list[Release],
    accounts: Mapping[str, TableAccount],
    proposed: list[Release],
) -> tuple[CapChange, ...]:
    """What counts against every cap before a study, and after it. For the parties themselves only.

    Parameters
    ----------
    settings, policies, spent, accounts : as for `warn_before_spending`
    proposed : as `propose_releases` gave it
    """
    capped = {name: policy for name, policy in policies.items() if policy.caps.model_dump(exclude_none=True)}
    exact = exact_units(settings)
    found = []
    for name, policy in capped.items():
        now = {unit: used for unit, used, _ in _counted(name, policy, spent, accounts, [])}
        found += [
            CapChange(name, unit, now[unit], after, cap, at_most=unit not in exact)
            for unit, after, cap in _counted(name, policy, spent, accounts, proposed)
        ]
    return tuple(found)


def exact_units(settings: StudySettings) -> tuple[str, ...]:
    """At which units `propose_releases` does not cost more than the study.

    Parameters
    ----------
    settings : what is asked for, checked
    """
    if settings.record.ranks or settings.variant != OWN_VARIANT:
        return tuple(unit.value for unit in Unit)
    return (Unit.PERSON.value,) if settings.unit == Unit.PERSON else (Unit.BLOCK.value, Unit.PERSON.value)


def _counted(
    name: str,
    policy: Policy,
    spent: list[Release],
    accounts: Mapping[str, TableAccount],
    proposed: list[Release],
) -> Iterator[tuple[str, float, float]]:
    """Of every cap of a party: its unit, what counts against it after these releases, and the cap."""
    account = accounts.get(name, NO_ACCOUNT)
    about = name, account.table, account.overlapping
    own = spent_on(spent, *about)
    people = spent_on_people(spent, *about, account.same_people)
    planned = [release for release in proposed if release.party == name]
    total = policy.count([*own, *planned], [*people, *proposed])
    for unit, cap in policy.caps.model_dump(exclude_none=True).items():
        yield unit, getattr(total, unit), cap


def use_of_caps(
    policies: Mapping[str, Policy], spent: Iterable[Release], accounts: Mapping[str, TableAccount] | None = None
) -> tuple[CapUse, ...]:
    """What was spent of every party's caps, over all studies that the ledger knows. For the parties themselves only.

    Parameters
    ----------
    policies : party -> what it allows
    spent : what the ledger holds that caps are counted on
    accounts : party -> whose budget its releases are charged to; None where no vault keeps track
    """
    known = list(spent)
    return tuple(
        CapUse(name, unit, used, cap)
        for name, policy in policies.items()
        for unit, used, cap in _counted(name, policy, known, accounts or {}, [])
    )


def _cap_warning(party: str, unit: str, cap: float, would_be: float) -> StudyWarning:
    if would_be > cap * (1 + 1e-9):
        return StudyWarning(
            _ABOVE_CAP,
            "stop",
            f"Party {party} would refuse: epsilon per {unit} would become {format_epsilon(would_be)}",
            f"Its policy caps it at {cap:g}, over all studies about these people that are counted here.",
            "Ask for less. Only the party's steward can raise the cap, and what was spent never comes back.",
        )
    return StudyWarning(
        "cap-nearly-used",
        "care",
        f"After this study, {format_percent(would_be / cap, 0)} of the cap per {unit} of party {party} is used",
        f"Epsilon would be {format_epsilon(would_be)} of {cap:g}, over all studies about these people that are counted "
        "here.",
        "What was spent never comes back: is this the study to spend it on?",
    )


def propose_releases(
    federation: Federation, settings: StudySettings, tables: Mapping[str, AlignedTable]
) -> list[Release]:
    """What a study will release, at its prices; for a strict one a stand-in for all of it, at the price of its unit.

    Parameters
    ----------
    federation : who holds which column
    settings : what is asked for, checked
    tables : party -> its table, of which only who has a value is looked at
    """
    counts, n_subjects = _observed_counts(tables), next(iter(tables.values())).n_subjects
    budget = choose_sampler(federation, StudyBudget.of(federation, settings), counts, n_subjects)
    pricings = {
        p.name: Pricing("", p.name, settings.is_private, federation.bounds_from_data) for p in federation.parties
    }
    if settings.variant != OWN_VARIANT:  # its price is infinite, whatever the ranks cost
        return [pricings[key.party].printed_margin(federation.column(key), n) for key, n in counts.items()]
    if not settings.record.ranks:
        return _stand_ins(federation, budget, tables, pricings)
    plan = plan_budget(federation, budget, counts, n_subjects)
    out: list[Release] = []
    for key, share in plan.items():
        pricing, column, n = pricings[key.party], federation.column(key), counts[key]
        out += pricing.first_round(column, budget.sampler, n, share.epsilon_ranks, share.epsilon_marginal)
        for _ in range(budget.rounds - 1):
            out.append(pricing.completed_round(column, budget.sampler, n, n_subjects - n, share.epsilon_ranks))
    return out


def _stand_ins(
    federation: Federation,
    budget: StudyBudget,
    tables: Mapping[str, AlignedTable],
    pricings: Mapping[str, Pricing],
) -> list[Release]:
    """One release a party for a whole strict study: how it is split is found in rounds, the sum is fixed before.

    For unit `block` the person costs no less than the dearest block. For `person` a block is charged what the person
    is, which is too much.
    """
    known = {name: int(table.observed().any(axis=1).sum()) for name, table in tables.items()}
    people = {key: known[key.party] for key in federation.keys}
    plan = plan_strict_budget(federation, budget, people, next(iter(tables.values())).n_subjects)
    person = max(plan.totals.values(), default=plan.mu)
    return [
        pricing.gram(known[name], plan.totals.get(name, person), person, joint="planned")
        for name, pricing in pricings.items()
    ]


# ---- what to expect ----------------------------------------------------------------------


def describe_expectation(federation: Federation, settings: StudySettings, tables: Mapping[str, AlignedTable]) -> str:
    """One sentence of what a study will be worth, from a forecast on assumed data; "" where there is none.

    Parameters
    ----------
    federation : who holds which column
    settings : what is asked for, checked
    tables : party -> its table, of which only who is known to a party is looked at
    """
    if settings.epsilon is None or settings.variant != OWN_VARIANT or settings.unit is None:
        return ""
    known = {name: table.observed().any(axis=1) for name, table in tables.items()}
    shares = {name: float(mask.mean()) for name, mask in known.items()}
    pairs = {(a, b): float((known[a] & known[b]).mean()) for a, b in combinations(known, 2)}
    try:
        made = forecast(
            federation,
            next(iter(known.values())).size,
            settings.epsilon,
            units=[settings.unit],
            methods=[settings.method],
            observed=shares,
            together=pairs,
            delta=DEFAULT_DELTA if settings.delta is None else settings.delta,
        )
    except SettingsError:  # too few people, or parties with an epsilon of their own
        return ""
    row = made.rows[0]
    at = f"At epsilon {format_epsilon(settings.epsilon)} per {settings.unit}, expect"
    said = f"{at} correlations to be off by about {row.after:.1g} and margins by about {row.margins:.1g}"
    if row.after > ADVICE_TUNING.mostly_noise * made.typical_correlation:
        return f"{said}: correlations will be mostly noise. More people or a larger epsilon would help."
    size = f"{made.typical_correlation:g}"
    return f"{said}, if correlations are of ordinary size ({size}). `verticopula forecast` says more."
