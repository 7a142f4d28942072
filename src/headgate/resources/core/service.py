"""Services, with the fields that headgate reads."""

from collections.abc import Iterable, Iterator, Mapping

from msgspec import field

from headgate.errors import Cause
from headgate.kinds import names_of
from headgate.resources import cells
from headgate.resources.columns import AGE, NAME, Column
from headgate.resources.core.fields import (
    ADDRESS_TYPES,
    choice_causes,
    fault_causes,
    is_address,
    number_causes,
    protocol_causes,
)
from headgate.resources.core.pod_spec import ContainerPort
from headgate.resources.gateway_api.proxies import SERVICE_GATEWAY
from headgate.resources.grammars import service_port_name_fault
from headgate.resources.kind import Kind
from headgate.resources.meta import Input, Object, Resource, label_causes, label_fault, part, rows
from headgate.resources.resilience import ANNOTATIONS as RESILIENCE


class ServicePort(Input, frozen=True, kw_only=True):
    """One port of a Service. `target_port` is a number, or the name of a container port (R37, R38)."""

    port: int
    name: str = ""
    protocol: str = "TCP"
    app_protocol: str = ""
    target_port: int | str | None = None
    node_port: int = 0

    def number_on(self, declared: Iterable[ContainerPort]) -> int:
        """Return the number of the port on a pod with these container ports; 0 if they lack a named targetPort."""
        if isinstance(self.target_port, str) and self.target_port:
            pair = (self.target_port, self.protocol)
            return next((port.container_port for port in declared if (port.name, port.protocol) == pair), 0)
        return int(self.target_port or self.port)


class ServiceSpec(Input, frozen=True, kw_only=True):
    """`spec` of a Service. `cluster_ip` is the text `None` for a headless Service.

    `compiler.service_fields` reports those fields that have no effect.
    """

    cluster_ip: str = field(name="clusterIP", default="")
    ip_families: tuple[str, ...] = ()
    type: str = "ClusterIP"
    external_name: str = ""
    selector: dict[str, str] | None = None
    ports: tuple[ServicePort, ...] = ()
    session_affinity: str = "None"
    internal_traffic_policy: str = "Cluster"
    external_traffic_policy: str = "Cluster"
    traffic_distribution: str = ""
    external_ips: tuple[str, ...] = field(name="externalIPs", default=())
    load_balancer_ip: str = field(name="loadBalancerIP", default="")
    load_balancer_class: str = ""
    load_balancer_source_ranges: tuple[str, ...] = ()
    health_check_node_port: int = 0
    topology_keys: tuple[str, ...] = ()

    @property
    def ip_family(self) -> str:
        """The family of the address that clients call, `IPv4` or `IPv6`; the first one of a Service with both."""
        if ":" in self.cluster_ip:
            return "IPv6"
        return self.ip_families[0] if self.ip_families else "IPv4"

    @property
    def selected(self) -> Mapping[str, str]:
        """The labels that select the Service's pods. An ExternalName Service selects no pods."""
        return {} if self.type == "ExternalName" else self.selector or {}


class Service(Resource, frozen=True, kw_only=True):
    """A Service: its ports and the labels of its pods."""

    spec: ServiceSpec = ServiceSpec()


NO_ADDRESS = ("", "None")  # empty until an address is assigned; `None` for a headless Service
SERVICE_TYPES = ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")


def service_causes(obj: Object) -> Iterator[Cause]:
    """Yield mistakes in the fields of a Service that headgate reads."""
    spec = part(obj, "spec")
    address, ports = spec.get("clusterIP"), spec.get("ports")
    if isinstance(address, str) and address not in NO_ADDRESS and not is_address(address, *ADDRESS_TYPES.values()):
        yield Cause(
            "spec.clusterIP", f"{address!r} is not an IP address; leave out the field to get an address assigned"
        )
    yield from label_causes(spec.get("selector"), "spec.selector")
    yield from choice_causes(spec.get("type"), SERVICE_TYPES, "spec.type")
    names: dict[str, int] = {}
    for index, port in rows(ports):
        where = f"spec.ports[{index}]"
        yield from number_causes(port.get("port"), f"{where}.port")
        yield from _target(port.get("targetPort"), f"{where}.targetPort")
        yield from protocol_causes(port, where)
        name = port.get("name") or ""
        if len(ports or ()) > 1 and not name:
            yield Cause(f"{where}.name", "is required when there are several ports")
        elif isinstance(name, str) and name:
            yield from _port_name(name, index, names)


def _port_name(name: str, index: int, names: dict[str, int]) -> Iterator[Cause]:
    where = f"spec.ports[{index}].name"
    first = names.setdefault(name, index)
    if first != index:
        yield Cause(where, f"{name!r} is the name of spec.ports[{first}] too; names of ports must differ")
    elif fault := label_fault(name):
        yield Cause(where, fault)


def _target(value: object, where: str) -> Iterator[Cause]:
    if value == "":
        yield Cause(where, "must be a port number, or the name of a container's port")
    elif isinstance(value, str):
        yield from fault_causes(value, service_port_name_fault, where)
    elif value:  # 0 means unset, as in Kubernetes
        yield from number_causes(value, where)


KIND = Kind(
    names_of("Service", ""),
    status=True,
    shape=Service,
    checks=service_causes,
    columns=(
        NAME,
        Column("Type", cell=cells.at("spec.type", "ClusterIP")),
        Column("Cluster-IP", cell=cells.at("spec.clusterIP")),
        Column("External-IP", cell=cells.external),
        Column("Port(s)", cell=cells.listed("spec.ports", cells.service_port)),
        AGE,
        Column("Selector", cell=cells.labels("spec.selector"), wide=True),
    ),
    annotations=frozenset({SERVICE_GATEWAY, *RESILIENCE}),
    recorded=True,
    # The API server sets them, and they can't be changed.
    unrestored=("clusterIP", "clusterIPs", "ipFamilies", "healthCheckNodePort"),
    unversioned=True,
    categories=("all",),
    deletes_collection=False,
    unserved=frozenset({"proxy"}),
    always_present=("spec", "status.loadBalancer"),
)
