"""Mistakes in what is done on an engine's workers, and in what comes back."""

from __future__ import annotations

from tests.mutation.judges import ENGINE_ADDRESS, ENGINE_CHUNKS, ENGINE_MEMBERS
from tests.mutation.runner import Mutant, one_of

MUTANTS = (
    Mutant(
        "engine-chunks-share-coins",
        "stats/rank_chunks.py",
        "stream_labels(chunk.start, chunk.stop)",
        "stream_labels(0, chunk.stop - chunk.start)",
        "with a seed, the ranks of rows a chunk apart would have the same noise",
        one_of(ENGINE_CHUNKS, "chunks_of_any_size_give_the_numbers_of_frames"),
    ),
    Mutant(
        "engine-error-quotes-cells",
        "engine/chunk_task.py",
        "kind = type(error).__name__  # its message may hold a cell",
        "kind = str(error)",
        "a cell would stand in an error",
        one_of(ENGINE_CHUNKS, "a_task_that_fails_quotes_nothing"),
    ),
    Mutant(
        "engine-plain-workers",
        "engine/engine_address.py",
        'parts.scheme in ("tls", "inproc")',
        'parts.scheme in ("tls", "tcp")',
        "rows and keys would travel in the clear to workers elsewhere",
        one_of(ENGINE_ADDRESS, "other_machines_need_tls"),
    ),
    Mutant(
        "engine-mixes-files",
        "data/row_chunks.py",
        "if is_same and frame.height == count:",
        "if frame.height == count:",
        "a study would be of two tables, and one key would hide two values",
        one_of(ENGINE_CHUNKS, "a_file_that_is_written_again_is_noticed"),
    ),
    Mutant(
        "engine-lists-categories",
        "data/row_chunks.py",
        "isinstance(dtype, (pl.Enum, pl.Categorical))",
        "isinstance(dtype, pl.Categorical)",
        "cells of a column would come back as its type",
        one_of(ENGINE_CHUNKS, "a_type_that_lists_its_cells_is_not_told"),
    ),
    Mutant(
        "engine-keeps-who-withdrew",
        "data/engine_table.py",
        "table.chunks = cut_kept_rows(self._files, left, self._rows_at_once)",
        "",
        "people would stay in studies after they withdrew",
        one_of(ENGINE_MEMBERS, "people_who_withdrew_are_left_out"),
    ),
    Mutant(
        "engine-runs-anything",
        "protocol/party/release_control.py",
        "not runs_on_engine(method, variant)",
        "False",
        "a party would be charged for what its engine cannot do",
        ENGINE_CHUNKS,
    ),
    Mutant(
        "engine-names-its-hosts",
        "protocol/party/member.py",
        "if self._table.source is None:\n                raise",
        "raise",
        "a coordinator would learn where a party's cluster is",
        one_of(ENGINE_MEMBERS, "a_lost_engine_tells_nobody_where_it_was"),
    ),
)
