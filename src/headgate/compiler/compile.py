"""Compile a snapshot of all objects to a mesh and a report. The result depends on the snapshot and settings only."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from headgate.compiler import (
    named_pods,
    protocols,
    service_gateways,
    services,
    sidecars,
    trace_headers,
    unreachable_routes,
    unrouted_ports,
)
from headgate.compiler.endpoints import endpoints, external_hosts, identified, known_pods, with_hosts
from headgate.compiler.gateway_api import backend_tls, backend_traffic
from headgate.compiler.gateway_api.compile import (
    CompiledGateways,
    RouteGroups,
    compile_gateways,
    compile_port,
    consumer_ports,
    grouped,
)
from headgate.compiler.gateway_api.conflicts import without_conflicts
from headgate.compiler.gateway_api.destinations import Destinations, OutsideServers
from headgate.compiler.gateway_api.external_backends import READ as EXTERNAL
from headgate.compiler.gateway_api.external_backends import ExternalBackends, external_backends, with_externals
from headgate.compiler.gateway_api.gateways import gateway_pods
from headgate.compiler.gateway_api.listener_sets import SetParents, plan_set
from headgate.compiler.gateway_api.parents import AttachedRoute, AttachedRoutes, Parents, attached_routes
from headgate.compiler.gateway_api.routes import compile_route, with_mistakes
from headgate.compiler.gateway_api.rules import CompiledRoute
from headgate.compiler.invalid_objects import mistakes, useless_keys
from headgate.compiler.plain_services import PlainServices, plain_services
from headgate.compiler.report import (
    Compiled,
    Finding,
    GatewayOutcome,
    ParentStatus,
    PassingRoute,
    PolicyOutcome,
    Report,
    ServiceGateway,
    finding_order,
)
from headgate.compiler.snapshot import KindSource, Snapshot, of_sources
from headgate.compiler.splits import SplitCompiler
from headgate.compiler.trace_sources import tracing
from headgate.compiler.unreachable_routes import RouteList
from headgate.compiler.workload_policy import apply_policies
from headgate.compiler.workloads import PodPort, names_with_sidecar, pod_ports, workloads
from headgate.memo import Stages
from headgate.model.mutual_tls import TlsMode
from headgate.model.root_protocols import roots
from headgate.model.routing import (
    LONGEST_CONNECTION_S,
    ConsumerTable,
    Endpoint,
    Endpoints,
    GatewayPort,
    Mesh,
    PortRef,
    RouteTable,
    Workload,
)
from headgate.resources.core.namespace import Namespace
from headgate.resources.core.pod import MeshPod
from headgate.resources.core.service import Service
from headgate.resources.discovery.endpoint_slice import EndpointSlice
from headgate.resources.gateway_api.authorization_policy import AuthorizationPolicy
from headgate.resources.gateway_api.listener_set import ListenerSet
from headgate.resources.kind import Kind
from headgate.resources.mesh.canary.types import Canary
from headgate.resources.mesh.sidecar import Sidecar
from headgate.resources.mesh.tls_config import TLSConfig
from headgate.resources.meta import Key, Resource
from headgate.resources.registry import ROUTES
from headgate.resources.smi.http_route_group import HTTPRouteGroup
from headgate.resources.smi.port_routes import TCPRoute
from headgate.resources.smi.traffic_split import TrafficSplit
from headgate.resources.smi.traffic_target import TrafficTarget
from headgate.settings import Settings
from headgate.shared_map import SharedMap

CONNECTION_SHARE = 4
"""A connection lasts at most one fourth of a certificate's lifetime. A certificate that is renewed in time always has
at least two fifths of its lifetime left, so it stays valid until the end of each connection that starts with it."""
POLICY_KINDS = (TLSConfig, TrafficTarget, AuthorizationPolicy, HTTPRouteGroup, TCPRoute)
"""The kinds of objects that configure the mutual TLS and the authorization of workloads."""
_ROUTES = {kind: kind.shape for kind in ROUTES if kind.shape}
NO_MIGRATIONS: Mapping[str, TlsMode] = MappingProxyType({})
NO_OBJECTS, NO_GROUPS = Snapshot(), RouteGroups(SharedMap(), {}, {})
NO_ROUTES = AttachedRoutes(None, SharedMap(), SharedMap())


def compile_mesh(snapshot: Snapshot, settings: Settings, tls_modes: Mapping[str, TlsMode] = NO_MIGRATIONS) -> Compiled:
    """Compile one snapshot. Users' mistakes become findings and raise nothing.

    `tls_modes` contains the current TLS mode of each workload (`namespace/pod`) whose mTLS migration is not finished.
    """
    return Compiler().compile(snapshot, settings, tls_modes)


class ServiceEndpoints(NamedTuple):
    """The ready endpoints of Services, and for each Service the ports of its pods, ready or not."""

    endpoints: tuple[Endpoints, ...]
    ready: Mapping[PortRef, tuple[Endpoint, ...]]
    pod_ports: tuple[tuple[PodPort, ...], ...]


class CompiledRoutes(NamedTuple):
    """The results about routes.

    `tables` has those of all Service ports, with the attached routes in place of their own; `consumers` those for clients of
    other namespaces.
    """

    attached: SharedMap[Key, AttachedRoute]
    unreachable: tuple[RouteList, ...]
    gateways: tuple[GatewayPort, ...]
    tables: tuple[RouteTable, ...]
    consumers: tuple[ConsumerTable, ...]
    outcomes: tuple[GatewayOutcome, ...]
    policies: tuple[PolicyOutcome, ...]
    traffic: backend_traffic.TrafficPolicies
    findings: tuple[Finding, ...]


class Compiler:
    """A compiler of successive snapshots. It reuses the result of each stage whose input did not change.

    A stage is a pure function of immutable values. The compiler caches the last arguments and result of a stage, for
    some stages separately for each Service. The input of a stage contains only the kinds of objects that the stage
    reads. If a new result is equal to the last one, the last object is reused, so that later comparisons are fast.
    """

    def __init__(self) -> None:
        self._stages = Stages()

    def fork(self) -> "Compiler":
        """Return a compiler that begins with the results of this one, and changes none of them.

        Another thread may use this compiler: the results are replaced and never changed.
        """
        fork = Compiler()
        fork._stages = self._stages.fork()
        return fork

    def compile(
        self, snapshot: Snapshot, settings: Settings, tls_modes: Mapping[str, TlsMode] = NO_MIGRATIONS
    ) -> Compiled:
        """Compile a snapshot, as `compile_mesh` does."""
        snapshot = self._stages.following(_with_indexes, NO_OBJECTS, snapshot)
        served = self._served(snapshot, settings)
        listed = self._stages.once(self._service_endpoints, snapshot.services, snapshot.slices, settings.domain)
        claims = SplitCompiler(snapshot, listed.ready, served.choices, settings)
        tables = tuple(claims.tables(served.plain))
        externals = self._stages.once(external_backends, self._part(snapshot, *EXTERNAL), settings.domain)
        api = self._gateway_api(snapshot, claims.ready, tables, settings, externals)
        pods, service_pods = self._part(snapshot, MeshPod), self._part(snapshot, Namespace, Service, MeshPod)
        running = self._stages.once(workloads, service_pods, listed.pod_ports, settings, roots(tables))
        selected, modes = self._part(snapshot, Service, MeshPod, *POLICY_KINDS), dict(tls_modes)
        policies = self._stages.once(apply_policies, selected, listed.pod_ports, settings, running, modes)
        entries = self._stages.once(self._identified, listed.endpoints, policies.workloads, pods)
        mesh = with_hosts(
            Mesh(
                domain=settings.domain,
                trust_domain=settings.trust_domain,
                passthrough=settings.outbound == "allow",
                scoped=settings.access == "deny",
                connection_seconds=min(LONGEST_CONNECTION_S, settings.certificate_seconds // CONNECTION_SHARE),
                frontends=served.frontends,
                gateways=api.gateways,
                gateway_pods=self._stages.once(gateway_pods, self._part(snapshot, Namespace, MeshPod)),
                tracing=tracing(settings),
                tables=tuple(self._stages.each(_itself, {table.ref: (table,) for table in api.tables})),
                consumers=api.consumers,
                endpoints=entries + externals.endpoints,
                workloads=policies.workloads,
            ),
            {**self._stages.once(external_hosts, entries), **externals.hosts},
        )
        resilient, ignored = backend_traffic.with_policies(mesh, served.resilience, api.traffic)
        sidecar_pods = self._stages.once(sidecars.sidecar_pods, self._part(snapshot, MeshPod, Sidecar))
        findings = [
            *self._of_services(snapshot, settings, served, listed),
            *self._invalid(snapshot),
            *claims.findings,
            *api.findings,
            *ignored,
            *policies.findings,
            *(finding for selected_pods in sidecar_pods for finding in sidecars.findings(selected_pods)),
            *self._of_service_gateways(snapshot, settings),
            *self._of_routes(snapshot, mesh, api.unreachable),
        ]
        report = Report(
            seen=self._seen(snapshot),
            findings_of=self._by_object(findings, api.attached),
            parents_of=self._stages.each_item(_statuses, None, api.attached),
            passing_routes=self._stages.each_item(_passing_route, None, api.attached),
            outcomes=tuple(sorted(claims.outcomes, key=lambda outcome: (outcome.about, outcome.ref))),
            gateways=api.outcomes,
            policies=api.policies,
            selected=policies.selected,
            sidecars=sidecar_pods,
            service_gateways=self._requesting(snapshot, settings),
        )
        return Compiled(revision=snapshot.revision, mesh=resilient, report=report)

    def _gateway_api(
        self,
        snapshot: Snapshot,
        ready: Mapping[PortRef, tuple[Endpoint, ...]],
        tables: tuple[RouteTable, ...],
        settings: Settings,
        externals: ExternalBackends,
    ) -> CompiledRoutes:
        """Compile the routes of Gateways and Services; `tables` has those of Services before routes are attached."""
        meshed = self._stages.once(names_with_sidecar, self._part(snapshot, MeshPod))
        tls = self._stages.once(backend_tls.backend_policies, self._part(snapshot, *backend_tls.READ))
        traffic = self._stages.once(backend_traffic.traffic_policies, self._part(snapshot, *backend_traffic.READ))
        read = self._part(snapshot, *Destinations.READ)
        servers = OutsideServers(tuple(tls.by_port), externals.by_name, traffic.sessions)
        ready = self._stages.once(with_externals, ready, externals)
        places = self._stages.once(Destinations, read, ready, tables, meshed, servers)
        offered = tuple((table.ref, table.protocol) for table in tables)
        set_parents = self._stages.once(SetParents, self._part(snapshot, *SetParents.READ), settings)
        sets = self._stages.each_item(plan_set, set_parents, snapshot.source(ListenerSet).objects)
        parents = self._stages.once(Parents, self._part(snapshot, *Parents.READ), offered, settings, sets)
        attached = self._attached(snapshot, places, parents)
        groups = self._stages.following(grouped, NO_GROUPS, attached)
        routed = {
            table.ref: (table, routes, tls.by_port) for table in tables if (routes := groups.of_service(table.ref))
        }
        ports = dict(zip(routed, self._stages.each(compile_port, routed), strict=True))
        consumers = {
            place: (table, routes, tls.by_port) for place, (table, routes) in consumer_ports(tables, groups).items()
        }
        seen = dict(zip(consumers, self._stages.each(compile_port, consumers), strict=True))
        gateways = self._stages.once(self._gateways, parents, groups, tls.by_port)
        return CompiledRoutes(
            attached=attached,
            unreachable=gateways.unreachable,
            gateways=gateways.ports,
            tables=tuple(ports[table.ref].table if table.ref in ports else table for table in tables),
            consumers=tuple(ConsumerTable(namespace=place.namespace, table=port.table) for place, port in seen.items()),
            outcomes=gateways.outcomes,
            policies=(
                *backend_tls.outcomes(tls, parents, attached, gateways.outcomes),
                *backend_traffic.outcomes(traffic, parents, attached, gateways.outcomes),
            ),
            traffic=traffic,
            findings=(
                *parents.findings,
                *tls.findings,
                *traffic.findings,
                *externals.findings,
                *(finding for port in (*ports.values(), *seen.values()) for finding in port.findings),
                *(finding for port in ports.values() for finding in port.overridden),
            ),
        )

    def _gateways(self, parents: Parents, groups: RouteGroups, policies: backend_tls.Policies) -> CompiledGateways:
        return compile_gateways(self._stages, parents, groups, policies)

    def _served(self, snapshot: Snapshot, settings: Settings) -> PlainServices:
        other_proxies = service_gateways.served_by_nginx(self._requesting(snapshot, settings), settings)
        return self._stages.once(plain_services, self._part(snapshot, Service), settings, other_proxies)

    def _of_services(
        self, snapshot: Snapshot, settings: Settings, served: PlainServices, service_endpoints: ServiceEndpoints
    ) -> Iterator[Finding]:
        """Yield the findings about the ports of Services."""
        yield from served.findings
        written, pods = self._part(snapshot, Service), self._part(snapshot, Namespace, Service, MeshPod)
        yield from self._stages.once(protocols.conflicts, written, served.choices, service_endpoints.endpoints)
        yield from self._stages.once(services.target_ports, pods)
        routed = self._part(snapshot, TrafficSplit, *unrouted_ports.ROUTE_SHAPES)
        referenced = self._stages.once(unrouted_ports.referenced_services, routed, settings)
        yield from self._stages.once(unrouted_ports.findings, pods, referenced, settings)

    def _requesting(self, snapshot: Snapshot, settings: Settings) -> tuple[ServiceGateway, ...]:
        """Return the Services that request a gateway."""
        return self._stages.once(service_gateways.requesting, self._part(snapshot, Service, Canary), settings)

    def _of_service_gateways(self, snapshot: Snapshot, settings: Settings) -> tuple[Finding, ...]:
        requesting = self._requesting(snapshot, settings)
        slices = {gateway.name: snapshot.slices.get(gateway.name, ()) for gateway in requesting}
        return self._stages.once(service_gateways.findings, requesting, slices, settings)

    def _attached(self, snapshot: Snapshot, places: Destinations, parents: Parents) -> SharedMap[Key, AttachedRoute]:
        """Return all routes, attached to their parents."""
        by_kind: dict[Kind, SharedMap[Key, CompiledRoute]] = {}
        for kind, shape in _ROUTES.items():
            source = snapshot.source(shape)
            routes = self._stages.each_item(compile_route, places, source.objects, kind)
            mistaken = {key: (routes[key], causes) for key, causes in source.mistakes.items() if key in routes}
            by_kind[kind] = routes.edited(self._stages.each_item(with_mistakes, None, mistaken, kind))
        routes_of_all_kinds = self._stages.united("routes", *by_kind.values())
        attached = self._stages.following(attached_routes, NO_ROUTES, parents, routes_of_all_kinds).attached
        used = [kind for kind, routes in by_kind.items() if routes]
        if len(used) < 2 and all("HTTP" in kind.listeners for kind in used):
            return attached  # routes of one kind share hosts, but not connections
        return without_conflicts(parents, attached)

    def _of_routes(self, snapshot: Snapshot, mesh: Mesh, at_gateways: tuple[RouteList, ...]) -> Iterator[Finding]:
        """Yield the findings about what proxies do instead of a route, and about routes that no request reaches."""
        yield from self._stages.once(named_pods.findings, mesh.all_tables, mesh.endpoints)
        yield from trace_headers.findings(snapshot, mesh)
        yield from unreachable_routes.findings(snapshot, (*self._route_lists(mesh), *at_gateways))

    def _route_lists(self, mesh: Mesh) -> Iterator[RouteList]:
        """Yield the routes of Service ports, for all clients and for those of a namespace."""
        routed = unreachable_routes.of_ports(mesh)
        missed = self._stages.each(unreachable_routes.unreachable, routed)
        for ((ref, title), (routes,)), unreachable in zip(routed.items(), missed, strict=True):
            yield RouteList(title, ref, routes, unreachable)

    def _part(self, snapshot: Snapshot, *shapes: type[Resource]) -> Snapshot:
        """Return a snapshot with only these kinds: the same instance as last time if none of their objects changed."""
        sources = tuple(snapshot.source(shape) for shape in shapes)
        return self._stages.following(_of_sources, NO_OBJECTS, sources, part=shapes)

    def _service_endpoints(
        self, listed: Mapping[str, tuple[Key, Service]], slices: Mapping[str, tuple[EndpointSlice, ...]], domain: str
    ) -> ServiceEndpoints:
        sources = {name: (name, service, slices.get(name, ())) for name, (_, service) in listed.items()}
        by_service = self._stages.each(endpoints, {name: (*source, domain) for name, source in sources.items()})
        flat = tuple(entry for entries in by_service for entry in entries)
        return ServiceEndpoints(
            flat, {entry.ref: entry.ready for entry in flat}, tuple(self._stages.each(pod_ports, sources))
        )

    def _identified(
        self, service_endpoints: Iterable[Endpoints], workloads: tuple[Workload, ...], pods: Snapshot
    ) -> tuple[Endpoints, ...]:
        by_address = self._stages.once(known_pods, workloads, pods)
        return tuple(self._stages.each(identified, {entry.ref: (entry, by_address) for entry in service_endpoints}))

    def _seen(self, snapshot: Snapshot) -> SharedMap[Key, int]:
        invalid = dict.fromkeys((key for key in snapshot.mistakes if key not in snapshot.objects), 0)
        return self._stages.each_item(_generation, None, snapshot.objects).edited(invalid)

    def _invalid(self, snapshot: Snapshot) -> Iterator[Finding]:
        """Yield the findings about invalid objects, and about labels and annotations without an effect."""
        yield from mistakes(snapshot)
        yield from chain.from_iterable(self._stages.each_item(useless_keys, None, snapshot.objects).values())

    def _by_object(
        self, findings: Iterable[Finding], attached: SharedMap[Key, AttachedRoute]
    ) -> SharedMap[Key, tuple[Finding, ...]]:
        """Return all findings, with those of routes, by object and in the order of `finding_order`.

        The findings of a route are in order already, so only those of routes that are in `findings` too are sorted.
        """
        of_routes = self._stages.each_item(_findings, None, attached)
        more: dict[Key, list[Finding]] = defaultdict(list)
        for finding in findings:
            more[finding.about].append(finding)
        return of_routes.edited(
            {
                key: tuple(sorted((*of_routes.get(key, ()), *several), key=finding_order))
                for key, several in more.items()
            }
        )


def _with_indexes(last: Snapshot, snapshot: Snapshot) -> Snapshot:
    return snapshot.following(last)


def _of_sources(last: Snapshot, sources: tuple[KindSource, ...]) -> Snapshot:
    return of_sources(sources).following(last)


def _itself(table: RouteTable) -> RouteTable:
    return table


def _generation(_shared: None, _key: Key, resource: Resource) -> int:
    return resource.metadata.generation


def _statuses(_shared: None, _key: Key, attached: AttachedRoute) -> tuple[ParentStatus, ...] | None:
    return attached.statuses or None


def _passing_route(_shared: None, _key: Key, attached: AttachedRoute) -> PassingRoute | None:
    return PassingRoute(passed=attached.route.passed, parents=attached.statuses) if attached.route.passed else None


def _findings(_shared: None, _key: Key, attached: AttachedRoute) -> tuple[Finding, ...] | None:
    return attached.findings or None
