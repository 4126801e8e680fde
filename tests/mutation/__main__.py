"""`python -m tests.mutation`."""

from __future__ import annotations

import sys

from tests.mutation.lying_mutants import LYING_MUTANTS
from tests.mutation.mutants import MUTANTS
from tests.mutation.proof_mutants import PROOF_MUTANTS
from tests.mutation.runner import MutantError, main
from tests.mutation.strict_mutants import STRICT_MUTANTS

try:
    sys.exit(main((*MUTANTS, *PROOF_MUTANTS, *STRICT_MUTANTS, *LYING_MUTANTS)))
except MutantError as error:
    sys.exit(str(error))
