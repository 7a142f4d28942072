"""Fixtures: a shared `World` with a namespace for each test, and new worlds."""

import itertools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tests.e2e.world import World, world_in_a_new_directory

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/e2e/"):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    """Run one headgate for all tests that change only their own namespace."""
    with world_in_a_new_directory() as world:
        yield world


@pytest.fixture
def namespace(world: World) -> str:
    """Create a namespace in the shared world."""
    name = f"ns{next(_numbers)}"
    world.create_namespace(name)
    return name


@pytest.fixture
def new_world() -> Iterator[Callable[..., World]]:
    """Return a function that starts a new world with options of `headgate up` and `manifests` by file name."""
    with ExitStack() as stack:
        yield lambda *options, **more: stack.enter_context(world_in_a_new_directory(*options, **more))


@pytest.fixture
def unstarted() -> Iterator[World]:
    """Return a world whose headgate the test starts."""
    with tempfile.TemporaryDirectory(prefix="headgate-e2e-") as root, closing(World(Path(root))) as world:
        yield world
