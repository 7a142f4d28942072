"""Objects without `apiVersion`, as the specifications write them (000, 001, 003; D27).

Only files are read this way. The API refuses such objects, as kubectl does.
"""

from collections.abc import Mapping

from headgate.resources.decode import validate
from headgate.resources.meta import Object
from headgate.resources.registry import (
    ROUTE_GROUP,
    SERVICE,
    TCP_ROUTE,
    TLS_CONFIG,
    TRAFFIC_SPLIT,
    TRAFFIC_TARGET,
    UDP_ROUTE,
    Kind,
    api_version,
)
from headgate.resources.versions import with_metadata_name

_KINDS: Mapping[str, Kind] = {
    kind.kind: kind for kind in (TRAFFIC_SPLIT, ROUTE_GROUP, TCP_ROUTE, UDP_ROUTE, TRAFFIC_TARGET, TLS_CONFIG, SERVICE)
}
"""Kinds that the specifications write without a version. A TCPRoute is SMI's."""


def with_api_version(obj: Object) -> Object:
    """Return an object without `apiVersion` in the newest version whose shape it has; the newest of all if it has none.

    Every other object comes back as it is: one with an `apiVersion`, or of a kind that the specifications write with it.
    """
    kind = _KINDS.get(str(obj.get("kind")))
    if obj.get("apiVersion") or kind is None:
        return obj
    newest, *older = ({**obj, "apiVersion": api_version(*version)} for version in kind.written)
    return next((item for item in (newest, *older) if not validate(with_metadata_name(item))), newest)
