"""Fixtures: a shared `RunningMesh` with a namespace for each test, and new meshes."""

import itertools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from tests.e2e.running_mesh import RunningMesh, mesh_in_a_new_directory

_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/e2e/"):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def mesh() -> Iterator[RunningMesh]:
    """Run one headgate for all tests that change only their own namespace."""
    with mesh_in_a_new_directory() as mesh:
        yield mesh


@pytest.fixture
def namespace(mesh: RunningMesh) -> Iterator[str]:
    """Create a namespace in the shared mesh; delete it afterwards, and those of the test whose names begin with `NAME-`.

    The objects of 60 tests would triple the processor time of each write.
    """
    name = f"ns{next(_numbers)}"
    mesh.create_namespace(name)
    yield name
    for left in mesh.get("namespace")["items"]:
        if f"{left['metadata']['name']}-".startswith(f"{name}-"):
            mesh.delete(f"namespace/{left['metadata']['name']}")


@pytest.fixture
def new_mesh() -> Iterator[Callable[..., RunningMesh]]:
    """Return a function that starts a new mesh with options of `headgate up` and `manifests` by file name."""
    with ExitStack() as stack:
        yield lambda *options, **more: stack.enter_context(mesh_in_a_new_directory(*options, **more))


@pytest.fixture
def unstarted() -> Iterator[RunningMesh]:
    """Return a mesh whose headgate the test starts."""
    with tempfile.TemporaryDirectory(prefix="headgate-e2e-") as root, closing(RunningMesh(Path(root))) as mesh:
        yield mesh
