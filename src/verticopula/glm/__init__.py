"""Generalised linear models with variable selection across parties: VFL-GLM-VS (Section 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verticopula.estimators.vertical_glm import VerticalGLM

__all__ = ["VerticalGLM"]


def __getattr__(name: str) -> Any:
    # The estimator stands above the protocols, which stand above this package's solvers.
    if name == "VerticalGLM":
        from verticopula.estimators.vertical_glm import VerticalGLM

        return VerticalGLM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
