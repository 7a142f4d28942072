"""Read a request as users describe it: URL, method, headers, caller and Gateway.

Commands and the inspect API share this module, so both accept the same words and report the same errors.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args
from urllib.parse import SplitResult, urlsplit

from headgate.errors import HeadgateError
from headgate.kinds import names_of
from headgate.resources.meta import Value

PORTS = {"http": 80, "https": 443}
"""The default port of each scheme."""
UDP = "udp"
"""The scheme for datagrams to a port of a Gateway: `udp://edge:53`."""
LONGEST_HOST = 253
"""The most characters of a host and of a server name, as in DNS. Matching with wildcards takes the square of the length."""
_LONGEST_AUTHORITY = LONGEST_HOST + len(":65535")
_GATEWAYS = names_of("Gateway").words
CallerKind: TypeAlias = Literal[
    "Pod",
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "Job",
    "CronJob",
    "ReplicaSet",
    "ReplicationController",
    "ServiceAccount",
]
CALLER_KINDS: tuple[CallerKind, ...] = get_args(CallerKind)
"""The kinds that name the sender of a request."""
CALLER_FORMS = " or ".join(", ".join(f"{kind.lower()}/NAME" for kind in CALLER_KINDS).rsplit(", ", 1))
"""The ways to name the sender of a request: `pod/NAME, ... or serviceaccount/NAME`."""
_CLIENTS: Mapping[str, CallerKind] = {word: kind for kind in CALLER_KINDS for word in names_of(kind).words}


class BadRequest(HeadgateError):
    """A part of the request is invalid; `part` is its name: url, server-name, header, from or via."""

    def __init__(self, part: str, message: str) -> None:
        super().__init__(message)
        self.part = part


class RequestOrigin(Value, frozen=True, kw_only=True):
    """The sender of requests."""

    kind: CallerKind
    namespace: str
    name: str


class RequestSpec(Value, frozen=True, kw_only=True):
    """A request as the user wrote it. `caller` and `via` are `KIND/NAME` in `namespace`, or empty.

    A short host name means a Service in `namespace`. `server_name` is the SNI of a TLS connection, by default the URL's host.
    """

    url: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    caller: str = ""
    via: str = ""
    namespace: str = "default"
    server_name: str = ""


def check(spec: RequestSpec) -> None:
    """Check the parts of a request that need no comparison with objects. Raises BadRequest."""
    if url_parts(spec.url).scheme == UDP and not spec.via:
        raise BadRequest("via", "headgate routes UDP for clients of Gateways only; name one by gateway/NAME")
    sni(spec)
    read_client(spec.caller, spec.namespace)
    gateway_name(spec)
    host_header(spec)


def sni(spec: RequestSpec) -> str | None:
    """Return the server name of the request's TLS connection; None for the URL's host. Raises BadRequest."""
    if len(spec.server_name) > LONGEST_HOST:
        raise BadRequest("server-name", f"the server name has more than {LONGEST_HOST} characters; write a DNS name")
    return spec.server_name.lower() or None


def url_parts(url: str) -> SplitResult:
    """Return the parts of an HTTP URL, or of `udp://HOST:PORT`; the scheme `http` may be left out. Raises BadRequest."""
    mistake = BadRequest("url", f"{url!r} is not an HTTP URL; write a URL like http://website:8080/")
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        has_port = parts.port != 0 if parts.scheme in PORTS else parts.scheme == UDP and parts.port
        usable = parts.hostname and has_port
    except ValueError as error:  # the port, or the IPv6 address in brackets, is invalid
        raise mistake from error
    if not usable:
        raise mistake
    if len(parts.hostname or "") > LONGEST_HOST or len(parts.netloc) > _LONGEST_AUTHORITY:
        raise BadRequest(
            "url", f"the URL's host has more than {LONGEST_HOST} characters; write a DNS name or an address"
        )
    return parts


def host_header(spec: RequestSpec) -> str | None:
    """Return the Host header, which replaces the URL's host in the request but not as its destination; None without one.

    Raises BadRequest for several, of which clients send only one.
    """
    values = [value for name, value in spec.headers if name.lower() == "host"]
    if len(values) > 1:
        raise BadRequest("header", "the request has several Host headers; write one")
    return values[0] if values else None


def read_client(text: str, namespace: str) -> RequestOrigin | None:
    """Read `KIND/NAME`; None for an empty text, which means the gateway. Raises BadRequest."""
    if not text:
        return None
    kind, _, name = text.partition("/")
    if kind.lower() not in _CLIENTS or not name or "/" in name:
        raise BadRequest("from", f"{text!r} is not a client; write {CALLER_FORMS}")
    return RequestOrigin(kind=_CLIENTS[kind.lower()], namespace=namespace, name=name)


def gateway_name(spec: RequestSpec) -> str:
    """Return the Gateway (`namespace/name`) that a request goes through, or an empty text. Raises BadRequest."""
    kind, _, name = spec.via.partition("/")
    if spec.via and (kind.lower() not in _GATEWAYS or not name):
        raise BadRequest("via", f"{spec.via!r} is not a Gateway; write gateway/NAME")
    return f"{spec.namespace}/{name}" if name else ""
