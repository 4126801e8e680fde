"""The public plan of secure sums: whose rows, which columns, bounds on records, and how many numbers are opened."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import ProtocolError, SettingsError
from verticopula.mpc.fixed_point import FEWEST_BITS, MOST_BITS, check_room, encode_scores
from verticopula.mpc.gram_noise import gram_scales, share_scale, slack_of
from verticopula.mpc.secret_sharing import COMPUTE, Ring, public_share
from verticopula.schema.study_settings import COORDINATOR

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class SumsPlan:
    """Which sums are opened, and with how much noise. All of it is public.

    Attributes
    ----------
    parties, widths : who has scores, and how many columns of them each
    compute : the three that hold shares and add noise; at most one of them, the coordinator, has no scores
    pattern_of : (N,) every subject's pattern; -1 for none
    columns : (P, p) which columns a pattern's sums are about, the parties' columns side by side
    bounds : (P, K) largest squared norm of a party's part of a record, in units of 4^-bits; 0 where it has no part
    bits : fractional bits of a score
    mu : Gaussian differential privacy of everything that is opened, as long as one compute party at most is not honest
    """

    parties: tuple[str, ...]
    widths: tuple[int, ...]
    compute: tuple[str, str, str]
    pattern_of: NDArray[np.int64]
    columns: NDArray[np.bool_]
    bounds: NDArray[np.int64]
    bits: int
    mu: float


def choose_compute(parties: Sequence[str], third: str = COORDINATOR) -> tuple[str, str, str]:
    """The first three parties, or both and a third without data."""
    if len(parties) < COMPUTE - 1 or third in parties:
        raise SettingsError("secure sums need at least two parties, none of them named as the third without data")
    first, second, last, *_ = (*parties, third)
    return first, second, last


def check_plan(plan: SumsPlan) -> None:
    """ProtocolError where the plan contradicts itself; SettingsError where its sums would not fit in 64 bits."""
    n_parties, n_columns, n_patterns = len(plan.parties), sum(plan.widths), plan.columns.shape[0]
    named = len(set(plan.parties)) == n_parties > 0 and len(plan.widths) == n_parties and min(plan.widths) > 0
    computing = len(plan.compute) == COMPUTE == len(set(plan.compute))
    if not named or not computing or len(set(plan.compute) - set(plan.parties)) > 1:
        raise ProtocolError("secure sums need three compute parties, at most one of them without scores")
    shapes = plan.columns.shape == (n_patterns, n_columns) and plan.bounds.shape == (n_patterns, n_parties)
    if not shapes or plan.pattern_of.ndim != 1 or n_patterns == 0 or plan.pattern_of.size == 0:
        raise ProtocolError("the plan of secure sums has arrays of the wrong shape")
    if plan.pattern_of.min() < -1 or plan.pattern_of.max() >= n_patterns:
        raise ProtocolError("the plan of secure sums names a pattern that it does not have")
    takes_part = np.column_stack([plan.columns[:, own_columns(plan, p)].any(axis=1) for p in plan.parties])
    # A bound below 0 would be taken off the others' when the noise is chosen.
    if not takes_part.any(axis=1).all() or not np.array_equal(np.where(takes_part, 1, 0), np.sign(plan.bounds)):
        raise ProtocolError("the plan of secure sums has a bound for a party without columns, or the other way round")
    if not FEWEST_BITS <= plan.bits <= MOST_BITS:
        raise ProtocolError(f"scores have {FEWEST_BITS} to {MOST_BITS} fractional bits")
    counts = np.bincount(plan.pattern_of[plan.pattern_of >= 0], minlength=n_patterns)
    if counts.min() == 0:
        raise ProtocolError("the plan of secure sums has a pattern without subjects")
    for index, count in enumerate(counts):
        check_room(int(count), pattern_bound(plan, index), plan.mu, int(plan.columns[index].sum()) + 1)
    plan_slack(plan)


def same_plan(plan: SumsPlan, other: SumsPlan, tolerance: float = 1e-6) -> bool:
    """Whether two plans are equal: bounds and mu, which come from floating-point numbers, up to a tolerance."""
    roles = (plan.parties, plan.widths, plan.compute) == (other.parties, other.widths, other.compute)
    arrays = np.array_equal(plan.pattern_of, other.pattern_of) and np.array_equal(plan.columns, other.columns)
    near = plan.bounds.shape == other.bounds.shape
    near = near and bool(np.allclose(plan.bounds, other.bounds, rtol=tolerance, atol=1.0))
    near = near and math.isclose(plan.mu, other.mu, rel_tol=tolerance)
    return roles and plan.bits == other.bits and arrays and near


def own_columns(plan: SumsPlan, party: str) -> slice:
    """The slice of a party's columns among all columns."""
    index = plan.parties.index(party)
    start = sum(plan.widths[:index])
    return slice(start, start + plan.widths[index])


def own_rows(plan: SumsPlan, party: str) -> Bools:
    """(N,) the subjects whose scores this party shares; in the cohort's order."""
    bounds = plan.bounds[:, plan.parties.index(party)]
    return np.asarray((plan.pattern_of >= 0) & (bounds[plan.pattern_of] > 0))


def own_bounds(plan: SumsPlan, party: str) -> Ints:
    """(n_k,) the bound of each of `own_rows`."""
    return np.asarray(plan.bounds[:, plan.parties.index(party)][plan.pattern_of[own_rows(plan, party)]])


