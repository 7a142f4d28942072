"""The API server that the modules of this directory share, with an installation of headgate.

They run one after the other in one process (`tests/conftest.py`). Modules that need other API servers are in `bare/`,
`migration/` and `documentation/`.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.api_server import READY_S, KubeApiServer, started
from tests.cluster.installation import install
from tests.cluster.isolation import isolated
from tests.cluster.shared_servers import SERVERS, Shared, SharedServers

DIRECTORY = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/cluster/"):
            item.add_marker(pytest.mark.timeout(READY_S * 3))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """End the API server of a directory after its last test."""
    try:
        return (yield)
    finally:
        directory = item.path.parent
        if (nextitem is None or nextitem.path.parent != directory) and SERVERS in item.config.stash:
            item.config.stash[SERVERS].end(directory)


@pytest.fixture(scope="session")
def servers(pytestconfig: pytest.Config) -> SharedServers:
    """The API servers that modules share."""
    return pytestconfig.stash.setdefault(SERVERS, SharedServers())


@pytest.fixture(scope="module")
def shared_server(servers: SharedServers, tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """An API server with an installation, and what it contained before the first test."""
    return servers.of(DIRECTORY, _with_installation(tmp_path_factory.mktemp("cluster")))


@contextmanager
def _with_installation(root: Path) -> Iterator[KubeApiServer]:
    with started(root) as server:
        asyncio.run(install(server))
        yield server


@pytest.fixture(scope="module")
def cluster(shared_server: Shared) -> Iterator[KubeApiServer]:
    """An API server with an installation of headgate, on which nothing is left of other modules."""
    server, leftovers = shared_server
    with isolated(server, leftovers):
        yield server
