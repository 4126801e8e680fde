"""A proof on shares that every row of every column is one-hot: fully linear, with one fold and no Fiat-Shamir.

After Boneh, Boyle, Corrigan-Gibbs, Gilboa and Ishai (CRYPTO 2019, "Zero-Knowledge Proofs on Secret-Shared Data via
Fully Linear PCPs") and Boyle, Gilboa, Ishai and Nof (CCS 2019). Everything is modulo p = 2^61 - 1.

**Statement.** x in F^(c-1) is a row's part for a column with c cells (`verified_cells.py`). It is good if it is 0 or a
unit vector. Take r in F^(c-1), uniform and chosen when x is fixed. Then

    <x, r>^2 - <x, r o r> = sum_l (x_l^2 - x_l) r_l^2 + 2 sum_(l<m) x_l x_m r_l r_m

as a polynomial in r is zero if and only if x_l is 0 or 1 for all l and no two of them are 1 (p is odd). So a good x
makes it 0 for every r. For another x it is a polynomial of degree 2 other than zero, and by Schwartz and Zippel it is
0 for at most 2/p of all r. Where r were known before x is fixed, a dealer would solve for such an x.
One r serves all rows of a column: it suffices that one bad x stays bad.

**One equation.** Number rows and columns m = 0, 1, ..., M - 1 and write u_m = <x_m, r>, v_m = <x_m, r o r>, both linear
in the shares. With m = s k + i, 0 <= i < k, and uniform lambda in F^k, sigma in F^S, the equation is

    sum_(s,i) lambda_i sigma_s (u_(s,i)^2 - v_(s,i)) = 0.

If some u_m^2 - v_m is not 0, its left side is a polynomial of degree 2 in (lambda, sigma) other than zero: it is 0 with
probability at most 2/p.

**Fold.** h_s is the polynomial of degree k with h_s(i) = u_(s,i) for i < k and h_s(k) = w_s, a uniform mask that the
dealer chooses. The dealer shares w and the values at 0, ..., 2k of Q = sum_s sigma_s h_s^2, of degree 2k. When these
shares are with the verifiers, they choose t uniformly in F without {0, ..., k-1}. They open three linear functions of
their shares,

    d = sum_(i<k) lambda_i Q(i) - sum_m lambda_i sigma_s v_m,    Q(t),    h_s(t) for all s,

and accept if d = 0 and Q(t) = sum_s sigma_s h_s(t)^2. If the one equation is false, a dealer whose d is 0 has shared
another Q than the true one. Two polynomials of degree 2k agree on at most 2k of the p - k possible t.

**Soundness.** Whatever a dealer shares, if some x is not good then honest verifiers accept with probability at most

    2/p + 2/p + 2k/(p - k)  <=  (2k + 4)/(p - k),

for k = 64 below 2^-53, plus what it takes to tell AES-128 in counter mode from uniform elements (r, lambda and sigma
are expanded from a 32-byte seed that is independent of x) and to break the commitments to the seeds.

**Zero knowledge.** An honest dealer's shares of w and Q are uniform to each verifier. Of what is opened, d is 0. Each
h_s(t) has the term L_k(t) w_s, where L_k(t) is not 0 because t is none of 0, ..., k-1; w_s is uniform and used once. So
all h_s(t) are independent and uniform, and Q(t) = sum_s sigma_s h_s(t)^2 follows from them. A simulator draws h,
computes Q(t), and gives as another verifier's part the opened value minus the parts that the adversary holds. It holds
all parts but one, so that is all it sees. A verifier that lies about its own part learns whether the others then
accept; that is a function of h, uniform and independent of the cells. Nothing of this needs the adversary to follow
the protocol, as long as it gets openings for one challenge and one t only: `proof_rounds.py` sees to that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numba import njit

from verticopula.errors import ProtocolError
from verticopula.mpc.prime_field import (
    FIELD_SEED_BYTES,
    PRIME,
    Field,
    Ints,
    add,
    add_into,
    add_one,
    draw_field,
    expand_field,
    inner_product,
    multiply,
    multiply_one,
    pack_field,
    subtract,
    unpack_field,
    weighted_gram,
)
from verticopula.mpc.verified_cells import (
    N_COMPUTE,
    ROWS_MULTIPLE,
    CellsStatement,
    Codes,
    HeldCells,
    Share,
    ShareReader,
    column_starts,
    derive_bytes,
    held_indices,
    row_blocks,
)
from verticopula.privacy.noise import Keystream

FOLD = ROWS_MULTIPLE  # k above: the dealer's work grows with it, what verifiers open shrinks with it
PROOF_VALUES = 2 * FOLD + 1


def folded_size(statement: CellsStatement) -> int:
    """S: how many numbers are opened of a fold."""
    return -(-statement.rows * len(statement.cells) // FOLD)


# ---- who holds what ----------------------------------------------------------------------


@dataclass(frozen=True)
class ProofPart:
    """One of the parts into which cells and proof are split.

    Attributes
    ----------
    shares : the part's cells are the sum of these shares
    holders : the verifiers that can compute with it
    """

    shares: tuple[int, ...]
    holders: tuple[str, ...]


def pieces_of(statement: CellsStatement) -> tuple[ProofPart, ...]:
    """The parts that sum up to the cells; every verifier lacks exactly one of them.

    Where the dealer i computes: S_(i+1) + S_(i+2) at the one verifier, S_i at the other; both are honest if the
    dealer is not. Where it does not: the three shares, each at two verifiers, of which one is honest at least. What
    two holders open of a part must be equal, so the dishonest one changes nothing.
    """
    names = statement.compute
    if statement.dealer in names:
        dealer = names.index(statement.dealer)
        after, last = (dealer + 1) % N_COMPUTE, (dealer + 2) % N_COMPUTE
        return ProofPart((after, last), (names[after],)), ProofPart((dealer,), (names[last],))
    return tuple(
        ProofPart((index,), tuple(name for i, name in enumerate(names) if index in held_indices(i)))
        for index in range(N_COMPUTE)
    )


def held_pieces(statement: CellsStatement, verifier: str) -> tuple[int, ...]:
    """The numbers of the parts that a verifier holds."""
    return tuple(number for number, piece in enumerate(pieces_of(statement)) if verifier in piece.holders)


def lacked_piece(statement: CellsStatement, verifier: str) -> int:
    """The number of the part that a verifier does not hold."""
    held = held_pieces(statement, verifier)
    (lacked,) = (number for number in range(len(pieces_of(statement))) if number not in held)
    return lacked


def piece_shares(held: HeldCells, piece: ProofPart) -> tuple[Share, ...]:
    """The shares whose sum is a part, at one of its holders."""
    shares = dict(zip(held_indices(held.index), (held.first, held.second), strict=True))
    return tuple(shares[index] for index in piece.shares)


# ---- challenges --------------------------------------------------------------------------


@dataclass(frozen=True)
class ProofCoefficients:
    """The first challenge.

    Attributes
    ----------
    weights, squares : (width,) r and r o r, for each number of a row
    within, across : (k,) lambda and (S,) sigma
    """

    weights: Field
    squares: Field
    within: Field
    across: Field


def draw_coefficients(statement: CellsStatement, seed: bytes) -> ProofCoefficients:
    """The coefficients that a seed stands for."""
    key = derive_bytes(seed, "coefficients", statement.digest)[:FIELD_SEED_BYTES]
    drawn = expand_field(key, (statement.width + FOLD + folded_size(statement),))
    weights, within, across = np.split(drawn, (statement.width, statement.width + FOLD))
    return ProofCoefficients(weights, multiply(weights, weights), within, across)


def draw_point(statement: CellsStatement, seed: bytes) -> int:
    """The point t that a seed stands for: uniform in the field without 0, ..., k-1."""
    stream = Keystream(derive_bytes(seed, "point", statement.digest)[:FIELD_SEED_BYTES])
    while True:
        point = int(draw_field(stream, 1)[0])
        if is_open_point(point):
            return point


def is_open_point(point: int) -> bool:
    """Whether openings at this point are masked."""
    return FOLD <= point < PRIME


def lagrange_basis(degree: int, point: int) -> Field:
    """(degree + 1,) the weights with which values at 0, ..., degree give a polynomial's value at `point`."""
    before, after = [1], [1]
    for node in range(degree):
        before.append(before[-1] * (point - node) % PRIME)
        after.append(after[-1] * (point - degree + node) % PRIME)
    weights = zip(before, reversed(after), _inverse_denominators(degree), strict=True)
    return np.array([left * right * below % PRIME for left, right, below in weights], dtype=np.uint64)


