"""A party's side of the regression: its columns, its Gram matrix, its coefficients. None of them leaves on the way.

What leaves is X_k beta_k, one number per row: harmless for synthetic columns, exact for raw ones (see
`protocol/party/regression_handler.py` for who may ask).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from verticopula.glm.feature_design import Features, standardise
from verticopula.glm.lasso import (
    CLOSED,
    MAX_SWEEPS,
    group_curvatures,
    group_norms,
    largest_strength,
    solve_lasso,
)
from verticopula.glm.penalties import Penalty

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Track = Literal["lasso", "main", "refit"]
Weights = Literal["plain", "lasso", "own", "selected", "keep"]


@dataclass(frozen=True, repr=False)
class BlockUpdate:
    """What one update gives.

    Attributes
    ----------
    prediction : X_k beta_k for all rows, standardised columns
    penalty : P_lambda(beta_k)
    selected : (G,) which groups are in the model
    weight_change : how far the penalty's slopes at the new coefficients are from the weights, relative to the strength
    solved : whether the party's own problem came to rest
    """

    prediction: Floats
    penalty: float
    selected: Bools
    weight_change: float
    solved: bool


@dataclass(frozen=True, repr=False)
class SolverState:
    """Where a solver stopped, as plain arrays.

    Attributes
    ----------
    coef : (3, q) coefficients of the tracks, in the order that `Track` names them
    weights : their last weights; None where there are none yet
    path : (2, L, q) recorded coefficients of `main` and `refit`
    """

    coef: Floats
    weights: tuple[Floats | None, ...]
    path: Floats


class BlockSolver:
    """Solves Eq. (6-1) again and again, each time from where it stopped.

    Parameters
    ----------
    centre : True where an intercept is fitted
    rows : the rows to learn from; None for all. Predictions are for all rows.
    """

    def __init__(self, features: Features, penalty: Penalty, *, centre: bool, rows: Bools | None = None) -> None:
        values = features.values
        self.penalty = penalty
        chosen = features if rows is None else Features(values[rows], features.starts, features.names, features.sources)
        self.design = standardise(chosen, centre=centre)
        self._everyone = self.design.columns if rows is None else self.design.apply(values)
        columns = self.design.columns
        self._gram = np.ascontiguousarray(columns.T @ columns / columns.shape[0])
        self._curvatures = group_curvatures(self._gram, self.design.starts)
        self._coef: dict[Track, Floats] = {track: np.zeros(values.shape[1]) for track in get_args(Track)}
        self._weights: dict[Track, Floats] = {}
        self._path: dict[Track, list[Floats]] = {"main": [], "refit": []}

    def has_weights(self, track: Track) -> bool:
        """Whether there are last weights to keep."""
        return track in self._weights

    def largest_strength(self, residual: Floats) -> float:
        """The least strength at which no column of this block enters, given the residuals of a fit without any."""
        return largest_strength(self.design.columns, residual, self.design.starts, self.design.factors)

    def update(
        self, track: Track, weights: Weights, strength: float, rho: float, target: Floats, tolerance: float
    ) -> BlockUpdate:
        """Minimise sum_g w_g ||beta_g|| + rho / (2 n) ||X_k beta - target||^2.

        Parameters
        ----------
        track : which coefficients; the lasso's serve as the start of the local linear approximation, `refit` for
            maximum likelihood on what `main` selects
        weights : `plain` for the penalty's slopes at 0, `lasso` and `own` for those at that track's and at this
            track's coefficients, `selected` for none on what `main` selects and no entry for the rest, `keep` for
            the last ones
        target : (n,), one entry per row to learn from
        """
        starts, own = self.design.starts, self.design.factors * strength
        if weights != "keep":
            self._weights[track] = self._slopes(track, weights, own)
        coef, current = self._coef[track], self._weights[track]
        linear = self.design.columns.T @ target / target.size
        sweeps = solve_lasso(self._gram, linear, current / rho, starts, self._curvatures, coef, tolerance, MAX_SWEEPS)
        norms = group_norms(coef, starts)
        concave = self.penalty.is_concave and track == "main" and strength > 0.0
        return BlockUpdate(
            self._everyone @ coef,
            float(self.penalty.value(norms, own).sum()),
            norms > 0.0,
            float(np.max(np.abs(self.penalty.slope(norms, own) - current) / own, initial=0.0)) if concave else 0.0,
            sweeps < MAX_SWEEPS,
        )

    def _slopes(self, track: Track, weights: Weights, own: Floats) -> Floats:
        starts = self.design.starts
        if weights == "selected":
            chosen = group_norms(self._coef["main"], starts) > 0.0
            self._coef[track][~np.repeat(chosen, np.diff(starts))] = 0.0
            return np.where(chosen, 0.0, CLOSED)
        if weights == "plain":
            return own if track == "lasso" else self.penalty.slope(np.zeros_like(own), own)
        return self.penalty.slope(group_norms(self._coef["lasso" if weights == "lasso" else track], starts), own)

    def record(self) -> None:
        """The coefficients now are the solution at one more strength of the path."""
        for track, kept in self._path.items():
            kept.append(self._coef[track].copy())

    def path(self, track: Track) -> tuple[Floats, Floats]:
        """(L, q) recorded coefficients on the scale of the data, and (L,) what centring took from the intercept."""
        kept = self._path[track]
        coef = self.design.to_raw(np.array(kept).reshape(len(kept), self._gram.shape[0]))
        return coef, coef @ self.design.centre

    def state(self) -> SolverState:
        """Everything that updates have changed."""
        tracks = get_args(Track)
        kept = [self._path["main"], self._path["refit"]]
        return SolverState(
            np.array([self._coef[track] for track in tracks]),
            tuple(self._weights[track].copy() if track in self._weights else None for track in tracks),
            np.array(kept).reshape(2, len(kept[0]), self._gram.shape[0]),
        )

    def restore(self, state: SolverState) -> None:
        """Go on from there; ValueError where it is the state of another problem."""
        tracks, q, groups = get_args(Track), self._gram.shape[0], self.design.starts.size - 1
        fits = state.coef.shape == (len(tracks), q) and len(state.weights) == len(tracks)
        fits = fits and all(w is None or w.shape == (groups,) for w in state.weights)
        if not fits or state.path.shape[::2] != (2, q):
            raise ValueError("the state of another problem")
        self._coef = {track: coef.copy() for track, coef in zip(tracks, state.coef, strict=True)}
        known = zip(tracks, state.weights, strict=True)
        self._weights = {track: weights.copy() for track, weights in known if weights is not None}
        self._path = {"main": list(state.path[0].copy()), "refit": list(state.path[1].copy())}
