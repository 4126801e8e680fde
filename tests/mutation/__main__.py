"""`python -m tests.mutation`."""

from __future__ import annotations

import sys

from tests.mutation.mutants import ALL_MUTANTS
from tests.mutation.runner import MutantError, main

try:
    sys.exit(main(ALL_MUTANTS))
except MutantError as error:
    sys.exit(str(error))