@lru_cache(maxsize=8)
def _inverse_denominators(degree: int) -> tuple[int, ...]:
    """1 / product of (node - other) over all other nodes of 0, ..., degree."""
    factorials = [1]
    for number in range(1, degree + 1):
        factorials.append(factorials[-1] * number % PRIME)
    signs = (-1 if (degree - node) % 2 else 1 for node in range(degree + 1))
    return tuple(
        pow(sign * first * second, -1, PRIME)
        for sign, first, second in zip(signs, factorials, reversed(factorials), strict=True)
    )


# ---- proving -----------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class ExpandedProof:
    """A part's share of a proof.

    Attributes
    ----------
    values : (2k + 1,) of Q at 0, ..., 2k
    masks : (S,) of w
    """

    values: Field
    masks: Field


def expand_proof(statement: CellsStatement, seed: bytes, correction: bytes) -> ExpandedProof:
    """A part's share of a proof from its seed, and for the last part the bytes that make the sum right."""
    drawn = expand_field(seed, (PROOF_VALUES + folded_size(statement),))
    values, masks = drawn[:PROOF_VALUES], drawn[PROOF_VALUES:]
    if correction:
        values = add(values, unpack_field(correction, (PROOF_VALUES,)))
    return ExpandedProof(values, masks)


def fold_codes(statement: CellsStatement, codes: Codes, coefficients: ProofCoefficients) -> Iterator[Field]:
    """(S, k) the dealer's u, from its own cells, some groups at a time.

    Parameters
    ----------
    codes : checked
    """
    table = np.zeros((len(statement.cells), max(statement.cells)), dtype=np.uint64)
    for column, start in enumerate(column_starts(statement)):
        width = statement.cells[column] - 1
        table[column, :width] = coefficients.weights[start : start + width]
    for rows in row_blocks(statement):
        values = np.take_along_axis(table.T, codes[rows].astype(np.int64), axis=0).reshape(-1)
        yield np.append(values, np.zeros(-values.size % FOLD, dtype=np.uint64)).reshape(-1, FOLD)


