"""The runner of mutants, on a package of one function; and that the list of mutants fits the sources."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutation.mutants import ALL_MUTANTS
from tests.mutation.runner import PACKAGE, ROOT, Mutant, MutantError, check_mutants, main

HALF = Mutant("half", "noise.py", "return 2 * x", "return x", "half the noise", ("test_noise.py",))
NOTHING = replace(HALF, name="nothing", new="return x * 2")
BROKEN = replace(HALF, name="broken", new="return return")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    package = tmp_path / "src" / PACKAGE
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "noise.py").write_text("def scale(x):\n    return 2 * x\n\n\ndef twice(x):\n    return 1 + 1\n")
    test = f"from {PACKAGE}.noise import scale\n\n\ndef test_scale():\n    assert scale(3) == 6\n"
    (tmp_path / "test_noise.py").write_text(test)
    return tmp_path


def test_mutants_are_killed_survive_fail_or_are_equivalent(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = replace(NOTHING, name="same", equivalent="multiplication commutes")
    assert main([HALF, NOTHING, BROKEN, same], [], root) == 1
    said = capsys.readouterr().out
    assert "killed   half  test_noise.py::test_scale" in said
    assert "NOT KILLED nothing (noise.py): half the noise" in said
    assert "failed   broken" in said
    assert "1 of 3 killed, 1 equivalent" in said
    for other in ("half", "same"):
        assert f"NOT KILLED {other}" not in said
    assert "2 * x" in (root / "src" / PACKAGE / "noise.py").read_text()  # the mistakes were made in a copy


def test_one_mutant_can_be_asked_for(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([HALF, NOTHING], ["--only", "half"], root) == 0
    assert "1 of 1 killed, 0 equivalent" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([HALF], ["--only", "quarter"], root)


@pytest.mark.parametrize(
    ("mutant", "said"),
    [
        (replace(HALF, old="return 3 * x"), "occurs 0 times"),
        (replace(HALF, old="return "), "occurs 2 times"),
        (replace(HALF, file="nothing.py"), "No such file"),
        (replace(HALF, tests=("test_nothing.py",)), "there is no test_nothing.py"),
        (replace(HALF, tests=(f"{HALF.tests[0]}::test_nothing",)), "there is no .*::test_nothing"),
        (replace(NOTHING, name="half"), "the name is taken"),
    ],
    ids=["not there", "there twice", "no file", "no test file", "no test", "same name"],
)
def test_a_list_that_does_not_fit_the_sources_is_an_error(mutant: Mutant, said: str, root: Path) -> None:
    with pytest.raises(MutantError, match=said):
        main([replace(HALF, old="def scale(x)", new="def scale(y)"), mutant], [], root)


def test_tests_that_fail_without_a_mutant_are_an_error(root: Path) -> None:
    (root / "test_noise.py").write_text("def test_scale():\n    assert False\n")
    with pytest.raises(MutantError, match="without any mutant"):
        main([HALF], [], root)


def test_the_lists_fit_the_sources() -> None:
    """Whoever changes a line that a mutant is about changes the mutant, too."""
    check_mutants(ALL_MUTANTS, ROOT / "src", ROOT)
    assert sum(not mutant.equivalent for mutant in ALL_MUTANTS) >= 60
