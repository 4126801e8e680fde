"""What a method's rounds need of the coordinator besides the parties' replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from verticopula.mpc.sealed_messages import Authenticity
from verticopula.privacy.noise import Noise
from verticopula.protocol.party.sums_handler import SumsHandler
from verticopula.protocol.secure_sums import ComputeHandler
from verticopula.protocol.study_proposal import NO_CONTEXT, StudyContext
from verticopula.schema.dependence import DEFAULT_DEPENDENCE
from verticopula.schema.federation import Federation
from verticopula.schema.methods import find_method
from verticopula.schema.printed_choices import DEFAULT_INTERPRETATION, PrintedChoices
from verticopula.schema.progress import Progress, show_nothing
from verticopula.schema.study_settings import COORDINATOR
from verticopula.stats.strict.strict_plan import sums_roles
from verticopula.storage.record_store import RecordStore


@dataclass(frozen=True)
class CoordinatorSide:
    """The coordinator's own part in a study.

    Attributes
    ----------
    rng : for its draws, which protect nobody
    progress : called with (what, done, total)
    compute_handler : its own handler of secure sums, where it is one of the three compute parties
    context : who asks for the study and why, and which cohort it is about
    printed_choices : how it reads what the paper leaves open, in studies by its algorithms as printed
    dependence : whether tables of the same ranks tilt the copula
    """

    rng: np.random.Generator = field(default_factory=np.random.default_rng)
    progress: Progress = show_nothing
    compute_handler: ComputeHandler | None = None
    context: StudyContext = NO_CONTEXT
    printed_choices: PrintedChoices = DEFAULT_INTERPRETATION
    dependence: str = DEFAULT_DEPENDENCE


def needs_handler(federation: Federation, method: str) -> bool:
    """Whether the coordinator is one of the three compute parties of such a study."""
    if find_method(method).ranks:
        return False
    return COORDINATOR in sums_roles(federation)[2]


def own_handler(
    federation: Federation,
    method: str,
    noise: Callable[[str], Noise],
    records: RecordStore,
    authenticity: Authenticity,
) -> ComputeHandler | None:
    """The coordinator's own handler of secure sums; None where it has no part in them.

    Parameters
    ----------
    noise : name -> that one's own source
    records : where its secret and its noise are kept; over a network they must outlive the process
    authenticity : how parties know that a public key is the coordinator's
    """
    if not needs_handler(federation, method):
        return None
    return SumsHandler(COORDINATOR, None, records=records, noise=noise(COORDINATOR), authenticity=authenticity)
