"""Requests as clients send them to a lab: their address, their connection and their bytes."""

from typing import TypedDict

from tests.differential.backends import CLOSES, header_lines
from tests.differential.gateway_lab import GatewayLab
from tests.differential.routing_expectation import ExpectedShares, place_of, request_of
from tests.differential.worlds import Sent
from tests.wire import Address

from headgate.model.routing import GatewayPort, Mesh


class Connected(TypedDict):
    """Connection options of a request: arguments of `MemberLab.send`."""

    each_connects: bool
    server_name: str
    client: str
    tunnel: str


def connected(sent: Sent, wanted: ExpectedShares) -> Connected:
    """Return the connection options of a request: rejected or upgraded connections carry one request only."""
    odd = any(name.lower() in {"connection", "upgrade", "expect", CLOSES} for name, _ in sent.headers)
    return Connected(
        each_connects=not wanted.http or odd, server_name=sent.server_name, client=sent.client, tunnel=sent.tunnel
    )


def address_of(mesh: Mesh, sent: Sent, lab: GatewayLab) -> Address | None:
    """Return the destination address of a request; None if its port has no listener."""
    if sent.via == "gateway":
        place = place_of(mesh, sent)
        return Address(place.address, sent.port) if isinstance(place, GatewayPort) else None
    if sent.via in {"proxy", "tunnel"}:
        return lab.http_proxy
    fronts = [front for front in mesh.frontends if front.service == sent.service and sent.port in front.ports]
    return Address(fronts[0].address, sent.port) if fronts and fronts[0].address else None


def head(sent: Sent) -> bytes:
    """Return a request as HTTP/1. Without an authority, HTTP/1.0 has no Host, and HTTP/1.1 an empty one (RFC 9112, 3.2)."""
    request = request_of(sent)
    fields = [*((("host", sent.authority),) if sent.authority or sent.version != "1.0" else ()), *request.headers]
    lines = [f"{request.method} {request.target} HTTP/{sent.version}", *header_lines(fields), ""]
    body = ["0", *header_lines(sent.trailers), "", ""] if sent.chunked else [""]
    return "\r\n".join([*lines, *body]).encode("utf-8", "surrogateescape")
