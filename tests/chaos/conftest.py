"""A running mesh for the chaos tests: a Service `website`, split over three Deployments that count their requests."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
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


@pytest.fixture
def counts(tmp_path: Path) -> Path:
    found = tmp_path / "counts"
    found.mkdir()
    return found


@pytest.fixture
async def up(tmp_path: Path, counts: Path) -> AsyncIterator[Up]:
    found = Up(tmp_path)
    objects = [_service("website"), split("website", {"website-v1": 100, "website-v2": 0, "website-v3": 0})]
    for version in REPLICAS:
        objects += [_service(f"website-{version}", version=version), _deployment(version, counts)]
    (found.manifests / "mesh.yaml").write_text(manifest(*objects))
    try:
        await found.start()
        yield found
    finally:
        await found.stop()


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


@pytest.fixture
async def load(targets: list[Target]) -> AsyncIterator[TimedLoad]:
    """Run a load of eight clients, two for each target."""
    timed = TimedLoad(targets, clients=8)
    timed.start()
    try:
        yield timed
    finally:
        await timed.stop()
