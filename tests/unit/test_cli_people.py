"""`verticopula people`: ids come from a file or a prompt and are said nowhere; `check` and `run` leave people out."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.builders import Call
from tests.unit.test_cli_vault import N, inputs, run
from verticopula.cli.app import app
from verticopula.errors import LedgerError
from verticopula.storage.ledger import read_ledger
from verticopula.storage.vault import Vault
from verticopula.storage.vault_files import is_vault
from verticopula.storage.withdrawals import WITHDRAWALS_FILE, Withdrawals


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    """A vault that knows a table of ninety people, s0 to s89."""
    with Vault.open(tmp_path / "vault") as made:
        made.account([f"s{i}" for i in range(N)], {})
    return tmp_path / "vault"


def ids(folder: Path, *lines: str) -> Path:
    path = folder / "ids.txt"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def test_people_withdraw_and_come_back(tmp_path: Path, vault: Path, call: Call) -> None:
    assert "leave out 0 people" in call("people", "list", vault).out
    said = call(
        "people", "withdraw", vault, "--ids", ids(tmp_path, "S3", " s-0004 ", "", "s3"), "--reason", "by letter"
    )
    assert said.code == 0
    assert "Recorded: 2 people; 0 had withdrawn before." in said.out
    assert "look for typing errors" not in said.out
    again = call("people", "withdraw", vault, "--ids", ids(tmp_path, "s3", "zq-canary"))
    assert "Recorded: 1 person; 1 had withdrawn before." in again.out
    assert "1 of 2 are among the people whom this vault knows from 1 table: look for typing errors" in again.out
    back = call("people", "restore", vault, "--ids", ids(tmp_path, "s4", "s5"))
    assert "Taken in again: 1 person; 1 had not withdrawn." in back.out
    shown = call("people", "list", vault)
    assert "by letter" in shown.out
    assert "Studies that begin from now on leave out 2 people." in shown.out
    assert "canary" not in said.out + again.out + back.out + shown.out + (vault / WITHDRAWALS_FILE).read_text()


def test_an_id_is_asked_for_and_not_shown(vault: Path) -> None:
    typed = CliRunner().invoke(app, ["people", "withdraw", str(vault)], input="s7\ns7\n")
    assert typed.exit_code == 0, typed.output
    assert "s7" not in typed.output
    piped = CliRunner().invoke(app, ["people", "withdraw", str(vault), "--ids", "-"], input="s8\ns9\n")
    assert "Recorded: 2 people" in piped.output
    assert len(Withdrawals(vault).people()) == 3


def test_errors_say_what_to_do_and_quote_no_id(tmp_path: Path, vault: Path, call: Call) -> None:
    nowhere = call("people", "withdraw", tmp_path / "mistyped", "--ids", ids(tmp_path, "s1"))
    assert nowhere.code == 1
    assert "is no vault: name the one that `join` or `run` uses" in nowhere.err
    assert not is_vault(tmp_path / "mistyped")
    assert "nothing was recorded" in call("people", "withdraw", vault, "--ids", ids(tmp_path, " ")).err
    assert "cannot be read" in call("people", "withdraw", vault, "--ids", tmp_path / "none.txt").err
    wrong = tmp_path / "bytes.txt"
    wrong.write_bytes(b"zq-canary\xff\xfe")
    assert "canary" not in call("people", "withdraw", vault, "--ids", wrong).err
    assert Withdrawals(vault).events() == []


@pytest.mark.parametrize(
    "lines",
    [
        ("\ufeffs1",),
        ('"s1"', "", "'s01'  "),
        ("S1,",),
        ("s1;",),
        ("s-0001", "s1", "s1"),
    ],
)
def test_an_id_is_recognised_however_it_was_exported(
    tmp_path: Path, vault: Path, call: Call, lines: tuple[str, ...]
) -> None:
    said = call("people", "withdraw", vault, "--ids", ids(tmp_path, *lines))
    assert "Recorded: 1 person; 0 had withdrawn before." in said.out
    assert "typing errors" not in said.out


@pytest.mark.parametrize("line", ["s1;Anna", '"s1","Anna"', "Anna\ts1", "1|s1"])
def test_a_table_with_several_columns_is_not_taken_for_ids(tmp_path: Path, vault: Path, call: Call, line: str) -> None:
    said = call("people", "withdraw", vault, "--ids", ids(tmp_path, "id;name", line, "s2"))
    assert said.code == 1
    assert "1 line of --ids hold more than an id" in said.err
    assert "nothing was recorded" in said.err
    assert "Anna" not in said.err
    assert Withdrawals(vault).events() == []


def test_bytes_that_are_no_text_are_refused_from_a_pipe_too(vault: Path) -> None:
    piped = CliRunner().invoke(app, ["people", "withdraw", str(vault), "--ids", "-"], input=b"s1\n\xff\xfe\n")
    assert "cannot be read as text" in str(piped.exception)
    assert Withdrawals(vault).events() == []


def test_an_old_copy_is_noticed_though_nobody_has_used_the_vault_since(tmp_path: Path, vault: Path, call: Call) -> None:
    """The party's process is stopped: the command itself has the vault remember how long the history is."""
    call("people", "withdraw", vault, "--ids", ids(tmp_path, "s1"))
    old = (vault / WITHDRAWALS_FILE).read_bytes()
    call("people", "withdraw", vault, "--ids", ids(tmp_path, "s2"))
    (vault / WITHDRAWALS_FILE).write_bytes(old)
    with pytest.raises(LedgerError, match="put back from an old copy"):
        Vault.open(vault)
    for command in (("list", vault), ("withdraw", vault, "--ids", ids(tmp_path, "s3"))):
        said = call("people", *command)
        assert said.code == 1
        assert "put back from an old copy" in said.err
    assert (vault / WITHDRAWALS_FILE).read_bytes() == old
    folder = inputs(tmp_path / "in")
    checked = call("check", folder / "federation.toml", "--data", folder / "data", "--vault", vault)
    assert "put back from an old copy" in checked.err


