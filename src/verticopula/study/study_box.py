"""A fitted study as a small box in a notebook."""

from __future__ import annotations

from verticopula.formatting import count_of, format_percent, format_small
from verticopula.notebook import alarm_html, box, text_html
from verticopula.privacy.statement import format_epsilon
from verticopula.study.fitted_study import FittedStudy


def study_html(fitted: FittedStudy) -> str:
    """Settings, what it cost, and who is missing where, as HTML."""
    settings = ", ".join(f"{name} {value}" for name, value in fitted.settings.to_dict().items())
    head = f"<b>Synthesizer</b> for {text_html(str(fitted.federation.name))}: {text_html(settings)}"
    missing, privacy = fitted.result.missingness, fitted.privacy
    lines = [head, *(alarm_html(line) for line in privacy.warnings)]
    asked, complete = fitted.unit, missing.complete_cases / missing.n_subjects
    lines.append(
        f"{count_of(missing.n_subjects, 'subject')}, {format_percent(complete)} known to every party; "
        f"ε per {asked.value} {format_epsilon(privacy.epsilon(asked))}, per person {format_epsilon(privacy.person)} "
        f"at δ = {format_small(privacy.delta)}"
    )
    rows = [
        [
            name,
            f"{format_percent(1.0 - missing.rate(name))}",
            *(format_epsilon(e) for e in (own.variable, own.client, own.block)),
        ]
        for name, own in privacy.parties.items()
    ]
    return box(lines, ["party", "known", "ε per variable", "ε per client", "ε per block"], rows, numbers=1)
