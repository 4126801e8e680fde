"""Descriptions of tables that people have already: SDV metadata, Frictionless and CSVW schemas, all of them JSON.

What they say of kinds goes before any guess. Bounds and lists that a Frictionless or CSVW schema gives are part of a
published description, and are taken over; SDV metadata has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from verticopula.errors import Problem, SchemaError
from verticopula.schema.federation_draft import ColumnDraft

_LEFT_OUT = "left out: its type is {type}"
_FRICTIONLESS = {"number": "continuous", "integer": "count", "year": "count", "date": "date", "datetime": "date"}
_CSVW_WHOLE = ("integer", "int", "long", "short", "byte", "gYear")
_CSVW_NUMBERS = ("number", "decimal", "double", "float")
_CSVW_DATES = ("date", "datetime", "dateTime", "dateTimeStamp")


@dataclass(frozen=True)
class DescribedTable:
    """What a schema says of one table.

    Attributes
    ----------
    name : of the table; "" where the schema gives none
    id : its primary key; "" where there is none, or where it has several columns
    columns : in the schema's order, without the id
    """

    name: str
    id: str
    columns: tuple[ColumnDraft, ...]


def read_schema(path: Path) -> list[DescribedTable]:
    """The tables that a JSON file describes; SchemaError if it is none of the three kinds.

    Parameters
    ----------
    path : SDV metadata, a Frictionless data package or table schema, or CSVW metadata
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise SchemaError([Problem(path.name, "no such file")]) from None
    except (OSError, ValueError):
        raise SchemaError([Problem(path.name, "cannot be read as JSON")]) from None
    source = path.name
    try:
        found = list(_tables(raw, source))
    except (AttributeError, KeyError, TypeError, ValueError):
        found = []
    if not found:
        what = "is neither SDV metadata nor a Frictionless or CSVW schema with columns"
        raise SchemaError([Problem(source, what)])
    return found


def _tables(raw: Mapping[str, Any], source: str) -> Iterator[DescribedTable]:
    if isinstance(raw.get("tables"), Mapping):
        for name, table in raw["tables"].items():
            yield _sdv(name, table, source)
    elif isinstance(raw.get("columns"), Mapping):
        yield _sdv("", raw, source)
    elif isinstance(raw.get("resources"), list):
        for resource in raw["resources"]:
            name = resource.get("name") or _stem(resource.get("path"))
            yield _frictionless(name, resource["schema"], source)
    elif isinstance(raw.get("fields"), list):
        yield _frictionless("", raw, source)
    elif isinstance(raw.get("tables"), list):
        for table in raw["tables"]:
            yield _csvw(table, raw, source)
    elif "tableSchema" in raw:
        yield _csvw(raw, raw, source)


def _stem(path: Any) -> str:
    first = path[0] if isinstance(path, list) and path else path
    return Path(first).stem if isinstance(first, str) else ""


def _key(key: Any) -> str:
    if isinstance(key, list):
        return str(key[0]) if len(key) == 1 else ""
    return str(key) if isinstance(key, str) else ""


# ---- SDV ---------------------------------------------------------------------------------


def _sdv(name: str, table: Mapping[str, Any], source: str) -> DescribedTable:
    key = _key(table.get("primary_key"))
    columns = (_sdv_column(column, about, source) for column, about in table["columns"].items() if column != key)
    return DescribedTable(name, key, tuple(columns))


def _sdv_column(name: str, about: Mapping[str, Any], source: str) -> ColumnDraft:
    kind, why = about["sdtype"], f"from {source}"
    if kind == "numerical":
        whole = "int" in str(about.get("computer_representation", "")).lower()
        return ColumnDraft(name, "count" if whole else "continuous", why)
    if kind == "boolean":
        return ColumnDraft(name, "binary", why, truth=True)
    if kind == "categorical":
        order = about.get("order")
        listed = tuple(map(_category, order)) if isinstance(order, list) else None
        return ColumnDraft(name, "ordinal" if order else "nominal", why, categories=listed)
    if kind == "datetime":
        return ColumnDraft(name, "count", why, is_date=True)
    return ColumnDraft(name, "", _LEFT_OUT.format(type=kind))


# ---- Frictionless ------------------------------------------------------------------------


def _frictionless(name: str, schema: Mapping[str, Any], source: str) -> DescribedTable:
    key = _key(schema.get("primaryKey"))
    fields = [field for field in schema["fields"] if field["name"] != key]
    columns = (_required(_field(field, source), field.get("constraints", {}).get("required")) for field in fields)
    return DescribedTable(name, key, tuple(columns))


