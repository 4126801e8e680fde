"""A data set of the public grid as its parties hold it, and synthetic rows of it from every source."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.coded_studies import simulate_margins, simulate_opening
from benchmarks.public_cells import CODED, INDEPENDENT, MISSING, REAL, RESAMPLED, SDV, STRICT, PublicCell, PublicSetting
from benchmarks.public_gaps import fill_blocks, lose_blocks
from benchmarks.public_mixed import MixedColumn, MixedTable, read_mixed
from benchmarks.public_rivals import curate_rows, draw_sdv
from benchmarks.public_tables import CodedTable, cut_columns, read_coded
from verticopula import Synthesizer
from verticopula.errors import NotPrivateWarning, SettingsError
from verticopula.privacy.gaussian_dp import mu_of
from verticopula.stats.tilting.opening_plan import CodedColumn
from verticopula.stats.tilting.population_fit import split_budget
from verticopula.stats.tilting.selection import find_base_columns
from verticopula.stats.tilting.tilted_model import decode_rows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
HELD_OUT = 0.3


@dataclass(frozen=True)
class PublicRows:
    """Rows in codes, and as the numbers that models are trained on."""

    codes: Ints
    numbers: Floats


@dataclass(frozen=True)
class PublicStudy:
    """A data set.

    Attributes
    ----------
    table : all columns; of a coded table every code is its own number
    raw : the coded table it was, None for one of numbers and categories
    train, test : rows in the study, and rows held out (none of a coded table)
    held : (people, p) what the parties hold of `train`; -1 where they do not know the person
    """

    setting: PublicSetting
    seed: int
    table: MixedTable
    raw: CodedTable | None
    coded: tuple[CodedColumn, ...]
    train: Ints
    test: Ints
    held: Ints

    @classmethod
    def read(cls, folder: Path, setting: PublicSetting, seed: int) -> PublicStudy:
        """The table in this folder, as the parties of a setting hold it."""
        raw = read_coded(folder, setting.table) if setting.table in CODED else None
        table = read_mixed(folder, setting.table) if raw is None else _as_mixed(raw)
        parties = cut_columns(len(table.columns), setting.parties)
        coded = tuple(
            CodedColumn(c.n_cells, c.ordered or c.n_cells <= 2, party, c.may_be_empty)
            for c, party in zip(table.columns, parties, strict=True)
        )
        order = np.random.default_rng([seed, 1]).permutation(len(table.codes))
        test, train = np.split(order, [0 if raw is not None else int(HELD_OUT * order.size)])
        train = np.sort(train)
        held = table.codes[train]
        if setting.missing:
            held = lose_blocks(held, coded, MISSING, np.random.default_rng([seed, 7]))
        return cls(setting, seed, table, raw, coded, train, test, held)

    @cached_property
    def real(self) -> PublicRows:
        """The people in the study, without any gap."""
        return PublicRows(self.table.codes[self.train], self.table.numbers[self.train])

    @property
    def response(self) -> int | None:
        """The column that models are made for, where rows are held out for them."""
        return len(self.coded) - 1 if self.test.size else None

    def decode(self, codes: Ints, inside: Floats) -> PublicRows:
        """Rows of cells and positions inside of them."""
        numbers = [c.decode(codes[:, j], inside[:, j]) for j, c in enumerate(self.table.columns)]
        return PublicRows(codes, np.column_stack(numbers))


def _as_mixed(raw: CodedTable) -> MixedTable:
    columns = tuple(
        MixedColumn(None, np.arange(size, dtype=np.float64), not nominal)
        for size, nominal in zip(raw.sizes, raw.nominal, strict=True)
    )
    return MixedTable(raw.name, raw.codes, raw.codes.astype(np.float64), columns)


def draw_rows(study: PublicStudy, cell: PublicCell) -> tuple[PublicRows, dict[str, str]]:
    """As many rows as people of a cell's source, and where they were made if not here."""
    n, rng = len(study.train), np.random.default_rng([cell.seed, 3])
    if cell.source == REAL:
        return study.real, {}
    if cell.source == RESAMPLED:
        picked = rng.integers(n, size=n)
        return PublicRows(study.real.codes[picked], study.real.numbers[picked]), {}
    if cell.source == SDV:
        filled = fill_blocks(study.held, study.coded)
        numbers = np.where(
            study.held >= 0, study.real.numbers, study.decode(filled, np.full(filled.shape, 0.5)).numbers
        )
        numbers = draw_sdv(numbers, [c.ordered for c in study.table.columns])
        return PublicRows(_to_codes(study.table, numbers), numbers), {}
    if cell.epsilon is None:
        raise SettingsError(f"{cell.source!r} needs an epsilon")
    if cell.source == INDEPENDENT:
        return study.decode(draw_independent(study, cell, rng), rng.random((n, len(study.coded)))), {}
    if cell.source == STRICT:
        return draw_strict(study, cell), {}
    codes, made = curate_rows(cell, study.held, study.coded, [c.n_cells for c in study.coded])
    return study.decode(codes, rng.random(codes.shape)), made


def draw_independent(study: PublicStudy, cell: PublicCell, rng: np.random.Generator) -> Ints:
    """Rows of the margins that `strict` would release, without any dependence."""
    assert cell.epsilon is not None
    owners = np.array([c.party for c in study.coded])
    known = np.column_stack([(study.held[:, owners == k] >= 0).any(axis=1) for k in range(study.setting.parties)])
    base, selecting = find_base_columns(known, owners)
    split = split_budget(mu_of(cell.epsilon, cell.delta), study.coded, corrected=bool(base.any() and selecting.any()))
    margins, _ = simulate_margins(study.held, study.coded, split.margins, rng)
    return np.column_stack([rng.choice(m.size, len(study.train), p=m / m.sum()) for m in margins]).astype(np.int64)


def draw_strict(study: PublicStudy, cell: PublicCell) -> PublicRows:
    """Rows of `strict`: a whole study of a coded table, simulated openings where numbers have cells of their own."""
    assert cell.epsilon is not None
    if study.raw is None:
        cells, inside = synthesize_tilted(
            study.held, list(study.coded), cell.epsilon, cell.delta, cell.seed, len(study.train), study.response
        )
        return study.decode(cells, inside)
    federation = study.raw.federation(study.setting.parties)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        fitted = Synthesizer(federation, "strict", cell.epsilon, cell.delta, random_state=cell.seed).fit(
            study.raw.tables(federation, study.held)
        )
    rows = fitted.sample(len(study.train))
    codes = [rows[p.name][c.name].cast(str).cast(int).to_numpy() for p in federation.parties for c in p.columns]
    found = np.column_stack(codes).astype(np.int64)
    return study.decode(found, np.zeros(found.shape))


def synthesize_tilted(
    codes: Ints,
    coded: list[CodedColumn],
    epsilon: float,
    delta: float,
    seed: int,
    n_rows: int,
    response: int | None = None,
) -> tuple[Ints, Floats]:
    """Synthetic rows of a tilted copula in codes, and positions inside of cells."""
    rng = np.random.default_rng(seed)
    opened = simulate_opening(codes, coded, mu_of(epsilon, delta), rng=rng, response=response)
    fit = opened.fit(n_rows, rng=rng, threads=2)
    return decode_rows(fit.model, fit.rows, rng)


def _to_codes(table: MixedTable, numbers: Floats) -> Ints:
    """The cell of every number; a number outside of the public range is in the nearest cell."""
    return np.column_stack([c.encode(numbers[:, j]) for j, c in enumerate(table.columns)])
