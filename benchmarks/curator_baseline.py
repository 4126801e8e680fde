"""AIM and MST of a trusted curator. Runs inside an environment of its own (mbi 2.0) and imports nothing of ours.

`python curator_baseline.py CODES.npz METHOD EPSILON DELTA RELATION SEED OUT.npz` fits METHOD (`aim` or `mst`) to a
table of whole numbers (`codes`, `sizes`), writes as many synthetic rows (`codes`), and prints a JSON object with
seconds and versions.

mbi 2.0 has no mechanisms, and those of its repository call an older version. So both stand here, after their papers
(McKenna et al., arXiv:2201.12677 and arXiv:2108.04978), with their authors' settings: three-way workload of at most
10,000 cells each, a model of at most 80 MB, 16 rounds a column at first, 1,000 steps of mirror descent a round.
What is estimated, and how rows are drawn, is mbi's. Small models take `curator_kernel.py`, because mbi compiles anew
for every model.

RELATION is who may differ: `added` (a person added or removed, as the authors have it), `replaced` (a person replaced:
noise times sqrt(2), and a choice's score moves by 2), or `shares` (the same, and noise times sqrt(1.5) more, as that of
three compute parties any two of which must suffice).
"""

import itertools
import json
import math
import sys
import time
from importlib.metadata import PackageNotFoundError, version

import jax
import numpy as np
from curator_kernel import descend, pack
from curator_trees import TreeMarginals, TreeSize, find_rho
from mbi import (
    CliqueVector,
    Domain,
    Factor,
    LinearMeasurement,
    MarkovRandomField,
    estimation,
    junction_tree,
    marginal_loss,
)
from mbi.marginal_loss import DatavectorQuery, WeightedQuery

RELATIONS = {"added": (1.0, 1.0), "replaced": (math.sqrt(2.0), 2.0), "shares": (math.sqrt(3.0), 2.0)}
DEGREE, MOST_CELLS, MODEL_MB, STEPS = 3, 10_000, 80.0, 1_000
MST_STEPS = (2_500, 10_000)
LARGE = 8_000_000  # entries of the maps of a tree from which on mbi compiles its own program


def choose(rng, scores, epsilon, sensitivity):
    """The exponential mechanism."""
    logits = 0.5 * epsilon / sensitivity * (scores - scores.max())
    weights = np.exp(logits)
    return int(rng.choice(scores.size, p=weights / weights.sum()))


class CountedTable:
    """Counts of a table of codes."""

    def __init__(self, codes, sizes):
        self.codes, self.sizes = codes, sizes
        self.domain = Domain([str(j) for j in range(len(sizes))], list(sizes))

    def count(self, columns):
        shape = [self.sizes[j] for j in columns]
        cells = np.ravel_multi_index(tuple(self.codes[:, j] for j in columns), shape)
        return np.bincount(cells, minlength=math.prod(shape)).astype(np.float64)

    def measure(self, columns, deviation, rng):
        counts = self.count(columns)
        noisy = counts + rng.normal(0.0, deviation, counts.size)
        return LinearMeasurement(noisy, tuple(str(j) for j in columns), stddev=deviation)


class FittedTree:
    """Log potentials of cliques (tuples of columns), and the number of people."""

    def __init__(self, table, potentials, total):
        self.domain, self.sizes, self.total = table.domain, table.sizes, total
        self.potentials = potentials
        tree, _ = junction_tree.make_junction_tree(self.domain, [_names(c) for c in potentials])
        nodes = list(tree.nodes)
        place = {node: k for k, node in enumerate(nodes)}
        self.nodes = [tuple(int(a) for a in node) for node in nodes]
        self.near = [[place[other] for other in tree.neighbors(node)] for node in nodes]

    def marginals(self):
        return TreeMarginals(self.nodes, self.near, self.potentials, self.sizes, self.total)

    def to_mbi(self):
        tables = {
            _names(c): Factor(self.domain.project(_names(c)), jax.numpy.asarray(values.reshape(_shape(c, self.sizes))))
            for c, values in self.potentials.items()
        }
        return CliqueVector(self.domain, list(tables), tables)


def _names(columns):
    return tuple(str(a) for a in columns)


def _shape(columns, sizes):
    return [sizes[a] for a in columns]


