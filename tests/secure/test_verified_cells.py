"""Shares of one-hot cells: exact, the same to look at whatever they hide, and equal at both holders or refused."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from tests.secure.byte_statistics import chi_square_of_bytes
from tests.secure.cells_world import (
    COMPUTE,
    DEALERS,
    forge_dealing,
    key_of,
    make_codes,
    make_statement,
    numbers_of,
    packed,
    secret_of,
)
from verticopula.errors import ProtocolError
from verticopula.mpc.prime_field import ELEMENT_BYTES, PRIME, add, unpack_field
from verticopula.mpc.verified_cells import (
    NO_BYTES,
    CellsDealing,
    CellsStatement,
    HeldCells,
    body_receivers,
    body_share,
    check_statement,
    check_tag,
    column_starts,
    deal_cells,
    encode_cells,
    held_indices,
    own_cells,
    receive_cells,
    share_tag,
    verifiers_of,
)


def receive_all(statement: CellsStatement, dealing: CellsDealing) -> dict[str, HeldCells]:
    """What every compute party holds, a dealer that computes among them."""
    place = body_share(statement)
    return {
        name: receive_cells(
            statement, name, dealing.bundles[name], dealing.body if place in held_indices(index) else NO_BYTES
        )
        for index, name in enumerate(statement.compute)
    }


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(DEALERS),
    st.integers(1, 12),
    st.lists(st.integers(2, 5), min_size=1, max_size=4),
    st.integers(0, 2**32),
)
def test_any_two_compute_parties_have_the_cells_and_agree(dealer: str, rows: int, cells: list[int], seed: int) -> None:
    statement = make_statement(dealer, rows, tuple(cells))
    codes = make_codes(statement, seed)
    held = receive_all(statement, deal_cells(statement, codes, secret_of(dealer)))
    values = encode_cells(statement, codes)
    for index, name in enumerate(COMPUTE):
        after = held[COMPUTE[(index + 1) % 3]]
        first, second, third = map(numbers_of, (held[name].first, held[name].second, after.second))
        np.testing.assert_array_equal(second, numbers_of(after.first))
        np.testing.assert_array_equal(add(add(first, second), third), values)


@given(st.integers(0, 2**32))
def test_numbers_are_indicators_of_all_cells_but_the_last(seed: int) -> None:
    statement = make_statement(rows=9)
    codes = make_codes(statement, seed)
    values = encode_cells(statement, codes)
    starts = column_starts(statement)
    for row in range(9):
        for column, cells in enumerate(statement.cells):
            part = values[row, starts[column] : starts[column] + cells - 1].tolist()
            assert part == [int(codes[row, column] == cell) for cell in range(cells - 1)]


# ---- what is sent ------------------------------------------------------------------------


@pytest.mark.parametrize("dealer", DEALERS)
def test_one_body_is_sent_and_seeds_otherwise(dealer: str) -> None:
    statement = make_statement(dealer)
    dealing = deal_cells(statement, make_codes(statement), secret_of(dealer))
    assert len(dealing.body) == ELEMENT_BYTES * statement.rows * statement.width
    assert len(body_receivers(statement)) == (2 if dealer == "d" else 1)
    assert dealer not in body_receivers(statement)
    assert all(sum(map(len, bundle.seeds)) == 32 for bundle in dealing.bundles.values())


@pytest.mark.parametrize("kind", ["first cells", "last cells"])
@pytest.mark.parametrize("dealer", ["a", "d"])
def test_one_view_is_uniform_whatever_is_shared(dealer: str, kind: str) -> None:
    """The body, which everybody may see, and a holder's shares, their sum and difference with it."""
    statement = make_statement(dealer, 300)
    codes = np.tile([0, 0, 0] if kind == "first cells" else np.array(statement.cells) - 1, (300, 1)).astype(np.int64)
    found: dict[tuple[str, str], list[float]] = {}
    for repeat in range(40):
        dealing = deal_cells(statement, codes, bytes([repeat]).ljust(32))
        body = unpack_field(dealing.body.tobytes(), statement.shape)
        views = {("body", ""): body}
        for name, held in receive_all(statement, dealing).items():
            if name != dealer:
                first, second = numbers_of(held.first), numbers_of(held.second)
                total = add(first, second)
                views |= {(name, "first"): first, (name, "second"): second, (name, "sum"): total}
                views[name, "with body"] = add(total, body)
        for label, values in views.items():
            low = (values & np.uint64(2**56 - 1)).astype("<u8").view(np.uint8).reshape(-1, 8)[:, :7]
            found.setdefault(label, []).append(chi_square_of_bytes(np.ascontiguousarray(low).tobytes()))
    for label, pvalues in found.items():
        assert kstest(pvalues, "uniform").pvalue > 1e-5, label


