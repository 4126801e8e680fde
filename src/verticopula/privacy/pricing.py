"""What a release costs, as ledger entries: one set of rules for the party that pays and the coordinator that asks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from verticopula.privacy.budget import rank_coins
from verticopula.privacy.release import ALL_COLUMNS, Release
from verticopula.schema.columns import Column
from verticopula.schema.setting_choices import BINOMIAL_SAMPLER, EXACT_SAMPLER

# Whole numbers in place of continuous noise add less than 1e-30 to epsilon (`mpc/gram_noise.py`): less than this.
_WHOLE_NUMBERS = 1.0 + 2.0**-50
PRINTED_MARGIN = "Laplace on Bernstein coefficients, on the data's own range"
_MECHANISMS = {EXACT_SAMPLER: "randomized response on every comparison", BINOMIAL_SAMPLER: "binomial ranks"}


@dataclass(frozen=True)
class Pricing:
    """How one party's releases in one study are entered.

    Attributes
    ----------
    is_private : False where the noise comes from a seed
    bounds_from_data : True where ranges or categories were taken from the data
    table : whom the party's table is about; a coordinator does not know it
    contents : column -> what a vault calls it; a coordinator does not know it
    snapshot : digest of the table as it was read; a coordinator does not know it
    """

    study: str
    party: str
    is_private: bool = True
    bounds_from_data: bool = False
    table: str = ""
    contents: Mapping[str, str] = field(default_factory=dict)
    snapshot: str = ""

    def _common(self, column: str, n_subjects: int) -> dict[str, Any]:
        """The fields that every entry has."""
        return {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "study": self.study,
            "party": self.party,
            "column": column,
            "n_subjects": n_subjects,
            "noise": "secure" if self.is_private else "seeded",
            "bounds": "from-data" if self.bounds_from_data else "public",
            "table": self.table,
            "content": self.contents.get(column, ""),
            "snapshot": self.snapshot,
        }

    def first_round(
        self, column: Column, sampler: str, n_observed: int, epsilon_ranks: float, epsilon_marginal: float
    ) -> tuple[Release, Release]:
        """A column's ranks and its marginal."""
        coins = rank_coins(column, sampler, epsilon_ranks, n_observed)
        margin = math.inf if self.bounds_from_data else epsilon_marginal
        common = self._common(column.name, n_observed)
        ranks = Release(
            **common,
            what="ranks",
            mechanism=_MECHANISMS[sampler],
            epsilon=epsilon_ranks,
            coins_epsilon=coins.epsilon,
            coins_count=coins.count,
        )
        cells = Release(
            **common,
            what="marginal",
            mechanism="discrete Laplace on cell counts",
            epsilon=margin,
            coins_epsilon=margin,
            coins_count=1,
        )
        return ranks, cells

    def completed_round(
        self, column: Column, sampler: str, n_observed: int, n_missing: int, epsilon_ranks: float
    ) -> Release:
        """A column's ranks in a round on completed columns; the completed subjects are not anybody's data.

        The coordinator knows the completed values, so a comparison with one of them is about one person alone. One
        person's value takes part in `n_missing` of them, and may shift as many others by one place (`rank_coins`): all
        of them count at `variable` and `client`, beside one comparison with somebody else.
        """
        coins = rank_coins(column, sampler, epsilon_ranks, n_observed, n_missing)
        return Release(
            **self._common(column.name, n_observed),
            what="ranks",
            mechanism=f"{_MECHANISMS[sampler]}, completed column",
            epsilon=epsilon_ranks * (1 + 2 * n_missing),
            coins_epsilon=coins.epsilon,
            coins_count=coins.count,
        )

    def printed_ranks(self, column: Column, n_observed: int, n_missing: int, epsilon: float) -> Release:
        """A column's ranks in a round of the algorithms as printed, `n_missing` of them of values filled in by now.

        A filled-in value is any function of the others. So one replaced value may change each of its own comparisons,
        and each one with a filled-in value.
        """
        filled = n_missing * max(n_observed - 1, 0) + n_missing * (n_missing - 1) // 2
        own = max(n_observed + n_missing - 1, 0)
        return Release(
            **self._common(column.name, n_observed),
            what="ranks",
            mechanism=_MECHANISMS[EXACT_SAMPLER] + (", completed column" if n_missing else ""),
            epsilon=epsilon * (1 + n_missing + filled),
            coins_epsilon=epsilon,
            coins_count=own + filled,
        )

    def printed_margin(self, column: Column, n_observed: int) -> Release:
        """A column's margin in the algorithms as printed: its range leaves without noise."""
        return Release(
            **self._common(column.name, n_observed),
            what="marginal",
            mechanism=PRINTED_MARGIN,
            epsilon=math.inf,
            coins_epsilon=math.inf,
            coins_count=1,
        )

    def gaussian_margin(self, column: Column, n_observed: int, mu: float) -> Release:
        """A column's cell counts with Gaussian noise, which a replaced value moves by `mu` standard deviations."""
        return Release(
            **self._common(column.name, n_observed),
            what="marginal",
            mechanism="discrete Gaussian on cell counts",
            **self._gaussian(mu, mu),
        )

    def gram(self, n_subjects: int, mu: float, mu_person: float, *, joint: str = "") -> Release:
        """A party's part in the Gram matrix; `mu` for what it holds about a person, `mu_person` for what all hold.

        `joint` names the release in all parties' entries; without it the entry counts by itself.
        """
        return Release(
            **self._common(ALL_COLUMNS, n_subjects),
            what="gram",
            mechanism="discrete Gaussian on sums under secret sharing",
            joint=joint,
            **self._gaussian(mu, mu_person),
        )

    def tables(self, n_subjects: int, mu: float, mu_person: float, *, joint: str = "") -> Release:
        """A party's part in tables of chosen pairs under secret sharing, whatever pairs are chosen; as `gram`."""
        return Release(
            **self._common(ALL_COLUMNS, n_subjects),
            what="tables",
            mechanism="discrete Gaussian on tables of chosen pairs under secret sharing",
            joint=joint,
            **self._gaussian(mu, mu_person),
        )

    def selection(self, n_subjects: int, mu: float) -> Release:
        """A party's own features, added up over those whom other parties know, with Gaussian noise."""
        return Release(
            **self._common(ALL_COLUMNS, n_subjects),
            what="selection",
            mechanism="discrete Gaussian on sums of features by presence",
            **self._gaussian(mu, mu),
        )

    def _gaussian(self, mu: float, mu_person: float) -> dict[str, Any]:
        """What a Gaussian release costs; ranges from the data leave nothing to count with."""
        known = not self.bounds_from_data
        return {
            "epsilon": math.inf,
            "coins_epsilon": math.inf,
            "coins_count": 1,
            "mu": mu * _WHOLE_NUMBERS if known else 0.0,
            "mu_person": mu_person * _WHOLE_NUMBERS if known else 0.0,
        }

    def raw(self, column: Column, n_subjects: int) -> Release:
        """The price of a column's own values: infinite."""
        return self._exact(column, n_subjects, "raw", "regression on raw columns, no noise")

    def raw_moments(self, column: Column, n_subjects: int) -> Release:
        """The price of a column's exact sums and products: infinite, though no row leaves."""
        return self._exact(column, n_subjects, "raw-moments", "second moments of raw columns, no noise")

    def _exact(self, column: Column, n_subjects: int, what: Literal["raw", "raw-moments"], mechanism: str) -> Release:
        return Release(
            **self._common(column.name, n_subjects),
            what=what,
            mechanism=mechanism,
            epsilon=math.inf,
            coins_epsilon=math.inf,
            coins_count=1,
        )