def fit(table, measured, steps, warm=None):
    """The model of mbi's `MirrorDescent` after so many steps."""
    total = estimation.minimum_variance_unbiased_total(measured)
    cliques = sorted({tuple(int(a) for a in one.clique) for one in measured})
    warm = {} if warm is None else warm.potentials
    starts = {c: warm.get(c, np.zeros(math.prod(_shape(c, table.sizes)))) for c in cliques}
    model = FittedTree(table, starts, total)
    heads, maps, cells, used, length = pack(model.nodes, model.near, cliques, table.sizes)
    if maps.size > LARGE or any(not isinstance(one.query, DatavectorQuery) for one in measured):
        found = estimation.MirrorDescent().estimate(table.domain, measured, iters=steps, warm_start=model.to_mbi())
        values = found.potentials.tables.items()
        return FittedTree(
            table, {tuple(int(a) for a in c): np.asarray(f.values, dtype=np.float64).ravel() for c, f in values}, total
        )
    weight, target = np.zeros(length), np.zeros(length)
    start = {c: (heads[1 + heads[0, 0] + i, 2], heads[1 + heads[0, 0] + i, 3]) for i, c in enumerate(cliques)}
    for one in measured:
        first, size = start[tuple(int(a) for a in one.clique)]
        weight[first : first + size] += 1.0 / one.stddev**2
        target[first : first + size] += np.asarray(one.noisy_measurement) / one.stddev**2
    target /= weight
    theta = np.concatenate([starts[c] for c in cliques])
    alpha = 2.0 / (marginal_loss.from_linear_measurements(measured, table.domain).lipschitz * total)
    room = np.zeros(4 * length)
    descend(
        heads, maps, theta, target, weight, total, alpha, steps, np.zeros(cells), np.zeros(cells), np.zeros(used), room
    )
    return FittedTree(table, {c: theta[start[c][0] : sum(start[c])] for c in cliques}, total)


def run_aim(table, rho, relation, rng):
    """Algorithm 2 of arXiv:2201.12677."""
    scale, moved = RELATIONS[relation]
    p = len(table.sizes)
    workload = [
        c for c in itertools.combinations(range(p), DEGREE) if math.prod(table.sizes[j] for j in c) <= MOST_CELLS
    ]
    candidates = sorted({part for c in workload for k in range(1, DEGREE + 1) for part in itertools.combinations(c, k)})
    weights = np.array([sum(len(set(c) & set(w)) for w in workload) for c in candidates], dtype=np.float64)
    answers = [table.count(c) for c in candidates]
    cells = np.array([answer.size for answer in answers])
    rounds = 16 * p
    sigma, epsilon = math.sqrt(rounds / (1.8 * rho)), math.sqrt(0.8 * rho / rounds)
    singles = [c for c in candidates if len(c) == 1]
    measured = [table.measure(c, scale * sigma, rng) for c in singles]
    size, free, used = TreeSize(table.sizes), set(singles), len(singles) * 0.5 / sigma**2
    model, count, last = fit(table, measured, STEPS), 0, False
    while not last:
        count += 1
        if rho - used < 2.0 * (0.5 / sigma**2 + epsilon**2 / 8.0):
            sigma, epsilon, last = math.sqrt(1.0 / (1.8 * (rho - used))), math.sqrt(0.8 * (rho - used)), True
        used += epsilon**2 / 8.0 + 0.5 / sigma**2
        limit, own = MODEL_MB * used / rho, scale * sigma
        able = [i for i, c in enumerate(candidates) if c in free or size.of(c) <= limit]
        now = model.marginals()
        errors = np.array([np.abs(answers[i] - now.of(candidates[i])).sum() for i in able])
        scores = weights[able] * (errors - math.sqrt(2.0 / math.pi) * own * cells[able])
        picked = candidates[able[choose(rng, scores, epsilon, moved * weights[able].max())]]
        measured.append(table.measure(picked, own, rng))
        size.add(picked)
        free |= {part for k in range(1, len(picked) + 1) for part in itertools.combinations(picked, k)}
        before = now.of(picked)
        model = fit(table, measured, STEPS, model)
        change = np.abs(model.marginals().of(picked) - before).sum()
        if change <= own * math.sqrt(2.0 / math.pi) * before.size:
            sigma, epsilon = sigma / 2.0, epsilon * 2.0
    return fit(table, measured, STEPS, model), count


