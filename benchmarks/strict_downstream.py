"""A regression on strict mode's synthetic rows, and on those of the refinement without privacy."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from statistics import mean
from typing import Any

import polars as pl

from experiments.sme import auc
from reporting.tables import Table, verdict
from verticopula import Synthesizer, VerticalGLM
from verticopula.datasets import SmeStudy, make_sme
from verticopula.glm.feature_encoding import encode_response

SIDES = {
    "strict": {"method": "strict", "epsilon": 3.0, "delta": 1e-6, "unit": "person"},
    # Coins that never fall the wrong way and cells with next to no noise: no privacy.
    "refined, no privacy": {"method": "refined", "epsilon": 1_000.0, "unit": "variable"},
}
MOST_DIFFERENCE = 0.03
HELD_OUT_SEED = 20_260_101  # of people who are in none of the studies


def measure_downstream(n: int, held_out: int, seeds: Iterable[int]) -> dict[str, Any]:
    """AUC on people who are in no study, and the selected variables."""
    fresh = make_sme(held_out, random_state=HELD_OUT_SEED)
    found: dict[str, Any] = {name: {"auc": [], "selected": []} for name in SIDES}
    for seed in seeds:
        study = make_sme(n, random_state=seed)
        for name, settings in SIDES.items():
            area, selected = _judge(study, fresh, settings, seed)
            found[name]["auc"].append(area)
            found[name]["selected"].append(selected)
    found["relevant"] = list(fresh.truth.relevant)
    return found


def _judge(study: SmeStudy, fresh: SmeStudy, settings: Mapping[str, Any], seed: int) -> tuple[float, list[str]]:
    federation, response = study.federation, study.federation.response
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seeded: not private
        tables = Synthesizer(federation, random_state=seed, **settings).fit(study.tables).sample()
        model = VerticalGLM(family="binomial").fit(tables, str(response))
    test: dict[str, pl.DataFrame] = {
        party: table.drop(response.column) if party == response.party else table
        for party, table in fresh.truth.complete.items()
    }
    outcome = encode_response(
        fresh.truth.complete[response.party][response.column], federation.column(response), response.party
    )
    chosen = dict.fromkeys(
        f"{party}.{name.partition('=')[0]}"
        for party, names in model.feature_names_.items()
        for name, coefficient in zip(names, model.coef_[party], strict=True)
        if coefficient != 0.0
    )
    return auc(model.predict_mean(test), outcome == 1.0), list(chosen)


def tabulate_downstream(found: Mapping[str, Any]) -> list[Table]:
    relevant = found["relevant"]
    areas = {name: mean(found[name]["auc"]) for name in SIDES}
    first, second = areas
    rows = [
        (
            name,
            f"{areas[name]:.4f}",
            ", ".join(f"{a:.4f}" for a in found[name]["auc"]),
            f"{mean(len(set(s) & set(relevant)) for s in found[name]['selected']):.1f} of {len(relevant)}",
            f"{mean(len(set(s) - set(relevant)) for s in found[name]['selected']):.1f}",
        )
        for name in SIDES
    ]
    difference = areas[second] - areas[first]
    rows.append(("difference", f"{difference:.4f}", verdict(difference, MOST_DIFFERENCE), "", ""))
    every = dict.fromkeys([*relevant, *(v for name in SIDES for s in found[name]["selected"] for v in s)])
    chosen = [
        (
            f"**{variable}**" if variable in relevant else variable,
            *(str(sum(variable in s for s in found[name]["selected"])) for name in SIDES),
        )
        for variable in every
    ]
    return [
        Table(
            f"VerticalGLM on synthetic rows at (3, 1e-6) per person, {len(found[first]['auc'])} studies",
            ("rows from", "mean AUC on new people", "AUC", "relevant variables selected", "others selected"),
            tuple(rows),
        ),
        Table("How often a variable was selected (bold: it matters)", ("variable", *SIDES), tuple(chosen)),
    ]
