"""A running mesh for each module of chaos tests: a Service `website`, split over three Deployments that count their requests."""

import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from tests.chaos.backend import counts as counted
from tests.chaos.load import Target, TimedLoad
from tests.chaos.machine import Up
from tests.make.objects import Object, container, deployment, manifest, port, service, split

BACKEND = Path(__file__).with_name("backend.py")
PORT = 8080
REPLICAS = {"v1": 2, "v2": 2, "v3": 1}


def _deployment(version: str, counts: Path) -> Object:
    command = [sys.executable, "-S", str(BACKEND), str(counts), f"website-{version}=$(POD_IP):$(PORT)"]
    web = container("web", command=command, ports=[{"name": "http", "containerPort": 8000}])
    labels = {"app": "website", "version": version}
    return deployment(f"website-{version}", web, labels=labels, replicas=REPLICAS[version])


def _service(name: str, **labels: str) -> Object:
    return service(name, port(PORT, "http", target="http"), selector={"app": "website", **labels})


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("counts")


@pytest.fixture(autouse=True)  # so that it reads the counters before the load begins
def received(counts: Path) -> Callable[[], Counter[str]]:
    """Return a function that returns the number of requests that each backend has received since the test began."""
    before = Counter(counted(counts))
    return lambda: Counter(counted(counts)) - before


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory, counts: Path) -> AsyncIterator[Up]:
    started = Up(tmp_path_factory.mktemp("up"))
    objects = [_service("website"), split("website", {"website-v1": 100, "website-v2": 0, "website-v3": 0})]
    for version in REPLICAS:
        objects += [_service(f"website-{version}", version=version), _deployment(version, counts)]
    (started.manifests / "mesh.yaml").write_text(manifest(*objects))
    try:
        await started.start()
        yield started
    finally:
        await started.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def up(running: Up) -> Up:
    """Return the module's mesh, in which v1 gets all requests."""
    await running.wait_until_active(await running.weights(v1=100, v2=0, v3=0))
    return running


@pytest.fixture
def targets(up: Up) -> list[Target]:
    """Return the load's targets: the Service's address, with fast and slow responses, and the HTTP proxy."""
    address = up.address("website", PORT)
    return [
        Target(address, "/", "website:8080"),
        Target(up.proxy, "http://website.default:8080/", "website.default:8080"),
        Target(address, "/slow", "website:8080"),
        Target(up.proxy, "http://website.default:8080/slow", "website.default:8080"),
    ]


@pytest_asyncio.fixture(loop_scope="module")
async def load(targets: list[Target]) -> AsyncIterator[TimedLoad]:
    """Run a load of eight clients, two for each target."""
    timed = TimedLoad(targets, clients=8)
    timed.start()
    try:
        yield timed
    finally:
        await timed.stop()
