"""Subjects' ids as text, and the rules that make ids of two tables alike."""

from __future__ import annotations

from itertools import combinations

import polars as pl

from verticopula.schema.cell_text import drop_zero_decimals, strip_text


def apply_id_rules(ids: pl.Series, rules: tuple[str, ...]) -> pl.Series:
    """Ids as text, with these rules applied in order; `17.0` is `17`.

    Parameters
    ----------
    ids : of any type
    rules : as the federation file has them
    """
    text = drop_zero_decimals(ids if ids.dtype == pl.String else strip_text(ids))
    for step in rules:
        if step == "strip":
            text = text.str.strip_chars()
        elif step == "upper":
            text = text.str.to_uppercase()
        elif step == "lower":
            text = text.str.to_lowercase()
        else:
            text = text.str.zfill(int(step.partition(":")[2]))
    return text


def count_unknown(own: pl.Series, cohort: pl.Series) -> int:
    """How many ids of one table are not in the other."""
    return int((~own.is_in(cohort.implode())).fill_null(False).sum())


def suggest_id_rules(own: pl.Series, cohort: pl.Series) -> tuple[str, ...]:
    """The shortest list of rules under which most ids of one table are found in the other; () if none helps.

    Parameters
    ----------
    own, cohort : ids as text
    """
    if len(own) == 0 or len(cohort) == 0:
        return ()
    widest = int(pl.concat([own, cohort]).str.len_chars().fill_null(0).to_numpy().max())
    steps = ("strip", "upper", f"zfill:{widest}")[: 3 if 0 < widest < 100 else 2]
    best: tuple[str, ...] = ()
    fewest = count_unknown(own, cohort)
    for rules in (chosen for count in (1, 2, 3) for chosen in combinations(steps, count)):
        unknown = count_unknown(apply_id_rules(own, rules), apply_id_rules(cohort, rules))
        if unknown < fewest:
            best, fewest = rules, unknown
    return best
