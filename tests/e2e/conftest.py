"""Fixtures: a shared `RunningMesh` with a namespace for each test, and new meshes."""

import itertools
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Page
from tests.browser import chromium
from tests.e2e.manifests import external, split_manifest
from tests.e2e.running_mesh import RunningMesh, mesh_in_a_new_directory

Site = Callable[[Path], Mapping[str, str]]
_numbers = itertools.count(1)
DIRECTORY = "tests/e2e/"
_FAILED = pytest.StashKey[bool]()
_OF_ALL = pytest.StashKey["SharedMeshes"]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(DIRECTORY):
            item.add_marker(pytest.mark.e2e)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment]  # the hook's result
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report  # type: ignore[return-value]


@pytest.fixture
def mesh(meshes_of_all: "SharedMeshes") -> RunningMesh:
    """Run one headgate for all tests that change only their own namespace."""
    return meshes_of_all.use(without_manifests)


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


def without_manifests(_root: Path) -> Mapping[str, str]:
    """Return no manifests: the site of the mesh that all modules share."""
    return {}


class SharedMeshes:
    """The meshes of several tests: one for each combination of manifests and options of `headgate up`."""

    def __init__(self) -> None:
        self._running: dict[tuple[Site, tuple[str, ...]], tuple[RunningMesh, ExitStack]] = {}

    def use(self, site: Site, *options: str) -> RunningMesh:
        """Return a running mesh; `site` returns the manifests by file name for the mesh's directory."""
        if (site, options) not in self._running:
            with ExitStack() as stack:
                root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-e2e-")))
                mesh = stack.enter_context(RunningMesh(root, *options, manifests=site(root)))
                self._running[site, options] = mesh, stack.pop_all()
        mesh, _ = self._running[site, options]
        os.truncate(mesh.root / "stderr", 0)  # what earlier tests caused
        return mesh

    def close(self) -> None:
        """End all meshes; the next use of one starts it again."""
        while self._running:
            _, (_, stack) = self._running.popitem()
            stack.close()


@pytest.fixture(scope="session")
def meshes_of_all(pytestconfig: pytest.Config) -> SharedMeshes:
    return pytestconfig.stash.setdefault(_OF_ALL, SharedMeshes())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """End the mesh that modules share after the last test of this directory: an idle mesh takes 0.5 % of a processor."""
    try:
        return (yield)
    finally:
        is_last = nextitem is None or not nextitem.nodeid.startswith(DIRECTORY)
        if is_last and _OF_ALL in item.config.stash:
            item.config.stash[_OF_ALL].close()


@pytest.fixture(scope="module")
def meshes_of_module() -> Iterator[SharedMeshes]:
    with closing(SharedMeshes()) as meshes:
        yield meshes


@pytest.fixture
def shared_mesh(meshes_of_module: SharedMeshes, request: pytest.FixtureRequest) -> Iterator[Callable[..., RunningMesh]]:
    """Return a function that returns the module's mesh for a site and options of `headgate up` (`SharedMeshes.use`).

    A test leaves the mesh with the objects and programs that it began with. After a failed test the next one gets a new mesh.
    """
    yield meshes_of_module.use
    if request.node.stash.get(_FAILED, False):
        meshes_of_module.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tab() -> AsyncIterator[Page]:
    """A tab of a browser for all tests of a module."""
    async with chromium() as browser:
        yield await browser.new_page()


@pytest.fixture
def unstarted() -> Iterator[RunningMesh]:
    """Return a mesh whose headgate the test starts."""
    with tempfile.TemporaryDirectory(prefix="headgate-e2e-") as root, closing(RunningMesh(Path(root))) as mesh:
        yield mesh


@pytest.fixture
def web(mesh: RunningMesh, namespace: str) -> str:
    """Create a split Service `web`; return its namespace."""
    mesh.apply(
        external("web"),
        external("web-v1", mesh.backend("v1")),
        external("web-v2", mesh.backend("v2")),
        split_manifest("web", "web", {"web-v1": 1, "web-v2": 1}),
        namespace=namespace,
    )
    return namespace
