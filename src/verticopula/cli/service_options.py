"""What `serve`, `join` and `compute` have in common: how they log, and what they tell a monitoring system."""

from __future__ import annotations

import functools
import importlib.util
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from verticopula.errors import SettingsError, VerticopulaError

if TYPE_CHECKING:
    from verticopula.network.coordinator.coordinator_process import Coordinator
    from verticopula.network.kit.startup_kit import Kit
    from verticopula.network.party.party_process import PartyProcess

logger = logging.getLogger(__name__)

LogStyle = Annotated[
    Literal["text", "json"],
    typer.Option(
        "--log-format",
        help="text: for people, on this terminal and in the kit's log.txt. json: for programs that collect logs, one "
        "object a line on standard error, and no file.",
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        help="Serve /healthz, /readyz and Prometheus' /metrics on this port. Off by default.",
        min=1,
        max=65535,
        show_default=False,
    ),
]
MetricsHost = Annotated[
    str,
    typer.Option(
        "--metrics-host",
        help="The address for --metrics-port. Whoever can reach it can read what was spent; there is no password.",
    ),
]


@dataclass(frozen=True)
class ServiceOptions:
    """How a service logs, and where a monitoring system can ask it."""

    metrics_port: MetricsPort = None
    metrics_host: MetricsHost = "127.0.0.1"
    log_format: LogStyle = "text"


def ends_in_log(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with its error as the last entry of its log where that is JSON.

    Parameters
    ----------
    command : one that takes `service`
    """

    @functools.wraps(command)
    def run(*, service: ServiceOptions, **options: object) -> None:
        try:
            command(service=service, **options)
        except (VerticopulaError, OSError) as error:
            if service.log_format != "json":
                raise
            _log_reason(error)
            raise typer.Exit(1) from None

    return run


def _log_reason(error: Exception) -> None:
    from verticopula.network.operations.json_log import JsonFormatter, write_json_log

    if not any(isinstance(handler.formatter, JsonFormatter) for handler in logging.getLogger().handlers):
        write_json_log(None)
    why = error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)
    logger.error("cannot go on: %s", why)


def serve_metrics(kit: Kit, process: Coordinator | PartyProcess, state: Path, options: ServiceOptions) -> None:
    """Answer a monitoring system from now on, where a port was given.

    Parameters
    ----------
    kit, process, state : as `ProcessMetrics` has them
    options : where, if anywhere
    """
    if options.metrics_port is None:
        return
    if importlib.util.find_spec("prometheus_client") is None:
        raise SettingsError("--metrics-port needs Prometheus' client: pip install 'verticopula[operations]'")
    from verticopula.network.operations.health_server import HealthServer
    from verticopula.network.operations.process_metrics import ProcessMetrics

    metrics = ProcessMetrics(kit, process, state)
    HealthServer(options.metrics_host, options.metrics_port, metrics.expose, metrics.why_not_ready).start()
