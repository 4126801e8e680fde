"""The path of coefficients as an interactive figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from verticopula.errors import SettingsError
from verticopula.glm.strength_path import PathPoint

if TYPE_CHECKING:
    import plotly.graph_objects as go


def plot_path(points: Sequence[PathPoint], names: Mapping[str, Sequence[str]], chosen: float) -> go.Figure:
    """Every feature that enters, against the strength; parties by colour, names on hovering.

    Parameters
    ----------
    points : coefficients of all parties' features side by side, at every strength
    names : party -> names of its features
    chosen : the strength to mark
    """
    import plotly.graph_objects as go  # only here: fitting needs no figures
    from plotly.colors import qualitative

    if len(points) < 2:
        raise SettingsError("there is no path to plot: the model was fitted at one strength")
    strengths = [point.strength for point in points]
    coef = np.array([point.coef for point in points])
    figure = go.Figure()
    column = 0
    for number, (party, features) in enumerate(names.items()):
        colour = qualitative.D3[number % len(qualitative.D3)]
        shown = False
        for name in features:
            values = coef[:, column]
            column += 1
            if not values.any():
                continue
            figure.add_trace(
                go.Scatter(
                    x=strengths,
                    y=values,
                    mode="lines",
                    line={"color": colour, "width": 1.5},
                    name=party,
                    legendgroup=party,
                    showlegend=not shown,
                    text=[f"{party}.{name}"] * len(strengths),
                    hovertemplate="%{text}<br>strength %{x:.3g}<br>coefficient %{y:.4g}<extra></extra>",
                )
            )
            shown = True
    figure.add_vline(x=chosen, line_dash="dash")
    # On a logarithmic axis lines are placed by value and notes by its logarithm.
    figure.add_annotation(x=np.log10(chosen), y=1.0, yref="paper", yanchor="bottom", text="chosen", showarrow=False)
    figure.update_xaxes(type="log", autorange="reversed", title="strength of the penalty (largest first)")
    figure.update_yaxes(title="coefficient, on the scale of the data")
    figure.update_layout(title="Coefficients along the path", template="plotly_white", legend_title="party")
    return figure
