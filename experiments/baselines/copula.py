"""VCDS, EVCDS, IEVCDS and the refined method, with the settings of the paper's tables.

Our variants, and the paper's algorithms as printed. Epsilon is of unit `variable`; IEVCDS spends the ranks' half in
each of its ten rounds (Corollary 4), and EVCDS and IEVCDS hand out rows aligned with the subjects (the end of Algorithm
2). VCDS has free rows only. Tables as printed have as many rows as there are subjects.
"""

from __future__ import annotations

import copy
import warnings
from functools import partial
from typing import Literal

from experiments.study import Fit, MethodFailure, Outcome, Spent, Study
from verticopula import Synthesizer
from verticopula.data.tables import AlignedTable, align_tables
from verticopula.errors import AlignedWarning, CellsWarning, NotPrivateWarning, VerticopulaError
from verticopula.schema.methods import OWN_VARIANT, PRINTED_VARIANT

Method = Literal["vcds", "evcds", "ievcds", "refined"]

ROUNDS = 10


def synthesize(
    study: Study, method: Method, *, aligned: bool, variant: str = OWN_VARIANT
) -> tuple[Outcome, Synthesizer]:
    """Synthetic tables of one method, and the fitted study behind them."""
    key = method if variant == OWN_VARIANT else f"{method} {variant}"
    rows_per_subject = 1 if variant == PRINTED_VARIANT else study.rows_per_subject
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        warnings.simplefilter("ignore", AlignedWarning)
        if key not in study.fitted:
            study.fitted[key] = _fit(study, method, variant)
        # A copy, whose first draw this is: rows must not depend on who has drawn from the same fit before.
        synthesizer = copy.copy(study.fitted[key])
        n = synthesizer.n_subjects_
        tables = synthesizer.sample(rows_per_subject * n, aligned=aligned)
    note = "aligned rows: row i is a noisy copy of subject i" if aligned else ""
    spent, margins = Spent.stated(synthesizer.privacy_, note), synthesizer.result_.copula.margins
    return Outcome(spent, n, tables, margins=margins), synthesizer


def _fit(study: Study, method: Method, variant: str) -> Synthesizer:
    synthesizer = Synthesizer(
        study.federation,
        method,
        study.epsilon,
        unit="variable",
        random_state=study.seed,
        rounds=ROUNDS,
        per_round=method == "ievcds",
        variant=variant,
    )
    try:
        return synthesizer.fit_aligned(align(study, need_overlap=synthesizer.needs_overlap))
    except (VerticopulaError, ValueError) as error:
        raise MethodFailure(str(error)) from error


def align(study: Study, *, need_overlap: bool) -> dict[str, AlignedTable]:
    """The study's tables as `Synthesizer.fit` aligns them, once for all methods."""
    if need_overlap not in study.aligned:
        study.aligned[need_overlap] = align_tables(study.federation, study.tables, need_overlap=need_overlap)
        for note in (note for table in study.aligned[need_overlap].values() for note in table.notes()):
            warnings.warn(str(note), CellsWarning, stacklevel=2)
    return study.aligned[need_overlap]


def fit(study: Study, method: Method = "vcds", *, aligned: bool = False, variant: str = OWN_VARIANT) -> Outcome:
    """Synthetic tables of one method."""
    return synthesize(study, method, aligned=aligned, variant=variant)[0]


vcds: Fit = partial(fit, method="vcds")
evcds: Fit = partial(fit, method="evcds", aligned=True)
evcds_free: Fit = partial(fit, method="evcds")
ievcds: Fit = partial(fit, method="ievcds", aligned=True)
ievcds_free: Fit = partial(fit, method="ievcds")
refined: Fit = partial(fit, method="refined")
refined_aligned: Fit = partial(fit, method="refined", aligned=True)
vcds_printed: Fit = partial(vcds, variant=PRINTED_VARIANT)
evcds_printed: Fit = partial(evcds, variant=PRINTED_VARIANT)
ievcds_printed: Fit = partial(ievcds, variant=PRINTED_VARIANT)
