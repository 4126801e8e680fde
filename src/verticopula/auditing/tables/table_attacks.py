"""Attacks on a finished synthetic table: people who were in the study against people who were not.

Somebody who was left out cannot have been copied. So whatever an attack does better for the study's own people than
for the left-out ones, it does with what the table says about them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from verticopula.auditing.tables.encoded_rows import EncodedRows, nearest, tied_nearest
from verticopula.auditing.tables.findings import Finding, auc, can_tell_from_half, difference_of_means, wilson_interval
from verticopula.data.missingness import unique_masks
from verticopula.schema.columns import ColumnKey

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class TableAttackTuning:
    """How tables are attacked. Chosen by hand, not tuned: any choice gives a valid interval.

    Attributes
    ----------
    most_people : of either kind, in an attack
    most_rows : synthetic rows that are searched
    most_secrets : columns that are guessed
    close : grades: a guess this near counts as right
    candidates : rows that a link is looked for among
    """

    most_people: int = 1000
    most_rows: int = 4000
    most_secrets: int = 12
    close: float = 0.05
    candidates: int = 5


TABLE_ATTACK_TUNING = TableAttackTuning()


@dataclass(frozen=True, repr=False)
class AttackedTable:
    """A synthetic table and the people to attack with it. No repr: it holds raw values.

    Attributes
    ----------
    members, others : people in the study, and as many who were left out
    rows : synthetic rows
    """

    members: EncodedRows
    others: EncodedRows
    rows: EncodedRows

    @classmethod
    def draw(
        cls, members: EncodedRows, others: EncodedRows, rows: EncodedRows, rng: np.random.Generator
    ) -> AttackedTable:
        """Equally many people of either kind, and not more of anything than attacks have time for."""
        size = min(len(members), len(others), TABLE_ATTACK_TUNING.most_people)
        return cls(
            members.rows(rng.permutation(len(members))[:size]),
            others.rows(rng.permutation(len(others))[:size]),
            rows.rows(rng.permutation(len(rows))[: TABLE_ATTACK_TUNING.most_rows]),
        )


def attack_tables(exposed: AttackedTable, confidence: float, rng: np.random.Generator) -> Iterator[Finding]:
    """All attacks that need no more than the table."""
    yield membership_by_distance(exposed, confidence, rng)
    yield membership_by_likelihood(exposed, confidence)
    yield closeness(exposed, confidence, rng)
    yield attribute_inference(exposed, confidence, rng)
    found = linkability(exposed, confidence, rng)
    if found is not None:
        yield found


def membership_by_distance(exposed: AttackedTable, confidence: float, rng: np.random.Generator) -> Finding:
    """Guess that somebody was in the study if a synthetic row is near."""

    def score(people: EncodedRows, rows: EncodedRows) -> Floats:
        return -nearest(people, rows)[1][:, 0]

    value, low, high = auc(score(exposed.members, exposed.rows), score(exposed.others, exposed.rows), confidence)
    invented = exposed.rows.shuffled(rng)
    baseline, _, _ = auc(score(exposed.members, invented), score(exposed.others, invented), confidence)
    return Finding("membership, by distance", value, low, high, 0.5, baseline, _membership(low, high))


def membership_by_likelihood(exposed: AttackedTable, confidence: float) -> Finding:
    """Guess that somebody was in the study if a Gaussian copula fitted to the synthetic rows makes them likely."""
    ordered = np.flatnonzero(~exposed.rows.unordered)
    scores = ndtri(np.clip(exposed.rows.values[:, ordered], 1e-3, 1 - 1e-3))
    correlation = np.atleast_2d(np.corrcoef(scores, rowvar=False)) + 1e-3 * np.eye(ordered.size)
    likely = [_copula_density(part.values[:, ordered], correlation) for part in (exposed.members, exposed.others)]
    value, low, high = auc(likely[0], likely[1], confidence)
    return Finding("membership, by likelihood", value, low, high, 0.5, None, _membership(low, high))


def _copula_density(grades: Floats, correlation: Floats) -> Floats:
    """Log density of each person's known grades; people are taken together by what is known of them."""
    latent = ndtri(np.clip(grades, 1e-3, 1 - 1e-3))
    known = ~np.isnan(latent)
    out = np.zeros(len(latent))
    patterns, index, _ = unique_masks(known)
    for k, pattern in enumerate(patterns):
        rows = np.flatnonzero(index == k)
        if not pattern.any():
            continue
        z = latent[np.ix_(rows, np.flatnonzero(pattern))]
        root = np.linalg.cholesky(correlation[np.ix_(pattern, pattern)])
        white = np.linalg.solve(root, z.T)
        out[rows] = -np.log(np.diag(root)).sum() - 0.5 * (white**2).sum(axis=0) + 0.5 * (z**2).sum(axis=1)
    return out


