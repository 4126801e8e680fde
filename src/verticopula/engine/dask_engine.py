"""A party's own Dask cluster as an engine.

Results come to this process through the scheduler, and only those that are fetched. A worker that is lost costs time:
what it held is computed again elsewhere, from the same rows with the same keys, so it is the same. A scheduler that is
lost ends the study.
"""

from __future__ import annotations

import importlib.util
import itertools
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from verticopula.engine.chunk_task import Failure, describe_versions, run_task, tell_versions_apart
from verticopula.engine.engine_address import EngineAddress
from verticopula.errors import EngineError, SettingsError

if TYPE_CHECKING:
    from distributed import Client, Future

_CONNECT_SECONDS = 10.0
_LOOK_SECONDS = 1.0  # how often it is looked whether the scheduler is still there
_TLS_SETTINGS = "ca-file, client.cert and client.key under distributed.comm.tls in Dask's configuration"


class DaskEngine:
    """A connection to the scheduler of a Dask cluster.

    Parameters
    ----------
    address : of the scheduler; EngineError where it does not answer, has no workers, or they do not fit
    """

    def __init__(self, address: EngineAddress) -> None:
        self._address, self._versions = address, describe_versions()
        self._name, self._numbers = secrets.token_hex(4), itertools.count()
        self._client = self._connect()
        try:
            self._check_workers()
        except BaseException:
            self.close()
            raise

    def submit(self, function: Callable[..., Any], *given: Any) -> Future:
        # A key that names the step and nothing else: Dask would make one from what is given, and logs keys.
        if self._client.status == "closed":  # lost before: whoever started the scheduler again can go on
            self._client = self._connect()
            self._check_workers()
        key = f"verticopula-{function.__name__}-{self._name}-{next(self._numbers)}"
        try:
            return self._client.submit(run_task, self._versions, function, *given, key=key, pure=False)
        except Exception as error:
            kind = type(error).__name__
        raise self._lost(kind)

    def fetch(self, handles: Sequence[Any]) -> list[Any]:
        from distributed import wait

        pending, kind, results = list(handles), "", list[Any]()
        while not kind:
            try:
                with self._client.as_current():
                    wait(pending, timeout=_LOOK_SECONDS)
                results = self._client.gather(pending)
                break
            except TimeoutError:
                kind = "" if self._client.status == "running" else "no answer"
            except Exception as error:
                kind = type(error).__name__  # its message may hold what a function was given
        if kind:
            raise self._lost(kind)
        for result in results:  # of whatever failed, the first that is told
            if isinstance(result, Failure):
                raise result.error()
        return results

    def close(self) -> None:
        self._client.close(timeout=_LOOK_SECONDS)

    def _lost(self, kind: str) -> EngineError:
        if kind == "KilledWorker":
            return EngineError(
                f"engine {self._address.url}: several workers died one after the other at the same rows, most often "
                "for want of memory. Give them more, or smaller rows_at_once; what the ledger has stays spent"
            )
        if kind in ("ModuleNotFoundError", "ImportError", "AttributeError"):
            return EngineError(
                f"engine {self._address.url}: a worker cannot run this version of verticopula ({kind}). Install the "
                f"same on all: {self._versions}"
            )
        return EngineError(
            f"engine {self._address.url} is lost ({kind}). Nothing is spent beyond what the ledger has. Look at its "
            "scheduler, then start again"
        )

    # ---- connecting ------------------------------------------------------------------------

    def _connect(self) -> Client:
        if importlib.util.find_spec("distributed") is None:
            raise SettingsError("an engine on a cluster needs Dask: pip install 'verticopula[cluster]'")
        from distributed import Client, Security

        security = Security(require_encryption=True) if self._address.is_encrypted else None
        if security is not None and security.get_connection_args("client").get("ssl_context") is None:
            raise SettingsError(f"engine {self._address.url}: TLS needs {_TLS_SETTINGS}")
        try:
            return Client(
                self._address.url,
                security=security,
                timeout=_CONNECT_SECONDS,
                set_as_default=False,
                direct_to_workers=False,
            )
        except Exception as error:
            kind = type(error).__name__
        raise EngineError(
            f"engine {self._address.url}: no Dask scheduler answers there ({kind}). Is it started, is the port that of "
            "the scheduler, and do both sides have TLS, or neither?"
        )

    def _check_workers(self) -> None:
        """EngineError unless there are workers, all of them with the same versions and reached as safely.

        The scheduler says where it listens. On more than this machine, strangers could bring workers at any time.
        """
        info = self._client.scheduler_info(n_workers=-1)
        if not self._address.allows(info["address"]):
            raise SettingsError(
                f"engine {self._address.url}: its scheduler listens for other machines, without TLS. Start it with "
                "--host 127.0.0.1 or with TLS, or say --engine-without-tls (engine_without_tls=True)"
            )
        addresses = sorted(info["workers"])
        if not addresses:
            raise EngineError(f"engine {self._address.url} has no workers: start some with `dask worker`")
        if not all(self._address.allows(worker) for worker in addresses):
            raise SettingsError(
                f"engine {self._address.url}: some workers are on other machines and without TLS. Start all of it with "
                "TLS, or say --engine-without-tls (engine_without_tls=True)"
            )
        try:
            found = set(self._client.run(describe_versions).values())
        except Exception as error:
            raise self._lost(type(error).__name__) from None
        if found != {self._versions}:
            raise EngineError(f"engine {self._address.url}: {tell_versions_apart(self._versions, found)}")
