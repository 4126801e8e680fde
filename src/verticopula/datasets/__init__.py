"""A built-in study with its full truth: `make_sme`, small and medium enterprises known to five authorities.

It may import schema and lower rooms; commands, benchmarks and tests import it.
Read sme_study.py first, then _sme_population.py and _sme_columns.py.
"""

from verticopula.datasets._sme_columns import ContinuousMargin
from verticopula.datasets.sme_study import SmeStudy, SmeTruth, make_sme

__all__ = ["ContinuousMargin", "SmeStudy", "SmeTruth", "make_sme"]
