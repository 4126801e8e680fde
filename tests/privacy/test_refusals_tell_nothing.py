"""What a party answers, and refuses, says nothing about one person.

Two tables that differ in one person's value are neighbours. If a study with one of them is refused and a study with the
other is not, or if the refusals read differently, then epsilon is infinite whatever the noise is.
"""

from __future__ import annotations

import dataclasses
import math
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agreements import bare_proposal
from tests.builders import make_federation
from tests.members import KEY, make_members
from tests.privacy.member_study import N, federation, tables
from verticopula import Federation, Policy, Synthesizer
from verticopula.data.column_encoding import encode_column
from verticopula.data.tables import OwnTable
from verticopula.errors import CellsWarning, VerticopulaError
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.protocol.consent_messages import ConsentRequest, PresenceRequest
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.party.member import Member
from verticopula.protocol.rank_messages import ColumnQuery, ReleaseRequest
from verticopula.schema.columns import Column
from verticopula.storage.record_store import MemoryRecords
from verticopula.storage.vault import Vault
from verticopula.transport.delivery import Transport

pytestmark = pytest.mark.usefixtures("few_fitted_rows")

# Per party and column: values that the column has, and values that it cannot have. All of them are filled cells.
CELLS: dict[tuple[str, str], tuple[str, ...]] = {
    ("left", "a"): ("0", "-7.5", "1e300", "-inf", "1e999", "0x10", "4,5", "=1+1", "\x1b[2J"),
    ("left", "y"): ("0", "1", "2", "yes", "1.0"),
    ("right", "n"): ("3", "50", "51", "-1", "2.5", "1e30", "many"),
    ("right", "g"): ("u", "v", "U", "not listed", "⟨⟩"),
    ("third", "o"): ("10", "30", "20.5", "forty"),
}
BINARY = {"kind": "binary"}
NUMBERS = {key: cells for key, cells in CELLS.items() if key[1] in ("a", "n")}


def is_number(cell: str) -> bool:
    """Whether polars reads the cell as a number, with a decimal comma, too; anything else counts as empty."""
    return pl.Series([cell.replace(",", ".")]).cast(pl.Float64, strict=False)[0] is not None


def with_cell(party: str, column: str, cell: str) -> dict[str, pl.DataFrame]:
    """Every table as a CSV file would be read, with one person's cell replaced."""
    found = {name: table.select(pl.all().cast(pl.String)) for name, table in tables().items()}
    row = int(np.flatnonzero(found[party][column].is_not_null().to_numpy())[5])
    cells = found[party][column].to_list()
    cells[row] = cell
    return {**found, party: found[party].with_columns(pl.Series(column, cells))}


def constant(party: str, column: str, cell: str) -> dict[str, pl.DataFrame]:
    """All cells of a column alike, and then the neighbour in which one of them differs."""
    found = with_cell(party, column, cell)
    filled = found[party][column].is_not_null()
    alike = pl.when(filled).then(pl.lit(cell)).otherwise(None).alias(column)
    return {**found, party: found[party].with_columns(alike)}


class Recorder:
    """Delivers to members, and writes down what leaves them: types, refusals, and the shapes of arrays."""

    def __init__(self, members: Mapping[str, Member]) -> None:
        self.members = members
        self.left: list[tuple[str, str, str]] = []
        self.masks: list[np.ndarray[Any, Any]] = []

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        return {name: self.ask(name, request) for name, request in requests.items()}

    def ask(self, name: str, request: Request) -> Reply:
        try:
            reply = self.members[name].handle(request)
        except VerticopulaError as error:
            self.left.append((name, type(request).__name__, f"{type(error).__name__}: {error}"))
            raise
        except Exception as error:
            self.left.append((name, type(request).__name__, f"internal error {type(error).__name__}"))
            raise
        if isinstance(request, PresenceRequest):
            self.masks.append(reply.observed)  # type: ignore[union-attr]
        self.left.append((name, type(request).__name__, type(reply).__name__))
        return reply


def outcome(study: Federation, frames: dict[str, pl.DataFrame], method: str, policy: Policy) -> Recorder:
    """A whole study; what left the members, to its end or to a refusal."""
    recorder = Recorder(make_members(study, frames, policy=policy))
    chosen: dict[str, Any] = {"unit": "person", "delta": 1e-6} if method == "strict" else {"unit": "variable"}
    synthesizer = Synthesizer(study, method, 2.0, **chosen, rounds=2)
    handler = synthesizer.make_compute_handler(MemoryRecords(), shared_authenticity(KEY))
    transport: Transport = recorder
    try:
        synthesizer.fit_transport(transport, study="study", compute_handler=handler)
    except VerticopulaError as error:
        recorder.left.append(("coordinator", "", f"{type(error).__name__}: {error}"))
    return recorder