def prove_fold(folded: Iterable[Field], masks: Field, coefficients: ProofCoefficients) -> Field:
    """(2k + 1,) the values of Q at 0, ..., 2k.

    Parameters
    ----------
    folded : (S, k) u, in parts
    masks : (S,) w
    """
    products, done = np.zeros((FOLD + 1, FOLD + 1), dtype=np.uint64), 0
    for part in folded:
        groups = slice(done, done + len(part))
        whole = np.column_stack([part, masks[groups]])
        products = add(products, weighted_gram(whole, coefficients.across[groups]))
        done = groups.stop
    values = [int(value) for value in np.diag(products)]
    for point in range(FOLD + 1, PROOF_VALUES):
        basis = lagrange_basis(FOLD, point)
        values.append(inner_product(multiply(basis[:, None], basis[None, :]), products))
    return np.array(values, dtype=np.uint64)


def prove_codes(
    statement: CellsStatement, codes: Codes, coefficients: ProofCoefficients, seeds: tuple[bytes, ...]
) -> bytes:
    """The correction of the last part's share, from one seed for each part.

    Privacy
    -------
    To the holders of the last part, who lack the seed of another one: uniform elements.
    """
    if len(seeds) != len(pieces_of(statement)):
        raise ProtocolError("a proof has one seed for each part")
    return prove_values(statement, fold_codes(statement, codes, coefficients), coefficients, seeds)


def prove_values(
    statement: CellsStatement, folded: Iterable[Field], coefficients: ProofCoefficients, seeds: tuple[bytes, ...]
) -> bytes:
    """The same for any u, also one that is not from good cells."""
    shares = [expand_proof(statement, seed, b"") for seed in seeds]
    masks, drawn = shares[0].masks, shares[0].values
    for share in shares[1:]:
        masks, drawn = add(masks, share.masks), add(drawn, share.values)
    return pack_field(subtract(prove_fold(folded, masks, coefficients), drawn))


