"""The measures against values worked out by hand."""

import numpy as np
import pytest

from experiments.metrics import fdr, g_means, kolmogorov, rmse

TRUTH = np.array([1.0, -1.0, 2.0, 0.0, 0.0, 0.0])
COEF = np.array([1.0, 0.0, 0.5, 0.5, 0.0, 0.0])  # two of three found, one of three false


def test_rmse_by_hand() -> None:
    assert rmse(COEF, TRUTH) == pytest.approx(np.sqrt((1.0 + 2.25 + 0.25) / 6))


def test_g_means_by_hand() -> None:
    assert g_means(COEF, TRUTH) == pytest.approx(np.sqrt((2 / 3) * (2 / 3)))


def test_fdr_by_hand() -> None:
    assert fdr(COEF, TRUTH) == pytest.approx(1 / 3)


def test_truth_is_perfect() -> None:
    assert (rmse(TRUTH, TRUTH), g_means(TRUTH, TRUTH), fdr(TRUTH, TRUTH)) == (0.0, 1.0, 0.0)


def test_nothing_selected() -> None:
    nothing = np.zeros(6)
    assert (g_means(nothing, TRUTH), fdr(nothing, TRUTH)) == (0.0, 0.0)


def test_everything_selected() -> None:
    everything = np.ones(6)
    assert (g_means(everything, TRUTH), fdr(everything, TRUTH)) == (0.0, 0.5)


def test_zero_vector_in_the_papers_design() -> None:
    truth = np.concatenate([np.full(60, 1 / 3), np.zeros(40)])
    assert rmse(np.zeros(100), truth) == pytest.approx(0.258199, abs=1e-6)


@pytest.mark.parametrize("truth", [np.zeros(3), np.ones(3)])
def test_g_means_refuses_a_truth_of_one_sort(truth: np.ndarray) -> None:
    with pytest.raises(ValueError, match="both zero and non-zero"):
        g_means(np.ones(3), truth)


@pytest.mark.parametrize("measure", [rmse, g_means, fdr])
def test_lengths_must_agree(measure) -> None:
    with pytest.raises(ValueError, match="one length"):
        measure(np.ones(3), TRUTH)


def test_kolmogorov_by_hand() -> None:
    def uniform(values: np.ndarray) -> np.ndarray:
        return np.clip(values, 0.0, 1.0)

    assert kolmogorov(uniform, np.array([0.5, 0.9]), discrete=False) == pytest.approx(0.5)
    shares = np.array([0.25, 1.0])  # fitted: a quarter is 0; of the values, half
    assert kolmogorov(lambda codes: shares[codes.astype(int)], np.array([0, 1]), discrete=True) == pytest.approx(0.25)
