"""VCDS, EVCDS, IEVCDS and the refined method: the library's synthesizer as the paper's tables must have used it.

Epsilon is of unit `variable`; IEVCDS spends the ranks' half in each of its ten rounds (Corollary 4), and EVCDS and
IEVCDS hand out rows aligned with the subjects (the end of Algorithm 2). VCDS has free rows only.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Literal

from experiments.study import Fit, MethodFailure, Outcome, Spent, Study
from verticopula import Synthesizer
from verticopula.errors import VerticopulaError
from verticopula.synthesizer import AlignedWarning, NotPrivateWarning

Method = Literal["vcds", "evcds", "ievcds", "refined"]

ROUNDS = 10


def synthesize(study: Study, method: Method, *, aligned: bool) -> tuple[Outcome, Synthesizer]:
    """Synthetic tables of one method, and the fitted study behind them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        warnings.simplefilter("ignore", AlignedWarning)
        try:
            synthesizer = Synthesizer(
                study.federation,
                method,
                study.epsilon,
                unit="variable",
                random_state=study.seed,
                rounds=ROUNDS,
                per_round=method == "ievcds",
            ).fit(study.tables)
        except (VerticopulaError, ValueError) as error:
            raise MethodFailure(str(error)) from error
        n = synthesizer.n_subjects_
        tables = synthesizer.sample(study.rows_per_subject * n, aligned=aligned)
        note = "aligned rows: row i is a noisy copy of subject i" if aligned else ""
        return Outcome(Spent.stated(synthesizer.privacy_, note), n, tables), synthesizer


def fit(study: Study, method: Method = "vcds", *, aligned: bool = False) -> Outcome:
    """Synthetic tables of one method."""
    return synthesize(study, method, aligned=aligned)[0]


vcds: Fit = partial(fit, method="vcds")
evcds: Fit = partial(fit, method="evcds", aligned=True)
ievcds: Fit = partial(fit, method="ievcds", aligned=True)
refined: Fit = partial(fit, method="refined")
refined_aligned: Fit = partial(fit, method="refined", aligned=True)
