"""What a caller may hand to a regression: tables by party or one table, a response by value or by name."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse

from verticopula.errors import InputTypeError, SettingsError
from verticopula.glm.feature_encoding import check_response_kind, encode_response
from verticopula.schema.columns import Column, ColumnKey
from verticopula.schema.federation import Federation
from verticopula.schema.frames import to_polars

Floats = NDArray[np.float64]

SINGLE_PARTY = "X"


# ---- tables ------------------------------------------------------------------------------


def read_blocks(blocks: Any) -> tuple[dict[str, pl.DataFrame], Federation | None, int | None]:
    """Tables by party, and, where a synthesizer made them, its federation and number of subjects."""
    if isinstance(blocks, Mapping) and not issparse(blocks):  # one of SciPy's sparse forms is a mapping
        if not blocks:
            raise SettingsError("no tables were given")
        tables = {str(name): _read_table(table, str(name)) for name, table in blocks.items()}
    else:
        tables = {SINGLE_PARTY: _read_table(blocks, SINGLE_PARTY)}
    return tables, getattr(blocks, "federation", None), getattr(blocks, "n_subjects", None)


def keep_complete(
    tables: dict[str, pl.DataFrame], n_subjects: int | None, response: Any
) -> tuple[dict[str, pl.DataFrame], int | None]:
    """A synthesizer's tables without rows that have an empty value, and as many fewer subjects.

    Parameters
    ----------
    n_subjects : behind the tables; None where no synthesizer made them, and nothing is left out then
    response : `party.column`; where it was given by value, no row can be left out
    """
    heights = {table.height for table in tables.values()}
    if n_subjects is None or not isinstance(response, str) or len(heights) != 1:
        return tables, n_subjects
    height = heights.pop()
    full = np.ones(height, dtype=np.bool_)
    for table in tables.values():
        full &= table.select(pl.all_horizontal(pl.all().is_not_null())).to_series().to_numpy()
    if full.all():
        return tables, n_subjects
    kept = {name: table.filter(full) for name, table in tables.items()}
    return kept, max(round(n_subjects * float(full.mean())), 1)


def _read_table(table: Any, party: str) -> pl.DataFrame:
    if issparse(table):
        raise InputTypeError(f"party {party!r}: sparse tables are not supported; toarray() makes a dense one")
    if hasattr(table, "columns") or isinstance(table, pl.DataFrame):
        # A date is a number of days, as in the federation file's bounds.
        return to_polars(table, party).with_columns(pl.col(pl.Date).cast(pl.Int32))
    values = _read_array(table, party)
    if values.ndim != 2:
        raise SettingsError(
            f"party {party!r}: expected a DataFrame or an array with two dimensions, got {values.ndim}. "
            "Reshape your data: reshape(-1, 1) makes one column of a vector, reshape(1, -1) one row"
        )
    if not values.shape[1]:
        raise SettingsError(f"party {party!r}: 0 feature(s) (shape={values.shape}) while a minimum of 1 is required.")
    return pl.DataFrame({f"x{j + 1}": values[:, j] for j in range(values.shape[1])})


def _read_array(table: Any, party: str) -> Floats:
    """The numbers of an array; errors never show an entry."""
    expected = f"party {party!r}: expected a DataFrame or an array of numbers"
    try:
        given = np.asarray(table)
        if np.iscomplexobj(given):
            raise InputTypeError(f"{expected}. Complex data not supported")
        return np.asarray(given, dtype=np.float64)
    except InputTypeError:
        raise
    except TypeError:
        raise InputTypeError(
            f"{expected}; an array argument must be made of numbers, or of strings that read as a number"
        ) from None
    except ValueError:
        raise SettingsError(expected) from None


def check_rows(rows: Mapping[str, int], expected: int) -> None:
    """SettingsError unless all parties have the response's number of rows."""
    wrong = [f"{name} has {count}" for name, count in rows.items() if count != expected]
    if wrong:
        raise SettingsError(f"the response has {expected} rows, but party {', '.join(wrong)}")
    if expected < 2:
        raise SettingsError(f"a regression needs more than n_samples = {expected} row(s)")


# ---- the response ------------------------------------------------------------------------


@dataclass(frozen=True)
class Response:
    """What is to be explained.

    Attributes
    ----------
    values : (n,) numbers; 0 and 1 where it has labels
    classes : the labels that 0 and 1 stand for; None where it has no labels
    name : `party.column`; empty where it was given by value
    """

    values: Floats
    classes: NDArray[Any] | None
    name: str


