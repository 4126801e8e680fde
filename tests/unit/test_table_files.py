"""Files as people have them: separators, marks in numbers, dates, spreadsheets, names that are nearly right."""

from __future__ import annotations

import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.builders import make_federation, tables_in
from verticopula import Federation
from verticopula.data.column_encoding import encode_column
from verticopula.data.table_files import list_tables, party_name_of, read_table
from verticopula.data.tables import AlignedTable, align_tables
from verticopula.errors import SchemaError
from verticopula.forecasting.preflight_checks import warn_before_spending
from verticopula.schema.columns import Column
from verticopula.schema.id_rules import suggest_id_rules
from verticopula.schema.study_settings import StudySettings

AMOUNT = Column(name="x", kind="continuous", bounds=(-1e9, 1e9))
DAY = Column(name="x", kind="count", bounds=("2000-01-01", "2030-12-31"))  # type: ignore[arg-type]


def numbers(cells: list[Any], column: Column = AMOUNT, decimal: str | None = None) -> list[float | None]:
    found, problems = encode_column(pl.Series(cells, dtype=pl.String), column, "here", decimal)
    assert problems == []
    return [float(v) if o else None for v, o in zip(found.values, found.observed, strict=True)]


def federation(**party: Any) -> Federation:
    return Federation.from_dict(
        {
            "response": "agency.default",
            "id": "customer",
            "party": [
                {"name": "bank", "column": [{"name": "income", "kind": "continuous", "bounds": [0, 1e6]}], **party},
                {"name": "agency", "column": [{"name": "default", "kind": "binary"}]},
            ],
        }
    )


def aligned(folder: Path, bank: str, agency: str, **party: Any) -> dict[str, AlignedTable]:
    (folder / "bank.csv").write_text(bank, "utf-8")
    (folder / "agency.csv").write_text(agency, "utf-8")
    study = federation(**party)
    return align_tables(study, tables_in(study, folder))


AGENCY = "customer,default\nA1,0\nA2,1\nA3,0\n"


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("1234.5", 1234.5),
        ("1234,5", 1234.5),
        ("1,234.5", 1234.5),
        ("1.234,5", 1234.5),
        ("1 234,5", 1234.5),
        ("1\u202f234.5", 1234.5),
        ("1'234.50", 1234.5),
        ("1,234,567", 1234567.0),
        ("1.234.567", 1234567.0),
        ("0,125", 0.125),
        ("-3,5", -3.5),
        ("\u22123.5", -3.5),
        ("1,5e3", 1500.0),
        ("12,34,5", None),
        ("1,2.3", None),
        ("1 23", None),
        ("7 km", None),
    ],
)
def test_marks_in_numbers_that_can_be_read_one_way(cell: str, value: float | None) -> None:
    for decimal in (None, ".", ","):
        assert numbers([cell, "2"], decimal=decimal) == [value, 2.0]


def test_the_party_s_decimal_mark_decides_what_can_be_read_two_ways() -> None:
    assert numbers(["1,234", "1.234"]) == [1234.0, 1.234]
    assert numbers(["1,234", "1.234"], decimal=".") == [1234.0, 1.234]
    assert numbers(["1,234", "1.234"], decimal=",") == [1.234, 1234.0]


def test_a_column_that_could_be_read_two_ways_is_a_question_and_not_a_guess(tmp_path: Path) -> None:
    bank = "customer;income\nA1;1,234\nA2;0,5\nA3;12,75\n"
    with pytest.raises(SchemaError, match=r'2 cells are written with a decimal comma.*decimal = ","'):
        aligned(tmp_path, bank, AGENCY)
    told = aligned(tmp_path, bank, AGENCY, decimal=",")["bank"]
    assert told.columns["income"].values.tolist() == [1.234, 0.5, 12.75]
    assert told.notes() == []


