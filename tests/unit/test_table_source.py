"""Where tables are: addresses, passwords, files of all kinds, and databases in a file."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import polars as pl
import pytest

from tests.builders import CONTINUOUS, Call, make_federation
from verticopula.data import large_tables, table_source
from verticopula.data.column_encoding import encode_column
from verticopula.data.database_address import PASSWORD_VARIABLE, find_password, parse_address
from verticopula.data.table_files import is_parquet_folder, list_tables, read_table
from verticopula.data.table_source import draft_sources, federation_sources, load_all, party_source
from verticopula.errors import SchemaError, SettingsError
from verticopula.schema.columns import Column

PASSWORD = "7071-secret"
TABLE = pl.DataFrame({"subject_id": ["001", "002"], "y": [1.5, None]})


# ---- addresses ---------------------------------------------------------------------------


def test_an_address_says_where_the_database_is() -> None:
    found = parse_address("postgresql://an%40na@db.example:6432/people?sslmode=require")
    assert (found.kind, found.user, found.host, found.port) == ("postgresql", "an@na", "db.example", 6432)
    assert (found.database, found.tls_mode) == ("people", "require")
    assert parse_address("mariadb://u@h/d").kind == "mysql"
    assert parse_address("sqlite:////data/x.db").path == Path("/data/x.db")
    assert parse_address("duckdb:///x.db").path == Path("x.db")


@pytest.mark.parametrize(
    ("address", "mode"),
    [
        ("postgresql://u@127.0.0.1/d", "prefer"),
        ("postgresql:///d?host=/run/postgresql", "prefer"),
        ("mysql://u@localhost/d", "prefer"),
        ("mysql://u@db.example/d", "verify-full"),
        ("postgresql://u@10.0.0.7/d", "verify-full"),
        ("postgresql://u@127.evil.example/d", "verify-full"),
        ("postgresql://u@10.0.0.7/d?sslmode=disable", "disable"),
    ],
)
def test_connections_to_other_machines_are_checked(address: str, mode: str) -> None:
    assert parse_address(address).tls_mode == mode


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://anna:{PASSWORD}@db.example/people",
        f"mysql://anna:{PASSWORD}@db.example/people",
        f"postgresql://anna@db.example/people?password={PASSWORD}",
        f"postgresql://anna@db.example/people?sslpassword={PASSWORD}",
        "postgresql://anna:@db.example/people",
    ],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(SettingsError, match="has a password in it") as caught:
        parse_address(address)
    assert "7071" not in str(caught.value)
    assert PASSWORD_VARIABLE in str(caught.value)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("oracle://u@h/d", "no such kind of database"),
        ("https://h/d", "no such kind of database"),
        ("postgresql:/u@h/d", "no such kind of database"),
        ("postgresql://u@h", "does not name a database"),
        ("postgresql://u@h:99999999/d", "cannot be read as an address"),
        ("postgresql://u@h/d?options=-c%20x", "allowed there: host, sslmode"),
        ("postgresql://u@h/d?sslmode=prefer", "sslmode is one of"),
        ("postgresql:///d?host=db.example", "is a folder with a socket"),
        ("sqlite://x.db", "expected sqlite:///"),
        ("mysql://[::1/d", "cannot be read as an address"),
    ],
)
def test_addresses_that_make_no_sense(address: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        parse_address(address)


def test_passwords_are_found_in_this_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mysql, postgresql = parse_address("mysql://u@h/d"), parse_address("postgresql://u@h/d")
    for name in (PASSWORD_VARIABLE, "MYSQL_PWD"):
        monkeypatch.delenv(name, raising=False)
    assert find_password(mysql) is None
    monkeypatch.setenv("MYSQL_PWD", "third")
    assert (find_password(mysql), find_password(postgresql)) == ("third", None)
    monkeypatch.setenv(PASSWORD_VARIABLE, "second")
    assert find_password(mysql) == "second"
    file = tmp_path / "password"
    file.write_text("first \r\nrest\n")
    file.chmod(0o400)
    assert find_password(mysql, file) == "first "


def test_password_files_that_cannot_be_used(tmp_path: Path) -> None:
    address, file = parse_address("mysql://u@h/d"), tmp_path / "password"
    with pytest.raises(SettingsError, match="No such file"):
        find_password(address, file)
    file.write_text(PASSWORD)
    file.chmod(0o604)
    with pytest.raises(SettingsError, match=r"mode 0604\); give it mode 0600") as caught:
        find_password(address, file)
    assert "7071" not in str(caught.value)
    file.chmod(0o600)
    file.write_bytes(b"\xff\xfe7071")
    with pytest.raises(SettingsError, match="not UTF-8"):
        find_password(address, file)
    file.write_text("\n")
    with pytest.raises(SettingsError, match="first line is empty"):
        find_password(address, file)


# ---- files -------------------------------------------------------------------------------


def test_arrow_files_and_folders_of_parquet_files_are_tables(tmp_path: Path) -> None:
    for ending in ("arrow", "feather", "ipc"):
        TABLE.write_ipc(tmp_path / f"t.{ending}")
        assert read_table(tmp_path / f"t.{ending}").equals(TABLE)
    (tmp_path / "broken.arrow").write_bytes(b"7071 no table")
    with pytest.raises(SchemaError, match="cannot be read as Arrow") as caught:
        read_table(tmp_path / "broken.arrow")
    assert "7071" not in str(caught.value)
    folder = tmp_path / "parts" / "bank"
    folder.mkdir(parents=True)
    TABLE[:1].write_parquet(folder / "part-0.parquet")
    TABLE[1:].write_parquet(folder / "part-1.parquet")
    (folder / "_SUCCESS").touch()
    TABLE.write_parquet(folder / "_temporary.parquet")
    assert read_table(folder).equals(TABLE)
    assert list_tables(tmp_path / "parts") == [folder]
    TABLE.select("subject_id").write_parquet(folder / "part-2.parquet")
    with pytest.raises(SchemaError, match="its files have different columns"):
        read_table(folder)


def test_parts_keep_what_their_folders_are_called(tmp_path: Path) -> None:
    """Leading zeros, too: the name of a folder is text."""
    for ward in ("007", "010"):
        (tmp_path / "bank" / f"ward={ward}").mkdir(parents=True)
        TABLE.write_parquet(tmp_path / "bank" / f"ward={ward}" / "x.parquet")
    assert is_parquet_folder(tmp_path / "bank")
    assert read_table(tmp_path / "bank")["ward"].to_list() == ["007", "007", "010", "010"]


def test_a_folder_of_tables_is_not_one_table(tmp_path: Path) -> None:
    TABLE.write_parquet(tmp_path / "bank.parquet")
    TABLE.write_csv(tmp_path / "hub.csv")
    assert not is_parquet_folder(tmp_path)
    (tmp_path / "empty").mkdir()
    assert not is_parquet_folder(tmp_path / "empty")
    with pytest.raises(SchemaError, match="has no Parquet file"):
        read_table(tmp_path / "empty")


def test_a_file_that_changes_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bank.csv"
    path.write_text("subject_id,y\n001,1\n")
    original, reads = table_source.read_table, []

    def read_and_change(given: Path) -> pl.DataFrame:
        reads.append(given)
        table = original(given)
        if len(reads) == 1:
            given.write_text("subject_id,y\n001,1\n002,2\n")
            os.utime(given, ns=(1, 1))
        return table

    for module in (table_source, large_tables):
        monkeypatch.setattr(module, "read_table", read_and_change)
    assert party_source("bank", str(path)).read().height == 2
    assert len(reads) == 2

    def always_change(given: Path) -> pl.DataFrame:
        reads.append(given)
        os.utime(given, ns=(len(reads), len(reads)))
        return original(given)

    for module in (table_source, large_tables):
        monkeypatch.setattr(module, "read_table", always_change)
    for read in (party_source("bank", str(path)).read, party_source("bank", str(path)).load):
        with pytest.raises(SchemaError, match="changes while it is read"):
            read()


# ---- databases in a file -----------------------------------------------------------------


def write_sqlite(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


def write_duckdb(path: Path, *statements: str) -> None:
    with closing(duckdb.connect(str(path))) as database:
        for statement in statements:
            database.execute(statement)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_a_database_in_a_file_gives_a_query_s_rows(kind: str, tmp_path: Path) -> None:
    path, query = tmp_path / "all.db", tmp_path / "bank.sql"
    made = ("CREATE TABLE bank (id VARCHAR, v DOUBLE)", "INSERT INTO bank VALUES ('007', 1.234), ('8', NULL)")
    (write_sqlite if kind == "sqlite" else write_duckdb)(path, *made, "CREATE TABLE hub (id INT)")
    query.write_text("-- all\nSELECT id, v FROM bank ORDER BY id;\n")
    for data in (str(path), f"{kind}:///{path}"):
        source = party_source("bank", data, query)
        assert source.read()["id"].to_list() == ["007", "8"]
        for mark in (None, ","):
            column = Column(name="v", kind="continuous", bounds=(0, 10))
            encoded, _ = encode_column(source.read()["v"], column, "v", mark)
            assert encoded.values[0] == 1.234
            assert encoded.observed.tolist() == [True, False]
    query.write_text("SELECT id FROM bank")  # a source reads its query again, too
    assert source.read().width == 1


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE bank",
        "SELECT 1 AS a; DROP TABLE bank",
        "WITH x AS (SELECT 1) INSERT INTO bank VALUES ('x')",
        "COPY bank TO 'stolen.csv'",
        "ATTACH 'stolen.db' AS s",
        "SELECT * FROM read_csv('secret.csv')",
        "SELECT load_extension('x')",
        "PRAGMA user_version = 5",
        "SELECT * FROM nowhere",
        "SELECT nothing FROM bank",
        "SELECT 1 AS a, 2 AS a",
        "FROM WHERE",
    ],
)
def test_databases_in_a_file_refuse_what_does_not_only_read_them(
    kind: str, query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.csv").write_text("a\n7071\n")
    path, file = tmp_path / "all.db", tmp_path / "bank.sql"
    (write_sqlite if kind == "sqlite" else write_duckdb)(
        path, "CREATE TABLE bank (id VARCHAR)", "INSERT INTO bank VALUES ('1')"
    )
    file.write_text(query)
    before = set(tmp_path.iterdir())
    with pytest.raises(SchemaError) as caught:
        party_source("bank", str(path), file).read()
    assert "7071" not in str(caught.value)
    assert set(tmp_path.iterdir()) == before
    file.write_text("SELECT id FROM bank")
    assert party_source("bank", str(path), file).read().height == 1


def test_types_of_duckdb(tmp_path: Path) -> None:
    write_duckdb(
        tmp_path / "bank.duckdb",
        "CREATE TABLE bank (b BOOLEAN, i BIGINT, h HUGEINT, d DATE, m TIMESTAMPTZ, f DOUBLE, n DECIMAL(9,3))",
        "INSERT INTO bank VALUES (true, 9007199254740993, 170141183460469231731687303715884105727, 'infinity', "
        "'2024-03-01 08:30:15+09', 'nan', 1.234), (NULL, NULL, NULL, '2024-02-29', NULL, 'inf', NULL)",
    )
    table = read_table(tmp_path / "bank.duckdb")
    assert table["b"].to_list() == [True, None]
    assert table["i"].to_list() == [9007199254740993, None]
    assert table["h"].to_list() == ["170141183460469231731687303715884105727", None]
    assert table["d"].to_list() == ["infinity", "2024-02-29"]
    assert table["m"].to_list() == ["2024-02-29 23:30:15Z", None]
    assert table["f"].is_nan().to_list() == [True, False]
    assert table["n"].to_list() == ["1.2340", None]


def test_bytes_in_databases_of_a_file(tmp_path: Path) -> None:
    """A column of bytes is refused; a single cell of bytes counts as empty, and refuses nobody."""
    write_duckdb(tmp_path / "a.duckdb", "CREATE TABLE a (p BLOB)", "INSERT INTO a VALUES ('x')")
    write_sqlite(tmp_path / "b.sqlite", "CREATE TABLE b (p BLOB)", "INSERT INTO b VALUES (x'00'), (x'01'), (NULL)")
    for name in ("a.duckdb", "b.sqlite"):
        with pytest.raises(SchemaError, match="column 'p' holds bytes"):
            read_table(tmp_path / name)
    write_sqlite(tmp_path / "c.sqlite", "CREATE TABLE c (p)", "INSERT INTO c VALUES (x'00'), ('text'), (5), (1.234)")
    assert read_table(tmp_path / "c.sqlite")["p"].to_list() == ["", "text", "5", "1.2340"]


def test_every_cell_of_sqlite_is_read_by_itself(tmp_path: Path) -> None:
    """Another person's text in a column of numbers changes nobody's number."""
    column = Column(name="v", kind="continuous", bounds=(0, 10_000))
    read = []
    for number, other in enumerate(("2.5", "'none'", "x'00'", "NULL")):
        path = tmp_path / f"t{number}.sqlite"
        write_sqlite(path, "CREATE TABLE t (v)", f"INSERT INTO t VALUES (1.234), ({other}), (17), (0.5)")
        encoded, _ = encode_column(read_table(path)["v"], column, "v", ",")
        read.append(encoded.values[[0, 2, 3]].tolist())
    assert read == [[1.234, 17.0, 0.5]] * 4


# ---- all parties at once -----------------------------------------------------------------


FEDERATION = make_federation({"hub": {"y": CONTINUOUS}, "bank": {"x": CONTINUOUS}})
PARTIES = [party.name for party in FEDERATION.parties]


def test_one_database_has_the_tables_of_all_parties(tmp_path: Path) -> None:
    path = tmp_path / "all.sqlite"
    write_sqlite(path, "CREATE TABLE hub (subject_id, y)", "INSERT INTO hub VALUES (1, 2)", "CREATE TABLE raw (i, x)")
    with pytest.raises(SchemaError, match="a table or column that is not there"):
        load_all(federation_sources(PARTIES, str(path)).values())
    (tmp_path / "bank.sql").write_text("SELECT i AS subject_id, x FROM raw")
    found = load_all(federation_sources(PARTIES, str(path), (tmp_path / "bank.sql",)).values())
    assert {name: loaded.table.columns for name, loaded in found.items()} == {
        "hub": ["subject_id", "y"],
        "bank": ["subject_id", "x"],
    }
    assert federation_sources(PARTIES, str(path), (tmp_path,))["bank"].query == tmp_path / "bank.sql"


def test_one_partys_table_is_a_file_of_its_own_or_one_in_a_folder(tmp_path: Path) -> None:
    for name in PARTIES:
        pl.DataFrame({"subject_id": [1], name: [2.0]}).write_parquet(tmp_path / f"{name}.parquet")
    spark = tmp_path / "elsewhere" / "anything.parquet"
    spark.mkdir(parents=True)
    for k in (0, 1):
        pl.DataFrame({"subject_id": [k], "bank": [2.0]}).write_parquet(spark / f"part-{k}.parquet")
    places = {str(tmp_path): 1, str(tmp_path / "bank.parquet"): 1, str(spark): 2}
    for place, rows in places.items():
        (found,) = load_all(federation_sources(["bank"], place).values()).values()
        assert found.table.shape == (rows, 2)
        assert "bank" in found.table.columns
    with pytest.raises(SettingsError, match="is a file; give the folder that it is in"):
        federation_sources(PARTIES, str(tmp_path / "bank.parquet"))


def test_a_folder_may_lack_parties_where_some_are_enough(tmp_path: Path) -> None:
    (tmp_path / "bank.csv").write_text("subject_id,x\n1,2\n")
    with pytest.raises(SchemaError, match=r"party 'hub': no \.csv"):
        federation_sources(PARTIES, str(tmp_path))
    assert list(federation_sources(PARTIES, str(tmp_path), all_parties=False)) == ["bank"]
    (tmp_path / "bank.parquet").write_bytes(b"")
    with pytest.raises(SchemaError, match="are both there; keep one"):
        federation_sources(PARTIES, str(tmp_path), all_parties=False)


def test_queries_that_fit_nobody(tmp_path: Path) -> None:
    (tmp_path / "agency.sql").write_text("SELECT 1")
    with pytest.raises(SettingsError, match=r"agency.sql: is named after no party of this federation \(hub, bank\)"):
        federation_sources(PARTIES, "duckdb:///x.db", (tmp_path / "agency.sql",))
    (tmp_path / "bank.sql").write_text("SELECT 1")
    with pytest.raises(SettingsError, match="is a second query of party 'bank'"):
        federation_sources(PARTIES, "duckdb:///x.db", (tmp_path / "bank.sql", tmp_path / "bank.sql"))
    with pytest.raises(SettingsError, match="--query is for databases"):
        federation_sources(PARTIES, str(tmp_path), (tmp_path / "bank.sql",))
    with pytest.raises(SettingsError, match="--query is for databases"):
        party_source("bank", str(tmp_path / "bank.csv"), tmp_path / "bank.sql")
    with pytest.raises(SettingsError, match="--password-file is for databases on a server"):
        party_source("bank", "sqlite:///x.db", password_file=tmp_path / "password")
    with pytest.raises(SettingsError, match="a database needs a --query for each party"):
        draft_sources(["postgresql://u@h/d"])


def test_a_whole_study_from_one_database(tmp_path: Path, call: Call) -> None:
    """`init`, `check` and `run` take the same options, and a study of a database equals one of files."""
    path = tmp_path / "all.duckdb"
    numbers = "SELECT printf('%03d', i) AS subject_id, 1.0 + (i * 37 % 101) AS {} FROM range(120) t(i)"
    write_duckdb(path, f"CREATE TABLE hub AS {numbers.format('y')}", f"CREATE TABLE raw AS {numbers.format('x')}")
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "hub.sql").write_text("SELECT * FROM hub")
    (tmp_path / "q" / "bank.sql").write_text("SELECT * FROM raw")
    given = ["--query", tmp_path / "q"]
    federation = tmp_path / "federation.toml"
    made = ["--out", federation, "--response", "hub.y", "--bounds", "from-data", "--yes"]
    assert call("init", path, *given, *made).code == 0
    assert call("check", federation, "--data", path, *given, "--method", "vcds").code == 0
    tables = tmp_path / "tables"
    tables.mkdir()
    for party in ("hub", "bank"):
        party_source(party, str(path), tmp_path / "q" / f"{party}.sql").read().write_csv(tables / f"{party}.csv")
    settings = ["--method", "vcds", "--epsilon", 3, "--seed", 7, "--quiet"]
    for name, data in (("database", [path, *given]), ("files", [tables])):
        assert call("run", federation, "--data", *data, "--out", tmp_path / name, *settings).code == 0
    written = [(tmp_path / name / "synthetic" / "bank.csv").read_bytes() for name in ("database", "files")]
    assert written[0] == written[1]
