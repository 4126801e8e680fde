"""Which exact sums over a party's columns say something about one of its people, and are not made.

Sums are exact, so four things would tell single values. Few people in a sum. Few people in a category: its indicator
is 1 for them alone, and products with it are sums over them. One person who stands out in a combination of columns,
such as the difference of two that are equal but for this person. And few people for many columns: a matrix of products
has no more independent columns than it is about people, and the people's rows can then be computed from it.

A party can look at its own columns alone. Two columns of two parties that are equal but for one person are not found.

Whether a sum is made depends on the data. So a party answers one request in a study, refused or not, and its reason
holds no number of people.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import PolicyRefused
from verticopula.glm.feature_design import Features
from verticopula.privacy.policy import FEWEST_IN_CATEGORY, LARGEST_LEVERAGE, ROWS_PER_COLUMN

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROUNDING = 32.0 * np.finfo(np.float64).eps  # of products of columns with squares that add up to 1, for each column


def check_subjects_in_sums(party: str, parts: Sequence[Ints], fewest: int) -> None:
    """PolicyRefused where a sum is over fewer subjects than the party's policy asks for.

    Parameters
    ----------
    party : for the message
    parts : the rows of each sum
    fewest : as the policy says
    """
    if min(map(len, parts)) < fewest:
        raise PolicyRefused(
            f"party {party!r}: a sum is over fewer subjects than its policy asks for; ask for fewer folds"
        )


def check_columns_in_sums(party: str, parts: Sequence[Ints], n_columns: int) -> None:
    """PolicyRefused where sums are of so many columns that rows would follow from them.

    Parameters
    ----------
    party, parts : as `check_subjects_in_sums` has them
    n_columns : whose products are known
    """
    if min(map(len, parts)) < ROWS_PER_COLUMN * n_columns:
        raise PolicyRefused(
            f"party {party!r}: exact sums of {n_columns} columns need {ROWS_PER_COLUMN} subjects for each column, in "
            "every fold; ask for fewer folds, or use a federation file with fewer columns"
        )


def check_categories_in_sums(party: str, features: Features, response: Floats | None, parts: Sequence[Ints]) -> None:
    """PolicyRefused where a category has some subjects in a sum, but so few that products with it tell their values.

    A column that has one value for nearly everybody counts as a category, too.

    Parameters
    ----------
    party, parts : as `check_subjects_in_sums` has them
    features, response : of all rows
    """
    columns = [*features.values.T, *_first_categories(features), *([] if response is None else [response])]
    if any(_sets_few_apart(column[rows]) for column in columns for rows in parts):
        raise PolicyRefused(
            f"party {party!r}: too few subjects for exact sums have a category of one of its columns, in a fold or in "
            "all; ask for fewer folds, or join rare categories in the federation file"
        )


def check_people_in_sums(party: str, values: Floats, parts: Sequence[Ints]) -> None:
    """PolicyRefused where a combination of columns is nearly that of one subject alone.

    A subject's leverage is the largest share that it has in the sum of squares of any combination.

    Parameters
    ----------
    party, parts : as `check_subjects_in_sums` has them
    values : (n, c) all columns
    """
    if any(_largest_leverage(values[rows]) > LARGEST_LEVERAGE for rows in parts):
        raise PolicyRefused(
            f"party {party!r}: one subject stands out in a combination of its columns, in a fold or in all, and exact "
            "sums would tell its values; ask for fewer folds, or leave out columns that are nearly equal"
        )


def _largest_leverage(values: Floats) -> float:
    """Of any row, in a regression on these columns and a constant; of columns on any scale."""
    centred = values - values.mean(axis=0)
    size = np.sqrt((centred**2).sum(axis=0))
    scaled = centred[:, size > 0.0] / size[size > 0.0]
    squares, axes = np.linalg.eigh(scaled.T @ scaled)
    kept = squares > _ROUNDING * squares.size * squares.max(initial=0.0)
    along = scaled @ (axes[:, kept] / np.sqrt(squares[kept]))
    return float((along**2).sum(axis=1).max(initial=0.0)) + 1.0 / len(values)


def _first_categories(features: Features) -> list[Floats]:
    """Groups of indicators lack the first category: everybody who has none of the others."""
    groups = [features.values[:, first:last] for first, last in pairwise(features.starts)]
    return [1.0 - group.sum(axis=1) for group in groups if group.shape[1] > 1]


def _sets_few_apart(values: Floats) -> bool:
    """Whether all but a few have the same value, which is then the one in the middle."""
    apart = int((values != np.partition(values, values.size // 2)[values.size // 2]).sum())
    return 0 < apart < FEWEST_IN_CATEGORY
