"""Servers and clients that are not headgate's: with sidecars and mutual TLS, they exchange what they exchange without."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.manifests import service_manifest
from tests.e2e.real_software import SOFTWARE, missing, outputs, outputs_without_headgate, prepared
from tests.e2e.running_mesh import RunningMesh
from tests.make import objects
from tests.make.objects import manifest


@pytest.fixture
def directory() -> Iterator[Path]:
    """Return a directory that other users can enter: PostgreSQL does not run as root."""
    with tempfile.TemporaryDirectory(prefix="hg") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize("name", SOFTWARE)
def test_programs_exchange_the_same_as_without_headgate(
    mesh: RunningMesh, namespace: str, directory: Path, name: str
) -> None:
    software = SOFTWARE[name]
    if programs := missing(software):
        pytest.skip(f"{programs} not installed")
    expected = outputs_without_headgate(software, prepared(software, directory / "alone"))
    where = prepared(software, directory / "pod")
    container = objects.container("app", 9000, command=["sh", "-c", software.server], workingDir=str(where))
    labels = {"app": name}
    mesh.apply(
        service_manifest(name, {"main": 9000}, selector=labels, app=software.protocol),
        manifest(objects.deployment(name, container, labels=labels, namespace="")),
        namespace=namespace,
    )
    mesh.wait_for_rollout(name, namespace)
    mesh.settle()
    address = mesh.address(name, 9000, namespace)
    assert outputs(software, address) == expected
    mesh.apply(manifest(objects.tls_config("strict", labels, namespace="")), namespace=namespace)
    mesh.settle()
    assert outputs(software, address) == expected
