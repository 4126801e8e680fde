"""Penalties of Section 4: value, slope and proximal step of SCAD, MCP, the lasso and none.

All three act on the Euclidean norm of a group of coefficients; a single column is a group of one.
`concavity` is the paper's a, `strength` its lambda.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from verticopula.errors import SettingsError
from verticopula.schema.setting_choices import PENALTY_NAMES, PenaltyName

Floats = NDArray[np.float64]

DEFAULT_CONCAVITY = {"scad": 3.7, "mcp": 3.0, "lasso": np.inf, "none": np.inf}
_LEAST_CONCAVITY = {"scad": 2.0, "mcp": 1.0}


@dataclass(frozen=True)
class Penalty:
    """P_lambda of Eq. (3) and what follows it.

    Attributes
    ----------
    name : `scad`, `mcp`, `lasso` or `none`
    concavity : a; above 2 for SCAD, above 1 for MCP, without meaning for the others
    """

    name: PenaltyName
    concavity: float

    @classmethod
    def build(cls, name: str, concavity: float | None = None) -> Penalty:
        """Checked; None for the usual concavity (3.7 for SCAD, 3 for MCP)."""
        if name not in PENALTY_NAMES:
            other = {"l1": "; l1 is called lasso", "None": "; without one it is 'none'"}.get(str(name), "")
            raise SettingsError(f"unknown penalty {name!r}; known: {', '.join(PENALTY_NAMES)}{other}")
        a = DEFAULT_CONCAVITY[name] if concavity is None else float(concavity)
        least = _LEAST_CONCAVITY.get(name)
        if least is not None and not least < a < np.inf:
            raise SettingsError(f"the concavity of {name} must be a number above {least:g}, got {a:g}")
        return cls(PENALTY_NAMES[PENALTY_NAMES.index(name)], a)

    @property
    def is_concave(self) -> bool:
        """Whether large coefficients are penalised less: solved by a sequence of weighted lassos."""
        return self.name in ("scad", "mcp")

    def value(self, norms: ArrayLike, strength: ArrayLike) -> Floats:
        """P_lambda(norm), elementwise; norms are not negative."""
        t, lam, a = np.asarray(norms, dtype=np.float64), np.asarray(strength, dtype=np.float64), self.concavity
        if self.name == "none":
            return np.zeros(np.broadcast(t, lam).shape)
        if self.name == "lasso":
            return lam * t
        if self.name == "mcp":
            return np.where(t <= a * lam, lam * t - t**2 / (2.0 * a), a * lam**2 / 2.0)
        middle = (2.0 * a * lam * t - t**2 - lam**2) / (2.0 * (a - 1.0))
        return np.where(t <= lam, lam * t, np.where(t <= a * lam, middle, lam**2 * (a + 1.0) / 2.0))

    def slope(self, norms: ArrayLike, strength: ArrayLike) -> Floats:
        """P'_lambda(norm), elementwise, at 0 from the right: the weights of the local linear approximation."""
        t, lam, a = np.asarray(norms, dtype=np.float64), np.asarray(strength, dtype=np.float64), self.concavity
        if self.name == "none":
            return np.zeros(np.broadcast(t, lam).shape)
        if self.name == "lasso":
            return np.broadcast_to(lam, np.broadcast(t, lam).shape).copy()
        if self.name == "mcp":
            return np.maximum(lam - t / a, 0.0)
        return np.minimum(np.maximum((a * lam - t) / (a - 1.0), 0.0), lam)
