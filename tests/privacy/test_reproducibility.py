"""The same seed gives the same study, whatever the order of parties; no seed never does."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.builders import CONTINUOUS, fit_seeded, make_party
from tests.oracle.naive import goodness_of_fit
from verticopula import Federation, NotPrivateWarning, Synthesizer
from verticopula.privacy.noise import SecureNoise, SeededNoise, derive_key, server_generator
from verticopula.protocol.rank_messages import ColumnQuery, ReleaseReply, ReleaseRequest

PARTIES: dict[str, dict[str, dict[str, Any]]] = {
    "left": {"y": CONTINUOUS, "flag": {"kind": "binary"}},
    "middle": {"n": {"kind": "count", "bounds": [0, 30]}},
    "right": {"g": {"kind": "nominal", "categories": ["u", "v", "w"]}, "x": CONTINUOUS},
}
LABELS = ["left.y", "left.flag", "middle.n", "right.g=u", "right.g=v", "right.g=w", "right.x"]


def federation_in(order: tuple[str, ...]) -> Federation:
    return Federation.from_dict(
        {
            "name": "study",
            "response": "left.y",
            "party": [
                {"name": p, "column": [{"name": c, **settings} for c, settings in PARTIES[p].items()]} for p in order
            ],
        }
    )


def tables(n: int = 120) -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(2)
    ids = [f"s{i}" for i in range(n)]
    y = rng.normal(size=n)
    return {
        "left": pl.DataFrame({"subject_id": ids, "y": y, "flag": (y > 0).astype(int)}),
        "middle": pl.DataFrame({"subject_id": ids[: n // 2], "n": rng.integers(0, 30, n // 2)}),
        "right": pl.DataFrame(
            {"subject_id": ids, "g": [["u", "v", "w"][k] for k in rng.integers(0, 3, n)], "x": y + rng.normal(size=n)}
        ),
    }


FORWARD, BACKWARD = ("left", "middle", "right"), ("right", "middle", "left")


def test_the_same_seed_gives_the_same_study() -> None:
    first, second = (fit_seeded(federation_in(FORWARD), tables(), 7, method="refined", epsilon=3.0) for _ in range(2))
    np.testing.assert_array_equal(first.correlation_, second.correlation_)
    for _ in range(2):  # the k-th sample of the one is the k-th of the other
        for one, two in zip(first.sample(50).values(), second.sample(50).values(), strict=True):
            assert one.equals(two)
    assert not first.sample(50)["left"].equals(
        fit_seeded(federation_in(FORWARD), tables(), 7, method="refined", epsilon=3.0).sample(50)["left"]
    )


def test_the_order_of_parties_and_tables_changes_no_release() -> None:
    first = fit_seeded(federation_in(FORWARD), tables(), 7, method="refined", epsilon=3.0)
    second = fit_seeded(federation_in(BACKWARD), dict(reversed(tables().items())), 7, method="refined", epsilon=3.0)
    for key, margin in first.result_.copula.margins.items():
        np.testing.assert_array_equal(margin.probabilities, second.result_.copula.margins[key].probabilities)
    np.testing.assert_allclose(
        first.correlation_.loc[LABELS, LABELS], second.correlation_.loc[LABELS, LABELS], atol=1e-6
    )


def test_different_seeds_differ() -> None:
    first, second = (
        fit_seeded(federation_in(FORWARD), tables(), seed, method="refined", epsilon=3.0) for seed in (7, 8)
    )
    assert not np.array_equal(first.correlation_, second.correlation_)
    assert not first.sample(50)["left"].equals(second.sample(50)["left"])


def test_without_a_seed_no_two_studies_are_alike() -> None:
    first, second = (Synthesizer(federation_in(FORWARD), "refined", epsilon=3.0).fit(tables()) for _ in range(2))
    assert first.privacy_.is_private
    assert not np.array_equal(first.correlation_, second.correlation_)
    assert not first.sample(50)["left"].equals(first.sample(50)["left"])
    assert first.ledger_[0].study != second.ledger_[0].study


def test_a_seed_is_called_what_it_is() -> None:
    with pytest.warns(NotPrivateWarning, match="NOT PRIVATE"):
        fitted = Synthesizer(federation_in(FORWARD), "refined", epsilon=3.0, random_state=1).fit(tables())
    assert not fitted.privacy_.is_private
    assert "NOT PRIVATE" in fitted.summary()
    assert {entry.noise for entry in fitted.ledger_} == {"seeded"}


def test_one_party_s_release_depends_on_its_own_name_only() -> None:
    federation = federation_in(FORWARD)
    orders = (ColumnQuery("y", 1.0, 1.0), ColumnQuery("flag", 1.0, 1.0))
    values = {"y": np.linspace(-1, 1, 40), "flag": np.arange(40) % 2}
    request = ReleaseRequest("study", "vcds", "exact", orders)
    swapped = ReleaseRequest("study", "vcds", "exact", orders[::-1])

    def release(ask: ReleaseRequest, name: str) -> dict[str, Any]:
        reply = make_party(federation, "left", values, noise=SeededNoise(3).derive(name)).handle(ask)
        assert isinstance(reply, ReleaseReply)
        return {c.column: (c.ranks.tolist(), c.cells.tolist()) for c in reply.columns}

    assert release(request, "left") == release(swapped, "left")
    assert release(request, "left") != release(request, "other")


# ---- sources of noise --------------------------------------------------------------------


def test_keys_depend_on_every_part_unambiguously() -> None:
    keys = [
        derive_key(1, "a", "b"),
        derive_key(1, "ab"),
        derive_key(1, "b", "a"),
        derive_key(11, "a", "b"),
        derive_key(1, "a", "b", ""),
        derive_key(1, "", "a", "b"),
        derive_key(-1, "a", "b"),
    ]
    assert len(set(keys)) == len(keys)
    assert derive_key(1, "a", "b") == keys[0]
    assert (
        SeededNoise(1, "a").derive("b").stream("c").words(4).tolist()
        == SeededNoise(1).stream("a", "b", "c").words(4).tolist()
    )


def test_a_keystream_does_not_depend_on_how_it_is_read() -> None:
    whole = SeededNoise(1).stream("x").words(30_000)
    parts = SeededNoise(1).stream("x")
    np.testing.assert_array_equal(np.concatenate([parts.words(k) for k in (1, 2, 8_189, 8_192, 8_193, 5_423)]), whole)
    assert len(np.unique(whole)) == whole.size


def test_secure_streams_never_repeat() -> None:
    noise = SecureNoise()
    assert noise.stream("same").words(2).tolist() != noise.stream("same").words(2).tolist()


@pytest.mark.parametrize("noise", [SecureNoise(), SeededNoise(4)], ids=["secure", "seeded"])
@pytest.mark.parametrize("scale", [0.4, 3.0])
def test_laplace_noise_has_its_distribution(noise: Any, scale: float) -> None:
    """P(k) proportional to exp(-|k|/scale)."""
    drawn = noise.discrete_laplace(np.full(20_000, 5), scale, "laplace") - 5
    reach = int(12 * scale)
    support = np.arange(-reach, reach + 1)
    decay = np.exp(-1 / scale)
    pmf = (1 - decay) / (1 + decay) * decay ** np.abs(support)
    counts = np.array([np.sum(drawn == k) for k in support], dtype=float)
    counts[0] += drawn.size - counts.sum()
    pmf[0] += 1 - pmf.sum()
    assert goodness_of_fit(counts, pmf) > 1e-6


def test_the_coordinator_s_draws_follow_the_seed() -> None:
    assert server_generator(1, "a").random() == server_generator(1, "a").random()
    assert server_generator(1, "a").random() != server_generator(1, "b").random()
    assert server_generator(None).random() != server_generator(None).random()
