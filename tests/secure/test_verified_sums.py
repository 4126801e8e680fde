"""Sums of products of verified cells: exact, with noise in the same field, and bounded whatever is dealt."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import kstest

from tests.secure.cells_world import (
    COMPUTE,
    ForgedProver,
    Session,
    cheat,
    forge_dealing,
    make_codes,
    make_statement,
    numbers_of,
)
from tests.secure.test_verified_cells import receive_all
from verticopula.errors import ProtocolError, SettingsError
from verticopula.mpc.fixed_point import needed_room
from verticopula.mpc.gram_noise import share_scale
from verticopula.mpc.prime_field import HALF, PRIME, add, decode_signed, encode_signed, expand_field, invert, subtract
from verticopula.mpc.proof_rounds import VerifiedCells
from verticopula.mpc.verified_cells import CellsStatement, encode_cells, held_indices
from verticopula.mpc.verified_sums import (
    TERM_FACTOR,
    check_features,
    check_field_room,
    choose_field_bits,
    combine_shares,
    draw_term_noise,
    features_bound,
    gram_term,
    make_map,
    map_records,
    noised_term,
    open_terms,
    term_scales,
    weight_of_zeroth,
    zero_term,
)
from verticopula.privacy.noise import SecureNoise, SeededNoise

UNIT = 2**8
N = 25


def make_tables(statement: CellsStatement, seed: int = 0) -> list[np.ndarray]:
    """A score and two sketches for every column."""
    rng = np.random.default_rng(seed)
    return [
        np.column_stack([rng.integers(-300, 300, cells), rng.choice([-UNIT, UNIT], (cells, 2))])
        for cells in statement.cells
    ]


def hold_all(statement: CellsStatement, values: np.ndarray, seed: int = 1) -> dict[str, VerifiedCells]:
    """Every compute party's shares of any numbers, taken for verified."""
    return {
        name: VerifiedCells(held)
        for name, held in receive_all(statement, forge_dealing(statement, values, seed)).items()
    }


