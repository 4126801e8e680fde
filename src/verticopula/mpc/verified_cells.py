"""Replicated shares of one-hot cells modulo p = 2^61 - 1, and tags with which two holders compare a share.

**Cells.** A column with c cells is c - 1 numbers a row: x_l = 1 where the row is in cell l, and all are 0 where it is
in the last one. The last indicator is 1 - sum x_l, a public affine map, so a row's indicators sum to 1 whatever is
shared. What `cell_proofs.py` proves is that x is one of the c vectors 0, e_1, ..., e_(c-1).

**Shares.** X = S_0 + S_1 + S_2 modulo p. Compute party i holds S_i and S_(i+1), indices modulo 3: any two
parties' shares give X, and any one's are uniform whatever X is. Every share
is a keystream P_i of a 16-byte seed, except that one of them, S_t, has a correction added, the *body*:

    body = X - P_0 - P_1 - P_2,    S_t = P_t + body.

Whoever lacks one of the seeds cannot tell the body from uniform elements. Every compute party but the dealer lacks
one, and so does the coordinator that carries the body: it travels in clear, with its SHA-256 in the sealed messages.
A dealer that computes chooses for S_t a share that it holds itself, so one party only is sent the body. A dealer that
does not compute uploads it once, and two parties are sent the same bytes.

**Consistency.** A share is a function of its seed, and S_t of its seed and the body. So two holders of a share have
the same one if seed and body's digest are equal (SHA-256 is collision resistant). They compare an HMAC of both under
their common key, bound to the statement. The tag says nothing to whoever lacks the key.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from verticopula.data.scratch_file import forget_pages, keep_bytes
from verticopula.errors import ProtocolError
from verticopula.mpc.prime_field import (
    ELEMENT_BYTES,
    FIELD_SEED_BYTES,
    PRIME,
    Field,
    FieldStream,
    Ints,
    pack_field,
)
from verticopula.mpc.sealed_messages import join_with_lengths

Codes = NDArray[np.integer]
Bytes = NDArray[np.uint8]

NO_BYTES: Bytes = np.empty(0, dtype=np.uint8)

N_COMPUTE = 3
TAG_BYTES = 32
LEAST_SECRET = 16
NUMBERS_AT_ONCE = 2**20  # of a share, eight bytes each
NUMBERS_IN_CACHE = 2**15  # of a share, so few that they stay in the processor's cache
ROWS_MULTIPLE = 64  # of which a block of rows has a multiple, so that a proof's groups end with it
_CODES_AT_ONCE = 2**16  # rows
_VERSION = "verticopula verified cells 1"


@dataclass(frozen=True)
class CellsStatement:
    """What one dealer states about one dealing. All of it is public, and its digest is in every message.

    Every party makes it from its own plan and federation file; nobody takes it from a message.

    Attributes
    ----------
    study : the study's name
    plan : digest of the plan, of which every party has made sure that it is the same
    dealer : whose cells they are
    compute : the three that hold shares; the dealer may be one of them
    opening : number of the opening in the study; there is one dealing for each
    rows : how many rows the dealer shares; who is missing is public
    cells : for every column its number of cells, at least two
    """

    study: str
    plan: str
    dealer: str
    compute: tuple[str, str, str]
    opening: int
    rows: int
    cells: tuple[int, ...]

    @property
    def width(self) -> int:
        """How many numbers are shared a row."""
        return sum(self.cells) - len(self.cells)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and numbers a row of a share."""
        return self.rows, self.width

    @property
    def digest(self) -> str:
        """SHA-256 of all of it."""
        fields = (self.study, self.plan, self.dealer, *self.compute, str(self.opening), str(self.rows))
        return digest_of("statement", *fields, *map(str, self.cells)).hex()


def check_statement(statement: CellsStatement) -> None:
    """ProtocolError where the statement contradicts itself, or its body does not fit in one message."""
    if len(set(statement.compute)) != N_COMPUTE or statement.opening < 0:
        raise ProtocolError("verified cells have three different compute parties, and openings count from 0")
    if statement.rows < 1 or not statement.cells or min(statement.cells) < 2:
        raise ProtocolError("verified cells need a row, and columns of at least two cells")
    if statement.rows * sum(statement.cells) >= 2**40:
        raise ProtocolError("there are too many cells")


def verifiers_of(statement: CellsStatement) -> tuple[str, ...]:
    """The compute parties other than the dealer: two where the dealer computes, three otherwise."""
    return tuple(name for name in statement.compute if name != statement.dealer)


def body_share(statement: CellsStatement) -> int:
    """t: the share that has the body added."""
    if statement.dealer in statement.compute:
        return (statement.compute.index(statement.dealer) + 1) % N_COMPUTE
    return N_COMPUTE - 1


