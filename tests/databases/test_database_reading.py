"""Tables of real servers: what is read, how it is typed, and what is refused."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.databases.servers import DATABASE, PASSWORD, USER, Server, mariadb, postgresql
from verticopula.data import mysql_reading, postgresql_reading
from verticopula.data.column_encoding import encode_column
from verticopula.data.database_address import PASSWORD_VARIABLE, parse_address
from verticopula.data.database_query import DatabaseLimits
from verticopula.data.database_reading import read_database
from verticopula.data.table_source import party_source
from verticopula.errors import SchemaError, SettingsError
from verticopula.schema.columns import Column

SECRET_CELL = "7071-secret-cell"


def read(server: Server, query: str | None, table: str = "") -> pl.DataFrame:
    return read_database(parse_address(server.address), query, table, PASSWORD).table


def refusal(server: Server, query: str | None, table: str = "") -> str:
    with pytest.raises(SchemaError) as caught:
        read(server, query, table)
    said = str(caught.value)
    for private in (PASSWORD, SECRET_CELL, USER, DATABASE, str(server.port)):
        assert private not in said
    assert caught.value.__cause__ is None
    return said


def make(server: Server, name: str, columns: str, *rows: str) -> None:
    quoted = name if server.kind == "postgresql" else name.replace('"', "`")
    given = [f"INSERT INTO {quoted} VALUES {', '.join(rows)}"] if rows else []
    grant = [f"GRANT ALL ON {quoted} TO {USER}"] if server.kind == "postgresql" else []
    server.administer(f"DROP TABLE IF EXISTS {quoted}", f"CREATE TABLE {quoted} ({columns})", *given, *grant)


def test_cells_keep_what_they_say(server: Server) -> None:
    columns = "id varchar(20), n decimal(12,3), i bigint, f double precision, d date, t text"
    make(
        server,
        "kept",
        columns,
        "('007', 1.234, 9007199254740993, 0.1, '2024-02-29', 'Zoë 🏥')",
        f"('7', {'NULL, ' * 4}'')",
    )
    table = read(server, "SELECT * FROM kept ORDER BY id")
    assert table["id"].to_list() == ["007", "7"]
    assert table["i"].to_list() == [9007199254740993, None]
    assert table["f"].to_list() == [0.1, None]
    assert table["d"].to_list() == ["2024-02-29", None]
    assert table["t"].to_list() == ["Zoë 🏥", ""]
    number = Column(name="n", kind="continuous", bounds=(0, 10))
    for mark in (None, ".", ","):  # a decimal of the database is no text whose mark is in doubt
        encoded, problems = encode_column(table["n"], number, "n", mark)
        assert problems == []
        assert encoded.values[0] == 1.234
        assert encoded.observed.tolist() == [True, False]


def test_moments_are_those_of_the_world_whatever_zone_anybody_is_in(server: Server) -> None:
    kind = "timestamptz" if server.kind == "postgresql" else "timestamp NULL"
    zone = "SET TIME ZONE 'Asia/Tokyo'" if server.kind == "postgresql" else "SET time_zone = '+09:00'"
    make(
        server,
        "moments",
        f"id int, m {kind}, w timestamp" if server.kind == "postgresql" else f"id int, m {kind}, w datetime",
    )
    server.administer(
        zone, "INSERT INTO moments VALUES (1, '2024-03-01 08:30:15', '2024-03-01 08:30:15'), (2, NULL, NULL)"
    )
    table = read(server, "SELECT m, w FROM moments ORDER BY id")
    column = Column(name="m", kind="count", bounds=(datetime.datetime(2020, 1, 1), datetime.datetime(2030, 1, 1)))
    midnight = datetime.datetime(1970, 1, 1)
    for name, wanted in (
        ("m", datetime.datetime(2024, 2, 29, 23, 30, 15)),
        ("w", datetime.datetime(2024, 3, 1, 8, 30, 15)),
    ):
        encoded, _ = encode_column(table[name], column, name)
        assert encoded.observed.tolist() == [True, False]
        assert encoded.values[0] == (wanted - midnight).total_seconds()


def test_truth_is_read_as_truth(server: Server) -> None:
    make(server, "truths", "id int, b boolean", "(1, true)", "(2, false)", "(3, NULL)")
    encoded, problems = encode_column(
        read(server, "SELECT b FROM truths ORDER BY id")["b"], Column(name="b", kind="binary"), "b"
    )
    assert problems == []
    assert encoded.observed.tolist() == [True, True, False]
    assert encoded.values[:2].tolist() == [1.0, 0.0]


def test_not_a_number_is_empty_and_infinity_is_beyond_all_bounds(postgresql_server: Server) -> None:
    rows = [f"({k}, '{cell}', '{cell}')" for k, cell in enumerate(("NaN", "Infinity", "-Infinity", "2.5"))]
    make(postgresql_server, "odd", "id int, f float8, n numeric", *rows)
    table = read(postgresql_server, "SELECT f, n FROM odd ORDER BY id")
    for name in ("f", "n"):
        encoded, problems = encode_column(table[name], Column(name=name, kind="continuous", bounds=(0, 10)), name)
        assert problems == []
        assert encoded.observed.tolist() == [False, True, True, True]
        assert encoded.values[1:].tolist() == [10.0, 0.0, 2.5]


def test_a_cell_that_is_no_date_is_empty_and_refuses_nobody(postgresql_server: Server, mariadb_server: Server) -> None:
    """One person's value must not decide whether a party takes part."""
    make(postgresql_server, "days", "id int, d date", "(1, 'infinity')", "(2, '0044-03-15 BC')", "(3, '2024-01-02')")
    make(mariadb_server, "days", "id int, d date")
    mariadb_server.administer(
        "SET sql_mode = ''", "INSERT INTO days VALUES (1, '0000-00-00'), (2, NULL), (3, '2024-01-02')"
    )
    column = Column(name="d", kind="count", bounds=(datetime.date(2020, 1, 1), datetime.date(2030, 1, 1)))
    for server in (postgresql_server, mariadb_server):
        encoded, problems = encode_column(read(server, "SELECT d FROM days ORDER BY id")["d"], column, "d")
        assert problems == []
        assert encoded.observed.tolist() == [False, False, True]


