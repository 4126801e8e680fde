"""Gibbs sweeps over the subjects' latents, against moments that are known otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from experiments.designs import SimulationDesign, make_complete, mask_mcar
from tests.study_parties import make_study_party
from verticopula.data.tables import align_tables
from verticopula.privacy.budget import StudyBudget
from verticopula.privacy.noise import SeededNoise
from verticopula.protocol.shared_rounds import collect
from verticopula.stats import latent_draws
from verticopula.stats.latent_draws import CellEvidence, ReadingEvidence, sweep_latents
from verticopula.stats.refinement import gather_evidence, refine
from verticopula.transport.delivery import drive
from verticopula.transport.in_process_transport import InProcessTransport

CORRELATION = np.array([[1.0, 0.6, 0.3], [0.6, 1.0, 0.4], [0.3, 0.4, 1.0]])
BOUNDS = np.array([-np.inf, -0.3, 0.8, np.inf])


def draw(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).multivariate_normal(np.zeros(3), CORRELATION, size=n)


def exact_cells(column: np.ndarray) -> CellEvidence:
    """Grades that leave no doubt about the cell."""
    middles = np.array([0.2, 0.6, 0.9])
    cell = np.searchsorted(BOUNDS[1:-1], column)
    return CellEvidence(np.arange(column.size), middles[cell], middles, 1e-3, BOUNDS)


def test_without_noise_everybody_stays_in_their_own_cell() -> None:
    truth = draw(2_000, 1)
    start = draw(2_000, 2)  # other people's latents
    evidence = {0: exact_cells(truth[:, 0]), 1: exact_cells(truth[:, 1])}
    drawn = sweep_latents(start, CORRELATION, evidence, np.random.default_rng(3), sweeps=1)
    for j in evidence:
        assert np.array_equal(np.searchsorted(BOUNDS[1:-1], drawn[:, j]), np.searchsorted(BOUNDS[1:-1], truth[:, j]))
    assert np.array_equal(drawn[:, 2], start[:, 2])  # no evidence, no change


def test_sweeps_find_the_joint_distribution_from_a_wrong_start() -> None:
    truth = draw(40_000, 4)
    rng = np.random.default_rng(5)
    link = 0.9
    readings = link * truth[:, 1] + np.sqrt(1.0 - link**2) * rng.standard_normal(truth.shape[0])
    nobody = CellEvidence(np.arange(0), np.empty(0), np.arange(3.0), 1.0, BOUNDS)
    everybody = np.arange(truth.shape[0])
    evidence = {0: exact_cells(truth[:, 0]), 1: ReadingEvidence(everybody, readings, link), 2: nobody}
    drawn = sweep_latents(rng.standard_normal(truth.shape), CORRELATION, evidence, rng, sweeps=15)
    assert np.allclose(drawn.T @ drawn / truth.shape[0], CORRELATION, atol=0.02)
    assert np.mean(drawn[:, 1] * truth[:, 1]) > 0.8  # and each row is about its own subject


def test_noisy_cells_are_weighed_against_what_the_others_say() -> None:
    """P(cell | others) by Bayes' rule, for one subject repeated."""
    n, other, grade, width = 60_000, 1.0, 0.6, 0.3
    middles = np.array([0.25, 0.75])
    seen = CellEvidence(np.arange(n), np.full(n, grade), middles, width, np.array([-np.inf, 0.0, np.inf]))
    correlation = np.array([[1.0, 0.6], [0.6, 1.0]])
    start = np.column_stack([np.zeros(n), np.full(n, other)])
    drawn = sweep_latents(start, correlation, {0: seen}, np.random.default_rng(6), sweeps=1)
    prior = norm.cdf(0.6 * other / np.sqrt(1.0 - 0.36))
    low, high = norm.pdf(grade, middles, width) * np.array([1.0 - prior, prior])
    expected = high / (low + high)
    assert np.mean(drawn[:, 0] > 0.0) == pytest.approx(expected, abs=0.01)


def test_evidence_of_a_release_without_noise_gives_everybody_their_own_category() -> None:
    rng = np.random.default_rng(7)
    data = make_complete(SimulationDesign(kind_counts=(3, 3, 3, 3), n_clients=3), 600, rng=rng)
    observed = mask_mcar(600, rng=rng, missing_rates=(0.0, 0.3, 0.5))
    federation = data.federation()
    request = StudyBudget.build(federation, unit="variable", epsilon=70.0, delta=None)
    parties = {
        name: make_study_party(table, noise=SeededNoise(8))
        for name, table in align_tables(federation, data.tables(observed)).items()
    }
    released = drive(collect(federation, request, "test", "refined"), InProcessTransport(parties)).release
    evidence = gather_evidence(released, refine(released))
    assert len(evidence) == released.observed.shape[1]
    correlation = np.eye(len(evidence))
    drawn = sweep_latents(np.zeros(released.observed.shape), correlation, evidence, rng, sweeps=1)
    ordinal = [j for j, kind in enumerate(data.kinds) if kind in ("ordinal", "binary")]
    for key, part in zip(released.layout.keys, released.layout.slices, strict=True):
        j = int(key.column[1:]) - 1 if key.column.startswith("x") else -1
        if j in ordinal:
            seen = evidence[part.start]
            assert isinstance(seen, CellEvidence)
            cells = np.searchsorted(seen.bounds[1:-1], drawn[seen.rows, part.start])
            values = data.x[seen.rows, j]
            assert np.array_equal(cells, values - values.min())


@pytest.mark.parametrize("n", [0, 1, 500])
def test_a_likelihood_that_is_kept_draws_the_same_cells_as_one_found_anew(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(n)
    grades, mean = rng.random(n), rng.standard_normal(n)
    drawn = []
    for kept in (latent_draws._KEPT, 0):
        monkeypatch.setattr(latent_draws, "_KEPT", kept)
        evidence = CellEvidence(np.arange(n), grades, np.array([0.1, 0.5, 0.9]), 0.2, BOUNDS)
        drawn.append([evidence.draw(mean, 0.7, np.random.default_rng(seed)) for seed in range(3)])
    np.testing.assert_array_equal(drawn[0], drawn[1])