def test_thousands_that_might_be_decimals_are_noted(tmp_path: Path) -> None:
    bank = "customer;income\nA1;1,234\nA2;2,500\nA3;900\n"
    (note,) = aligned(tmp_path, bank, AGENCY)["bank"].notes()
    assert "2 cells are taken for thousands, as in 1,000 (data rows 1, 2)" in str(note)
    assert aligned(tmp_path, bank, AGENCY, decimal=".")["bank"].notes() == []


def test_an_open_decimal_mark_is_one_question() -> None:
    """That all values are clamped, or are the same then, follows from it, and calls for nothing else."""
    federation = make_federation({"lab": {"y": {"kind": "binary"}, "bmi": {"kind": "continuous", "bounds": [10, 80]}}})
    frame = pl.DataFrame(
        {"subject_id": [str(k) for k in range(9)], "y": [0, 1, 0] * 3, "bmi": [f"3{k},100" for k in range(9)]}
    )
    table = align_tables(federation, {"lab": frame})
    (note,) = table["lab"].notes()
    assert 'decimal = ","' in str(note)
    assert str(note).endswith("Read so, 9 cells are outside the public bounds")
    settings = StudySettings("vcds", 1.0).checked(federation)
    assert [w.code for w in warn_before_spending(federation, settings, table)] == ["few-subjects", "unit"]


def test_one_cell_never_changes_how_another_is_read() -> None:
    for other in ("1.234.567", "0,5", "12.5", "x", ""):
        assert numbers(["1,234", other])[0] == 1234.0
        assert numbers([other, "1.234"])[1] == 1.234


@pytest.mark.parametrize("cell", ["", " ", "NA", "n/a", "N.A.", "#N/A", "-", "--", "–", "—", ".", "?", "null", "None"])
def test_spellings_of_no_value(cell: str) -> None:
    assert numbers([cell, "1"]) == [None, 1.0]
    column = Column(name="c", kind="binary")
    encoded, _ = encode_column(pl.Series([cell, "1", "0"]), column, "here")
    assert encoded.observed.tolist() == [False, True, True]
    assert encoded.unreadable == 0


def test_codes_with_a_point_and_truth_values_in_words() -> None:
    flags = Column(name="c", kind="binary")
    for cells in (["0.0", "1.0"], ["False", "True"], ["false", "TRUE"], ["0,0", "1,0"]):
        assert numbers(cells, flags) == [0.0, 1.0]
    words = Column(name="c", kind="binary", categories=("FALSE", "TRUE"))
    assert numbers(["false", "True"], words) == [0.0, 1.0]
    frame, _ = encode_column(pl.Series([False, True]), words, "here")
    assert frame.values.tolist() == [0.0, 1.0]


def test_categories_that_are_nearly_right_are_counted_and_explained() -> None:
    regions = Column(name="c", kind="nominal", categories=("01", "02", "North"))
    encoded, _ = encode_column(pl.Series(["1", "2", "01", None]), regions, "here")
    assert encoded.notes[0].endswith(
        "(data rows 1, 2); 2 cells are a category but for lost leading zeros: read it as text"
    )
    encoded, _ = encode_column(pl.Series(["north", "01", "02"]), regions, "here")
    assert encoded.notes[0].endswith("(data row 1); 1 cell is a category but for case or blanks: write them alike")
    encoded, _ = encode_column(pl.Series(["South", "01", "02"]), regions, "here")
    assert encoded.notes[0].endswith("; if they are valid, add them to the categories or declare other = ...")


def test_dates() -> None:
    days = [19_723.0, 19_724.0, 19_725.0, None, None]
    cells = ["2024-01-01", "02.01.2024", "2024-01-03 14:30:00", "1/4/2024", "2024-13-01"]
    assert numbers(cells, DAY) == days
    frame = pl.Series(["2024-01-01", "2024-01-02", None]).str.to_date()
    encoded, problems = encode_column(frame, DAY, "here")
    assert problems == []
    assert encoded.values[:2].tolist() == days[:2]
    (found,) = encode_column(frame, AMOUNT, "here")[1]
    assert "two dates as bounds" in found.what
    (found,) = encode_column(pl.Series([1, 2]), DAY, "here")[1]
    assert "expected dates" in found.what


