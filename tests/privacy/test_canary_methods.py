"""A planted value and everything that the methods for missing blocks emit: it must not be in it."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.builders import unit_of
from tests.privacy.test_canary import COUNT, NUMBER, N, assert_clean, federation, tables
from tests.study_parties import make_study_party
from verticopula import Policy, Synthesizer
from verticopula.data.tables import align_tables
from verticopula.errors import AlignedWarning, VerticopulaError
from verticopula.privacy.noise import SecureNoise
from verticopula.privacy.policy import Caps
from verticopula.protocol.consent_messages import AgreementReply, ConsentReply, PresenceReply
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.rank_messages import CompletedRanksReply, CompletedRanksRequest, Imputation, ReleaseReply
from verticopula.storage.ledger import Ledger

METHODS = ["evcds", "ievcds", "refined"]


def with_blocks_missing() -> dict[str, pl.DataFrame]:
    """The planted subject is at both parties; a third is not known to the right one."""
    frames = tables()
    frames["right"] = frames["right"].filter(pl.Series((np.arange(N) % 3 != 1) | (np.arange(N) == 3)))
    return frames


@pytest.mark.parametrize("method", [*METHODS, "strict"])
def test_nothing_a_fit_emits_holds_a_planted_value(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[str] = []
    with caplog.at_level(logging.DEBUG):
        synthesizer = Synthesizer(federation(), method, epsilon=4.0, **unit_of(method), rounds=3).fit(
            with_blocks_missing(), ledger=tmp_path / "ledger.jsonl", progress=lambda *args: said.append(str(args))
        )
    synthesizer.save(tmp_path / "study.json")
    assert_clean("\n".join(record.getMessage() + str(record.__dict__) for record in caplog.records))
    assert_clean("".join(said))
    assert_clean((tmp_path / "ledger.jsonl").read_text())
    assert_clean((tmp_path / "study.json").read_text())
    assert_clean(synthesizer.summary() + str(synthesizer.privacy_) + synthesizer.margins_.write_csv())
    assert_clean(repr(synthesizer) + repr(synthesizer.result_) + str(vars(synthesizer)))
    drawn = [synthesizer.sample(300)]
    if method != "strict":
        with pytest.warns(AlignedWarning):
            drawn.append(synthesizer.sample(aligned=True))
    for rows in drawn:
        assert_clean(rows["left"].write_csv())
        assert COUNT not in rows["right"]["n"].to_list()


def test_every_message_of_every_round_holds_ranks_and_counts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that passes between coordinator and parties in three rounds: requests and replies."""
    heard: list[Any] = []
    handle = LocalParty.handle

    def listen(self: LocalParty, request: Any) -> Any:
        reply = handle(self, request)
        heard.extend([request, reply])
        return reply

    monkeypatch.setattr(LocalParty, "handle", listen)
    Synthesizer(federation(), "ievcds", epsilon=4.0, unit="variable", rounds=3).fit(with_blocks_missing())
    replies = [m for m in heard if isinstance(m, CompletedRanksReply)]
    assert len(replies) == 4
    assert all(array.dtype == np.int64 for reply in replies for array in reply.ranks)
    known = (PresenceReply, ConsentReply, AgreementReply, ReleaseReply, CompletedRanksReply)
    assert all(isinstance(reply, known) for reply in heard[1::2])
    with np.printoptions(threshold=np.inf, precision=17):
        assert_clean(repr(heard))
    for item in (i for m in heard if isinstance(m, CompletedRanksRequest) for i in m.imputations):
        for array in (item.curve, item.grades):
            assert np.all((array >= 0.0) & (array <= 1.0))  # grades, never values
            assert not np.any(np.isclose(array, NUMBER))


@pytest.mark.parametrize(
    "policy",
    [
        Policy(methods=("vcds",)),
        Policy(caps=Caps(variable=1e-6)),
        Policy(min_subjects=N + 1),
        Policy(columns=("flag",)),
    ],
    ids=["method", "cap", "subjects", "columns"],
)
@pytest.mark.parametrize("method", [*METHODS, "strict"])
def test_refusals_quote_no_cell(method: str, policy: Policy) -> None:
    aligned = align_tables(federation(), with_blocks_missing())
    study = Synthesizer(federation(), method, epsilon=4.0, **unit_of(method))
    with pytest.raises(VerticopulaError, match="left") as caught:
        study.fit_aligned(aligned, policies={"left": policy})
    assert_clean("".join(traceback.format_exception_only(caught.value)))


@pytest.mark.parametrize(
    "item",
    [
        Imputation("n", 1.0, np.linspace(1, 0, 54), np.full(26, 0.5), None),
        Imputation("n", 1.0, np.empty(0), np.empty(0), None),
        Imputation("g", 1.0, np.empty(0), np.empty(0), np.full(26, COUNT)),
        Imputation("n", float("nan"), np.linspace(0, 1, 54), np.full(26, 0.5), None),
    ],
    ids=["falling", "empty", "codes", "epsilon"],
)
def test_refused_completions_quote_no_cell(item: Imputation) -> None:
    table = align_tables(federation(), with_blocks_missing())["right"]
    party = make_study_party(table, noise=SecureNoise(), ledger=Ledger())
    with pytest.raises(VerticopulaError) as caught:
        party.handle(CompletedRanksRequest("s", "ievcds", "exact", 2, (item,)))
    assert_clean(str(caught.value))
    assert not len(party.control.ledger)