def test_numbers_of_a_database_equal_those_of_a_csv_file(server: Server, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    values = [f"{value:.3f}" for value in rng.lognormal(2.0, 3.0, size=500)]
    make(server, "many", "id int, v decimal(20,3)", *(f"({k}, {value})" for k, value in enumerate(values)))
    column = Column(name="v", kind="continuous", bounds=(0, 1e9))
    (tmp_path / "t.csv").write_text("v\n" + "\n".join(values) + "\n")
    from_file, _ = encode_column(party_source("t", str(tmp_path / "t.csv")).read()["v"], column, "v", ".")
    from_server, _ = encode_column(read(server, "SELECT v FROM many ORDER BY id")["v"], column, "v")
    assert from_server.values.tolist() == from_file.values.tolist()


def test_a_table_larger_than_one_fetch_is_whole(server: Server) -> None:
    digits = " UNION ALL ".join(f"SELECT {k} AS d" for k in range(10))
    numbers = "a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d"
    source = ", ".join(f"({digits}) {name}" for name in "abcef")
    query = f"SELECT {numbers} AS n FROM {source} WHERE f.d < 3"
    assert sorted(read(server, query)["n"].to_list()) == list(range(30_000))


def test_a_huge_cell_is_read(server: Server) -> None:
    length = 5_000_000
    if server.kind == "mysql":
        length = 1_000_000  # of `max_allowed_packet`
    table = read(server, f"SELECT REPEAT('ü', {length}) AS t")
    assert table["t"][0] == "ü" * length


def test_an_empty_result_has_its_columns(server: Server) -> None:
    make(server, "nobody", "id int, t text")
    table = read(server, "SELECT id, t FROM nobody")
    assert table.shape == (0, 2)
    assert table.schema == {"id": pl.Int64, "t": pl.String}


@pytest.mark.parametrize(
    "query",
    [
        "DELETE FROM victim",
        "DROP TABLE victim",
        "SELECT 1 AS a; DROP TABLE victim",
        "SELECT 1 AS a; COMMIT; DROP TABLE victim",
        "/* SELECT */ DROP TABLE victim",
        "-- SELECT\nDROP TABLE victim",
        "(DROP TABLE victim)",
        "WITH gone AS (DELETE FROM victim RETURNING id) SELECT * FROM gone",
        "WITH x AS (SELECT 1) DELETE FROM victim",
        "SELECT * INTO stolen FROM victim",
        "SELECT * FROM victim INTO OUTFILE '/tmp/stolen'",
        "/*! DROP TABLE victim */",
        "COMMIT",
        "",
        "SELECT",
    ],
)
def test_a_query_that_writes_is_refused_and_changes_nothing(server: Server, query: str) -> None:
    make(server, "victim", "id int", "(1)")
    refusal(server, query)
    assert len(server.administer("SELECT id FROM victim")) == 1
    assert server.administer("SELECT 1 FROM information_schema.tables WHERE table_name = 'stolen'") == []


def test_a_function_that_writes_is_refused(postgresql_server: Server, mariadb_server: Server) -> None:
    for server in (postgresql_server, mariadb_server):
        make(server, "victim", "id int", "(1)")
    postgresql_server.administer(
        "CREATE OR REPLACE FUNCTION sly() RETURNS int LANGUAGE sql AS 'DELETE FROM victim; SELECT 1'",
        "CREATE SEQUENCE IF NOT EXISTS counter",
        f"GRANT ALL ON SEQUENCE counter TO {USER}",
    )
    mariadb_server.administer(
        "DROP FUNCTION IF EXISTS sly",
        "CREATE FUNCTION sly() RETURNS int BEGIN DELETE FROM victim; RETURN 1; END",
        f"GRANT EXECUTE ON {DATABASE}.* TO {USER}@'127.0.0.1'",
    )
    for query in ("SELECT sly() AS a", "SELECT nextval('counter') AS a"):
        assert "only one that reads is allowed" in refusal(postgresql_server, query)
    refusal(postgresql_server, "SELECT set_config('transaction_read_only', 'off', false) AS a, sly() AS b")
    assert "only one that reads is allowed" in refusal(mariadb_server, "SELECT sly() AS a")
    for server in (postgresql_server, mariadb_server):
        assert len(server.administer("SELECT id FROM victim")) == 1


@pytest.mark.parametrize(
    "name", ['x"; DROP TABLE victim; --', "x`; DROP TABLE victim; --", "x'; DROP TABLE victim; --"]
)
def test_a_table_s_name_is_a_name_whatever_is_in_it(server: Server, name: str) -> None:
    make(server, "victim", "id int", "(1)")
    assert "not there" in refusal(server, None, name)
    mark = '"' if server.kind == "postgresql" else "`"
    quoted = f"{mark}{name.replace(mark, 2 * mark)}{mark}"
    server.administer(
        f"DROP TABLE IF EXISTS {quoted}", f"CREATE TABLE {quoted} (id int)", f"INSERT INTO {quoted} VALUES (5)"
    )
    if server.kind == "postgresql":
        server.administer(f"GRANT ALL ON {quoted} TO {USER}")
    assert read(server, None, name).rows() == [(5,)]
    assert len(server.administer("SELECT id FROM victim")) == 1


def test_what_cannot_be_a_table_is_said(server: Server) -> None:
    assert "two columns have the same name: 'a'" in refusal(server, "SELECT 1 AS a, 2 AS a")
    photo = "SELECT '\\x00'::bytea AS photo" if server.kind == "postgresql" else "SELECT x'00' AS photo"
    assert "column 'photo' holds bytes" in refusal(server, photo)
    assert "a table that is not there" in refusal(server, "SELECT *\nFROM nowhere")
    assert "a column that is not there" in refusal(server, "SELECT nothing_here")
    assert "not SQL that the database understands" in refusal(server, "SELECT FROM WHERE")


def test_errors_quote_no_cell(postgresql_server: Server, mariadb_server: Server) -> None:
    make(postgresql_server, "cells", "t text", f"('{SECRET_CELL}')")
    said = refusal(postgresql_server, "SELECT t::int AS t\nFROM cells")
    assert "a cell cannot be converted as the query asks (SQLSTATE 22P02)" in said
    make(mariadb_server, "cells", "t text", f"('{SECRET_CELL}')")
    assert "error 1690" in refusal(mariadb_server, "SELECT EXP(LENGTH(t) * 1000) AS t FROM cells")


def test_where_in_the_query_it_fails_is_said(postgresql_server: Server) -> None:
    assert "line 3 of the query" in refusal(postgresql_server, "SELECT 1\nAS a\nFROM nowhere")


def test_a_slow_query_is_stopped(server: Server, tmp_path: Path) -> None:
    wait = "pg_sleep(60)::text" if server.kind == "postgresql" else "SLEEP(60)"
    (tmp_path / "slow.sql").write_text(
        f"SELECT {wait} AS a, BENCHMARK(900000000, MD5('x')) AS b" if server.kind == "mysql" else f"SELECT {wait} AS a"
    )
    with pytest.raises(SchemaError, match="took longer than the time limit"):
        party_source("slow", server.address, tmp_path / "slow.sql", timeout=1.0).read()


def test_one_state_of_the_database_is_read_while_others_write(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written between two fetches belongs to the next state."""
    make(server, "moving", "id int, v int, t varchar(200)", *(f"({k}, 1, REPEAT('x', 200))" for k in range(20_000)))
    module = postgresql_reading if server.kind == "postgresql" else mysql_reading
    original = module.to_frame

    def slow_frame(columns: Any, chunks: Iterable[Any], where: str) -> pl.DataFrame:
        def interrupted() -> Iterator[Any]:
            for number, chunk in enumerate(chunks):
                if number == 1:
                    server.administer("UPDATE moving SET v = 2", "DELETE FROM moving WHERE id >= 4000")
                yield chunk

        return original(columns, interrupted(), where)

    monkeypatch.setattr(module, "to_frame", slow_frame)
    address, query = parse_address(server.address), "SELECT id, v, t FROM moving"
    table = read_database(address, query, password=PASSWORD, limits=DatabaseLimits(rows=100)).table
    assert (table.height, table["v"].unique().to_list()) == (20_000, [1])
    monkeypatch.undo()
    table = read(server, query)
    assert (table.height, table["v"].unique().to_list()) == (4_000, [2])


# ---- logins ------------------------------------------------------------------------------


def test_a_wrong_password_is_said_without_it(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "wrong-7071")
    with pytest.raises(SchemaError, match="the login was refused") as caught:
        party_source("kept", server.address).read()
    assert "7071" not in str(caught.value)
    monkeypatch.delenv(PASSWORD_VARIABLE)
    with pytest.raises(SchemaError, match="the login was refused"):
        party_source("kept", server.address).read()


def test_passwords_come_from_files_and_from_the_databases_own_places(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(server, "kept", "id int", "(1)")
    monkeypatch.delenv(PASSWORD_VARIABLE)
    file = tmp_path / "password"
    file.write_text(f"{PASSWORD}\nnot this\n")
    file.chmod(0o600)
    assert party_source("kept", server.address, password_file=file).read().height == 1
    file.chmod(0o640)
    with pytest.raises(SettingsError, match=r"others can read it \(mode 0640\)"):
        party_source("kept", server.address, password_file=file).read()
    if server.kind == "mysql":
        monkeypatch.setenv("MYSQL_PWD", PASSWORD)
        assert party_source("kept", server.address).read().height == 1
        return
    own = tmp_path / "pgpass"
    own.write_text(f"*:*:*:{USER}:" + PASSWORD.replace("\\", "\\\\").replace(":", "\\:") + "\n")
    own.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(own))
    assert party_source("kept", server.address).read().height == 1


def test_another_machine_s_certificate_is_checked_unless_the_address_says_otherwise(server: Server) -> None:
    """This server has no certificate, so a connection that is checked does not come about."""
    for mode in ("verify-full", "require"):
        with pytest.raises(SchemaError, match="certificate was not accepted, or it speaks no TLS"):
            party_source("kept", f"{server.address}?sslmode={mode}").read()
    make(server, "kept", "id int", "(1)")
    assert party_source("kept", f"{server.address}?sslmode=disable").read().height == 1


# ---- servers that go ---------------------------------------------------------------------


def kill_while_read(server: Server) -> None:
    """Kill a server once it works on the rows of `slow` for another connection."""
    others = {
        "postgresql": "pg_stat_activity WHERE state = 'active' AND query LIKE 'FETCH FORWARD %'",
        "mysql": "information_schema.processlist WHERE id <> connection_id() AND info LIKE '%FROM slow%'",
    }
    while not server.administer(f"SELECT 1 FROM {others[server.kind]}"):
        time.sleep(0.05)
    server.kill()


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_server_that_is_killed_while_it_is_read_gives_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    with postgresql() if kind == "postgresql" else mariadb() as own:
        wait = "pg_sleep(0.005)::text" if kind == "postgresql" else "SLEEP(0.005)"
        make(own, "slow", "id int", *(f"({k})" for k in range(40_000)))
        killer = threading.Thread(target=kill_while_read, args=(own,))
        killer.start()
        said = refusal(own, f"SELECT id, {wait} AS w FROM slow")
        killer.join()
        assert "the connection was lost while the table was read" in said
        assert "no server answers" in refusal(own, "SELECT id FROM slow")
        own.start()
        assert read(own, "SELECT id FROM slow").height == 40_000
