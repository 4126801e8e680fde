"""Fixed points of slow iterations, sooner than by repetition: Aitken's method for iterations whose state may only move
along its own last step, as curves that must stay increasing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def extrapolate_geometric(move: Floats, last_move: Floats, most_ratio: float) -> float:
    """How many more times the last move steady moves would still add up to; 0 where they are not steady (Aitken).

    Moves that shrink by the same ratio r each time add up to r/(1 - r) times the last one.
    """
    ratio = min(float(move @ last_move) / max(float(last_move @ last_move), 1e-300), most_ratio)
    return ratio / (1.0 - ratio) if ratio > 0.0 else 0.0
