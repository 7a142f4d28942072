"""What becomes of a request at the pods that a route leads to: how it gets there, who lets it in, and what would help."""

from collections.abc import Mapping
from functools import cached_property
from ipaddress import ip_address

from msgspec import structs

from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot, account_name
from headgate.compiler.unenforced import cause_at
from headgate.model.authorities import DEFAULT_NAMESPACE
from headgate.model.authorization import Authorization, authorize, grants_allowing, port_of, protocol_at
from headgate.model.identities import gateway_id, parse_id, spiffe_id
from headgate.model.requests import Request
from headgate.model.routing import Endpoint, PortRef, Protocol, Workload
from headgate.resources.meta import Value
from headgate.resources.pods import EXCLUDED_PORTS, INJECT

MUTUAL_TLS, PLAINTEXT = "mutual TLS", "plaintext"
_GIVE_SIDECAR = f'give its pod template the label {INJECT}: "true" and replace its pods'


_PAST = {
    "excluded": f"its sidecar leaves port {{port}} alone ({EXCLUDED_PORTS})",
    "probes": "port {port} is not redirected to its sidecar, so the request reaches the process past it",
    "written": "its sidecar does not take port {port}, so the request reaches the process past it",
}


class Caller(Value, frozen=True, kw_only=True):
    """Who calls. `identity` is what it proves (SPIFFE ID), empty for plaintext; short names are those of `home`.

    `is_scoped`: its proxy knows only what it may call, and refuses what it does not know.
    """

    name: str
    identity: str
    note: str = ""
    home: str = DEFAULT_NAMESPACE
    is_scoped: bool = False


class Arrival(Value, frozen=True, kw_only=True):
    """A request at one endpoint (`workload` is `namespace/pod`, empty where nobody knows it): the hop, and the answer.

    `object` and `rule` are what allows it, `reason` says why or why not, `remedy` what would allow it.
    """

    workload: str
    address: str
    hop: str
    hop_reason: str
    allowed: bool
    object: str
    rule: str
    reason: str
    remedy: str


def gateway(trust_domain: str, note: str = "") -> Caller:
    """Return the node's gateway as the caller: whoever comes through it is no more than that."""
    return Caller(name="the gateway", identity=gateway_id(trust_domain), note=note)


def account(compiled: Compiled, snapshot: Snapshot, namespace: str, name: str) -> Caller:
    """Return a pod of a ServiceAccount as the caller, as if it had a sidecar."""
    known = f"{namespace}/{name}" in snapshot.pods_of_account
    return Caller(
        name=f"ServiceAccount {namespace}/{name}",
        identity=spiffe_id(compiled.mesh.trust_domain, namespace, name),
        note="" if known else "no pod runs as it now",
        home=namespace,
        is_scoped=compiled.mesh.scoped,
    )


def pod(compiled: Compiled, snapshot: Snapshot, name: str) -> Caller:
    """Return a pod (`namespace/pod`) as the caller; without a sidecar it calls in plaintext.

    On one machine its calls end at the gateway, which is all that others see. Raises KeyError when there is none.
    """
    namespace, written = name.partition("/")[0], snapshot.pods[name]
    title = f"Pod {name}"
    known = next((item for item in compiled.mesh.workloads if item.name == name), None)
    if known:
        return Caller(name=title, identity=known.identity, home=namespace, is_scoped=compiled.mesh.scoped)
    address = written.status.pod_ip
    lacks = (
        f"it has no sidecar, so it calls in plaintext and its ServiceAccount {account_name(written)} counts for nothing"
    )
    if address and ip_address(address).is_loopback:
        note = f"{lacks}; the gateway passes it on"
        return Caller(name=title, identity=gateway_id(compiled.mesh.trust_domain), note=note)
    return Caller(name=title, identity="", note=lacks, home=namespace)


