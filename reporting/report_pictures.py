"""The pictures of the report in README and documentation, taken in a real browser of a study's own page.

verticopula demo --out demo-out
python -m reporting.report_pictures demo-out/report.html
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

IMAGES = Path(__file__).parents[1] / "docs/images"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
DESK, WHOLE, PHONE = (1100, 1000), (1100, 1180), (375, 812)
GAP = 20  # between screens of a phone
SETTLED = 500.0  # milliseconds
_SCROLL = "id => { if (id) { document.getElementById(id).scrollIntoView({behavior: 'instant'}); scrollBy(0, -10); } }"


def screen(browser: Browser, report: Path, size: tuple[int, int], section: str = "") -> Image.Image:
    """What a window of this size shows of the page, from the top of a section on."""
    width, height = size
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
    page.goto(f"{report.resolve().as_uri()}#{section}")
    page.wait_for_selector("html[data-ready]")
    for _ in range(2):  # figures above it are drawn when they come into sight, and move it
        page.evaluate(_SCROLL, section)
        page.wait_for_timeout(SETTLED)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    page.close()
    return picture


def side_by_side(pictures: list[Image.Image]) -> Image.Image:
    """Pictures of one size in a row."""
    width, height = pictures[0].size
    row = Image.new("RGB", (len(pictures) * (width + GAP) - GAP, height), "#d4d9df")
    for number, picture in enumerate(pictures):
        row.paste(picture, (number * (width + GAP), 0))
    return row


def main(report: Path) -> None:
    """Write all pictures of a report."""
    path = next(found for name in NAMES if (found := shutil.which(name)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        phone = [screen(browser, report, PHONE, section) for section in ("", "missing", "notrandom")]
        taken = {
            "report-top.png": screen(browser, report, DESK),
            "report-correlation.png": screen(browser, report, WHOLE, "correlation"),
            "report-phone.png": side_by_side(phone),
        }
        browser.close()
    for name, picture in taken.items():
        picture.quantize(128).save(IMAGES / name, optimize=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