def take_response(
    tables: dict[str, pl.DataFrame],
    response: ArrayLike | str,
    federation: Federation | None,
    *,
    labelled: bool,
    classes: NDArray[Any] | None = None,
) -> tuple[Response, dict[str, pl.DataFrame]]:
    """The response, and the tables without it.

    Parameters
    ----------
    response : (n,) values; or `party.column`, which is then taken out of that party's table
    labelled : whether it has two labels of any kind instead of numbers
    classes : its labels, where a fit has seen them; None to find them
    """
    if isinstance(response, ColumnKey):
        response = str(response)
    if not isinstance(response, str):
        given = _as_vector(response)
        if labelled:
            return Response(*_code_labels(given, None, classes), ""), tables
        return Response(_as_numbers(given), None, ""), tables
    party, _, column = response.partition(".")
    if party not in tables or column not in tables[party].columns:
        how = (
            "X is one table: give y as values" if set(tables) == {SINGLE_PARTY} else "a response is named party.column"
        )
        raise SettingsError(f"no column {response!r} in these tables; {how}")
    described = federation is not None and ColumnKey(party, column) in federation.keys
    known = federation.column(ColumnKey(party, column)) if federation is not None and described else None
    series, where = tables[party][column], f"party {party!r}"
    values, found = (
        _code_column(series, known, where, classes) if labelled else (encode_response(series, known, where), None)
    )
    rest = {name: t.drop(column) if name == party else t for name, t in tables.items()}
    rest = {name: table for name, table in rest.items() if table.width}
    if not rest:
        raise SettingsError("there are no columns beside the response")
    return Response(values, found, response), rest


def schema_classes(column: Column) -> NDArray[Any]:
    """The labels of 0 and 1 of a response that a federation file describes."""
    return np.array(column.categories[:2] if column.categories else [0, 1])


def _as_vector(response: Any) -> NDArray[Any]:
    """One entry per row; a table of one column is taken for a vector, with a warning."""
    if response is None:
        raise SettingsError("the regression requires y to be passed, but the target y is None")
    # A list keeps its entries as they are: NumPy would turn an empty one among texts into a text.
    values = np.asarray(response, dtype=object if isinstance(response, (list, tuple)) else None)
    if np.iscomplexobj(values):
        raise SettingsError("the response must be numbers or labels. Complex data not supported")
    if values.ndim == 2 and values.shape[1] == 1:
        from sklearn.exceptions import DataConversionWarning  # only here: nothing else in this folder needs it

        warnings.warn(
            "A column-vector y was passed when a 1d array was expected: it is read as one response per row",
            DataConversionWarning,
            stacklevel=4,
        )
        values = values[:, 0]
    if values.ndim != 1:
        raise SettingsError(f"expected one response per row, got an array with {values.ndim} dimensions")
    return values


def _as_numbers(values: NDArray[Any]) -> Floats:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise SettingsError("the response must be numbers; two labels are for the family 'binomial'") from None


def _code_column(
    series: pl.Series, known: Column | None, where: str, classes: NDArray[Any] | None
) -> tuple[Floats, NDArray[Any]]:
    """0 and 1 of a table's column, and the labels they stand for: the schema's second category is 1."""
    if known is not None and known.categories:
        check_response_kind(known)
        categories = np.array(known.categories)
        labels = categories[encode_response(series, known, where).astype(np.int64)]
        return _code_labels(labels, categories, classes)
    if series.null_count():
        raise SettingsError(f"{where}, column {series.name!r}: {series.null_count()} cell(s) of the response are empty")
    if series.dtype in (pl.Categorical, pl.Enum):
        series = series.cast(pl.String)
    return _code_labels(series.to_numpy(), None, classes)


def _code_labels(
    given: NDArray[Any], order: NDArray[Any] | None, classes: NDArray[Any] | None
) -> tuple[Floats, NDArray[Any]]:
    """0 and 1 of labels, and what they stand for: sorted unless they have an order of their own."""
    labels = _plain_labels(given)
    if classes is None:
        classes = _find_classes(labels, order)
    if not np.isin(labels, classes).all():
        raise SettingsError("the response has labels that the fit did not see")
    return (labels == classes[1]).astype(np.float64), classes


def _find_classes(labels: NDArray[Any], order: NDArray[Any] | None) -> NDArray[Any]:
    found = np.unique(labels)
    if found.size == 1:
        raise SettingsError("the response has only one class: there is nothing to explain")
    if found.size != 2:
        raise SettingsError(f"Only binary classification is supported: the response has {found.size} different labels")
    return found if order is None else order[np.isin(order, found)]


def _plain_labels(given: NDArray[Any]) -> NDArray[Any]:
    """Labels as numbers, truth values or text; errors never show one."""
    if given.dtype == object:
        given = _unbox(given.tolist())
    if given.dtype.kind == "f":
        if not np.isfinite(given).all():
            raise SettingsError("the response has empty, NaN or infinite entries")
        if (given != np.round(given)).any():
            raise SettingsError(
                "a binomial response must have two labels, such as 0, 1. Unknown label type: continuous"
            )
    if given.dtype.kind not in "biufUS":
        raise SettingsError("Unknown label type: the labels of a response are numbers, truth values or text")
    return given


def _unbox(entries: Sequence[Any]) -> NDArray[Any]:
    """An array of a plain type from Python objects of one kind."""
    if any(entry is None or str(entry) in ("nan", "NaN", "<NA>", "NaT") for entry in entries):
        raise SettingsError("the response has empty, NaN or infinite entries")
    texts = sum(isinstance(entry, (str, bytes)) for entry in entries)
    try:
        plain = np.array(entries)
    except ValueError:
        plain = np.array(entries, dtype=object)
    if texts not in (0, len(entries)) or plain.ndim != 1:
        raise SettingsError("Unknown label type: the labels of a response must be of one kind")
    return plain
