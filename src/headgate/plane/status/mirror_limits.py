"""Copies that proxies drop at a mirror's limits, as findings on the routes that ask for the copies. Pure."""

from collections.abc import Iterator, Mapping

from headgate.compiler.reasons import Reason
from headgate.compiler.references import service_key
from headgate.compiler.report import Finding
from headgate.envoy import names
from headgate.envoy.mirrors import REQUESTS
from headgate.model.routing import Mesh, Mirror, Route


def dropped_copies(mesh: Mesh, counts: Mapping[str, int]) -> tuple[Finding, ...]:
    """Return a finding for each rule and mirrored Service port; `counts` are the dropped copies by cluster.

    The message has the power of ten of the count: it changes a few times, not with every report.
    """
    found: dict[tuple[object, ...], Finding] = {}
    for route in _routes(mesh) if counts else ():
        for mirror in route.mirrors:
            if route.origin and (count := _count(mirror, counts)):
                finding = Finding(
                    about=route.origin,
                    reason=Reason.COPIES_DROPPED,
                    field=f"spec.rules[{route.name}].filters",
                    message=_message(mirror, count),
                    related=(service_key(mirror.ref.service),),
                )
                found.setdefault((route.origin, route.name, mirror.ref), finding)
    return tuple(found.values())


def _routes(mesh: Mesh) -> Iterator[Route]:
    for table in mesh.tables:
        yield from table.routes
    for port in mesh.gateways:
        for host in port.hosts:
            yield from host.routes


def _count(mirror: Mirror, counts: Mapping[str, int]) -> int:
    name = names.mirror(mirror.ref, mirror.split)
    return sum(count for cluster, count in counts.items() if cluster == name or cluster.startswith(f"{name}/to/"))


def _message(mirror: Mirror, count: int) -> str:
    power = 10 ** (len(str(count)) - 1)
    return (
        f"proxies drop copies for {mirror.ref}, {power} or more so far: a proxy has at most {REQUESTS} of them on the way "
        "at once. Give the Service more or faster endpoints, or mirror a smaller fraction"
    )