def test_other_cells_statements_and_secrets_have_other_seeds() -> None:
    statement = make_statement("d")
    codes = make_codes(statement)
    other = codes.copy()
    other[0, 0] = (other[0, 0] + 1) % 4
    seen = [
        deal_cells(statement, codes, secret_of("d")).bundles["a"].seeds,
        deal_cells(statement, other, secret_of("d")).bundles["a"].seeds,
        deal_cells(replace(statement, opening=1), codes, secret_of("d")).bundles["a"].seeds,
        deal_cells(statement, codes, secret_of("e")).bundles["a"].seeds,
    ]
    assert len({seed for seeds in seen for seed in seeds}) == 8
    assert deal_cells(statement, codes, secret_of("d")).bundles["a"].seeds == seen[0]


# ---- equal shares ------------------------------------------------------------------------


@pytest.mark.parametrize("dealer", DEALERS)
def test_equal_shares_have_equal_tags(dealer: str) -> None:
    statement = make_statement(dealer)
    held = receive_all(statement, deal_cells(statement, make_codes(statement), secret_of(dealer)))
    for name in verifiers_of(statement):
        for other in verifiers_of(statement):
            if other != name:
                tag = share_tag(held[other], name, key_of(name, other))
                check_tag(held[name], other, key_of(name, other), tag)


@pytest.mark.parametrize("dealer", DEALERS)
def test_another_seed_at_one_holder_is_noticed(dealer: str) -> None:
    statement = make_statement(dealer)
    dealing = deal_cells(statement, make_codes(statement), secret_of(dealer))
    names = verifiers_of(statement)
    held = receive_all(statement, dealing)
    (common,) = {*held_indices(held[names[0]].index)} & {*held_indices(held[names[1]].index)}
    bundle = dealing.bundles[names[1]]
    seeds = list(bundle.seeds)
    seeds[held_indices(held[names[1]].index).index(common)] = bytes(16)
    forged = replace(held[names[1]], bundle=replace(bundle, seeds=tuple(seeds)))
    key = key_of(*names[:2])
    with pytest.raises(ProtocolError, match="different shares"):
        check_tag(held[names[0]], names[1], key, share_tag(forged, names[0], key))


def test_another_body_at_one_holder_is_noticed() -> None:
    """One holder of S_2 has 1,000,000 more in one place: 16 became 1000016."""
    statement = make_statement("d")
    dealing = deal_cells(statement, make_codes(statement), secret_of("d"))
    moved = unpack_field(dealing.body.tobytes(), statement.shape).copy()
    moved[3, 1] = (int(moved[3, 1]) + 1_000_000) % PRIME
    body = packed(moved)
    assert body_receivers(statement) == ("b", "c")
    honest = receive_cells(statement, "b", dealing.bundles["b"], dealing.body)
    lied_to = receive_cells(statement, "c", replace(dealing.bundles["c"], body=hashlib.sha256(body).digest()), body)
    assert int(numbers_of(lied_to.first)[3, 1]) - int(numbers_of(honest.second)[3, 1]) in (1_000_000, 1_000_000 - PRIME)
    key = key_of("b", "c")
    with pytest.raises(ProtocolError, match="different shares"):
        check_tag(honest, "c", key, share_tag(lied_to, "b", key))


