"""A party in a strict study: it prices before it draws, releases once, and refuses what does not fit."""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import kstest

from tests.members import KEY
from tests.secure.strict_world import (
    FEDERATION,
    STUDY,
    TABLES,
    cells_of,
    integers_of,
    make_parties,
    open_vaults,
    release,
    request,
    same,
)
from tests.secure.sums_world import Dropping, NoNoise, Recorded
from verticopula.errors import (
    BudgetExceeded,
    LedgerError,
    PartyUnavailable,
    PolicyRefused,
    ProtocolError,
    VerticopulaError,
    WireError,
)
from verticopula.mpc.gram_noise import gram_scales
from verticopula.mpc.sealed_messages import SealedChannel, shared_authenticity
from verticopula.mpc.sums_plan import (
    SumsPlan,
    block_factor,
    own_columns,
    own_features,
    own_rows,
    selection_mu,
    share_scales,
)
from verticopula.privacy import gaussian_dp as gaussian
from verticopula.privacy.policy import Caps, Policy
from verticopula.privacy.release import ALL_COLUMNS
from verticopula.privacy.statement import state_privacy
from verticopula.protocol.consent_messages import ConsentRequest, PresenceRequest, SignedPresence, StudyProposal
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.proof_routes import STEPS
from verticopula.protocol.strict_messages import (
    GaussianMarginsReply,
    GaussianMarginsRequest,
    MarginQuery,
    SumsKeyRequest,
    SumsProofReply,
    SumsReply,
    SumsShareReply,
    SumsShareRequest,
    TablesReply,
)
from verticopula.protocol.strict_method import StrictReleases
from verticopula.protocol.wire import encode
from verticopula.schema.study_settings import COORDINATOR

NAMES = tuple(TABLES)
ORDERS = (MarginQuery("y", 5.0), MarginQuery("x1", 7.0))
MARGINS = GaussianMarginsRequest(STUDY, "strict", ORDERS)


def one_table() -> dict[str, pl.DataFrame]:
    """Tables whose association no copula has: x4 is far from 0 where x3 is in the middle."""
    middle = pl.when(pl.col("x3") == "mid").then(5.0).otherwise(0.2) * pl.when(pl.col("x4") > 0).then(1).otherwise(-1)
    return {**TABLES, "right": TABLES["right"].with_columns(x4=middle)}


ONE_TABLE = one_table()


def party(**settings: Any) -> LocalParty:
    return make_parties(own={"left": settings})["left"]


# ---- review and margins ----------------------------------------------------------------------


def consent(queries: tuple[MarginQuery, ...], mu: float) -> ConsentRequest:
    """A proposal to a party whose noise nobody has computed."""
    none = np.empty(0)
    deviations = np.array([query.deviation for query in queries])
    presence = (SignedPresence("left", (1,) * len(queries), "", b""),)
    numbers = (none, none, deviations, np.array([[mu], [0.1], [0.2]]))
    settings = ("person", 1.0, 1.0, 1e-6, "exact", 1, False, "", "", "", None, 10)
    return ConsentRequest(StudyProposal(STUDY, "strict", "", "", *settings, presence, *numbers, None))


def test_a_review_prices_margins_and_openings_and_spends_nothing() -> None:
    asked = consent(ORDERS, 0.3)
    mu = math.hypot(1.0 / 5.0, math.sqrt(2.0) / 7.0, 0.3, 0.1, 0.2)  # a binary column counts one cell
    cap = gaussian.gaussian_epsilon(mu, 1e-6)
    generous = party(policy=Policy(methods=("strict",), caps=Caps(block=cap * (1 + 1e-9))))
    generous.handle(asked)
    assert len(generous.control.ledger) == 0
    with pytest.raises(BudgetExceeded, match=r"'left': epsilon per block.*nothing was drawn"):
        party(policy=Policy(methods=("strict",), caps=Caps(block=cap * (1 - 1e-6)))).handle(asked)


@pytest.mark.parametrize(
    "orders",
    [
        (),
        ORDERS[:1],
        ORDERS[::-1],
        (*ORDERS, ORDERS[0]),
        (MarginQuery("y", 5.0), MarginQuery("elsewhere", 5.0)),
        *((MarginQuery("y", 5.0), MarginQuery("x1", bad)) for bad in (0.0, 5e-324, -1.0, math.nan, math.inf, 1e12)),
    ],
    ids=str,
)
def test_orders_that_do_not_fit_are_refused(orders: tuple[MarginQuery, ...]) -> None:
    here = party()
    with pytest.raises(PolicyRefused, match="'left'"):
        here.handle(replace(MARGINS, queries=orders))
    if [order.column for order in orders] == [order.column for order in ORDERS]:  # a proposal names no columns
        with pytest.raises(PolicyRefused, match="'left'"):
            here.handle(consent(orders, 0.1))
    assert len(here.control.ledger) == 0


