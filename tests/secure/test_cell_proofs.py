"""The algebra of the proof of one-hot cells, against Python's integers; and what openings say."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from benchmarks.verified_sums import SOUNDNESS_ERROR
from tests.secure.cells_world import (
    DEALERS,
    ForgedProver,
    equation_of,
    exact_folds,
    fold_values,
    forge_dealing,
    make_codes,
    make_statement,
    packed,
)
from verticopula.errors import ProtocolError
from verticopula.mpc.cell_proofs import (
    FOLD,
    PROOF_VALUES,
    ExpandedProof,
    PieceOpening,
    ProofCoefficients,
    draw_coefficients,
    draw_point,
    expand_proof,
    fold_codes,
    folded_size,
    held_pieces,
    is_accepted,
    lacked_piece,
    lagrange_basis,
    open_piece,
    pack_opening,
    piece_shares,
    pieces_of,
    prove_codes,
    prove_fold,
    unpack_opening,
)
from verticopula.mpc.prime_field import PRIME, Field, add, expand_field, invert, subtract
from verticopula.mpc.verified_cells import (
    NO_BYTES,
    CellsDealing,
    CellsStatement,
    Share,
    body_receivers,
    encode_cells,
    receive_cells,
    verifiers_of,
)

HALF = invert(2)
SEED = bytes(range(32))


def open_all(
    statement: CellsStatement,
    dealing: CellsDealing,
    coefficients: ProofCoefficients,
    point: int,
    seeds: tuple[bytes, ...],
    correction: bytes,
) -> tuple[PieceOpening, ...]:
    """Every part's opening, by its first holder."""
    openings = []
    for number, piece in enumerate(pieces_of(statement)):
        name = piece.holders[0]
        body = dealing.body if name in body_receivers(statement) else NO_BYTES
        held = receive_cells(statement, name, dealing.bundles[name], body)
        last = correction if number == len(seeds) - 1 else b""
        proof = expand_proof(statement, seeds[number], last)
        openings.append(open_piece(piece_shares(held, piece), proof, coefficients, point))
    return tuple(openings)


def prove_and_open(
    statement: CellsStatement, values: Field, prover: ForgedProver, point: int, coefficients: ProofCoefficients
) -> tuple[PieceOpening, ...]:
    seeds = tuple(bytes([7, number]).ljust(16) for number in range(len(pieces_of(statement))))
    correction = prover(statement, np.zeros(0), coefficients, seeds)
    return open_all(statement, forge_dealing(statement, values), coefficients, point, seeds, correction)


# ---- the statement -----------------------------------------------------------------------


def test_the_polynomial_in_r_is_zero_for_one_hot_rows_only() -> None:
    """All x of three numbers from a set, at enough r to tell polynomials of degree 2 apart."""
    candidates = [0, 1, 2, PRIME - 1, HALF, 1_000_016]
    weights = list(itertools.product(range(3), repeat=3))  # degree at most 2 in each variable
    for x in itertools.product(candidates, repeat=3):
        good = sorted(x) in ([0, 0, 0], [0, 0, 1])
        zero = all(
            (sum(a * r for a, r in zip(x, w, strict=True)) ** 2 - sum(a * r * r for a, r in zip(x, w, strict=True)))
            % PRIME
            == 0
            for w in weights
        )
        assert zero == good, x


@pytest.mark.parametrize("prime", [5, 7, 31])
def test_the_bounds_hold_for_every_row_in_small_fields(prime: int) -> None:
    """All x and all r in F^2, then all lambda and sigma of two groups of two: how often a bad row looks good."""
    pairs = np.array(list(itertools.product(range(prime), repeat=2)))
    equation = ((pairs @ pairs.T) ** 2 - pairs @ (pairs**2).T) % prime  # (x, r)
    hits = (equation == 0).mean(axis=1)
    good = [x.tolist() in ([0, 0], [0, 1], [1, 0]) for x in pairs]
    assert (hits[good] == 1.0).all()
    assert hits[~np.array(good)].max() <= 2 / prime
    if prime < 31:
        combined = np.einsum("li,sj->lsij", pairs, pairs).reshape(-1, 4)  # lambda_i sigma_j
        rest = np.array(list(itertools.product(range(prime), repeat=4)))[1:]  # what rows and columns leave over
        assert (rest @ combined.T % prime == 0).mean(axis=1).max() <= 2 / prime


