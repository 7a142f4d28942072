"""Fixtures: an Envoy whose configuration the test renders."""

from collections.abc import Iterator

import pytest
from tests.envoy.rig import EnvoyRig


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/envoy/") and {"envoy", "rig", "inbound"} & set(
            getattr(item, "fixturenames", ())
        ):
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="module")
def envoy() -> Iterator[EnvoyRig]:
    """Run an Envoy whose configuration the test renders, without headgate."""
    with EnvoyRig() as rig:
        yield rig


@pytest.fixture
def rig(envoy: EnvoyRig) -> EnvoyRig:
    """Return the proxy with three backends."""
    for name in ("one", "two", "other"):
        envoy.echo(name)
    return envoy
