"""Fixtures: an Envoy whose configuration the test renders."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.envoy.rig import Rig


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/envoy/") and {"envoy", "rig", "sidecar"} & set(
            getattr(item, "fixturenames", ())
        ):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="module")
def envoy() -> Iterator[Rig]:
    """Run an Envoy whose configuration the test renders, without headgate."""
    with tempfile.TemporaryDirectory(prefix="hg") as root, Rig(Path(root)) as rig:
        yield rig


@pytest.fixture
def rig(envoy: Rig) -> Rig:
    """Return the proxy with three backends."""
    for name in ("one", "two", "other"):
        envoy.echo(name)
    return envoy