def test_coefficients_known_beforehand_would_let_a_bad_row_pass() -> None:
    """For any y there is a multiple of it that satisfies the equation for one r: so r must come after the cells."""
    statement = make_statement(rows=1, cells=(4,))
    coefficients = draw_coefficients(statement, SEED)
    y = [3, 5, 0]
    u, v = exact_folds(statement, np.array([y], dtype=np.uint64), coefficients)[0]
    factor = v * invert(u * u) % PRIME
    bad = np.array([[value * factor % PRIME for value in y]], dtype=np.uint64)
    assert equation_of(statement, bad, coefficients) == 0
    assert equation_of(statement, bad, draw_coefficients(statement, SEED[::-1])) != 0


# ---- the fold ----------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(DEALERS),
    st.integers(1, 70),
    st.lists(st.integers(2, 6), min_size=1, max_size=4),
    st.integers(0, 2**32),
)
def test_openings_are_the_numbers_of_the_docstring(dealer: str, rows: int, cells: list[int], seed: int) -> None:
    statement = make_statement(dealer, rows, tuple(cells))
    codes = make_codes(statement, seed)
    values = encode_cells(statement, codes)
    coefficients = draw_coefficients(statement, seed.to_bytes(32))
    point = draw_point(statement, seed.to_bytes(32))
    folded = np.concatenate(list(fold_codes(statement, codes, coefficients)))
    assert folded.tolist() == fold_values(statement, values, coefficients).tolist()
    seeds = tuple(bytes([number]).ljust(16) for number in range(len(pieces_of(statement))))
    correction = prove_codes(statement, codes, coefficients, seeds)
    openings = open_all(statement, forge_dealing(statement, values), coefficients, point, seeds, correction)
    masks = sum(expand_proof(statement, s, b"").masks.astype(object) for s in seeds) % PRIME
    basis = lagrange_basis(FOLD, point).tolist()
    expected = [
        sum(b * int(u) for b, u in zip(basis, [*row, mask], strict=True)) % PRIME
        for row, mask in zip(folded.tolist(), masks.tolist(), strict=True)
    ]
    total = [sum(int(o.folded[s]) for o in openings) % PRIME for s in range(folded_size(statement))]
    assert total == expected
    assert sum(o.difference for o in openings) % PRIME == 0
    squares = sum(int(c) * h * h for c, h in zip(coefficients.across, expected, strict=True)) % PRIME
    assert sum(o.value for o in openings) % PRIME == squares
    assert is_accepted(openings, coefficients)


@given(st.integers(1, 30), st.integers(0, PRIME - 1), st.lists(st.integers(0, PRIME - 1), min_size=31, max_size=31))
def test_lagrange_weights_give_a_polynomials_value(degree: int, point: int, polynomial: list[int]) -> None:
    def at(x: int) -> int:
        return sum(c * pow(x, power, PRIME) for power, c in enumerate(polynomial[: degree + 1])) % PRIME

    basis = lagrange_basis(degree, point).tolist()
    assert sum(b * at(node) for node, b in enumerate(basis)) % PRIME == at(point)


def bad_values(statement: CellsStatement, kind: str) -> Field:
    """Good cells but for one row and column."""
    values = encode_cells(statement, make_codes(statement))
    part = {
        "two": [2, 0, 0],
        "minus one": [PRIME - 1, 0, 0],
        "one half": [HALF, 0, 0],
        "two halves": [HALF, HALF, 0],
        "two ones": [1, 0, 1],
        "one and minus one": [1, PRIME - 1, 0],
        "large": [1_000_016, 0, 0],
    }[kind]
    values[7, :3] = part
    return values


KINDS = ("two", "minus one", "one half", "two halves", "two ones", "one and minus one", "large")


