"""The pictures of the web console in the documentation, taken in a real browser of a made-up party's console.

python -m reporting.console_pictures
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from reporting.made_up_kits import COLUMNS, content, fill_vault, make_kits, release
from reporting.report_pictures import FLAGS, IMAGES, NAMES, PHONE, side_by_side
from verticopula.privacy.policy import Policy
from verticopula.storage.request_store import RequestStore
from verticopula.storage.steward_requests import UnitPrice

WIDE = (1000, 900)
_SCROLL_TO = "id => { if (id != 'main') document.getElementById(id).scrollIntoView({behavior: 'instant'}); }"


def made_up_kit(folder: Path) -> Path:
    """A bank's kit after three studies, with a request that waits."""
    kit, now = make_kits(folder) / "bank", datetime.now(UTC)
    past = [
        release(f"loans-{number}", column, 0.5, -days, begin=now)
        for number, days in enumerate((210, 130, 40), start=1)
        for column in COLUMNS
    ]
    fill_vault(kit / "vault", past, Policy.from_rules({"caps.client": 8.0, "caps.block": 5_000.0}))
    prices = (
        UnitPrice("variable", 1.5, 0.5, 2.0),
        UnitPrice("client", 3.0, 1.0, 4.0, 8.0, 5.0, 4.0),
        UnitPrice("block", 1_080.0, 420.0, 1_500.0, 5_000.0, 3_880.0, 3_430.0),
        UnitPrice("person", 1_080.0, 420.0, 1_500.0),
    )
    asker = {"requester": "Agency for statistics", "contact": "loans@agency.example"}
    RequestStore.of_kit(kit).ask(content("loans-4", prices=prices, **asker))
    return kit


def _picture(page: Page) -> Image.Image:
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def main() -> None:
    """Write all pictures."""
    path = next(found for name in NAMES if (found := shutil.which(name)))
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        command = [sys.executable, "-m", "verticopula", "console", str(made_up_kit(Path(folder))), "--steward", "anna"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            said = "".join(process.stdout.readline() for _ in range(3))
            address, token = re.findall(r"http://\S+[^/\s]", said)[0], re.findall(r"one login: (\S+)", said)[0]
            browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
            page = browser.new_page(viewport={"width": WIDE[0], "height": WIDE[1]}, color_scheme="light")
            page.goto(f"{address}/login")
            page.fill("#token", token)
            page.click("button")
            page.click(".requests a")
            page.wait_for_selector("#decide")
            shown = page.url
            taken = {"console-request.png": _picture(page)}
            page.goto(f"{address}/budget")
            taken["console-budget.png"] = _picture(page)
            page.set_viewport_size({"width": PHONE[0], "height": PHONE[1]})
            phone = []
            for place, section in ((f"{address}/", "main"), (shown, "leaves"), (shown, "decide")):
                page.goto(place)
                page.evaluate(_SCROLL_TO, section)
                phone.append(_picture(page))
            taken["console-phone.png"] = side_by_side(phone)
            browser.close()
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()
    for name, picture in taken.items():
        picture.quantize(128).save(IMAGES / name, optimize=True)


if __name__ == "__main__":
    main()
