"""Findings about the running mesh: rejected resources, missing certificates and dropped mirrored requests.

The compiler can't report these findings, because headgate observes the faults only after a build.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from headgate.compiler.reasons import Reason
from headgate.compiler.references import service_key
from headgate.compiler.report import Compiled, Finding
from headgate.envoy import names
from headgate.envoy.clusters import MIRROR_MAX_REQUESTS
from headgate.envoy.config import LISTENER, TypeUrl
from headgate.envoy.node_ids import SIDECAR
from headgate.kinds import GATEWAY
from headgate.model.routing import Mesh, Mirror, PortRef, Route
from headgate.plane.status.conditions import few
from headgate.resources.meta import Key
from headgate.resources.registry import POD
from headgate.resources.smi.split_fields import MIRROR
from headgate.xds.fleet import FleetProxy
from headgate.xds.session import ADDRESS_IN_USE
from headgate.xds.subscription import Rejection

PROXY = "Proxy"  # the kind in the key of a gateway's proxy, for findings that belong to no user's object


def refusals(compiled: Compiled, proxies: Iterable[FleetProxy]) -> tuple[Finding, ...]:
    """Return a finding for each resource that proxies reject, about the object from which the resource comes."""
    rejections = [(proxy.id, rejected) for proxy in proxies for rejected in proxy.rejections()]
    if not rejections:
        return ()
    origin = origins(compiled)
    refusing: dict[tuple[Key, Rejection], list[str]] = defaultdict(list)
    for node_id, rejected in rejections:
        refusing[origin(node_id, rejected.type_url, rejected.name), rejected].append(node_id)
    return tuple(
        Finding(about=about, reason=Reason.ENVOY_REJECTED, field="", message=_refused(refused_by, rejected))
        for (about, rejected), refused_by in refusing.items()
    )


Origin = Callable[[str, TypeUrl, str], Key]
"""A function that returns the object from which a resource comes.

Its arguments are node ID, type URL and resource name.
"""


def origins(compiled: Compiled) -> Origin:
    """Return a function that finds the object from which a resource comes.

    Routes and clusters come from their TrafficSplit or route object. Listeners of a Gateway come from
    the Gateway, and certificates from the Gateway or ListenerSet that refers to them. Other resources of a Service port come from the Service. A sidecar's inbound resources and certificate
    come from its pod. For all other resources of a gateway's proxy, the function returns a key of kind Proxy.
    """
    owners = {outcome.ref: outcome.about for outcome in compiled.report.outcomes}
    by_secret = compiled.report.certificate_owners().items()
    showing = {names.secret(secret): about for (_, secret), (about, *_) in by_secret}
    showing |= {
        names.authorities_of(names.GatewayRef(port.gateway, port.port)): Key(
            GATEWAY, "Gateway", *port.gateway.split("/")
        )
        for port in compiled.mesh.gateways
    }
    return lambda node_id, type_url, name: showing.get(name) or _origin(node_id, type_url, name, owners)


def _refused(proxies: Sequence[str], rejected: Rejection) -> str:
    subject = f"the proxy {proxies[0]}" if len(proxies) == 1 else f"the proxies {few(proxies)}"
    return f"{subject} rejected {rejected.name}: {rejected.message.strip()}{_advice(rejected)}"


def _advice(rejected: Rejection) -> str:
    if ADDRESS_IN_USE not in rejected.message:
        return ""
    alternative = "" if rejected.name.startswith(names.INBOUND) else " or give the Service another port"
    return f"; free the address{alternative}; headgate retries every few seconds"


def _origin(node_id: str, type_url: TypeUrl, name: str, owners: Mapping[PortRef, Key]) -> Key:
    route, gateway = names.parse_rule(name), names.parse_gateway(name)
    if route:
        return route
    if gateway:
        return Key(GATEWAY, "Gateway", *gateway.gateway.split("/"))
    ref = names.parse(name)
    if ref is None:
        return _of_node(node_id, name)
    if type_url != LISTENER and not names.is_host_scope(name) and ref in owners:
        return owners[ref]
    return service_key(ref.service)


def faults(messages: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return a finding about the pod of each proxy that gets no new certificate. `messages` maps node IDs to reasons."""
    return tuple(
        Finding(
            about=_of_node(node, node),
            reason=Reason.IDENTITY_UNAVAILABLE,
            field="",
            message=f"the proxy {node}: {message}",
        )
        for node, message in sorted(messages.items())
    )


def _of_node(node_id: str, name: str) -> Key:
    """Return the key of a sidecar's pod; for a gateway, return a key of kind Proxy with the name `name`."""
    kind, _, pod = node_id.partition("/")
    return POD.key(*pod.split("/")) if kind == SIDECAR else Key("", PROXY, "", name)


def dropped_copies(mesh: Mesh, counts: Mapping[str, int]) -> tuple[Finding, ...]:
    """Return a finding for each mirror of a rule or a split for which proxies drop copies of requests.

    `counts` has the dropped copies by cluster. The message rounds the count down to a power of ten, so that the message
    does not change with every report.
    """
    findings: dict[tuple[object, ...], Finding] = {}
    for route in all_routes(mesh) if counts else ():
        for mirror in route.mirrors:
            if route.origin and (count := _count(mirror, counts)):
                finding = Finding(
                    about=mirror.by or route.origin,
                    reason=Reason.COPIES_DROPPED,
                    field=f"metadata.annotations.{MIRROR}" if mirror.by else f"spec.rules[{route.name}].filters",
                    message=_message(mirror, count),
                    related=(service_key(mirror.ref.service),),
                )
                findings.setdefault((finding.about, finding.field, mirror.ref), finding)
    return tuple(findings.values())


def all_routes(mesh: Mesh) -> Iterator[Route]:
    """Yield the routes of all Service ports and Gateway ports."""
    for table in mesh.all_tables:
        yield from table.all_routes
    for port in mesh.gateways:
        for host in port.hosts.values():
            yield from host.routes


def _count(mirror: Mirror, counts: Mapping[str, int]) -> int:
    named = {
        names.mirror(mirror.ref, mirror.split, by=mirror.by, protocol=target.protocol) for target in mirror.targets
    }
    return sum(
        count for cluster, count in counts.items() if any(names.is_part_of_mirror(name, cluster) for name in named)
    )


def _message(mirror: Mirror, count: int) -> str:
    power = 10 ** (len(str(count)) - 1)
    return (
        f"proxies drop copies for {mirror.ref}, {power} or more so far: each proxy has at most {MIRROR_MAX_REQUESTS} copies in "
        "flight. Give the Service more or faster endpoints, or mirror a smaller fraction"
    )
