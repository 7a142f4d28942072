"""SMI's TCPRoute and UDPRoute (R68): types, schema, checks and conversion. The Gateway API has different kinds of these names."""

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from headgate.errors import Cause
from headgate.kinds import SPECS, names_of
from headgate.resources.columns import AGE, NAME, Column
from headgate.resources.conversion import mapping
from headgate.resources.kind import MESH_CATEGORY, Conversion, Kind, split_api_version
from headgate.resources.meta import Input, Object, Resource, part
from headgate.resources.schema.builders import MATCH_NAME, PORT_LIMITS, Schema, kind
from headgate.resources.schema.declared import Field, declared_schema
from headgate.resources.smi.conversion import PORTLESS_VERSIONS, SPECLESS_VERSIONS, VERSIONS, annotated, with_matches


class PortMatch(Input, frozen=True, kw_only=True):
    """Connections of a route, selected by destination port. An empty list means all ports."""

    name: Annotated[str, Field("A name for the connections.", pattern=MATCH_NAME)] = ""
    ports: Annotated[
        tuple[int, ...],
        Field(
            "The ports of a Service or of its pods; all when empty.",
            item=Field("A port.", limits=PORT_LIMITS),
            required=True,
        ),
    ] = ()


class PortlessSpec(Input, frozen=True, kw_only=True):
    """`spec` of a TCPRoute before v1alpha4. It selects every connection."""


class PortRouteSpec(PortlessSpec, frozen=True, kw_only=True):
    """`spec` of a TCPRoute or UDPRoute. Without `matches` it selects every connection."""

    matches: Annotated[PortMatch | None, Field("The selected connections; all when absent.")] = None


class TCPRoute(Resource, frozen=True, kw_only=True):
    """SMI's TCPRoute: a named set of TCP connections for access rules (R68).

    The Gateway API's TCPRoute is another kind.
    """

    spec: PortRouteSpec = PortRouteSpec()


class UDPRoute(Resource, frozen=True, kw_only=True):
    """SMI's UDPRoute. It is stored and reported, but not enforced: proxies do not handle UDP."""

    spec: PortRouteSpec = PortRouteSpec()


def port_route_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in SMI's TCPRoute or UDPRoute, in any version, that its schema can't express."""
    _, version = split_api_version(obj["apiVersion"])
    spec = part(obj, "spec")
    if version in PORTLESS_VERSIONS:
        yield from _portless_causes(spec, version)
    elif "matches" in spec and spec["matches"] is None:
        yield Cause("spec.matches", "is empty: write a list of ports, or ports: [] for all ports")


def _portless_causes(spec: Mapping[str, Any], version: str) -> Iterator[Cause]:
    if "matches" in spec:
        yield Cause("spec.matches", f"is not a field of {version}; write the route in v1alpha4")
    if spec.keys() - {"matches"}:
        yield Cause(
            "spec",
            f"has no fields in {version}, so it selects every connection; to select ports, write the route in v1alpha4",
        )


def port_route(protocol: str, version: str) -> Schema:
    """Return the schema of SMI's TCPRoute or UDPRoute. Before v1alpha4 they have no fields and select every connection."""
    what = f"A named set of {protocol} connections, selected by port, for access rules."
    is_portless = version in PORTLESS_VERSIONS
    spec = declared_schema(PortlessSpec if is_portless else PortRouteSpec, "The selected connections.")
    return kind(what, "" if is_portless else "spec", spec=spec)


def _port_route_to_hub(obj: Object, version: str) -> Object:
    spec = mapping(obj.get("spec") or {}, "spec")
    if version in PORTLESS_VERSIONS:
        spec = with_matches(spec, obj, version)
    return annotated({**obj, "spec": spec}, matches=None)


def _port_route_from_hub(obj: Object, version: str) -> Object:
    if version not in PORTLESS_VERSIONS:
        return obj
    spec = mapping(obj.get("spec") or {}, "spec")
    matches = json.dumps(spec.pop("matches"), separators=(",", ":")) if "matches" in spec else None
    rest = {name: value for name, value in obj.items() if name != "spec"}
    bare = version in SPECLESS_VERSIONS and not spec
    return annotated(rest if bare else {**rest, "spec": spec}, matches=matches)


_COLUMNS = (
    NAME,
    Column(
        "Ports",
        ".spec.matches.ports",
        "The ports that the route matches; all when empty.",
    ),
    AGE,
)
TCP = Kind(
    names_of("TCPRoute", SPECS),
    versions=VERSIONS,
    shape=TCPRoute,
    schema=lambda _group, version: port_route("TCP", version),
    checks=port_route_causes,
    conversion=Conversion(_port_route_to_hub, _port_route_from_hub),
    columns=_COLUMNS,
    recorded=True,
    categories=(MESH_CATEGORY,),
    unversioned=True,
)
UDP = Kind(
    names_of("UDPRoute", SPECS),
    versions=("v1alpha4",),
    shape=UDPRoute,
    schema=lambda _group, version: port_route("UDP", version),
    checks=port_route_causes,
    columns=_COLUMNS,
    recorded=True,
    categories=(MESH_CATEGORY,),
    unversioned=True,
)
