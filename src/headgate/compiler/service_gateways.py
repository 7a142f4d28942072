"""Find the Services that request a gateway: proxies behind them for clients without a sidecar (001 and 004; R32, D23).

A Service requests it by an annotation, or a Canary for its root Service by `spec.gateway`. On one machine the gateway of the
machine listens on the addresses of all Services, unless one requests nginx: then nginx listens there.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import structs

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding, ServiceGateway
from headgate.compiler.services import HEADLESS, is_external, routed_ports
from headgate.compiler.snapshot import Snapshot
from headgate.resources.core.service import Service
from headgate.resources.discovery.endpoint_slice import EndpointSlice
from headgate.resources.gateway_api.proxies import ENVOY, NGINX, PROXIES, SERVICE_GATEWAY
from headgate.resources.mesh.canary.types import Canary
from headgate.resources.meta import Key, service_name
from headgate.settings import Settings

READY = "GatewayReady"
"""The reason of the Event when clients without a sidecar begin to reach a gateway."""


def requesting(snapshot: Snapshot, settings: Settings) -> tuple[ServiceGateway, ...]:
    """Return the gateways that existing Services have or should have, sorted by Service.

    A Canary requests one only for a root Service in its own namespace. The request of the Service itself has precedence.
    """
    requested: dict[str, tuple[Key, str]] = {}
    for key, canary in snapshot.of(Canary):
        root = service_name(canary.spec.service, key.namespace, settings.domain)
        if (gateway := canary.spec.gateway) and root.startswith(f"{key.namespace}/"):
            requested.setdefault(root, (key, gateway.annotation))
    for name, (key, service) in snapshot.services.items():
        if (own := service.metadata.annotations.get(SERVICE_GATEWAY)) is not None:
            requested[name] = key, own
    existing = (
        (name, *request, *snapshot.services[name])
        for name, request in sorted(requested.items())
        if name in snapshot.services
    )
    return tuple(
        structs.replace(
            gateway, serves=not gateway.fault and (settings.gateway_pods or (gateway.proxy == NGINX and settings.nginx))
        )
        for gateway in (
            ServiceGateway(about=about, proxy=proxy, key=key, service=service, fault=_fault(name, proxy, service))
            for name, about, proxy, key, service in existing
        )
    )


def ready_message(service: str, proxies: str) -> str:
    """Return the message of the Event READY: `proxies` serve clients of a Service (`namespace/name`)."""
    return f"clients without a sidecar reach the Service {service} through {proxies}, which split its requests"


def _fault(name: str, proxy: str, service: Service) -> str:
    """Return why a Service can't have a gateway; empty if it can."""
    if proxy not in PROXIES:
        return f"must be {' or '.join(PROXIES)}, not {proxy!r}; until then the Service {name} has no gateway"
    if is_external(service):
        return f"has no effect: the ExternalName Service {name} is a DNS name; name a Service of type ClusterIP"
    if service.spec.cluster_ip == HEADLESS:
        return f"has no effect: the Service {name} is headless, so clients call pods; create it with a clusterIP"
    if not routed_ports(service):
        return f"has no effect: the Service {name} has no TCP port; add one to spec.ports"
    return ""


def served_by_nginx(gateways: Sequence[ServiceGateway], settings: Settings) -> frozenset[str]:
    """Return the Services (`namespace/name`) for which nginx listens on this machine, instead of the gateway."""
    return frozenset() if settings.gateway_pods else frozenset(gateway.name for gateway in gateways if gateway.serves)


def findings(
    gateways: Sequence[ServiceGateway], slices: Mapping[str, tuple[EndpointSlice, ...]], settings: Settings
) -> tuple[Finding, ...]:
    """Return the findings about gateways. `slices` has the EndpointSlices of their Services without headgate's own."""
    return tuple(
        finding for gateway in gateways for finding in _findings(gateway, slices.get(gateway.name, ()), settings)
    )


def _findings(gateway: ServiceGateway, slices: Sequence[EndpointSlice], settings: Settings) -> Iterator[Finding]:
    if fault := gateway.fault:
        if settings.gateway_pods or gateway.proxy != ENVOY:
            yield Finding(gateway.about, Reason.FIELD_IGNORED, gateway.field, fault)
        return
    if not settings.gateway_pods:
        if gateway.proxy == NGINX and not settings.nginx:
            yield Finding(gateway.about, Reason.FIELD_IGNORED, gateway.field, _without_nginx(gateway))
        return
    is_own = gateway.about == gateway.key
    if gateway.service.spec.selected:
        message = (
            f"the Service {gateway.name} has a selector, so clients without a sidecar reach the selected pods past the gateway; "
            "remove spec.selector from it, and name Services with the pods as backends of a split"
        )
        yield Finding(gateway.about, Reason.GATEWAY_BYPASSED, "spec.selector" if is_own else "spec.service", message)
    elif names := [slice_.metadata.name for slice_ in slices if slice_.endpoints]:
        message = (
            f"clients without a sidecar reach endpoints of the Service {gateway.name} past the gateway: delete its "
            f"EndpointSlices {', '.join(names)}, and its Endpoints, which Kubernetes wrote if it had a selector"
        )
        yield Finding(gateway.about, Reason.GATEWAY_BYPASSED, gateway.field if is_own else "spec.service", message)


def _without_nginx(gateway: ServiceGateway) -> str:
    return f"this machine has no nginx, so the gateway serves the Service {gateway.name}; install nginx, and start headgate again"
