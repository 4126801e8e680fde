"""Exact sums of products of field elements through floating point: five products of numbers for one of elements.

An element is a signed number v = A + 2^20 B + 2^40 C of three limbs, so a product of two is one of two polynomials in
2^20, which has five coefficients. It is known from its values at five points (Toom and Cook): each element is written
as the values of A + B x + C x^2 at 0, 1, -1, 1/2 (times four) and infinity, its *planes*. Sums of products of planes
are whole numbers below 2^53 in absolute value for 512 rows, so floating point makes no error. Coefficients follow from
them modulo p, where one can divide by 2 and 3.

Planes of one cell or feature are as long as there are rows, so a processor multiplies as many rows at once as it can.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from verticopula.errors import ProtocolError
from verticopula.mpc.prime_field import HALF, PRIME, Field, Ints, add, element, multiply

Floats = NDArray[np.float64]

LIMB_BITS = 20
PLANES = 5
PLANE_ROWS = 2 ** (53 - 44)  # of which products of planes, below 2^44 each, add up to at most 2^53
BLOCKS_AT_ONCE = 2 ** (62 - 53)  # blocks whose sums and an element add up below 2^63
TILE = 4  # planes on each side of a tile; columns are filled up with planes of 0
_SQUARE = 32  # columns whose planes stay in the processor's cache while they meet all others
_IN_ANY_ORDER = {"reassoc", "contract", "nsz"}  # whole numbers: sums in any order are the same


def _plane_factors() -> tuple[int, ...]:
    """What the sum of products of each plane counts in the sum of products of elements."""
    half, third, base = pow(2, -1, PRIME), pow(3, -1, PRIME), 1 << LIMB_BITS

    def combine(zero: int, plus: int, minus: int, twice: int, infinity: int) -> int:
        even, odd = (plus + minus) * half, (plus - minus) * half
        second = even - zero - infinity
        first = ((twice - 16 * zero - 4 * second - infinity) * half - odd) * third
        coefficients = zero, first, second, odd - first, infinity
        return int(sum(c * base**power for power, c in enumerate(coefficients)) % PRIME)

    return tuple(combine(*(int(plane == other) for other in range(PLANES))) for plane in range(PLANES))


_FACTORS = _plane_factors()


def padded(columns: int) -> int:
    """How many columns' planes there is room for: a multiple of the tile's."""
    return -(-columns // TILE) * TILE


def join_planes(sums: Ints) -> Field:
    """Sums of products of elements from those of their planes.

    Parameters
    ----------
    sums : (planes, ...)
    """
    parts = np.mod(sums, PRIME).astype(np.uint64)
    whole = np.zeros(parts.shape[1:], dtype=np.uint64)
    for part, factor in zip(parts, _FACTORS, strict=True):
        whole = add(whole, multiply(part, element(factor)))
    return whole


@njit(cache=True, nogil=True)
def write_planes(values: Field, start: int, step: int, out: Floats) -> None:
    """Write the planes of some elements, one behind the other, `step` numbers apart.

    Limbs are from -2^19 to 2^19, the highest ones up to twice as far from 0, so planes are at most 2^22.
    """
    half, prime, base = np.int64(HALF), np.int64(PRIME), np.int64(1 << LIMB_BITS)
    middle = base >> 1
    size = values.size
    zero, plus = out[start : start + size], out[start + step : start + step + size]
    minus, twice = out[start + 2 * step : start + 2 * step + size], out[start + 3 * step : start + 3 * step + size]
    infinity = out[start + 4 * step : start + 4 * step + size]
    for row in range(size):
        value = np.int64(values[row])
        value = value - prime if value >= half else value
        low = ((value + middle) & (base - 1)) - middle
        value = (value - low) >> LIMB_BITS
        centre = ((value + middle) & (base - 1)) - middle
        high = (value - centre) >> LIMB_BITS
        zero[row] = np.float64(low)
        plus[row] = np.float64(low + high + centre)
        minus[row] = np.float64(low + high - centre)
        twice[row] = np.float64(4 * low + 2 * centre + high)
        infinity[row] = np.float64(high)


@njit(cache=True, nogil=True, fastmath=_IN_ANY_ORDER)
def multiply_tile(planes: Floats, left: int, right: int, rows: int, out: Floats) -> None:
    """Sums over rows of products of four columns' numbers with four others', each `rows` numbers long: (4, 4)."""
    # Slices, so that no place can be counted from the end: the loop is compiled to vectors then.
    a, b = planes[left : left + rows], planes[left + rows : left + 2 * rows]
    c, d = planes[left + 2 * rows : left + 3 * rows], planes[left + 3 * rows : left + 4 * rows]
    e, f = planes[right : right + rows], planes[right + rows : right + 2 * rows]
    g, h = planes[right + 2 * rows : right + 3 * rows], planes[right + 3 * rows : right + 4 * rows]
    ae = af = ag = ah = be = bf = bg = bh = ce = cf = cg = ch = de = df = dg = dh = 0.0
    for r in range(rows):
        w, x, y, z = e[r], f[r], g[r], h[r]
        first, second, third, fourth = a[r], b[r], c[r], d[r]
        ae += first * w
        af += first * x
        ag += first * y
        ah += first * z
        be += second * w
        bf += second * x
        bg += second * y
        bh += second * z
        ce += third * w
        cf += third * x
        cg += third * y
        ch += third * z
        de += fourth * w
        df += fourth * x
        dg += fourth * y
        dh += fourth * z
    out[0, 0], out[0, 1], out[0, 2], out[0, 3] = ae, af, ag, ah
    out[1, 0], out[1, 1], out[1, 2], out[1, 3] = be, bf, bg, bh
    out[2, 0], out[2, 1], out[2, 2], out[2, 3] = ce, cf, cg, ch
    out[3, 0], out[3, 1], out[3, 2], out[3, 3] = de, df, dg, dh


@njit(cache=True, nogil=True)
def add_products(planes: Floats, left: int, right: int, rows: int, shape: tuple[int, int], sums: Ints) -> None:
    """Add the products of two columns' planes to what is there.

    Parameters
    ----------
    planes : of each column those of all its cells, filled up to `padded`, plane by plane
    left, right : where the two columns begin
    shape : how many cells they have
    sums : (planes * cells * cells,)
    """
    tile = np.empty((TILE, TILE))
    first, second = -(-shape[0] // TILE) * TILE, -(-shape[1] // TILE) * TILE
    for plane in range(PLANES):
        for i in range(0, first, TILE):
            for j in range(0, second, TILE):
                multiply_tile(
                    planes, left + (plane * first + i) * rows, right + (plane * second + j) * rows, rows, tile
                )
                for a in range(i, min(i + TILE, shape[0])):
                    place = (plane * shape[0] + a) * shape[1]
                    for b in range(j, min(j + TILE, shape[1])):
                        sums[place + b] += np.int64(tile[a - i, b - j])


@njit(cache=True, nogil=True)
def _fill_planes(values: Field, out: Floats) -> None:
    """Planes of a matrix: of each column one behind the other, the columns filled up with zeros."""
    rows, width = values.shape
    step = -(-width // TILE) * TILE * rows
    own = np.empty(rows, dtype=np.uint64)
    for column in range(width):
        for row in range(rows):
            own[row] = values[row, column]
        write_planes(own, column * rows, step, out)
    for plane in range(PLANES):
        out[plane * step + width * rows : (plane + 1) * step] = 0.0


@njit(cache=True, nogil=True)
def _add_squares(planes: Floats, rows: int, columns: Ints, sums: Ints) -> None:
    """Add the products of all columns with each other, those of each pair once."""
    tile, width = np.empty((TILE, TILE)), columns.size
    filled = -(-width // TILE) * TILE
    for plane in range(PLANES):
        begin = plane * filled
        for first in range(0, filled, _SQUARE):
            for j in range(first, filled, TILE):
                for i in range(first, min(first + _SQUARE, j + TILE), TILE):
                    multiply_tile(planes, (begin + i) * rows, (begin + j) * rows, rows, tile)
                    for a in range(i, min(i + TILE, width)):
                        for b in range(max(a, j), min(j + TILE, width)):
                            sums[plane, columns[a], columns[b]] += np.int64(tile[a - i, b - j])


class GramSum:
    """The sum of X'X over blocks of rows, each with some of the columns: (q, q), symmetric."""

    def __init__(self, width: int) -> None:
        self._sums = np.zeros((PLANES, width, width), dtype=np.int64)
        self._blocks = 0

    def add(self, block: Field, columns: Ints) -> None:
        """Add a block's Gram matrix.

        Parameters
        ----------
        block : (n, columns)
        columns : which these are, in order
        """
        if block.dtype != np.uint64 or block.ndim != 2 or block.shape[1] != columns.size:
            raise ProtocolError("a Gram matrix is that of a matrix of field elements")
        room = np.empty(PLANES * padded(columns.size) * min(PLANE_ROWS, len(block)))
        for start in range(0, len(block), PLANE_ROWS):
            rows = np.ascontiguousarray(block[start : start + PLANE_ROWS])
            _fill_planes(rows, room)
            _add_squares(room, len(rows), columns, self._sums)
            self._blocks += 1
            if self._blocks % BLOCKS_AT_ONCE == 0:
                self._sums %= PRIME

    def total(self) -> Field:
        """The sum so far."""
        upper = join_planes(self._sums)
        return np.asarray(np.triu(upper) + np.triu(upper, 1).T)


def cross_product(first: Field, second: Field) -> Field:
    """X'Y of an (n, q) and an (n, r) matrix: (q, r)."""
    if first.dtype != np.uint64 or second.dtype != np.uint64 or first.shape[:1] != second.shape[:1]:
        raise ProtocolError("a product is that of two matrices of field elements with the same rows")
    shape = first.shape[1], second.shape[1]
    sums = np.zeros(PLANES * shape[0] * shape[1], dtype=np.int64)
    for number, start in enumerate(range(0, len(first), PLANE_ROWS)):
        left, right = first[start : start + PLANE_ROWS], second[start : start + PLANE_ROWS]
        middle = PLANES * padded(shape[0]) * len(left)
        room = np.empty(middle + PLANES * padded(shape[1]) * len(left))
        _fill_planes(np.ascontiguousarray(left), room[:middle])
        _fill_planes(np.ascontiguousarray(right), room[middle:])
        add_products(room, 0, middle, len(left), shape, sums)
        if number % BLOCKS_AT_ONCE == BLOCKS_AT_ONCE - 1:
            sums %= PRIME
    return join_planes(sums.reshape(PLANES, *shape))
