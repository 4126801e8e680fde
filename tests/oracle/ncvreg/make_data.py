"""Make data.csv: one correlated, unstandardised design and three responses (numpy only, seeded)."""

from pathlib import Path

import numpy as np

N, P, RHO = 200, 12, 0.5


def main() -> None:
    rng = np.random.default_rng(20240611)
    z = rng.standard_normal((N, P))
    for j in range(1, P):
        z[:, j] = RHO * z[:, j - 1] + np.sqrt(1 - RHO**2) * z[:, j]
    scale = np.array([1.0, 2.5, 0.4, 5.0, 1.5, 0.7, 3.0, 1.2, 0.25, 2.0, 8.0, 0.9])
    mean = np.array([0.0, 3.0, -1.0, 10.0, 0.5, -2.0, 0.0, 4.0, 1.0, -6.0, 20.0, 0.2])
    x = np.round(mean + scale * z, 6)

    signal = z @ np.array([1.0, -0.8, 0.0, 0.0, 0.6, 0.0, 0.0, 0.35, 0.0, 0.0, -0.2, 0.0])
    gaussian = np.round(2.0 + 1.5 * signal + 1.2 * rng.standard_normal(N), 6)
    binomial = (rng.random(N) < 1 / (1 + np.exp(-(0.3 + 1.1 * signal)))).astype(int)
    poisson = rng.poisson(np.exp(0.8 + 0.45 * signal))

    header = ",".join([*(f"x{j + 1}" for j in range(P)), "gaussian", "binomial", "poisson"])
    rows = [
        ",".join([*(f"{v:.6f}" for v in x[i]), f"{gaussian[i]:.6f}", str(binomial[i]), str(poisson[i])])
        for i in range(N)
    ]
    (Path(__file__).parent / "data.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