@pytest.mark.parametrize(
    "change", [{"study": "other"}, {"plan": "other"}, {"dealer": "e"}, {"opening": 1}, {"rows": 31}]
)
def test_tags_are_bound_to_the_statement(change: dict[str, str]) -> None:
    statement = make_statement("d")
    held = receive_all(statement, forge_dealing(statement, np.zeros(statement.shape, dtype=np.uint64)))
    other = replace(statement, **change)  # type: ignore[arg-type]
    key = key_of("a", "b")
    with pytest.raises(ProtocolError, match="different shares"):
        check_tag(held["a"], "b", key, share_tag(replace(held["b"], statement=other), "a", key))
    with pytest.raises(ProtocolError, match="different shares"):
        check_tag(held["a"], "b", key_of("a", "c"), share_tag(held["b"], "a", key))


@pytest.mark.parametrize("dealer", COMPUTE)
def test_a_dealers_own_shares_are_those_that_it_would_receive(dealer: str) -> None:
    statement = make_statement(dealer)
    codes = make_codes(statement)
    dealing = deal_cells(statement, codes, secret_of(dealer))
    own = own_cells(statement, codes, secret_of(dealer), dealing.bundles[dealer])
    received = receive_cells(statement, dealer, dealing.bundles[dealer], dealing.body)
    np.testing.assert_array_equal(numbers_of(own.first), numbers_of(received.first))
    np.testing.assert_array_equal(numbers_of(own.second), numbers_of(received.second))
    assert own.digest == received.digest


# ---- refusals ----------------------------------------------------------------------------


def test_what_is_not_the_dealing_is_refused() -> None:
    statement = make_statement("d")
    dealing = deal_cells(statement, make_codes(statement), secret_of("d"))
    bundle, body = dealing.bundles["b"], dealing.body
    with pytest.raises(ProtocolError, match="another statement"):
        receive_cells(replace(statement, plan="other"), "b", bundle, body)
    with pytest.raises(ProtocolError, match="not the one"):
        receive_cells(statement, "b", bundle, np.append(body[:-1], body[-1] ^ np.uint8(1)))
    with pytest.raises(ProtocolError, match="not the one"):
        receive_cells(statement, "b", bundle, NO_BYTES)
    with pytest.raises(ProtocolError, match="not its own"):
        receive_cells(statement, "b", replace(bundle, seeds=bundle.seeds[:1]), body)
    with pytest.raises(ProtocolError, match="no compute party"):
        receive_cells(statement, "d", bundle, body)
    nothing = replace(bundle, body=hashlib.sha256(b"").digest())
    for other in (NO_BYTES, body[:-8], body.reshape(-1, 8)):
        with pytest.raises(ProtocolError, match="not the one"):
            receive_cells(statement, "b", nothing, other)
    large = packed(np.full(statement.shape, PRIME, dtype=np.uint64))
    with pytest.raises(ProtocolError, match="not an element"):
        receive_cells(statement, "b", replace(bundle, body=hashlib.sha256(large).digest()), large)


@pytest.mark.parametrize(
    "change",
    [{"compute": ("a", "b", "b")}, {"opening": -1}, {"rows": 0}, {"cells": ()}, {"cells": (3, 1)}, {"rows": 2**40}],
)
def test_statements_that_make_no_sense_are_refused(change: dict[str, int]) -> None:
    with pytest.raises(ProtocolError):
        check_statement(replace(make_statement(), **change))  # type: ignore[arg-type]


def test_codes_that_are_no_cells_are_refused() -> None:
    statement = make_statement()
    for row in ([4, 0, 0], [0, 2, 0], [-1, 0, 0]):
        codes = make_codes(statement)
        codes[5] = row
        with pytest.raises(ProtocolError, match="outside"):
            encode_cells(statement, codes)
    with pytest.raises(ProtocolError, match="shape"):
        encode_cells(statement, make_codes(statement)[:-1])
    with pytest.raises(ProtocolError, match="at least 16 bytes"):
        deal_cells(statement, make_codes(statement), b"short")


def test_every_field_of_a_statement_changes_its_digest() -> None:
    statement = make_statement()
    changes = [
        {"study": "x"}, {"plan": "x"}, {"dealer": "b"}, {"compute": ("b", "a", "c")},
        {"opening": 1}, {"rows": 31}, {"cells": (4, 2, 11)}, {"cells": (4, 21, 0)},
    ]  # fmt: skip
    digests = {statement.digest, *(replace(statement, **change).digest for change in changes)}  # type: ignore[arg-type]
    assert len(digests) == len(changes) + 1
