"""API servers without headgate. The modules of this directory define kinds, or install headgate and remove it again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.api_server import KubeApiServer, started
from tests.cluster.isolation import Leftovers, emptied


@pytest.fixture(scope="session")
def empty_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KubeApiServer, Leftovers]]:
    """An API server, and what it contained before the first test."""
    with started(tmp_path_factory.mktemp("bare")) as server:
        yield server, Leftovers(server)


@pytest.fixture
def cluster(empty_server: tuple[KubeApiServer, Leftovers]) -> Iterator[KubeApiServer]:
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
