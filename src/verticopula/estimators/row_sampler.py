"""Rows of a fitted study, one sample after the other: in memory or in files, free or aligned with its people."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.errors import SettingsError, StudyWarning
from verticopula.formatting import readable
from verticopula.privacy.noise import server_generator
from verticopula.schema.columns import ColumnKey
from verticopula.schema.conditions import Conditions, check_met, read_conditions
from verticopula.schema.methods import Method
from verticopula.schema.setting_choices import AS_OBSERVED, COMPLETE
from verticopula.stats.fit_result import AlignedDraw
from verticopula.study.fitted_study import FittedStudy
from verticopula.study.kept_constraints import KeptConstraints, add_kept, keep_constraints
from verticopula.study.missing_values import check_missing, empty_as_observed
from verticopula.study.relation_sums import add_related
from verticopula.study.study_folder import mark_study, write_parts
from verticopula.study.study_warnings import ALIGNED_ROWS, CATEGORIES
from verticopula.study.synthetic_tables import decode_frames

DrawnRows = dict[ColumnKey, NDArray[np.float64]]


class RowSampler:
    """Samples of one fitted study; the arguments of `draw` and `write` are as `Synthesizer` has them.

    Parameters
    ----------
    fitted : what is sampled from
    seed : of all samples, so that the k-th has the same rows again; None for others every time

    Attributes
    ----------
    kept : of the last sample: how many rows were drawn again or moved to keep the parties' constraints
    has_drawn_aligned : whether rows of any sample followed the subjects
    """

    def __init__(self, fitted: FittedStudy, seed: int | None) -> None:
        self._fitted, self._seed, self._samples = fitted, seed, 0
        self._federation, self._copula = fitted.federation, fitted.result.copula
        self.kept: KeptConstraints | None = None
        self.has_drawn_aligned = False

    def draw(
        self, n_rows: int | None, aligned: bool | None, conditions: Mapping[str, Any] | None, missing: str | None
    ) -> DrawnRows:
        """Column -> its rows, as numbers."""
        check_missing(missing)
        asked = read_conditions(self._federation, conditions or {})
        rows = self._count_rows(n_rows)
        free = bool(asked) or missing is not None
        wanted = self._fitted.gives_aligned_rows and not free if aligned is None else aligned
        if wanted and free:
            raise SettingsError("aligned rows follow people as they are: neither conditions nor gaps can be chosen")
        draw = self._aligned_draw(rows) if wanted else None
        rng = self._next_generator()
        if draw is None:
            drawn, self.kept = self._draw_free(rows, rng, asked, missing)
            return drawn
        decoded = self._copula.decode((draw(rng) for _ in range(rows // self._fitted.n_subjects)), rows)
        found, self.kept = keep_constraints(self._federation, add_related(self._federation, decoded), None)
        return found

    def write(
        self,
        folder: Path,
        n_rows: int | None,
        rows_at_once: int,
        conditions: Mapping[str, Any] | None,
        missing: str | None,
    ) -> list[Path]:
        """The files of free rows, so many in each and in memory."""
        check_missing(missing)
        asked = read_conditions(self._federation, conditions or {})
        rows, at_once = self._count_rows(n_rows), check_at_least_one(rows_at_once, "rows_at_once")
        rng, kept = self._next_generator(), []

        def draw_parts() -> Iterator[dict[str, pl.DataFrame]]:
            for start in range(0, rows, at_once):
                drawn, own = self._draw_free(min(at_once, rows - start), rng, asked, missing)
                kept.append(own)
                yield decode_frames(drawn, self._federation)

        written = write_parts(folder, draw_parts(), mark_study(self._fitted))
        self.kept = add_kept(kept)
        return written

    def _count_rows(self, given: int | None) -> int:
        return check_at_least_one(self._fitted.n_subjects if given is None else given, "n_rows")

    def _next_generator(self) -> np.random.Generator:
        """Of the next sample: with a seed, the k-th has the same numbers again."""
        self._samples += 1
        return server_generator(self._seed, "sample", str(self._samples - 1))

    def _draw_free(
        self, n_rows: int, rng: np.random.Generator, asked: Conditions, missing: str | None
    ) -> tuple[DrawnRows, KeptConstraints | None]:
        """Rows that belong to nobody, and what it took to keep the constraints."""
        federation = self._federation

        def draw_rows(count: int) -> DrawnRows:
            return add_related(federation, self._copula.sample(count, rng, asked, complete=missing == COMPLETE))

        drawn, kept = keep_constraints(federation, draw_rows(n_rows), draw_rows)
        check_met(asked, drawn)
        if missing == AS_OBSERVED:
            required = [key for key in federation.keys if federation.column(key).required]
            drawn = empty_as_observed(drawn, self._fitted.result.missingness, rng, asked, required)
        return drawn, kept

    def _aligned_draw(self, rows: int) -> AlignedDraw:
        check_aligned_rows(self._fitted.settings.record, rows, self._fitted.n_subjects)
        draw = self._fitted.result.draw_aligned
        if draw is None:
            raise SettingsError(
                "aligned rows need the parties' releases, which a saved study does not keep: fit again, or "
                "sample with aligned=False"
            )
        warn_of(ALIGNED_ROWS, stacklevel=6)
        self.has_drawn_aligned = True  # the report says so
        return draw


def check_aligned_rows(method: Method, n_rows: int | None, n_subjects: int) -> None:
    """SettingsError if so many aligned rows of such a cohort cannot be had.

    Parameters
    ----------
    n_rows : None for the size of the cohort
    n_subjects : that size
    """
    if not method.aligned_rows:
        raise SettingsError(f"method {method.name!r} has no aligned release: its rows belong to no subject")
    if n_rows is not None and n_rows % n_subjects:
        raise SettingsError(f"aligned rows come in multiples of the cohort's {n_subjects} subjects")


def check_at_least_one(rows: int, name: str) -> int:
    """So many rows; SettingsError unless that is a whole number of at least 1."""
    if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)) or rows < 1:
        raise SettingsError(f"{name} must be a whole number of at least 1")
    return int(rows)


def warn_of(warning: StudyWarning, stacklevel: int) -> None:
    """Python's own warning, for those that have one."""
    category = CATEGORIES.get(warning.code)
    if category is not None:
        warnings.warn(readable(str(warning)), category, stacklevel=stacklevel)
