"""A running mesh for the chaos tests: a Service `website`, split over three Deployments that count their requests."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.load import Load, Target
from tests.chaos.machine import Up

BACKEND = Path(__file__).with_name("backend.py")
PORT = 8080
REPLICAS = {"v1": 2, "v2": 2, "v3": 1}


def _service(name: str, **labels: str) -> dict[str, Any]:
    spec = {"selector": {"app": "website", **labels}, "ports": [{"port": PORT, "targetPort": "http"}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def _deployment(version: str, counts: Path) -> dict[str, Any]:
    labels = {"app": "website", "version": version}
    command = [sys.executable, "-S", str(BACKEND), str(counts), f"website-{version}=$(POD_IP):$(PORT)"]
    container = {"name": "web", "command": command, "ports": [{"name": "http", "containerPort": 8000}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"website-{version}"},
        "spec": {
            "replicas": REPLICAS[version],
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def _split(**weights: int) -> dict[str, Any]:
    backends = [{"service": f"website-{version}", "weight": weight} for version, weight in weights.items()]
    return {
        "apiVersion": "split.smi-spec.io/v1alpha4",
        "kind": "TrafficSplit",
        "metadata": {"name": "website"},
        "spec": {"service": "website", "backends": backends},
    }


@pytest.fixture
def counts(tmp_path: Path) -> Path:
    found = tmp_path / "counts"
    found.mkdir()
    return found


@pytest.fixture
async def up(tmp_path: Path, counts: Path) -> AsyncIterator[Up]:
    found = Up(tmp_path)
    objects = [_service("website"), _split(v1=100, v2=0, v3=0)]
    for version in REPLICAS:
        objects += [_service(f"website-{version}", version=version), _deployment(version, counts)]
    (found.manifests / "mesh.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
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
async def load(targets: list[Target]) -> AsyncIterator[Load]:
    """Run a load of sixteen clients."""
    found = Load(targets, clients=16)
    found.start()
    try:
        yield found
    finally:
        await found.stop()
