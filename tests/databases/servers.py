"""Real database servers, started from the system's own packages and stopped again: PostgreSQL and MariaDB."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from verticopula.network.network_demo import free_port

USER, PASSWORD, DATABASE = "steward", "a secret: p@ss/w?rd", "hospital"
_PATIENCE = 120.0


@dataclass
class Server:
    """A running server with one user, one database, and an administrator who needs no password from here."""

    kind: Literal["postgresql", "mysql"]
    folder: Path
    port: int
    command: list[str]
    account: str | None
    process: subprocess.Popen[bytes] | None = None
    environment: dict[str, str] = field(default_factory=lambda: {**os.environ, "LC_ALL": "C"})

    @property
    def address(self) -> str:
        return f"{self.kind}://{USER}@127.0.0.1:{self.port}/{DATABASE}"

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, user=self.account, env=self.environment, start_new_session=True
            )
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                if self.kind == "mysql":  # PyMySQL would leave a socket open
                    with closing(socket.socket(socket.AF_UNIX)) as door:
                        door.connect(str(self.folder / "socket"))
                self.administer("SELECT 1")
                return
            except Exception:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise RuntimeError((self.folder / "log").read_text("utf-8", errors="replace")) from None
                time.sleep(0.1)

    def kill(self) -> None:
        """End the server and all of its processes at once, as a power cut does."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        with suppress(FileNotFoundError):
            (self.folder / "data" / "postmaster.pid").unlink()

    def administer(self, *statements: str, database: str | None = DATABASE) -> list[Any]:
        """What the last statement gives to the administrator."""
        if self.kind == "postgresql":
            import psycopg

            name = "postgres" if statements == ("SELECT 1",) or database is None else database
            found: list[Any] = []
            with psycopg.connect(
                host=str(self.folder), port=self.port, user="admin", dbname=name, autocommit=True
            ) as connection:
                for statement in statements:
                    cursor = connection.execute(statement.encode())
                    found = cursor.fetchall() if cursor.description else []
            return found
        import pymysql

        name = None if statements == ("SELECT 1",) else database
        with closing(
            pymysql.connect(
                unix_socket=str(self.folder / "socket"), user="root", database=name, autocommit=True, charset="utf8mb4"
            )
        ) as link:
            cursor = link.cursor()
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())


@contextmanager
def postgresql() -> Iterator[Server]:
    """A PostgreSQL server in a folder of its own."""
    bin_folder = _newest_postgresql()
    with _own_folder("postgres") as (folder, account):
        port = free_port()
        made = [
            bin_folder / "initdb",
            "-D",
            folder / "data",
            "-U",
            "admin",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
        ]
        _run(made, account)
        rules = "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        (folder / "data" / "pg_hba.conf").write_text(rules)
        settings = {"fsync": "off", "listen_addresses": "127.0.0.1", "unix_socket_directories": str(folder)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [str(bin_folder / "postgres"), "-D", str(folder / "data"), "-p", str(port), *options]
        server = Server("postgresql", folder, port, command, account)
        with _running(server):
            password = PASSWORD.replace("'", "''")
            server.administer(
                f"CREATE ROLE {USER} LOGIN PASSWORD '{password}'",
                f"CREATE DATABASE {DATABASE} OWNER {USER}",
                database=None,
            )
            yield server


@contextmanager
def mariadb() -> Iterator[Server]:
    """A MariaDB server in a folder of its own."""
    with _own_folder("mysql") as (folder, account):
        port, data = free_port(), folder / "data"
        made = ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal"]
        _run([*made, "--skip-test-db"], account)
        command = [
            *(shutil.which("mariadbd") or "/usr/sbin/mariadbd", "--no-defaults", f"--datadir={data}", f"--port={port}"),
            *(f"--socket={folder}/socket", f"--pid-file={folder}/pid", "--bind-address=127.0.0.1"),
            *("--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=32M", "--performance-schema=off"),
        ]
        server = Server("mysql", folder, port, command, account)
        with _running(server):
            server.administer(
                f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4",
                f"CREATE USER {USER}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'",
                f"GRANT ALL ON {DATABASE}.* TO {USER}@'127.0.0.1'",
                database=None,
            )
            yield server


def _newest_postgresql() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise RuntimeError("there is no PostgreSQL server; `make test-databases` installs it")
    return found[-1].parent


@contextmanager
def _own_folder(account: str) -> Iterator[tuple[Path, str | None]]:
    """A folder that a server may use, and the account that it runs under: servers refuse to run as root."""
    folder = Path(tempfile.mkdtemp(prefix="verticopula-server-"))  # its path is short: sockets allow 107 letters
    try:
        if os.getuid() != 0:
            yield folder, None
            return
        owner = pwd.getpwnam(account)
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        yield folder, account
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(server: Server) -> Iterator[None]:
    server.start()
    try:
        yield
    finally:
        server.kill()


def _run(command: Sequence[object], account: str | None) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, user=account, cwd="/")
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