POLICIES = {
    "everything": Policy(),
    "a cap that is too low": Policy(caps={"client": 0.5}),  # type: ignore[arg-type]
    "too few subjects": Policy(min_subjects=N + 1),
    "a column that is not shared": Policy(columns=("y",)),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("where", CELLS, ids=".".join)
def test_neighbours_get_the_same_messages_and_refusals(where: tuple[str, str], policy: str) -> None:
    """Rank methods share all rounds before the fit, so one of them stands for all; see below for the others."""
    seen = {
        tuple(outcome(federation(), with_cell(*where, cell), "vcds", POLICIES[policy]).left) for cell in CELLS[where]
    }
    assert len(seen) == 1
    (messages,) = seen
    assert ("ReleaseReply" in {what for _, _, what in messages}) == (policy == "everything")


@pytest.mark.parametrize("method", ["refined", "ievcds", "strict"])
def test_neighbours_get_the_same_messages_in_every_method(method: str) -> None:
    for where in (("left", "a"), ("right", "g")):
        seen = {
            tuple(outcome(federation(), with_cell(*where, cell), method, Policy()).left)
            for cell in (CELLS[where][0], CELLS[where][-2], CELLS[where][-1])
        }
        assert len(seen) == 1
        assert not any("Error" in what or "Refused" in what for _, _, what in next(iter(seen)))


@pytest.mark.parametrize("method", ["vcds", "refined", "strict"])
@pytest.mark.parametrize("where", [("left", "a"), ("left", "y"), ("right", "n")], ids=".".join)
def test_a_constant_column_is_answered_like_its_neighbour(method: str, where: tuple[str, str]) -> None:
    alike = outcome(federation(), constant(*where, CELLS[where][0]), method, Policy())
    other = outcome(federation(), one_off(*where), method, Policy())
    assert alike.left == other.left
    assert not any("Error" in what for _, _, what in alike.left)


def one_off(party: str, column: str) -> dict[str, pl.DataFrame]:
    found = constant(party, column, CELLS[party, column][0])
    cells = found[party][column].to_list()
    row = next(i for i, cell in enumerate(cells) if cell is not None)
    cells[row] = CELLS[party, column][1]
    return {**found, party: found[party].with_columns(pl.Series(column, cells))}


@pytest.mark.parametrize("where", NUMBERS, ids=".".join)
def test_no_number_moves_the_mask(where: tuple[str, str]) -> None:
    """The mask is public, so it must not follow from a value: bounds, infinities and fractions leave it as it is."""
    plain = outcome(federation(), with_cell(*where, "3"), "vcds", Policy()).masks
    for cell in NUMBERS[where]:
        masks = outcome(federation(), with_cell(*where, cell), "vcds", Policy()).masks
        same = all(np.array_equal(a, b) for a, b in zip(plain, masks, strict=True))
        assert same == is_number(cell), cell


def test_with_a_declared_other_no_category_moves_the_mask() -> None:
    raw = federation().to_dict()
    (column,) = [c for p in raw["party"] for c in p["column"] if c["name"] == "g"]
    column["other"] = "u"
    study = Federation.from_dict(raw)
    first, *rest = (
        outcome(study, with_cell("right", "g", cell), "vcds", Policy()).masks for cell in CELLS["right", "g"]
    )
    for masks in rest:
        assert all(np.array_equal(a, b) for a, b in zip(first, masks, strict=True))


# ---- with a vault that knows columns by their values --------------------------------------------------------


def told_of_a_copied_column(path: Path, cell: int, *, studies: int) -> list[list[tuple[str, str, str]]]:
    """What left in each of so many studies, of which a cap lets one pass; `b` is a copy of `a` but for one cell."""
    two = make_federation({"clinic": {"a": BINARY, "b": BINARY}, "other": {"w": BINARY}})
    a = np.arange(N) % 9 == 0
    b = np.where(np.arange(N) == 9, cell, a)
    frames = {
        "clinic": pl.DataFrame({"subject_id": [f"s{i}" for i in range(N)], "a": a.astype(int), "b": b.astype(int)}),
        "other": pl.DataFrame({"subject_id": [f"s{i}" for i in range(N)], "w": np.arange(N) % 2}),
    }
    told = []
    with Vault.open(path) as vault:
        for number in range(studies):
            own = {"clinic": {"vault": vault, "policy": Policy(caps={"variable": 1.5})}}  # type: ignore[arg-type]
            recorder = Recorder(make_members(two, frames, policy=Policy(), **own))
            try:
                Synthesizer(two, "vcds", 1.0, unit="variable").fit_transport(recorder, study=f"study {number}")
            except VerticopulaError as error:
                recorder.left.append(("coordinator", "", f"{type(error).__name__}: {error}"))
            told.append(recorder.left)
    return told


def test_a_cap_at_variable_does_not_tell_whether_two_columns_agree(tmp_path: Path) -> None:
    seen = [told_of_a_copied_column(tmp_path / str(cell), cell, studies=2) for cell in (0, 1)]
    assert seen[0] == seen[1]
    assert [any("BudgetExceeded" in what for _, _, what in study) for study in seen[0]] == [False, True]


def test_no_refusal_by_a_cap_says_how_much_was_spent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What was spent counts other tables with some of these people, and who is in those is nobody's business here."""
    caplog.set_level("WARNING")
    refused = told_of_a_copied_column(tmp_path, 0, studies=2)[1][-1][2]
    assert refused == "BudgetExceeded: party 'clinic': epsilon per variable would go above its cap; nothing was drawn"
    assert "refused: party 'clinic': epsilon per variable would become 2, above its cap of 1.5" in caplog.text


def hostile() -> Iterator[Request]:
    """Requests that a party refuses, and must refuse in the same words whatever its table holds."""
    for query in (
        ColumnQuery("n", math.inf, 1.0),
        ColumnQuery("n", 1.0, math.nan),
        ColumnQuery("nothing", 1.0, 1.0),
        ColumnQuery("g", 1e5, 1.0),
    ):
        yield ReleaseRequest("study", "vcds", "exact", (query,))
        numbers = (query.epsilon_ranks, query.epsilon_marginal)
        proposal = bare_proposal("right", 2, "exact", *numbers, rounds=1, study="study")
        yield ConsentRequest(dataclasses.replace(proposal, method="vcds"))
    yield ReleaseRequest("study", "vcds", "unknown", (ColumnQuery("n", 1.0, 1.0),))
    yield PresenceRequest("study", "refined")


def test_refused_requests_are_refused_in_the_same_words() -> None:
    seen = set()
    for where, cell in ((("right", "n"), "3"), (("right", "n"), "1e30"), (("right", "g"), "not listed")):
        recorder = outcome(federation(), with_cell(*where, cell), "vcds", Policy())
        recorder.left.clear()
        for request in hostile():
            with pytest.raises(VerticopulaError):
                recorder.ask("right", request)
        seen.add(tuple(recorder.left))
    assert len(seen) == 1


def test_no_refusal_says_how_many_subjects_there_are() -> None:
    refused = outcome(federation(), tables(), "vcds", Policy(min_subjects=N + 1)).left[-1][2]
    assert "fewer subjects than its policy asks for" in refused
    assert not any(character.isdigit() for character in refused)


def test_what_a_party_notes_about_its_cells_is_in_none_of_its_messages(tmp_path: Path) -> None:
    frames = with_cell("right", "n", "1e30")
    members = make_members(federation(), frames, policy=Policy(), out=tmp_path)
    assert [str(note) for note in members["right"].notes] == [
        "party 'right', column 'n': 1 cell is outside the public bounds: counted as the nearest bound (data row 6)"
    ]
    said: list[str] = []

    class Listener(Recorder):
        def ask(self, name: str, request: Request) -> Reply:
            reply = super().ask(name, request)
            said.append(repr(dataclasses.asdict(reply)))
            return reply

    Synthesizer(federation(), "vcds", 2.0, unit="variable").fit_transport(
        Listener(members), study=f"study-{secrets.token_hex(4)}"
    )
    assert said
    assert not any("outside" in text or "bound" in text or "data row" in text for text in said)


def test_in_one_process_the_holder_of_all_tables_is_told() -> None:
    with pytest.warns(CellsWarning, match="'a': 1 cell is outside the public bounds"):
        Synthesizer(federation(), "vcds", 2.0, unit="variable").fit(with_cell("left", "a", "1e300"))


# ---- any cell at all ----------------------------------------------------------------------------------------

KINDS = [
    Column(name="c", kind="continuous", bounds=(-1.0, 1.0)),
    Column(name="c", kind="count", bounds=(0, 9)),
    Column(name="c", kind="binary"),
    Column(name="c", kind="ordinal", categories=(1, 2, 3)),
    Column(name="c", kind="nominal", categories=("a", "b"), other="b"),
]


@pytest.mark.parametrize("column", KINDS, ids=lambda column: column.kind)
@given(cell=st.one_of(st.text(max_size=20), st.floats().map(str), st.integers().map(str)))
@settings(deadline=None, max_examples=200)
def test_no_cell_is_a_problem_and_every_value_lies_in_the_public_range(column: Column, cell: str) -> None:
    encoded, problems = encode_column(pl.Series("c", [cell, "1", "1"]), column, "here")
    assert problems == []
    seen = encoded.values[encoded.observed]
    if column.bounds is not None:
        assert np.all((seen >= column.bounds[0]) & (seen <= column.bounds[1]))
    else:
        assert np.all((seen >= 0) & (seen < len(column.categories or ())))
    if column.is_discrete:
        assert np.array_equal(seen, np.floor(seen))
    assert not encoded.unreadable or not encoded.observed[0]


@given(cells=st.lists(st.floats(), min_size=3, max_size=3))
@settings(deadline=None, max_examples=200)
def test_no_number_of_a_binary_file_is_a_problem_either(cells: list[float]) -> None:
    party = federation().party("right")
    table = pl.DataFrame({"subject_id": ["a", "b", "c"], "n": cells, "g": ["u", "v", "u"]})
    own = OwnTable.check(party, table, federation().id)
    assert own.columns["n"].observed.tolist() == [not math.isnan(cell) for cell in cells]
