"""A study before anything is spent, as each party's steward has to judge it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from verticopula.data.tables import AlignedTable
from verticopula.forecasting.preflight_checks import (
    change_of_caps,
    exact_units,
    propose_releases,
    warn_before_spending,
    without_cells,
)
from verticopula.privacy.policy import Policy
from verticopula.privacy.release import Release
from verticopula.report.steward_page import StewardStudy
from verticopula.schema.federation import Federation
from verticopula.schema.study_settings import StudySettings
from verticopula.schema.units import Unit
from verticopula.storage.known_tables import TableAccount


def propose_to_stewards(
    federation: Federation,
    settings: StudySettings,
    tables: Mapping[str, AlignedTable],
    policies: Mapping[str, Policy],
    spent: list[Release],
    accounts: Mapping[str, TableAccount] | None,
) -> dict[str, StewardStudy]:
    """Party -> what its steward decides about. Nothing of another party's policy, and nothing that rests on cells.

    Parameters
    ----------
    federation, settings, tables, policies, spent, accounts : as for `warn_before_spending`
    """
    proposed = propose_releases(federation, settings, tables)
    exact = exact_units(settings)
    found = {}
    for party in federation.parties:
        own = {name: policy for name, policy in policies.items() if name == party.name}
        warnings = warn_before_spending(federation, settings, tables, policies=own, spent=spent, accounts=accounts)
        found[party.name] = StewardStudy(
            federation,
            settings,
            next(iter(tables.values())).n_subjects,
            proposed,
            without_cells(warnings),
            is_over=False,
            party=party.name,
            dearer=frozenset(unit for unit in Unit if unit.value not in exact),
            caps=change_of_caps(settings, own, spent, accounts or {}, proposed),
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        )
    return found
