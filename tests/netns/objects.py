"""The Services of the mesh in network namespaces, and objects that several of its tests change."""

import itertools
from collections.abc import Sequence

from tests.make.objects import (
    Object,
    backend_ref,
    endpoint,
    endpoint_slice,
    port,
    route,
    rule,
    service,
    service_parent,
    tls_config,
)
from tests.netns.namespaced_mesh import MeshPod
from tests.wire import Address

WEB, ONE, TWO = Address("10.96.0.10", 80), Address("10.96.0.11", 80), Address("10.96.0.12", 80)
H2, ECHO, GREETING = Address("10.96.0.13", 80), Address("10.96.0.14", 7000), Address("10.96.0.15", 7001)
OWN_TLS, GRPC, SELF = Address("10.96.0.16", 7443), Address("10.96.0.17", 9000), Address("10.96.0.18", 80)
ECHO_ONE, ECHO_TWO = Address("10.96.0.20", 7000), Address("10.96.0.21", 7000)
_AGES = itertools.count()
ALL_STRICT = [tls_config(name, {"app": name}) for name in ("client", "stranger", "one", "two")]


def served(name: str, at: Address, pods: Sequence[MeshPod], target: int, app: str = "http") -> tuple[Object, Object]:
    """Return a Service with one port, and its EndpointSlice; without a host it is headless.

    Each Service is younger than the last one: the oldest Service of a pod's port decides its protocol for plaintext.
    """
    age = {"creationTimestamp": f"2026-01-01T00:00:{next(_AGES) % 60:02}Z"}
    return (
        service(name, port(at.port, "main", app=app), clusterIP=at.host or "None", metadata=age),
        endpoint_slice(name, [endpoint(member.address, member.name) for member in pods], {"main": target}),
    )


def mirror(name: str, root: str, number: int, copy: str) -> Object:
    """Return an HTTPRoute that mirrors the requests of the Service `root` to the Service `copy`."""
    copied = {"type": "RequestMirror", "requestMirror": {"backendRef": backend_ref(copy, number)}}
    return route(name, rule({root: 1}, port=number, filters=[copied]), parents=[service_parent(root)])
