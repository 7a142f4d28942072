"""A fixture: a namespace with backends for the tests of the Gateway API."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.e2e.gateway_api.hosts import Machine
from tests.e2e.gateway_api.site import Site
from tests.e2e.running_mesh import RunningMesh


@pytest.fixture
def site(mesh: RunningMesh, namespace: str) -> Iterator[Site]:
    """Return a namespace with the Services v1, v2 and v3."""
    with closing(Machine(mesh)) as host:
        yield Site(host, namespace)
