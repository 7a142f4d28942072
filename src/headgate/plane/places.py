"""What pods belong to: the labels of exposed metrics."""

import re
from collections import OrderedDict
from collections.abc import Callable

from headgate.resources.meta import Key, Object
from headgate.telemetry.flows import GATEWAY, Flow, Peer
from headgate.telemetry.series import ELSEWHERE
from headgate.telemetry.totals import End, Passage

Peek = Callable[[Key], Object | None]
UNKNOWN = "unknown"
OUTSIDE = "outside"
_GATEWAYS = "headgate-system"  # as the gateway's identity has it
_GROUPS = {"ReplicaSet": "apps", "Job": "batch"}  # owners that may have an owner
_MADE_BY_REPLICA_SET = re.compile(r"(?P<workload>.+)-[a-z0-9]{5,10}-[a-z0-9]{5}")
_REMEMBERED = 20_000  # pods


class Places:
    """Tells what a flow counts as (`totals.Describe`), by the objects of now."""

    def __init__(self, peek: Peek, *, by_pod: bool = False) -> None:
        self._peek = peek
        self._by_pod = by_pod
        self._workloads: OrderedDict[str, str] = OrderedDict()

    def __call__(self, flow: Flow) -> Passage:
        """Describe a flow."""
        return Passage(
            source=self._end(flow.source),
            destination=self._end(flow.destination),
            service=flow.service,
            port=flow.port,
            backend=flow.backend,
            target=flow.target if self._by_pod else 0,
            copy=flow.copy,
            secured=flow.secured,
        )

    def _end(self, peer: Peer) -> End:
        outside = peer.outside if self._by_pod else ""
        if peer.pod:
            namespace, _, name = peer.pod.partition("/")
            return End(namespace=namespace, workload=self._workload(peer.pod), pod=name if self._by_pod else "")
        if peer == GATEWAY:
            return End(namespace=_GATEWAYS, workload=peer.outside, outside=outside)
        if peer == ELSEWHERE:
            return End(workload=peer.outside, outside=outside)
        return End(workload=OUTSIDE if peer.outside else "", outside=outside)

    def _workload(self, pod: str) -> str:
        """Return what a pod belongs to; one that is gone is still known, or told by its name."""
        if pod in self._workloads:
            self._workloads.move_to_end(pod)
            return self._workloads[pod]
        found = self._workloads[pod] = self._find_workload(*pod.split("/", 1))
        if len(self._workloads) > _REMEMBERED:
            self._workloads.popitem(last=False)
        return found

    def _find_workload(self, namespace: str, pod: str) -> str:
        known = self._peek(Key("", "Pod", namespace, pod))
        if known is None:
            made = _MADE_BY_REPLICA_SET.fullmatch(pod)
            return made["workload"] if made else pod
        owner = _owner(known)
        if owner is None:
            return pod
        kind, name = owner
        above = self._peek(Key(_GROUPS[kind], kind, namespace, name)) if kind in _GROUPS else None
        further = _owner(above) if above else None
        return further[1] if further else name


def _owner(obj: Object) -> tuple[str, str] | None:
    """Return kind and name of an object's controller."""
    references = obj["metadata"].get("ownerReferences") or ()
    return next(((one["kind"], one["name"]) for one in references if one.get("controller")), None)
