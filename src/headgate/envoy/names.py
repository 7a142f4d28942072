"""Names of Envoy resources: made here alone, and read back here, so that a refusal or a counter finds its object.

outbound/<namespace>/<service>/<port>                  listener, routes, cluster and endpoints of a Service port
split/<namespace>/<service>/<port>/<namespace>/<name>  cluster of one backend, where a split needs one for each
match/<namespace>/<service>/<port>/<namespace>/<name>  cluster for the requests that a split's groups match
none/<namespace>/<service>/<port>                      cluster that never has endpoints: a share that must fail
host/<namespace>/<service>/<port>/<authority>          one spelling of a host for clients of the HTTP proxy
proxy, probe                                           listeners of the HTTP proxy, for clients and for `headgate try`
"""

from headgate.model.refs import PortRef
from headgate.model.routing import Frontend
from headgate.resources.meta import Key

PROXY = "proxy"
PROBE = "probe"
DEFAULT_PORT = 80
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


def authorities(frontend: Frontend, domain: str) -> list[tuple[str, int]]:
    """Return every spelling under which proxy clients may call a Service, with the port that it means (R2).

    A spelling without a port means port 80, and the first port of a Service that has no port 80. The short name stands
    for the namespace `default`: a proxy that serves everybody can't know its client's namespace.
    """
    namespace, name = frontend.service.split("/")
    spellings = [f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.{domain}"]
    if namespace == "default":
        spellings.insert(0, name)
    if frontend.address:
        spellings.append(f"[{frontend.address}]" if ":" in frontend.address else frontend.address)
    first = DEFAULT_PORT if DEFAULT_PORT in frontend.ports else frontend.ports[0]
    with_port = [(f"{spelling}:{port}", port) for spelling in spellings for port in frontend.ports]
    return [(spelling, first) for spelling in spellings] + with_port
