"""The parts of NVIDIA FLARE that are used here, imported without the rest and without its search for settings.

`import nvflare` imports 250 modules that F3 does not need, in every process and every command. Here the package is only
a name with a path, until somebody asks it for something else.

F3 also looks for a file `comm_config.json` in the whole tree below the current folder. It may name a folder from which
classes are loaded, so whoever can write below that folder could run code in a party's process.
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


def _defer_package() -> None:
    """Let FLARE's package run its own code when one of its names is used, not when a module of it is imported."""
    spec = find_spec(_NAME) if _NAME not in sys.modules else None
    if spec is not None:
        package = module_from_spec(spec)
        package.__class__ = _Package
        sys.modules[_NAME] = package


_defer_package()

# ruff: noqa: E402
from nvflare.fuel.f3.comm_config import CommConfigurator

CommConfigurator._config_loaded = True  # before any other part of F3 is imported: there are no settings to look for

from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.communicator import Communicator
from nvflare.fuel.f3.connection import Connection
from nvflare.fuel.f3.drivers.connector_info import ConnectorInfo
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.grpc.qq import QQ
from nvflare.fuel.f3.drivers.grpc.streamer_pb2_grpc import StreamerStub, add_StreamerServicer_to_server
from nvflare.fuel.f3.drivers.grpc_driver import GrpcDriver, Server, Servicer, StreamConnection
from nvflare.fuel.f3.drivers.net_utils import get_address, parse_url
from nvflare.fuel.f3.endpoint import Endpoint, EndpointMonitor, EndpointState
from nvflare.fuel.f3.message import Message, MessageReceiver
from nvflare.fuel.f3.sfm.conn_manager import Mode

__all__ = [
    "QQ",
    "CommError",
    "Communicator",
    "Connection",
    "ConnectorInfo",
    "DriverParams",
    "Endpoint",
    "EndpointMonitor",
    "EndpointState",
    "GrpcDriver",
    "Message",
    "MessageReceiver",
    "Mode",
    "Server",
    "Servicer",
    "StreamConnection",
    "StreamerStub",
    "add_StreamerServicer_to_server",
    "get_address",
    "parse_url",
]
