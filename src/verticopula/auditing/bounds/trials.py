"""Many independent releases of the same data, on as many processes as wanted."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray

from verticopula.privacy.noise import Noise, SecureNoise, SeededNoise

Floats = NDArray[np.float64]
Data = TypeVar("Data")
Mechanism = Callable[[Data, Noise], ArrayLike]  # any release, as the features an attacker looks at

AUDIT_STUDY = "audit"  # the name of every study that a trial makes
_SHARES = 4  # parts of the work per process


def run_trials(
    release: Mechanism[Data], data: Data, trials: int, *, label: str, seed: int | None = None, workers: int = 1
) -> Floats:
    """(trials, features) of independent releases; the same for a seed, however many workers there are."""
    if workers == 1:
        return _some_trials(release, data, range(trials), label, seed)
    edges = np.linspace(0, trials, _SHARES * workers + 1).astype(int)
    parts = [range(a, b) for a, b in pairwise(edges) if b > a]
    done: list[Floats] = Parallel(n_jobs=workers)(
        delayed(_some_trials)(release, data, part, label, seed) for part in parts
    )
    return np.concatenate(done)


def _some_trials(release: Mechanism[Data], data: Data, numbers: range, label: str, seed: int | None) -> Floats:
    found = [
        np.asarray(release(data, SecureNoise() if seed is None else SeededNoise(seed, "audit", label, str(k)))).ravel()
        for k in numbers
    ]
    return np.asarray(found, dtype=np.float64)