@pytest.mark.parametrize("hide", [False, True], ids=["true Q", "Q with d = 0"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dealer", DEALERS)
def test_bad_cells_are_not_accepted(dealer: str, kind: str, hide: bool) -> None:
    """The true Q fails the first check, a Q that passes it fails the second."""
    statement = make_statement(dealer)
    values = bad_values(statement, kind)
    coefficients, point = draw_coefficients(statement, SEED), draw_point(statement, SEED)
    openings = prove_and_open(statement, values, ForgedProver(values, hide), point, coefficients)
    assert (sum(o.difference for o in openings) % PRIME == 0) == hide
    assert not is_accepted(openings, coefficients)


def test_good_cells_are_accepted_from_the_same_prover() -> None:
    statement = make_statement("d")
    values = encode_cells(statement, make_codes(statement))
    coefficients, point = draw_coefficients(statement, SEED), draw_point(statement, SEED)
    assert is_accepted(prove_and_open(statement, values, ForgedProver(values, True), point, coefficients), coefficients)


def test_a_point_known_before_the_proof_would_let_bad_cells_pass() -> None:
    statement = make_statement()
    values = bad_values(statement, "large")
    coefficients, point = draw_coefficients(statement, SEED), draw_point(statement, SEED)
    openings = prove_and_open(statement, values, ForgedProver(values, True, point), point, coefficients)
    assert is_accepted(openings, coefficients)
    other = draw_point(statement, SEED[::-1])
    openings = prove_and_open(statement, values, ForgedProver(values, True, point), other, coefficients)
    assert not is_accepted(openings, coefficients)


def test_the_error_is_what_the_formula_says() -> None:
    assert SOUNDNESS_ERROR == (2 * 64 + 4) / (2**61 - 1 - 64)
    assert SOUNDNESS_ERROR < 2**-53


# ---- who holds what ----------------------------------------------------------------------


@pytest.mark.parametrize("dealer", DEALERS)
def test_every_verifier_lacks_one_part_and_the_dealer_holds_none(dealer: str) -> None:
    statement = make_statement(dealer)
    pieces = pieces_of(statement)
    assert sorted(share for piece in pieces for share in piece.shares) == [0, 1, 2]
    for name in verifiers_of(statement):
        assert {*held_pieces(statement, name), lacked_piece(statement, name)} == set(range(len(pieces)))
    assert all(dealer not in piece.holders for piece in pieces)
    if dealer == "d":  # of three verifiers one may be dishonest: another one holds the same part
        assert all(len(piece.holders) == 2 for piece in pieces)


# ---- what openings say -------------------------------------------------------------------


EXTREMES = ("first", "last", "random")


def extreme_codes(statement: CellsStatement, kind: str) -> np.ndarray:
    if kind == "random":
        return make_codes(statement)
    value = np.zeros(3, dtype=np.int64) if kind == "first" else np.array(statement.cells) - 1
    return np.tile(value, (statement.rows, 1)).astype(np.int64)


@pytest.mark.parametrize("kind", EXTREMES)
@pytest.mark.parametrize("dealer", ["a", "d"])
def test_opened_folds_are_uniform_whatever_the_cells_are(dealer: str, kind: str) -> None:
    statement = make_statement(dealer, 700)
    codes = extreme_codes(statement, kind)
    dealing = forge_dealing(statement, encode_cells(statement, codes))
    coefficients, point = draw_coefficients(statement, SEED), draw_point(statement, SEED)
    opened, parts = [], []
    for repeat in range(20):
        seeds = tuple(bytes([repeat, 3, number]).ljust(16) for number in range(len(pieces_of(statement))))
        correction = prove_codes(statement, codes, coefficients, seeds)
        openings = open_all(statement, dealing, coefficients, point, seeds, correction)
        total = openings[0].folded
        for opening in openings[1:]:
            total = add(total, opening.folded)
        opened += (total / PRIME).tolist()
        parts += (openings[-1].folded / PRIME).tolist()
    assert kstest(opened, "uniform").pvalue > 1e-4
    assert kstest(parts, "uniform").pvalue > 1e-4


def test_a_verifiers_view_of_one_table_is_as_likely_for_any_other() -> None:
    """The adversary's own part stays as it is. Another table has one choice of masks with which the other verifier
    opens the very same numbers: so all tables make this view with the same probability.
    """
    statement = make_statement("a", 40)
    coefficients, point = draw_coefficients(statement, SEED), draw_point(statement, SEED)
    own_cells = expand_field(bytes([1]).ljust(16), statement.shape)
    own = expand_proof(statement, bytes([2]).ljust(16), b"")

    def theirs(codes: np.ndarray, masks: Field) -> PieceOpening:
        """What the other verifier opens, with `masks` for both together."""
        values = prove_fold(fold_codes(statement, codes, coefficients), masks, coefficients)
        proof = ExpandedProof(subtract(values, own.values), subtract(masks, own.masks))
        cells = Share(statement, body=packed(subtract(encode_cells(statement, codes), own_cells)))
        return open_piece((cells,), proof, coefficients, point)

    first, second = (make_codes(statement, seed) for seed in (1, 2))
    masks = expand_field(bytes([3]).ljust(16), (folded_size(statement),))
    seen = theirs(first, masks)
    basis = lagrange_basis(FOLD, point)
    moved = [
        sum(int(b) * (int(u) - int(v)) for b, u, v in zip(basis[:FOLD], row, other, strict=True))
        for row, other in zip(
            *(np.concatenate(list(fold_codes(statement, codes, coefficients))) for codes in (first, second)),
            strict=True,
        )
    ]
    shift = np.array([value * invert(int(basis[FOLD])) % PRIME for value in moved], dtype=np.uint64)
    again = theirs(second, add(masks, shift))
    assert shift.any()
    assert pack_opening(again) == pack_opening(seen)
    assert pack_opening(theirs(second, masks)) != pack_opening(seen)


def test_openings_at_points_that_cells_stand_on_are_refused() -> None:
    statement = make_statement()
    coefficients = draw_coefficients(statement, SEED)
    cells = (Share(statement),)
    proof = expand_proof(statement, bytes(16), b"")
    for point in (0, FOLD - 1, PRIME, -1):
        with pytest.raises(ProtocolError, match="stand on"):
            open_piece(cells, proof, coefficients, point)
    open_piece(cells, proof, coefficients, FOLD)
    # there a mask does not count: what is opened would be a cell's own number
    assert int(lagrange_basis(FOLD, FOLD - 1)[FOLD]) == 0
    assert int(lagrange_basis(FOLD, FOLD)[FOLD]) == 1


def test_a_point_is_drawn_again_where_it_is_one_that_cells_stand_on(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([0, FOLD - 1, FOLD])
    monkeypatch.setattr(
        "verticopula.mpc.cell_proofs.draw_field", lambda stream, count: np.array([next(drawn)], dtype=np.uint64)
    )
    assert draw_point(make_statement(), SEED) == FOLD


def test_coefficients_and_points_differ_between_statements() -> None:
    one, other = make_statement(), make_statement(opening=1)
    assert draw_coefficients(one, SEED).weights.tolist() != draw_coefficients(other, SEED).weights.tolist()
    assert draw_point(one, SEED) != draw_point(other, SEED)


def test_no_two_coefficients_are_the_same() -> None:
    """Equal ones would let errors in two rows cancel."""
    statement = make_statement(rows=200)
    drawn = draw_coefficients(statement, SEED)
    assert drawn.across.size == folded_size(statement) > 1
    everything = np.concatenate([drawn.weights, drawn.within, drawn.across])
    assert np.unique(everything).size == everything.size


def test_what_has_the_wrong_shape_is_refused() -> None:
    statement = make_statement()
    opening = PieceOpening(1, 2, np.arange(folded_size(statement), dtype=np.uint64))
    packed = pack_opening(opening)
    assert pack_opening(unpack_opening(statement, packed)) == packed
    with pytest.raises(ProtocolError):
        unpack_opening(statement, packed[:-8])
    with pytest.raises(ProtocolError):
        expand_proof(statement, bytes(16), bytes(8 * PROOF_VALUES - 8))
    with pytest.raises(ProtocolError, match="one seed for each part"):
        prove_codes(statement, make_codes(statement), draw_coefficients(statement, SEED), (bytes(16),))
