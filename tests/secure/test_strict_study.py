"""Whole strict studies in one process: what they cost, say and refuse, and that members get the same."""

from __future__ import annotations

import itertools
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.spatial.distance import pdist

from tests.builders import all_required, make_federation
from tests.members import KEY, make_members
from tests.secure.byte_statistics import chi_square_of_bytes, low_bytes
from tests.secure.strict_world import FEDERATION, STUDY, TABLES, cells_of, make_parties, release, request
from tests.secure.sums_world import Dropping, Recorded
from verticopula import Federation, Synthesizer
from verticopula.data.column_encoding import EncodedColumn
from verticopula.data.tables import AlignedTable
from verticopula.errors import (
    NotPrivateWarning,
    PartyUnavailable,
    ProtocolError,
    SettingsError,
    WeakPrivacyWarning,
)
from verticopula.mpc import sums_plan
from verticopula.mpc.prime_field import pack_field
from verticopula.mpc.sealed_messages import SealedChannel, shared_authenticity
from verticopula.mpc.sums_plan import (
    features_of_cells,
    own_columns,
    own_rows,
    own_statement,
    selection_deviation,
    share_scales,
)
from verticopula.mpc.table_noise import tables_sensitivity
from verticopula.mpc.verified_cells import CellsBundle, encode_cells
from verticopula.protocol import strict_method
from verticopula.protocol.messages import REPLY_KINDS, REQUEST_KINDS, fingerprint
from verticopula.protocol.party.consent_question import ConsentQuestion
from verticopula.protocol.proof_routes import routes_to, statements_of
from verticopula.protocol.strict_messages import SumsRequest, SumsShareReply
from verticopula.protocol.strict_method import StrictReleases
from verticopula.protocol.wire import decode
from verticopula.schema.units import Unit
from verticopula.stats.margin_cells import to_cells
from verticopula.stats.strict.gaussian_margins import cell_sensitivity
from verticopula.stats.strict.strict_plan import pool_cells, sum_selected
from verticopula.storage.ledger import Ledger
from verticopula.storage.record_store import FolderRecords, MemoryRecords
from verticopula.transport.in_process_transport import InProcessTransport

pytestmark = pytest.mark.usefixtures("few_fitted_rows")
TWO = make_federation(
    {"a": {"x": {"kind": "continuous", "bounds": (-6, 6)}}, "b": {"y": {"kind": "binary"}, "z": {"kind": "binary"}}}
)
TWO = Federation.from_dict({**TWO.to_dict(), "network": {"operator": "office"}})  # neither party's coordinator


def two_tables(n: int = 300) -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(5)
    x, ids = np.clip(rng.standard_normal(n), -6, 6), [f"s{i}" for i in range(n)]
    y, z = ((x + rng.standard_normal(n) > 0).astype(int) for _ in range(2))
    return {"a": pl.DataFrame({"subject_id": ids, "x": x}), "b": pl.DataFrame({"subject_id": ids, "y": y, "z": z})}


def fit(
    federation: Federation = FEDERATION, tables: Any = TABLES, seed: int | None = 3, **settings: Any
) -> Synthesizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        given = {"epsilon": 6.0, "delta": 1e-6, **settings}
        return Synthesizer(federation, "strict", random_state=seed, **given).fit(tables)


@pytest.fixture(scope="module")
def fitted() -> Synthesizer:
    return fit(seed=None)


# ---- settings --------------------------------------------------------------------------------


def test_the_default_unit_is_a_person_and_others_are_refused_with_a_hint() -> None:
    assert Synthesizer(FEDERATION, "strict", 1.0, 1e-6).check().unit == Synthesizer(FEDERATION).check().unit == "person"
    assert Synthesizer(FEDERATION, "vcds", 1.0).check().unit == "client"
    for unit in ("variable", "client"):
        with pytest.raises(SettingsError, match=rf"units 'person' or 'block', not '{unit}'.*'refined'"):
            Synthesizer(FEDERATION, "strict", 1.0, 1e-6, unit).check()
    assert Synthesizer(FEDERATION, "strict", 1.0).check().delta == 1e-6