@pytest.mark.parametrize("mu", [0.0, -1.0, math.nan, math.inf])
def test_a_review_needs_a_mu(mu: float) -> None:
    with pytest.raises(PolicyRefused, match="mu must be positive"):
        party().handle(consent(ORDERS, mu))
    asked = consent(ORDERS, 0.3).proposal
    for row in (1, 2):
        wrong = asked.mu.copy()
        wrong[row] = mu
        if mu != 0.0:
            with pytest.raises(PolicyRefused, match="mu must be positive"):
                party().handle(ConsentRequest(replace(asked, mu=wrong)))
    for shape in (asked.mu[0], asked.mu[:2], np.empty(0)):
        with pytest.raises(PolicyRefused, match="mu must be positive"):
            party().handle(ConsentRequest(replace(asked, mu=shape)))


def test_what_a_policy_does_not_name_is_not_had_under_another_name() -> None:
    here = party(policy=Policy(methods=("vcds",)))
    with pytest.raises(PolicyRefused, match="does not take part in method 'strict'"):
        here.handle(consent(ORDERS, 0.1))
    for asked in (MARGINS, SumsKeyRequest(STUDY, "strict")):
        with pytest.raises(PolicyRefused, match="does not take part in method 'strict'"):
            here.handle(asked)
        with pytest.raises(ProtocolError, match="belongs to method 'strict'"):
            here.handle(replace(asked, method="vcds"))


def test_margins_are_on_the_ledger_before_they_are_drawn_and_made_once() -> None:
    known: list[int] = []

    class Watching(NoNoise):
        def discrete_gaussian(self, values: Any, scale: float, *label: str) -> Any:
            known.append(len(here.control.ledger))
            return super().discrete_gaussian(values, scale, *label) + np.random.default_rng().integers(99)

    here = party(noise=Watching())
    first, again = here.handle(MARGINS), here.handle(MARGINS)
    assert encode(first) == encode(again)
    assert known == [2, 2]
    assert [(e.column, e.what) for e in here.control.ledger] == [("y", "marginal"), ("x1", "marginal")]
    with pytest.raises(ProtocolError, match="margins in this study already"):
        here.handle(replace(MARGINS, queries=(MarginQuery("y", 50.0), MarginQuery("x1", 70.0))))
    assert len(here.control.ledger) == 2
    here.handle(replace(MARGINS, study="another"))
    assert len(here.control.ledger) == 4


def test_two_cells_say_one_number() -> None:
    reply = party().handle(MARGINS)
    assert isinstance(reply, GaussianMarginsReply)
    assert reply.cells[0].shape == (2,)
    assert reply.cells[0].sum() == TABLES["left"].height


# ---- the plan --------------------------------------------------------------------------------


def test_the_ledgers_say_what_was_opened_at_every_unit() -> None:
    parties = make_parties()
    opened = release(parties)
    entries, plan = [entry for name in NAMES for entry in parties[name].control.ledger], opened.plan.sums
    for name in NAMES:
        (moments,) = [e for e in parties[name].control.ledger if e.what == "gram"]
        (tables,) = [e for e in parties[name].control.ledger if e.what == "tables"]
        selection = [e for e in parties[name].control.ledger if e.what == "selection"]
        assert {e.column for e in (moments, tables, *selection)} == {ALL_COLUMNS}
        assert moments.mu == pytest.approx(plan.mu * block_factor(plan, name), rel=1e-12)
        assert moments.mu_person == pytest.approx(plan.mu, rel=1e-12)
        assert (tables.mu, tables.mu_person) == pytest.approx((plan.mu_tables,) * 2, rel=1e-12)
        assert [e.mu for e in selection] == pytest.approx([selection_mu(plan, name)] * (name != "middle"), rel=1e-12)
    for what in ("gram", "tables"):
        (joint,) = {entry.joint for entry in entries if entry.what == what}
        again = make_parties()
        release(again)
        others = {entry.joint for entry in again["left"].control.ledger if entry.what in ("gram", "tables")}
        assert joint not in others  # the same study and plan, other keys: another release
        assert len(others) == 2
    assert 4.0 * (1.0 - 1e-6) < state_privacy(entries, 1e-6).person <= 4.0 * (1.0 + 1e-9)
    assert all(own.block < 4.0 for own in state_privacy(entries, 1e-6).parties.values())


