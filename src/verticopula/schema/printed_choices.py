"""What the paper's text leaves open, and our one reading of each point: for the algorithms as printed only.

Each was fixed from the text before anything was measured with it, and kept. docs/development/departures.md has the
sentence, the reading, and what another one would change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from verticopula.errors import SettingsError

RankCorrelation = Literal["kendall", "spearman"]
RANK_CORRELATIONS: tuple[RankCorrelation, ...] = ("kendall", "spearman")


@dataclass(frozen=True)
class PrintedChoices:
    """One reading of every open point.

    Attributes
    ----------
    rank_correlation : from which Ω is computed: Kendall's τ (r = sin(πτ/2)) or Spearman's ρ (r = 2 sin(πρ/6))
    known_normaliser : of Spearman's ρ, the variance that ranks without noise have, in place of a sample's own: only
        then does debiasing change anything
    nearest_repair : an Ω that is not positive definite becomes the nearest correlation matrix; False: its eigenvalues
        are clipped once, and its diagonal is scaled
    bernstein_order : h of Eq. (9)
    failure_chance : δ in the degree l of Corollary 1
    own_range : a column is rescaled to [0, 1] by its own smallest and largest value; False for its public range
    smooth : the monotone spline; False for straight lines between the same points
    running_maximum : the inverse of a polynomial that falls somewhere is its running maximum's; False: that of its
        values in increasing order
    reorder : x~ of Eq. (8) is a reordering of the values; False for the value at the index R~
    round_up : a discrete value is the next one above the inverse; False for the nearest
    ties_by_row : of two equal values the later row has the larger rank; False for a random order, drawn for each column
    earlier_first : of equal noisy ranks the earlier row comes first; False for the later one
    sorted_bounds : the interval of Eq. (6) is between sorted values of Z; False: between neighbours' Z', so that the
        order holds exactly
    missing_given_others : in Algorithm 2 a latent without a value is drawn given the subject's latents before it;
        False: it stays as it was first drawn
    given_response : latent j is drawn given latents 0 to j-1, the response's among them; False for 1 to j-1
    """

    rank_correlation: RankCorrelation = "kendall"
    known_normaliser: bool = False
    nearest_repair: bool = True
    bernstein_order: int = 2
    failure_chance: float = 0.05
    own_range: bool = True
    smooth: bool = True
    running_maximum: bool = True
    reorder: bool = True
    round_up: bool = True
    ties_by_row: bool = True
    earlier_first: bool = True
    sorted_bounds: bool = True
    missing_given_others: bool = True
    given_response: bool = True


DEFAULT_INTERPRETATION = PrintedChoices()
DEFAULT_RANK_CORRELATION: RankCorrelation = DEFAULT_INTERPRETATION.rank_correlation


def choose_interpretation(rank_correlation: str) -> PrintedChoices:
    """Our reading, with this rank correlation; SettingsError names the known ones."""
    for known in RANK_CORRELATIONS:
        if rank_correlation == known:
            return PrintedChoices(rank_correlation=known)
    raise SettingsError(f"unknown rank_correlation {rank_correlation!r}; known: {', '.join(RANK_CORRELATIONS)}")
