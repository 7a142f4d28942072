"""From references of routes to the Service ports that they mean (R54 to R57)."""

from collections.abc import Mapping, Sequence

from headgate.compiler.protocols import choice_at
from headgate.compiler.reasons import Reason
from headgate.compiler.references import grant_hint, permitted, service_key
from headgate.compiler.report import Finding
from headgate.compiler.services import is_external
from headgate.compiler.snapshot import Snapshot
from headgate.compiler.workloads import has_sidecar
from headgate.model.requests import ANY, Match
from headgate.model.routing import Endpoint, PortRef, Protocol, Route, RouteTable, Split, SplitMatch
from headgate.resources.core import Service
from headgate.resources.meta import Key, Value
from headgate.resources.registry import SERVICE
from headgate.resources.routes import BackendReference

Ready = Mapping[PortRef, tuple[Endpoint, ...]]


class PortDestination(Value, frozen=True, kw_only=True):
    """What becomes of requests at a Service port that fit `match`, and none of the matches before it.

    `split` decides; without one they go to the Service's own endpoints. `by` is the TrafficSplit, and `step` the match of
    it where it has matches.
    """

    ref: PortRef
    match: Match = ANY
    split: Split | None = None
    by: Key | None = None
    step: SplitMatch | None = None


class Destinations:
    """Where requests of a route can go. `tables` are what the Services do with requests before any route."""

    def __init__(self, snapshot: Snapshot, ready: Ready, tables: Sequence[RouteTable]) -> None:
        self._snapshot = snapshot
        self._ready = ready
        self._protocols = {table.ref: table.protocol for table in tables}
        self._tables = {table.ref: table for table in tables}

    def find(self, about: Key, ref: BackendReference, field: str) -> PortRef | Finding:
        """Return the Service port that a reference means, or why it means none."""
        if (ref.group, ref.kind) != (SERVICE.group, SERVICE.kind):
            message = f"{ref.kind} {ref.name} is no Service; only a Service can be a backend, so write kind: Service"
            return Finding(about, Reason.INVALID_KIND, f"{field}.kind", message)
        name = f"{ref.namespace or about.namespace}/{ref.name}"
        related = (service_key(name),)
        if not permitted(self._snapshot, about, name):
            message = f"Service {name} is in another namespace and may not be used from here: {grant_hint(about, name)}"
            return Finding(about, Reason.REF_NOT_PERMITTED, f"{field}.namespace", message, related)
        if name not in self._snapshot.services:
            message = f"Service {name} not found; create it or correct the name"
            return Finding(about, Reason.BACKEND_NOT_FOUND, f"{field}.name", message, related)
        place = PortRef(name, ref.port or 0)
        if place in self._ready:
            return place
        reason, message = _no_port(place, self._snapshot.services[name][1])
        return Finding(about, reason, f"{field}.port", message, related)

    def find_http(self, about: Key, ref: BackendReference, field: str) -> PortRef | Finding:
        """Return what `find` does, if HTTP is spoken there."""
        place = self.find(about, ref, field)
        if isinstance(place, Finding) or self.protocol(place).is_http:
            return place
        message = (
            f"port {place.port} of Service {place.service} speaks {self.protocol(place).value}, so HTTP requests can't go "
            "there; set the port's appProtocol to http, or use a TCPRoute"
        )
        return Finding(about, Reason.UNSUPPORTED_PROTOCOL, f"{field}.port", message, (service_key(place.service),))

    def taken_for_http(self, about: Key, place: PortRef, field: str) -> Finding | None:
        """Return what to tell when connections go to a port that declares nothing and whose pods have sidecars."""
        if self.choices(place)[-1].split or choice_at(self._snapshot, place).declared:
            return None
        pods = (self._snapshot.pods.get(endpoint.workload) for endpoint in self._ready[place])
        if not any(pod and has_sidecar(pod) for pod in pods):
            return None
        message = (
            f"port {place.port} of Service {place.service} declares no protocol, so its pods' sidecars take it for http, "
            "and a server that speaks first is not heard; set the port's appProtocol to tcp or tcp-server-first"
        )
        return Finding(about, Reason.UNSUPPORTED_PROTOCOL, f"{field}.port", message, (service_key(place.service),))

    def protocol(self, place: PortRef) -> Protocol:
        """Return what is spoken on a Service port."""
        return self._protocols.get(place, Protocol.HTTP)

    def choices(self, place: PortRef) -> tuple[PortDestination, ...]:
        """Return what becomes of requests to a Service port, first match first; the last choice is for all others (D13)."""
        table = self._tables.get(place)
        return tuple(_choice(place, route) for route in table.routes) if table else (PortDestination(ref=place),)

    def is_empty(self, choice: PortDestination) -> bool:
        """Say whether no endpoint would answer there."""
        if choice.split is None:
            return not self._ready[choice.ref]
        return not choice.split.broken and not any(self._ready[target.ref] for target in choice.split.targets)


def _no_port(place: PortRef, service: Service) -> tuple[Reason, str]:
    if is_external(service) and not service.spec.ports:
        message = (
            f"ExternalName Service {place.service} lists no ports, so it has the ports 80 and 443; list {place.port} in its "
            "spec.ports"
        )
        return Reason.BACKEND_NOT_FOUND, message
    written = next((item for item in service.spec.ports if item.port == place.port), None)
    if written is not None:
        message = f"port {place.port} of Service {place.service} is {written.protocol}; only TCP ports can be backends"
        return Reason.UNSUPPORTED_PROTOCOL, message
    offered = ", ".join(str(item.port) for item in service.spec.ports) or "no port"
    return Reason.BACKEND_NOT_FOUND, f"Service {place.service} has no port {place.port}; it offers {offered}"


def _choice(place: PortRef, route: Route) -> PortDestination:
    if route.origin is None:
        return PortDestination(ref=place)
    step = SplitMatch(ref=place, split=route.origin, match=route.name) if route.name else None
    return PortDestination(ref=place, match=route.match, split=route.split, by=route.origin, step=step)
