"""`verticopula forecast`: what a study will be worth, before any budget is spent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verticopula.cli.shared_options import Epsilon, FederationFile
from verticopula.errors import SettingsError
from verticopula.schema.defaults import DEFAULT_DELTA, TYPICAL_CORRELATION, TYPICAL_LOG_ODDS
from verticopula.schema.methods import DEFAULT_METHOD, METHODS, RANKS_AND_PERSONS, STRICT, methods_help
from verticopula.schema.setting_choices import help_of
from verticopula.schema.study_settings import StudySettings
from verticopula.schema.units import Unit

if TYPE_CHECKING:
    from verticopula.forecasting.forecast import Expected, Forecast
    from verticopula.schema.columns import ColumnKey


_STRICT_ROWS = (
    f"{STRICT.name.capitalize()}: before shrinkage is what noise and sample alone leave of a typical pair; what "
    "is used has the help of all other pairs, and the range is of that."
)

_RANK_ROWS = f"Units variable and client: {RANKS_AND_PERSONS.lower()}; `verticopula check --data` says how large."


def forecast(
    federation: FederationFile,
    subjects: Annotated[int, typer.Option("--subjects", "-n", help="Size of the cohort.", show_default=False)],
    epsilon: Epsilon = None,
    observed: Annotated[
        list[str] | None,
        typer.Option(help="Share of the cohort that a party knows, as party=share; 1 if not given. May be repeated."),
    ] = None,
    together: Annotated[
        list[str] | None,
        typer.Option(help="Share that two parties both know, as party+party=share. May be repeated."),
    ] = None,
    at_random: Annotated[
        bool,
        typer.Option("--at-random", help="Blocks are missing at random given others' data, not completely at random."),
    ] = False,
    log_odds: Annotated[
        float,
        typer.Option(help="With --at-random: log odds of being known per standard deviation of others' data."),
    ] = TYPICAL_LOG_ODDS,
    share: Annotated[
        list[str] | None,
        typer.Option(
            help="Roughly what a categorical column looks like among the subjects its party knows: the second "
            "category's share, or all of them, as party.column=0.1 or party.column=0.5,0.3,0.2. May be repeated."
        ),
    ] = None,
    delta: Annotated[float, typer.Option(help=help_of(StudySettings, "delta"))] = DEFAULT_DELTA,
    unit: Annotated[
        list[str] | None, typer.Option(help="Only this unit; may be repeated. Default: all of the method.")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help=f"{methods_help()}. May be repeated. Default: {DEFAULT_METHOD.name}."),
    ] = None,
    typical_correlation: Annotated[
        float, typer.Option(help="Assumed root mean square of the correlations.")
    ] = TYPICAL_CORRELATION,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """The errors to expect of a study, from public quantities alone. Spends nothing, reads no data."""
    from verticopula.forecasting.forecast import forecast as make_forecast
    from verticopula.schema.federation import Federation

    made = make_forecast(
        Federation.from_toml(federation),
        subjects,
        epsilon,
        delta=delta,
        units=unit,
        methods=method or None,
        observed=dict(_parse(text, "--observed party=share") for text in observed or ()),
        together=dict(_parse_pair(text) for text in together or ()),
        log_odds=log_odds if at_random else 0.0,
        shares=dict(_parse_shares(text) for text in share or ()),
        typical_correlation=typical_correlation,
    )
    if as_json:
        print(json.dumps(made.to_dict(), indent=1))
        return
    show_forecast(made)


def show_forecast(made: Forecast) -> None:
    """The table, what it assumes, and the advice."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for name in ("unit", "method", "ε per\ncomp.", "corre-\nlation", "before\nshrunk", "8 of 10\ntruths"):
        table.add_column(name, no_wrap=True)
    for name in ("pair,\nsame", "pair,\ntwo", "mar-\ngins"):
        table.add_column(name, no_wrap=True)
    for row in made.rows:
        table.add_row(*_cells(row))
    console = Console()
    console.print(table)
    lines = [
        f"Epsilon {made.epsilon:g} at each of these units, and delta {made.delta:g} at units block and person.",
        "Correlations: root mean square error of the latent correlations, as used, before shrinkage, and the range for "
        "eight of ten truths. Pair: a typical pair's standard error before shrinkage, of the same party and of two. "
        "Margins: mean Kolmogorov distance. ε per comparison of two people: the largest over columns.",
        f"Assumed: correlations of size {made.typical_correlation:g}, ordinary margins (docs/how-to/planning.md). "
        "Where noise is shrunk away, the error that is left is the correlations themselves.",
        *([_STRICT_ROWS] if any(not METHODS[row.method].ranks for row in made.rows) else []),
        *(
            [_RANK_ROWS]
            if any(METHODS[row.method].ranks and not Unit(row.unit).needs_delta for row in made.rows)
            else []
        ),
        made.advice,
    ]
    for line in lines:
        console.print(Text(line, style="bold" if line == made.advice else ""))


def _cells(row: Expected) -> tuple[str, ...]:
    return (
        row.unit,
        row.method,
        "–" if row.epsilon_ranks is None else f"{row.epsilon_ranks:.2g}",
        f"{row.after:.3f}",
        f"{row.before:.3f}",
        f"{row.low:.3f} {row.high:.3f}",
        _error(row.within),
        _error(row.between),
        f"{row.margins:.3f}",
    )


def _error(error: float | None) -> str:
    if error is None:
        return "–"
    return "over 1" if error > 1.0 else f"{error:.3f}"


def _parse(text: str, wanted: str) -> tuple[str, float]:
    name, equals, share = text.rpartition("=")
    try:
        return name.strip(), float(share) if equals else float("nan")
    except ValueError:
        raise SettingsError(f"{wanted}: {text!r} has no number after '='") from None


def _parse_shares(text: str) -> tuple[ColumnKey, list[float]]:
    from verticopula.schema.columns import ColumnKey

    name, equals, numbers = text.rpartition("=")
    if not equals or "." not in name:
        raise SettingsError(f"--share party.column=share: {text!r} does not name a column")
    try:
        return ColumnKey.parse(name.strip()), [float(number) for number in numbers.split(",")]
    except ValueError:
        raise SettingsError(f"--share party.column=share: {text!r} has no numbers after '='") from None


def _parse_pair(text: str) -> tuple[tuple[str, str], float]:
    names, share = _parse(text, "--together party+party=share")
    first, plus, second = names.partition("+")
    if not plus:
        raise SettingsError(f"--together party+party=share: {text!r} does not name two parties")
    return (first.strip(), second.strip()), share
