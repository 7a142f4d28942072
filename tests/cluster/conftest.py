"""The API server that the modules of this directory share, with an installation of headgate.

They run one after the other in one process (`tests/conftest.py`). Modules that need other API servers are in `bare/` and
`documentation/`.
"""

import asyncio
from collections.abc import Iterator

import pytest
from tests.cluster.api_server import READY_S, KubeApiServer, started
from tests.cluster.installation import install
from tests.cluster.isolation import Leftovers, isolated


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/cluster/"):
            item.add_marker(pytest.mark.timeout(READY_S * 3))


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KubeApiServer, Leftovers]]:
    """An API server with an installation, and what it contained before the first test."""
    with started(tmp_path_factory.mktemp("cluster")) as server:
        asyncio.run(install(server))
        yield server, Leftovers(server)


@pytest.fixture(scope="module")
def cluster(shared_server: tuple[KubeApiServer, Leftovers]) -> Iterator[KubeApiServer]:
    """An API server with an installation of headgate, on which nothing is left of other modules."""
    server, leftovers = shared_server
    with isolated(server, leftovers):
        yield server