def body_receivers(statement: CellsStatement) -> tuple[str, ...]:
    """The compute parties that are sent the body: the holders of S_t but the dealer."""
    place = body_share(statement)
    names = (name for index, name in enumerate(statement.compute) if place in held_indices(index))
    return tuple(name for name in names if name != statement.dealer)


def held_indices(index: int) -> tuple[int, int]:
    """Which two shares compute party `index` holds."""
    return index, (index + 1) % N_COMPUTE


# ---- dealing -----------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class CellsBundle:
    """The content of a sealed message from a dealer to one compute party.

    Attributes
    ----------
    statement : digest of the statement
    seeds : those of the two shares it holds, in the order of `held_indices`
    body : SHA-256 of the body
    """

    statement: str
    seeds: tuple[bytes, ...]
    body: bytes


@dataclass(frozen=True, repr=False)
class CellsDealing:
    """All that a dealer sends in the first round.

    Attributes
    ----------
    bundles : compute party -> what is sealed for it; a dealer that computes keeps its own
    body : for each of `body_receivers`, in clear; a long one lies on disk
    """

    bundles: Mapping[str, CellsBundle]
    body: Bytes


@dataclass(frozen=True, repr=False)
class Share:
    """One share of a dealing: what it follows from, never all of its numbers.

    Attributes
    ----------
    added, subtracted : seeds of keystreams
    body : added, too; empty where it is part of another share
    codes : (n, columns) cells whose numbers are added, too; a computing dealer's
    """

    statement: CellsStatement
    added: tuple[bytes, ...] = ()
    subtracted: tuple[bytes, ...] = ()
    body: Bytes | None = None
    codes: Codes | None = None


class ShareReader:
    """Reads a share from its first row on, some rows at a time: however it is cut, the numbers are the same."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._body = None if share.body is None else np.asarray(share.body)  # views of mapped arrays cost more
        statement = share.statement
        size = statement.rows * statement.width
        self._added = [FieldStream(seed, size) for seed in share.added]
        self._subtracted = [FieldStream(seed, size) for seed in share.subtracted]
        self._done = 0
        self._unforgotten = 0  # numbers read since mapped pages were last forgotten

    def read(self, out: Field) -> Field:
        """The next rows, written into a contiguous (rows, width) array."""
        step = max(NUMBERS_IN_CACHE // self._share.statement.width, 1)
        for start in range(0, len(out), step):
            self._read_some(out[start : start + step])
        return out

    def _read_some(self, out: Field) -> None:
        """So few that they stay in the processor's cache."""
        share, start, stop = self._share, self._done, self._done + len(out)
        if self._body is not None:
            width = ELEMENT_BYTES * share.statement.width
            out[:] = self._body[start * width : stop * width].view("<u8").reshape(out.shape)
        elif share.codes is not None:
            write_numbers(share.statement, share.codes[start:stop], out)
        else:
            out[:] = 0
        for stream in self._added:
            stream.add_to(out)
        for stream in self._subtracted:
            stream.subtract_from(out)
        self._done = stop
        self._unforgotten += out.size
        if self._unforgotten > NUMBERS_AT_ONCE:
            self._unforgotten = 0
            for mapped in (share.body, share.codes):
                if mapped is not None:
                    forget_pages(mapped)


@dataclass(frozen=True, repr=False)
class HeldCells:
    """The two shares of one dealing that a compute party holds.

    Attributes
    ----------
    party : who holds them
    first, second : the shares of `held_indices`
    bundle : what they were made from, the body apart
    """

    statement: CellsStatement
    party: str
    first: Share
    second: Share
    bundle: CellsBundle

    @property
    def index(self) -> int:
        return self.statement.compute.index(self.party)

    @property
    def digest(self) -> str:
        """A digest of both shares, for the holder's own record. It is secret like the shares."""
        return digest_of("held", self.statement.digest, self.party, *self.bundle.seeds, self.bundle.body).hex()


def check_codes(statement: CellsStatement, codes: Codes) -> None:
    """ProtocolError unless `codes` are cell numbers of the statement's rows and columns."""
    shape = (statement.rows, len(statement.cells))
    if not np.issubdtype(codes.dtype, np.integer) or codes.shape != shape:
        raise ProtocolError(f"the cells of {statement.dealer!r} do not have the shape that the plan says")
    for rows in row_blocks(statement):
        block = codes[rows]
        if bool((block < 0).any()) or bool((block >= np.array(statement.cells)).any()):
            raise ProtocolError(f"{statement.dealer!r} has a value outside its column's cells")
    forget_pages(codes)


