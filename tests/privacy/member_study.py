"""A small study of three organisations, with planted values, for tests of one organisation's side of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

from tests.agreements import agree, place_request, proposal_of
from tests.builders import CONTINUOUS, make_federation
from tests.members import KEY, make_member
from verticopula import Federation, Policy
from verticopula.protocol.consent_messages import StudyProposal
from verticopula.protocol.messages import Reply
from verticopula.protocol.party.member import Member
from verticopula.protocol.rank_messages import ColumnQuery, ReleaseRequest
from verticopula.protocol.study_messages import BeginReply, BeginRequest, PlaceRequest
from verticopula.protocol.study_proposal import StudyContext, federation_fingerprint

N = 120
NUMBER = 7.123456789012345
ID = "zq-canary-4711"
WORD = "zqcanaryword"
RAW = Policy(allow_seeded=True, methods=("raw-glm", "vcds"))


def federation(**changes: Any) -> Federation:
    made = make_federation(
        {
            "left": {"y": {"kind": "binary"}, "a": CONTINUOUS},
            "right": {
                "n": {"kind": "count", "bounds": [0, 50]},
                "g": {"kind": "nominal", "categories": ["u", "v", WORD]},
            },
            "third": {"o": {"kind": "ordinal", "categories": [10, 20, 30]}, "z": CONTINUOUS},
        }
    )
    return Federation.from_dict({**made.to_dict(), **changes})


def tables() -> dict[str, pl.DataFrame]:
    """Blocks and cells missing, rows in any order, one planted subject."""
    rng = np.random.default_rng(8)
    ids = np.array([ID if i == 3 else f"s{i}" for i in range(N)])
    a = np.clip(rng.normal(size=N), -7, 7)
    a[3] = NUMBER
    y = (a + rng.normal(size=N) > 0).astype(int)
    n, z = rng.poisson(4, N) + y, a + rng.normal(size=N)
    z[3] = -NUMBER
    g = np.array(["u", "v", WORD])[rng.integers(0, 3, N)]
    o = np.array([10, 20, 30])[rng.integers(0, 3, N)]
    full = {
        "left": pl.DataFrame({"subject_id": ids, "y": y, "a": a}),
        "right": pl.DataFrame({"subject_id": ids, "n": n, "g": g})[:100],
        "third": pl.DataFrame({"subject_id": ids, "o": o, "z": z})[np.r_[0:10, 30:N]],
    }
    full["right"] = full["right"].with_columns(pl.when(pl.col("n") == 9).then(None).otherwise(pl.col("n")).alias("n"))
    return {name: frame.sample(fraction=1.0, shuffle=True, seed=len(name)) for name, frame in full.items()}


class FromWhere(NamedTuple):
    """A way of alignment, and the key that goes with it."""

    alignment: Any
    key: bytes | None


WAYS = [FromWhere("hash", KEY), FromWhere("psi", None)]
BY_WAY = pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way.alignment))


def opening(study: str = "study", **changes: Any) -> BeginRequest:
    asked = BeginRequest(study, "vcds", federation_fingerprint(federation()), "hash", None, 0, "")
    return replace(asked, **changes)


def member(name: str = "right", **settings: Any) -> Member:
    return make_member(federation(), name, tables()[name], **settings)


def answered(reply: Reply) -> BeginReply:
    assert isinstance(reply, BeginReply)
    return reply


def place_of(opened: BeginReply, n_subjects: int = N) -> PlaceRequest:
    return place_request("study", opened.hashes, np.arange(opened.hashes.shape[0])[::-1].copy(), n_subjects)


def proposal_for(one: Member, study: str = "study", **changes: Any) -> StudyProposal:
    """What a coordinator would propose in a study in which the member is placed."""
    raw = one.vault.studies.get(f"study:{one.name}/{study}")
    assert raw is not None
    context = StudyContext(*(raw[name] for name in ("requester", "purpose", "alignment", "cohort", "seed")))
    return proposal_of(one, one.name, federation(), **{"study": study, "context": context, **changes})


def agree_in(one: Member, study: str = "study", **changes: Any) -> Member:
    """The member, once everybody has consented to releases such as RELEASE."""
    agree(one, one.name, proposal_for(one, study, **changes))
    return one


def placed(**settings: Any) -> Member:
    """A member whose rows are placed in the cohort; nobody has consented to anything."""
    one = member(**settings)
    one.handle(place_of(answered(one.handle(opening()))))
    return one


def ready(**settings: Any) -> Member:
    """A member of a study to which everybody has consented."""
    return agree_in(placed(**settings))


RELEASE = ReleaseRequest("study", "vcds", "exact", (ColumnQuery("n", 1.0, 1.0), ColumnQuery("g", 1.0, 1.0)))
