"""The protocols of backends that belong to the roots of splits."""

from collections.abc import Iterable

from headgate.model.routing import PortRef, Protocol, RouteTable


def roots(tables: Iterable[RouteTable]) -> dict[PortRef, Protocol]:
    """Return a protocol for each backend of a split: the protocol of its root, or of the first root if there are several.

    Clients of the root call the backend with it; direct clients too, where proxies need a single protocol for each port.
    """
    protocols: dict[PortRef, Protocol] = {}
    for target in (target for table in tables for route in table.routes for target in route.split.targets):
        if target.protocol:
            protocols.setdefault(target.ref, target.protocol)
    return protocols
