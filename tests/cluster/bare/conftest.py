"""API servers without headgate. The modules of this directory define kinds, or install headgate and remove it again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.api_server import KubeApiServer, started
from tests.cluster.isolation import emptied
from tests.cluster.shared_servers import Shared, SharedServers

DIRECTORY = Path(__file__).parent


@pytest.fixture(scope="module")
def empty_server(servers: SharedServers, tmp_path_factory: pytest.TempPathFactory) -> Shared:
    """An API server, and what it contained before the first test."""
    return servers.of(DIRECTORY, started(tmp_path_factory.mktemp("bare")))


@pytest.fixture
def cluster(empty_server: Shared) -> Iterator[KubeApiServer]:
    """An API server on which nothing is left of other tests."""
    server, leftovers = empty_server
    with emptied(server, leftovers):
        yield server


@pytest.fixture
def new_cluster(tmp_path: Path) -> Iterator[KubeApiServer]:
    """An API server for one test, which leaves an installation of headgate.

    It starts in 2 s of processor time. To remove all definitions and APIServices of an installation takes 5 s.
    """
    with started(tmp_path) as server:
        yield server