def row_blocks(statement: CellsStatement) -> Iterator[slice]:
    """All rows, so many at a time that their numbers take little memory."""
    step = max(NUMBERS_AT_ONCE // statement.width // ROWS_MULTIPLE, 1) * ROWS_MULTIPLE
    return (slice(start, min(start + step, statement.rows)) for start in range(0, statement.rows, step))


def encode_cells(statement: CellsStatement, codes: Codes) -> Field:
    """(n, width) the numbers that are shared.

    Parameters
    ----------
    codes : (n, columns) cell numbers, from 0
    """
    check_codes(statement, codes)
    out = np.empty(statement.shape, dtype=np.uint64)
    write_numbers(statement, codes, out)
    return out


def write_numbers(statement: CellsStatement, codes: Codes, out: Field) -> None:
    """The numbers of some rows, written into (rows, width).

    Parameters
    ----------
    codes : (rows, columns), checked
    """
    out[:] = 0
    starts = np.array(column_starts(statement), dtype=np.int64)
    _mark_cells(codes, starts, np.array(statement.cells, dtype=np.int64), out)


@njit(cache=True, nogil=True)
def _mark_cells(codes: Codes, starts: Ints, cells: Ints, out: Field) -> None:
    """A 1 in the place of each row's cell, but for a column's last one."""
    for row in range(len(codes)):
        for column in range(starts.size):
            cell = np.int64(codes[row, column])
            if cell < cells[column] - 1:
                out[row, starts[column] + cell] = 1


def digest_codes(codes: Codes) -> bytes:
    """SHA-256 of all cell numbers, whatever type they have."""
    digest = hashlib.sha256()
    for start in range(0, len(codes), _CODES_AT_ONCE):
        digest.update(np.ascontiguousarray(codes[start : start + _CODES_AT_ONCE]).astype("<i8").data)
    forget_pages(codes)
    return digest.digest()


def column_starts(statement: CellsStatement) -> tuple[int, ...]:
    """Where each column's numbers begin in a row."""
    return tuple(np.concatenate([[0], np.cumsum(np.array(statement.cells) - 1)[:-1]]).tolist())


def deal_cells(statement: CellsStatement, codes: Codes, secret: bytes) -> CellsDealing:
    """The dealing of `codes`; the same one for the same secret and codes.

    Parameters
    ----------
    secret : only the dealer has it; other codes and other statements have other seeds

    Privacy
    -------
    To each compute party two of three seeds and the body: uniform elements, whatever the cells are. To the
    coordinator the body alone, and ciphertexts.
    """
    check_statement(statement)
    check_codes(statement, codes)
    seeds = dealing_seeds(statement, codes, secret)
    reader = ShareReader(Share(statement, subtracted=seeds, codes=codes))
    return _deal(statement, seeds, (reader.read(block) for block in _buffers(statement)))


def dealing_seeds(statement: CellsStatement, codes: Codes, secret: bytes) -> tuple[bytes, ...]:
    """One seed for each share. They depend on the codes: no keystream ever hides two tables."""
    content = digest_codes(codes)
    return tuple(
        derive_bytes(secret, "share", statement.digest, content, str(index))[:FIELD_SEED_BYTES]
        for index in range(N_COMPUTE)
    )


def deal_values(statement: CellsStatement, values: Field, seeds: tuple[bytes, ...]) -> CellsDealing:
    """The dealing of numbers that nobody has looked at: what a dishonest dealer can send as well."""
    body = np.frombuffer(pack_field(values), dtype=np.uint8)
    reader = ShareReader(Share(statement, subtracted=seeds, body=body))
    return _deal(statement, seeds, (reader.read(block) for block in _buffers(statement)))


def _deal(statement: CellsStatement, seeds: tuple[bytes, ...], corrections: Iterable[Field]) -> CellsDealing:
    """The dealing with these corrections, which are used up one after the other."""
    digest = hashlib.sha256()

    def packed() -> Iterator[Bytes]:
        for block in corrections:
            data = block.astype("<u8", copy=False).reshape(-1).view(np.uint8)
            digest.update(data.data)
            yield data

    body = keep_bytes(packed(), ELEMENT_BYTES * statement.rows * statement.width)
    bundles = {
        name: CellsBundle(statement.digest, tuple(seeds[i] for i in held_indices(index)), digest.digest())
        for index, name in enumerate(statement.compute)
    }
    return CellsDealing(bundles, body)


def _buffers(statement: CellsStatement) -> Iterator[Field]:
    """Room for each block of rows; it is the same room, because fresh memory costs more than what is put there."""
    room: Field | None = None
    for rows in row_blocks(statement):
        room = np.empty((rows.stop - rows.start, statement.width), dtype=np.uint64) if room is None else room
        yield room[: rows.stop - rows.start]


def receive_cells(statement: CellsStatement, party: str, bundle: CellsBundle, body: Bytes) -> HeldCells:
    """The shares that `party` was dealt; ProtocolError unless they are of this statement and the body is the dealer's.

    Parameters
    ----------
    body : empty unless `party` holds the share that it is part of
    """
    check_statement(statement)
    if party not in statement.compute:
        raise ProtocolError(f"party {party!r} is no compute party of this study")
    if bundle.statement != statement.digest:
        raise ProtocolError(f"party {party!r}: {statement.dealer!r} dealt its cells for another statement")
    held = held_indices(statement.compute.index(party))
    if len(bundle.seeds) != len(held) or len(bundle.body) != TAG_BYTES:
        raise ProtocolError(f"party {party!r} was dealt shares that are not its own")
    shares = []
    for index, seed in zip(held, bundle.seeds, strict=True):
        if index == body_share(statement):
            _check_body(statement, party, bundle, body)
            shares.append(Share(statement, added=(seed,), body=body))
        else:
            shares.append(Share(statement, added=(seed,)))
    return HeldCells(statement, party, shares[0], shares[1], bundle)


def _check_body(statement: CellsStatement, party: str, bundle: CellsBundle, body: Bytes) -> None:
    """ProtocolError unless the body is the one that was dealt, and consists of elements."""
    digest, largest, width = hashlib.sha256(), 0, ELEMENT_BYTES * statement.width
    if body.shape != (statement.rows * width,):
        raise ProtocolError(f"party {party!r}: the body is not the one that {statement.dealer!r} dealt: another length")
    for rows in row_blocks(statement):
        part = body[rows.start * width : rows.stop * width]
        digest.update(part.data)
        largest = max(largest, int(part.view("<u8").max()))
        forget_pages(body)
    if not hmac.compare_digest(digest.digest(), bundle.body):
        raise ProtocolError(f"party {party!r}: the body is not the one that {statement.dealer!r} dealt")
    if largest >= PRIME:
        raise ProtocolError("a number is not an element of the field")


def own_cells(statement: CellsStatement, codes: Codes, secret: bytes, bundle: CellsBundle) -> HeldCells:
    """The shares that a computing dealer holds itself, as `receive_cells` would make them; the body is not needed.

    S_i is a keystream, and S_(i+1), which has the body, is X - P_i - P_(i+2).
    """
    check_codes(statement, codes)
    index = statement.compute.index(statement.dealer)
    seeds = dealing_seeds(statement, codes, secret)
    others = (seeds[index], seeds[(index + 2) % N_COMPUTE])
    first, second = Share(statement, added=(seeds[index],)), Share(statement, subtracted=others, codes=codes)
    return HeldCells(statement, statement.dealer, first, second, bundle)


# ---- tags --------------------------------------------------------------------------------


def share_tag(held: HeldCells, other: str, key: bytes) -> bytes:
    """The tag of the one share that two compute parties have in common.

    Parameters
    ----------
    key : what the two have in common and nobody else has, for this study

    Privacy
    -------
    To the other holder, which can compute it itself if the shares are equal.
    """
    statement = held.statement
    mine, theirs = held_indices(held.index), held_indices(statement.compute.index(other))
    (common,) = set(mine) & set(theirs)
    body = held.bundle.body if common == body_share(statement) else b""
    seed = held.bundle.seeds[mine.index(common)]
    _check_secret(key)
    return hmac.digest(key, joined("tag", statement.digest, str(common), seed, body), "sha256")


def check_tag(held: HeldCells, other: str, key: bytes, tag: bytes) -> None:
    """ProtocolError unless `other` holds the same share."""
    if not hmac.compare_digest(share_tag(held, other, key), tag):
        raise ProtocolError(
            f"party {held.party!r}: {held.statement.dealer!r} dealt different shares to it and to {other!r}, or one of "
            "the two says so"
        )


# ---- labels ------------------------------------------------------------------------------


def joined(*parts: str | bytes) -> bytes:
    """Every part with its length, after this protocol's version."""
    return join_with_lengths(_VERSION, *parts)


def digest_of(*parts: str | bytes) -> bytes:
    """SHA-256 of all parts."""
    return hashlib.sha256(joined(*parts)).digest()


def derive_bytes(secret: bytes, *parts: str | bytes) -> bytes:
    """32 bytes that nobody without the secret can make, for one use each (HMAC-SHA256)."""
    _check_secret(secret)
    return hmac.digest(secret, joined(*parts), "sha256")


def _check_secret(secret: bytes) -> None:
    if len(secret) < LEAST_SECRET:
        raise ProtocolError(f"a secret has at least {LEAST_SECRET} bytes")
