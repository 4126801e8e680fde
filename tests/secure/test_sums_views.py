"""What travels in secure sums, looked at as bytes: no score, and the same statistics for any data."""

from __future__ import annotations

import numpy as np
import pytest

from tests.secure.sums_world import KEY, STUDY, Recorded, World, run, some_scores
from tests.secure.test_secret_sharing import chi_square_of_bytes
from verticopula.mpc.sealed_messages import SealedChannel, shared_authenticity
from verticopula.mpc.secret_sharing import gram_share, held_shares, seeds_for, to_bytes
from verticopula.mpc.sums_plan import pattern_shares
from verticopula.privacy.noise import Keystream
from verticopula.protocol.messages import SumsReply, SumsRequest, fingerprint
from verticopula.protocol.party.sums_handler import ShareBundle
from verticopula.protocol.party.sums_record import unpack_noise
from verticopula.protocol.wire import REPLY_KINDS, REQUEST_KINDS, decode, encode

WIDTHS = {"a": 4, "b": 3, "c": 5, "d": 2}


def test_no_score_travels() -> None:
    """Neither as a float nor as the integer it became, in no message and no record that a message could quote."""
    world = World(some_scores(WIDTHS, 50))
    plan = world.plan()
    transport = Recorded(world.handlers())
    run(plan, {}, transport)
    everything = b"".join(data for _, data in [*transport.sent, *transport.answered])
    assert len(everything) > 10_000
    for party, values in world.scores.items():
        coded = world.integers(plan, party)
        canaries = [*(float(v).hex() for v in values[~np.isnan(values)]), *(str(int(v)) for v in coded.ravel())]
        raw = [np.float64(v).tobytes() for v in values[~np.isnan(values)]]
        raw += [np.int64(v).tobytes() for v in coded.ravel() if abs(int(v)) > 2**16]
        assert not any(canary in everything for canary in raw)
        assert not any(text.encode() in everything for text in canaries if len(text) > 8)


def test_the_canary_test_would_find_a_score() -> None:
    value = some_scores(WIDTHS, 5, missing=0.0)["a"][0, 0]
    assert np.float64(value).tobytes() in encode(ShareBundle("", (), np.array([value]).tobytes()))


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_what_compute_parties_and_coordinator_receive_is_uniform_for_extreme_data(level: float) -> None:
    scores = {name: np.full((300, width), level) for name, width in WIDTHS.items()}
    world = World(scores)
    plan = world.plan()
    transport = Recorded(world.handlers(seed=11))
    run(plan, {}, transport)
    requests = [decode(data, REQUEST_KINDS) for _, data in transport.sent]
    replies = [decode(data, REPLY_KINDS) for _, data in transport.answered]
    pvalues = []
    for request, name in ((r, n) for r, (n, _) in zip(requests, transport.sent, strict=True)):
        if not isinstance(request, SumsRequest):
            continue
        secret = bytes.fromhex(world.records[name].get(f"sums/{name}/{STUDY}")["secret"])  # type: ignore[index]
        channel = SealedChannel(STUDY, name, secret, shared_authenticity(KEY))
        channel.accept_keys(request.keys)
        for sender, sealed in zip(plan.parties, request.boxes, strict=True):
            if sender != name:
                bundle = decode(channel.open(sender, "score shares", 0, sealed), (ShareBundle,))
                pvalues += [chi_square_of_bytes(part) for part in (sealed, bundle.body) if len(part) > 5_000]
    terms = b"".join(term.tobytes() for r in replies if isinstance(r, SumsReply) for term in r.terms[:1])
    pvalues.append(chi_square_of_bytes(terms))
    assert len(pvalues) > 10
    assert min(pvalues) > 1e-5


def test_a_term_is_hidden_by_a_key_that_the_curious_party_lacks() -> None:
    """Party a knows S_0 and S_1, so to it b's term is linear in the scores: only the key of b and c hides it."""
    world = World(some_scores(WIDTHS, 40, missing=0.0))
    plan = world.plan()
    transport = Recorded(world.handlers(seed=2))
    run(plan, {}, transport)
    requests = {n: decode(d, REQUEST_KINDS) for n, d in transport.sent[-3:]}
    sent = decode(dict(transport.answered[-3:])["b"], REPLY_KINDS).terms[0].view(np.uint64)
    digest, channels, whole = fingerprint((plan, requests["b"].keys)), {}, {}
    for name in WIDTHS:
        secret = bytes.fromhex(world.records[name].get(f"sums/{name}/{STUDY}")["secret"])  # type: ignore[index]
        channels[name] = SealedChannel(STUDY, name, secret, shared_authenticity(KEY))
        channels[name].accept_keys(requests["b"].keys)
        seeds, third = world.handler(name)._own_shares(channels[name], plan, digest)
        whole[name] = held_shares(1, third.shape, seeds_for(1, seeds), to_bytes(third))
    places = {name: np.arange(40) for name in WIDTHS}
    term = gram_share(*pattern_shares(plan, 0, 1, whole, places))[:-1]
    noise = unpack_noise(world.records["b"].get(f"sums/b/{STUDY}")["noise"]).view(np.uint64)  # type: ignore[index]
    known = Keystream(channels["a"].common_key("b", "zero", digest, "0")).words(term.size)
    mask = sent - term - noise + known  # b is after a, so it takes their keystream away
    np.testing.assert_array_equal(mask, Keystream(channels["b"].common_key("c", "zero", digest, "0")).words(term.size))
    assert np.unique(mask).size == mask.size


def test_sizes_follow_from_the_plan_and_not_from_the_data() -> None:
    sizes = []
    for level in (0.0, 0.7):
        world = World({name: np.full((40, width), level) for name, width in WIDTHS.items()})
        transport = Recorded(world.handlers())
        run(world.plan(), {}, transport)
        replies = [decode(data, REPLY_KINDS) for _, data in transport.answered]
        sizes.append(
            [
                len(data)
                for (_, data), r in zip(transport.answered, replies, strict=True)
                if not isinstance(r, SumsReply)
            ]
        )
    assert sizes[0] == sizes[1]


def test_seeds_stand_for_two_of_the_three_shares() -> None:
    """8 bytes a score and full share, two of which are sent; seeds, keys and tags are all that comes on top."""
    n = 2_000
    world = World(some_scores(WIDTHS, n, missing=0.0))
    transport = Recorded(world.handlers())
    run(world.plan(), {}, transport)
    per_party = dict.fromkeys(WIDTHS, 0)
    for name, data in transport.answered:
        per_party[name] += len(data)
    assert per_party["d"] < 2 * 8 * n * WIDTHS["d"] + 2_000
