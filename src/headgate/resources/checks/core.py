"""Checks of Services, EndpointSlices, ConfigMaps and Secrets that their schemas can't express."""

import base64
from collections.abc import Callable, Collection, Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from headgate.errors import Cause
from headgate.resources.checks.grammars import config_key_fault, service_port_name_fault
from headgate.resources.definitions.schema_builders import LARGEST_PORT
from headgate.resources.meta import Object, label_causes, label_fault, label_key_fault, part, rows, subdomain_fault

_ADDRESS_TYPES: Mapping[object, type[IPv4Address | IPv6Address]] = {"IPv4": IPv4Address, "IPv6": IPv6Address}
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_TYPES = ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")
_NO_ADDRESS = ("", "None")  # empty until an address is assigned; `None` for a headless Service


def service_causes(obj: Object) -> Iterator[Cause]:
    """Yield mistakes in the fields of a Service that headgate reads."""
    spec = part(obj, "spec")
    address, ports = spec.get("clusterIP"), spec.get("ports")
    if isinstance(address, str) and address not in _NO_ADDRESS and not _is_address(address, *_ADDRESS_TYPES.values()):
        yield Cause(
            "spec.clusterIP", f"{address!r} is not an IP address; leave out the field to get an address assigned"
        )
    yield from label_causes(spec.get("selector"), "spec.selector")
    yield from _choice(spec.get("type"), _TYPES, "spec.type")
    names: dict[str, int] = {}
    for index, port in rows(ports):
        where = f"spec.ports[{index}]"
        yield from _number(port.get("port"), f"{where}.port")
        yield from _target(port.get("targetPort"), f"{where}.targetPort")
        yield from _protocols(port, where)
        name = port.get("name") or ""
        if len(ports or ()) > 1 and not name:
            yield Cause(f"{where}.name", "is required when there are several ports")
        elif isinstance(name, str) and name:
            yield from _port_name(name, index, names)


def config_map_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in the keys of a ConfigMap, and each entry of `binaryData` that is not base64."""
    yield from _key_causes(obj, "data", "binaryData")
    yield from _base64_map(obj, "binaryData")


def secret_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in the keys of a Secret, and each entry of `data` that is not base64. No message has a value."""
    yield from _key_causes(obj, "data", "stringData")
    yield from _base64_map(obj, "data")


def _key_causes(obj: Object, *fields: str) -> Iterator[Cause]:
    """Yield the keys that Kubernetes rejects: keys become the names of files in volumes."""
    for field in fields:
        for key in part(obj, field):
            if fault := config_key_fault(key):
                yield Cause(field, fault)
    if fields == ("data", "binaryData"):
        for key in part(obj, "data").keys() & part(obj, "binaryData").keys():
            yield Cause(f"binaryData.{key}", "is also a key of data; keys must differ")


def _base64_map(obj: Object, field: str) -> Iterator[Cause]:
    for key, text in part(obj, field).items():
        if isinstance(text, str) and not _is_base64(text):
            yield Cause(f"{field}.{key}", "must be base64")


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(
            text.replace("\n", "").replace("\r", ""), validate=True
        )  # Kubernetes' decoder (Go) skips line breaks too
    except ValueError:
        return False
    return True


def _port_name(name: str, index: int, names: dict[str, int]) -> Iterator[Cause]:
    where = f"spec.ports[{index}].name"
    first = names.setdefault(name, index)
    if first != index:
        yield Cause(where, f"{name!r} is the name of spec.ports[{first}] too; names of ports must differ")
    elif fault := label_fault(name):
        yield Cause(where, fault)


def _number(value: object, where: str) -> Iterator[Cause]:
    if value is None:
        yield Cause(where, "is missing")
    elif type(value) is int and not 1 <= value <= LARGEST_PORT:
        yield Cause(where, f"must be from 1 to {LARGEST_PORT}, not {value}")


def _target(value: object, where: str) -> Iterator[Cause]:
    if value == "":
        yield Cause(where, "must be a port number, or the name of a container's port")
    elif isinstance(value, str):
        yield from _fault(value, service_port_name_fault, where)
    elif value:  # 0 means unset, as in Kubernetes
        yield from _number(value, where)


def _protocols(port: Mapping[str, Any], where: str) -> Iterator[Cause]:
    yield from _choice(port.get("protocol"), _PROTOCOLS, f"{where}.protocol")
    yield from _fault(port.get("appProtocol"), label_key_fault, f"{where}.appProtocol")


def _choice(value: object, allowed: Collection[str], where: str) -> Iterator[Cause]:
    if isinstance(value, str) and value and value not in allowed:
        yield Cause(where, f"must be {' or '.join(allowed)}, not {value!r}")


def _fault(value: object, grammar: Callable[[str], str], where: str) -> Iterator[Cause]:
    """Yield the fault of a text. An empty text counts as missing."""
    if isinstance(value, str) and value and (fault := grammar(value)):
        yield Cause(where, fault)


def slice_causes(obj: Object) -> Iterator[Cause]:
    """Yield mistakes in the fields of an EndpointSlice that headgate reads."""
    kind = obj.get("addressType", "IPv4")
    yield from _choice(kind, ("IPv4", "IPv6", "FQDN"), "addressType")
    names: set[object] = set()  # slices of large Services repeat the names of few nodes
    for index, endpoint in rows(obj.get("endpoints")):
        where, addresses = f"endpoints[{index}].addresses", endpoint.get("addresses")
        if not addresses:
            yield Cause(where, "is missing" if addresses is None else "is empty: give the endpoint an address")
        for number, address in enumerate(addresses if isinstance(addresses, list | tuple) else ()):
            yield from _address(address, kind, f"{where}[{number}]")
        if endpoint.get("hostname"):
            yield from _fault(endpoint["hostname"], label_fault, f"endpoints[{index}].hostname")
        if isinstance(node := endpoint.get("nodeName"), str) and node not in names:
            names.add(node)
            yield from _fault(node, subdomain_fault, f"endpoints[{index}].nodeName")
    for index, port in rows(obj.get("ports")):
        where = f"ports[{index}]"
        if port.get("port") is not None:
            yield from _number(port["port"], f"{where}.port")
        yield from _fault(port.get("name"), label_fault, f"{where}.name")
        yield from _protocols(port, where)


def _address(value: Any, kind: object, where: str) -> Iterator[Cause]:
    """Yield a mistake if an endpoint's address is invalid. Envoy would reject all endpoints of the Service."""
    if value == "":
        yield Cause(where, "is missing")
        return
    wanted = _ADDRESS_TYPES.get(kind) if isinstance(kind, str) else None
    if isinstance(value, str) and value and wanted and not _is_address(value, wanted):
        yield Cause(where, f"{value!r} is not an {kind} address; write an address, because names are not resolved")


def _is_address(text: str, *kinds: type[IPv4Address | IPv6Address]) -> bool:
    for kind in kinds:
        try:
            kind(text)
        except ValueError:
            continue
        return True
    return False