def _membership(low: float, high: float) -> str:
    if low > 0.5:
        return "Somebody who knows your record can tell better than by guessing whether you were in the study."
    return f"Knowing your record, this attack does not tell whether you were in the study (AUC at most {high:.3f})."


def closeness(exposed: AttackedTable, confidence: float, rng: np.random.Generator) -> Finding:
    """Share of synthetic rows whose nearest person was in the study (distance to closest record)."""
    value, size = closer_share(exposed, exposed.rows)
    baseline, _ = closer_share(exposed, exposed.rows.shuffled(rng))
    low, high = wilson_interval(value, size, confidence)
    conclusive = can_tell_from_half(size, confidence)
    means = "Synthetic rows are no nearer to you than to people whom the study never saw."
    if low > 0.5:
        means = "Synthetic rows are nearer to people in the study than to others like them: some are copies of people."
    elif not conclusive:
        means = "Too few to say: nearly all synthetic rows are nearest to the same few people."
    return Finding("closest record", value, low, high, 0.5, baseline, means, conclusive=conclusive)


def closer_share(exposed: AttackedTable, rows: EncodedRows) -> tuple[float, float]:
    """The share, and how many people it rests on: 1/Σw², where w is the part of the rows that is nearest to one.

    Only people known to the same parties compete: a distance over one column is shorter than one over ten. Each group
    counts by its people. Equally near people share a row, so nobody wins by where they stand in the table.
    """
    size = len(exposed.members)
    values = np.concatenate([exposed.members.values, exposed.others.values])
    weights = np.zeros(2 * size)
    for group in _known_to_same_parties(rows.keys, values):
        people = EncodedRows(rows.keys, values[group], rows.unordered, rows.columns)
        weights[group] = tied_nearest(rows, people) * group.size
    weights /= weights.sum()
    return float(weights[:size].sum()), float(1.0 / np.sum(weights**2))


def _known_to_same_parties(keys: Sequence[ColumnKey], values: Floats) -> Iterator[Ints]:
    """The people that each set of parties knows something of; nobody of whom nothing is known."""
    names = list(dict.fromkeys(key.party for key in keys))
    parts = [[k for k, key in enumerate(keys) if key.party == name] for name in names]
    known = np.column_stack([~np.isnan(values[:, part]).all(axis=1) for part in parts])
    patterns, index, _ = unique_masks(known)
    for k, pattern in enumerate(patterns):
        if pattern.any():
            yield np.flatnonzero(index == k)


def attribute_inference(exposed: AttackedTable, confidence: float, rng: np.random.Generator) -> Finding:
    """Guess one column of a person from the synthetic row that is nearest in all the others."""
    count = len(exposed.rows.keys)
    secrets = np.sort(rng.permutation(count)[: TABLE_ATTACK_TUNING.most_secrets]) if count > 1 else np.arange(0)
    right = {side: np.full((len(exposed.members), secrets.size), np.nan) for side in ("members", "others", "margin")}
    for k, secret in enumerate(secrets):
        rows = exposed.rows.without(int(secret))
        known = exposed.rows.values[:, secret]
        for side, people in (("members", exposed.members), ("others", exposed.others)):
            index, _ = nearest(people.without(int(secret)), rows)
            truth = people.values[:, secret]
            right[side][:, k] = _is_right(known[index[:, 0]], truth, exposed.rows, int(secret))
            if side == "members":
                usual = np.full(truth.size, _usual(known, exposed.rows, int(secret)))
                right["margin"][:, k] = _is_right(usual, truth, exposed.rows, int(secret))
    rates = {side: _mean_by_person(found) for side, found in right.items()}
    value, low, high = difference_of_means(rates["members"], rates["others"], confidence)
    details = {
        "right for members": float(rates["members"].mean()),
        "right for people left out": float(rates["others"].mean()),
        "right with the most usual value": float(rates["margin"].mean()),
        "columns guessed": int(secrets.size),
    }
    means = "What this table lets others guess about you, it lets them guess about people who were never in it."
    if low > 0.0:
        means = "Others guess your values from this table more often because you were in the study."
    base = float(rates["margin"].mean() - rates["others"].mean())
    return Finding("attribute inference, beyond the left-out", value, low, high, 0.0, base, means, details)


