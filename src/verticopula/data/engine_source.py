"""Where a party's table is that workers of its engine read, again before each study that begins."""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from pathlib import Path

from verticopula.data.engine_table import EngineTable
from verticopula.data.scratch_file import ROWS_IN_MEMORY
from verticopula.data.table_source import TableSource
from verticopula.engine.chunk_engine import ChunkEngine
from verticopula.engine.chunk_task import Secret
from verticopula.errors import SettingsError

_PURPOSE = b"verticopula: ids that an engine has"  # the id key has other uses, which it must not be mixed up with


@dataclass(frozen=True)
class EngineSource:
    """A Parquet file, or a folder of them, and the engine whose workers read it.

    Attributes
    ----------
    engine : of the party
    source : where the table is; its files have the same path on all workers
    id_key : of the hashes by which rows are told apart; the same after a restart
    """

    engine: ChunkEngine
    source: TableSource
    id_key: Secret

    @classmethod
    def of(cls, engine: ChunkEngine, source: TableSource, key: bytes | None) -> EngineSource:
        """The source of a party; SettingsError where it has no id key, or its table is in a database.

        Parameters
        ----------
        engine, source : as above
        key : which all parties of its studies hold
        """
        if key is None:
            raise SettingsError("--engine: rows are found by keyed hashes, and this kit has no id key")
        if not isinstance(source.place, Path):
            raise SettingsError("--engine reads Parquet files; this --data is a database")
        return cls(engine, source, Secret(hmac.digest(key, _PURPOSE, "sha256")))

    def read(self) -> EngineTable:
        """The table as it is at this moment; SchemaError or EngineError where workers cannot read it."""
        return EngineTable(self.engine, Path(str(self.source.place)), ROWS_IN_MEMORY, self.id_key)

    def version(self) -> object:
        """What changes whenever a file is written."""
        return self.source.version()
