"""Small mistakes in the privacy code, each of which a test must notice; a file for every room of the mutated code.

A mutant's text has to occur once in its file: whoever changes that line changes the mutant, too. Every file here has
its list, `MUTANTS`; a file that is added is found.
"""

from __future__ import annotations

import importlib
import pkgutil

from tests.mutation.runner import Mutant

ALL_MUTANTS: tuple[Mutant, ...] = tuple(
    mutant
    for module in pkgutil.iter_modules(__path__)
    for mutant in importlib.import_module(f"{__name__}.{module.name}").MUTANTS
)