def own_mask(plan: SumsPlan, party: str) -> Bools:
    """(n_k, p_k) where `own_rows` may be other than zero."""
    return np.asarray(plan.columns[:, own_columns(plan, party)][plan.pattern_of[own_rows(plan, party)]])


def code_scores(plan: SumsPlan, party: str, scores: NDArray[np.float64]) -> Ints:
    """A party's scores as the integers that it shares: coded, clipped, in the plan's rows.

    `scores` : (N, p_k) over the whole cohort; NaN where there is no value
    """
    mask, rows = own_mask(plan, party), own_rows(plan, party)
    if scores.shape != (rows.size, mask.shape[1]):
        raise ProtocolError(f"party {party!r}: its scores do not have the shape that the plan says")
    shared = scores[rows]
    if np.isnan(shared[mask]).any():
        raise ProtocolError(f"party {party!r}: the plan counts on values that it does not have")
    return encode_scores(np.where(mask, shared, 0.0), plan.bits, own_bounds(plan, party))


def pattern_bound(plan: SumsPlan, pattern: int) -> int:
    """Largest squared norm of a whole record with its 1, in units of 4^-bits."""
    return sum(map(int, plan.bounds[pattern])) + (1 << 2 * plan.bits)  # not in 64 bits: they could wrap around


def block_factor(plan: SumsPlan, party: str) -> float:
    """What replacing one party's part of a record moves, relative to a whole record: its mu is plan.mu times this.

    The rest of the record stays: x = (u, w) becomes y = (u, v) with |u|^2 <= A = B - B_k and |w|^2, |v|^2 <= B_k. Then
    |x x' - y y'|^2 = 2 |u|^2 |w - v|^2 + |w w' - v v'|^2, which is largest for full lengths and, with c the cosine
    between w and v, 4 A B_k (1 - c) + 2 B_k^2 (1 - c^2). If B_k <= A that is 8 A B_k, at c = -1; otherwise 2 B^2, at
    c = -A/B_k. A whole record moves it by 2 B^2, so the factor is sqrt(4 f (1 - f)) with f = B_k/B, or 1. From exact
    integers, rounded up.
    """
    index, largest = plan.parties.index(party), 0.0
    for pattern in range(plan.columns.shape[0]):
        part, whole = int(plan.bounds[pattern, index]), pattern_bound(plan, pattern)
        squared = 4 * part * (whole - part) / whole**2 if 2 * part <= whole else 1.0
        largest = max(largest, squared)
    return min(math.sqrt(largest) * (1.0 + 2.0**-50), 1.0)


def person_mu(plan: SumsPlan, *, rows_agreed: bool) -> float:
    """The plan's mu for everything about one person.

    Where the parties do not know that rows of one person stand in one place, a coordinator may have put each party's
    block into another row. Replacing the person then moves several records, each by its block: at most the sum.
    """
    blocks = math.fsum(block_factor(plan, party) for party in plan.parties)
    return plan.mu if rows_agreed else plan.mu * max(1.0, blocks) * (1.0 + 2.0**-50)


def pattern_size(plan: SumsPlan, pattern: int) -> int:
    """How many numbers are opened: the upper triangle with the appended 1, without the public corner."""
    width = int(plan.columns[pattern].sum())
    return width * (width + 1) // 2 + width


def share_scales(plan: SumsPlan, pattern: int) -> NDArray[np.float64]:
    """The scale of one compute party's noise on each of those numbers; two shares suffice for the plan's mu."""
    width = int(plan.columns[pattern].sum())
    off, diagonal = (share_scale(scale) for scale in gram_scales(pattern_bound(plan, pattern), plan.mu))
    rows, columns = np.triu_indices(width + 1)
    return np.where(rows == columns, diagonal, off)[:-1]


def plan_slack(plan: SumsPlan) -> float:
    """What whole numbers and noise in shares add to epsilon, for any one person: for `gaussian_dp.gaussian_epsilon`."""
    return max(
        slack_of(pattern_size(plan, index), float(share_scales(plan, index).min()))
        for index in range(plan.columns.shape[0])
    )


def pattern_shares(
    plan: SumsPlan, pattern: int, index: int, shares: Mapping[str, tuple[Ring, Ring]], places: Mapping[str, Ints]
) -> tuple[Ring, Ring]:
    """Compute party `index`'s two shares of one pattern's records, the appended 1 in the last column.

    `places` : party -> (N,) where a subject's row is among those that the party shared
    """
    subjects = np.flatnonzero(plan.pattern_of == pattern)
    firsts, seconds = [], []
    for number, party in enumerate(plan.parties):
        if plan.bounds[pattern, number] == 0:
            continue
        chosen = np.ix_(places[party][subjects], np.flatnonzero(plan.columns[pattern, own_columns(plan, party)]))
        firsts.append(shares[party][0][chosen])
        seconds.append(shares[party][1][chosen])
    ones = public_share(index, (subjects.size, 1), 2**plan.bits)
    return np.concatenate([*firsts, ones[0]], axis=1), np.concatenate([*seconds, ones[1]], axis=1)


def noise_deviation(plan: SumsPlan, pattern: int) -> tuple[float, float]:
    """Standard deviations off and on the diagonal once all three compute parties have added their shares, in scores."""
    factor = math.sqrt(COMPUTE) / 4.0**plan.bits
    off, diagonal = (share_scale(scale) for scale in gram_scales(pattern_bound(plan, pattern), plan.mu))
    return factor * off, factor * diagonal
