"""The mark that a synthetic table carries, from what the study behind it cost."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version

from verticopula.data.synthetic_marks import SyntheticMark
from verticopula.formatting import json_numbers
from verticopula.privacy.statement import PrivacyStatement
from verticopula.schema.units import Unit


def mark_synthetic(study: str, method: str, cost: PrivacyStatement, unit: Unit) -> SyntheticMark:
    """What a synthetic table says of itself.

    Parameters
    ----------
    study, method : which study it was drawn from, and by which method
    cost : of everything that was released for it, as far as whoever writes it knows
    unit : that the study's epsilon is an epsilon of
    """
    return SyntheticMark(
        study=study,
        method=method,
        epsilon=json_numbers(cost.epsilon(unit), "inf"),
        unit=unit.value,
        delta=cost.delta if cost.has_delta(unit) else 0.0,
        drawn=str(datetime.now(UTC).date()),
        tool=f"verticopula {version('verticopula')}",
    )
