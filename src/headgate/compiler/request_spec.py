"""Read a request as users describe it: URL, method, headers, caller and Gateway.

Commands and the inspect API share this module, so both accept the same words and report the same errors.
"""

from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit

from msgspec import structs

from headgate.compiler import arrivals, plain_callers
from headgate.compiler.arrivals import Caller
from headgate.compiler.explain import ExplainInput, Explanation, explain
from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot, account_name
from headgate.errors import HeadgateError, NotFound
from headgate.kinds import names_of
from headgate.model.requests import Request
from headgate.model.routing import GatewayPort
from headgate.resources.meta import Value
from headgate.resources.pod_owners import deployment_of
from headgate.resources.pods import Pod

PORTS = {"http": 80, "https": 443}
_GATEWAYS = names_of("Gateway").words
_CLIENTS = {
    word: names.singular for names in map(names_of, ("Pod", "Deployment", "ServiceAccount")) for word in names.words
}


class BadRequest(HeadgateError):
    """A part of the request is invalid; `part` is its name: url, from or via."""

    def __init__(self, part: str, message: str) -> None:
        super().__init__(message)
        self.part = part


class Client(Value, frozen=True, kw_only=True):
    """The sender of requests: `kind` is pod, deployment or serviceaccount."""

    kind: str
    namespace: str
    name: str


class RequestSpec(Value, frozen=True, kw_only=True):
    """A request as the user wrote it. `caller` and `via` are `KIND/NAME` in `namespace`, or empty.

    A short host name means a Service in `namespace`.
    """

    url: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    caller: str = ""
    via: str = ""
    namespace: str = "default"


def check(spec: RequestSpec) -> None:
    """Check the parts of a request that need no comparison with objects. Raises BadRequest."""
    _parts(spec.url)
    read_client(spec.caller, spec.namespace)
    _gateway_name(spec)


def explain_request(compiled: Compiled, snapshot: Snapshot, spec: RequestSpec) -> Explanation:
    """Explain a request. Raises BadRequest, and NotFound for a missing client or Gateway."""
    parts = _parts(spec.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    request = Request(authority=parts.netloc, method=spec.method, target=target, headers=spec.headers)
    caller = _caller(compiled, snapshot, spec)
    where: GatewayPort | str = parts.netloc
    if name := _gateway_name(spec):
        where = _gateway(compiled, name, port=parts.port or PORTS[parts.scheme])
        note = f"{caller.name} calls through the Gateway" if spec.caller else ""
        caller = arrivals.gateway(compiled.mesh.trust_domain, note)
    elif not caller.identity:
        compiled, caller = plain_callers.as_reached(compiled, parts.netloc, caller)
    return explain(compiled, snapshot, where, ExplainInput(request=request, url=parts.geturl(), caller=caller))


def _parts(url: str) -> SplitResult:
    mistake = BadRequest("url", f"{url!r} is not an HTTP URL; write a URL like http://website:8080/")
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        usable = parts.scheme in PORTS and parts.hostname and parts.port != 0
    except ValueError as error:  # the port, or the IPv6 address in brackets, is invalid
        raise mistake from error
    if not usable:
        raise mistake
    return parts


def read_client(text: str, namespace: str) -> Client | None:
    """Read `KIND/NAME`; None for an empty text, which means the gateway. Raises BadRequest."""
    if not text:
        return None
    kind, _, name = text.partition("/")
    if kind.lower() not in _CLIENTS or not name or "/" in name:
        raise BadRequest("from", f"{text!r} is not a client; write pod/NAME, deployment/NAME or serviceaccount/NAME")
    return Client(kind=_CLIENTS[kind.lower()], namespace=namespace, name=name)


def _gateway_name(spec: RequestSpec) -> str:
    kind, _, name = spec.via.partition("/")
    if spec.via and (kind.lower() not in _GATEWAYS or not name):
        raise BadRequest("via", f"{spec.via!r} is not a Gateway; write gateway/NAME")
    return f"{spec.namespace}/{name}" if name else ""


def _caller(compiled: Compiled, snapshot: Snapshot, spec: RequestSpec) -> Caller:
    client = read_client(spec.caller, spec.namespace)
    if client is None:
        return structs.replace(arrivals.gateway(compiled.mesh.trust_domain), home=spec.namespace)
    if client.kind == "serviceaccount":
        return arrivals.account(compiled, snapshot, client.namespace, client.name)
    full = f"{client.namespace}/{client.name}"
    if client.kind == "pod":
        if full not in snapshot.pods:
            raise NotFound(f"Pod {full} not found; give its namespace with -n")
        return arrivals.pod(compiled, snapshot, full)
    chosen = min(pods_of(snapshot, client), default="")
    if not chosen:
        raise NotFound(
            f"Deployment {full} not found, or none of its pods runs; check its name, and give its namespace with -n"
        )
    caller = arrivals.pod(compiled, snapshot, chosen)
    note = "; ".join(part for part in (f"as its pod {chosen.partition('/')[2]}", caller.note) if part)
    return structs.replace(caller, name=f"Deployment {full}", note=note)


def pods_of(snapshot: Snapshot, client: Client) -> Iterator[str]:
    """Yield the pods (`namespace/pod`) of a client."""
    for name, pod in snapshot.pods.items():
        if name.partition("/")[0] == client.namespace and _is_client(name, pod, client):
            yield name


def _is_client(name: str, pod: Pod, client: Client) -> bool:
    match client.kind:
        case "pod":
            return name == f"{client.namespace}/{client.name}"
        case "serviceaccount":
            return account_name(pod) == client.name
        case _:
            return deployment_of(pod.metadata) == client.name


def _gateway(compiled: Compiled, name: str, *, port: int) -> GatewayPort:
    served = [item for item in compiled.mesh.gateways if item.gateway == name]
    for item in served:
        if item.port == port:
            return item
    if served:
        ports = ", ".join(str(item.port) for item in served)
        raise NotFound(f"Gateway {name} does not serve port {port}; it serves {ports}")
    raise NotFound(
        f"Gateway {name} is not found or serves no port; give its namespace with -n, or run `headgate check`"
    )
