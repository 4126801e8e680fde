"""FLARE's package without its simulator.

`import nvflare` imports 250 modules that F3 does not need, in every process and every command. Here the package is only
a name with a path, until somebody asks it for something else.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec
from types import ModuleType

_NAME = "nvflare"


class _Package(ModuleType):
    """The package before its own code has run."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__") or self.__spec__ is None or self.__spec__.loader is None:
            raise AttributeError(name)
        self.__class__ = ModuleType  # type: ignore[assignment]
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def defer_flare() -> None:
    """Let FLARE's package run its own code when one of its names is used, not when a module of it is imported."""
    spec = find_spec(_NAME) if _NAME not in sys.modules else None
    if spec is not None:
        package = module_from_spec(spec)
        package.__class__ = _Package
        sys.modules[_NAME] = package
