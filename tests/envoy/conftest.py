"""Fixtures: an Envoy whose configuration the test renders."""

from collections.abc import Iterator

import pytest
from tests.envoy.http_rig import HttpRig
from tests.envoy.rig import EnvoyRig

from headgate.model.routing import Protocol


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


@pytest.fixture(scope="module")
def shared_http_rig(request: pytest.FixtureRequest) -> Iterator[HttpRig]:
    """Run the places of `HttpRig`; a module's variable PROTOCOL is that of its servers."""
    with HttpRig(getattr(request.module, "PROTOCOL", Protocol.HTTP)) as rig:
        yield rig


@pytest.fixture
def http_rig(shared_http_rig: HttpRig) -> Iterator[HttpRig]:
    """Return the places, without connections of earlier tests."""
    yield shared_http_rig
    shared_http_rig.reset()


@pytest.fixture(params=["service", "proxy", "gateway"])
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)
