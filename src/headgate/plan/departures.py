"""Find what takes workloads out of a comparison between two meshes (D32).

The comparison of access is about sidecars, identities and ports that both meshes have. What a change moves past them gives
access, or at least nothing can be proven about it.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Literal, NamedTuple

from headgate.compiler.snapshot import Snapshot
from headgate.compiler.workloads import excluded_ports, has_sidecar
from headgate.model.authorization import port_of
from headgate.model.routing import Mesh, PortRef, Workload
from headgate.plan import words
from headgate.plan.access import AllowedRequests, permissions, points
from headgate.resources.core.pod import MeshPod
from headgate.resources.core.service import Service
from headgate.resources.inspect import Answer
from headgate.resources.mesh.sidecar import Sidecar
from headgate.resources.mesh.tls_config import TLSConfig
from headgate.resources.meta import Resource
from headgate.resources.selectors import selects


class Departure(Answer, frozen=True):
    """What a change takes out of the comparison: access that did not exist, or something that is not compared."""

    type: Literal["GivesAccess", "NotCompared"]
    message: str


class Side(NamedTuple):
    """One side of a comparison: the mesh, and the objects from which it is compiled."""

    mesh: Mesh
    snapshot: Snapshot


class _Pods(NamedTuple):
    """A pod on both sides, and its workload there if it has a sidecar."""

    name: str
    old: MeshPod | None
    new: MeshPod | None
    was: Workload | None
    now: Workload | None


def departures(before: Side, after: Side) -> Iterator[Departure]:
    """Yield what a change takes out of the comparison, sorted by pod."""
    for pair in _pairs(before, after):
        yield from _departed(pair, after)
        if pair.was and pair.now and pair.old and pair.new:
            yield from _changed(pair, pair.old, pair.new, after)
            yield from _renamed(pair.was, pair.now, before.mesh, after.mesh)
    yield from _bypasses(before, after)
    yield from invalid(after.snapshot)


def without_sidecar(side: Side) -> frozenset[str]:
    """Return the pods that no sidecar guards."""
    return frozenset(name for name, pod in side.snapshot.pods.items() if not has_sidecar(pod))


def invalid(snapshot: Snapshot) -> Iterator[Departure]:
    """Yield the objects that are left out because they have mistakes."""
    for key, causes in sorted(snapshot.mistakes.items()):
        if key not in snapshot.objects:
            cause = causes[0]
            yield Departure("NotCompared", f"{key} is invalid and left out: {cause.field}: {cause.message}")


def bypasses(mesh: Mesh, names: Collection[str]) -> Iterator[tuple[PortRef, int, Workload]]:
    """Yield the Service ports that lead to a port of these workloads which the sidecar does not serve."""
    workloads = {workload.name: workload for workload in mesh.workloads if workload.name in names}
    for entry in mesh.endpoints:
        for target in entry.ready:
            workload = workloads.get(target.workload)
            if workload and port_of(workload, target.port) is None:
                yield entry.ref, target.port, workload


def _pairs(before: Side, after: Side) -> Iterator[_Pods]:
    old, new = before.snapshot.pods, after.snapshot.pods
    was, now = ({workload.name: workload for workload in side.mesh.workloads} for side in (before, after))
    for name in sorted(old.keys() | new.keys()):
        pods = old.get(name), new.get(name)
        if pods[0] is not pods[1]:
            yield _Pods(name, *pods, was.get(name), now.get(name))


def _departed(pair: _Pods, after: Side) -> Iterator[Departure]:
    """Yield that a workload has gone, or has no sidecar."""
    if pair.new is None:
        if pair.was and all(workload.identity != pair.was.identity for workload in after.mesh.workloads):
            left = f"pod {pair.name} has gone, and no pod of its identity is left to compare it with"
            yield Departure("NotCompared", left)
    elif pair.now is None and not has_sidecar(pair.new):
        if pair.old is None:
            yield Departure("GivesAccess", f"pod {pair.name} is new and has no sidecar, so it allows all requests")
        elif pair.was or has_sidecar(pair.old):
            yield _unguarded(pair.was, f"pod {pair.name} loses its sidecar, so it allows all requests")
    elif pair.now is None and (pair.was or pair.old is None):
        yield Departure("NotCompared", f"pod {pair.name} has no usable address or ServiceAccount")


def _unguarded(was: Workload | None, message: str) -> Departure:
    """Return that requests pass a sidecar: this gives access unless the workload was open to every caller."""
    if was is None or is_restricted(was):
        return Departure("GivesAccess", message)
    return Departure("NotCompared", f"{message}; it was open before, but rules and identities have no effect any more")


def is_restricted(workload: Workload) -> bool:
    """Return whether a workload refuses some callers."""
    return workload.access.closed or not workload.target_tls_mode.accepts_plaintext


def _changed(pair: _Pods, old: MeshPod, new: MeshPod, after: Side) -> Iterator[Departure]:
    """Yield what lets requests pass the sidecar of a pod that keeps it."""
    for port in sorted(excluded_ports(new) - excluded_ports(old)):
        yield _unguarded(
            pair.was, f"port {port} of pod {pair.name} is excluded from its sidecar, so it allows all requests"
        )
    if new.spec.host_network and not old.spec.host_network:
        message = (
            f"pod {pair.name} uses the network of its node (spec.hostNetwork), where it gets no sidecar on a cluster"
        )
        yield Departure("NotCompared", message)
    if pair.now and pair.was:
        served = {(probe.port, probe.path) for probe in pair.was.probes}
        for probe in pair.now.probes if is_restricted(pair.now) else ():
            if (probe.port, probe.path) not in served:
                message = (
                    f"its sidecar answers the probe {probe.name} to every caller: GET {probe.path} at port {probe.port}"
                )
                yield Departure("NotCompared", f"pod {pair.name}: {message}")
    if old.metadata.labels != new.metadata.labels:
        selected = [
            _selecting(after.snapshot, pair.name, labels) for labels in (old.metadata.labels, new.metadata.labels)
        ]
        for about in sorted(selected[0] ^ selected[1]):
            verb = "selects" if about in selected[1] else "no longer selects"
            yield Departure("NotCompared", f"pod {pair.name} changes its labels, so {about} {verb} it")


def _selecting(snapshot: Snapshot, pod: str, labels: Mapping[str, str]) -> frozenset[str]:
    """Return the objects of a pod's namespace whose selectors fit its labels."""
    namespace = pod.partition("/")[0]
    shapes: tuple[type[Resource], ...] = (Service, Sidecar, TLSConfig)
    objects = (pair for shape in shapes for pair in snapshot.of(shape))
    return frozenset(str(key) for key, resource in objects if key.namespace == namespace and _selects(resource, labels))


