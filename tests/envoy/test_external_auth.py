"""The settings of a route with an authorization server (GEP-1494)."""

import pytest

from headgate.envoy import pb
from headgate.envoy.external_auth import enable
from headgate.model.routing import ExternalAuth, PortRef


@pytest.mark.parametrize(("body", "limit"), [(0, 0), (1024, 0), (2 * 1024 * 1024, 2 * 1024 * 1024)])
def test_a_proxy_keeps_as_much_of_a_body_as_the_server_gets(body, limit):
    """Envoy keeps 1 MiB by default, and answers 413 to a body of which it must keep more."""
    route = pb.Route()
    enable(route, ExternalAuth(ref=PortRef("default/auth", 80), protocol="HTTP", body=body), "auth")
    assert route.request_body_buffer_limit.value == limit
