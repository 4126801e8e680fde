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
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from reporting.report_pictures import FLAGS, IMAGES, NAMES, PHONE, side_by_side
from verticopula.data.tables import EncodedColumn
from verticopula.network.provisioning import provision
from verticopula.privacy.policy import Policy
from verticopula.privacy.policy_file import remember_rules
from verticopula.privacy.release import Release
from verticopula.schema.federation import Federation
from verticopula.schema.methods import REFINED
from verticopula.storage.request_store import RequestStore
from verticopula.storage.steward_requests import LeavingEntry, RequestContent, UnitPrice
from verticopula.storage.vault import Vault

COLUMNS = ("turnover", "sector")
WIDE = (1000, 900)
SUBJECTS = 1_200
_SCROLL_TO = "id => { if (id != 'main') document.getElementById(id).scrollIntoView({behavior: 'instant'}); }"


def made_up_kit(folder: Path) -> Path:
    """A bank's kit after three studies, with a request that waits."""
    federation = Federation.from_dict(
        {
            "name": "loans",
            "response": "agency.default",
            "network": {"host": "localhost", "port": 8102},
            "party": [
                {
                    "name": "bank",
                    "column": [
                        {"name": "turnover", "kind": "continuous", "bounds": [1, 1e9], "scale": "log"},
                        {"name": "sector", "kind": "nominal", "categories": ["11", "21", "22"]},
                    ],
                },
                {"name": "agency", "column": [{"name": "default", "kind": "binary"}]},
            ],
        }
    )
    provision(federation, folder)
    kit = folder / "bank"
    _fill_vault(kit / "vault")
    RequestStore.of_kit(kit).ask(_request())
    return kit


def _fill_vault(folder: Path) -> None:
    rng, now = np.random.default_rng(1), datetime.now(UTC)
    columns = {name: EncodedColumn(rng.standard_normal(50), np.ones(50, dtype=bool)) for name in COLUMNS}
    with Vault.open(folder) as vault:
        account = vault.account([f"firm-{k}" for k in range(50)], columns)
        rules = Policy.from_rules({"caps.client": 8.0, "caps.block": 5_000.0}).rules()
        remember_rules(vault.studies, account.table, rules, "bank.toml")
        for number, days in enumerate((210, 130, 40)):
            time = (now - timedelta(days=days)).isoformat(timespec="seconds")
            one = Release(
                time, f"loans-{number + 1}", "bank", "", "ranks", "noisy ranks", SUBJECTS, 0.5, 0.5, SUBJECTS - 1,
                "secure", "public", table=account.table,
            )  # fmt: skip
            vault.ledger.append(replace(one, column=name, content=account.columns[name]) for name in COLUMNS)


def _request() -> RequestContent:
    leaves = (
        LeavingEntry("turnover", "ranks", "noisy ranks", SUBJECTS, "flipped comparisons", "0.5 per comparison"),
        LeavingEntry("sector", "marginal", "noisy counts", SUBJECTS, "discrete Laplace noise", "0.5 per value"),
    )
    prices = (
        UnitPrice("variable", 1.5, 0.5, 2.0),
        UnitPrice("client", 3.0, 1.0, 4.0, 8.0, 5.0, 4.0),
        UnitPrice("block", 1_080.0, 420.0, 1_500.0, 5_000.0, 3_880.0, 3_430.0),
        UnitPrice("person", 1_080.0, 420.0, 1_500.0),
    )
    return RequestContent(
        "bank", "loans-4", "releases", lead="lead", requester="Agency for statistics",
        contact="loans@agency.example", purpose="Which sectors default more often?",
        use="A working paper. The tables stay at the agency.", method=REFINED.name, alignment="hash", proposal="0" * 64,
        leaves=leaves, prices=prices, delta=1e-6,
    )  # fmt: skip


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
