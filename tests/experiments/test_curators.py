"""A trusted curator's mechanisms: trees against the whole joint distribution, and privacy against its definition."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from benchmarks.curator_kernel import descend, infer, pack
from benchmarks.curator_trees import TreeMarginals, TreeSize, find_rho

SIZES = (2, 3, 2, 4, 2, 3)
NODES = [(0, 1, 2), (1, 2, 3), (3, 4), (5,)]  # a tree of three cliques, and a column that goes with nothing
NEAR = [[1], [0, 2], [1], []]
CLIQUES = [(0,), (0, 1), (1, 2, 3), (3, 4), (4,), (5,), (0, 2)]


def draw_potentials(seed: int) -> dict[tuple[int, ...], np.ndarray]:
    rng = np.random.default_rng(seed)
    return {c: rng.normal(0.0, 1.0, math.prod(SIZES[a] for a in c)) for c in CLIQUES}


def join(potentials: dict[tuple[int, ...], np.ndarray], total: float) -> np.ndarray:
    """The whole joint distribution, cell by cell."""
    joint = np.zeros(SIZES)
    for x in itertools.product(*map(range, SIZES)):
        for c, values in potentials.items():
            joint[x] += values.reshape([SIZES[a] for a in c])[tuple(x[a] for a in c)]
    joint = np.exp(joint)
    return total * joint / joint.sum()


def project(joint: np.ndarray, columns: tuple[int, ...]) -> np.ndarray:
    kept = joint.sum(axis=tuple(a for a in range(joint.ndim) if a not in columns))
    order = sorted(columns)
    return np.transpose(kept, [order.index(a) for a in columns]).ravel()


@pytest.mark.parametrize("seed", [0, 1])
def test_marginals_of_a_tree_are_those_of_the_joint(seed: int) -> None:
    potentials = draw_potentials(seed)
    joint, tree = join(potentials, 50.0), TreeMarginals(NODES, NEAR, potentials, SIZES, 50.0)
    asked = [c for k in (1, 2, 3) for c in itertools.permutations(range(len(SIZES)), k)]
    for columns in asked:  # also across cliques, and with the column that goes with nothing
        assert np.allclose(tree.of(columns), project(joint, columns), rtol=1e-9)


def test_the_compiled_tree_has_the_same_marginals() -> None:
    potentials = draw_potentials(2)
    heads, maps, cells, used, length = pack(NODES, NEAR, CLIQUES, SIZES)
    found = np.zeros(length)
    theta = np.concatenate([potentials[c] for c in CLIQUES])
    infer(heads, maps, theta, 50.0, np.zeros(cells), np.zeros(cells), np.zeros(used), found)
    joint = join(potentials, 50.0)
    assert np.allclose(found, np.concatenate([project(joint, c) for c in CLIQUES]), rtol=1e-9)


def test_descent_finds_the_marginals_of_a_joint_that_is_there() -> None:
    truth = join(draw_potentials(3), 1_000.0)
    heads, maps, cells, used, length = pack(NODES, NEAR, CLIQUES, SIZES)
    target = np.concatenate([project(truth, c) for c in CLIQUES])
    theta, weight = np.zeros(length), np.ones(length)
    loss = []
    for steps in (1, 200, 5_000):
        theta[:] = 0.0
        work = np.zeros(cells), np.zeros(cells), np.zeros(used), np.zeros(4 * length)
        loss.append(descend(heads, maps, theta, target, weight, 1_000.0, 1e-4, steps, *work))
    assert loss[0] > loss[1] > loss[2]
    fitted = dict(zip(CLIQUES, np.split(theta, heads[-len(CLIQUES) + 1 :, 2]), strict=True))
    found = TreeMarginals(NODES, NEAR, fitted, SIZES, 1_000.0)
    for c in CLIQUES:
        assert np.abs(found.of(c) - project(truth, c)).sum() < 0.01 * 1_000.0


def test_the_size_of_a_model_is_that_of_its_largest_cliques() -> None:
    size = TreeSize(SIZES)
    assert size.of() == pytest.approx(8 * sum(SIZES) / 2**20)
    for clique in NODES[:3]:
        size.add(clique)
    cells = [math.prod(SIZES[a] for a in node) for node in NODES]
    assert size.of() == pytest.approx(8 * sum(cells) / 2**20)
    # 0 - 4 closes a cycle of 0, {1, 2}, 3, 4: whatever is filled in, a clique of four columns is there
    assert size.of((0, 4)) > size.of((0, 1)) == size.of()


@pytest.mark.parametrize(("epsilon", "delta"), [(0.8, 1e-5), (3.2, 1e-5), (1.0, 1e-9)])
def test_rho_is_the_largest_that_gives_epsilon_and_delta(epsilon: float, delta: float) -> None:
    alphas = 1.0 + np.exp(np.linspace(-8.0, 8.0, 200_001))

    def least_delta(rho: float) -> float:
        logs = (alphas - 1.0) * (alphas * rho - epsilon) + alphas * np.log1p(-1.0 / alphas) - np.log(alphas - 1.0)
        return float(np.exp(logs.min()))

    rho = find_rho(epsilon, delta)
    assert least_delta(rho) <= delta * (1.0 + 1e-6)
    assert least_delta(1.001 * rho) > delta
