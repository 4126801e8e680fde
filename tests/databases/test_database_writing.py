"""Synthetic tables in real databases: whole, marked, and never in the place of anything else."""

from __future__ import annotations

import datetime
import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.databases.servers import PASSWORD, USER, Server
from verticopula.data.database_address import DatabaseAddress, parse_address
from verticopula.data.database_reading import read_database
from verticopula.data.database_writing import check_writable, write_database
from verticopula.data.synthetic_marks import SyntheticMark, mark_in_comments
from verticopula.data.table_source import party_source
from verticopula.errors import SchemaError

MARK = SyntheticMark("a */ 'study' \\ \"x\"", "some method", "inf", "client", 0.0, "2026-01-02", "verticopula 0.1.0")
TABLE = pl.DataFrame(
    {
        "whole": [1, None, 3],
        "real; DROP TABLE victim; --": [0.1, None, -1e300],
        'te"x`t%s': ["Zoë 🏥\t\n\\N", None, "'; DROP TABLE victim; --"],
        "day": [datetime.date(2024, 2, 29), None, datetime.date(1900, 1, 1)],
        "time": [datetime.datetime(2024, 2, 29, 23, 59, 58), None, datetime.datetime(1999, 1, 1)],
    }
)


@pytest.fixture(params=["postgresql", "mariadb", "sqlite", "duckdb"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> DatabaseAddress:
    if request.param in ("sqlite", "duckdb"):
        return DatabaseAddress(request.param, path=tmp_path / "out.db")
    server: Server = request.getfixturevalue(f"{request.param}_server")
    clear(server)
    return parse_address(server.address)


def clear(server: Server) -> None:
    schema = "public" if server.kind == "postgresql" else "hospital"
    asked = f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}'"
    mark = '"' if server.kind == "postgresql" else "`"
    for (name,) in server.administer(asked):
        server.administer(f"DROP TABLE {mark}{name.replace(mark, 2 * mark)}{mark}")
    if server.kind == "postgresql":
        server.administer(f"GRANT ALL ON SCHEMA public TO {USER}")


def write(target: DatabaseAddress, tables: dict[str, pl.DataFrame], **settings: Any) -> None:
    write_database(target, tables, settings.pop("mark", MARK), PASSWORD, **settings)


def read(target: DatabaseAddress, name: str) -> Any:
    return read_database(target, None, name, PASSWORD)


def names_in(target: DatabaseAddress) -> set[str]:
    schema = {"postgresql": "'public'", "mysql": "database()", "duckdb": "'main'"}.get(target.kind)
    query = f"SELECT table_name AS name FROM information_schema.tables WHERE table_schema = {schema}"
    if target.kind == "sqlite":
        query = "SELECT name FROM sqlite_master"
    return set(read_database(target, query, password=PASSWORD).table["name"].to_list())


def test_a_table_comes_back_as_it_was_with_its_mark(target: DatabaseAddress) -> None:
    write(target, {"s_bank": TABLE, "s_hub": TABLE.head(0)})
    found = read(target, "s_bank")
    assert found.table.columns == TABLE.columns
    text = found.table['te"x`t%s'].to_list()
    assert [cell or None for cell in text] == TABLE['te"x`t%s'].to_list()
    numbers = [float(cell) if cell is not None else None for cell in found.table["real; DROP TABLE victim; --"]]
    assert numbers == [0.1, None, -1e300]
    assert [None if cell is None else int(cell) for cell in found.table["whole"]] == [1, None, 3]
    assert found.table["day"].to_list() == ["2024-02-29", None, "1900-01-01"]
    assert [None if cell is None else cell[:19] for cell in found.table["time"]] == [
        "2024-02-29 23:59:58",
        None,
        "1999-01-01 00:00:00",
    ]
    assert mark_in_comments(found.comments) == MARK
    assert read(target, "s_hub").table.shape == (0, 5)


def test_many_rows_are_whole(target: DatabaseAddress) -> None:
    table = pl.DataFrame({"n": list(range(1_001))})
    write(target, {"many": table})
    assert sorted(map(int, read(target, "many").table["n"])) == list(range(1_001))


def test_nothing_is_overwritten_unless_it_says_that_it_is_synthetic(target: DatabaseAddress) -> None:
    other = SyntheticMark("another", "method", 1.0, "person", 1e-6, "2026-02-03", "verticopula 0.1.0")
    write(target, {"taken": TABLE})
    with pytest.raises(SchemaError, match="a table 'taken' is there already"):
        write(target, {"free": TABLE, "taken": TABLE.head(1)}, mark=other)
    with pytest.raises(SchemaError, match="a table 'taken' is there already"):
        check_writable(target, ["free", "taken"], PASSWORD)
    assert names_in(target) == {"taken"}
    assert mark_in_comments(read(target, "taken").comments) == MARK
    write(target, {"free": TABLE, "taken": TABLE.head(1)}, mark=other, replace=True)
    assert names_in(target) == {"free", "taken"}
    assert (read(target, "taken").table.height, mark_in_comments(read(target, "taken").comments)) == (1, other)


def test_real_data_are_never_replaced(server: Server) -> None:
    clear(server)
    target = parse_address(server.address)
    server.administer("CREATE TABLE patients (id int)", "INSERT INTO patients VALUES (7)")
    if server.kind == "postgresql":
        server.administer(f"ALTER TABLE patients OWNER TO {USER}", "COMMENT ON TABLE patients IS 'real people'")
    for attempt in (
        lambda: write(target, {"new": TABLE, "patients": TABLE}, replace=True),
        lambda: check_writable(target, ["new", "patients"], PASSWORD, replace=True),
    ):
        with pytest.raises(SchemaError, match="the table 'patients' is not marked as synthetic"):
            attempt()
    assert [tuple(row) for row in server.administer("SELECT id FROM patients")] == [(7,)]
    assert names_in(target) == {"patients"}


def test_a_failure_in_the_middle_leaves_nothing(target: DatabaseAddress) -> None:
    """The second table has a name twice, so it cannot be made after the first one was."""
    wrong = pl.DataFrame({"a": [1], "A": [2]}) if target.kind != "postgresql" else pl.DataFrame({"ctid": [1]})
    write(target, {"kept": TABLE})
    with pytest.raises(SchemaError, match="nothing has changed"):
        write(target, {"kept": TABLE.head(1), "wrong": wrong}, replace=True)
    assert names_in(target) == {"kept"}
    assert read(target, "kept").table.height == 3


def test_two_writers_at_once_do_not_overwrite_each_other(server: Server) -> None:
    clear(server)
    target = parse_address(server.address)
    done: list[str] = []

    def one(number: int) -> None:
        try:
            write(target, {"both": pl.DataFrame({"n": [number] * 500})})
            done.append(f"written {number}")
        except SchemaError:
            done.append("refused")

    threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done.count("refused") == 3
    (winner,) = (said for said in done if said != "refused")
    assert set(read(target, "both").table["n"].to_list()) == {int(winner.split()[1])}
    assert names_in(target) == {"both"}


def test_who_may_not_write_is_told_before(postgresql_server: Server, mariadb_server: Server) -> None:
    for server in (postgresql_server, mariadb_server):
        clear(server)
    password = PASSWORD.replace("'", "''")
    postgresql_server.administer(
        "DROP ROLE IF EXISTS reader",
        f"CREATE ROLE reader LOGIN PASSWORD '{password}'",
        "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
    )
    mariadb_server.administer(
        "DROP USER IF EXISTS reader@'127.0.0.1'",
        f"CREATE USER reader@'127.0.0.1' IDENTIFIED BY '{password}'",
        "GRANT SELECT ON hospital.* TO reader@'127.0.0.1'",
    )
    for server in (postgresql_server, mariadb_server):
        target = parse_address(server.address.replace(f"{USER}@", "reader@"))
        with pytest.raises(SchemaError, match="this user may not make tables here; nothing has changed"):
            check_writable(target, ["new"], PASSWORD)


def test_names_that_would_be_cut_are_refused(server: Server) -> None:
    clear(server)
    with pytest.raises(SchemaError, match=r"has a name of more than 6[34] bytes"):
        write(parse_address(server.address), {"t": pl.DataFrame({"ü" * 33: [1]})})


def test_a_synthetic_table_is_known_in_queries_too(server: Server, tmp_path: Path) -> None:
    clear(server)
    write(parse_address(server.address), {"s_bank": TABLE})
    (tmp_path / "q.sql").write_text("SELECT whole AS w FROM s_bank WHERE whole > 1")
    assert party_source("bank", server.address, tmp_path / "q.sql").load().mark == MARK
