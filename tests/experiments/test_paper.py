"""The printed numbers, as the reader hands them out."""

from __future__ import annotations

from experiments.methods import TABLES
from experiments.paper import PrintedKey, read_sme, read_tables


def test_cells_of_the_paper_by_hand() -> None:
    printed = read_tables()
    assert printed[PrintedKey("table1", "linear", "complete", 1000, 1.0, "VCDS", "rmse")] == (0.149, 0.0098)
    assert printed[PrintedKey("table4", "linear", "MCAR", 5000, 1.0, "VCDS", "gmeans")].mean == 0.9249
    assert read_sme()["IEVCDS"]["auc"] == 0.7173


def test_every_printed_cell_has_a_place_in_our_tables() -> None:
    for key in read_tables():
        design = TABLES[key.table]
        assert key.model in design.models
        assert key.mechanism in design.mechanisms
        assert key.n_subjects in design.sizes
        assert key.epsilon in design.epsilons
        assert key.method in design.rows
        assert key.metric in design.metrics


def test_every_cell_of_our_tables_is_printed_but_for_our_own_methods() -> None:
    printed = read_tables()
    assert len(printed) == 324 + 378
    for name, design in TABLES.items():
        theirs = [m for m in design.rows if not m.startswith("Refined")]
        count = len(design.models) * len(design.mechanisms) * len(design.metrics) * len(design.epsilons) * 3
        assert sum(key.table == name for key in printed) == count * len(theirs)
