"""Finds which workload calls which in a flow, and what the access rules of the called workload say about it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b

import msgspec

from headgate.compiler.report import Compiled
from headgate.latest import Latest
from headgate.model.access import Access
from headgate.model.authorization import authorize, enforced
from headgate.model.identities import gateway_id, parse_id
from headgate.model.routing import Mesh, Protocol, Workload
from headgate.telemetry.access_records import Call, CallKey
from headgate.telemetry.counters.flows import GATEWAY, Flow, Peer

_ENDED_PODS = 10_000  # ended pods whose workloads are known, because their last reports arrive after their end
_DIGEST_BYTES = 8
_MOST_FLOWS = 100_000  # flows in the cache of `CallFinder`


def rules_digest(access: Access) -> str:
    """Return a text that identifies the rules of an audited workload; empty if it is not audited."""
    return _digest(access) if access.audited else ""


def audited_rules(workloads: Iterable[Workload]) -> Mapping[str, str]:
    """Return a text for each identity with audited workloads: it identifies their rules, which may differ between pods."""
    rules: dict[str, set[str]] = defaultdict(set)
    for workload in workloads:
        if workload.access.audited:
            rules[workload.identity].add(rules_digest(workload.access))
    return {identity: "+".join(sorted(digests)) for identity, digests in rules.items()}


@lru_cache(10_000)
def _digest(access: Access) -> str:
    return blake2b(msgspec.json.encode(access.grants), digest_size=_DIGEST_BYTES).hexdigest()


class CallFinder:
    """Finds the calls of flows in the current mesh, as a `telemetry.access_records.FindCall`."""

    def __init__(self, compiled: Latest[Compiled | None]) -> None:
        self._compiled = compiled
        self._mesh: Mesh | None = None
        self._workloads: dict[str, Workload] = {}
        self._audits: Mapping[str, str] = {}
        self._found: dict[tuple[Flow, bool], Call | None] = {}

    def __call__(self, flow: Flow, has_connections: bool) -> Call | None:  # noqa: FBT001 - a callback
        """Return the calls of a flow; None if its destination has no sidecar."""
        self._follow_mesh()
        key = flow, has_connections
        if key not in self._found:
            if len(self._found) >= _MOST_FLOWS:
                self._found.clear()
            self._found[key] = self._call(*key)
        return self._found[key]

    def _call(self, flow: Flow, has_connections: bool) -> Call | None:  # noqa: FBT001 - as `__call__`
        called = self._workloads.get(flow.destination.pod)
        if called is None:
            return None
        identity = self._identity(flow.source)
        key = CallKey(
            caller=identity or flow.source.pod or flow.source.outside,
            destination=called.identity,
            port=flow.target,
            protocol="HTTP",
        )
        audit = self._audits.get(called.identity, "")
        if not has_connections:
            return Call(key=key, audit=audit)
        proven = identity if flow.secured else ""
        return Call(
            key=key,
            audit=audit,
            opens=_allows(called, called.access, flow.target, proven),
            rules_allow_connections=_allows(called, enforced(called.access), flow.target, proven),
        )

    def _identity(self, source: Peer) -> str:
        """Return the SPIFFE ID of a caller; empty for a caller without a sidecar."""
        if source == GATEWAY:
            return gateway_id(self._mesh.trust_domain) if self._mesh else ""
        if source.pod:
            workload = self._workloads.get(source.pod)
            return workload.identity if workload else ""
        return source.outside if parse_id(source.outside) else ""

    def _follow_mesh(self) -> None:
        compiled = self._compiled.get()
        if compiled is None or compiled.mesh is self._mesh:
            return
        before, self._mesh = self._mesh, compiled.mesh
        if before and before.workloads is compiled.mesh.workloads:  # as after most builds: only endpoints changed
            return
        self._found = {}
        self._audits = audited_rules(compiled.mesh.workloads)
        now = {workload.name: workload for workload in compiled.mesh.workloads}
        ended = [(name, workload) for name, workload in self._workloads.items() if name not in now]
        self._workloads = {**dict(ended[-_ENDED_PODS:]), **now}


def _allows(called: Workload, access: Access, port: int, identity: str) -> bool:
    """Return whether a workload with this access accepts a connection on a port that is not HTTP."""
    workload = msgspec.structs.replace(called, access=access)
    return authorize(workload, port, protocol=Protocol.TCP, identity=identity).allowed
