"""Report fields of Services that have no effect here, one finding each (D38).

Proxies choose endpoints themselves, so they know nothing of affinity and topology. On one machine nothing opens ports of
nodes, load balancers or further addresses; on a cluster Kubernetes does.
"""

from collections.abc import Iterator

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.resources.core.service import Service
from headgate.resources.meta import Key
from headgate.settings import Settings

CLUSTER = "Cluster"
TOPOLOGY = ("service.kubernetes.io/topology-mode", "service.kubernetes.io/topology-aware-hints")
_OFF = ("", "disabled", "Disabled")
_OPENED = "headgate on one machine opens none; clients outside the mesh call a Gateway, or the Service's clusterIP"


def findings(key: Key, service: Service, settings: Settings) -> Iterator[Finding]:
    """Yield a finding for each field without an effect."""
    fields = _of_calls(service, nodes=settings.gateway_pods)
    for field, message in (*fields, *(() if settings.gateway_pods else _of_machine(service))):
        yield Finding(key, Reason.FIELD_IGNORED, field, message)


def _of_calls(service: Service, *, nodes: bool) -> Iterator[tuple[str, str]]:
    """Yield the fields that proxies don't follow. All endpoints of one machine are on the same node."""
    spec = service.spec
    if spec.session_affinity not in {"", "None"}:
        yield (
            "spec.sessionAffinity",
            (
                f"{spec.session_affinity} has no effect: proxies send requests of one client to all endpoints. For users that stay "
                "with one backend, make the Service the root of a TrafficSplit with the annotation headgate.dev/sticky"
            ),
        )
    if not nodes:
        return
    if spec.internal_traffic_policy not in {"", CLUSTER}:
        yield (
            "spec.internalTrafficPolicy",
            f"{spec.internal_traffic_policy} has no effect on calls of proxies: they use the endpoints of all nodes alike",
        )
    same = "proxies use the endpoints of all zones and nodes alike"
    if spec.traffic_distribution:
        yield "spec.trafficDistribution", f"{spec.traffic_distribution} has no effect on calls of proxies: {same}"
    if spec.topology_keys:
        yield "spec.topologyKeys", f"has no effect on calls of proxies: {same}"
    for name in TOPOLOGY:
        if (value := service.metadata.annotations.get(name, "")) not in _OFF:
            yield f"metadata.annotations.{name}", f"{value} has no effect on calls of proxies: {same}"


def _of_machine(service: Service) -> Iterator[tuple[str, str]]:
    """Yield the fields about clients outside a cluster."""
    spec = service.spec
    if spec.type in {"NodePort", "LoadBalancer"}:
        what = "ports of nodes" if spec.type == "NodePort" else "load balancers"
        yield "spec.type", f"{spec.type} requests {what}, and {_OPENED}"
    if spec.external_traffic_policy not in {"", CLUSTER}:
        yield "spec.externalTrafficPolicy", f"{spec.external_traffic_policy} is for ports of nodes, and {_OPENED}"
    if spec.external_ips:
        yield "spec.externalIPs", f"{', '.join(spec.external_ips)}: these are addresses of nodes, and {_OPENED}"
    for field, value in (
        ("loadBalancerIP", spec.load_balancer_ip),
        ("loadBalancerClass", spec.load_balancer_class),
        ("loadBalancerSourceRanges", ", ".join(spec.load_balancer_source_ranges)),
    ):
        if value:
            yield f"spec.{field}", f"{value} is for load balancers, and {_OPENED}"
    if spec.health_check_node_port:
        yield "spec.healthCheckNodePort", f"{spec.health_check_node_port} is a port of nodes, and {_OPENED}"
    for index, port in enumerate(spec.ports):
        if port.node_port:
            yield f"spec.ports[{index}].nodePort", f"{port.node_port} is a port of nodes, and {_OPENED}"
