"""A party's rows among those of others: hashes or masked points of ids, others' points masked, places in a cohort."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from verticopula.data.id_checks import HASH_BYTES, hash_ids, texts_in_parts
from verticopula.data.row_chunks import read_party
from verticopula.data.scratch_file import ROWS_IN_MEMORY
from verticopula.data.tables import AlignedTable, OwnTable
from verticopula.engine.chunk_task import Secret
from verticopula.errors import PolicyRefused, ProtocolError
from verticopula.matching.keyed_hashes import (
    CHECK_BYTES,
    cohort_digest,
    count_repeats,
    hash_order,
    key_check,
    study_key,
)
from verticopula.matching.private_intersection import POINT_BYTES, mask_points, points_of
from verticopula.mpc.sealed_messages import Authenticity
from verticopula.protocol.party.joined_study import JoinedStudy
from verticopula.protocol.party.point_signatures import PointSignatures
from verticopula.protocol.study_messages import MaskReply, MaskRequest, PlaceRequest
from verticopula.schema.federation import Federation

_DIGEST_PURPOSE = b"verticopula: a table that an engine has"  # the key has other uses
_MOST_SUBJECTS = 100_000_000  # of a cohort, or of another party
MOST_CELLS = 2**26  # of a table among a cohort that is much larger: half a gigabyte, before anybody has consented


class RowAlignment:
    """How one party finds the places of its rows, and helps others to find theirs. It stores nothing.

    A `record` is what was agreed about a study; what a method adds to it is for the caller to store.

    Parameters
    ----------
    federation, fingerprint : the party's own file
    table : its own
    key : the id key, which all parties of a study hold and no coordinator; None for studies aligned by `psi` only
    authenticity : how it signs its lists, and knows those of others; None where it cannot, and `psi` is refused
    """

    def __init__(
        self,
        party: str,
        federation: Federation,
        fingerprint: str,
        table: OwnTable,
        key: bytes | None,
        authenticity: Authenticity | None,
    ) -> None:
        if key is not None:
            study_key(key, "")  # a key that is too short is found now
        self.party, self.federation, self._fingerprint = party, federation, fingerprint
        self._table, self._key, self._authenticity = table, key, authenticity
        self._by_id = table.ids.arg_sort().to_numpy().astype(np.int64)
        self._points: dict[str, NDArray[np.uint8]] = {}  # the last study's, by its mask: they take a while

    def check_keys(self, alignment: str) -> None:
        """PolicyRefused unless the party has the key that this way of alignment needs, and its engine knows the way."""
        if alignment == "psi" and self._table.source is not None:
            raise PolicyRefused(f"party {self.party!r}: its engine does not mask points, which alignment 'psi' needs")
        if alignment == "psi" and self._authenticity is None:
            raise PolicyRefused(f"party {self.party!r} has no key to sign its points with, which alignment 'psi' needs")
        if alignment == "hash":
            self._hash_key()

    def _hash_key(self) -> bytes:
        if self._key is None:
            raise PolicyRefused(f"party {self.party!r} has no id key, which alignment 'hash' needs")
        return self._key

    def hashes(self, study: str, record: JoinedStudy) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Every row's hash, or its point, in the table's order; and the order in which they are sent."""
        if record.alignment == "hash":
            hashes = self._hash_ids(study_key(self._hash_key(), study))
        else:
            if record.mask not in self._points:
                points = points_of(self._table.ids, study)
                self._points = {record.mask: mask_points(points, bytes.fromhex(record.mask))}
            hashes = self._points[record.mask]
        # A seeded study is no secret anyway, and in the table's order it equals one in a single process.
        return hashes, hash_order(hashes) if record.seed is None else np.arange(hashes.shape[0])

    def _hash_ids(self, key: bytes) -> NDArray[np.uint8]:
        if self._table.source is None:
            return hash_ids(self._table.ids, key)
        return self._table.source.hash_ids(self.federation.id, Secret(key))[0]

    def digest(self, alignment: str, *, seeded: bool) -> str:
        """Of all that a study begins with: the table, and for `hash` the key. It stays in the vault."""
        if self._table.source is not None:
            key = hmac.digest(self._hash_key(), _DIGEST_PURPOSE, "sha256")
            return self._table.source.digest(self.federation.id, read_party(self._table.party), Secret(key))
        rows = np.arange(self._by_id.size) if seeded else self._by_id  # only a seeded study sends its rows in order
        digest = hashlib.sha256(self._hash_key() if alignment == "hash" else b"")
        for texts in texts_in_parts(self._table.ids.gather(rows)):
            digest.update("".join(f"{len(text)}:{text}" for text in texts).encode())
        for column in self._table.columns.values():
            seen, values = column.observed[rows], column.values
            digest.update(seen.tobytes())
            for start in range(0, rows.size, ROWS_IN_MEMORY):
                some = slice(start, start + ROWS_IN_MEMORY)
                digest.update(np.where(seen[some], values[rows[some]], 0.0).tobytes())
        return digest.hexdigest()

    def prove_key(self, study: str, record: JoinedStudy) -> NDArray[np.uint8]:
        """What shows that all parties have the same id key; zeros where none is needed."""
        return key_check(self._hash_key(), study) if record.alignment == "hash" else np.zeros(CHECK_BYTES, np.uint8)

    def sign_points(self, study: str, record: JoinedStudy, points: NDArray[np.uint8]) -> bytes:
        """The party's signature of its own list; empty where hashes are sent."""
        return self._signatures().sign(study, (self.party,), points) if record.alignment == "psi" else b""

    # ---- others' points ------------------------------------------------------------------

    def note_list(self, request: MaskRequest, record: JoinedStudy) -> JoinedStudy:
        """The record with the list that is to be masked, or as it was; ProtocolError unless it may be masked."""
        self._check_points(request, record)
        signed, cohort = self._signatures().check(request, record.listed)
        if record.masked.get(request.origin, signed.digest) != signed.digest:
            raise ProtocolError(f"party {self.party!r} has masked another list of {request.origin!r}")
        if record.masked.get(request.origin) == signed.digest:
            return record
        return replace(record, masked={**record.masked, request.origin: signed.digest}, listed=cohort)

    def mask(self, request: MaskRequest, record: JoinedStudy) -> MaskReply:
        """Another party's points, masked and signed."""
        assert request.signed is not None  # `note_list`
        try:
            masked = mask_points(request.points, bytes.fromhex(record.mask))
        except ValueError:
            raise ProtocolError(f"party {self.party!r}: a point among those of {request.origin!r} is none") from None
        signature = self._signatures().sign(request.study, (*request.signed.masked_by, self.party), masked)
        return MaskReply(self.party, request.origin, masked, signature=signature)

    def _signatures(self) -> PointSignatures:
        assert self._authenticity is not None  # `check_keys`
        return PointSignatures(self.party, self.federation, self._fingerprint, self._authenticity, len(self._table.ids))

    def _check_points(self, request: MaskRequest, record: JoinedStudy) -> None:
        late = record.is_placed and request.origin not in record.masked
        if record.alignment != "psi" or late:
            raise ProtocolError(f"party {self.party!r}: nothing is to be masked in this study, or no longer")
        if request.origin == self.party or request.origin not in {p.name for p in self.federation.parties}:
            raise ProtocolError(f"party {self.party!r} masks the points of the other parties only")
        points, n_rows = request.points, len(self._table.ids)
        if points.dtype != np.uint8 or points.ndim != 2 or points.shape[1] != POINT_BYTES:
            raise ProtocolError(f"party {self.party!r}: points have {POINT_BYTES} bytes each")
        cohort = self.federation.response.party
        least, most = n_rows if request.origin == cohort else 1, n_rows if self.party == cohort else _MOST_SUBJECTS
        if not least <= points.shape[0] <= most:
            raise ProtocolError(f"party {self.party!r}: {request.origin!r} cannot have so many subjects of this cohort")

    # ---- places --------------------------------------------------------------------------

    def place(self, request: PlaceRequest, record: JoinedStudy) -> JoinedStudy:
        """The record with the places of the rows; ProtocolError where they cannot be theirs, or are settled."""
        self._check_positions(request)
        if record.listed not in (0, request.n_subjects):
            raise ProtocolError(f"party {self.party!r}: the cohort has another size than was signed")
        hashes, order = self.hashes(request.study, record)
        self._check_cohort(request, record, hashes[order])
        by_row = np.empty_like(request.positions)
        by_row[order] = request.positions
        placed = replace(
            record,
            n_subjects=int(request.n_subjects),
            positions=by_row[self._by_id],
            cohort=cohort_digest(request.hashes),
        )
        if record.is_placed and not record.is_same_place(placed):
            raise ProtocolError(f"party {self.party!r}: the cohort of this study is settled, and it is another one")
        return placed

    def in_cohort(self, record: JoinedStudy) -> AlignedTable:
        """The table with a row for each subject of the study's cohort."""
        positions = np.empty_like(record.positions)
        positions[self._by_id] = record.positions
        return self._table.in_cohort(record.n_subjects, positions)

    def ids_of(self, record: JoinedStudy, subjects: NDArray[np.bool_]) -> list[str]:
        """The ids of some subjects of the cohort, all of them in the table."""
        row_at = np.zeros(record.n_subjects, dtype=np.int64)
        row_at[record.positions] = self._by_id  # positions are in the order of the ids
        found: list[str] = self._table.ids.gather(row_at[subjects]).to_list()
        return found

    def _check_cohort(self, request: PlaceRequest, record: JoinedStudy, own: NDArray[np.uint8]) -> None:
        """ProtocolError unless the cohort's list has this party's rows where it is told they are, and nobody twice.

        With `hash`, whoever holds the key can tell from the list whether somebody is in the cohort. With `psi` a party
        cannot know its own rows in the list: a person's blocks may then stand in several rows, and secure sums are
        priced for that.
        """
        listed = request.hashes
        if count_repeats(listed):
            raise ProtocolError(f"party {self.party!r}: somebody is twice in the cohort's list")
        if record.alignment == "hash" and not np.array_equal(listed[request.positions], own):
            raise ProtocolError(f"party {self.party!r}: the cohort's list has other subjects in the places of its rows")

    def _check_positions(self, request: PlaceRequest) -> None:
        n, positions, n_rows = request.n_subjects, request.positions, len(self._table.ids)
        whole = isinstance(n, int | np.integer) and not isinstance(n, bool)
        if not whole or not n_rows <= n <= max(_MOST_SUBJECTS, n_rows):
            raise ProtocolError(f"party {self.party!r}: the cohort cannot have this size")
        if n > 10 * n_rows and n * len(self._table.party.columns) > MOST_CELLS:
            raise ProtocolError(f"party {self.party!r}: its table in a cohort of this size would not fit into memory")
        # Before anything of its size is made here: who names many subjects has sent a hash for each of them.
        if request.hashes.dtype != np.uint8 or request.hashes.shape != (n, HASH_BYTES):
            raise ProtocolError(f"party {self.party!r}: the cohort's list does not have a hash for each subject")
        if self.federation.response.party == self.party and n != n_rows:
            raise ProtocolError(f"party {self.party!r}: its own {n_rows} subjects are the cohort")
        if not isinstance(positions, np.ndarray) or positions.dtype != np.int64 or positions.shape != (n_rows,):
            raise ProtocolError(f"party {self.party!r}: expected a place for each of its {n_rows} rows")
        if positions.min() < 0 or positions.max() >= n:
            raise ProtocolError(f"party {self.party!r}: a place lies outside the cohort")
        if np.bincount(positions, minlength=n).max() > 1:
            raise ProtocolError(f"party {self.party!r}: two rows have the same place in the cohort")
