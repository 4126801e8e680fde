"""The front door: settings, frames in and out, saving, and that bad settings cost nothing."""

from __future__ import annotations

import copy
import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import NotFittedError

import verticopula
from verticopula import Federation, NotPrivateWarning, Policy, Synthesizer
from verticopula.errors import BudgetExceeded, SettingsError, VerticopulaError
from verticopula.privacy.policy import Caps
from verticopula.storage.ledger import Ledger


def federation(**extra: Any) -> Federation:
    return Federation.from_dict(
        {
            "response": "agency.default",
            "party": [
                {
                    "name": "registry",
                    "column": [
                        {"name": "turnover", "kind": "continuous", "bounds": [1, 1e6], "scale": "log", "decimals": 1},
                        {"name": "sector", "kind": "nominal", "categories": ["farm", "shop", "bank"]},
                    ],
                    **extra,
                },
                {
                    "name": "agency",
                    "column": [
                        {"name": "default", "kind": "binary"},
                        {"name": "visits", "kind": "count", "bounds": [0, 30]},
                        {"name": "grade", "kind": "ordinal", "categories": ["low", "mid", "high"]},
                    ],
                },
            ],
        }
    )


def tables(n: int = 400, seed: int = 0) -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(seed)
    z = rng.multivariate_normal([0, 0, 0], [[1, 0.7, 0.5], [0.7, 1, 0.5], [0.5, 0.5, 1]], n)
    ids = [f"s{i}" for i in range(n)]
    registry = pl.DataFrame(
        {
            "subject_id": ids,
            "turnover": np.clip(np.exp(2 * z[:, 0] + 5), 1, 1e6),
            "sector": np.array(["farm", "shop", "bank"])[np.digitize(z[:, 1] + rng.normal(size=n), [-1, 1])],
        }
    )
    agency = pl.DataFrame(
        {
            "subject_id": ids,
            "default": (z[:, 2] > 0).astype(int),
            "visits": rng.poisson(np.exp(z[:, 1] / 2 + 1)).clip(0, 30),
            "grade": np.array(["low", "mid", "high"])[np.digitize(z[:, 2], [-0.5, 0.5])],
        }
    )
    return {"registry": registry[: n // 2].sample(fraction=1.0, shuffle=True, seed=1), "agency": agency}


def fitted(**settings: Any) -> Synthesizer:
    settings = {"method": "refined", "random_state": 1, **settings}
    with pytest.warns(NotPrivateWarning, match="NOT PRIVATE"):
        return Synthesizer(federation(), epsilon=4.0, unit="variable", **settings).fit(tables())


@pytest.fixture(scope="module")
def synthesizer() -> Synthesizer:
    return fitted()


def test_public_names() -> None:
    assert set(verticopula.__all__) == {
        *("Synthesizer", "VerticalGLM", "forecast", "audit", "AuditSettings", "METHODS", "Policy", "__version__"),
        *("Column", "ColumnKey", "Federation", "Party"),
        *("VerticopulaError", "SchemaError", "SettingsError", "BudgetExceeded", "LedgerError", "ProtocolError"),
        *(
            "PolicyRefused",
            "ConsentPending",
            "NotPrivateWarning",
            "WeakPrivacyWarning",
            "WeakResultWarning",
            "AlignedWarning",
            "CellsWarning",
        ),
        *("EngineError", "PartyUnavailable", "VersionMismatch", "WireError", "InputTypeError"),
    }
    assert all(getattr(verticopula, name) is not None for name in verticopula.__all__)


def test_tables_come_out_complete_typed_and_in_range(synthesizer: Synthesizer) -> None:
    out = synthesizer.sample()
    assert list(out) == ["registry", "agency"]
    registry, agency = out["registry"], out["agency"]
    assert registry.columns == ["turnover", "sector"]
    assert agency.schema == {"default": pl.Int64, "visits": pl.Int64, "grade": pl.String}
    assert len(registry) == len(agency) == 400
    assert sum(registry.null_count().row(0)) + sum(agency.null_count().row(0)) == 0
    assert registry["turnover"].is_between(1, 1e6).all()
    assert np.allclose(registry["turnover"] * 10, np.round(registry["turnover"] * 10))
    assert set(registry["sector"]) <= {"farm", "shop", "bank"}
    assert set(agency["grade"]) <= {"low", "mid", "high"}
    assert agency["visits"].is_between(0, 30).all()


@pytest.mark.parametrize("rows", [1, 7, 100_000])
def test_any_number_of_rows(synthesizer: Synthesizer, rows: int) -> None:
    assert {len(t) for t in synthesizer.sample(rows).values()} == {rows}


@pytest.mark.parametrize("rows", [0, -1, 1.5, True, "many"])
def test_bad_numbers_of_rows(synthesizer: Synthesizer, rows: Any) -> None:
    with pytest.raises(SettingsError, match="n_rows"):
        synthesizer.sample(rows)


def test_vcds_is_never_aligned() -> None:
    with pytest.raises(SettingsError, match="aligned"):
        fitted(method="vcds").sample(aligned=True)


def test_pandas_users_get_pandas() -> None:
    frames = {name: table.to_pandas() for name, table in tables().items()}
    with pytest.warns(NotPrivateWarning):
        synthesizer = Synthesizer(federation(), "refined", epsilon=4.0, unit="variable", random_state=1).fit(frames)
    out = synthesizer.sample()
    assert all(isinstance(table, pd.DataFrame) for table in out.values())
    assert pl.DataFrame(out["agency"]).equals(fitted().sample()["agency"])


def test_another_id_column() -> None:
    renamed = {name: table.rename({"subject_id": "firm"}) for name, table in tables().items()}
    with pytest.warns(NotPrivateWarning):
        synthesizer = Synthesizer(federation(), "refined", epsilon=4.0, unit="variable", random_state=1).fit(
            renamed, id="firm"
        )
    assert synthesizer.n_subjects_ == 400


def test_correlation_is_labelled_and_finds_the_association(synthesizer: Synthesizer) -> None:
    found = synthesizer.correlation_
    assert list(found.index) == [
        "registry.turnover", "registry.sector=farm", "registry.sector=shop", "registry.sector=bank",
        "agency.default", "agency.visits", "agency.grade",
    ]  # fmt: skip
    assert found.loc["registry.turnover", "agency.visits"] > 0.3
    assert np.linalg.eigvalsh(found).min() > 0


def test_ledger_and_privacy(synthesizer: Synthesizer) -> None:
    assert len(synthesizer.ledger_) == 10
    assert {(e.party, e.column, e.what) for e in synthesizer.ledger_} == {
        (k.party, k.column, what) for k in federation().keys for what in ("ranks", "marginal")
    }
    privacy = synthesizer.privacy_
    assert privacy.epsilon(verticopula.schema.units.Unit.VARIABLE) == pytest.approx(4.0)
    assert privacy.parties["agency"].client == pytest.approx(12.0)
    assert privacy.parties["agency"].block < privacy.person
    assert not privacy.is_private
    assert "NOT PRIVATE" in str(privacy)
    assert "NOT PRIVATE" in synthesizer.summary()


def test_secure_noise_by_default_warns_of_nothing_and_differs_each_time() -> None:
    first, second = (Synthesizer(federation(), "refined", epsilon=4.0, unit="variable").fit(tables()) for _ in range(2))
    assert first.privacy_.is_private
    assert not np.array_equal(first.correlation_, second.correlation_)


def test_same_seed_same_tables(synthesizer: Synthesizer) -> None:
    first, second = fitted(), fitted()
    assert first.sample()["registry"].equals(second.sample()["registry"])
    assert not first.sample()["registry"].equals(fitted(random_state=2).sample()["registry"])


def test_save_and_load(tmp_path: Path) -> None:
    synthesizer = fitted()
    synthesizer.save(tmp_path / "study.json")
    loaded = Synthesizer.load(tmp_path / "study.json")
    assert loaded.sample(50)["registry"].equals(synthesizer.sample(50)["registry"])
    assert loaded.ledger_ == synthesizer.ledger_
    assert loaded.summary() == synthesizer.summary()
    pd.testing.assert_frame_equal(loaded.correlation_, synthesizer.correlation_)


@pytest.mark.parametrize("break_it", ["cut", "format", "correlation", "no file"])
def test_files_that_are_no_study(tmp_path: Path, synthesizer: Synthesizer, break_it: str) -> None:
    path = tmp_path / "study.json"
    synthesizer.save(path)
    raw = json.loads(path.read_text())
    if break_it == "cut":
        path.write_text(path.read_text()[:100])
    elif break_it == "format":
        path.write_text(json.dumps({**raw, "format": 99}))
    elif break_it == "correlation":
        raw["fit"]["correlation"] = [[1.0]]
        path.write_text(json.dumps(raw))
    else:
        path.unlink()
    with pytest.raises(VerticopulaError):
        Synthesizer.load(path)


def test_not_fitted_yet() -> None:
    with pytest.raises(VerticopulaError, match="not fitted"):
        Synthesizer(federation()).sample()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"epsilon": 0}, "epsilon must be a positive"),
        ({"epsilon": -1.0}, "epsilon must be a positive"),
        ({"epsilon": math.nan}, "epsilon must be a positive"),
        ({"epsilon": math.inf}, "epsilon must be a positive"),
        ({"epsilon": "1"}, "epsilon must be a positive"),
        ({"epsilon": True}, "epsilon must be a positive"),
        ({"epsilon_ranks": 1.0}, "together"),
        ({"epsilon_ranks": 1.0, "epsilon_marginals": 0.0}, "epsilon_marginals must be"),
        ({"unit": "person", "delta": 0.0}, "between 0 and 1"),
        ({"unit": "person", "delta": math.nan}, "between 0 and 1"),
        ({"unit": "galaxy"}, "unknown unit 'galaxy'; known: variable, client, block, person"),
        ({"method": "magic"}, "unknown method 'magic'; known: vcds"),
        ({"sampler": "lazy"}, "unknown sampler"),
        ({"random_state": 1.5}, "random_state"),
    ],
)
def test_bad_settings(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Synthesizer(federation(), **{"method": "refined", **settings}).fit({})
    assert expected in str(caught.value)


@pytest.mark.parametrize(("unit", "cap"), [("variable", "variable"), ("client", "client"), ("block", "block")])
def test_a_cap_stops_the_study_before_anything_is_drawn(
    unit: str, cap: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def never(*args: Any) -> None:
        raise AssertionError("something was drawn")

    monkeypatch.setattr("verticopula.protocol.party.rank_handler.flip_comparisons", never)
    monkeypatch.setattr("verticopula.protocol.party.rank_handler.release_cells", never)
    policies = {"registry": Policy(caps=Caps(**{cap: 0.5}))}
    book = Ledger(tmp_path / "ledger.jsonl")
    with pytest.raises(BudgetExceeded, match="nothing was drawn"):
        Synthesizer(federation(), "refined", epsilon=1.0, delta=1e-6, unit=unit).fit(
            tables(), policies=policies, ledger=book
        )
    assert not book.of_party("registry")


def test_a_cap_counts_earlier_studies_in_the_ledger(tmp_path: Path) -> None:
    policies = {"registry": Policy(caps=Caps(client=2.5))}
    for _ in range(2):
        Synthesizer(federation(), "refined", epsilon=1.0).fit(tables(), policies=policies, ledger=tmp_path / "l.jsonl")
    with pytest.raises(BudgetExceeded, match="registry"):
        Synthesizer(federation(), "refined", epsilon=1.0).fit(tables(), policies=policies, ledger=tmp_path / "l.jsonl")


def test_bounds_from_data_must_be_asked_for_and_are_mentioned_everywhere(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="from-data"):
        Federation.infer(tables(), response="agency.default", bounds="guess")
    inferred = Federation.infer(tables(), response="agency.default", bounds="from-data")
    kinds = {str(k): inferred.column(k).kind for k in inferred.keys}
    assert kinds["registry.turnover"] == "continuous"
    assert kinds["registry.sector"] == "nominal"
    assert kinds["agency.default"] == "binary"
    with pytest.warns(NotPrivateWarning, match="taken from the data"):
        synthesizer = Synthesizer(inferred, "refined", epsilon=1.0).fit(tables())
    assert all(math.isinf(synthesizer.privacy_.epsilon(u)) for u in verticopula.schema.units.Unit)
    assert "taken from the data" in synthesizer.summary()
    synthesizer.save(tmp_path / "s.json")
    assert json.loads((tmp_path / "s.json").read_text())["federation"]["bounds_source"] == "from-data"
    assert all(e.bounds == "from-data" for e in synthesizer.ledger_)


@pytest.mark.parametrize("sampler", ["exact", "binomial"])
@pytest.mark.parametrize("unit", ["variable", "client", "block", "person"])
def test_every_unit_and_sampler_spends_no_more_than_asked(unit: str, sampler: str) -> None:
    synthesizer = Synthesizer(federation(), "refined", epsilon=2.0, delta=1e-6, unit=unit, sampler=sampler).fit(
        tables()
    )
    spent = synthesizer.privacy_.epsilon(verticopula.schema.units.Unit(unit))
    assert spent <= 2.0 * (1 + 1e-9)
    assert spent > 1.0
    synthesizer.sample(10)


def test_parties_with_epsilons_of_their_own() -> None:
    synthesizer = Synthesizer(federation(epsilon=0.5), "refined", epsilon=2.0).fit(tables())
    parties = synthesizer.privacy_.parties
    assert parties["registry"].client == pytest.approx(0.5)
    assert parties["agency"].client == pytest.approx(2.0)
    with pytest.raises(SettingsError, match=r"these parties set their own: registry\. Choose unit .block."):
        Synthesizer(federation(epsilon=0.5), "refined", epsilon=2.0, delta=1e-6, unit="person").check()


@pytest.mark.parametrize("method", ["vcds", "refined"])
def test_progress_reaches_its_total(method: str) -> None:
    calls: list[tuple[str, int, int]] = []
    Synthesizer(federation(), method).fit(tables(), progress=lambda *call: calls.append(call))
    assert calls[-1][1] == calls[-1][2]
    for what in {call[0] for call in calls}:
        shares = [done / total for name, done, total in calls if name == what]
        assert shares == sorted(shares)


def test_one_partys_refusal_costs_the_others_nothing(tmp_path: Path) -> None:
    policies = {"agency": Policy(caps=Caps(client=0.5))}
    with pytest.raises(BudgetExceeded, match="agency"):
        Synthesizer(federation(), "refined", epsilon=1.0).fit(
            tables(), policies=policies, ledger=tmp_path / "ledger.jsonl"
        )
    assert not (tmp_path / "ledger.jsonl").exists()


def test_numbers_of_numpy_are_numbers() -> None:
    settings = Synthesizer(federation(), "ievcds", np.float32(2.0), rounds=np.int64(3)).check()
    assert (settings.epsilon, settings.rounds) == (2.0, 3)


@pytest.mark.parametrize("wrong", [{"delta": "x"}, {"epsilon": "1"}, {"rounds": 2.5}, {"epsilon": True}])
def test_what_is_no_number_is_a_setting_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        Synthesizer(federation(), "ievcds", **wrong).check()


def test_a_notebook_shows_an_unfitted_synthesizer_whatever_its_settings() -> None:
    shown = Synthesizer(federation(), "<b>no such method")._repr_html_()
    assert "Not fitted yet" in shown
    assert "<b>no such" not in shown
    with pytest.raises(NotFittedError):
        Synthesizer(federation()).settings_  # noqa: B018


@pytest.mark.parametrize("method", ["evcds", "refined"])
def test_a_fitted_synthesizer_can_be_pickled_without_its_releases(method: str) -> None:
    with pytest.warns(NotPrivateWarning):
        fitted = Synthesizer(federation(), method, 8.0, random_state=1).fit(tables())
    again = pickle.loads(pickle.dumps(fitted))
    assert again.correlation_.equals(fitted.correlation_)
    assert again.study_.result.draw_aligned is None
    assert fitted.study_.result.draw_aligned is not None


def test_a_federation_that_is_none_is_named() -> None:
    with pytest.raises(SettingsError, match="federation must be a Federation, not str"):
        Synthesizer("federation.toml").fit({})  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::verticopula.NotPrivateWarning")
def test_samples_of_a_copy_do_not_depend_on_what_the_other_has_drawn() -> None:
    fitted = Synthesizer(federation(), "refined", random_state=0).fit(tables())
    other = copy.copy(fitted)
    first = fitted.sample(50)
    assert all(frame.equals(first[party]) for party, frame in other.sample(50).items())
