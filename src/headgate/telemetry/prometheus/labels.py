"""The labels of flows in `/metrics`: the workload or pod at each end."""

from functools import lru_cache

from headgate.resources.pod_owners import POD, FindObject, Ref, workload
from headgate.telemetry.counters.flows import GATEWAY, Flow, Peer
from headgate.telemetry.prometheus.totals import Labels
from headgate.telemetry.reports.series import ELSEWHERE

OUTSIDE = "outside"
_GATEWAYS = "headgate-system"  # The namespace in the gateway's identity.
_CACHE_SIZE = 20_000  # The limit of entries in each of two caches, for pods and for flows.


class FlowLabels:
    """Finds the labels of flows in the current objects; a callable of type `totals.Describe`.

    The workload of a deleted pod is cached.
    """

    def __init__(self, find: FindObject, *, by_pod: bool = False) -> None:
        self._by_pod = by_pod
        self._workload = lru_cache(_CACHE_SIZE)(lambda pod: workload(Ref(POD, *pod.split("/", 1)), find))

    def __call__(self, flow: Flow) -> Labels:
        """Return the labels of a flow."""
        ends = flow.source, flow.destination
        return _labels(flow, *(self._workload(end.pod) if end.pod else "" for end in ends), by_pod=self._by_pod)


@lru_cache(_CACHE_SIZE)
def _labels(flow: Flow, source: str, destination: str, *, by_pod: bool) -> Labels:
    """Return the labels of a flow between two workloads. Leave out empty labels, which Prometheus treats as missing."""
    labels = (
        *_end("source", flow.source, source, by_pod=by_pod),
        *_end("destination", flow.destination, destination, by_pod=by_pod),
        *_service("destination_service", flow.service),
        ("destination_port", str(flow.port or "")),
        *_service("backend", flow.backend),
        ("destination_pod_port", str(flow.target or "") if by_pod else ""),
        ("connection_security_policy", "mutual_tls" if flow.secured else "none"),
    )
    return tuple((name, value) for name, value in labels if value)


def _end(side: str, peer: Peer, workload: str, *, by_pod: bool) -> Labels:
    namespace, _, pod = peer.pod.partition("/")
    if peer == GATEWAY:
        namespace, workload = _GATEWAYS, peer.outside
    elif peer.outside:
        workload = peer.outside if peer == ELSEWHERE else OUTSIDE
    return (
        (f"{side}_workload", workload),
        (f"{side}_workload_namespace", namespace),
        (f"{side}_pod", pod if by_pod else ""),
        (f"{side}_outside", peer.outside if by_pod else ""),
    )


def _service(what: str, service: str) -> Labels:
    namespace, _, name = service.partition("/")
    return (f"{what}_name", name), (f"{what}_namespace", namespace)
