"""A party's own synthetic columns as files on its own disk; nobody else has them in this form."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.data.column_encoding import decode_column
from verticopula.data.column_ranges import can_hold
from verticopula.data.synthetic_marks import write_marked
from verticopula.errors import ProtocolError
from verticopula.privacy.mark_statement import mark_synthetic
from verticopula.privacy.statement import NOTICE_FILE, PrivacyStatement
from verticopula.protocol.study_messages import BlockRequest
from verticopula.schema.columns import Column
from verticopula.schema.federation import Party
from verticopula.schema.methods import METHODS
from verticopula.schema.units import Unit

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")


def write_block(request: BlockRequest, party: Party, out: Path, method: str, cost: PrivacyStatement) -> int:
    """Write a study's block below `out`, and say how many rows it has; ProtocolError where it is none of the party's.

    Parameters
    ----------
    request : the values
    party : whose columns they are to be
    out : folder of all blocks
    method : of the study
    cost : what the study has cost the party's people, for the mark that the tables carry
    """
    columns = party.written_columns
    rows = len(request.values[0]) if request.values else 0
    fits = request.columns == tuple(c.name for c in columns) and len(request.values) == len(columns) and rows > 0
    if not fits or not _block_fits(request.values, columns, rows):
        raise ProtocolError(f"party {party.name!r}: the synthetic block does not fit its columns")
    frame = pl.DataFrame([decode_column(v, c) for v, c in zip(request.values, columns, strict=True)])
    folder = out / _file_name(request.study)
    folder.mkdir(parents=True, exist_ok=True)
    unit = METHODS[method].default_unit if method in METHODS else Unit.PERSON
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as partly:  # whole files or none
        for path in write_marked(frame, Path(partly), party.name, mark_synthetic(request.study, method, cost, unit)):
            os.replace(path, folder / path.name)
    said = cost.warnings
    (folder / NOTICE_FILE).unlink(missing_ok=True)
    if said:
        (folder / NOTICE_FILE).write_text("\n".join(said) + "\n", encoding="utf-8")
    return rows


def _block_fits(values: Sequence[NDArray[np.float64]], columns: Sequence[Column], rows: int) -> bool:
    """Whether these can be synthetic values, or category codes, of a party's columns; NaN is an empty one.

    A required column is empty only where the whole row is: there, the party does not know the synthetic person.
    """
    if not all(own.dtype == np.float64 and own.shape == (rows,) for own in values):
        return False
    empty = np.isnan(np.array(values))
    known = ~empty.all(axis=0)
    return all(
        can_hold(column, own[~gaps]) and not (column.required and gaps[known].any())
        for own, gaps, column in zip(values, empty, columns, strict=True)
    )


def _file_name(study: str) -> str:
    """A folder's name for a study, whatever the coordinator called it; two studies never share one."""
    if _FILE_NAME.fullmatch(study):
        return study
    digest = hashlib.sha256(study.encode()).hexdigest()[:16]
    return f"{re.sub('[^A-Za-z0-9_-]+', '_', study).strip('_-')[:80] or 'study'}~{digest}"  # ~ is in no plain name
