"""An API server with an installation, whose definitions the modules of this directory replace, and then restore."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.api_server import KubeApiServer, started
from tests.cluster.installation import WITHOUT_APIS, install
from tests.cluster.shared_servers import SharedServers

DIRECTORY = Path(__file__).parent


@pytest.fixture(scope="module")
def installed(servers: SharedServers, tmp_path_factory: pytest.TempPathFactory) -> KubeApiServer:
    """An API server with an installation and the namespace `shop`. A replica runs only during parts of tests."""
    server, _ = servers.of(DIRECTORY, _with_definitions(tmp_path_factory.mktemp("migration")))
    return server


@contextmanager
def _with_definitions(root: Path) -> Iterator[KubeApiServer]:
    with started(root) as server:
        asyncio.run(install(server, WITHOUT_APIS, gateway_api=False))
        server.namespace("shop")
        yield server
