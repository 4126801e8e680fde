"""What travels in secure sums, looked at as bytes: no cell, and the same statistics for any data."""

from __future__ import annotations

import numpy as np
import pytest

from tests.secure.byte_statistics import chi_square_of_bytes, low_bytes
from tests.secure.sums_world import KEY, STUDY, Recorded, World, run, some_cells
from verticopula.mpc.opening_terms import products_term, tables_term
from verticopula.mpc.prime_field import add, encode_signed, expand_field, pack_field, subtract
from verticopula.mpc.sealed_messages import SealedChannel, shared_authenticity
from verticopula.mpc.sums_plan import own_statement
from verticopula.mpc.verified_cells import encode_cells
from verticopula.protocol.messages import REPLY_KINDS, REQUEST_KINDS, fingerprint
from verticopula.protocol.party.sums_record import unpack_noise
from verticopula.protocol.strict_messages import (
    SumsProofRequest,
    SumsReply,
    SumsRequest,
    SumsShareReply,
    TablesReply,
    TablesRequest,
)
from verticopula.protocol.wire import decode

WIDTHS = {"a": 4, "b": 3, "c": 5, "d": 2}
CELL_NUMBERS = 2  # shared a column of three cells


def test_no_row_of_cells_travels() -> None:
    """Neither in a message nor in anything that a message could quote; unmasked, every row would be found."""
    world = World(some_cells(WIDTHS, 50))
    plan = world.plan()
    transport = Recorded(world.handlers())
    run(plan, {}, transport)
    everything = b"".join(data for _, data in [*transport.sent, *transport.answered])
    assert len(everything) > 10_000
    for party in plan.parties:
        values = encode_cells(own_statement(plan, STUDY, "", party), world.codes(plan, party))
        rows = [pack_field(row) for row in values if row.sum() > 1]
        assert rows
        assert not any(row in everything for row in rows)
        assert all(row in pack_field(values) for row in rows)
        assert not any(world.codes(plan, party)[:, j].tobytes() in everything for j in range(WIDTHS[party]))


@pytest.mark.parametrize("cell", [0, 2])
def test_what_compute_parties_and_coordinator_receive_is_uniform_for_extreme_data(cell: int) -> None:
    world = World({name: np.full((300, width), cell) for name, width in WIDTHS.items()})
    transport = Recorded(world.handlers(seed=11))
    run(world.plan(), {}, transport)
    requests = [decode(data, REQUEST_KINDS) for _, data in transport.sent]
    replies = [decode(data, REPLY_KINDS) for _, data in transport.answered]
    pvalues = [chi_square_of_bytes(low_bytes(r.body)) for r in replies if isinstance(r, SumsShareReply)]
    for request in requests:
        if isinstance(request, SumsProofRequest | SumsRequest | TablesRequest):
            sealed = [box for boxes in request.boxes for box in boxes]
            pvalues += [chi_square_of_bytes(box) for box in sealed if len(box) > 1_500]
            pvalues.append(chi_square_of_bytes(b"".join(sealed)))
    for kind in (SumsReply, TablesReply):
        terms = b"".join(low_bytes(r.term.tobytes()) for r in replies if isinstance(r, kind))
        pvalues.append(chi_square_of_bytes(terms))
    assert len(pvalues) > 10
    assert min(pvalues) > 1e-5


@pytest.mark.parametrize("kind", [SumsRequest, TablesRequest])
def test_a_term_is_hidden_by_a_key_that_the_curious_party_lacks(kind: type) -> None:
    """Party a knows S_0 and S_1, so to it b's term is linear in the cells: only the key of b and c hides it."""
    world = World(some_cells(WIDTHS, 40, missing=0.0))
    plan = world.plan()
    transport = Recorded(world.handlers(seed=2))
    run(plan, {}, transport)
    requests = [(name, decode(data, REQUEST_KINDS)) for name, data in transport.sent]
    (number,) = [i for i, (n, r) in enumerate(requests) if n == "b" and isinstance(r, kind)]
    asked = requests[number][1]
    (first,) = [r for n, r in requests if n == "b" and isinstance(r, SumsProofRequest) and r.step == "commit"]
    sent = decode(transport.answered[number][1], REPLY_KINDS).term.view(np.uint64)
    session = world.handler("b")._session(asked)
    session.take_bodies(first.bodies)
    cells, _ = session.conclude(asked.boxes)
    if kind is SumsRequest:
        term, label, noise_name = products_term(plan, cells), ("zero",), "noise"
    else:
        term, noise_name = tables_term(plan, cells, asked.pairs), "tables_noise"
        label = ("zero tables", fingerprint(("pairs", asked.pairs)))
    digest, channels = fingerprint((plan, asked.keys)), {}
    for name in "ab":
        secret = bytes.fromhex(world.records[name].get(f"sums/{name}/{STUDY}")["secret"])  # type: ignore[index]
        channels[name] = SealedChannel(STUDY, name, secret, shared_authenticity(KEY))
        channels[name].accept_keys(asked.keys)
    noise = encode_signed(unpack_noise(world.records["b"].get(f"sums/b/{STUDY}")[noise_name]))  # type: ignore[index]
    purpose, *rest = label
    known = expand_field(channels["a"].common_key("b", purpose, digest, *rest), (term.size,))
    mask = add(subtract(subtract(sent, term), noise), known)  # b is after a, so it takes their keystream away
    hidden = expand_field(channels["b"].common_key("c", purpose, digest, *rest), (term.size,))
    np.testing.assert_array_equal(mask, hidden)
    assert np.unique(mask).size == mask.size


def test_sizes_follow_from_the_plan_and_not_from_the_data() -> None:
    sizes = []
    for cell in (0, 2):
        world = World({name: np.full((40, width), cell) for name, width in WIDTHS.items()})
        transport = Recorded(world.handlers())
        run(world.plan(), {}, transport)
        replies = [decode(data, REPLY_KINDS) for _, data in transport.answered]
        sizes.append(
            [
                len(data)
                for (_, data), r in zip(transport.answered, replies, strict=True)
                if not isinstance(r, SumsReply | TablesReply)
            ]
        )
    assert sizes[0] == sizes[1]


def test_a_dealing_is_sent_once_and_a_proof_is_short_beside_it() -> None:
    """8 bytes a shared number; seeds, keys and the proof, one number for 64 cells, are all that comes on top."""
    n = 2_000
    world = World(some_cells(WIDTHS, n, missing=0.0))
    transport = Recorded(world.handlers())
    run(world.plan(), {}, transport)
    per_party = dict.fromkeys(WIDTHS, 0)
    for name, data in transport.answered:
        per_party[name] += len(data)
    body = 8 * n * CELL_NUMBERS * WIDTHS["d"]
    assert body < per_party["d"] < body + 8 * n * WIDTHS["d"] / 16 + 8_000
