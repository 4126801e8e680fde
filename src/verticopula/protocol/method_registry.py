"""Which rounds belong to which method."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from verticopula.privacy.budget import StudyBudget
from verticopula.protocol.coordinator_side import CoordinatorSide
from verticopula.protocol.rank_methods import evcds, ievcds, refined, vcds
from verticopula.protocol.shared_rounds import Rounds
from verticopula.protocol.strict_method import strict
from verticopula.schema.federation import Federation
from verticopula.schema.methods import EVCDS, IEVCDS, REFINED, STRICT, VCDS
from verticopula.stats.fit_result import FitResult

StudyProtocol = Callable[[Federation, StudyBudget, str, CoordinatorSide], Rounds[FitResult]]

PROTOCOLS: Mapping[str, StudyProtocol] = {
    VCDS.name: vcds,
    EVCDS.name: evcds,
    IEVCDS.name: ievcds,
    REFINED.name: refined,
    STRICT.name: strict,
}
