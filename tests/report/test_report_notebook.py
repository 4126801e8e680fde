"""How things look in a notebook."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from tests.report import studies
from tests.report.test_report_hostile import Elements, hostile_federation, hostile_tables
from verticopula import Synthesizer, VerticalGLM
from verticopula.errors import SettingsError
from verticopula.notebook import live_progress, progress_html
from verticopula.storage.ledger import Ledger


def shown(thing: object) -> str:
    return str(thing._repr_html_())  # type: ignore[attr-defined]


def hostile_things() -> dict[str, object]:
    synthesizer = Synthesizer(hostile_federation(), "refined", epsilon=20.0).fit({**hostile_tables()})
    ledger = Ledger()
    ledger.append(synthesizer.ledger_)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = VerticalGLM("binomial", penalty="none").fit(synthesizer.sample(), "left.y")
    return {
        "federation": synthesizer.federation,
        "synthesizer": synthesizer,
        "ledger": ledger,
        "statement": synthesizer.privacy_,
        "model": model,
        "unfitted": Synthesizer(hostile_federation(), "refined", epsilon=1.0),
        "unfitted model": VerticalGLM("binomial"),
    }


@pytest.fixture(scope="module")
def things() -> dict[str, object]:
    return hostile_things()


def test_all_are_escaped_small_and_closed(things: dict[str, object]) -> None:
    for name, thing in things.items():
        text = shown(thing)
        found = Elements()
        found.feed(text)
        assert set(found.names) <= {"div", "b", "bdi", "code", "table", "thead", "tbody", "tr", "th", "td"}, name
        assert found.attributes <= {"style"}, name
        assert len(text) < 40_000, name
        assert text.count("<div") == text.count("</div>"), name
        assert "background" not in text, name  # the page's own colours, light or dark
        assert "color:" not in text, name


def test_they_say_what_matters(things: dict[str, object]) -> None:
    assert "&lt;script&gt;" in shown(things["federation"])
    assert "left.y" in shown(things["federation"])
    assert "Not fitted yet" in shown(things["unfitted"])
    assert "Not fitted yet" in shown(things["unfitted model"])
    assert "one party" in shown(things["statement"])
    assert "per comparison" in shown(things["ledger"])
    assert "⟨U+202E⟩" in shown(things["federation"])


def test_a_fitted_study_tells_its_cost_and_its_warnings() -> None:
    text = shown(studies.fitted())
    assert "ε per block" in text
    assert "600 subjects" in text
    seeded = studies.fit("vcds", random_state=1)
    assert "NOT PRIVATE" in shown(seeded)
    assert "NOT PRIVATE" in shown(seeded.privacy_)


def test_a_long_ledger_shows_its_end() -> None:
    ledger = Ledger()
    assert "0 releases" in shown(ledger)
    for _ in range(5):
        ledger.append(studies.fitted().ledger_)
    assert "60 releases" in shown(ledger)
    assert shown(ledger).count("<tr>") == 41


def test_a_regression_shows_its_table() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 2))
    model = VerticalGLM("gaussian", penalty="none").fit(
        {"a": x[:, :1], "b": x[:, 1:]}, x @ [1.0, -1.0] + rng.normal(size=200)
    )
    text = shown(model)
    assert "coefficient" in text
    assert text.count("<tr>") == 4


def test_a_fitted_synthesizer_shows_the_settings_that_it_was_fitted_with() -> None:
    synthesizer = Synthesizer(hostile_federation(), "refined", epsilon=20.0).fit({**hostile_tables()})
    before = shown(synthesizer)
    synthesizer.set_params(epsilon=0.1, method="vcds")
    assert shown(synthesizer) == before
    assert (synthesizer.settings_["epsilon"], synthesizer.settings_["method"]) == (20.0, "refined")


def test_there_is_no_progress_outside_of_notebooks() -> None:
    """`tests/site` looks at it inside of one."""
    assert live_progress() is None


def test_progress_escapes_what_it_names() -> None:
    text = progress_html("<b>\u202e", 3, 0)
    assert "&lt;b&gt;⟨U+202E⟩" in text
    assert 'max="1"' in text


def test_plots_show_margins_correlations_and_who_is_missing() -> None:
    study = studies.fitted()
    margins = study.plot()
    assert len(margins.data) == 2 * len(study.federation.keys)
    shares = {trace.name: trace.y for trace in study.plot("margins", columns=["court.suits"]).data}
    assert set(shares) == {"observed", "synthetic"}
    assert all(sum(values) == pytest.approx(1.0, abs=1e-3) for values in shares.values())
    heat = study.plot("correlations", columns=["bank.income", "shop.sector"]).data[0]
    assert list(heat.x) == ["bank.income", "shop.sector=a", "shop.sector=b", "shop.sector=c"]
    assert np.allclose(np.diag(heat.z), 1.0)
    assert np.allclose(heat.z, study.correlation_.loc[list(heat.x), list(heat.x)].to_numpy())
    bars = study.plot("missingness").data
    known = {name: sum(bar.x[0] for bar in bars if bar.y[0] == name) for name in study.missingness_.parties}
    assert known["bank"] == study.n_subjects_
    assert known["court"] == round(study.n_subjects_ * (1 - study.missingness_.rate("court")))


def test_what_cannot_be_plotted_is_an_error_in_words() -> None:
    study = studies.fitted()
    for what, columns in (("spread", None), ("margins", ["bank.nothing"]), ("margins", []), ("missingness", ["a.b"])):
        with pytest.raises(SettingsError):
            study.plot(what, columns=columns)
    with pytest.raises(NotFittedError):
        Synthesizer(studies.federation()).plot()


def test_names_in_plots_are_no_markup(things: dict[str, object]) -> None:
    study = things["synthesizer"]
    assert isinstance(study, Synthesizer)
    for what in ("margins", "correlations", "missingness"):
        assert "<script" not in study.plot(what).to_json()
