"""Checks of Gateways and ReferenceGrants beyond their schemas: CEL validations of the released API (requirements 2.4)."""

from collections.abc import Iterator, Mapping
from typing import Any

from headgate.errors import Cause
from headgate.resources.meta import Object, part, rows

_WITHOUT_TLS = frozenset({"HTTP", "TCP", "UDP"})
_WITHOUT_HOSTNAME = frozenset({"TCP", "UDP"})


def gateway_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in a Gateway that its schema can't express."""
    listeners = part(obj, "spec").get("listeners")
    yield from _clashes(listeners)
    for index, listener in rows(listeners):
        yield from _listener_causes(listener, f"spec.listeners[{index}]")


def _clashes(listeners: object) -> Iterator[Cause]:
    """Yield a mistake for each listener that has the name, or the port, protocol and hostname, of an earlier listener."""
    names: dict[str, int] = {}
    places: dict[str, int] = {}
    for index, listener in rows(listeners):
        where = f"spec.listeners[{index}]"
        first = names.setdefault(str(listener.get("name")), index)
        if first != index:
            message = f"{listener.get('name')!r} is the name of spec.listeners[{first}] too; names must differ"
            yield Cause(f"{where}.name", message)
        place = "/".join(str(listener.get(field) or "") for field in ("port", "protocol", "hostname"))
        first = places.setdefault(place, index)
        if first != index:
            yield Cause(
                where, f"has the same port, protocol and hostname as spec.listeners[{first}]; change one of the three"
            )


def _listener_causes(listener: Mapping[str, Any], where: str) -> Iterator[Cause]:
    protocol, tls = listener.get("protocol"), part(listener, "tls")
    mode, written = tls.get("mode") or "Terminate", listener.get("tls") is not None
    if written and protocol in _WITHOUT_TLS:
        yield Cause(
            f"{where}.tls", f"is not possible with protocol {protocol}; use protocol HTTPS or TLS, or leave it out"
        )
    if not written and protocol in ("HTTPS", "TLS"):
        yield Cause(f"{where}.tls", f"is missing: protocol {protocol} needs it")
    if protocol == "HTTPS" and mode != "Terminate":
        yield Cause(f"{where}.tls.mode", "must be Terminate with protocol HTTPS; use protocol TLS for passthrough")
    named = tls.get("certificateRefs") or tls.get("options")
    if written and protocol not in _WITHOUT_TLS and mode == "Terminate" and not named:
        yield Cause(f"{where}.tls.certificateRefs", "is missing: name the Secret with the certificate")
    if listener.get("hostname") and protocol in _WITHOUT_HOSTNAME:
        yield Cause(
            f"{where}.hostname",
            f"is not possible with protocol {protocol}: its connections carry no host name; leave it out",
        )
    namespaces = part(part(listener, "allowedRoutes"), "namespaces")
    if namespaces.get("from") == "Selector" and namespaces.get("selector") is None:
        yield Cause(f"{where}.allowedRoutes.namespaces.selector", "is missing: `from: Selector` needs it")


def grant_causes(obj: Object) -> Iterator[Cause]:
    """Yield a mistake for each entry of a ReferenceGrant without `group`, which is required but may be empty."""
    for field in ("from", "to"):
        for index, reference in rows(part(obj, "spec").get(field)):
            if reference.get("group") is None:
                yield Cause(f"spec.{field}[{index}].group", 'is missing; write "" for the core group')
