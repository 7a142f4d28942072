"""Says why pods behind an explained request are not ready: those of backends that have no ready endpoint."""

from collections.abc import Iterable, Iterator

from headgate.compiler.snapshot import Snapshot
from headgate.errors import StoreError
from headgate.objects.ports import Reader
from headgate.plane.workload_readiness import PodReports, workload_counts
from headgate.resources.core.service import Service
from headgate.resources.explanations import ExplanationStatus
from headgate.resources.meta import Object
from headgate.resources.registry import POD, SERVICE
from headgate.resources.smi.traffic_split import TrafficSplit


async def unready_messages(
    store: Reader, snapshot: Snapshot, explained: ExplanationStatus, events: Iterable[Object], now: float
) -> tuple[str, ...]:
    """Return a line for each workload with pods that are not ready, in the words of the mesh's status.

    `events` are about failed probes, `now` is in seconds since the epoch. Without a permission to list pods there are no lines.
    """
    lines: dict[str, None] = {}
    for name in dict.fromkeys(_services(snapshot, explained)):
        service = snapshot.objects.get(SERVICE.key(*name.split("/")))
        if not isinstance(service, Service) or not service.spec.selected:
            continue
        try:
            pods = (await store.list(POD.group, POD.kind, service.metadata.namespace)).items
        except StoreError:
            return ()
        labels = service.spec.selected.items()
        selected = [pod for pod in pods if labels <= (pod["metadata"].get("labels") or {}).items()]
        unready = workload_counts(selected, (), now=now, reports=PodReports(events=events)).unready
        lines |= dict.fromkeys(f"{row.object}: {row.text()}" for row in unready)
    return tuple(lines)


def _services(snapshot: Snapshot, explained: ExplanationStatus) -> Iterator[str]:
    """Yield the Services without a ready endpoint. A split leaves such backends out, so all backends of the split count."""
    split = snapshot.objects.get(explained.route.object) if explained.route and explained.route.object else None
    served = {backend.service for backend in explained.backends if backend.ready_endpoints}
    if isinstance(split, TrafficSplit):
        named = (f"{split.metadata.namespace}/{backend.service}" for backend in split.spec.backends)
        yield from (name for name in named if name not in served)
    yield from (backend.service for backend in explained.backends if backend.service and not backend.ready_endpoints)