def test_a_single_party_is_told_that_it_needs_another() -> None:
    alone = make_federation({"a": {"x": {"kind": "binary"}}})
    with pytest.raises(SettingsError, match="needs at least 2 parties"):
        Synthesizer(alone, "strict", 1.0, 1e-6).check()
    named = make_federation({"coordinator": {"x": {"kind": "binary"}}, "b": {"y": {"kind": "binary"}}})
    with pytest.raises(SettingsError, match="cannot be called 'coordinator'"):
        Synthesizer(named, "strict", 1.0, 1e-6).check()


def test_a_delta_of_one_in_n_or_more_is_warned_about() -> None:
    with pytest.warns(WeakPrivacyWarning, match=r"delta = 0\.005 is not below 1/200"):
        weak = Synthesizer(FEDERATION, "strict", 6.0, 0.005).fit(TABLES)
    assert "! delta = 0.005" in weak.summary()
    with pytest.warns(WeakPrivacyWarning, match=r"delta = 0\.005"):  # the line for a person has it, whatever the unit
        Synthesizer(FEDERATION, "vcds", 6.0, 0.005, "client").fit(TABLES)


# ---- results ---------------------------------------------------------------------------------


def test_a_study_costs_what_was_asked_for(fitted: Synthesizer) -> None:
    assert 6.0 * (1.0 - 1e-6) < fitted.privacy_.person <= 6.0 * (1.0 + 1e-9)
    assert fitted.privacy_.person <= 6.0 * (1 + 1e-12)
    assert fitted.privacy_.is_private
    assert {e.what for e in fitted.ledger_} == {"marginal", "gram", "tables", "selection"}
    text = fitted.summary()
    assert "left and middle:" in text


def test_it_samples_saves_loads_and_reports(fitted: Synthesizer, tmp_path: Path) -> None:
    rows = fitted.sample(50)
    assert [rows[name].shape for name in TABLES] == [(50, 2), (50, 1), (50, 2)]
    with pytest.raises(SettingsError, match="no aligned release"):
        fitted.sample(aligned=True)
    fitted.save(tmp_path / "study.json")
    loaded = Synthesizer.load(tmp_path / "study.json")
    np.testing.assert_array_equal(loaded.result_.copula.correlation, fitted.result_.copula.correlation)
    assert loaded.privacy_ == fitted.privacy_
    assert loaded.settings_ == fitted.settings_
    assert loaded.result_.spending == fitted.result_.spending
    assert loaded.summary() == fitted.summary()
    assert fitted.margins_.equals(loaded.margins_)
    page = loaded.report(tmp_path / "report.html").read_text("utf-8")
    assert "What this budget supports, party by party" in page
    assert "mu 0." in page
    assert "per comparison" not in loaded._repr_html_() + Ledger()._repr_html_()


def test_strong_associations_are_found() -> None:
    rng = np.random.default_rng(0)
    n = 4_000
    x = rng.standard_normal((n, 1))
    ids = [f"s{i}" for i in range(n)]
    y = (0.9 * x[:, 0] + math.sqrt(1 - 0.81) * rng.standard_normal(n) > 0).astype(int)
    tables = {
        "a": pl.DataFrame({"subject_id": ids, "x": np.clip(x[:, 0], -6, 6)}),
        "b": pl.DataFrame({"subject_id": ids, "y": y, "z": rng.integers(0, 2, n)}),
    }
    found = fit(TWO, tables).result_.copula.correlation
    assert found[0, 1] > 0.6
    assert abs(found[0, 2]) < 0.2


# ---- odd data --------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.filterwarnings("ignore::verticopula.errors.CellsWarning")
def test_a_column_that_is_constant_or_nearly_so_is_fitted_and_named(first: int) -> None:
    rows = pl.when(pl.int_range(pl.len()) == 0).then(first).otherwise(0)
    found = fit(tables={**TABLES, "left": TABLES["left"].with_columns(y=rows)}, epsilon=20.0)
    assert found.result_.strict is not None
    assert found.result_.strict.flat == ("left.y",)
    assert "Nothing can be learnt about their associations: left.y" in found.summary()
    assert np.isfinite(found.result_.copula.correlation).all()


