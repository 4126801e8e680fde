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

METHODS: Mapping[str, Fit] = {
    "Original-C": original_c.fit,
    "Original-VFL": original_vfl.fit,
    "VFL-ADMM-DP": admm_dp.fit,
    "Vertigan": vertigan.fit,
    "VCDS": copula.vcds,
    "EVCDS": copula.evcds,
    "EVCDS-free": copula.evcds_free,
    "IEVCDS": copula.ievcds,
    "IEVCDS-free": copula.ievcds_free,
    "Refined": copula.refined,
    "Refined-aligned": copula.refined_aligned,
    "CC-VCDS": complete_case.cc_vcds,
    "CC-EVCDS": complete_case.cc_evcds,
    "Impute-VCDS": imputed.impute_vcds,
    "Impute-EVCDS": imputed.impute_evcds,
    "Single-VCDS": single_party.single_vcds,
    "Single-EVCDS": single_party.single_evcds,
}
UNPROTECTED = ("Original-C", "Original-VFL")  # epsilon does not matter to them
# No methods, but yardsticks on the complete data: maximum likelihood on the true support, and what the judge finds.
ORACLE, ORIGINAL = "Oracle", "Original"
NEEDS_TORCH = ("Vertigan",)

COMPLETE_METHODS = ("Original-C", "Original-VFL", "VFL-ADMM-DP", "Vertigan", "VCDS", "EVCDS")
MECHANISMS = ("MCAR", "MAR-simple", "MAR-complex")


@dataclass(frozen=True)
class TableDesign:
    """What one of Tables 1 to 7 shows.

    Attributes
    ----------
    methods : the paper's, then ours that it does not have
    """

    title: str
    models: tuple[str, ...]
    mechanisms: tuple[str, ...]
    metrics: tuple[str, ...]
    epsilons: tuple[float, ...]
    methods: tuple[str, ...]
    sizes: tuple[int, ...] = (1_000, 3_000, 5_000)


def _complete(metric: str, title: str) -> TableDesign:
    return TableDesign(
        title, ("linear", "logistic"), ("complete",), (metric,), (1.0, 3.0, 5.0), (*COMPLETE_METHODS, "Refined")
    )


def _missing(model: str, *methods: str) -> TableDesign:
    title = f"{model}, blocks missing, {'/'.join(m for m in methods if '-' not in m)}"
    return TableDesign(title, (model,), MECHANISMS, ("rmse", "gmeans", "fdr"), (1.0,), methods)


_ON_VCDS = ("CC-VCDS", "Impute-VCDS", "VCDS", "Refined")
_ON_EVCDS = ("CC-EVCDS", "Impute-EVCDS", "EVCDS", "IEVCDS", "Refined-aligned")

TABLES: Mapping[str, TableDesign] = {
    "table1": _complete("rmse", "RMSE, complete data"),
    "table2": _complete("gmeans", "G-Means, complete data"),
    "table3": _complete("fdr", "FDR, complete data"),
    "table4": _missing("linear", *_ON_VCDS),
    "table5": _missing("logistic", *_ON_VCDS),
    "table6": _missing("linear", *_ON_EVCDS),
    "table7": _missing("logistic", *_ON_EVCDS),
}