@pytest.mark.parametrize("epsilons", [{}, {"left": 1.0, "right": 6.0}], ids=["equal", "own"])
def test_unit_block_gives_every_party_its_own_budget_and_none_more(epsilons: dict[str, float]) -> None:
    named = FEDERATION.to_dict()
    for own in named["party"]:
        own |= {"epsilon": epsilons[own["name"]]} if own["name"] in epsilons else {}
    federation = type(FEDERATION).from_dict(named)
    parties = make_parties(federation=federation)
    release(parties, budget=request(3.0, "block", federation))
    for name in NAMES:
        block = state_privacy(parties[name].control.ledger, 1e-6).parties[name].block
        assert block <= epsilons.get(name, 3.0) * (1 + 1e-9)
        assert block >= 0.2 * epsilons.get(name, 3.0)  # the margins' part is spent in full


class Replacing(Recorded):
    """A coordinator that asks for something else than it should."""

    def __init__(self, parties: Any, change: Callable[[Any], Any], kind: type) -> None:
        super().__init__(parties)
        self._change, self._kind = change, kind

    def deliver(self, requests: Any) -> dict[str, Reply]:
        return super().deliver({n: self._change(r) if isinstance(r, self._kind) else r for n, r in requests.items()})


def with_plan(change: Callable[[SumsPlan], SumsPlan]) -> Callable[[SumsShareRequest], SumsShareRequest]:
    return lambda asked: replace(asked, plan=change(asked.plan))


def test_a_plan_with_more_mu_than_was_reviewed_is_priced_for_real() -> None:
    def louder(plan: SumsPlan) -> SumsPlan:
        return replace(plan, mu=3.0 * plan.mu)

    capped = make_parties(own={"middle": {"policy": Policy(methods=("strict",), caps=Caps(block=4.0))}})
    with pytest.raises(BudgetExceeded, match="'middle'"):
        release(capped, Replacing(capped, with_plan(louder), SumsShareRequest))
    assert {e.what for e in capped["middle"].control.ledger} == {"marginal"}
    record = capped["middle"]._strict.records.get(f"sums/middle/{STUDY}")
    assert record is not None
    assert record["plan"] == ""