def test_a_pattern_of_one_person_is_no_obstacle() -> None:
    keep = ["person-00000", "person-00001"]
    tables = {**TABLES, "middle": TABLES["middle"].filter(~pl.col("subject_id").is_in(keep[:1]))}
    tables["right"] = tables["right"].filter(~pl.col("subject_id").is_in(keep))
    assert np.isfinite(fit(tables=tables).result_.copula.correlation).all()


@pytest.mark.parametrize("unit", ["person", "block"])
def test_a_party_that_hardly_anybody_is_known_to_is_no_obstacle(unit: str) -> None:
    found = fit(tables={**TABLES, "right": TABLES["right"].tail(3)}, epsilon=1.0, unit=unit)
    assert found.privacy_.epsilon(Unit(unit)) <= 1.0 + 1e-9


@pytest.mark.filterwarnings("ignore::verticopula.errors.CellsWarning")
def test_a_party_that_knows_nobody_has_no_part_in_the_sums_and_does_not_pay_for_them() -> None:
    nobody = TABLES["right"].with_columns(pl.lit(None).alias(c) for c in TABLES["right"].columns if c != "subject_id")
    found = fit(tables={**TABLES, "right": nobody}, epsilon=1.0)
    assert found.result_.spending is not None
    assert found.result_.spending.factors["right"] == 0.0
    assert {e.party for e in found.ledger_ if e.what in ("gram", "tables")} == {"left", "middle"}
    assert found.privacy_.person <= 1.0 + 1e-9


@pytest.mark.parametrize("unit", ["block", "person"])
@pytest.mark.parametrize("epsilon", [1e-3, 1e-2])
def test_a_study_of_next_to_no_epsilon_comes_to_its_end(unit: str, epsilon: float) -> None:
    """Noisy margins pool every column to one cell, so the sums are of nothing; all have paid for margins by then."""
    small = make_federation({name: {f"{name}{j}": {"kind": "binary"} for j in range(2)} for name in "abc"})
    rng, ids = np.random.default_rng(1), [f"s{i}" for i in range(60)]
    frames = {
        p.name: pl.DataFrame({"subject_id": ids, **{c.name: rng.integers(0, 2, 60) for c in p.columns}})
        for p in small.parties
    }
    fitted = Synthesizer(small, "strict", epsilon, delta=1e-6, unit=unit).fit(frames)
    assert np.isfinite(fitted.result_.copula.correlation).all()
    assert fitted.privacy_.epsilon(Unit(unit)) <= epsilon * (1 + 1e-6)