def _selects(resource: Resource, labels: Mapping[str, str]) -> bool:
    if isinstance(resource, Service):
        return bool(resource.spec.selected) and resource.spec.selected.items() <= labels.items()
    return isinstance(resource, Sidecar | TLSConfig) and selects(resource.spec.selector, labels)


def _renamed(was: Workload, now: Workload, before: Mesh, after: Mesh) -> Iterator[Departure]:
    """Yield what the programs of a pod may do with its new identity, or that its identity changes."""
    if was.identity == now.identity:
        return
    change = f"{words.callers_words((was.identity,))} becomes {words.callers_words((now.identity,))}"
    yield Departure("NotCompared", f"pod {now.name} changes its identity: {change}")
    servers = {workload.name: workload for workload in before.workloads}
    for server in after.workloads:
        allowed = _allowed(server, now.identity)
        if not allowed <= (_allowed(servers[server.name], was.identity) if server.name in servers else frozenset()):
            to = words.callers_words((server.identity,))
            yield Departure(
                "GivesAccess",
                f"pod {now.name} gets the identity of {words.callers_words((now.identity,))}, which may call {to}",
            )


def _allowed(server: Workload, identity: str) -> frozenset[tuple[int, AllowedRequests]]:
    """Return what an identity may send to a workload, with the ports."""
    by_port = ((point.port.port, permissions(point, identity)) for point, _ in points(server, None) if point)
    return frozenset((port, permission) for port, several in by_port for permission in several)


def _bypasses(before: Side, after: Side) -> Iterator[Departure]:
    was = {workload.name: workload for workload in before.mesh.workloads}
    pods = {workload.name for workload in after.mesh.workloads}
    old = {(ref, port, workload.name) for ref, port, workload in bypasses(before.mesh, was.keys())}
    for ref, port, workload in bypasses(after.mesh, pods):
        was_open = workload.name in before.snapshot.pods and workload.name not in was  # it had no sidecar
        if (ref, port, workload.name) not in old and not was_open:
            yield _unguarded(was.get(workload.name), bypass_message(ref, port, workload.name))


def bypass_message(ref: PortRef, port: int, pod: str) -> str:
    """Return that a Service port leads past a sidecar."""
    return f"{ref} leads to port {port} of pod {pod}, which its sidecar does not serve"
