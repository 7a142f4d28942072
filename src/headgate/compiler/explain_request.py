"""Explain a request that users describe by URL, method, headers, caller and Gateway."""

from collections.abc import Iterator, Mapping
from urllib.parse import SplitResult

from msgspec import structs

from headgate.compiler import arrivals, plain_callers
from headgate.compiler.arrivals import Caller
from headgate.compiler.explain import ExplainInput, explain
from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot, account_name
from headgate.errors import NotFound
from headgate.kinds import names_of
from headgate.model import localhost_names
from headgate.model.authorities import ports_of, suggestion, url_host
from headgate.model.evaluate import NO_SUCH_PORT, NOT_CONNECTED, EntryPort
from headgate.model.requests import Request
from headgate.model.routing import GatewayPort, Protocol
from headgate.resources.core.pod import MeshPod
from headgate.resources.explanations import ExplanationStatus
from headgate.resources.meta import Key
from headgate.resources.pod_owners import Ref, workloads_of
from headgate.resources.request_spec import (
    PORTS,
    UDP,
    RequestOrigin,
    RequestSpec,
    gateway_name,
    host_header,
    read_client,
    sni,
    url_parts,
)


def explain_request(
    compiled: Compiled, snapshot: Snapshot, spec: RequestSpec, localhost_port: int = 0, *, on_cluster: bool = False
) -> ExplanationStatus:
    """Explain a request. Raises BadRequest, and NotFound for a missing client or Gateway.

    `localhost_port` is where this machine serves names below `.localhost`; 0 if it does not. A cluster has a gateway only if a
    Gateway or a Service has pods for one.
    """
    parts = url_parts(spec.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = host_header(spec)
    # As with curl, the name of the TLS connection is the URL's host, whatever the Host header is.
    server_name = sni(spec) or (parts.hostname if host is not None else None)
    request = Request(
        authority=parts.netloc if host is None else host,
        method=spec.method,
        target=target,
        headers=tuple(field for field in spec.headers if field[0].lower() != "host"),
        server_name=server_name,
    )
    caller = _caller(compiled, snapshot, spec, on_cluster=on_cluster)
    authority = _authority(parts, caller)
    where: EntryPort | str = authority
    if name := gateway_name(spec):
        where = _gateway(compiled, name, port=parts.port or PORTS[parts.scheme], is_udp=parts.scheme == UDP)
        note = f"{caller.object} calls through the Gateway" if spec.caller else ""
        caller = arrivals.gateway(compiled.mesh.trust_domain, note)
    elif not spec.caller and parts.scheme == "http" and (parts.port or PORTS["http"]) == localhost_port:
        where = localhost_names.resolve(compiled.mesh, parts.hostname or "") or where
    elif caller.object and not caller.identity:
        compiled, caller = plain_callers.as_reached(compiled, authority, caller)
    status = explain(compiled, snapshot, where, ExplainInput(request=request, url=parts.geturl(), caller=caller))
    status = _with_port_words(compiled, status, parts, caller)
    if spec.server_name and status.port and not _reads_server_names(where, status):
        message = f"{status.protocol_message}; so the server name {spec.server_name} has no effect"
        status = structs.replace(status, protocol_message=message)
    return status


def _authority(parts: SplitResult, caller: Caller) -> str:
    """Return the host and port of a URL to which a caller connects.

    An HTTP proxy gets no port for an http URL without one, and chooses it. For https, clients request a tunnel to port 443.
    """
    host = parts.netloc.removesuffix(":")
    is_chosen = parts.scheme == "http" and not caller.by_address
    return host if is_chosen or parts.port is not None else f"{host}:{PORTS[parts.scheme]}"


def _with_port_words(
    compiled: Compiled, status: ExplanationStatus, parts: SplitResult, caller: Caller
) -> ExplanationStatus:
    """Return an explanation with the reason for the port of a URL without one, and with a URL for a port that is missing."""
    host = parts.hostname or ""
    offered = ports_of(compiled.mesh, url_host(host), caller.home)
    if parts.port is None:
        status = structs.replace(status, port_message=_port_words(status, parts, offered))
    if status.gateway or not offered:
        return status
    meant = suggestion(host, parts.scheme, offered)
    backends = (
        structs.replace(backend, message=f"{backend.message}{meant}")
        if backend.reason in (NO_SUCH_PORT, NOT_CONNECTED) and backend.message
        else backend
        for backend in status.backends
    )
    return structs.replace(status, backends=tuple(backends))


def _port_words(status: ExplanationStatus, parts: SplitResult, offered: Mapping[int, Protocol]) -> str:
    """Return why a request for a URL without a port goes to its port; empty if no Service or Gateway has the host."""
    usual = PORTS.get(parts.scheme, 0)
    if not (status.service or status.gateway or offered):
        return ""
    if status.port in (0, usual):
        return f"the URL has no port, and {usual} is that of {parts.scheme}"
    direct = f"http://{url_host(parts.hostname or '')}:{status.port}/"
    return (
        f"the URL has no port: the HTTP proxy takes the Service's first one, because the Service lacks {usual}. "
        f"Behind a transparent sidecar, a client needs {direct}"
    )


def _reads_server_names(where: EntryPort | str, status: ExplanationStatus) -> bool:
    """Return whether the proxy reads the server name of connections to the port."""
    if isinstance(where, GatewayPort):
        return bool(where.tls or where.server_names)
    return status.protocol == Protocol.TLS.value


def _caller(compiled: Compiled, snapshot: Snapshot, spec: RequestSpec, *, on_cluster: bool) -> Caller:
    client = read_client(spec.caller, spec.namespace)
    if client is None:
        has_gateway = not on_cluster or bool(compiled.mesh.gateway_pods)
        caller = arrivals.gateway(compiled.mesh.trust_domain) if has_gateway else arrivals.not_named()
        return structs.replace(caller, home=spec.namespace, by_address=on_cluster)
    if client.kind == "ServiceAccount":
        return arrivals.account(compiled, snapshot, client.namespace, client.name, on_cluster=on_cluster)
    full = f"{client.namespace}/{client.name}"
    if client.kind == "Pod":
        if full not in snapshot.pods:
            raise NotFound(f"Pod {full} not found; give its namespace with -n")
        return arrivals.pod(compiled, snapshot, full)
    chosen = min(pods_of(snapshot, client), default="")
    if not chosen:
        raise NotFound(
            f"{client.kind} {full} not found, or none of its pods runs; check its name, and give its namespace with -n"
        )
    caller = arrivals.pod(compiled, snapshot, chosen)
    note = "; ".join(part for part in (f"as its pod {chosen.partition('/')[2]}", caller.note) if part)
    return structs.replace(
        caller, object=Key(names_of(client.kind).group, client.kind, client.namespace, client.name), note=note
    )


def caller_pod(snapshot: Snapshot, spec: RequestSpec) -> MeshPod | None:
    """Return the pod whose proxy sends a request; None if the gateway, a Gateway or an unknown client sends it."""
    client = read_client(spec.caller, spec.namespace)
    if client is None or gateway_name(spec):
        return None
    return snapshot.pods.get(min(pods_of(snapshot, client), default=""))


def pods_of(snapshot: Snapshot, client: RequestOrigin) -> Iterator[str]:
    """Yield the pods (`namespace/pod`) of a client."""
    for name, pod in snapshot.pods.items():
        if name.partition("/")[0] == client.namespace and _is_client(name, pod, client):
            yield name


def _is_client(name: str, pod: MeshPod, client: RequestOrigin) -> bool:
    match client.kind:
        case "Pod":
            return name == f"{client.namespace}/{client.name}"
        case "ServiceAccount":
            return account_name(pod) == client.name
        case _:
            return Ref(client.kind, client.namespace, client.name) in workloads_of(pod.metadata)


def _gateway(compiled: Compiled, name: str, *, port: int, is_udp: bool) -> GatewayPort:
    served = [gateway_port for gateway_port in compiled.mesh.gateways if gateway_port.gateway == name]
    for gateway_port in served:
        if (gateway_port.port, gateway_port.protocol is Protocol.UDP) == (port, is_udp):
            return gateway_port
    if served:
        ports = ", ".join(
            f"{served_port.port}{'/UDP' * (served_port.protocol is Protocol.UDP)}" for served_port in served
        )
        raise NotFound(f"Gateway {name} does not serve port {port}{'/UDP' * is_udp}; it serves {ports}")
    raise NotFound(
        f"Gateway {name} is not found or serves no port; give its namespace with -n, or run `headgate check`"
    )