# ---- verifying ---------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class PieceOpening:
    """A part's share of what is opened: d, Q(t) and (S,) h(t)."""

    difference: int
    value: int
    folded: Field


def open_piece(
    shares: Sequence[Share], proof: ExpandedProof, coefficients: ProofCoefficients, point: int
) -> PieceOpening:
    """The three linear functions of a part's cells and proof; ProtocolError where `point` has no mask.

    Parameters
    ----------
    shares : those that sum up to the part's cells

    Privacy
    -------
    To the verifiers. Together with all other parts: 0, uniform elements, and a function of these.
    """
    if not is_open_point(point):
        raise ProtocolError("the point of a proof is one that the cells stand on")
    statement, basis = shares[0].statement, lagrange_basis(FOLD, point)
    folded, linear, done = multiply(proof.masks, basis[FOLD]), 0, 0
    starts = np.array((*column_starts(statement), statement.width), dtype=np.int64)
    readers, room = [ShareReader(share) for share in shares], np.empty((0, 0, 0), dtype=np.uint64)
    for rows in row_blocks(statement):
        size = rows.stop - rows.start
        room = room if room.size else np.empty((len(readers), size, statement.width), dtype=np.uint64)
        cells = readers[0].read(room[0, :size])
        for number, reader in enumerate(readers[1:], start=1):
            cells = add_into(cells, reader.read(room[number, :size]))
        linear += int(
            _fold_shares(
                cells,
                starts,
                coefficients.weights,
                coefficients.squares,
                coefficients.within,
                coefficients.across[done:],
                basis,
                folded[done:],
            )
        )
        done += size * len(statement.cells) // FOLD
    claimed = inner_product(coefficients.within, proof.values[:FOLD])
    value = inner_product(lagrange_basis(2 * FOLD, point), proof.values)
    return PieceOpening((claimed - linear) % PRIME, value, folded)


@njit(cache=True, nogil=True)
def _fold_shares(
    cells: Field,
    starts: Ints,
    weights: Field,
    squares: Field,
    within: Field,
    across: Field,
    basis: Field,
    folded: Field,
) -> np.uint64:
    """Adds sum_i L_i(t) u_(s,i) to `folded`; the sum of lambda_i sigma_s v_(s,i)."""
    total = np.uint64(0)
    group = np.uint64(0)  # of one s, without its sigma
    s, i = 0, 0
    for row in range(cells.shape[0]):
        for column in range(starts.size - 1):
            u = np.uint64(0)
            v = np.uint64(0)
            for place in range(starts[column], starts[column + 1]):
                x = cells[row, place]
                u = add_one(u, multiply_one(x, weights[place]))
                v = add_one(v, multiply_one(x, squares[place]))
            folded[s] = add_one(folded[s], multiply_one(basis[i], u))
            group = add_one(group, multiply_one(within[i], v))
            i += 1
            if i == FOLD:
                total = add_one(total, multiply_one(across[s], group))
                group = np.uint64(0)
                s, i = s + 1, 0
    if i > 0:
        total = add_one(total, multiply_one(across[s], group))
    return total


def is_accepted(openings: tuple[PieceOpening, ...], coefficients: ProofCoefficients) -> bool:
    """Whether the sum of all parts' openings shows good cells."""
    difference = sum(opening.difference for opening in openings) % PRIME
    value = sum(opening.value for opening in openings) % PRIME
    folded = openings[0].folded
    for opening in openings[1:]:
        folded = add(folded, opening.folded)
    expected = inner_product(coefficients.across, multiply(folded, folded))
    return difference == 0 and value == expected


def pack_opening(opening: PieceOpening) -> bytes:
    """An opening as bytes."""
    head = np.array([opening.difference, opening.value], dtype=np.uint64)
    return pack_field(np.concatenate([head, opening.folded]))


def unpack_opening(statement: CellsStatement, data: bytes) -> PieceOpening:
    """An opening from bytes; ProtocolError where it is none of this statement."""
    values = unpack_field(data, (2 + folded_size(statement),))
    return PieceOpening(int(values[0]), int(values[1]), values[2:])