def run_mst(table, rho, relation, rng):
    """Section 3 of arXiv:2108.04978, on a table whose rare values are pooled by their noisy counts."""
    scale, moved = RELATIONS[relation]
    p = len(table.sizes)
    deviation = scale * math.sqrt(3.0 / (2.0 * rho)) * math.sqrt(p)
    singles = [table.measure((j,), deviation, rng) for j in range(p)]
    pooled, first = PooledTable(table, singles, deviation), []
    for j, one in enumerate(singles):
        first.append(pooled.measurement(j, one, deviation))
    model = fit(pooled.table, first, MST_STEPS[0])
    now, pairs = model.marginals(), list(itertools.combinations(range(p), 2))
    gains = {pair: np.abs(pooled.table.count(pair) - now.of(pair)).sum() for pair in pairs}
    epsilon, group, tree = math.sqrt(8.0 * (rho / 3.0) / (p - 1)), list(range(p)), []
    for _ in range(p - 1):
        open_pairs = [(a, b) for a, b in pairs if group[a] != group[b]]
        a, b = open_pairs[choose(rng, np.array([gains[e] for e in open_pairs]), epsilon, moved)]
        tree.append((a, b))
        group = [group[a] if g == group[b] else g for g in group]
    wide = scale * math.sqrt(3.0 / (2.0 * rho)) * math.sqrt(p - 1)
    second = [pooled.table.measure(e, wide, rng) for e in tree]
    return fit(pooled.table, first + second, MST_STEPS[1]), pooled


class PooledTable:
    """A table whose values with a noisy count below three deviations are one value, and the way back."""

    def __init__(self, table, singles, deviation):
        self.kept = [np.asarray(one.noisy_measurement) >= 3.0 * deviation for one in singles]
        codes, sizes = [], []
        for j, kept in enumerate(self.kept):
            new = np.where(kept, np.cumsum(kept) - 1, kept.sum())
            codes.append(new[table.codes[:, j]])
            sizes.append(int(kept.sum()) + (not kept.all()))
        self.table = CountedTable(np.column_stack(codes), tuple(sizes))

    def measurement(self, j, one, deviation):
        kept, noisy = self.kept[j], np.asarray(one.noisy_measurement)
        if kept.all():
            return one
        weights = np.ones(int(kept.sum()) + 1)
        weights[-1] = 1.0 / math.sqrt((~kept).sum())
        pooled = np.append(noisy[kept], noisy[~kept].sum()) * weights
        return LinearMeasurement(pooled, one.clique, stddev=deviation, query=WeightedQuery(weights))

    def restore(self, codes, rng):
        restored = []
        for j, kept in enumerate(self.kept):
            own, rare = np.flatnonzero(kept), np.flatnonzero(~kept)
            found = codes[:, j]
            drawn = rng.choice(rare, found.size) if rare.size else np.zeros(found.size, dtype=np.int64)
            inside = found < own.size
            restored.append(np.where(inside, own[np.where(inside, found, 0)] if own.size else 0, drawn))
        return np.column_stack(restored)


def draw(model, n, seed):
    """mbi's rows of a model."""
    np.random.seed(seed)  # noqa: NPY002 - it is what mbi draws from
    potentials = model.to_mbi()
    found = (
        MarkovRandomField(potentials=potentials, marginals=potentials, total=model.total)
        .synthetic_data(rows=n)
        .to_dict()
    )
    return np.column_stack([np.asarray(found[name], dtype=np.int64) for name in model.domain.attributes])


def make_synthetic(codes, sizes, method, epsilon, delta, relation, seed):
    """As many synthetic rows of codes, and how many rounds it took."""
    rng, table = np.random.default_rng(seed), CountedTable(codes, sizes)
    rho = find_rho(epsilon, delta)
    if method == "aim":
        model, rounds = run_aim(table, rho, relation, rng)
        return draw(model, len(codes), seed), rounds
    model, pooled = run_mst(table, rho, relation, rng)
    return pooled.restore(draw(model, len(codes), seed), rng), 1


def find_version(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


if __name__ == "__main__":
    source, method, epsilon, delta, relation, seed, out = sys.argv[1:]
    given = np.load(source)
    wall, processor = time.perf_counter(), time.process_time()
    rows, rounds = make_synthetic(
        given["codes"].astype(np.int64),
        tuple(int(s) for s in given["sizes"]),
        method,
        float(epsilon),
        float(delta),
        relation,
        int(seed),
    )
    np.savez_compressed(out, codes=rows.astype(np.uint8))
    answer = {
        "seconds": {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor},
        "rounds": rounds,
        "versions": {p: find_version(p) for p in ("mbi", "jax", "numpy")},
        "device": jax.devices()[0].device_kind,
    }
    print(json.dumps(answer))
