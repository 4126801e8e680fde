"""How much dearer than their own random bytes are coins, and a whole release of ranks?

The yardstick is a plain implementation's raw material: one AES-CTR byte for each of the
N(N-1)/2 coins, written to one reused buffer and not looked at.
"""

from __future__ import annotations

from argparse import Namespace
from statistics import median

import numpy as np

from benchmarks.timing import Timing, time_interleaved
from reporting.catalogue import Measured, Places
from reporting.records import Record
from reporting.tables import Table, verdict
from verticopula.privacy.coins import CoinStream, flip_threshold
from verticopula.privacy.noise import Keystream, SecureNoise
from verticopula.stats.ranks import flip_comparisons

EPSILON = 0.5  # per comparison: half of a study's epsilon of 1
TARGET = 1.3
WORDS_AT_ONCE = 1 << 14  # about as many as the rank release draws at once
BUFFER = 1 << 19
KEYSTREAM_PAD = 16  # what Keystream.fill wants behind its output


def draw_bytes(count: int, keystream: Keystream) -> None:
    """`count` keystream bytes through one buffer."""
    buffer = np.empty(BUFFER + KEYSTREAM_PAD, dtype=np.uint8)
    for start in range(0, count, BUFFER):
        keystream.fill(buffer, min(BUFFER, count - start))


def draw_coins(count: int, keystream: Keystream) -> None:
    """`count` packed coins, in pieces that stay in the processor's cache."""
    coins = CoinStream(keystream, flip_threshold(EPSILON))
    words = -(-count // 64)
    for start in range(0, words, WORDS_AT_ONCE):
        coins.draw(min(WORDS_AT_ONCE, words - start))


def run(options: Namespace) -> Measured:
    """Time the three, taking turns."""
    n, repetitions = (5_000, 3) if options.quick else (71_827, 25)
    count = n * (n - 1) // 2
    noise = SecureNoise()
    values = np.random.default_rng(0).standard_normal(n)
    flip_comparisons(values[:300], EPSILON, noise.stream())  # compiles
    timings = time_interleaved(
        {
            "bytes": lambda: draw_bytes(count, noise.stream()),
            "coins": lambda: draw_coins(count, noise.stream()),
            "release": lambda: flip_comparisons(values, EPSILON, noise.stream()),
        },
        repetitions,
    )
    ratios = {
        what: {
            "of_minima": timings[what].minimum / timings["bytes"].minimum,
            "of_medians": timings[what].median / timings["bytes"].median,
            "of_wall_medians": median(timings[what].wall) / median(timings["bytes"].wall),
        }
        for what in ("coins", "release")
    }
    return (
        {"n_subjects": n, "coins": count, "epsilon_per_comparison": EPSILON, "repetitions": repetitions},
        {
            "timings": {what: timing.to_dict() for what, timing in timings.items()},
            "ratio_to_bytes": ratios,
            "target": {"coins": TARGET, "met": _judged(ratios["coins"]) <= TARGET},
        },
    )


def present(record: Record, places: Places) -> list[Table]:
    """One table."""
    timings = {what: Timing.of(saved) for what, saved in record.results["timings"].items()}
    settings = record.settings
    return [_tabulate(settings["n_subjects"], settings["coins"], timings, record.results["ratio_to_bytes"])]


def _judged(ratio: dict[str, float]) -> float:
    return max(ratio["of_minima"], ratio["of_medians"])


def _tabulate(n: int, count: int, timings: dict[str, Timing], ratios: dict[str, dict[str, float]]) -> Table:
    names = {"bytes": "one AES-CTR byte per coin", "coins": "packed coins", "release": "whole rank release"}
    rows = []
    for what, timing in timings.items():
        ratio = ratios.get(what)
        rows.append(
            (
                names[what],
                f"{timing.minimum:.3f}",
                f"{timing.median:.3f}",
                f"{1e9 * timing.minimum / count:.3f}",
                f"{ratio['of_minima']:.2f}" if ratio else "1",
                f"{ratio['of_medians']:.2f}" if ratio else "1",
                f"{ratio['of_wall_medians']:.2f}" if ratio else "1",
                verdict(_judged(ratio), TARGET) if ratio and what == "coins" else "",
            )
        )
    header = ("", "min s", "median s", "ns per coin", "ratio of minima", "ratio of medians", "of wall medians")
    return Table(f"{count:,} coins (N = {n:,}), processor seconds", (*header, f"target {TARGET}"), tuple(rows))