def test_a_plan_with_a_longer_part_is_priced_for_real() -> None:
    """Left's part becomes nearly all of the record, so its block moves the sums by as much as a person."""

    def longer(plan: SumsPlan) -> SumsPlan:
        own = len(own_features(plan, "left"))
        return replace(plan, features=(*(2 * t for t in plan.features[:own]), *(t // 30 for t in plan.features[own:])))

    parties = make_parties()
    with pytest.raises(VerticopulaError):  # the coordinator itself goes on with another plan
        release(parties, Replacing(parties, with_plan(longer), SumsShareRequest))
    (moments,) = [e for e in parties["left"].control.ledger if e.what == "gram"]
    assert moments.mu == moments.mu_person


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: replace(plan, pattern_of=plan.pattern_of[:-1]),
        lambda plan: replace(plan, pattern_of=np.roll(plan.pattern_of, 1)),
        lambda plan: replace(plan, n_columns=(1, 2, 2)),
        lambda plan: replace(plan, n_columns=(3, *plan.n_columns[1:])),
        lambda plan: replace(plan, parties=("left", "someone", "right")),
        lambda plan: replace(plan, mu=0.0),
        lambda plan: replace(plan, mu=math.nan),
        lambda plan: replace(plan, mu_tables=math.inf),
        lambda plan: replace(plan, bits=30),
        lambda plan: replace(plan, features=tuple(table * 10**6 for table in plan.features)),
        lambda plan: replace(plan, features=tuple(table[::2] for table in plan.features)),
        lambda plan: replace(plan, groups=tuple(groups[:-1] for groups in plan.groups)),
        lambda plan: replace(plan, weights=np.where(plan.weights > 0, plan.weights, 1)),
    ],
    ids=[
        "cohort",
        "people",
        "columns",
        "other columns",
        "names",
        "no mu",
        "nan",
        "tables' mu",
        "bits",
        "overflow",
        "fewer cells",
        "fewer public cells",
        "people who are not known",
    ],
)
def test_plans_that_do_not_fit_are_refused(change: Callable[[SumsPlan], SumsPlan]) -> None:
    parties = make_parties()
    with pytest.raises(VerticopulaError):
        release(parties, Replacing(parties, with_plan(change), SumsShareRequest))


def test_a_plan_about_another_cohort_costs_nothing() -> None:
    parties = make_parties()
    longer = with_plan(lambda plan: replace(plan, pattern_of=np.append(plan.pattern_of, 0)))
    with pytest.raises(ProtocolError, match="another cohort"):
        release(parties, Replacing(parties, longer, SumsShareRequest))
    assert {entry.what for party in parties.values() for entry in party.control.ledger} == {"marginal"}


def test_what_cells_stand_for_is_what_the_noise_is_chosen_for() -> None:
    """Longer scores of one party's cells mean more noise: there is no bound apart from them that could be too small."""
    plan = release(make_parties()).plan.sums
    for longer in (
        replace(plan, features=(10 * plan.features[0], *plan.features[1:])),
        replace(plan, weights=plan.weights * [3, 1, 1]),
    ):
        assert longer.bound > plan.bound
        assert (share_scales(longer) > share_scales(plan)).all()


def add_party(plan: SumsPlan, name: str, width: int) -> SumsPlan:
    """The plan with one more party, whose part of every record is long."""
    weights = np.column_stack([plan.weights, np.full(len(plan.weights), 9)])
    more = replace(plan, parties=(*plan.parties, name), n_columns=(*plan.n_columns, width), weights=weights)
    more = replace(more, selecting=np.append(plan.selecting, False), base=np.append(plan.base, True))
    tables, groups = (np.full((2, 1), 1000),) * width, (np.arange(2),) * width
    return replace(more, features=plan.features + tables, groups=plan.groups + groups)


def widen_right(plan: SumsPlan) -> SumsPlan:
    """The plan with one more column of a party that takes part."""
    tables, groups = (*plan.features, plan.features[-1]), (*plan.groups, plan.groups[-1])
    return replace(plan, n_columns=(*plan.n_columns[:-1], plan.n_columns[-1] + 1), features=tables, groups=groups)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda plan: add_party(plan, COORDINATOR, 200), "other parties or columns"),
        (widen_right, "other parties or columns"),
        (lambda plan: replace(plan, compute=("left", "middle", COORDINATOR)), "other compute parties"),
        (lambda plan: replace(plan, compute=("middle", "left", "right")), "other compute parties"),
    ],
    ids=["a party of its own", "a column more", "computes itself", "another order"],
)
def test_roles_in_secure_sums_come_from_the_partys_own_federation_file(
    change: Callable[[SumsPlan], SumsPlan], said: str
) -> None:
    """A coordinator that adds itself reads everybody's scores from products with columns of its choice."""
    parties = make_parties()
    way = Replacing(parties, with_own_key(with_plan(change)), SumsShareRequest)
    with pytest.raises(ProtocolError, match=said):
        release(parties, way)
    assert all({e.what for e in party.control.ledger} == {"marginal"} for party in parties.values())
    assert not any(b"SumsShareReply" in data[:200] for _, data in way.answered)


def with_own_key(change: Callable[[SumsShareRequest], SumsShareRequest]) -> Callable[[SumsShareRequest], Any]:
    """The same with a well-signed key of the coordinator's, where the changed plan has it take part."""

    def run(asked: SumsShareRequest) -> SumsShareRequest:
        changed = change(asked)
        if COORDINATOR not in {*changed.plan.parties, *changed.plan.compute}:
            return changed
        own = SealedChannel(STUDY, COORDINATOR, bytes(32), shared_authenticity(KEY)).sign_public_key()
        return replace(changed, keys=(*changed.keys, own))

    return run


def test_a_party_without_a_federation_file_takes_no_part_in_secure_sums() -> None:
    with pytest.raises(ProtocolError, match="no federation file"):
        release(make_parties(own={"middle": {"federation": None}}))


def test_a_policy_that_is_tightened_after_the_keys_holds_for_the_shares() -> None:
    parties = make_parties()

    def tighten(asked: SumsShareRequest) -> SumsShareRequest:
        parties["left"].control.policy = Policy(columns=("y",))
        return asked

    with pytest.raises(PolicyRefused, match="does not share column 'x1'"):
        release(parties, Replacing(parties, tighten, SumsShareRequest))
    assert {entry.what for entry in parties["left"].control.ledger} == {"marginal"}


