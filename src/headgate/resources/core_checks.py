"""What can be wrong with Services, EndpointSlices, ConfigMaps, Secrets and ReferenceGrants, as far as headgate reads them."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from headgate.errors import Cause
from headgate.resources.checks import TOP_LEVEL, common_causes, list_at, object_at, text_at, unknown_fields
from headgate.resources.meta import Object
from headgate.resources.names import label_fault, type_name

_LARGEST_PORT = 65535
_MOST_REFERENCES = 16
_ADDRESS_TYPES: Mapping[object, type[IPv4Address | IPv6Address]] = {"IPv4": IPv4Address, "IPv6": IPv6Address}
_NO_ADDRESS = ("", "None")  # not given yet, and headless
_PORT_TEXTS = ("name", "protocol", "appProtocol")


def grant_causes(obj: Object) -> Iterator[Cause]:
    """Yield every structural mistake of a ReferenceGrant (requirements 2.5)."""
    yield from common_causes(obj)
    yield from unknown_fields(obj, TOP_LEVEL)
    causes: list[Cause] = []
    spec = object_at(obj.get("spec"), "spec", causes)
    if spec is not None:
        causes += unknown_fields(spec, ("from", "to"), "spec")
        causes += _references(spec.get("from"), "spec.from", ("group", "kind", "namespace"))
        causes += _references(spec.get("to"), "spec.to", ("group", "kind", "name"))
    yield from causes


def _references(value: object, where: str, fields: Sequence[str]) -> list[Cause]:
    causes: list[Cause] = []
    items = list_at(value, where, causes)
    if not causes and not 1 <= len(items) <= _MOST_REFERENCES:
        causes.append(Cause(where, f"must have 1 to {_MOST_REFERENCES} entries, not {len(items)}"))
    for index, item in enumerate(items):
        place = f"{where}[{index}]"
        reference = object_at(item, place, causes)
        if reference is None:
            continue
        causes += unknown_fields(reference, fields, place)
        if not isinstance(reference.get("group"), str):
            causes.append(Cause(f"{place}.group", 'is required, as text; the core group is ""'))
        text_at(reference.get("kind"), f"{place}.kind", causes)
        if "namespace" in fields or reference.get("name") is not None:
            text_at(reference.get(fields[2]), f"{place}.{fields[2]}", causes)
    return causes


def service_causes(obj: Object) -> Iterator[Cause]:
    """Yield mistakes in the fields of a Service that headgate reads."""
    yield from common_causes(obj)
    causes: list[Cause] = []
    spec = object_at(obj.get("spec", {}), "spec", causes)
    if spec is not None:
        causes += _text_map(spec.get("selector"), "spec.selector")
        for name in ("clusterIP", "type"):
            causes += _optional_text(spec, name, "spec")
        address = spec.get("clusterIP")
        if (
            isinstance(address, str)
            and address not in _NO_ADDRESS
            and not _is_address(address, *_ADDRESS_TYPES.values())
        ):
            causes.append(Cause("spec.clusterIP", f"{address!r} is not an IP address; leave it out to be given one"))
        if spec.get("ports") is not None:
            causes += _ports(list_at(spec["ports"], "spec.ports", causes), "spec.ports")
    yield from causes


def config_map_causes(obj: Object) -> Iterator[Cause]:
    """Yield mistakes in a ConfigMap: content is text, `binaryData` text in base64."""
    yield from common_causes(obj)
    yield from _text_map(obj.get("data"), "data")
    yield from _base64_map(obj.get("binaryData"), "binaryData")


def secret_causes(obj: Object) -> Iterator[Cause]:
    """Yield mistakes in a Secret: `data` is text in base64, `stringData` any text. No message repeats a value."""
    yield from common_causes(obj)
    yield from _base64_map(obj.get("data"), "data")
    yield from _text_map(obj.get("stringData"), "stringData")


def _base64_map(value: object, where: str) -> list[Cause]:
    if causes := _text_map(value, where):
        return causes
    found = value if isinstance(value, Mapping) else {}
    return [Cause(f"{where}.{key}", "must be base64") for key, text in found.items() if not _is_base64(text)]


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)  # Go's decoder skips line ends
    except ValueError:
        return False
    return True


def _ports(items: Sequence[Any], where: str) -> list[Cause]:
    causes: list[Cause] = []
    names: dict[object, int] = {}
    for index, item in enumerate(items):
        place = f"{where}[{index}]"
        port = object_at(item, place, causes)
        if port is None:
            continue
        for name in _PORT_TEXTS:
            causes += _optional_text(port, name, place)
        causes += _number(port.get("port"), f"{place}.port")
        causes += _target(port.get("targetPort"), f"{place}.targetPort")
        name = port.get("name") or ""
        if len(items) > 1 and not name:
            causes.append(Cause(f"{place}.name", "is required when there are several ports"))
        elif isinstance(name, str) and name:
            causes += _port_name(name, index, names, where)
    return causes


def _port_name(name: str, index: int, names: dict[object, int], where: str) -> list[Cause]:
    place = f"{where}[{index}].name"
    first = names.setdefault(name, index)
    if first != index:
        return [Cause(place, f"{name!r} is the name of {where}[{first}] already; names of ports must differ")]
    fault = label_fault(name)
    return [Cause(place, fault)] if fault else []


def _number(value: object, where: str) -> list[Cause]:
    if value is None:
        return [Cause(where, "is missing")]
    if isinstance(value, bool) or not isinstance(value, int):
        hint = "; write it without quotes" if isinstance(value, str) else ""
        return [Cause(where, f"must be a whole number, not {type_name(value)}{hint}")]
    return [] if 1 <= value <= _LARGEST_PORT else [Cause(where, f"must be from 1 to {_LARGEST_PORT}, not {value}")]


def _target(value: object, where: str) -> list[Cause]:
    if value is None or (value == 0 and type(value) is int):  # 0 means unset, as in Kubernetes
        return []
    if isinstance(value, str):
        return [] if value else [Cause(where, "must be a number, or the name of a container's port")]
    return _number(value, where)


def slice_causes(obj: Object) -> Iterator[Cause]:
    """Yield mistakes in the fields of an EndpointSlice that headgate reads."""
    yield from common_causes(obj)
    yield from _optional_text(obj, "addressType", "")
    causes: list[Cause] = []
    if obj.get("endpoints") is not None:
        for index, item in enumerate(list_at(obj["endpoints"], "endpoints", causes)):
            endpoint = object_at(item, f"endpoints[{index}]", causes)
            if endpoint is not None:
                causes += _endpoint(endpoint, f"endpoints[{index}]")
                causes += _addresses(endpoint.get("addresses"), obj.get("addressType", "IPv4"), f"endpoints[{index}]")
    if obj.get("ports") is not None:
        for index, item in enumerate(list_at(obj["ports"], "ports", causes)):
            port = object_at(item, f"ports[{index}]", causes)
            if port is not None:
                causes += _slice_port(port, f"ports[{index}]")
    yield from causes


def _endpoint(endpoint: Mapping[str, Any], where: str) -> list[Cause]:
    causes: list[Cause] = []
    addresses = list_at(endpoint.get("addresses"), f"{where}.addresses", causes)
    if not addresses and not causes:
        causes.append(Cause(f"{where}.addresses", "is empty: give the endpoint an address"))
    for index, address in enumerate(addresses):
        text_at(address, f"{where}.addresses[{index}]", causes)
    causes += _optional_text(endpoint, "nodeName", where)
    conditions = object_at(endpoint.get("conditions") or {}, f"{where}.conditions", causes) or {}
    for name in ("ready", "serving", "terminating"):
        value = conditions.get(name)
        if value is not None and not isinstance(value, bool):
            causes.append(Cause(f"{where}.conditions.{name}", f"must be true or false, not {type_name(value)}"))
    target = object_at(endpoint.get("targetRef") or {}, f"{where}.targetRef", causes) or {}
    for name in ("kind", "namespace", "name", "uid"):
        causes += _optional_text(target, name, f"{where}.targetRef")
    return causes


def _addresses(values: object, kind: object, where: str) -> list[Cause]:
    """Return the addresses that a proxy would refuse, and with them every other endpoint of the Service."""
    if not isinstance(kind, str) or kind not in _ADDRESS_TYPES or not isinstance(values, list):
        return []
    return [
        Cause(f"{where}.addresses[{index}]", f"{value!r} is not an {kind} address; names are resolved by nobody here")
        for index, value in enumerate(values)
        if isinstance(value, str) and value and not _is_address(value, _ADDRESS_TYPES[kind])
    ]


def _is_address(text: str, *kinds: type[IPv4Address | IPv6Address]) -> bool:
    for kind in kinds:
        try:
            kind(text)
        except ValueError:
            continue
        return True
    return False


def _slice_port(port: Mapping[str, Any], where: str) -> list[Cause]:
    causes = [cause for name in _PORT_TEXTS for cause in _optional_text(port, name, where)]
    return causes if port.get("port") is None else causes + _number(port["port"], f"{where}.port")


def _optional_text(value: Mapping[str, Any], name: str, where: str) -> list[Cause]:
    found = value.get(name)
    if found is None or isinstance(found, str):
        return []
    return [Cause(f"{where}.{name}" if where else name, f"must be text, not {type_name(found)}; write it with quotes")]


def _text_map(value: object, where: str) -> list[Cause]:
    if value is None:
        return []
    if not isinstance(value, Mapping):
        return [Cause(where, f"must map text to text, not be {type_name(value)}")]
    return [
        Cause(f"{where}.{key}", f"must be text, not {type_name(text)}; write it with quotes")
        for key, text in value.items()
        if not isinstance(text, str)
    ]
