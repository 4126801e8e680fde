"""One server of each kind for all tests of a process; each test makes its own tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.databases.servers import PASSWORD, Server, mariadb, postgresql
from verticopula.data.database_address import PASSWORD_VARIABLE


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Server]:
    with postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[Server]:
    with mariadb() as server:
        yield server


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Server:
    """Both kinds, one after the other, with the password in the environment."""
    found: Server = request.getfixturevalue(f"{request.param}_server")
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    return found
