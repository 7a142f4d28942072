"""The application protocols of Services in random worlds."""

from headgate.envoy.config import LISTENER
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import Node, project
from headgate.model.routing import Frontend, Mesh, PortRef, Protocol, Route, RouteTable, Split

HTTP = ("http", "kubernetes.io/ws", "unheard-of")
CONNECTIONS = ("tcp", "mysql", "tls", "tcp", "redis")


def protocols() -> tuple[str, ...]:
    """Return the values of appProtocol for the Services of a random world."""
    ref = PortRef("default/a", 1)
    mesh = Mesh(
        domain="",
        frontends=(Frontend(service=ref.service, address="127.0.0.1", ports=(1,)),),
        tables=(RouteTable(ref=ref, protocol=Protocol.TCP, routes=(Route(split=Split(targets=())),)),),
    )
    config = encode(project(mesh, Node(id="any")), Memo())
    has_connections = any(b"tcp_proxy" in item.body for item in config[LISTENER].values())
    return HTTP + ((*CONNECTIONS, "h2c", "grpc") if has_connections else ())
