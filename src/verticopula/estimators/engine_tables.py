"""Tables that the workers of an engine read, for a study that is fitted in this process."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verticopula.data.engine_table import EngineTable
from verticopula.data.scratch_file import ROWS_IN_MEMORY
from verticopula.engine.chunk_engine import ChunkEngine
from verticopula.engine.chunk_task import Secret
from verticopula.errors import Problem, SchemaError, SettingsError
from verticopula.formatting import join_names
from verticopula.schema.methods import METHODS, runs_on_engine
from verticopula.schema.setting_choices import BINOMIAL_SAMPLER
from verticopula.schema.study_settings import StudySettings
from verticopula.stats.binomial_ranks import NOISE_ROWS

_KEY_BYTES = 32


def check_for_engine(settings: StudySettings) -> None:
    """SettingsError unless an engine can do all that the parties of such a study have to do.

    Parameters
    ----------
    settings : of the study
    """
    if not runs_on_engine(settings.method, settings.variant):
        able = join_names([name for name in METHODS if runs_on_engine(name, settings.variant)])
        raise SettingsError(
            f"method {settings.method!r} does not run on an engine: it would have to bring whole columns to this "
            f"process. {able or 'None of this variant'} do; or take the local engine"
        )
    if settings.sampler != BINOMIAL_SAMPLER:
        raise SettingsError(
            f"an engine draws ranks by the {BINOMIAL_SAMPLER} sampler only: give sampler={BINOMIAL_SAMPLER!r} "
            f"(--sampler {BINOMIAL_SAMPLER}), which costs twice the coins of the exact one"
        )


def open_on_engine(
    engine: ChunkEngine, tables: Mapping[str, Any], rows_at_once: int = ROWS_IN_MEMORY
) -> dict[str, EngineTable]:
    """Party -> its table; SchemaError lists what is wrong with the files.

    Ids are hashed with a key that is made here, for this study alone.

    Parameters
    ----------
    engine : whose workers read the files
    tables : party -> the path of its Parquet file, or of a folder of them
    rows_at_once : of a chunk, made a multiple of the rows that share a stream of random bits
    """
    rows, key = -(-rows_at_once // NOISE_ROWS) * NOISE_ROWS, Secret(secrets.token_bytes(_KEY_BYTES))
    found: dict[str, EngineTable] = {}
    problems: list[Problem] = []
    for party, place in tables.items():
        if not isinstance(place, str | Path):
            what = "an engine reads files: give the path of a Parquet file or folder, not a table that is here already"
            problems.append(Problem(f"party {party!r}", what))
            continue
        try:
            found[party] = EngineTable(engine, Path(place), rows, key)
        except SchemaError as error:
            problems += error.problems
    if problems:
        raise SchemaError(problems)
    return found
