"""EndpointSlices (`discovery.k8s.io`)."""

from collections.abc import Iterator
from typing import Any

from headgate.errors import Cause
from headgate.kinds import names_of
from headgate.resources import cells
from headgate.resources.columns import AGE, NAME, Column
from headgate.resources.conversion import mapping, row_list
from headgate.resources.core.fields import (
    ADDRESS_TYPES,
    choice_causes,
    fault_causes,
    is_address,
    number_causes,
    protocol_causes,
)
from headgate.resources.kind import Conversion, Kind
from headgate.resources.meta import Input, Object, Resource, label_fault, rows, subdomain_fault


class EndpointConditions(Input, frozen=True, kw_only=True):
    """The conditions of an endpoint. A missing `ready` means ready, and a missing `serving` serving, as in Kubernetes."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class ObjectReference(Input, frozen=True, kw_only=True):
    """A reference to another object."""

    kind: str = ""
    namespace: str = ""
    name: str = ""


class SliceEndpoint(Input, frozen=True, kw_only=True):
    """One endpoint of a Service. Only the first of `addresses` is used. `hostname` is the first part of a pod's DNS name."""

    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()
    target_ref: ObjectReference | None = None
    hostname: str = ""


class EndpointPort(Input, frozen=True, kw_only=True):
    """The port number of the endpoints for the Service port of the same name."""

    name: str | None = None
    port: int | None = None
    protocol: str = "TCP"


class EndpointSlice(Resource, frozen=True, kw_only=True):
    """Endpoints of the Service that the label `kubernetes.io/service-name` names."""

    address_type: str = "IPv4"
    endpoints: tuple[SliceEndpoint, ...] | None = ()
    ports: tuple[EndpointPort, ...] | None = ()


def slice_causes(obj: Object) -> Iterator[Cause]:
    """Yield mistakes in the fields of an EndpointSlice that headgate reads."""
    kind = obj.get("addressType", "IPv4")
    yield from choice_causes(kind, ("IPv4", "IPv6", "FQDN"), "addressType")
    names: set[object] = set()  # slices of large Services repeat the names of few nodes
    for index, endpoint in rows(obj.get("endpoints")):
        where, addresses = f"endpoints[{index}].addresses", endpoint.get("addresses")
        if not addresses:
            yield Cause(where, "is missing" if addresses is None else "is empty: give the endpoint an address")
        for number, address in enumerate(addresses if isinstance(addresses, list | tuple) else ()):
            yield from _address(address, kind, f"{where}[{number}]")
        if endpoint.get("hostname"):
            yield from fault_causes(endpoint["hostname"], label_fault, f"endpoints[{index}].hostname")
        if isinstance(node := endpoint.get("nodeName"), str) and node not in names:
            names.add(node)
            yield from fault_causes(node, subdomain_fault, f"endpoints[{index}].nodeName")
    for index, port in rows(obj.get("ports")):
        where = f"ports[{index}]"
        if port.get("port") is not None:
            yield from number_causes(port["port"], f"{where}.port")
        yield from fault_causes(port.get("name"), label_fault, f"{where}.name")
        yield from protocol_causes(port, where)


def _address(value: Any, kind: object, where: str) -> Iterator[Cause]:
    """Yield a mistake if an endpoint's address is invalid. Envoy would reject all endpoints of the Service."""
    if value == "":
        yield Cause(where, "is missing")
        return
    family = ADDRESS_TYPES.get(kind) if isinstance(kind, str) else None
    if isinstance(value, str) and value and family and not is_address(value, family):
        yield Cause(where, f"{value!r} is not an {kind} address; write an address, because names are not resolved")


_HOSTNAME = "kubernetes.io/hostname"
_ZONE = "topology.kubernetes.io/zone"


def _slice_to_hub(obj: Object, version: str) -> Object:
    if version != "v1beta1" or obj.get("endpoints") is None:
        return obj
    rows = enumerate(row_list(obj["endpoints"], "endpoints"))
    return {**obj, "endpoints": [_endpoint_to_hub(row, f"endpoints[{index}].topology") for index, row in rows]}


def _endpoint_to_hub(endpoint: dict[str, Any], field: str) -> dict[str, Any]:
    """Move the zone out of `topology`, as Kubernetes does. Remove the hostname if `nodeName` has it too."""
    topology = mapping(endpoint.pop("topology", None) or {}, field)
    if _ZONE in topology:
        endpoint["zone"] = topology.pop(_ZONE)
    if topology.get(_HOSTNAME) is not None and topology[_HOSTNAME] == endpoint.get("nodeName"):
        del topology[_HOSTNAME]
    return {**endpoint, "deprecatedTopology": topology} if topology else endpoint


def _slice_from_hub(obj: Object, version: str) -> Object:
    if version != "v1beta1" or not obj.get("endpoints"):
        return obj
    return {**obj, "endpoints": [_endpoint_from_hub(row) for row in row_list(obj["endpoints"], "endpoints")]}


def _endpoint_from_hub(endpoint: dict[str, Any]) -> dict[str, Any]:
    topology = mapping(endpoint.pop("deprecatedTopology", None) or {}, "endpoints.deprecatedTopology")
    if "zone" in endpoint:
        topology[_ZONE] = endpoint.pop("zone")
    if endpoint.get("nodeName") and _HOSTNAME not in topology:
        topology[_HOSTNAME] = endpoint["nodeName"]
    return {**endpoint, "topology": topology} if topology else endpoint


KIND = Kind(
    names_of("EndpointSlice", "discovery.k8s.io"),
    versions=("v1", "v1beta1"),
    shape=EndpointSlice,
    checks=slice_causes,
    conversion=Conversion(_slice_to_hub, _slice_from_hub),
    columns=(
        NAME,
        Column("AddressType", cell=cells.at("addressType")),
        Column("Ports", cell=cells.listed("ports", lambda port: port.get("port") or "*", "<unset>")),
        Column("Endpoints", cell=cells.addresses),
        AGE,
    ),
)
