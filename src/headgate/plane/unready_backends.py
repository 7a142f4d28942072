"""Says why pods behind an explained request are not ready: those of backends that have no ready endpoint."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from headgate.compiler.snapshot import Snapshot
from headgate.errors import StoreError
from headgate.plane.workload_readiness import PodReports, workload_counts
from headgate.resources.core.service import Service
from headgate.resources.explanations import ExplanationStatus
from headgate.resources.meta import Object, service_name
from headgate.resources.registry import SERVICE
from headgate.resources.smi.traffic_split import TrafficSplit


class PodSource(Protocol):
    """The pods of the environment, and the Events about them."""

    async def pods(self, namespace: str) -> Sequence[Object]:
        """Return the pods of a namespace. Raises Unavailable."""

    async def probe_events(self) -> Sequence[Object]:
        """Return the Events about failed probes of pods."""


async def unready_messages(
    source: PodSource, snapshot: Snapshot, explained: ExplanationStatus, *, domain: str, now: float
) -> tuple[str, ...]:
    """Return a line for each workload with pods that are not ready, in the words of the mesh's status.

    `domain` is that of the cluster, `now` is in seconds since the epoch. Without a permission to list pods there are no lines.
    """
    selected: list[Object] = []
    try:
        for name in dict.fromkeys(_services(snapshot, explained, domain)):
            service = snapshot.objects.get(SERVICE.key(*name.split("/")))
            if isinstance(service, Service) and service.spec.selected:
                labels = service.spec.selected.items()
                pods = await source.pods(service.metadata.namespace)
                selected += [pod for pod in pods if labels <= (pod["metadata"].get("labels") or {}).items()]
    except StoreError:
        return ()
    if not selected:
        return ()
    unique = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in selected}
    reports = PodReports(events=await source.probe_events())
    unready = workload_counts(unique.values(), (), now=now, reports=reports).unready
    return tuple(f"{row.object}: {row.text()}" for row in unready)


def _services(snapshot: Snapshot, explained: ExplanationStatus, domain: str) -> Iterator[str]:
    """Yield the Services without a ready endpoint that should get requests. A split leaves such backends out, so all its backends with a weight count."""
    split = snapshot.objects.get(explained.route.object) if explained.route and explained.route.object else None
    served = {backend.service for backend in explained.backends if backend.ready_endpoints}
    if isinstance(split, TrafficSplit):
        weighted = (backend.service for backend in split.spec.backends if backend.weight)
        names = (service_name(written, split.metadata.namespace, domain) for written in weighted)
        yield from (name for name in names if name and name not in served)
    for backend in explained.backends:
        if backend.service and not backend.ready_endpoints and backend.share.numerator:
            yield backend.service
