"""What several tests between real processes share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.network.breaking import reconnect_soon
from tests.network.faults import ProcessStarter, process_starter


@pytest.fixture(scope="module")
def starter() -> Iterator[ProcessStarter]:
    """Forks processes that have imported everything."""
    reconnect_soon()  # the lead's connection, in this process
    with process_starter() as found:
        yield found