def test_separators_byte_order_marks_and_spreadsheet_hints(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for text in ("a;b\n1;2,5\n", "\ufeffa;b\n1;2,5\n", "sep=;\na;b\n1;2,5\n", "a\tb\n1\t2,5\n", "a|b\n1|2,5\n"):
        path.write_text(text, "utf-8")
        assert read_table(path).to_dict(as_series=False) == {"a": ["1"], "b": ["2,5"]}
    path.write_text("a;b\n1;2,5\n", "utf-16")
    assert read_table(path).to_dict(as_series=False) == {"a": ["1"], "b": ["2,5"]}
    path.write_text('"a, b",c\n1,2\n', "utf-8")
    assert read_table(path).columns == ["a, b", "c"]
    path.write_text(",a,,\n0,1,,\n", "utf-8")
    assert read_table(path).columns == ["", "a", "unnamed 3", "unnamed 4"]


def test_lines_that_break_a_file_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("a,b\n1,2\n3,Müller\n".encode("latin-1"))
    with pytest.raises(SchemaError, match=r"not UTF-8 text \(line 3\)"):
        read_table(path)
    path.write_text("a,b\n1,2\n3,4,5\n")
    with pytest.raises(SchemaError, match=r"line 3 has 3 cells, the header has 2; are decimals written with commas"):
        read_table(path)


@pytest.mark.parametrize("text", ["a;b\n1,2\n3,4\n", "a,b\n1;2\n3;4\n", "a\tb\n1,2;0\n"])
def test_rows_that_are_cut_otherwise_than_the_header_are_no_table(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(SchemaError, match=r"no row is cut by .* as the header is"):
        read_table(path)


@pytest.mark.parametrize("text", ["a;b\n1;\n3;\n", "a;b\n1,5\n3\n", "a;b\n", "a\n1,5\n"])
def test_rows_that_may_be_as_they_are_stay(tmp_path: Path, text: str) -> None:
    """Empty cells, one row with another mark, no rows; a mark in the only cell of a line needs quotation marks."""
    path = tmp_path / "t.csv"
    path.write_text(text.replace("a\n1,5", 'a\n"1,5"'))
    assert read_table(path).columns == text.split("\n")[0].split(";")


def test_a_header_without_marks_is_told_from_a_long_line(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a:b\n1:2,5\n")
    with pytest.raises(SchemaError, match="the header has a single cell; write a comma, semicolon, tab or"):
        read_table(path)


def test_a_missing_id_names_what_the_table_has(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="the table has 'income', 'town', 'x': which of them tells people apart"):
        aligned(tmp_path, "income,town,x\n5,a,1\n", AGENCY)
    with pytest.raises(SchemaError, match="did you mean 'Customer number'"):
        aligned(tmp_path, "Customer number,income\n5,1\n", AGENCY)


def test_names_that_are_nearly_right(tmp_path: Path) -> None:
    with pytest.raises(SchemaError) as caught:
        aligned(tmp_path, "Customer , Income\nA1,5\n", AGENCY)
    said = str(caught.value)
    assert "the id column 'customer' is missing; did you mean 'Customer '?" in said
    assert "column 'income': is in the federation file but not in the table; did you mean ' Income'?" in said
    (tmp_path / "bank.csv").rename(tmp_path / "Bank.csv")
    with pytest.raises(SchemaError, match=r"did you mean 'Bank.csv'\?"):
        tables_in(federation(), tmp_path)


def test_a_file_with_blanks_in_its_name_belongs_to_the_party_with_underscores(tmp_path: Path) -> None:
    assert party_name_of(Path("Bank data (2024).csv")) == "Bank_data_2024"
    (tmp_path / "my bank.csv").write_text("customer,income\nA1,5\n")
    (tmp_path / "~$my bank.xlsx").write_bytes(b"")
    (tmp_path / "notes.md").write_text("#")
    assert [path.name for path in list_tables(tmp_path)] == ["my bank.csv"]
    renamed = Federation.from_dict(
        {
            **federation().to_dict(),
            "party": [{**federation().to_dict()["party"][0], "name": "my_bank"}],
            "response": "my_bank.income",
        }
    )
    assert list(tables_in(renamed, tmp_path)) == ["my_bank"]


def test_lost_leading_zeros_name_the_rule_that_mends_them(tmp_path: Path) -> None:
    agency = "customer,default\n0000017,0\n0000018,1\n0000119,0\n"
    with pytest.raises(SchemaError, match=r'leading zeros were lost.*rules = \["zfill:7"\]'):
        aligned(tmp_path, "customer,income\n17,1\n18,2\n119,3\n", agency)
    assert suggest_id_rules(pl.Series(["a1 ", "b2"]), pl.Series(["A1", "B2", "C3"])) == ("strip", "upper")
    assert suggest_id_rules(pl.Series(["x"]), pl.Series(["y"])) == ()


def test_ids_as_floats_are_ids_and_rounded_ones_are_a_problem(tmp_path: Path) -> None:
    agency = "customer,default\n17,0\n18,1\n19,0\n"
    found = aligned(tmp_path, "customer,income\n17.0,1\n18.0,2\n", agency)["bank"]
    assert found.columns["income"].observed.tolist() == [True, True, False]
    with pytest.raises(SchemaError, match=r"1 subject id\(s\) are written like 1.2E\+09 \(data row 2\)"):
        aligned(tmp_path, "customer,income\n17,1\n1.2E+10,2\n", agency)


def test_unreadable_files_and_folders_are_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "bank.csv").mkdir()
    with pytest.raises(SchemaError, match=r"bank.csv: has no Parquet file in it"):
        read_table(tmp_path / "bank.csv")
    with pytest.raises(SchemaError, match="no such file"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(SchemaError, match=r"the folder cannot be read \(No such file or directory\)"):
        list_tables(tmp_path / "none")


# ---- spreadsheets ------------------------------------------------------------------------


def write_workbook(path: Path, *sheets: str) -> None:
    """A workbook as a spreadsheet writes it, from the XML of its sheets' rows."""
    kinds = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    relations = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    packages = "http://schemas.openxmlformats.org/package/2006"
    each = range(1, len(sheets) + 1)
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{packages}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{kinds}.sheet.main+xml"/>'
        f'<Override PartName="/xl/styles.xml" ContentType="{kinds}.styles+xml"/>'
        + "".join(
            f'<Override PartName="/xl/worksheets/sheet{k}.xml" ContentType="{kinds}.worksheet+xml"/>' for k in each
        )
        + "</Types>",
        "_rels/.rels": f'<Relationships xmlns="{packages}/relationships"><Relationship Id="r1" '
        f'Type="{relations}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{relations}"><sheets>'
        + "".join(f'<sheet name="S{k}" sheetId="{k}" r:id="r{k}"/>' for k in each)
        + "</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{packages}/relationships">'
        + "".join(
            f'<Relationship Id="r{k}" Type="{relations}/worksheet" Target="worksheets/sheet{k}.xml"/>' for k in each
        )
        + f'<Relationship Id="r0" Type="{relations}/styles" Target="styles.xml"/></Relationships>',
        "xl/styles.xml": f'<styleSheet xmlns="{main}"><fonts count="1"><font/></fonts><fills count="1"><fill/></fills>'
        '<borders count="1"><border/></borders><cellStyleXfs count="1"><xf/></cellStyleXfs><cellXfs count="2">'
        '<xf numFmtId="0"/><xf numFmtId="14" applyNumberFormat="1"/></cellXfs></styleSheet>',
    }
    for k, rows in zip(each, sheets, strict=True):
        parts[f"xl/worksheets/sheet{k}.xml"] = f'<worksheet xmlns="{main}"><sheetData>{rows}</sheetData></worksheet>'
    with zipfile.ZipFile(path, "w") as file:
        for name, text in parts.items():
            file.writestr(name, '<?xml version="1.0" encoding="UTF-8"?>' + text)


def row(number: int, *cells: str) -> str:
    """Cells are XML without their address."""
    placed = (cell.replace("<c", f'<c r="{"ABCDEF"[k]}{number}"', 1) for k, cell in enumerate(cells) if cell)
    return f'<row r="{number}">{"".join(placed)}</row>'


def text(words: str) -> str:
    return f'<c t="inlineStr"><is><t>{words}</t></is></c>'


SHEET = (
    row(1, text("customer"), text("income"), text("code"), text("member"), text("since"))
    + row(
        2, "<c><v>17</v></c>", "<c><v>1234.5</v></c>", text("01"), '<c t="b"><v>1</v></c>', '<c s="1"><v>45292</v></c>'
    )
    + row(3, "<c><v>18</v></c>", "", text("n/a"), '<c t="b"><v>0</v></c>', "")
)


def test_a_workbook_reads_as_the_same_table_in_csv(tmp_path: Path) -> None:
    write_workbook(tmp_path / "bank.xlsx", SHEET, "")
    (tmp_path / "csv.csv").write_text(
        "customer,income,code,member,since\n17,1234.5,01,True,2024-01-01\n18,,n/a,False,\n"
    )
    assert read_table(tmp_path / "bank.xlsx").equals(read_table(tmp_path / "csv.csv"))


def test_workbooks_that_cannot_be_one_table(tmp_path: Path) -> None:
    write_workbook(tmp_path / "two.xlsx", SHEET, SHEET)
    with pytest.raises(SchemaError, match="has 2 sheets with cells; keep one"):
        read_table(tmp_path / "two.xlsx")
    write_workbook(tmp_path / "none.xlsx", "")
    with pytest.raises(SchemaError, match="is empty"):
        read_table(tmp_path / "none.xlsx")
    (tmp_path / "broken.xlsx").write_bytes(b"7071 no workbook")
    with pytest.raises(SchemaError, match="cannot be read as a spreadsheet"):
        read_table(tmp_path / "broken.xlsx")


# ---- databases ---------------------------------------------------------------------------


def write_database(path: Path, *commands: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        for command in commands:
            database.execute(command)
        database.commit()


def test_a_database_gives_the_same_cells_as_a_csv_file(tmp_path: Path) -> None:
    made = ("CREATE TABLE bank (customer TEXT, income REAL, town TEXT)", "CREATE TABLE other (x)")
    rows = "INSERT INTO bank VALUES ('A1', 5.0, 'Ulm'), ('A2', 2.5, NULL)"
    write_database(tmp_path / "bank.sqlite", *made, rows)
    (tmp_path / "csv.csv").write_text("customer,income,town\nA1,5,Ulm\nA2,2.5,\n")
    assert read_table(tmp_path / "bank.sqlite").equals(read_table(tmp_path / "csv.csv"))
    write_database(tmp_path / "one.db", 'CREATE TABLE "a "" b" (x)', 'INSERT INTO "a "" b" VALUES (1)')
    assert read_table(tmp_path / "one.db").rows() == [("1",)]


def test_databases_that_do_not_say_which_table_or_are_none(tmp_path: Path) -> None:
    write_database(tmp_path / "two.db", "CREATE TABLE a (x)", "CREATE TABLE b (x)")
    with pytest.raises(SchemaError, match="has 2 tables; call one as the file is"):
        read_table(tmp_path / "two.db")
    write_database(tmp_path / "none.db")
    with pytest.raises(SchemaError, match="has no table"):
        read_table(tmp_path / "none.db")
    (tmp_path / "text.db").write_text("customer,income\n" * 100)
    with pytest.raises(SchemaError, match="cannot be read as an SQLite database"):
        read_table(tmp_path / "text.db")
    with pytest.raises(SchemaError, match="no such file"):
        read_table(tmp_path / "gone.db")
    assert not (tmp_path / "gone.db").exists()
