"""`variant="as-printed"` behind the front door: what it is asked, what it gives, what it keeps, what it says."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import stats

from tests.builders import fit_seeded
from tests.unit.test_methods import federation, tables
from verticopula import Policy, Synthesizer
from verticopula.errors import AlignedWarning, NotPrivateWarning, PolicyRefused, SchemaError, SettingsError
from verticopula.schema.methods import METHODS, OWN_VARIANT, PRINTED_VARIANT, methods_help, printed_help
from verticopula.schema.study_settings import StudySettings

PRINTED = tuple(name for name, method in METHODS.items() if method.printed)
ALIGNED = tuple(name for name in PRINTED if METHODS[name].aligned_rows)


def fitted(method: str, seed: int = 1, **settings: Any) -> Synthesizer:
    settings = {"unit": "variable", "epsilon": 4.0, "rounds": 3, "variant": PRINTED_VARIANT, **settings}
    return fit_seeded(federation(), tables(), seed, method=method, **settings)


def sample(synthesizer: Synthesizer, rows: int | None = None, aligned: bool | None = None) -> dict[str, pl.DataFrame]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AlignedWarning)
        return synthesizer.sample(rows, aligned)


def test_the_paper_has_three_of_the_methods() -> None:
    assert [METHODS[name].printed for name in PRINTED] == ["Algorithm 1", "Algorithm 2", "Algorithm 3"]


def test_help_calls_our_variants_ours() -> None:
    for name in PRINTED:
        assert f"verticopula's variant of the paper's {METHODS[name].printed}" in methods_help()
        assert f"{METHODS[name].printed} for {name}" in printed_help()
    assert "infinite" in printed_help()


# ---- settings ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", [name for name in METHODS if name not in PRINTED])
def test_methods_that_are_not_in_the_paper_have_no_such_variant(method: str) -> None:
    with pytest.raises(SettingsError, match="is not in the paper"):
        Synthesizer(federation(), method, variant=PRINTED_VARIANT).check()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"variant": "as printed"}, "unknown variant"),
        ({"method": "vcds", "variant": PRINTED_VARIANT, "rank_correlation": "pearson"}, "unknown rank_correlation"),
        ({"method": "vcds", "variant": PRINTED_VARIANT, "sampler": "binomial"}, "exact"),
        (
            {"method": "vcds", "variant": PRINTED_VARIANT, "unit": "person", "delta": 1e-6},
            "keeps no epsilon per person",
        ),
        ({"method": "vcds", "variant": PRINTED_VARIANT, "unit": "block", "delta": 1e-6}, "keeps no epsilon per block"),
        ({"rank_correlation": "spearman"}, "is for variant"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        Synthesizer(federation(), **settings).check()


def test_the_variant_is_written_only_where_it_is_the_papers() -> None:
    own, printed = StudySettings("vcds"), StudySettings("vcds", variant=PRINTED_VARIANT, rank_correlation="spearman")
    assert not {"variant", "rank_correlation"} & set(own.to_dict())  # older versions read what this one writes
    assert StudySettings.from_dict(own.to_dict()).variant == OWN_VARIANT
    assert StudySettings.from_dict(printed.to_dict()) == printed


# ---- results -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", PRINTED)
def test_complete_tables_in_the_range_of_the_data(method: str) -> None:
    real, synthetic = tables(), sample(fitted(method))
    assert synthetic["left"]["y"].min() >= real["left"]["y"].min()
    assert synthetic["left"]["y"].max() <= real["left"]["y"].max()
    assert set(synthetic["right"]["g"]) <= {"u", "v", "w"}
    assert synthetic["right"]["n"].dtype.is_integer()
    assert sum(sum(table.null_count().row(0)) for table in synthetic.values()) == 0


@pytest.mark.parametrize("method", PRINTED)
def test_the_same_seed_gives_the_same_rows_and_another_one_others(method: str) -> None:
    one, two, other = (sample(fitted(method, seed)) for seed in (1, 1, 2))
    assert all(one[party].equals(two[party]) for party in one)
    assert not one["left"].equals(other["left"])


@pytest.mark.parametrize("method", PRINTED)
def test_a_nominal_column_has_one_latent(method: str) -> None:
    assert list(fitted(method).correlation_.columns) == ["left.y", "left.flag", "right.x", "right.g", "right.n"]


def test_the_rank_correlation_is_a_choice() -> None:
    kendall, spearman = (fitted("vcds", rank_correlation=kind).correlation_ for kind in ("kendall", "spearman"))
    assert not np.allclose(kendall, spearman)
    assert np.allclose(kendall, spearman, atol=0.15)


def test_it_differs_from_our_variant() -> None:
    own = fitted("vcds", variant=OWN_VARIANT).correlation_
    assert own.shape != fitted("vcds").correlation_.shape


@pytest.mark.parametrize("method", ALIGNED)
def test_algorithms_2_and_3_give_rows_that_follow_the_subjects(method: str) -> None:
    study = fitted(method, epsilon=16.0)
    with pytest.warns(AlignedWarning):
        rows = study.sample()
    original = tables()["left"]["y"].to_numpy()
    assert stats.spearmanr(rows["left"]["y"].to_numpy(), original).statistic > 0.9
    free = study.sample(150, aligned=False)
    assert abs(stats.spearmanr(free["left"]["y"].to_numpy(), original).statistic) < 0.4
    with pytest.raises(SettingsError, match="multiples"):
        study.sample(100)


def test_algorithm_1_has_free_rows_only() -> None:
    study = fitted("vcds")
    assert study.sample(77)["left"].height == 77
    with pytest.raises(SettingsError, match="no aligned release"):
        study.sample(aligned=True)


def test_rounds_matter_for_algorithm_3_and_nothing_else() -> None:
    assert not np.allclose(fitted("ievcds", rounds=1).correlation_, fitted("ievcds", rounds=2).correlation_)
    assert np.array_equal(fitted("evcds", rounds=1).correlation_, fitted("evcds", rounds=2).correlation_)
    # One round of Algorithm 3 has the ranks of Algorithm 2 at the same epsilon.
    one, two = fitted("ievcds", rounds=1), fitted("evcds")
    assert np.array_equal(one.correlation_, two.correlation_)


def test_a_column_without_values_is_refused() -> None:
    empty = tables()
    empty["right"] = empty["right"].with_columns(n=pl.lit(None, dtype=pl.Int64))
    with pytest.raises(SchemaError):
        Synthesizer(federation(), "vcds", 4.0, variant=PRINTED_VARIANT).fit(empty)


# ---- what is kept and said ---------------------------------------------------------------


@pytest.mark.parametrize("method", PRINTED)
def test_a_saved_study_gives_the_same_free_rows(method: str, tmp_path: Path) -> None:
    study = fitted(method)
    study.save(tmp_path / "study.json")
    loaded = Synthesizer.load(tmp_path / "study.json")
    assert loaded.variant == PRINTED_VARIANT
    assert loaded.settings_ == study.settings_
    one, two = study.sample(60, aligned=False), loaded.sample(60, aligned=False)
    assert all(one[party].equals(two[party]) for party in one)
    if method in ALIGNED:
        with pytest.raises(SettingsError, match="aligned=False"):
            loaded.sample()


def test_a_study_of_ours_is_saved_as_before(tmp_path: Path) -> None:
    fitted("vcds", variant=OWN_VARIANT).save(tmp_path / "study.json")
    assert "printed" not in (tmp_path / "study.json").read_text("utf-8")
    raw = json.loads((tmp_path / "study.json").read_text("utf-8"))
    assert "variant" not in raw["settings"]


@pytest.mark.parametrize("method", PRINTED)
def test_summary_and_report_say_what_it_is(method: str, tmp_path: Path) -> None:
    study = fitted(method)
    words = "The paper's algorithm as printed: ranges of the data are in the open"
    assert words in study.summary()
    assert "variant: as-printed" in study.summary()
    page = study.report(tmp_path / "report.html").read_text("utf-8")
    assert "ranges of the data are in the open" in page


def test_python_warns_of_it() -> None:
    with pytest.warns(NotPrivateWarning, match="as printed"):
        Synthesizer(federation(), "vcds", 4.0, variant=PRINTED_VARIANT).fit(tables())


def test_a_party_with_a_policy_must_allow_it() -> None:
    study = Synthesizer(federation(), "vcds", 4.0, variant=PRINTED_VARIANT)
    with pytest.raises(PolicyRefused, match="allow_as_printed"):
        study.fit(tables(), policies={"right": Policy()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        study.fit(tables(), policies={"right": Policy(allow_as_printed=True)})


def test_settings_have_a_title() -> None:
    settings = StudySettings("evcds")
    assert settings.title == "evcds"
    assert replace(settings, variant=PRINTED_VARIANT).title == "evcds, as-printed"
