"""`python -m benchmarks NAME... [--quick]`."""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks import ROOT
from reporting.catalogue import Catalogue, Entry, Places

RESULTS = ROOT / "benchmarks" / "results"
ABOUT = """Measured claims about the library. Results are saved in benchmarks/results/NAME.json; pages go to
docs/results and figures to docs/images. With --quick everything goes to benchmarks/results/quick, so that no
published figure is replaced."""


def find_places(out: Path | None, quick: bool) -> Places:
    """The documentation's folders; one folder for a quick run, or where `--out` says."""
    if out is not None or quick:
        return Places.together(out or RESULTS / "quick")
    return Places(RESULTS, ROOT / "docs" / "images", ROOT / "docs" / "results")


def _entry(name: str, measures: str, takes: str, *writes: str) -> tuple[str, Entry]:
    return name, Entry(f"benchmarks.{name}", name, measures, takes, ", ".join((f"{name}.json", *writes)))


ENTRIES = dict(
    [
        _entry("coins", "Cost of one private comparison, in units of its random byte.", "a minute"),
        _entry("memory", "Peak memory of a rank release of 71,827 subjects.", "a minute"),
        _entry(
            "scale",
            "Time and memory of studies against people, columns, parties and patterns.",
            "20 minutes",
            "scale.md",
        ),
        _entry(
            "rank_samplers",
            "Ranks by fewer comparisons: errors at equal epsilon, and time.",
            "15 minutes",
            "rank_samplers.md",
        ),
        _entry("growth", "Time of both rank releases against N.", "a minute", "growth.png"),
        _entry(
            "errors",
            "Errors of correlations and margins against N and epsilon.",
            "20 minutes",
            "correlation_error.png",
            "marginal_error.png",
        ),
        _entry(
            "refinement",
            "What the server-side refinement recovers and costs.",
            "15 minutes",
            "refinement.md",
            "refinement.png",
        ),
        _entry(
            "glm_agreement", "Federated regressions against central ones, fit by fit.", "2 minutes", "glm_agreement.md"
        ),
        _entry(
            "glm_rounds", "Rounds and bytes of the federated regression.", "minutes", "glm_rounds.md", "glm_rounds.png"
        ),
        _entry(
            "glm_moments",
            "Gaussian regressions on raw columns: second moments against columns that leave when they are wanted.",
            "2 minutes",
            "glm_moments.md",
        ),
        _entry(
            "glm_speed",
            "The regression path against skglm's, and at 71,827 rows.",
            "3 minutes",
            "glm_speed.md",
        ),
        _entry("glm_original", "The paper's Original-C and Original-VFL.", "half an hour", "glm_original.md"),
        _entry(
            "glm_bayes", 'The same with `select="bayes"`, and a bound for it.', "hours", "glm_bayes.npz", "glm_bayes.md"
        ),
        _entry(
            "interval_coverage", "Coverage of 95 % intervals on synthetic tables.", "an hour", "interval_coverage.md"
        ),
        _entry("forecast", "Forecast errors of VCDS and the refinement against measured ones.", "an hour"),
        _entry("forecast_strict", "The same for strict studies.", "10 minutes"),
        _entry("planning", "Utility against epsilon and N at every unit.", "5 minutes", "two figures planning_*.png"),
        _entry("audit", "Speed, power and coverage of the privacy audit.", "3 minutes"),
        _entry("posterior_calibration", "Whether errors on refined tables are as large as the tables say.", "minutes"),
        _entry("messages", "Peak memory of both ends of a message in parts.", "a minute", "messages.md"),
        _entry("network", "Round trips, a regression and VCDS between processes.", "2 minutes"),
        _entry("faults", "Every process killed, stopped and restarted in every round.", "30 minutes", "faults.md"),
        _entry("intruders", "Every attack of the network tests, and who refused it.", "2 minutes", "intruders.md"),
        _entry("secure_sums", "Seconds and bytes of secure sums per party.", "a minute"),
        _entry("verified_sums", "Seconds and bytes of verified sums per party.", "a minute"),
        _entry("strict", "Accuracy of strict mode where the truth is known.", "20 minutes", "strict.md"),
        _entry(
            "public",
            "Strict mode and its rivals on public tables (--data FOLDER; makes .venv-mbi and .venv-sdv).",
            "days, or minutes for a part of it",
            "public/*/*.json",
            "public.png",
            "public.md",
        ),
        _entry(
            "rank_tilting", "Studies by ranks with and without tables (--data FOLDER).", "10 minutes", "rank_tilting.md"
        ),
        _entry("tilted_tuning", "Constants of the tilted copula on generated tables.", "an hour"),
        _entry("response_tuning", "The same for a rare response: areas of models on people held out.", "half an hour"),
        _entry("strict_audit", "Audit of the opened sums: false and missed alarms.", "15 minutes", "strict_audit.md"),
        _entry("strict_cost", "Computing and bytes of strict mode, beside VCDS.", "10 minutes", "strict_cost.md"),
        _entry("sdv", "VCDS's speed against SDV's Gaussian copula (makes .venv-sdv).", "15 minutes"),
        _entry(
            "smartnoise",
            "Strict mode against SmartNoise's MST with a trusted curator (makes .venv-smartnoise).",
            "2 hours",
            "smartnoise.md",
        ),
    ]
)
CATALOGUE = Catalogue(
    "benchmarks", ABOUT, ENTRIES, find_places, default=("coins", "memory", "growth", "errors", "refinement")
)


def main(argv: list[str] | None = None) -> int:
    """Run the named benchmarks; the exit status."""
    return CATALOGUE.main(argv)


if __name__ == "__main__":
    sys.exit(main())
