"""All rounds of a study over members, from its beginning to the fit, as one generator for any transport."""

from __future__ import annotations

from collections.abc import Mapping

from verticopula.errors import SettingsError
from verticopula.privacy.budget import StudyBudget
from verticopula.privacy.noise import server_generator
from verticopula.protocol.coordinator_side import CoordinatorSide, needs_handler
from verticopula.protocol.method_registry import find_protocol
from verticopula.protocol.secure_sums import ComputeHandler
from verticopula.protocol.shared_rounds import Rounds
from verticopula.protocol.study_lifecycle import BegunStudy, LedgerHead, begin_study
from verticopula.schema.federation import Federation
from verticopula.schema.progress import Progress
from verticopula.schema.setting_choices import Alignment
from verticopula.schema.study_settings import StudySettings
from verticopula.stats.fit_result import FitResult


def study_rounds(
    federation: Federation,
    settings: StudySettings,
    study: str,
    *,
    alignment: Alignment,
    witnesses: Mapping[str, LedgerHead] | None,
    requester: str,
    purpose: str,
    progress: Progress,
    compute_handler: ComputeHandler | None,
    server_seed: int | None,
) -> Rounds[tuple[BegunStudy, FitResult]]:
    """What parties said when the study began, and its fit.

    Parameters
    ----------
    settings : of the study, checked
    study : its name
    alignment, witnesses, requester, purpose : as `begin_study` has them
    progress : called with (what, done, total)
    compute_handler : the coordinator's own part in secure sums; needed for a strict study of two parties
    server_seed : of the coordinator's own draws, which protect nobody; a seeded study has its own
    """
    if compute_handler is None and needs_handler(federation, settings.method):
        raise SettingsError(
            f"a study of two parties by method {settings.method!r} needs the coordinator as the third: give it a "
            "handler"
        )
    seed = settings.seed
    begun = yield from begin_study(
        federation,
        study,
        settings.method,
        seed=seed,
        alignment=alignment,
        witnesses=witnesses,
        requester=requester,
        purpose=purpose,
    )
    side = CoordinatorSide(
        server_generator(server_seed if seed is None else seed, "fit"),
        progress,
        compute_handler,
        begun.context,
        settings.printed_choices,
        settings.dependence,
    )
    rounds = find_protocol(settings.method, settings.variant)
    return begun, (yield from rounds(federation, StudyBudget.of(federation, settings), study, side))
