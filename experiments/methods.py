"""Row labels of the paper's tables -> the functions behind them, and which table shows which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from experiments.baselines import (
    admm_dp,
    complete_case,
    copula,
    imputed,
    original_c,
    original_vfl,
    single_party,
    vertigan,
)
from experiments.study import Fit

PRINTED = "-printed"  # ends the labels of the paper's algorithms as printed
METHODS: Mapping[str, Fit] = {
    "Original-C": original_c.fit,
    "Original-VFL": original_vfl.fit,
    "Original-VFL-printed": original_vfl.fit_printed,
    "VFL-ADMM-DP": admm_dp.fit,
    "Vertigan": vertigan.fit,
    "VCDS": copula.vcds,
    "VCDS-printed": copula.vcds_printed,
    "EVCDS": copula.evcds,
    "EVCDS-printed": copula.evcds_printed,
    "EVCDS-free": copula.evcds_free,
    "IEVCDS": copula.ievcds,
    "IEVCDS-printed": copula.ievcds_printed,
    "IEVCDS-free": copula.ievcds_free,
    "Refined": copula.refined,
    "Refined-aligned": copula.refined_aligned,
    "CC-VCDS": complete_case.cc_vcds,
    "CC-VCDS-printed": complete_case.cc_vcds_printed,
    "CC-EVCDS": complete_case.cc_evcds,
    "CC-EVCDS-printed": complete_case.cc_evcds_printed,
    "Impute-VCDS": imputed.impute_vcds,
    "Impute-VCDS-printed": imputed.impute_vcds_printed,
    "Impute-EVCDS": imputed.impute_evcds,
    "Impute-EVCDS-printed": imputed.impute_evcds_printed,
    "Single-VCDS": single_party.single_vcds,
    "Single-EVCDS": single_party.single_evcds,
}
UNPROTECTED = ("Original-C", "Original-VFL", "Original-VFL-printed")  # epsilon does not matter to them
# No methods, but yardsticks on the complete data: maximum likelihood on the true support, and what the judges find.
ORACLE, ORIGINAL = "Oracle", "Original"
YARDSTICKS = (ORACLE, ORIGINAL)
NEEDS_TORCH = ("Vertigan",)
PAPERS_OWN = ("VCDS", "EVCDS", "IEVCDS")
REFINED = ("Refined", "Refined-aligned")
# What decides the headline: the paper's three methods as printed and ours, the refined ones, and the real data.
HEADLINE = ("Original-C", *(f"{m}{variant}" for m in PAPERS_OWN for variant in ("", PRINTED)), *REFINED)

MECHANISMS = ("MCAR", "MAR-simple", "MAR-complex")


def find_row(method: str) -> str:
    """The paper's label of a method as printed or ours."""
    return method.removesuffix(PRINTED)


@dataclass(frozen=True)
class TableDesign:
    """What one of Tables 1 to 7 shows.

    Attributes
    ----------
    rows : the paper's labels, then ours that it does not have
    """

    title: str
    models: tuple[str, ...]
    mechanisms: tuple[str, ...]
    metrics: tuple[str, ...]
    epsilons: tuple[float, ...]
    rows: tuple[str, ...]
    sizes: tuple[int, ...] = (1_000, 3_000, 5_000)

    @property
    def methods(self) -> tuple[str, ...]:
        """All of them, ours and as printed."""
        return tuple(m for row in self.rows for m in (row, row + PRINTED) if m in METHODS)


_COMPLETE = ("Original-C", "Original-VFL", "VFL-ADMM-DP", "Vertigan", "VCDS", "EVCDS", "Refined")
_ON_VCDS = ("CC-VCDS", "Impute-VCDS", "VCDS", "Refined")
_ON_EVCDS = ("CC-EVCDS", "Impute-EVCDS", "EVCDS", "IEVCDS", "Refined-aligned")


def _complete(metric: str, title: str) -> TableDesign:
    return TableDesign(title, ("linear", "logistic"), ("complete",), (metric,), (1.0, 3.0, 5.0), _COMPLETE)


def _missing(model: str, *rows: str) -> TableDesign:
    title = f"{model}, blocks missing, {'/'.join(row for row in rows if '-' not in row)}"
    return TableDesign(title, (model,), MECHANISMS, ("rmse", "gmeans", "fdr"), (1.0,), rows)


TABLES: Mapping[str, TableDesign] = {
    "table1": _complete("rmse", "RMSE, complete data"),
    "table2": _complete("gmeans", "G-Means, complete data"),
    "table3": _complete("fdr", "FDR, complete data"),
    "table4": _missing("linear", *_ON_VCDS),
    "table5": _missing("logistic", *_ON_VCDS),
    "table6": _missing("linear", *_ON_EVCDS),
    "table7": _missing("logistic", *_ON_EVCDS),
}
