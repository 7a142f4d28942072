"""Which object is to blame for what a proxy refuses (pure)."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Compiled, Finding
from headgate.envoy import names
from headgate.envoy.config import LISTENER, TypeUrl
from headgate.envoy.view import SIDECAR
from headgate.kinds import GATEWAY
from headgate.model.routing import PortRef
from headgate.plane.status.conditions import few
from headgate.resources.meta import Key
from headgate.resources.registry import POD, SERVICE
from headgate.xds.fleet import Proxy
from headgate.xds.session import IN_USE
from headgate.xds.shelf import Rejected

PROXY = "Proxy"  # the kind of what a gateway has for itself


def refusals(compiled: Compiled, proxies: Iterable[Proxy]) -> tuple[Finding, ...]:
    """Return what proxies refuse as findings on the objects to blame."""
    found = [(proxy.id, rejected) for proxy in proxies for rejected in proxy.refusals()]
    if not found:
        return ()
    origin = origins(compiled)
    refusing: dict[tuple[Key, Rejected], list[str]] = defaultdict(list)
    for node_id, rejected in found:
        refusing[origin(node_id, rejected.type_url, rejected.name), rejected].append(node_id)
    return tuple(
        Finding(about=about, reason=Reason.ENVOY_REJECTED, field="", message=_refused(refused_by, rejected))
        for (about, rejected), refused_by in refusing.items()
    )


Origin = Callable[[str, TypeUrl, str], Key]
"""Returns the object that a proxy's (node id) resource comes from, by its type and name."""


def origins(compiled: Compiled) -> Origin:
    """Return the function that finds the object behind a resource, the one to blame when a proxy refuses it.

    That is the split or the route whose own the resource is, the Gateway for what is between and for its certificates, the
    pod for what is its sidecar's alone, else the Service. What each gateway has for itself comes from no object: its key is
    of the kind Proxy.
    """
    owners = {outcome.ref: outcome.about for outcome in compiled.report.outcomes}
    showing = {
        names.secret(shown.secret): Key(GATEWAY, "Gateway", *port.gateway.split("/"))
        for port in compiled.mesh.gateways
        for _, shown in port.tls
    }
    return lambda node_id, type_url, name: showing.get(name) or _origin(node_id, type_url, name, owners)


def _refused(proxies: Sequence[str], rejected: Rejected) -> str:
    who = f"the proxy {proxies[0]}" if len(proxies) == 1 else f"the proxies {few(proxies)}"
    return f"{who} refused {rejected.name}: {rejected.message.strip()}{_advice(rejected)}"


def _advice(rejected: Rejected) -> str:
    if IN_USE not in rejected.message:
        return ""
    other = "" if rejected.name.startswith(names.INBOUND) else " or give the Service another port"
    return f"; free the address{other}: it is tried again every few seconds"


def _origin(node_id: str, type_url: TypeUrl, name: str, owners: Mapping[PortRef, Key]) -> Key:
    route, gateway = names.parse_rule(name), names.parse_gateway(name)
    if route:
        return route
    if gateway:
        return Key(GATEWAY, "Gateway", *gateway.gateway.split("/"))
    ref = names.parse(name)
    if ref is None:
        kind, _, pod = node_id.partition("/")
        return POD.key(*pod.split("/")) if kind == SIDECAR else Key("", PROXY, "", name)
    if type_url != LISTENER and not names.is_host(name) and ref in owners:
        return owners[ref]
    return SERVICE.key(*ref.service.split("/"))
