"""Kits are made once: certificates take a second."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from reporting.made_up_kits import fill_vault, make_kits
from tests.console.open_consoles import CAPS, OpenConsole, some_studies
from verticopula.console.steward_pages import StewardPages
from verticopula.network.kit.startup_kit import Kit
from verticopula.storage.steward_keys import Steward


@pytest.fixture(scope="session")
def made_kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_kits(tmp_path_factory.mktemp("console"))


@pytest.fixture
def bank(made_kits: Path, tmp_path: Path) -> Kit:
    """A party's kit without a vault."""
    shutil.copytree(made_kits / "bank", tmp_path / "bank")
    return Kit.read(tmp_path / "bank", "party")


@pytest.fixture
def filled_bank(bank: Kit) -> Kit:
    """The same with three studies and caps."""
    fill_vault(bank.folder / "vault", some_studies(), CAPS)
    return bank


@pytest.fixture
def console(filled_bank: Kit) -> OpenConsole:
    """A steward's console that nobody is logged in to."""
    return OpenConsole(StewardPages(filled_bank, filled_bank.folder / "vault", Steward("anna")))


@pytest.fixture
def inside(console: OpenConsole) -> OpenConsole:
    """The same, logged in."""
    console.log_in()
    return console