# ---- two parties -----------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["person", "block"])
@pytest.mark.parametrize("epsilon", [0.1, 6.0])
def test_what_is_shared_is_never_more_than_was_looked_at_before_anybody_paid(
    unit: str, epsilon: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[int] = []
    monkeypatch.setattr(strict_method, "check_bodies", lambda numbers, *_: looked_at.append(numbers))
    monkeypatch.setattr(sums_plan, "check_bodies", lambda numbers, *_: looked_at.append(numbers))
    fit(unit=unit, epsilon=epsilon)
    before, *planned = looked_at
    assert planned
    assert max(planned) <= before


def test_a_study_whose_shares_fit_in_no_message_is_refused_before_anybody_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers: list[int] = []
    monkeypatch.setattr(strict_method, "check_bodies", lambda count, *_: numbers.append(count))
    fit(seed=None)
    monkeypatch.undo()
    monkeypatch.setattr(sums_plan, "MOST_BODIES", 8 * numbers[0] - 1)
    asked: list[ConsentQuestion] = []
    members = make_members(FEDERATION, TABLES, **{name: {"ask_steward": asked.append} for name in TABLES})
    with pytest.raises(SettingsError, match=r"do not fit in one message.*fewer columns, or at most 99 % of the sub"):
        Synthesizer(FEDERATION, "strict", 6.0, 1e-6).fit_transport(InProcessTransport(members))
    assert asked
    assert all(question.is_about_alignment for question in asked)
    assert [len(member.vault.ledger) for member in members.values()] == [0] * len(members)


def test_two_parties_compute_with_the_coordinator() -> None:
    found = fit(TWO, two_tables())
    assert {e.party for e in found.ledger_} == {"a", "b"}
    with pytest.raises(SettingsError, match="coordinator as the third"):
        Synthesizer(TWO, "strict", 6.0, 1e-6).fit_transport(InProcessTransport({}))


def test_a_coordinator_that_computes_comes_back_with_the_same_noise(tmp_path: Path) -> None:
    """Its handler is made anew on the study's folder; a handler that has lost its record is refused by the parties."""
    members = make_members(TWO, two_tables())

    def run(folder: Path, transport: Recorded) -> np.ndarray:
        study = Synthesizer(TWO, "strict", 6.0, 1e-6)
        handler = study.make_compute_handler(FolderRecords(folder), shared_authenticity(KEY))
        fitted = study.fit_transport(transport, study="a study", compute_handler=handler, server_seed=1)
        return fitted.result_.copula.correlation

    with pytest.raises(PartyUnavailable):
        run(tmp_path / "compute", Dropping(members, "b", 15))  # after two rounds of opening, in that of the sums
    first = run(tmp_path / "compute", Recorded(members))
    np.testing.assert_array_equal(first, run(tmp_path / "compute", Recorded(members)))
    with pytest.raises(ProtocolError, match="'coordinator' had another public key in this study"):
        run(tmp_path / "lost", Recorded(members))
    FolderRecords(tmp_path / "compute").remove()
    assert not (tmp_path / "compute").exists()


# ---- members ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("federation", "tables"), [(FEDERATION, TABLES), (TWO, two_tables())], ids=["three", "two"])
def test_members_make_the_same_arrays(federation: Federation, tables: dict[str, pl.DataFrame]) -> None:
    here = fit(federation, tables)
    there = Synthesizer(federation, "strict", 6.0, 1e-6, random_state=3)
    members = make_members(federation, tables)
    handler = there.make_compute_handler(MemoryRecords(), shared_authenticity(KEY))
    with pytest.warns(NotPrivateWarning):
        there.fit_transport(Recorded(members), study="a study", compute_handler=handler)
    np.testing.assert_array_equal(there.result_.copula.correlation, here.result_.copula.correlation)
    for key, margin in there.result_.copula.margins.items():
        np.testing.assert_array_equal(margin.probabilities, here.result_.copula.margins[key].probabilities)
    assert there.privacy_ == here.privacy_
    said = {(e.party, e.column, e.what, e.mu, e.mu_person, e.n_subjects) for e in there.ledger_}
    kept = {
        (e.party, e.column, e.what, e.mu, e.mu_person, e.n_subjects) for m in members.values() for e in m.vault.ledger
    }
    assert said == kept


# ---- what others see -------------------------------------------------------------------------

CANARY = 1.2345678901234567


def bundles_of(transport: Recorded, parties: Any) -> list[tuple[str, str, CellsBundle]]:
    """Every dealing that was sealed for a compute party, opened with its own secret: (receiver, sender, bundle)."""
    found = []
    for name, data in transport.sent:
        asked = decode(data, REQUEST_KINDS)
        if not isinstance(asked, SumsRequest):
            continue
        secret = bytes.fromhex(parties[name]._strict.records.get(f"sums/{name}/{STUDY}")["secret"])
        channel = SealedChannel(STUDY, name, secret, shared_authenticity(KEY))
        channel.accept_keys(asked.keys)
        statements = statements_of(asked.plan, STUDY, fingerprint((asked.plan, asked.keys)))
        for route, sealed in zip(routes_to(statements, "deal", name), asked.boxes[0], strict=True):
            number = list(statements).index(route.dealer)
            content = channel.open(route.sender, "cells deal", number, sealed)
            found.append((name, route.sender, decode(content, (CellsBundle,))))
    return found


def bodies_of(transport: Recorded) -> list[bytes]:
    """The bodies of all dealings, which travel in clear."""
    replies = [decode(data, REPLY_KINDS) for _, data in transport.answered]
    return [reply.body.tobytes() for reply in replies if isinstance(reply, SumsShareReply) and reply.body.size]


def test_no_value_and_no_cell_is_in_anything_that_anybody_receives() -> None:
    """The planted value, all other values and all cells: not in a message, and not in an opened bundle."""
    planted = pl.when(pl.int_range(pl.len()) == 7).then(CANARY).otherwise(pl.col("x1"))
    parties = make_parties({**TABLES, "left": TABLES["left"].with_columns(x1=planted)})
    transport = Recorded(parties)
    opened = release(parties, transport)
    seen = b"".join(data for _, data in [*transport.sent, *transport.answered])
    bundles = bundles_of(transport, parties)
    assert {(to, sender) for to, sender, _ in bundles} == set(itertools.permutations(TABLES, 2))
    seen += b"".join(b"".join([*bundle.seeds, bundle.body]) for _, _, bundle in bundles)
    values = parties["left"].control.table.columns["x1"].values
    cells = cells_of(parties["left"], opened.plan.sums)
    shared = encode_cells(own_statement(opened.plan.sums, STUDY, "", "left"), cells)
    wanted = [CANARY.hex().encode(), repr(CANARY).encode()[:14]]
    wanted += [np.float64(v).tobytes() for v in values] + [repr(float(v)).encode() for v in values]
    for kind in (np.int64, np.uint8):
        wanted += [cells[start : start + 20].astype(kind).tobytes() for start in range(0, len(cells) - 20, 20)]
    wanted += [pack_field(shared[start : start + 10]) for start in range(0, len(shared) - 10, 10)]
    assert len(wanted) > 400
    assert not any(canary in seen for canary in wanted)


def test_what_compute_parties_open_is_uniform_and_as_long_as_the_plan_says_whatever_the_data() -> None:
    """Extreme tables with the same patterns: random bytes, whose number says no more than the margins do."""
    pvalues = []
    for level in (-6.0, 6.0):
        column = pl.when(pl.int_range(pl.len()) == 0).then(0.0).otherwise(level)
        chosen = {"left": "x1", "middle": "x2", "right": "x4"}
        tables = {name: table.with_columns(column.alias(chosen[name])) for name, table in TABLES.items()}
        parties = make_parties(tables)
        transport = Recorded(parties)
        opened = release(parties, transport)
        bodies = bodies_of(transport)
        shapes = [own_statement(opened.plan.sums, STUDY, "", name).shape for name in opened.plan.sums.parties]
        assert [len(body) for body in bodies] == [8 * rows * width for rows, width in shapes]
        bundles = bundles_of(transport, parties)
        assert {(len(p.body), *map(len, p.seeds)) for _, _, p in bundles} == {(32, 16, 16)}
        pvalues += [chi_square_of_bytes(low_bytes(body)) for body in bodies]
    assert len(pvalues) >= 6
    assert min(pvalues) > 1e-5


# ---- how far one person moves everything -----------------------------------------------------


GAPS = ("x2", "x3")


def with_gaps() -> dict[str, pl.DataFrame]:
    """The tables with values that are empty in people whom their party knows."""
    found = {}
    for name, table in TABLES.items():
        gaps = [pl.when(pl.int_range(pl.len()) % 9 == 4).then(None).otherwise(pl.col(c)).alias(c) for c in GAPS]
        found[name] = table.with_columns(gap for gap, c in zip(gaps, GAPS, strict=True) if c in table.columns)
    extra = pl.Series("x2b", np.arange(len(found["middle"])) % 3)
    return {**found, "middle": found["middle"].with_columns(extra)}


def gapped_federation() -> Federation:
    """`middle` has another column, so that it can know somebody without a value of x2."""
    raw = FEDERATION.to_dict()
    for party in raw["party"]:
        if party["name"] == "middle":
            party["column"].append({"name": "x2b", "kind": "nominal", "categories": ["0", "1", "2"]})
    return all_required(Federation.from_dict(raw), but=GAPS)


def moved_by(opened: StrictReleases, federation: Federation, table: dict[str, AlignedTable]) -> np.ndarray:
    """All that is released about these tables before noise, each number in units of the noise on it.

    The tables of all pairs are opened: that moves as far as any choice.
    """
    found: list[float] = []
    for key, deviation in opened.budget.deviations.items():
        column, encoded = federation.column(key), table[key.party].columns[key.column]
        cells = opened.margins[key].probabilities.size
        codes = [
            int(to_cells(encoded.values[i : i + 1], column, cells)[0]) if encoded.observed[i] else cells
            for i in np.flatnonzero(opened.observed[key])
        ]
        counts = np.bincount(codes, minlength=cells + opened.budget.empties[key])
        found += list((counts[:1] if counts.size == 2 else counts) / deviation)
    plan = opened.plan.sums
    own = {name: pool_cells(plan, name, table[name]) for name in plan.parties}
    records, everything = [], []
    for name in plan.parties:
        rows, codes = own_rows(plan, name), own[name]
        record = np.zeros((rows.size, sum(plan.features[j].shape[1] for j in own_columns(plan, name))), dtype=np.int64)
        record[rows] = features_of_cells(plan, name, codes)
        whole = np.full((rows.size, codes.shape[1]), -1)
        whole[rows] = codes
        records.append(record)
        everything.append(whole)
        if plan.base[plan.parties.index(name)]:
            found += list(sum_selected(plan, name, codes).ravel() / selection_deviation(plan))
    whole = np.column_stack(records)
    found += list((whole.T @ whole)[np.triu_indices(plan.width)] / (math.sqrt(2.0) * share_scales(plan)))
    cells, pairs = np.column_stack(everything), np.array(list(itertools.combinations(range(len(plan.features)), 2)))
    noise = tables_sensitivity(pairs, plan.owners, several_rows=plan.several_rows) / plan.mu_tables
    for a, b in pairs:
        both = (cells[:, a] >= 0) & (cells[:, b] >= 0)
        counts = np.zeros((len(plan.features[a]), len(plan.features[b])))
        np.add.at(counts, (cells[both, a], cells[both, b]), 1.0)
        found += list(counts.ravel() / noise)
    return np.array(found)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("unit", ["person", "block"])
def test_replacing_a_person_or_a_block_moves_everything_together_by_mu_at_most(unit: str, gaps: bool) -> None:
    """All replacements of one person on a grid, with the margins as they were released; as parties code them.

    Margins, features by presence, products and tables; with empty values, too, where columns have some.
    """
    federation, frames = (gapped_federation(), with_gaps()) if gaps else (all_required(FEDERATION), TABLES)
    parties = make_parties(frames, federation, seed=1)
    opened = release(parties, budget=request(4.0, unit, federation), federation=federation)
    plan = opened.plan.sums
    assert plan.mu_selection > 0.0
    assert {key.column for key, empty in opened.budget.empties.items() if empty} == (set(GAPS) if gaps else set())
    tables = {name: party.control.table for name, party in parties.items()}
    person = int(np.flatnonzero(np.column_stack([t.observed() for t in tables.values()]).all(axis=1))[0])
    grid = {"y": [0.0, 1.0], "x1": [-6.0, 0.3, 6.0], "x2": [-6.0, 6.0], "x3": [0.0, 2.0], "x4": [-6.0, 6.0]}
    if gaps:
        grid = {"y": [0.0, 1.0], "x1": [-6.0, 6.0], "x2": [-6.0, 6.0, math.nan], "x3": [0.0, 2.0, math.nan]}
        grid |= {"x4": [-6.0, 6.0], "x2b": [0.0, 2.0]}

    def with_values(values: dict[str, float]) -> np.ndarray:
        changed = {}
        for name, table in tables.items():
            columns = {}
            for column, encoded in table.columns.items():
                new, seen = encoded.values.copy(), encoded.observed.copy()
                new[person] = values.get(column, new[person])
                seen[person] = not math.isnan(new[person])
                columns[column] = EncodedColumn(new, seen)
            changed[name] = AlignedTable(table.party, columns)
        return moved_by(opened, federation, changed)

    if unit == "person":
        points = np.array([with_values(dict(zip(grid, v, strict=True))) for v in itertools.product(*grid.values())])
        largest = float(pdist(points).max())
        assert 0.5 * opened.budget.mu < largest <= opened.budget.mu
        return
    for name, mu in opened.budget.totals.items():
        own = {c.name: grid[c.name] for c in federation.party(name).columns}
        points = np.array([with_values(dict(zip(own, v, strict=True))) for v in itertools.product(*own.values())])
        largest = float(pdist(points).max())
        assert 0.3 * mu < largest <= mu


def test_what_is_opened_is_what_the_tables_hold() -> None:
    """With next to no noise: margins with their empty cells, features by presence, products and tables."""
    federation, frames = gapped_federation(), with_gaps()
    parties = make_parties(frames, federation, seed=2)
    opened = release(parties, budget=request(9e3, federation=federation), federation=federation)
    plan, exact = opened.plan.sums, {name: party.control.table for name, party in parties.items()}
    records = []
    for name in plan.parties:
        rows = own_rows(plan, name)
        whole = np.zeros((rows.size, sum(plan.features[j].shape[1] for j in own_columns(plan, name))))
        whole[rows] = features_of_cells(plan, name, pool_cells(plan, name, exact[name]))
        records.append(whole)
    everything = np.column_stack(records)
    products = everything.T @ everything / 4.0**plan.bits
    np.testing.assert_allclose(opened.opened.gram.matrix, products, atol=0.01 * np.abs(products).max())
    empty = {key.column: margin.empty for key, margin in opened.margins.items()}
    seen = exact["middle"].columns["x2"].observed
    known = exact["middle"].observed().any(axis=1)
    assert empty["x2"] == pytest.approx(1.0 - seen[known].mean(), abs=4 * 3.0 / known.sum())
    assert empty["y"] == 0.0


def test_whether_anybody_has_an_empty_value_changes_nothing_that_is_public() -> None:
    """Presence, price, plan and the shape of all that is opened: the schema says where empty values may be."""
    federation, frames = gapped_federation(), with_gaps()
    full = {
        name: table.with_columns(pl.col(c).fill_null(1) for c in GAPS if c in table.columns)
        for name, table in frames.items()
    }
    shown = []
    for tables in (frames, full):
        parties = make_parties(tables, federation, seed=2)
        opened = release(parties, budget=request(6.0, federation=federation), federation=federation)
        plan = opened.plan.sums
        masks = {key: mask.tobytes() for key, mask in opened.observed.items()}
        sizes = {key: margin.probabilities.size for key, margin in opened.margins.items()}
        shown.append((masks, opened.budget, sizes, plan.weights.shape, plan.pattern_of.tobytes()))
    assert shown[0] == shown[1]


def test_an_empty_value_in_a_required_column_is_a_value_to_everybody_else() -> None:
    """It counts as the first cell, and the party that holds it is told."""
    federation = all_required(gapped_federation())
    parties = make_parties(with_gaps(), federation, seed=2)
    table = parties["middle"].control.table
    assert any("empty in a required column" in note for note in table.columns["x2"].notes)
    opened = release(parties, budget=request(9e3, federation=federation), federation=federation)
    assert not any(opened.budget.empties.values())
    known = table.observed().any(axis=1)
    codes = pool_cells(opened.plan.sums, "middle", table)
    empty = ~table.columns["x2"].observed[known]
    assert empty.any()
    assert (codes[empty, 0] == 0).all()
    margin = next(m for key, m in opened.margins.items() if key.column == "x2")
    assert margin.empty == 0.0
    assert margin.probabilities[0] >= empty.mean() - 12.0 / known.sum()


def test_a_replaced_value_moves_one_count_or_two() -> None:
    assert cell_sensitivity(2) == 1.0
    assert cell_sensitivity(3) == math.sqrt(2.0)
