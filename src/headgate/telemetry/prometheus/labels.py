"""The labels of flows in `/metrics`: which workload, or which pod, is at each end."""

from collections import OrderedDict

from headgate.resources.pod_owners import POD, Find, Ref, workload
from headgate.telemetry.counters.flows import GATEWAY, Flow, Peer
from headgate.telemetry.prometheus.totals import End, FlowKey
from headgate.telemetry.reports.series import ELSEWHERE

OUTSIDE = "outside"
_GATEWAYS = "headgate-system"  # as the gateway's identity has it
_REMEMBERED = 20_000  # pods


class FlowLabels:
    """Describes flows by the objects of now (`totals.Describe`); a pod that is gone keeps its workload."""

    def __init__(self, find: Find, *, by_pod: bool = False) -> None:
        self._find = find
        self._by_pod = by_pod
        self._workloads: OrderedDict[str, str] = OrderedDict()

    def __call__(self, flow: Flow) -> FlowKey:
        """Describe a flow."""
        return FlowKey(
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
        if pod in self._workloads:
            self._workloads.move_to_end(pod)
            return self._workloads[pod]
        found = self._workloads[pod] = workload(Ref(POD, *pod.split("/", 1)), self._find)
        if len(self._workloads) > _REMEMBERED:
            self._workloads.popitem(last=False)
        return found
