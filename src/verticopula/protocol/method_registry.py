"""Which rounds belong to which method, and to which variant of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from verticopula.privacy.budget import StudyBudget
from verticopula.protocol.coordinator_side import CoordinatorSide
from verticopula.protocol.printed_methods import evcds_as_printed, ievcds_as_printed, vcds_as_printed
from verticopula.protocol.rank_methods import evcds, ievcds, refined, vcds
from verticopula.protocol.shared_rounds import Rounds
from verticopula.protocol.strict_method import strict
from verticopula.schema.federation import Federation
from verticopula.schema.methods import EVCDS, IEVCDS, PRINTED_VARIANT, REFINED, STRICT, VCDS, check_variant, find_method
from verticopula.stats.fit_result import FitResult

StudyProtocol = Callable[[Federation, StudyBudget, str, CoordinatorSide], Rounds[FitResult]]

PROTOCOLS: Mapping[str, StudyProtocol] = {
    VCDS.name: vcds,
    EVCDS.name: evcds,
    IEVCDS.name: ievcds,
    REFINED.name: refined,
    STRICT.name: strict,
}
PRINTED_PROTOCOLS: Mapping[str, StudyProtocol] = {
    VCDS.name: vcds_as_printed,
    EVCDS.name: evcds_as_printed,
    IEVCDS.name: ievcds_as_printed,
}


def find_protocol(method: str, variant: str) -> StudyProtocol:
    """The rounds of a method; SettingsError where there is no such variant of it."""
    check_variant(find_method(method), variant)
    return (PRINTED_PROTOCOLS if variant == PRINTED_VARIANT else PROTOCOLS)[method]
