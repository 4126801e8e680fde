"""Secure sums over some people at a time, with corrections on disk: the same numbers, and little memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from benchmarks.sums_plans import all_pairs, make_plan
from tests.secure.cells_world import forge_dealing, numbers_of
from tests.secure.test_verified_cells import receive_all
from verticopula.data import scratch_file
from verticopula.mpc import opening_terms, verified_cells
from verticopula.mpc.cell_proofs import draw_coefficients, expand_proof, fold_codes, open_piece, pack_opening
from verticopula.mpc.opening_terms import products_term, tables_term
from verticopula.mpc.proof_rounds import VerifiedCells
from verticopula.mpc.sums_plan import SumsPlan, own_statement
from verticopula.mpc.verified_cells import deal_cells, digest_codes, encode_cells
from verticopula.mpc.verified_sums import open_terms
from verticopula.protocol.strict_messages import SumsShareReply
from verticopula.protocol.wire import decode, encode

WIDTHS = {"a": 2, "b": 1, "c": 3}
SECRET = bytes(32)


@pytest.fixture
def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of more than a few people is held."""
    monkeypatch.setattr(scratch_file, "BYTES_IN_MEMORY", 1_000)
    monkeypatch.setattr(verified_cells, "NUMBERS_AT_ONCE", 200)
    monkeypatch.setattr(verified_cells, "_CODES_AT_ONCE", 50)
    monkeypatch.setattr(opening_terms, "_PEOPLE_NUMBERS", 100)
    monkeypatch.setattr(opening_terms, "_FEWEST_PEOPLE", 37)
    monkeypatch.setattr(opening_terms, "_FEWEST_ALIKE", 5)


def some_people(n: int) -> tuple[SumsPlan, dict[str, np.ndarray]]:
    """A plan, and cells of those whom each party knows."""
    rng = np.random.default_rng(1)
    known = rng.random((n, len(WIDTHS))) < 0.7
    plan = make_plan(WIDTHS, known, 1.0, ("a", "b", "c"))
    return plan, {
        name: rng.integers(0, 3, (int(known[:, k].sum()), width)).astype(np.uint8)
        for k, (name, width) in enumerate(WIDTHS.items())
    }


def open_both(plan: SumsPlan, codes: dict[str, np.ndarray]) -> list[np.ndarray]:
    """All bodies, and every compute party's terms of both openings, without noise."""
    held: dict[str, dict[str, VerifiedCells]] = {name: {} for name in plan.compute}
    bodies = []
    for party, own in codes.items():
        statement = own_statement(plan, "study", "plan", party)
        dealing = deal_cells(statement, own, SECRET)
        bodies.append(np.array(dealing.body))
        for name, found in receive_all(statement, dealing).items():
            held[name][party] = VerifiedCells(found)
    products = [products_term(plan, cells) for cells in held.values()]
    return [*bodies, *products, *(tables_term(plan, cells, all_pairs(plan)) for cells in held.values())]


def test_some_people_at_a_time_give_the_same_numbers(request: pytest.FixtureRequest) -> None:
    plan, codes = some_people(700)
    at_once = open_both(plan, codes)
    request.getfixturevalue("in_parts")
    in_parts = open_both(plan, codes)
    for one, other in zip(at_once, in_parts, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("in_parts")
def test_openings_in_parts_are_the_sums_over_everybody() -> None:
    plan, codes = some_people(700)
    found = open_both(plan, codes)
    records = np.zeros((700, plan.width), dtype=np.int64)
    start = 0
    for number, own in enumerate(codes.values()):
        weights = plan.weights[plan.pattern_of, number]
        tables = plan.features[start : start + own.shape[1]]
        features = np.hstack([table[own[:, column]] for column, table in enumerate(tables)])
        width = features.shape[1]
        offset = sum(table.shape[1] for table in plan.features[:start])
        records[weights > 0, offset : offset + width] = weights[weights > 0, None] * features
        start += own.shape[1]
    expected = (records.T @ records)[np.triu_indices(plan.width)]
    np.testing.assert_array_equal(open_terms(found[3:6]), expected)


@pytest.mark.usefixtures("in_parts")
def test_a_long_correction_lies_on_disk_and_travels() -> None:
    plan, codes = some_people(700)
    statement = own_statement(plan, "study", "plan", "c")
    body = deal_cells(statement, codes["c"], SECRET).body
    assert isinstance(body, np.memmap) or isinstance(body.base, np.memmap)
    sent = decode(encode(SumsShareReply("c", (), body, np.zeros((0, 0), dtype=np.int64))), (SumsShareReply,))
    np.testing.assert_array_equal(sent.body, body)
    assert isinstance(sent.body.base, np.memmap)


@pytest.mark.usefixtures("in_parts")
def test_a_proof_in_parts_is_that_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, codes = some_people(700)
    statement = own_statement(plan, "study", "plan", "c")
    held = receive_all(statement, forge_dealing(statement, encode_cells(statement, codes["c"])))["a"]
    coefficients, proof = draw_coefficients(statement, bytes(32)), expand_proof(statement, bytes(16), b"")
    shares = (held.first, held.second)
    folded = np.concatenate(list(fold_codes(statement, codes["c"], coefficients)))
    parts = open_piece(shares, proof, coefficients, 1_000)
    digest = digest_codes(codes["c"])
    numbers = numbers_of(held.second)
    monkeypatch.undo()
    assert pack_opening(open_piece(shares, proof, coefficients, 1_000)) == pack_opening(parts)
    np.testing.assert_array_equal(np.concatenate(list(fold_codes(statement, codes["c"], coefficients))), folded)
    assert digest_codes(codes["c"].astype(np.int64)) == digest
    np.testing.assert_array_equal(numbers_of(held.second), numbers)


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def most_held(n: int) -> int:
    """The most bytes that dealing and both openings hold beyond plan and cells."""
    plan, codes = some_people(n)
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    statements = {party: own_statement(plan, "study", "plan", party) for party in codes}
    held: dict[str, Any] = {}
    for party, own in codes.items():
        found = receive_all(statements[party], deal_cells(statements[party], own, SECRET))
        held[party] = VerifiedCells(found["a"])
    products_term(plan, held)
    tables_term(plan, held, all_pairs(plan))
    return tracemalloc.get_traced_memory()[1] - before


@pytest.mark.usefixtures("traced")
def test_four_times_the_people_take_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A little more: there are masks of those whom a party knows."""
    for module, name in ((verified_cells, "NUMBERS_AT_ONCE"), (opening_terms, "_PEOPLE_NUMBERS")):
        monkeypatch.setattr(module, name, 2**15)
    monkeypatch.setattr(verified_cells, "_CODES_AT_ONCE", 2**11)
    monkeypatch.setattr(scratch_file, "BYTES_IN_MEMORY", 2**15)
    few, many = most_held(20_000), most_held(80_000)
    shared = 8 * 2 * sum(WIDTHS.values()) * 80_000  # bytes of one share of everybody's cells
    assert many - few < shared / 4
