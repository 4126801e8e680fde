"""How things look in a notebook."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from tests.report import studies
from tests.report.test_report_hostile import Elements, hostile_federation, hostile_tables
from verticopula import Synthesizer, VerticalGLM
from verticopula.storage.ledger import Ledger


def shown(thing: object) -> str:
    return str(thing._repr_html_())  # type: ignore[attr-defined]


def hostile_things() -> dict[str, object]:
    synthesizer = Synthesizer(hostile_federation(), epsilon=20.0).fit({**hostile_tables()})
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
        "unfitted": Synthesizer(hostile_federation(), epsilon=1.0),
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
    synthesizer = Synthesizer(hostile_federation(), epsilon=20.0).fit({**hostile_tables()})
    before = shown(synthesizer)
    synthesizer.set_params(epsilon=0.1, method="refined")
    assert shown(synthesizer) == before
    assert (synthesizer.settings_["epsilon"], synthesizer.settings_["method"]) == (20.0, "vcds")
