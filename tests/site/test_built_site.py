"""The documentation site that `make docs` has built, in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser

from tests.browsers import accessibility_faults

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build/site/html"
Scheme = Literal["light", "dark"]
PAGES = [page.relative_to(ROOT / "docs").with_suffix(".html") for page in sorted((ROOT / "docs").glob("*/*.md"))]
LINKS = "[...document.querySelectorAll('a[href]')].map(a => a.href)"


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("page", [Path("index.html"), *PAGES], ids=str)
def test_a_page_asks_nobody_else_and_is_no_wider_than_the_screen(browser: Browser, page: Path, width: int) -> None:
    asked: list[str] = []
    opened = browser.new_page(viewport={"width": width, "height": 900})
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto((SITE / page).as_uri())
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    opened.close()


@pytest.mark.parametrize("page", [Path("index.html"), *PAGES], ids=str)
def test_links_lead_to_pages_of_the_site(browser: Browser, page: Path) -> None:
    opened = browser.new_page()
    opened.goto((SITE / page).as_uri())
    inside = [link.partition("#")[0] for link in opened.evaluate(LINKS) if link.startswith("file:")]
    opened.close()
    assert inside
    assert [link for link in inside if not Path(link.removeprefix("file://")).is_file()] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", [Path("index.html"), *PAGES], ids=str)
def test_a_page_has_no_serious_accessibility_fault(browser: Browser, page: Path, scheme: Scheme) -> None:
    opened = browser.new_page(color_scheme=scheme, viewport={"width": 1280, "height": 900})
    opened.goto((SITE / page).as_uri())
    assert accessibility_faults(opened) == []
    opened.close()
