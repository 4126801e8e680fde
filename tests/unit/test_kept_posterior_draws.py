"""How surely a study's correlations are known is kept with it, and `verticopula glm` uses it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.builders import Call
from tests.oracle.test_posterior_draws import federation, fit_doubtful, make_tables
from verticopula import Synthesizer, VerticalGLM
from verticopula.errors import NotPrivateWarning
from verticopula.glm.bayes import BAYES_TUNING
from verticopula.study.study_folder import read_study, write_study


@pytest.fixture(scope="module")
def doubtful() -> Synthesizer:
    return fit_doubtful()


def test_a_written_study_still_knows(doubtful: Synthesizer, tmp_path: Path) -> None:
    tables = doubtful.sample(2_000)
    written = write_study(tmp_path, doubtful.study_, tables, "")
    kept = tmp_path / "diagnostics" / "posterior.npz"
    assert kept in written
    _, again = read_study(tmp_path)
    assert tables.posterior_draws is not None
    assert again.posterior_draws is not None
    expected, found = tables.posterior_draws(), again.posterior_draws()
    np.testing.assert_allclose(found.deviations, expected.deviations, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(found.copula.correlation, expected.copula.correlation)
    told = [VerticalGLM(select="bayes").fit(rows, "hub.y").inclusion_["side"] for rows in (tables, again)]
    np.testing.assert_allclose(told[1], told[0], atol=0.02)
    kept.unlink()
    assert read_study(tmp_path)[1].posterior_draws is None


def test_the_command_listens_to_it(doubtful: Synthesizer, tmp_path: Path, call: Call) -> None:
    write_study(tmp_path, doubtful.study_, doubtful.sample(2_000), "")
    told = call("glm", tmp_path, "--select", "bayes", "--without", "side.c")
    (tmp_path / "diagnostics" / "posterior.npz").unlink()
    untold = call("glm", tmp_path, "--select", "bayes", "--without", "side.c")
    assert (told.code, untold.code) == (0, 0), told.err + untold.err
    assert f"{BAYES_TUNING.known_errors_bar:g}" in told.out
    assert told.out != untold.out


def test_another_study_in_the_same_folder_does_not_inherit_it(doubtful: Synthesizer, tmp_path: Path) -> None:
    write_study(tmp_path, doubtful.study_, doubtful.sample(100), "")
    with pytest.warns(NotPrivateWarning):
        plain = Synthesizer(federation(), "vcds", 400.0, random_state=1).fit(make_tables(300, 300))
    write_study(tmp_path, plain.study_, plain.sample(100), "")
    assert not (tmp_path / "diagnostics" / "posterior.npz").exists()


@pytest.mark.parametrize("damage", [b"", b"PK no archive", None])
def test_a_damaged_file_is_named(doubtful: Synthesizer, tmp_path: Path, call: Call, damage: bytes | None) -> None:
    write_study(tmp_path, doubtful.study_, doubtful.sample(500), "")
    kept = tmp_path / "diagnostics" / "posterior.npz"
    if damage is None:
        np.savez(kept, pairs=np.zeros((5, 3), dtype=np.float32))  # of a study with three latents
    else:
        kept.write_bytes(damage)
    said = call("glm", tmp_path, "--select", "bayes")
    assert said.code != 0
    assert "posterior.npz" in said.err
    assert "delete it" in said.err
    assert "posterior.npz" in call("glm", tmp_path).err  # intervals need it, too
    kept.unlink()
    assert call("glm", tmp_path).code == 0