def _field(field: Mapping[str, Any], source: str) -> ColumnDraft:
    kind, limits = field.get("type", "string"), field.get("constraints", {})
    listed = limits.get("enum") or _categories(field.get("categories"))
    if kind == "boolean":
        return ColumnDraft(field["name"], "binary", f"from {source}", truth=True)
    if listed or (kind == "string" and field.get("categories")):
        ordered = "ordinal" if field.get("categoriesOrdered") else "nominal"
        return _listed(field["name"], tuple(map(_category, listed or ())), ordered, source)
    if kind in _FRICTIONLESS:
        return _ranged(field["name"], _FRICTIONLESS[kind], limits.get("minimum"), limits.get("maximum"), source)
    if kind in ("string", "any"):
        return ColumnDraft(field["name"], "nominal", f"from {source}")
    return ColumnDraft(field["name"], "", _LEFT_OUT.format(type=kind))


def _categories(given: Any) -> list[Any]:
    """Frictionless lists them bare, or with a label each."""
    return [item["value"] if isinstance(item, Mapping) else item for item in given or ()]


# ---- CSVW --------------------------------------------------------------------------------


def _csvw(table: Mapping[str, Any], group: Mapping[str, Any], source: str) -> DescribedTable:
    schema = table.get("tableSchema", group.get("tableSchema"))
    if not isinstance(schema, Mapping):
        raise ValueError("a table without a schema")
    key = _key(schema.get("primaryKey"))
    columns = [column for column in schema["columns"] if not column.get("virtual")]
    named = ((_csvw_name(column), column) for column in columns)
    drafts = (
        _required(_csvw_column(name, column, source), column.get("required"))
        for name, column in named
        if key not in (name, column.get("name"))
    )
    ids = {column.get("name"): _csvw_name(column) for column in columns}
    return DescribedTable(_stem(table.get("url")), ids.get(key, key), tuple(drafts))


def _csvw_name(column: Mapping[str, Any]) -> str:
    """The header in the file: the title, where there is one."""
    titles = column.get("titles")
    if isinstance(titles, Mapping):
        titles = next(iter(titles.values()), None)
    if isinstance(titles, list):
        titles = titles[0] if titles else None
    return str(titles if titles else column["name"])


def _csvw_column(name: str, column: Mapping[str, Any], source: str) -> ColumnDraft:
    given = column.get("datatype", "string")
    about = given if isinstance(given, Mapping) else {"base": given}
    base, form = about.get("base", "string"), about.get("format")
    low = about.get("minimum", about.get("minInclusive"))
    high = about.get("maximum", about.get("maxInclusive"))
    if base == "boolean":
        return ColumnDraft(name, "binary", f"from {source}", truth=True)
    if base in _CSVW_WHOLE or base.endswith("Integer"):
        return _ranged(name, "count", low, high, source)
    if base in _CSVW_NUMBERS:
        return _ranged(name, "continuous", low, high, source)
    if base in _CSVW_DATES:
        return _ranged(name, "date", low, high, source)
    if base == "string" and isinstance(form, str) and form and all(c.isalnum() or c in "|_- " for c in form):
        return _listed(name, tuple(form.split("|")), "nominal", source)
    if base == "string":
        return ColumnDraft(name, "nominal", f"from {source}")
    return ColumnDraft(name, "", _LEFT_OUT.format(type=base))


# ---- common ------------------------------------------------------------------------------


def _required(column: ColumnDraft, said: Any) -> ColumnDraft:
    return replace(column, required=said is True)


def _category(value: Any) -> str | int:
    return value if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _listed(name: str, categories: tuple[Any, ...], kind: str, source: str) -> ColumnDraft:
    kept = "binary" if len(categories) == 2 else kind
    return ColumnDraft(name, kept, f"from {source}", categories=categories or None)


def _ranged(name: str, kind: str, low: Any, high: Any, source: str) -> ColumnDraft:
    is_date = kind == "date"
    bounds = None if low is None or high is None else (_bound(low, is_date), _bound(high, is_date))
    return ColumnDraft(name, "count" if is_date else kind, f"from {source}", bounds, is_date=is_date)


def _bound(value: Any, is_date: bool) -> Any:
    if is_date:
        return str(value)[:10]
    number = float(value)
    return int(number) if number.is_integer() else number
