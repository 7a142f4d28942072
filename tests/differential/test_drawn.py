"""Random worlds contain each field of the routing model, and of the kinds of objects about routing."""

import typing
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.differential.access_worlds import access_worlds
from tests.differential.backends import Member
from tests.differential.lab import MEMBERS, MemberLab, Objects
from tests.differential.protocols import protocols
from tests.differential.sidecar_lab import AccessWorld
from tests.differential.worlds import edge_worlds, root_worlds, worlds

from headgate.compiler.compile import compile_mesh
from headgate.model.routing import GatewayPort, RouteTable
from headgate.plane.feed import snapshot_of
from headgate.resources.gateway_api.authorization_policy import KIND as AUTHORIZATION_POLICY
from headgate.resources.gateway_api.backend import KIND as BACKEND
from headgate.resources.gateway_api.backend_tls_policy import KIND as BACKEND_TLS_POLICY
from headgate.resources.gateway_api.gateway import KIND as GATEWAY
from headgate.resources.gateway_api.grpc_route import KIND as GRPC_ROUTE
from headgate.resources.gateway_api.http_route import KIND as HTTP_ROUTE
from headgate.resources.gateway_api.listener_set import KIND as LISTENER_SET
from headgate.resources.gateway_api.tcp_route import KIND as TCP_ROUTE
from headgate.resources.gateway_api.tls_route import KIND as TLS_ROUTE
from headgate.resources.gateway_api.udp_route import KIND as UDP_ROUTE
from headgate.settings import Settings

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(0)]

WORLDS, MOST_SERIES = 20, 7
"""How many worlds a series has, and how many series are drawn at most."""
KINDS = (
    *(HTTP_ROUTE, GRPC_ROUTE, TCP_ROUTE, TLS_ROUTE, UDP_ROUTE),
    *(GATEWAY, LISTENER_SET, BACKEND, BACKEND_TLS_POLICY, AUTHORIZATION_POLICY),
)
MODEL = (GatewayPort, RouteTable)
_OF_CERTIFICATES = "another reference to the same certificate (tests/compiler/gateway_api)"
_ONLY_VALUE = "has one possible value, the default"
_INFRASTRUCTURE = "about the pods of proxies (tests/pods/test_gateways.py)"
_OF_SELECTORS = "selectors have their own tests (tests/resources)"
_RARE = "needs several rare conditions at once"
NOT_DRAWN = {
    "BackendTLSValidation.well_known": "no server has a certificate of an authority that the system trusts",
    "BackendTls.opaque": _RARE,
    "BackendTls.fault": "such a backend is a failing share instead",
    "CaReference.namespace": _OF_CERTIFICATES,
    "CertificateReference": _OF_CERTIFICATES,
    "FrontendTLSConfig.default": "the ports have settings of their own",
    "GatewayAddress": "the lab assigns the address",
    "GatewaySpec.addresses": "the lab assigns the address",
    "GatewaySpec.infrastructure": _INFRASTRUCTURE,
    "Infrastructure": _INFRASTRUCTURE,
    "LabelSelector.match_expressions": _OF_SELECTORS,
    "ListenerNamespaces.selector": _OF_SELECTORS,
    "Metadata": "of all kinds; worlds have what orders objects",
    "OwnerReference": "of all kinds; worlds have the Canaries of splits",
    "ParametersReference": _INFRASTRUCTURE,
    "ParentGatewayReference": _ONLY_VALUE,
    "PolicyTarget.group": _ONLY_VALUE,
    "Requirement": _OF_SELECTORS,
    "RouteGroupKind.group": _ONLY_VALUE,
    "SecretReference": _OF_CERTIFICATES,
    "SlotRange.status": _RARE,
    "SubjectAltName.uri": "the certificates of members have no URI (tests/e2e/gateway_api/test_backend_tls.py)",
    "TLSPolicyTarget.group": _ONLY_VALUE,
    "TLSPolicyTarget.kind": _ONLY_VALUE,
    "Target.policy_roots": _RARE,
}
"""Fields, or whole types, whose values no world changes, with the reason."""


def reached(shape: Any) -> Iterator[type[msgspec.Struct]]:
    """Yield all types of structs in a type."""
    rest, seen = [shape], set[Any]()
    while rest:
        kind = rest.pop()
        rest += typing.get_args(kind)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in seen:
            seen.add(kind)
            yield kind
            rest += typing.get_type_hints(kind).values()


def set_fields(value: object) -> Iterator[tuple[str, str]]:
    """Yield the type and name of each field in a value that has no default, or has another value."""
    if isinstance(value, msgspec.Struct):
        for field in structs.fields(value):
            content = getattr(value, field.name)
            default = field.default_factory() if callable(field.default_factory) else field.default
            if field.required or content != default:
                yield type(value).__name__, field.name
                yield from set_fields(content)
    elif isinstance(value, Mapping):
        for content in value.values():
            yield from set_fields(content)
    elif isinstance(value, tuple):
        for content in value:
            yield from set_fields(content)


def every_field(*shapes: Any) -> set[tuple[str, str]]:
    """Return all fields of types, except those that are not drawn."""
    fields = {
        (kind.__name__, field.name) for shape in shapes for kind in reached(shape) for field in structs.fields(kind)
    }
    return {(kind, name) for kind, name in fields if not {kind, f"{kind}.{name}"} & NOT_DRAWN.keys()}


def test_random_worlds_have_every_field() -> None:
    """Draw series of worlds until they have every field, which mostly takes two or three."""
    missing = every_field(*[kind.shape for kind in KINDS], *MODEL)
    lab = MemberLab()
    lab.members = [Member(number) for number in range(MEMBERS)]
    for member in lab.members:
        member.port = 20_000 + member.number

    @settings(
        max_examples=WORLDS, phases=[Phase.generate], suppress_health_check=list(HealthCheck), deadline=None,
        derandomize=True,
    )  # fmt: skip
    @given(st.one_of(worlds(protocols()), root_worlds(), edge_worlds()), access_worlds())
    def each(world: Objects, access: AccessWorld) -> None:
        snapshot = snapshot_of(lab.placed(world))
        missing.difference_update(set_fields(tuple(snapshot.objects.values())))
        missing.difference_update(set_fields(tuple(snapshot_of(access.objects).objects.values())))
        mesh = compile_mesh(snapshot, Settings()).mesh
        missing.difference_update(set_fields((mesh.gateways, mesh.tables)))

    with closing(lab):
        for number in range(MOST_SERIES):
            if missing:
                seed(number)(each)()
    assert not missing, f"no world has {sorted(f'{kind}.{name}' for kind, name in missing)}"
