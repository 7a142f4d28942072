"""A mesh whose access rules let one of two clients call a server."""

from msgspec import structs

from headgate.compiler.report import Compiled, Report
from headgate.model.access import Access, ConnectionRule, Grant, RequestRule
from headgate.model.identities import spiffe_id
from headgate.model.mutual_tls import TlsMode
from headgate.model.requests import Match, Path
from headgate.model.routing import InboundPort, Mesh, PortProtocol, Protocol, Workload
from headgate.resources.meta import Key
from headgate.shared_map import SharedMap

BUYER, THIEF, SERVER = (spiffe_id("cluster.local", "shop", name) for name in ("buyer", "thief", "server"))
TCP = InboundPort(port=90, application=90, protocols=(PortProtocol(protocol=Protocol.TCP, services=()),))
GRANT = Grant(
    origin=Key("access.smi-spec.io", "TrafficTarget", "shop", "t"),
    sources=(BUYER,),
    connections=(ConnectionRule(name="t", ports=()),),
)
CLOSED = Access(closed=True, grants=(GRANT,))
AUDITED = Access(audited=True, grants=(GRANT,))


def shop_mesh(access: Access, *names: str) -> Compiled:
    """Return a mesh of pods of the namespace `shop`; `access` has the rules of `server`."""
    workloads = tuple(
        Workload(
            name=f"shop/{name}",
            address=f"10.0.0.{index}",
            identity=spiffe_id("cluster.local", "shop", name),
            ports=(TCP,),
            tls_mode=TlsMode.PERMISSIVE,
            target_tls_mode=TlsMode.PERMISSIVE,
            access=access if name == "server" else Access(),
        )
        for index, name in enumerate(names or ("server", "buyer", "thief"))
    )
    return Compiled(revision=1, mesh=Mesh(domain="cluster.local", workloads=workloads), report=Report(seen=SharedMap()))


def web_server() -> Workload:
    """Return a server with an HTTP port whose rules, in audit mode, let the buyer send requests to /books."""
    look = RequestRule(name="books/look", match=Match(path=Path(kind="exact", value="/books")))
    grant = structs.replace(GRANT, connections=(), requests=(look,))
    web = InboundPort(port=80, application=80, protocols=(PortProtocol(protocol=Protocol.HTTP, services=()),))
    (workload,) = shop_mesh(Access(audited=True, grants=(grant,)), "server").mesh.workloads
    return structs.replace(workload, ports=(web,))
