"""Defaults, limits and file names that commands show in their help: cheap to import."""

from __future__ import annotations

DEFAULT_DELTA = 1e-6  # at which units `block` and `person` are counted where nobody names another
DEFAULT_ROUNDS = 10  # of ranks, for methods that send them repeatedly
REPORT_FILE = "report.html"
IN_HOUSE_FILE = "report-in-house.html"  # made with real tables: not for the lead
SECONDS_PER_DAY = 86_400
LONGEST_DEADLINE = 30.0 * SECONDS_PER_DAY  # of one round of a study
LARGEST_MESSAGE_GIB = 5_000  # that a federation file may allow
TYPICAL_CORRELATION = 0.25  # root mean square of latent correlations that a forecast assumes
TYPICAL_LOG_ODDS = 1.0  # log odds of presence per standard deviation of what it depends on, likewise
COORDINATOR = "coordinator"  # the name under which it takes part in secure sums; no party has it