class Arrivals:
    """Answers for one caller."""

    def __init__(self, compiled: Compiled, snapshot: Snapshot, caller: Caller) -> None:
        self._compiled = compiled
        self._snapshot = snapshot
        self._caller = caller

    def at(self, ref: PortRef, request: Request, only: Endpoint | None = None) -> tuple[Arrival, ...]:
        """Return what becomes of a request at each ready endpoint of a Service port, or at one of them."""
        ready = next((entry.ready for entry in self._compiled.mesh.endpoints if entry.ref == ref), ())
        return tuple(self._arrival(endpoint, ref, request) for endpoint in ready if only in (None, endpoint))

    @cached_property
    def _workloads(self) -> Mapping[str, Workload]:
        found = self._compiled.mesh.workloads
        return {item.address: item for item in found} | {item.name: item for item in found}

    def _arrival(self, endpoint: Endpoint, ref: PortRef, request: Request) -> Arrival:
        workload = self._workloads.get(endpoint.workload) or self._workloads.get(endpoint.address)
        known = bool(endpoint.identity and self._caller.identity)
        if endpoint.resolved:
            answer, remedy = Authorization(allowed=True, why="it is outside the mesh, which does not ask who calls"), ""
        elif workload is None:
            answer, remedy = Authorization(allowed=True, why="it has no sidecar, and nothing else asks who calls"), ""
        else:
            answer, remedy = self._asked(workload, endpoint, ref, request=request, known=known)
        return Arrival(
            workload=workload.name if workload else endpoint.workload,
            address=f"{endpoint.address}:{endpoint.port}",
            hop=MUTUAL_TLS if known else PLAINTEXT,
            hop_reason=f"with {endpoint.identity}" if known else self._plaintext(workload, endpoint),
            allowed=answer.allowed,
            object=str(answer.origin or ""),
            rule=answer.rule,
            reason=answer.why,
            remedy=remedy,
        )

    def _asked(
        self, workload: Workload, endpoint: Endpoint, ref: PortRef, *, request: Request, known: bool
    ) -> tuple[Authorization, str]:
        """Return the sidecar's answer, and what would make it another one."""
        port = port_of(workload, endpoint.port)
        if cause := cause_at(self._snapshot, workload, endpoint.port):
            return Authorization(allowed=True, why=_PAST[cause].format(port=endpoint.port)), ""
        plain = (table.protocol for table in self._compiled.mesh.tables if table.ref == ref)
        protocol = protocol_at(port, ref, known=known) if port else next(plain, Protocol.HTTP)
        identity = self._caller.identity if known else ""
        request = _onward(request, protocol)
        answer = authorize(workload, endpoint.port, protocol=protocol, identity=identity, request=request)
        if answer.allowed or answer.status:
            return answer, ""
        if not known:
            return answer, self._to_be_known(workload)
        others = [
            f"TrafficTarget {grant.origin.namespace}/{grant.origin.name}"
            for grant in grants_allowing(workload, endpoint.port, protocol=protocol, request=request)
        ]
        return answer, self._to_be_allowed(workload, others)

    def _to_be_known(self, workload: Workload) -> str:
        """Say how the caller would come with an identity, which is the first that is needed."""
        if not self._caller.identity:
            return f"{_GIVE_SIDECAR}, so that it calls as its ServiceAccount"
        if workload.tls_mode is not workload.target_tls_mode:
            return "wait: it is on its way to mutual TLS, and proxies are getting ready for it"
        if not workload.tls_mode.accepts_tls:
            return "select the pod with a TLSConfig, or let mutual TLS be permissive (--mtls)"
        return "declare the port in the pod template, and lead a Service to it"

    def _to_be_allowed(self, workload: Workload, others: list[str]) -> str:
        caller, server = parse_id(self._caller.identity), parse_id(workload.identity)
        if caller is None or server is None:
            return ""
        source = f"ServiceAccount {caller.namespace}/{caller.name}"
        if others:
            named = " or ".join(dict.fromkeys(others))
            return f"add {source} to spec.sources of {named}, or write a TrafficTarget for it alone"
        return (
            f"a TrafficTarget in namespace {server.namespace} with destination ServiceAccount {server.name}, "
            f"source {source} and a rule that fits would allow it"
        )

    def _plaintext(self, workload: Workload | None, endpoint: Endpoint) -> str:
        """Say why a hop is not mutual TLS."""
        if endpoint.resolved:
            return "it is outside the mesh"
        if workload is None:
            return "it has no sidecar"
        if not self._caller.identity:
            return "the caller has no sidecar"
        if port_of(workload, endpoint.port) is None:
            return f"its sidecar does not take port {endpoint.port}"
        if workload.tls_mode is workload.target_tls_mode:
            return "mutual TLS is off there"
        return "it is between plaintext and mutual TLS, and not all proxies are ready"


def _onward(request: Request, protocol: Protocol) -> Request:
    """Return a request as a proxy sends it on to a port where `protocol` is spoken."""
    if protocol is Protocol.HTTP_ANY:
        return request
    return structs.replace(request, version="2" if protocol is Protocol.HTTP2 else "1.1")
