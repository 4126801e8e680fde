"""Who is who, on one organisation's side: places in the cohort, and alignment without a common key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tests.agreements import place_request, sign_points
from tests.privacy.member_study import (
    RELEASE,
    N,
    answered,
    federation,
    member,
    opening,
    place_of,
    placed,
    tables,
)
from verticopula import Policy
from verticopula.data.id_checks import normalise_ids
from verticopula.errors import PolicyRefused, ProtocolError, SchemaError
from verticopula.matching.private_intersection import points_digest, points_of
from verticopula.privacy.policy_file import PolicyFile
from verticopula.protocol.study_messages import MaskReply, MaskRequest, PlaceRequest, SignedPoints

# ---- places ------------------------------------------------------------------------------


def shifted(positions: NDArray[np.int64], by: int) -> NDArray[np.int64]:
    return positions + by


@pytest.mark.parametrize(
    ("n_subjects", "positions", "words"),
    [
        (N, np.zeros(100, dtype=np.int64), "same place"),
        (N, np.r_[np.arange(99), 98], "same place"),
        (N, np.arange(100) - 1, "outside"),
        (N, np.arange(100) + 21, "outside"),
        (N, np.arange(100) + 2**40, "outside"),
        (N, np.arange(99), "each of its 100 rows"),
        (N, np.arange(101), "each of its 100 rows"),
        (N, np.arange(100).reshape(10, 10), "each of its 100 rows"),
        (N, np.arange(100).astype(np.float64), "each of its 100 rows"),
        (N, np.arange(100).astype(np.int32), "each of its 100 rows"),
        (99, np.arange(100), "cannot have this size"),
        (0, np.arange(100), "cannot have this size"),
        (-1, np.arange(100), "cannot have this size"),
        (10**12, np.arange(100), "cannot have this size"),
        (True, np.arange(100), "cannot have this size"),
        (10_000_000, np.arange(100), "a hash for each subject"),
    ],
)
def test_places_that_cannot_be_are_refused(n_subjects: int, positions: Any, words: str) -> None:
    one = member()
    one.handle(opening())
    with pytest.raises(ProtocolError, match=words):
        one.handle(PlaceRequest("study", n_subjects, positions, np.zeros((N, 16), dtype=np.uint8)))
    with pytest.raises(ProtocolError, match="no cohort yet"):
        one.handle(RELEASE)


def test_the_response_partys_subjects_are_the_cohort() -> None:
    one = member("left")
    one.handle(opening())
    with pytest.raises(ProtocolError, match="its own 120 subjects are the cohort"):
        one.handle(PlaceRequest("study", N + 1, np.arange(N), np.zeros((N + 1, 16), dtype=np.uint8)))


def test_a_settled_cohort_stays() -> None:
    one = placed()
    again = place_of(answered(one.handle(opening())))
    one.handle(again)
    opened = answered(one.handle(opening()))
    with pytest.raises(ProtocolError, match="settled"):
        one.handle(place_request("study", opened.hashes, shifted(again.positions, 1), N))
    with pytest.raises(ProtocolError, match="settled"):
        one.handle(place_request("study", opened.hashes, again.positions, N + 1))


def test_rows_in_other_places_than_the_list_says_are_found() -> None:
    one = member()
    right = place_of(answered(one.handle(opening())))
    swapped = right.positions.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    with pytest.raises(ProtocolError, match="other subjects in the places of its rows"):
        one.handle(replace(right, positions=swapped))
    twice = right.hashes.copy()
    free = np.setdiff1d(np.arange(N), right.positions)[0]
    twice[free] = twice[right.positions[0]]
    with pytest.raises(ProtocolError, match="twice in the cohort's list"):
        one.handle(replace(right, hashes=twice))
    with pytest.raises(ProtocolError, match="a hash for each subject"):
        one.handle(replace(right, hashes=right.hashes[:-1]))
    one.handle(right)


# ---- alignment without a key -------------------------------------------------------------


def masking(origin: str = "third", n: int = 110, **changes: Any) -> MaskRequest:
    """Points that `origin` signed, of a cohort of N that the left party signed."""
    points = changes.pop("points", points_of(pl.Series([f"guess {i}" for i in range(n)]), "study"))
    signed = sign_points(federation(), "study", (origin,), points)
    cohort = sign_points(federation(), "study", ("left",), points_of(pl.Series([f"s{i}" for i in range(N)]), "study"))
    return replace(MaskRequest("study", origin, points, signed=signed, cohort=cohort), **changes)


def test_a_party_without_a_key_does_not_send_hashes() -> None:
    with pytest.raises(PolicyRefused, match="has no id key"):
        member(key=None).handle(opening())


def test_masked_points_show_nothing_that_a_dictionary_could_find() -> None:
    one = member(key=None)
    sent = {bytes(row) for row in answered(one.handle(opening(alignment="psi"))).hashes}
    ids = normalise_ids(tables()["right"]["subject_id"], federation().id)
    assert sent.isdisjoint(bytes(row) for row in points_of(ids, "study"))
    other = {bytes(row) for row in answered(member(key=None).handle(opening(alignment="psi"))).hashes}
    assert sent.isdisjoint(other)  # another mask, with the same table
    again = answered(one.handle(opening(alignment="psi")))
    assert sent == {bytes(row) for row in again.hashes}
    assert [bytes(row) for row in again.hashes] == sorted(sent)


def test_one_list_a_party_is_masked_and_none_after_the_cohort_is_settled() -> None:
    one = member(key=None)
    with pytest.raises(ProtocolError, match="was not asked to open"):
        one.handle(masking())
    opened = answered(one.handle(opening(alignment="psi")))
    first, second = one.handle(masking()), one.handle(masking())
    assert isinstance(first, MaskReply)
    assert isinstance(second, MaskReply)
    np.testing.assert_array_equal(first.points, second.points)
    with pytest.raises(ProtocolError, match="has masked another list"):
        one.handle(masking(n=109))
    one.handle(place_of(opened))
    with pytest.raises(ProtocolError, match="no longer"):
        one.handle(masking("left", 120))
    one.handle(masking())  # a late copy


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (masking("right"), "other parties only"),
        (masking("nobody"), "other parties only"),
        (masking("left", 99), "cannot have so many"),  # the cohort is not smaller than one of its parties
        (masking(points=np.empty((0, 32), dtype=np.uint8)), "cannot have so many"),
        (masking(points=np.ones((5, 31), dtype=np.uint8)), "32 bytes"),
        (masking(points=np.ones(32, dtype=np.uint8)), "32 bytes"),
        (masking(points=np.ones((5, 32), dtype=np.int64)), "32 bytes"),
        (masking(points=np.zeros((5, 32), dtype=np.uint8)), "is none"),
    ],
)
def test_points_that_cannot_be_are_not_masked(request_: MaskRequest, words: str) -> None:
    one = member(key=None)
    one.handle(opening(alignment="psi"))
    with pytest.raises(ProtocolError, match=words):
        one.handle(request_)


def test_the_cohorts_party_masks_no_list_longer_than_its_own() -> None:
    one = member("left", key=None)
    one.handle(opening(alignment="psi"))
    one.handle(masking(n=N))
    with pytest.raises(ProtocolError, match="cannot have so many"):
        one.handle(masking("right", N + 1))


def test_no_list_is_longer_than_the_cohort_that_its_party_signed() -> None:
    one = member(key=None)
    one.handle(opening(alignment="psi"))
    with pytest.raises(ProtocolError, match="cannot have so many"):
        one.handle(masking(n=N + 1))
    one.handle(masking(n=N))


def _forged(signed: SignedPoints | None, **changes: Any) -> SignedPoints:
    assert signed is not None
    return replace(signed, **changes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda asked: replace(asked, signed=None), "not signed by a party"),
        (lambda asked: replace(asked, signed=_forged(asked.signed, signature=b"")), "not signed by a party"),
        (lambda asked: replace(asked, signed=_forged(asked.signed, masked_by=("left",))), "not signed by a party"),
        (lambda asked: replace(asked, signed=_forged(asked.signed, masked_by=())), "not signed by a party"),
        (lambda asked: replace(asked, signed=_forged(asked.signed, masked_by=("third", "left"))), "not signed"),
        (lambda asked: replace(asked, origin="left"), "not signed by a party"),
        (lambda asked: replace(asked, points=asked.points[::-1].copy()), "other points of 'third' were signed"),
        (lambda asked: replace(asked, points=asked.points[:-1]), "other points of 'third' were signed"),
        (lambda asked: replace(asked, cohort=None), "size is not signed by 'left'"),
        (lambda asked: replace(asked, cohort=asked.signed), "size is not signed by 'left'"),
        (lambda asked: replace(asked, cohort=_forged(asked.cohort, count=10**6)), "size is not signed by 'left'"),
    ],
)
def test_points_that_no_other_party_signed_are_not_masked(
    change: Callable[[MaskRequest], MaskRequest], words: str
) -> None:
    one = member(key=None)
    one.handle(opening(alignment="psi"))
    with pytest.raises(ProtocolError, match=words):
        one.handle(change(masking(n=120)))
    assert isinstance(one.handle(masking(n=120)), MaskReply)


def test_points_that_were_signed_for_another_study_or_by_the_party_itself_are_not_masked() -> None:
    one = member(key=None)
    opened = answered(one.handle(opening(alignment="psi")))
    asked = masking(n=120)
    for signed in (
        sign_points(federation(), "another", ("third",), asked.points),
        sign_points(federation(name="another"), "study", ("third",), asked.points),
        sign_points(federation(), "study", ("third", "right"), asked.points),
        sign_points(federation(), "study", ("third", "third"), asked.points),
    ):
        with pytest.raises(ProtocolError, match="not signed by a party"):
            one.handle(replace(asked, signed=signed))
    own = SignedPoints(("right",), opened.hashes.shape[0], points_digest(opened.hashes), opened.signature)
    with pytest.raises(ProtocolError, match="not signed by a party"):
        one.handle(replace(asked, points=opened.hashes, signed=own))


def test_the_cohort_has_the_size_that_was_signed() -> None:
    one = member(key=None)
    opened = answered(one.handle(opening(alignment="psi")))
    one.handle(masking())
    with pytest.raises(ProtocolError, match="another size than was signed"):
        one.handle(place_of(opened, N + 1))
    one.handle(place_of(opened))


def test_a_policy_may_refuse_a_way_of_alignment(tmp_path: Path) -> None:
    path = tmp_path / "right.toml"
    path.write_text('alignments = ["hash"]\n')
    with pytest.raises(PolicyRefused, match="aligned by 'psi'"):
        member(policy=PolicyFile(path, "right")).handle(opening(alignment="psi"))
    answered(member(policy=PolicyFile(path, "right")).handle(opening()))
    path.write_text('alignments = ["hash", "psi"]\n')
    one = member(policy=PolicyFile(path, "right"))
    answered(one.handle(opening(alignment="psi")))
    path.write_text('alignments = ["hash"]\n')  # while the study is open
    with pytest.raises(PolicyRefused, match="aligned by 'psi'"):
        one.handle(masking(n=120))
    with pytest.raises(SchemaError, match="alignments"):
        Policy.from_text('alignments = ["names"]', "right.toml")


def test_nothing_is_masked_in_a_study_aligned_by_hashes() -> None:
    one = member()
    one.handle(opening())
    with pytest.raises(ProtocolError, match="nothing is to be masked"):
        one.handle(masking())
