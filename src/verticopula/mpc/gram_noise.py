"""Gaussian noise in shares: how much of it, and what it is worth.

**What is released.** For a set of people, the upper triangle of G = sum of x x', where x is a person's record of
features and |x|^2 <= B; each entry once.

**How far one person moves it.** Replacing x by y changes G by D = x x' - y y', and
|D|_F^2 = |x|^4 + |y|^4 - 2 (x.y)^2 <= 2 B^2. Off the diagonal D counts twice in the Frobenius norm and once in the
release. So with noise of standard deviation B/mu off the diagonal and sqrt(2) B/mu on it, the distance in units of
the noise is

    sum_{i<j} D_ij^2 mu^2/B^2 + sum_i D_ii^2 mu^2/(2 B^2) = mu^2 |D|_F^2 / (2 B^2) <= mu^2:

exactly mu-Gaussian differential privacy (Dong, Roth and Su), attained when x and y are orthogonal and of full length.
Releases compose as mu^2 = mu_1^2 + mu_2^2 + ...; delta(eps) is the analytic Gaussian mechanism's (Balle and Wang).

**In shares.** Three parties add one discrete Gaussian each, such that two of them suffice. Two steps lead from two
discrete Gaussians of scale s to the one continuous Gaussian above; both hold for each entry's probabilities up to a
factor e^(+-t):

1. The sum of two is the discrete Gaussian of scale sqrt(2) s, up to t = 10 exp(-pi^2 s^2)
   (Kairouz, Liu and Steinke 2021, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
   Aggregation", for n = 2). Directly: P(y) is proportional to exp(-y^2/(4 s^2)) times the sum over x of
   exp(-(x - y/2)^2/s^2), which by Poisson summation differs from a constant by at most 2.01 exp(-pi^2 s^2).
2. The discrete Gaussian of variance v + r^2 around an integer is what becomes of a continuous Gaussian of variance v
   around it when y is replaced by an integer z drawn with probability proportional to exp(-(z - y)^2/(2 r^2)): their
   convolution has variance v + r^2, and both normalisers differ from constants by at most 2.01 exp(-2 pi^2 r^2)
   (Poisson summation). So t = 5 exp(-2 pi^2 r^2), and it is post-processing.

With r = 3 and s >= 3 that is below 1e-37 an entry. A share therefore has s^2 = (scale^2 + r^2)/2, and d released
entries are (eps + 2 d t, e^(d t) delta) where the continuous mechanism is (eps, delta): `gaussian_epsilon` adds it. The
third share, and wrapping around at p, are post-processing.
"""

from __future__ import annotations

import math

from verticopula.errors import SettingsError

SMOOTHING = 3.0  # r above
FURTHEST_NOISE = 50.0  # standard deviations: no noise is ever further off
SMALLEST_SHARE = 3.0


def gram_scales(bound: float, mu: float) -> tuple[float, float]:
    """Standard deviations off and on the diagonal of the Gram matrix of records with squared norms <= `bound`."""
    return bound / mu, math.sqrt(2.0) * bound / mu


def share_scale(scale: float) -> float:
    """The scale of one discrete share, of which two are worth a continuous Gaussian of `scale`."""
    return math.sqrt((scale * scale + SMOOTHING * SMOOTHING) / 2.0) * (1.0 + 2.0**-50)


def slack_of(entries: int, smallest_share: float) -> float:
    """d * t above: how far the logarithm of any probability is from that of the continuous mechanism.

    Parameters
    ----------
    entries : released numbers that one person can change
    smallest_share : the smallest scale among their shares
    """
    if smallest_share < SMALLEST_SHARE:
        raise SettingsError("the noise is too small for whole numbers: use more fractional bits")
    of_sum = 10.0 * math.exp(-((math.pi * smallest_share) ** 2))
    return entries * (of_sum + 5.0 * math.exp(-2.0 * (math.pi * SMOOTHING) ** 2))