def _usual(known: Floats, rows: EncodedRows, secret: int) -> float:
    """The best guess without any record: the most frequent value, or the middle."""
    if rows.columns[secret].is_discrete:
        values, counts = np.unique(known, return_counts=True)
        return float(values[np.argmax(counts)])
    return 0.5


def _is_right(guess: Floats, truth: Floats, rows: EncodedRows, secret: int) -> Floats:
    close = guess == truth if rows.columns[secret].is_discrete else np.abs(guess - truth) <= TABLE_ATTACK_TUNING.close
    return np.where(np.isnan(truth), np.nan, close.astype(np.float64))


def _mean_by_person(right: Floats) -> Floats:
    """Each person's share of right guesses; people of whom nothing was to be guessed are left out."""
    some = ~np.isnan(right).all(axis=1)
    return np.asarray(np.nanmean(right[some], axis=1))


def linkability(exposed: AttackedTable, confidence: float, rng: np.random.Generator) -> Finding | None:
    """Look up the two parts of a person separately: do they lead to the same synthetic rows?

    The parts are two parties' columns, or two halves of one party's.
    """
    parts = _two_parts(exposed)
    if parts is None:
        return None
    linked: dict[str, Floats] = {}
    for side, people in (("members", exposed.members), ("others", exposed.others)):
        known = [~np.isnan(people.values[:, part]).all(axis=1) for part in parts]
        some = people.rows(np.flatnonzero(known[0] & known[1]))
        found = [nearest(some.only(part), exposed.rows.only(part), TABLE_ATTACK_TUNING.candidates)[0] for part in parts]
        linked[side] = _overlap(found[0], found[1])
        if side == "members":
            linked["chance"] = _overlap(found[0], rng.permutation(found[1]))
    if min(linked["members"].size, linked["others"].size) < 30:
        return None
    value, low, high = difference_of_means(linked["members"], linked["others"], confidence)
    details = {
        "linked, members": float(linked["members"].mean()),
        "linked, people left out": float(linked["others"].mean()),
        "linked, somebody else's second part": float(linked["chance"].mean()),
        "parts": [sorted({str(exposed.rows.keys[k].party) for k in part}) for part in parts],
    }
    means = "Two organisations that each know a part of you do not find each other's part through this table."
    if low > 0.0:
        means = "Two organisations that each know a part of you can connect the parts through this table."
    base = float(linked["chance"].mean() - linked["others"].mean())
    return Finding("linkability, beyond the left-out", value, low, high, 0.0, base, means, details)


def _two_parts(exposed: AttackedTable) -> tuple[list[int], list[int]] | None:
    """Columns of the two parties that know most people in common; halves if there is one party."""
    keys = exposed.rows.keys
    names = list(dict.fromkeys(key.party for key in keys))
    if len(names) == 1:
        half = len(keys) // 2
        return (list(range(half)), list(range(half, len(keys)))) if half else None
    at = {name: [k for k, key in enumerate(keys) if key.party == name] for name in names}
    known = {name: ~np.isnan(exposed.others.values[:, part]).all(axis=1) for name, part in at.items()}
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    best = max(pairs, key=lambda pair: int((known[pair[0]] & known[pair[1]]).sum()))
    return at[best[0]], at[best[1]]


def _overlap(first: Ints, second: Ints) -> Floats:
    """Whether the two lists of candidates of each person have a row in common."""
    return np.asarray((first[:, :, None] == second[:, None, :]).any(axis=(1, 2)), dtype=np.float64)
