"""Tables as CSV files that a spreadsheet shows and does not run."""

from __future__ import annotations

from pathlib import Path

import polars as pl

# A spreadsheet takes a cell that begins with one of these as a formula; the last four are their full-width forms.
# What cannot be seen before it, such as a byte order mark, may be taken away by a reader.
_UNSEEN = r"[\s\p{Cf}\p{Cc}\u3164\u2800\u115F\u1160\uFFA0]*"
_SIGN = r"[=+\-@\t\r\n＝＋－＠]"
_FORMULA = f"^{_UNSEEN}{_SIGN}"
# In some countries a spreadsheet cuts lines at another sign than a comma; what stands behind it is a cell, then.
_LATER_FORMULA = f"([;|\t])({_UNSEEN}{_SIGN})"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def write_csv(table: pl.DataFrame, path: Path) -> None:
    """Write the table; text that a spreadsheet would take for a formula begins with an apostrophe.

    Numbers stay numbers, also those that are stored as text. Parquet files hold every name as it is.
    """
    cells = table.with_columns(_as_text(pl.col(pl.String)), _as_text(pl.col(pl.Categorical, pl.Enum).cast(pl.String)))
    header = pl.DataFrame({"name": table.columns}, schema={"name": pl.String}).select(_as_text(pl.col("name")))
    names: list[str] = []
    for old, new in zip(table.columns, header["name"].to_list(), strict=True):
        while new != old and (new in names or new in table.columns):
            new = f"'{new}"
        names.append(new)
    cells.rename(dict(zip(table.columns, names, strict=True))).write_csv(path)


def _as_text(cells: pl.Expr) -> pl.Expr:
    is_formula = cells.str.contains(_FORMULA) & ~cells.str.contains(_NUMBER)
    later = cells.str.replace_all(_LATER_FORMULA, "$1'$2")
    return pl.when(is_formula).then(pl.lit("'") + later).otherwise(later).name.keep()
