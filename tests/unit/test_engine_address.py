"""Which engine an address names, and which of them would send rows in the clear."""

from __future__ import annotations

import pytest

from tests.engines import FEDERATION
from verticopula import SettingsError, Synthesizer
from verticopula.engine.engine_address import EngineAddress, parse_engine


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("dask://127.0.0.1:8786", "tcp://127.0.0.1:8786"),
        ("dask://localhost:8786", "tcp://localhost:8786"),
        ("dask://[::1]:8786", "tcp://[::1]:8786"),
        ("tls://cluster.bank.example:8786", "tls://cluster.bank.example:8786"),
    ],
)
def test_addresses(text: str, url: str) -> None:
    address = parse_engine(text)
    assert address is not None
    assert address.url == url
    assert parse_engine("local") is None


@pytest.mark.parametrize(
    "text",
    ["", "dask", "10.0.0.7:8786", "http://a:1", "tls://a", "tls://a:x", "tls://:1", "tls://a:1/b", "tls://u@a:1"],
)
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(SettingsError, match="expected"):
        parse_engine(text)


def test_other_machines_need_tls() -> None:
    with pytest.raises(SettingsError, match="in the clear"):
        parse_engine("dask://10.0.0.7:8786")
    assert parse_engine("dask://10.0.0.7:8786", without_tls=True) == EngineAddress("10.0.0.7", 8786, False, True)
    here = EngineAddress("127.0.0.1", 8786, is_encrypted=False)
    assert here.allows("tcp://127.0.0.1:4000")
    assert here.allows("tls://10.0.0.7:4000")
    assert not here.allows("tcp://10.0.0.7:4000")  # a worker elsewhere, though the scheduler is here


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verticopula.engine.dask_engine.importlib.util.find_spec", lambda name: None)
    made = Synthesizer(FEDERATION, "vcds", sampler="binomial", engine="dask://127.0.0.1:1")
    with pytest.raises(SettingsError, match=r"verticopula\[cluster\]"):
        made.fit({})
