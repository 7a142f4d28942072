"""Names of Envoy resources: made here alone, and read back here, so that a refusal or a counter finds its object.

outbound/<namespace>/<service>/<port>                  listener, routes, cluster and endpoints of a Service port
split/<namespace>/<service>/<port>/<namespace>/<name>  cluster of one backend, where a split needs one for each
match/<namespace>/<service>/<port>/<namespace>/<name>  cluster for the requests that a split's groups match
none/<namespace>/<service>/<port>                      cluster that never has endpoints: a share that must fail
host/<namespace>/<service>/<port>/<authority>          one spelling of a host for clients of the HTTP proxy
proxy, probe                                           listeners of the HTTP proxy, for clients and for `headgate try`
"""

from headgate.model.authorities import authorities as authorities  # noqa: PLC0414  # names are looked up here
from headgate.model.refs import PortRef
from headgate.resources.meta import Key

PROXY = "proxy"
PROBE = "probe"
_PARTS_OF_A_PORT = 4


def outbound(ref: PortRef) -> str:
    """Name what belongs to a Service port."""
    return f"outbound/{ref.service}/{ref.port}"


def backend(ref: PortRef, target: str) -> str:
    """Name the cluster of one backend (`namespace/name`) of the split on `ref`."""
    return f"split/{ref.service}/{ref.port}/{target}"


def matched(ref: PortRef, origin: Key | None) -> str:
    """Name the cluster for the requests to `ref` that an object's groups match."""
    owner = f"{origin.namespace}/{origin.name}" if origin else ""
    return f"match/{ref.service}/{ref.port}/{owner}"


def none(ref: PortRef) -> str:
    """Name the cluster without endpoints that fails a share of the split on `ref`."""
    return f"none/{ref.service}/{ref.port}"


def host(ref: PortRef, authority: str) -> str:
    """Name the scope that sends one spelling of a host to the routes of `ref`."""
    return f"host/{ref.service}/{ref.port}/{authority}"


def parse(name: str) -> PortRef | None:
    """Return the Service port that a resource belongs to; none for the listeners of the HTTP proxy."""
    parts = name.split("/", maxsplit=_PARTS_OF_A_PORT)
    if len(parts) < _PARTS_OF_A_PORT:
        return None
    _, namespace, service, port = parts[:_PARTS_OF_A_PORT]
    return PortRef(f"{namespace}/{service}", int(port))