def test_no_sums_before_margins_and_none_without_a_key() -> None:
    plan = release(make_parties()).plan.sums
    parties = make_parties()
    keys = tuple(parties[name].handle(SumsKeyRequest(STUDY, "strict")).key for name in NAMES)  # type: ignore[union-attr]
    with pytest.raises(ProtocolError, match="no margins in this study"):
        parties["left"].handle(SumsShareRequest(STUDY, "strict", plan, keys))
    assert len(parties["left"].control.ledger) == 0
    with pytest.raises(ProtocolError, match="no key to sign with"):
        party(authenticity=None).handle(SumsKeyRequest(STUDY, "strict"))


# ---- replies that do not fit -----------------------------------------------------------------


class Tampering(Recorded):
    """Changes the middle party's replies on the way."""

    def __init__(self, parties: Any, change: Callable[[Any], Any], kind: type) -> None:
        super().__init__(parties)
        self._change, self._kind = change, kind

    def deliver(self, requests: Any) -> dict[str, Reply]:
        replies = super().deliver(requests)
        return {n: self._change(r) if n == "middle" and isinstance(r, self._kind) else r for n, r in replies.items()}


def cells(change: Callable[[Any], Any]) -> tuple[Callable[[Any], Any], type]:
    return lambda reply: replace(reply, cells=tuple(change(c) for c in reply.cells)), GaussianMarginsReply


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        cells(lambda c: c[:-1]),
        cells(lambda c: c[None]),
        cells(lambda c: c + 10**9),
        cells(lambda c: c - 10**9),
        cells(lambda c: c.astype(np.float64)),
        (lambda reply: replace(reply, cells=()), GaussianMarginsReply),
        (lambda reply: replace(reply, boxes=reply.boxes[:-1]), SumsShareReply),
        (lambda reply: replace(reply, boxes=tuple(b[:-1] for b in reply.boxes)), SumsShareReply),
        (lambda reply: replace(reply, boxes=tuple(b + b"0" for b in reply.boxes)), SumsShareReply),
        (lambda reply: replace(reply, body=reply.body[:-8]), SumsShareReply),
        (lambda reply: replace(reply, body=reply.body.reshape(-1, 8)), SumsShareReply),
        (lambda reply: replace(reply, body=np.zeros_like(reply.body)), SumsShareReply),
        (lambda reply: replace(reply, body=np.full_like(reply.body, 0xFF)), SumsShareReply),
        (lambda reply: replace(reply, boxes=reply.boxes[:-1]), SumsProofReply),
        (lambda reply: replace(reply, boxes=reply.boxes[::-1]), SumsProofReply),
        (lambda reply: replace(reply, lacks_bodies=True, boxes=()), SumsProofReply),
        (lambda reply: replace(reply, selection=np.ones((1, 1), dtype=np.int64)), SumsShareReply),
        (lambda reply: replace(reply, term=reply.term[:-1]), SumsReply),
        (lambda reply: replace(reply, term=reply.term[None]), SumsReply),
        (lambda reply: replace(reply, term=reply.term.astype(np.float64)), SumsReply),
        (lambda reply: replace(reply, term=reply.term[:-1]), TablesReply),
    ],
)
def test_replies_of_the_wrong_shape_type_or_range_are_errors(change: Callable[[Any], Any], kind: type) -> None:
    parties = make_parties(ONE_TABLE)
    budget = request(9e3)
    assert release(make_parties(ONE_TABLE), budget=budget).opened.tables
    with pytest.raises((ProtocolError, WireError)):
        release(parties, Tampering(parties, change, kind), budget)


# ---- crashes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("who", "lost"),
    [("middle", 4), *(("left", k) for k in range(5, 15))],
    ids=["margins", "keys", *STEPS, "sums", "tables"],
)
def test_a_party_that_drops_out_comes_back_with_the_same_noise(who: str, lost: int, tmp_path: Path) -> None:
    """Everybody is started anew on its vault; what was drawn is the same, and is paid for once."""
    with open_vaults(tmp_path) as vaults:
        parties = make_parties(ONE_TABLE, vaults=vaults)
        with pytest.raises(PartyUnavailable, match=who):
            release(parties, Dropping(parties, who, lost), request(9e3))
    with open_vaults(tmp_path) as vaults:
        again = make_parties(ONE_TABLE, vaults=vaults)
        first = release(again, budget=request(9e3))
        entries = {name: len(again[name].control.ledger) for name in NAMES}
        assert first.opened.tables
        assert entries == {"left": 5, "middle": 3, "right": 5}
        assert same(first, release(again, budget=request(9e3)))
        assert entries == {name: len(again[name].control.ledger) for name in NAMES}


