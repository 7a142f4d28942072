"""Rendered proxies never call a server in plaintext that must be called over TLS (GEP-4488)."""

from collections.abc import Callable

import pytest
from tests.make.objects import (
    Object,
    external_backend,
    external_ref,
    gateway,
    listener,
    port,
    route,
    service,
    service_parent,
)
from tests.make.values import compiled

from headgate.render.haproxy import configuration as haproxy
from headgate.render.nginx import configuration as nginx
from headgate.render.omissions import OmissionReason
from headgate.render.output import Rendered
from headgate.render.proxy_ports import Selection, select

HOST = "api.example.com"
SERVER_ONLY = {"mode": "ServerOnly"}


def selection(kind: str, parent: Object, **spec: object) -> Selection:
    """Return what is rendered of a route to the XBackend `api`."""
    listeners = listener(9000, "tcp", protocol="TCP"), listener(8000)
    return select(
        compiled(
            service("db", port(5432, "db", app="tcp")),
            service("web", 80),
            gateway("edge", *listeners, status={"addresses": [{"value": "127.0.0.10"}]}),
            external_backend("api", HOST, **spec),
            route("out", {"backendRefs": [external_ref("api")]}, parents=[parent], kind=kind),
        ).mesh
    )


@pytest.mark.parametrize("render", [nginx.render, haproxy.render], ids=["nginx", "haproxy"])
@pytest.mark.parametrize(
    ("kind", "parent"),
    [
        ("TCPRoute", service_parent("db", 5432)),
        ("TCPRoute", {"name": "edge", "sectionName": "tcp"}),
        ("HTTPRoute", service_parent("web", 80)),
        ("HTTPRoute", {"name": "edge", "sectionName": "http"}),
    ],
    ids=["connections of a Service", "connections of a Gateway", "requests of a Service", "requests of a Gateway"],
)
def test_a_server_with_tls_is_an_omission_and_gets_no_plaintext(
    render: Callable[[Selection], Rendered], kind: str, parent: Object
) -> None:
    plain = selection(kind, parent)
    assert HOST in "".join(render(plain).files.values())
    secured = selection(kind, parent, tls=SERVER_ONLY)
    assert OmissionReason.BACKEND_TLS in {omission.reason for omission in secured.omissions}
    assert HOST not in "".join(render(secured).files.values())