def map_cells(
    cells: VerifiedCells, tables: list[np.ndarray], rows: np.ndarray | None = None, weight: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """(n, q) a compute party's two shares of the features of these rows, all with one weight."""
    held = cells.held
    chosen = np.arange(held.statement.rows) if rows is None else rows
    shares = tuple(np.zeros((chosen.size, sum(t.shape[1] for t in tables)), dtype=np.uint64) for _ in range(2))
    made = make_map(held.statement, tables)
    for out, number, share in zip(shares, held_indices(held.index), (held.first, held.second), strict=True):
        map_records(numbers_of(share), chosen, np.full(chosen.size, weight), made, out, 0, np.uint64(number == 0))
    return shares[0], shares[1]


def keys_at(index: int) -> dict[int, bytes]:
    return {other: bytes([min(index, other), max(index, other)]).ljust(16) for other in range(3) if other != index}


def features_of(codes: np.ndarray, tables: list[np.ndarray]) -> np.ndarray:
    """(n, q) the obvious way."""
    return np.column_stack([table[codes[:, column]] for column, table in enumerate(tables)])


# ---- maps --------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_mapped_shares_sum_up_to_the_rows_of_the_tables(data: st.DataObject) -> None:
    cells = tuple(data.draw(st.lists(st.integers(2, 5), min_size=1, max_size=3)))
    statement = make_statement(data.draw(st.sampled_from("abcd")), data.draw(st.integers(1, 8)), cells)
    numbers = st.integers(-(2**31) + 1, 2**31 - 1) | st.sampled_from([-(2**31) + 1, 2**31 - 1, 0, 1])
    tables = [data.draw(arrays(np.int64, (c, data.draw(st.integers(1, 3))), elements=numbers)) for c in cells]
    rows = data.draw(st.none() | arrays(np.int64, st.integers(1, 8), elements=st.integers(0, statement.rows - 1)))
    codes = make_codes(statement, data.draw(st.integers(0, 99)))
    held = hold_all(statement, encode_cells(statement, codes))
    weight = data.draw(st.integers(1, 2**28))
    shares = [map_cells(held[name], tables, rows, weight) for name in COMPUTE]
    for index in range(3):
        np.testing.assert_array_equal(shares[index][1], shares[(index + 1) % 3][0])
    total = add(add(*shares[0]), shares[1][1])
    expected = features_of(codes if rows is None else codes[rows], tables)
    np.testing.assert_array_equal(decode_signed(total), weight * expected)


def test_a_part_is_written_in_its_place_and_people_who_are_not_known_have_none() -> None:
    statement = make_statement("d", 3, (3, 2))
    tables, codes = make_tables(statement), make_codes(statement, 2)
    held = hold_all(statement, encode_cells(statement, codes))
    places, weights = np.array([2, -1, 0, -1]), np.array([5, 7, 3, 0])
    total = np.zeros((4, 9), dtype=np.uint64)
    for name in COMPUTE:  # their first shares are S_0, S_1 and S_2
        cells, out = held[name].held, np.zeros((4, 9), dtype=np.uint64)
        made = make_map(statement, tables)
        map_records(numbers_of(cells.first), places, weights, made, out, 2, np.uint64(cells.index == 0))
        total = add(total, out)
    expected = np.zeros((4, 9), dtype=np.int64)
    expected[0, 2:8] = 5 * features_of(codes[2:3], tables)
    expected[2, 2:8] = 3 * features_of(codes[:1], tables)
    np.testing.assert_array_equal(decode_signed(total), expected)


def test_indicators_of_all_cells_sum_to_one_whatever_is_dealt() -> None:
    """A row in no cell, or in two, cannot be expressed: the last indicator is one minus the others."""
    statement = make_statement("d", 6, (4, 2))
    anything = expand_field(bytes(16), statement.shape)
    held = hold_all(statement, anything)
    tables = [np.eye(cells, dtype=np.int64) for cells in statement.cells]
    shares = [map_cells(held[name], tables) for name in COMPUTE]
    indicators = decode_signed(add(add(*shares[0]), shares[1][1])).astype(object)
    assert [sum(row[:4]) % PRIME for row in indicators] == [1] * 6
    assert [sum(row[4:]) % PRIME for row in indicators] == [1] * 6
    nothing = hold_all(statement, np.zeros(statement.shape, dtype=np.uint64))
    shares = [map_cells(nothing[name], tables) for name in COMPUTE]
    np.testing.assert_array_equal(
        decode_signed(add(add(*shares[0]), shares[1][1])), np.tile([0, 0, 0, 1, 0, 1], (6, 1))
    )


def test_bounds_are_the_largest_over_all_records() -> None:
    statement = make_statement("a", 1, (3, 2, 4))
    tables = make_tables(statement)
    records = itertools.product(*(range(cells) for cells in statement.cells))
    largest = max(int((features_of(np.array([record]), tables) ** 2).sum()) for record in records)
    assert features_bound(tables) == largest


def test_tables_that_do_not_fit_are_refused() -> None:
    statement = make_statement("d")
    tables = make_tables(statement)
    cells = hold_all(statement, np.zeros(statement.shape, dtype=np.uint64))["a"]
    large = tables[0].copy()
    large[0, 0] = -(2**31)
    for wrong in (
        tables[:-1],
        [tables[0][:-1], *tables[1:]],
        [tables[0].astype(float), *tables[1:]],
        [large, *tables[1:]],
    ):
        with pytest.raises(ProtocolError, match=r"map of 'd'"):
            check_features(statement, wrong)
        with pytest.raises(ProtocolError, match=r"map of 'd'"):
            map_cells(cells, wrong)


# ---- sums --------------------------------------------------------------------------------


def two_dealers() -> tuple[list[CellsStatement], list[np.ndarray], list[np.ndarray]]:
    """One dealer that computes and one that does not; each lacks people."""
    rng = np.random.default_rng(3)
    rows = [rng.random(N) < share for share in (0.7, 0.5)]
    statements = [
        make_statement("a", int(rows[0].sum()), (4, 3)),
        make_statement("d", int(rows[1].sum()), (2, 5, 3)),
    ]
    return statements, rows, [make_codes(statement, 5) for statement in statements]


def records_at(
    index: int, held: list[dict[str, VerifiedCells]], rows: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Both shares of whole records; the two dealers' parts are weighted by 1 and 2."""
    cells = [each[COMPUTE[index]] for each in held]
    whole = tuple(np.zeros((N, 15), dtype=np.uint64) for _ in range(2))
    for weight, (one, mask, offset) in enumerate(zip(cells, rows, (0, 6), strict=True), start=1):
        made = make_map(one.held.statement, make_tables(one.held.statement))
        places = np.where(mask, np.cumsum(mask) - 1, -1)
        shares = (one.held.first, one.held.second)
        for out, number, share in zip(whole, held_indices(index), shares, strict=True):
            map_records(numbers_of(share), places, np.full(N, weight), made, out, offset, np.uint64(number == 0))
    return whole[0], whole[1]


def combined_at(index: int, held: list[dict[str, VerifiedCells]], rows: list[np.ndarray]) -> np.ndarray:
    """The combined share of whole records, made of combined shares of cells."""
    whole = np.zeros((N, 15), dtype=np.uint64)
    for weight, (each, mask, offset) in enumerate(zip(held, rows, (0, 6), strict=True), start=1):
        own = each[COMPUTE[index]].held
        made = make_map(own.statement, make_tables(own.statement))
        places = np.where(mask, np.cumsum(mask) - 1, -1)
        share = combine_shares(numbers_of(own.first), numbers_of(own.second))
        map_records(share, places, np.full(N, weight), made, whole, offset, weight_of_zeroth(index))
    return whole


def term_at(index: int, held: list[dict[str, VerifiedCells]], rows: list[np.ndarray]) -> np.ndarray:
    return term_of([combined_at(index, held, rows)])


def term_of(blocks: list[np.ndarray]) -> np.ndarray:
    """The term of records of which the combined share is given."""
    return gram_term(15, [(np.arange(15), block) for block in blocks])


def exact_sums(statements: list[CellsStatement], rows: list[np.ndarray], codes: list[np.ndarray]) -> list[int]:
    """The upper triangle, with Python's integers."""
    blocks = []
    for weight, (statement, mask, values) in enumerate(zip(statements, rows, codes, strict=True), start=1):
        mapped = weight * features_of(values, make_tables(statement))
        whole = np.zeros((N, mapped.shape[1]), dtype=np.int64)
        whole[mask] = mapped
        blocks.append(whole)
    records = np.column_stack(blocks).astype(object)
    gram = records.T @ records
    return [int(gram[a, b]) for a, b in zip(*np.triu_indices(records.shape[1]), strict=True)]


def test_proven_cells_give_the_sums_with_the_noise_of_all_three() -> None:
    """From the dealing over the proof to the opened numbers."""
    statements, rows, codes = two_dealers()
    held = [Session(statement, values).run() for statement, values in zip(statements, codes, strict=True)]
    expected = exact_sums(statements, rows, codes)
    bound, mu = sum(w**2 * features_bound(make_tables(s)) for w, s in enumerate(statements, start=1)), 0.5
    check_field_room(N, bound, mu)
    scales = term_scales(sum(3 * len(s.cells) for s in statements), bound, mu)
    noises = [draw_term_noise(SeededNoise(index), scales, "terms") for index in range(3)]
    terms = [noised_term(index, term_at(index, held, rows), keys_at(index), noises[index]) for index in range(3)]
    assert open_terms(terms).tolist() == (np.array(expected) + sum(noises)).tolist()
    assert all(noise.any() for noise in noises)


def test_sums_without_noise_are_exact() -> None:
    statements, rows, codes = two_dealers()
    held = [hold_all(s, encode_cells(s, c), seed) for seed, (s, c) in enumerate(zip(statements, codes, strict=True))]
    terms = [term_at(index, held, rows) for index in range(3)]
    assert open_terms(terms).tolist() == exact_sums(statements, rows, codes)


def test_noise_has_the_scales_of_two_shares_that_suffice() -> None:
    scales = term_scales(3, 1_000, 0.5)
    off, on = share_scale(2_000.0), share_scale(np.sqrt(2.0) * 2_000.0)
    np.testing.assert_allclose(scales, [on, off, off, on, off, on])
    drawn = np.concatenate([draw_term_noise(SecureNoise(), scales) for _ in range(400)]) / np.tile(scales, 400)
    assert kstest(drawn, "norm").pvalue > 1e-5


def test_terms_say_nothing_but_their_sum() -> None:
    """Two of three terms, of matrices of zeros."""
    size = 4_000
    zeros = [zero_term(index, keys_at(index), size) for index in range(3)]
    assert not open_terms(zeros).any()
    for zero in zeros:
        assert kstest(zero / PRIME, "uniform").pvalue > 1e-5
    with pytest.raises(ProtocolError, match="each of the two others"):
        zero_term(0, {1: bytes(16)}, 3)


def test_a_term_leaves_with_its_share_of_zero() -> None:
    """Without it two terms would tell more than their sum."""
    statements, rows, codes = two_dealers()
    held = [hold_all(s, encode_cells(s, c)) for s, c in zip(statements, codes, strict=True)]
    for index in range(3):
        term = term_at(index, held, rows)
        noise = np.arange(term.size)
        sent = noised_term(index, term, keys_at(index), noise)
        rest = subtract(sent, add(term, encode_signed(noise)))
        np.testing.assert_array_equal(rest, zero_term(index, keys_at(index), noise.size))
        assert rest.all()


def test_a_compute_party_that_lies_adds_a_number_that_it_knows() -> None:
    statements, rows, codes = two_dealers()
    held = [hold_all(s, encode_cells(s, c)) for s, c in zip(statements, codes, strict=True)]
    terms = [term_at(index, held, rows) for index in range(3)]
    lie = encode_signed(np.arange(terms[0].size))
    opened = open_terms([terms[0], add(terms[1], lie), terms[2]])
    assert (opened - np.array(exact_sums(statements, rows, codes))).tolist() == list(range(terms[0].size))


def test_a_record_that_is_too_long_reads_a_person_and_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack that proofs prevent: 1000016 in place of 0 lifts one person's products out of the noise."""
    statements, rows, codes = two_dealers()
    target = int(np.flatnonzero(rows[0] & rows[1])[0])
    row, theirs = int(rows[0][:target].sum()), int(rows[1][:target].sum())
    values = encode_cells(statements[0], codes[0])
    values[row, 0] = 1_000_016 * 10**6
    tables = make_tables(statements[0])
    other = hold_all(statements[1], encode_cells(statements[1], codes[1]))
    lifted = 2 * 1_000_016 * 10**6 * int(tables[0][0, 0] - tables[0][-1, 0])
    # rows and columns in the upper triangle: the dealer's first feature comes before the other party's
    held = [hold_all(statements[0], values), other]
    bound, mu, width = 10**6, 1.0, 15
    scales = term_scales(width, bound, mu)
    noises = [draw_term_noise(SecureNoise(), scales) for _ in range(3)]
    terms = [noised_term(index, term_at(index, held, rows), keys_at(index), noises[index]) for index in range(3)]
    opened = np.zeros((width, width))
    opened[np.triu_indices(width)] = open_terms(terms)
    truth = features_of(codes[1][theirs : theirs + 1], make_tables(statements[1]))[0]
    np.testing.assert_allclose(opened[0, 6:15] / lifted, truth, atol=0.01)
    cheat(monkeypatch, values, ForgedProver(values, True))
    with pytest.raises(ProtocolError, match="not proven to be one-hot"):
        Session(statements[0], codes[0]).run()


# ---- room --------------------------------------------------------------------------------


@given(st.integers(1, 10**6), st.integers(1, 2**50), st.floats(0.01, 10.0))
def test_room_is_half_the_field(n_subjects: int, bound: int, mu: float) -> None:
    fits = needed_room(n_subjects, bound, mu) < HALF
    if fits:
        check_field_room(n_subjects, bound, mu)
    else:
        with pytest.raises(SettingsError, match="do not fit in 61 bits"):
            check_field_room(n_subjects, bound, mu)


def test_room_ends_exactly_where_signed_numbers_do() -> None:
    largest = HALF - 1
    assert decode_signed(encode_signed(np.array([largest, -largest]))).tolist() == [largest, -largest]
    assert decode_signed(encode_signed(np.array([HALF]))).tolist() != [HALF]
    for mu in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(SettingsError, match="mu must be positive"):
            check_field_room(1, 1, mu)


def test_fractional_bits_are_as_many_as_fit() -> None:
    bits = choose_field_bits(71_827, 60.0, 0.2367)
    check_field_room(71_827, 60 << 2 * bits, 0.2367)
    with pytest.raises(SettingsError):
        check_field_room(71_827, 60 << 2 * (bits + 1), 0.2367)
    assert choose_field_bits(10, 1.0, 1.0) == 20
    with pytest.raises(SettingsError, match="fewer than 8 fractional bits"):
        choose_field_bits(10**9, 1e6, 1e-3)


def test_a_term_does_not_depend_on_how_many_rows_are_taken_at_a_time() -> None:
    statements, rows, codes = two_dealers()
    held = [hold_all(s, encode_cells(s, c)) for s, c in zip(statements, codes, strict=True)]
    whole = combined_at(1, held, rows)
    np.testing.assert_array_equal(term_of([whole[start : start + 7] for start in range(0, N, 7)]), term_of([whole]))


def test_every_product_of_two_shares_is_in_the_sum_once() -> None:
    """The factor is what the page says, and the combined share of records is made of those of their shares."""
    inverse = invert(TERM_FACTOR)
    assert (TERM_FACTOR + inverse) % PRIME == 1
    assert pow(TERM_FACTOR, 6, PRIME) == 1
    statements, rows, codes = two_dealers()
    held = [hold_all(s, encode_cells(s, c)) for s, c in zip(statements, codes, strict=True)]
    for index in range(3):
        first, second = records_at(index, held, rows)
        first, second = (np.array(part.tolist(), dtype=object) for part in (first, second))
        assert combined_at(index, held, rows).tolist() == ((first + inverse * second) % PRIME).tolist()
        products = TERM_FACTOR * first.T @ first + first.T @ second + second.T @ first + inverse * second.T @ second
        assert term_at(index, held, rows).tolist() == [int(v) % PRIME for v in products[np.triu_indices(15)]]


def test_records_and_terms_that_do_not_fit_are_refused() -> None:
    statements, rows, codes = two_dealers()
    held = [hold_all(s, encode_cells(s, c)) for s, c in zip(statements, codes, strict=True)]
    records = combined_at(0, held, rows)
    with pytest.raises(ProtocolError, match="matrix of field elements"):
        gram_term(15, [(np.arange(14), records)])
    with pytest.raises(ProtocolError, match="no records"):
        gram_term(15, [])
    term = term_of([records])
    with pytest.raises(ProtocolError, match="shape of the term"):
        noised_term(0, term, keys_at(0), np.zeros(3, dtype=np.int64))
    with pytest.raises(ProtocolError, match="3 terms of one shape"):
        open_terms([term, term])
    with pytest.raises(ProtocolError, match="3 terms of one shape"):
        open_terms([term, term, term[1:]])
    with pytest.raises(ProtocolError, match="not an element"):
        open_terms([term, term, np.full_like(term, PRIME)])
