"""Names that try to become markup or script, and cells that must not show."""

from __future__ import annotations

import json
import re
import warnings
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.builders import CONTINUOUS, make_federation, make_tables
from tests.report import studies
from verticopula import ColumnKey, Federation, NotPrivateWarning, Synthesizer
from verticopula.report.report_data import ReportData, read_real
from verticopula.report.report_page import render_report

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</script><script>alert(3)</script>",
    "' onmouseover='alert(4)",
    '" onfocus="alert(5)" x="',
    "{{ 7 * 7 }}",
    "${alert(6)}",
    "<!--",
    "naïve 👩‍⚕️ 数",
    "abc\u202edcba",
    "\u200frtl\u2066",
    "a=b.c",
]


def hostile_federation() -> Federation:
    columns = dict.fromkeys(HOSTILE, CONTINUOUS)
    return make_federation(
        {
            "left": {"y": {"kind": "binary"}, **columns},
            "right": {
                "g": {"kind": "nominal", "categories": HOSTILE},
                "o": {"kind": "ordinal", "categories": HOSTILE[:3]},
            },
        }
    )


def hostile_tables() -> dict[str, pl.DataFrame]:
    rng, n = np.random.default_rng(0), 300
    values = {name: rng.normal(size=n) for name in HOSTILE}
    values |= {"y": rng.integers(0, 2, n), "g": rng.choice(HOSTILE, n), "o": rng.choice(HOSTILE[:3], n)}
    frames = make_tables(hostile_federation(), values)
    return {**frames, "right": frames["right"][:200]}


def regression_of(keys: list[ColumnKey], response: str) -> dict[str, Any]:
    """What a regression leaves behind, made up: fitting one takes longer than looking at it."""
    numbers = {"coefficient": 0.5, "error": 0.1, "lower": 0.3, "upper": 0.7, "p": 0.01}
    return {
        "response": response,
        "family": "binomial",
        "intercept": True,
        "level": 0.95,
        "converged": True,
        "heading": ["made up", "made up"],
        "warnings": [],
        "notes": [],
        "rows": [{"party": key.party, "column": key.column, "feature": key.column, **numbers} for key in keys],
    }


def hostile_subject(*, real: bool = True) -> ReportData:
    federation, tables = hostile_federation(), hostile_tables()
    synthesizer = Synthesizer(federation, "refined", epsilon=20.0).fit(tables)
    facts = regression_of([ColumnKey("left", name) for name in HOSTILE], "left.y")
    facts |= {"heading": HOSTILE[:2], "warnings": [HOSTILE[2]], "notes": [HOSTILE[3]], "converged": False}
    held = read_real(federation, tables) if real else {}
    return ReportData(synthesizer.study_, held, facts, notes=(HOSTILE[0],))


class Elements(HTMLParser):
    """Every element and attribute of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.fixture(scope="module")
def page() -> str:
    return render_report(hostile_subject())


def test_no_name_becomes_an_element_or_an_attribute(page: str) -> None:
    found = Elements()
    found.feed(page)
    assert found.names.count("script") == 2  # the data and the page's own
    assert "img" not in found.names
    assert not {name for name in found.attributes if name.startswith("on")}
    assert "x" not in found.attributes


def test_hostile_text_is_only_there_escaped(page: str) -> None:
    for text in ("<script>alert", "<img", "alert(3)</script>", "\u202e", "\u200f", "\u2066"):
        assert text not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "⟨U+202E⟩" in page
    assert "{{ 7 * 7 }}" in page
    assert "object at 0x" not in page  # a name of the template that is a method by accident
    assert "built-in method" not in page


def test_the_data_are_json_with_every_name_in_them(page: str) -> None:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    assert "<" not in text
    keys = [column["key"] for column in json.loads(text)["columns"]]
    assert "left.<script>alert(1)</script>" in keys
    assert "left.naïve 👩‍⚕️ 数" in keys


def test_the_policy_names_the_only_script_there_is(page: str) -> None:
    assert unescape(page).count("script-src 'sha256-") == 1
    assert "default-src 'none'" in unescape(page)
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page


# ---- canaries

NUMBER = 5.123456789
COUNT = 864_215_793
IDENTITY = "zq-canary-4711"


def canary_federation() -> Federation:
    return make_federation(
        {"left": {"y": CONTINUOUS, "flag": {"kind": "binary"}}, "right": {"n": {"kind": "count", "bounds": [0, 10**9]}}}
    )


def canary_tables() -> dict[str, pl.DataFrame]:
    rng, n = np.random.default_rng(1), 120
    y, counts = rng.normal(size=n), rng.integers(0, 900, n)
    y[3], counts[3] = NUMBER, COUNT
    frames = make_tables(canary_federation(), {"y": y, "flag": rng.integers(0, 2, n), "n": counts})
    ids = [IDENTITY if i == 3 else f"s{i}" for i in range(n)]
    return {name: frame.with_columns(pl.Series("subject_id", ids)) for name, frame in frames.items()}


@pytest.mark.parametrize("method", ["vcds", "refined", "evcds"])
def test_no_cell_of_real_data_is_in_the_leads_report(method: str, tmp_path: Path) -> None:
    synthesizer = Synthesizer(canary_federation(), method, epsilon=6.0).fit(canary_tables())
    text = synthesizer.report(tmp_path / "report.html").read_text("utf-8")
    for spelling in (*(f"{NUMBER:.{digits}f}" for digits in range(4, 10)), str(COUNT), f"{COUNT:,}", IDENTITY, "s17"):
        assert spelling not in text


def test_the_leads_report_is_a_function_of_the_saved_study(tmp_path: Path) -> None:
    """Whatever the saved study does not hold cannot be in the report: it is made from that file, to the message."""
    synthesizer = Synthesizer(canary_federation(), "refined", epsilon=6.0).fit(canary_tables())
    synthesizer.save(tmp_path / "study.json")
    again = Synthesizer.load(tmp_path / "study.json")
    assert render_report(ReportData(again.study_)) == render_report(ReportData(synthesizer.study_))


def test_the_in_house_report_shows_exact_shares_and_says_so_first(tmp_path: Path) -> None:
    text = studies.fitted().report(tmp_path / "r.html", tables=studies.tables()).read_text("utf-8")
    first = text.index('<li class="warning')
    assert 'data-code="in-house"' in text[first : first + 200]


def test_a_hostile_study_name_is_harmless() -> None:
    federation = Federation.from_dict({**canary_federation().to_dict(), "name": HOSTILE[2]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        text = render_report(
            ReportData(Synthesizer(federation, "refined", epsilon=6.0, random_state=1).fit(canary_tables()).study_)
        )
    assert "alert(3)</script>" not in text
