"""Find callers whose requests a change moves to pods that do not allow them."""

from collections.abc import Iterator
from typing import NamedTuple

from headgate.matching.conditions import Conjunction
from headgate.matching.requests import request_of
from headgate.matching.solver import Solver
from headgate.matching.undecided import Undecided, Work
from headgate.model.authorization import port_of
from headgate.model.identities import gateway_id, parse_id
from headgate.model.requests import Request
from headgate.model.routing import Endpoint, Mesh, PortRef, Workload
from headgate.plan.access import (
    AccessPoint,
    AllowedRequests,
    callers_of,
    others_than,
    permissions,
    point_of,
    setting_of,
)
from headgate.plan.traffic import RequestClass
from headgate.plan.treatment import Treatment

_OPEN = (AllowedRequests(()),)


class Refused(NamedTuple):
    """Requests of `callers` (SPIFFE IDs) to a backend that one of its pods, `workload`, refuses; without an example, maybe.

    `excepted` has the callers that rules name and that are not among them.
    """

    ref: PortRef
    workload: Workload
    callers: tuple[str, ...]
    excepted: tuple[str, ...]
    match: Conjunction
    example: Request | None


class MovedRequests:
    """Compares the access rules of former and new backends for the requests of a class."""

    def __init__(self, before: Mesh, after: Mesh, work: Work | None = None) -> None:
        self._before, self._after = _Side(before), _Side(after)
        self._work = work

    def refused(self, request_class: RequestClass) -> Iterator[Refused]:
        """Yield requests of a class that a former backend allows, and that a backend which the class gets refuses.

        Classes whose filters change requests are left out: the access rules see the changed requests.
        """
        former = {receiver.ref for receiver in request_class.before.receivers if receiver.ref and not receiver.status}
        gained = {
            receiver.ref for receiver in request_class.after.receivers if receiver.ref and not receiver.status
        } - former
        if (
            not former
            or _edits_requests(request_class.before)
            or _edits_requests(request_class.after)
            or not request_class.after.protocol.is_http
        ):
            return
        old = [point for ref in sorted(former) for point in self._before.points(ref)]
        for ref in sorted(gained):
            for new in self._after.points(ref):
                if new is not None and new.workload.access.closed:
                    yield from self._compared(request_class, ref, old, new)

    def _compared(
        self, request_class: RequestClass, ref: PortRef, old: list[AccessPoint | None], new: AccessPoint
    ) -> Iterator[Refused]:
        groups: dict[tuple[Conjunction, Request | None], list[str]] = {}
        sources = self._callers(request_class, old, new)
        for caller in sources:
            for match, example in self._refused(request_class, caller, old, new):
                groups.setdefault((match, example), []).append(caller)
        for (match, example), callers in groups.items():
            yield Refused(ref, new.workload, tuple(callers), others_than(callers, sources), match, example)

    def _callers(self, request_class: RequestClass, old: list[AccessPoint | None], new: AccessPoint) -> list[str]:
        if request_class.entry.kind == "Gateway":
            return [gateway_id(self._after.mesh.trust_domain)]
        callers = callers_of(*(point.workload for point in old if point), new.workload)
        home = request_class.entry.consumer
        return [caller for caller in callers if not home or _may_be_in(caller, home)]

    def _refused(
        self, request_class: RequestClass, caller: str, old: list[AccessPoint | None], new: AccessPoint
    ) -> Iterator[tuple[Conjunction, Request | None]]:
        """Yield the conditions of requests that a former backend allows a caller and the new one refuses, with an example."""
        solver = Solver(
            setting_of(new.workload, caller)._replace(authorities=request_class.authorities), work=self._work
        )
        refusing = [permission.match for permission in permissions(new, caller)]
        allowed = dict.fromkeys(
            permission for point in old for permission in (permissions(point, caller) if point else _OPEN)
        )
        for permission in allowed:
            match = tuple(dict.fromkeys((*request_class.match, *permission.match)))
            try:
                values = solver.solve(match, (*request_class.taken, *refusing))
            except Undecided:
                yield match, None
                continue
            if values is not None:
                yield match, request_of(values, solver.setting)


def _may_be_in(caller: str, namespace: str) -> bool:
    """Return whether a caller may be a client in a namespace: one with another ServiceAccount's identity is not."""
    identity = parse_id(caller)
    return identity is None or identity.namespace == namespace


def _edits_requests(treatment: Treatment) -> bool:
    every = (treatment.filters, *(receiver.filters for receiver in treatment.receivers))
    return any(filters.request or filters.rewrite for filters in every)


class _Side:
    """The pods of a mesh by Service port."""

    def __init__(self, mesh: Mesh) -> None:
        self.mesh = mesh
        self._workloads = {workload.name: workload for workload in mesh.workloads}
        self._ready = {entry.ref: entry.ready for entry in mesh.endpoints}

    def points(self, ref: PortRef) -> Iterator[AccessPoint | None]:
        """Yield the ports of the pods behind a Service port, one for equal access rules; None for pods that allow all."""
        by_rules: dict[object, AccessPoint | None] = {}
        for endpoint in self._ready.get(ref, ()):
            point = self._point(endpoint, ref)
            key = (point.workload.identity, point.port.port, point.workload.target_tls_mode) if point else None
            by_rules.setdefault(key, point)
        yield from by_rules.values()

    def _point(self, endpoint: Endpoint, ref: PortRef) -> AccessPoint | None:
        workload = self._workloads.get(endpoint.workload)
        return point_of(workload, port_of(workload, endpoint.port), ref) if workload else None
