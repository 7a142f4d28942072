"""Compile and render random worlds, for tests of their properties."""

import os
from collections.abc import Mapping
from random import Random
from typing import Any, NamedTuple

from google.protobuf.message import Message
from hypothesis import settings
from hypothesis import strategies as st
from tests.properties.worlds import World, key_of, named

from headgate.compiler.compile import compile_mesh
from headgate.compiler.report import Compiled
from headgate.envoy import pb
from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPES, ProxyConfig, TypeUrl
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import Node, project, sidecar
from headgate.model.check import check
from headgate.model.identities import Credential, PrivateText, spiffe_id
from headgate.model.mutual_tls import TlsMode
from headgate.model.requests import Request
from headgate.model.routing import Mesh
from headgate.plane.feed import snapshot_of
from headgate.settings import Settings

WORLDS = settings(max_examples=int(os.environ.get("FUZZ_WORLDS", "50")))
"""How many worlds a test draws: an example takes 0.1 s. `FUZZ_WORLDS=1000 pytest tests/properties` draws new ones."""
GATEWAY = Node(id="gateway", proxy_address="127.0.0.1", proxy_port=15001, try_socket="/run/probe")
CREDENTIAL = Credential(chain="chain", key=PrivateText("key"), roots="roots")
ACCESS_SETTINGS = st.builds(
    Settings, mtls=st.sampled_from(("off", "permissive", "strict")), access=st.sampled_from(("selected", "deny"))
)
CALLERS = ("", *(spiffe_id("cluster.local", namespace, name) for namespace in ("default", "blue") for name in "ab"))
REQUESTS = (
    Request(),
    Request(target="/x"),
    Request(target="/x/y?z"),
    Request(target="/x//y"),
    Request(target="/x", method="POST"),
)
CLASSES: Mapping[TypeUrl, type[Message]] = {
    CLUSTER: pb.Cluster,
    ENDPOINTS: pb.ClusterLoadAssignment,
    LISTENER: pb.Listener,
    ROUTES: pb.RouteConfiguration,
    SCOPES: pb.ScopedRouteConfiguration,
}
UNRELATED: World = {
    key_of(obj): obj
    for obj in (
        named("Service", "zoo", "ape", spec={"clusterIP": "10.9.0.1", "ports": [{"port": 80}]}),
        named("Service", "zoo", "bear", spec={"clusterIP": "10.9.0.2", "ports": [{"port": 80}]}),
        named("TrafficSplit", "zoo", "ape", spec={"service": "ape", "backends": [{"service": "bear", "weight": 1}]}),
    )
}


class Built(NamedTuple):
    """A world, the compiled result, and the configuration of the gateway."""

    world: World
    result: Compiled
    config: ProxyConfig


def built(world: World) -> Built:
    """Compile a world, and render its gateway."""
    result = compiled(world)
    return Built(world, result, rendered(result.mesh))


def compiled(
    world: World, settings: Settings | None = None, tls_modes: Mapping[str, TlsMode] | None = None
) -> Compiled:
    """Return what the compiler makes of a world."""
    return compile_mesh(snapshot_of(world), settings or Settings(), tls_modes or {})


def mesh_of(world: World, settings: Settings | None = None) -> Mesh:
    """Return the mesh of a world."""
    return compiled(world, settings).mesh


def rendered(mesh: Mesh, memo: Memo | None = None) -> ProxyConfig:
    """Return the configuration of a gateway without a certificate."""
    return encode(project(mesh, GATEWAY), memo or Memo())


def rendered_for(mesh: Mesh, node: Node, memo: Memo | None = None) -> ProxyConfig:
    """Return the configuration of a proxy with a certificate."""
    return encode(project(mesh, node, CREDENTIAL), memo or Memo())


def all_rendered(mesh: Mesh) -> dict[str, ProxyConfig]:
    """Return the configurations of all proxies with a certificate, built with a shared memo."""
    memo = Memo()
    return {node.id: rendered_for(mesh, node, memo) for node in (GATEWAY, *map(sidecar, mesh.workloads))}


def decoded(config: ProxyConfig, type_url: TypeUrl) -> dict[str, Any]:
    """Return the messages of a type by name."""
    resources = {name: pb.Resource.FromString(encoded.body) for name, encoded in config[type_url].items()}
    return {name: CLASSES[type_url].FromString(resource.resource.value) for name, resource in resources.items()}


def order_does_not_matter(build: Built, random: Random) -> None:
    """Check that a world in another order gives the same result and configuration."""
    objects = list(build.world.items())
    random.shuffle(objects)
    other = built(dict(objects))
    assert build.result == other.result
    assert build.config == other.config


def mesh_is_valid(result: Compiled) -> None:
    """Check the invariants of the mesh, and that each finding is about a reported object and has a field and a message."""
    assert check(result.mesh) == ()
    assert set(result.report.seen) >= {finding.about for finding in result.report.findings}
    assert all(finding.message and finding.field for finding in result.report.findings)


def unrelated_objects_change_no_digest(build: Built) -> None:
    """Check that objects of another namespace change no resource of the gateway."""
    after = rendered(compiled(build.world | UNRELATED).mesh)
    for type_url, resources in build.config.items():
        assert resources.items() <= after[type_url].items()