def test_people_may_withdraw_while_a_process_uses_the_vault(tmp_path: Path, vault: Path, call: Call) -> None:
    with Vault.open(vault) as used:
        assert call("people", "withdraw", vault, "--ids", ids(tmp_path, "s1")).code == 0
        used.note_withdrawals()
        (vault / WITHDRAWALS_FILE).unlink()
        with pytest.raises(LedgerError, match="put back from an old copy"):
            used.note_withdrawals()


def test_check_and_run_leave_them_out_and_say_how_many(tmp_path: Path, call: Call) -> None:
    folder, kept = inputs(tmp_path / "in"), tmp_path / "vault"
    assert run(call, folder, "first", "--vault", kept).code == 0
    call("people", "withdraw", kept, "--ids", ids(tmp_path, "s1", "S2"))
    given = ("--data", folder / "data", "--vault", kept, "--policies", folder / "policies")
    checked = call("check", folder / "federation.toml", *given, "--epsilon", 1)
    assert "Left out, because people have withdrawn: 2 of hub, 2 of bank." in checked.out
    assert "88" in checked.out
    (folder / "policies" / "bank.toml").write_text("[caps]\nclient = 9.0\n")
    said = run(call, folder, "second", "--vault", kept)
    assert said.code == 0, said.err
    counts = {entry.study: entry.n_subjects for entry in read_ledger(kept / "ledger.jsonl")}
    assert list(counts.values()) == [N, N - 2]
    data = ("bank", "--data", folder / "data" / "bank.csv")
    shown = call("ledger", "snapshot", kept, folder / "federation.toml", *data)
    assert all(f"read by study {study}" in shown.out for study in counts)
    assert call("ledger", "verify", kept).code == 0


def test_a_vault_that_was_never_made_leaves_nobody_out(tmp_path: Path, call: Call) -> None:
    folder = inputs(tmp_path / "in")
    assert "Left out" not in run(call, folder, "one", "--vault", tmp_path / "new").err
