"""A fixture: a namespace with backends for the tests of the Gateway API."""

import pytest
from tests.e2e.gateway_api.site import Site
from tests.e2e.world import World


@pytest.fixture
def site(world: World, namespace: str) -> Site:
    """Return a namespace with the Services v1, v2 and v3."""
    return Site(world, namespace)
