"""What says that a table is synthetic: in Parquet's metadata, in a file beside a CSV, in the comment of a table.

Beside `bank.csv` stands `bank.csv-metadata.json`, which is where readers of CSV on the Web look for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import polars as pl

from verticopula.data.csv_files import write_csv

METADATA_KEY = "verticopula"
METADATA_ENDING = "-metadata.json"
_MOST_BYTES = 10_000_000  # of a file beside a table; ours have a line a column
_LONGEST = 1_000  # of a text in a mark


@dataclass(frozen=True)
class SyntheticMark:
    """What a synthetic table says of itself. Nothing in it is data.

    Attributes
    ----------
    study, method : which study it was drawn from, and by which method
    epsilon : of the whole study, for each `unit`; "inf" where something of it is not private
    delta : at which epsilon was counted; 0 where the unit needs none
    drawn : the day
    tool : program and version
    synthetic : always true; a reader of JSON looks for it
    """

    study: str
    method: str
    epsilon: float | str
    unit: str
    delta: float
    drawn: str
    tool: str
    synthetic: bool = True

    def to_json(self) -> str:
        """One line, ASCII, so that every database can keep it."""
        return json.dumps({METADATA_KEY: asdict(self)}, ensure_ascii=True)

    def sentence(self) -> str:
        """What it says, for a reader."""
        at = f" at delta = {self.delta:g}" if self.delta else ""
        price = self.epsilon if isinstance(self.epsilon, str) else f"{self.epsilon:g}"
        return (
            f"synthetic data of study {self.study!r}, method {self.method}, epsilon {price} per {self.unit}{at}, drawn "
            f"{self.drawn} by {self.tool}"
        )

    @classmethod
    def from_json(cls, text: str) -> SyntheticMark | None:
        """The mark that a text holds; None where it holds none.

        Parameters
        ----------
        text : JSON
        """
        try:
            given = json.loads(text)[METADATA_KEY]
            found = cls(**{f.name: given[f.name] for f in fields(cls)})
        except (ValueError, TypeError, KeyError, RecursionError):
            return None
        texts = (found.study, found.method, found.unit, found.drawn, found.tool)
        fits = all(isinstance(part, str) and len(part) <= _LONGEST for part in texts)
        fits = fits and type(found.delta) in (int, float) and type(found.epsilon) in (int, float, str)
        return found if fits and found.synthetic is True else None


def write_marked(table: pl.DataFrame, folder: Path, name: str, mark: SyntheticMark) -> list[Path]:
    """Write a synthetic table as CSV and Parquet, each with its mark; the files, in place of those that were there.

    Parameters
    ----------
    table : the synthetic table
    folder, name : where to, without an ending
    mark : what it says of itself
    """
    csv, parquet = folder / f"{name}.csv", folder / f"{name}.parquet"
    beside = metadata_file(csv)
    beside.write_text(_csv_metadata(csv.name, table, mark), encoding="utf-8")
    write_csv(table, csv)
    table.write_parquet(parquet, metadata={METADATA_KEY: mark.to_json()})
    return [csv, beside, parquet]


def metadata_file(csv: Path) -> Path:
    """The file beside a CSV file that says what it is.

    Parameters
    ----------
    csv : the CSV file
    """
    return csv.with_name(csv.name + METADATA_ENDING)


def _csv_metadata(url: str, table: pl.DataFrame, mark: SyntheticMark) -> str:
    content = {
        "@context": "http://www.w3.org/ns/csvw",
        "url": url,
        "dc:description": mark.sentence(),
        METADATA_KEY: asdict(mark),
        "tableSchema": {"columns": [{"titles": name} for name in table.columns]},
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def read_file_mark(path: Path) -> SyntheticMark | None:
    """What says that a file's table is synthetic; None where nothing does.

    Parameters
    ----------
    path : a table's file, or a folder of Parquet files
    """
    try:
        if path.is_dir():
            found = (read_file_mark(part) for part in sorted(path.rglob("*.parquet")))
            return next((mark for mark in found if mark is not None), None)
        if path.suffix.lower() == ".parquet":
            return SyntheticMark.from_json(_parquet_metadata(path).get(METADATA_KEY, ""))
        beside = metadata_file(path)
        if beside.is_file() and beside.stat().st_size <= _MOST_BYTES:
            return SyntheticMark.from_json(beside.read_text("utf-8"))
    except (OSError, ValueError, pl.exceptions.PolarsError):
        return None
    return None


def _parquet_metadata(path: Path) -> Mapping[str, Any]:
    return pl.read_parquet_metadata(path)


def mark_in_comments(comments: Iterable[str]) -> SyntheticMark | None:
    """The first mark among the comments of a database's tables; None where there is none.

    Parameters
    ----------
    comments : as the database has them; SQLite keeps the text of the statement that made the table
    """
    for comment in comments:
        start = comment.find(f'{{"{METADATA_KEY}"')
        if start >= 0:
            try:
                raw, _ = json.JSONDecoder().raw_decode(comment[start:])
            except (ValueError, RecursionError):
                continue
            if mark := SyntheticMark.from_json(json.dumps(raw)):
                return mark
    return None