def test_who_has_lost_its_secret_pays_again(tmp_path: Path) -> None:
    """Other noise about the same people is another release; the others refuse it anyway."""
    with open_vaults(tmp_path) as vaults:
        release(make_parties(vaults=vaults))
        name = hashlib.sha256(f"sums/left/{STUDY}".encode()).hexdigest()
        (vaults["left"].folder / "studies" / f"{name}.bin").unlink()
        parties = make_parties(vaults=vaults)
        with pytest.raises(ProtocolError, match="other keys"):
            release(parties)
        openings = ["gram", "tables", "selection"]
        assert [e.what for e in parties["left"].control.ledger] == ["marginal", "marginal", *openings, *openings]


@pytest.mark.parametrize("lost", [6, 12], ids=["before shares", "before sums"])
def test_records_of_studies_put_back_from_an_old_copy_are_refused(lost: int, tmp_path: Path) -> None:
    """Secret and keys are old ones, so is what was paid; the noise would be new, and free."""
    old, now = tmp_path / "old", tmp_path / "left" / "studies"
    with open_vaults(tmp_path) as vaults:
        parties = make_parties(vaults=vaults)
        with pytest.raises(PartyUnavailable, match="left"):
            release(parties, Dropping(parties, "left", lost))
        shutil.copytree(now, old)
        first = release(parties)
    shutil.rmtree(now)
    shutil.copytree(old, now)
    with pytest.raises(LedgerError, match="records of studies"), open_vaults(tmp_path) as vaults:
        _check_same(first, make_parties(vaults=vaults))


def _check_same(first: StrictReleases, parties: dict[str, LocalParty]) -> None:
    """What would happen otherwise."""
    spent = len(parties["left"].control.ledger)
    again = release(parties)
    assert same(first, again) or len(parties["left"].control.ledger) > spent, "other noise, and nothing was charged"


def test_without_a_vault_a_new_process_pays_again() -> None:
    parties = make_parties()
    release(parties)
    ledger = parties["left"].control.ledger
    reborn = make_parties(own={"left": {"ledger": ledger}})
    release(reborn)
    assert len(ledger) == 10


def test_one_silent_compute_party_leaves_the_promised_noise() -> None:
    """Noise of two shares: two thirds of the variance that three honest ones leave, as the plan's mu needs it."""
    parties = make_parties(ONE_TABLE, own={"middle": {"noise": NoNoise()}})
    opened = release(parties, budget=request(9e3))
    plan, gram = opened.plan.sums, opened.opened.gram
    gap = gram.matrix - exact_products(parties, plan)
    upper = np.triu_indices(plan.width, 1)
    diagonal = math.sqrt(1.5) * gram_scales(plan.bound, plan.mu)[1] / 4.0**plan.bits
    found = [*gap[upper] / gram.deviation_off, *np.diag(gap) / diagonal]
    assert len(found) > 20
    assert kstest(np.array(found) * math.sqrt(1.5), "norm").pvalue > 1e-4
    codes = np.full((plan.pattern_of.size, len(plan.features)), -1)
    for name in NAMES:
        rows = own_rows(plan, name)
        codes[np.ix_(rows, np.array(own_columns(plan, name)))] = cells_of(parties[name], plan)
    for table in opened.opened.tables:
        exact = np.zeros(table.counts.shape)
        both = (codes[:, list(table.pair)] >= 0).all(axis=1)
        np.add.at(exact, tuple(codes[both][:, list(table.pair)].T), 1.0)
        errors = (table.counts - exact).ravel() / table.deviation * math.sqrt(1.5)
        assert kstest(errors, "norm").pvalue > 1e-4


def exact_products(parties: dict[str, LocalParty], plan: SumsPlan) -> np.ndarray:
    """Of the integers that the parties shared, which nobody but a test can have."""
    parts = []
    for name in plan.parties:
        rows, own = own_rows(plan, name), integers_of(parties[name], plan)
        whole = np.zeros((rows.size, own.shape[1]))
        whole[rows] = own
        parts.append(whole)
    records = np.column_stack(parts)
    return np.asarray(records.T @ records / 4.0**plan.bits)


def test_presence_and_requests_of_another_version_are_refused() -> None:
    here = party()
    asked: list[Request] = [PresenceRequest(STUDY, "strict", version=9), replace(MARGINS, version=9)]
    for request_ in asked:
        with pytest.raises(VerticopulaError, match="9"):
            here.handle(request_)
