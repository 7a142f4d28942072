"""A small mesh for tests of the metrics API: objects in a store, and a fake source of traffic counts."""

from collections.abc import Mapping
from typing import Any

from tests.decoding import admit
from tests.make.objects import (
    Object,
    container,
    deployment,
    headgate_keys,
    obj,
    owner_reference,
    pod,
    pod_template,
    service,
    split,
)

from headgate.errors import NoCounts, TelemetryError
from headgate.standalone.store.memory import MemoryStore
from headgate.telemetry.counters.counts import Counts, class_index
from headgate.telemetry.counters.flows import Flow, Peer, Reading
from headgate.telemetry.counters.histogram import bucket_of, gathered

END = 1_900_000_000.0  # 2030-03-17T17:46:40Z
DAY_S = 24 * 3600
SHOP, WEB1, WEB2 = (Peer(pod=f"default/{name}") for name in ("shop-5d-b2b2b", "web-5d-c4c4c", "web-5d-d5d5d"))
GATEWAY = Peer(outside="gateway")


class FakeSource:
    """A source of the given flows; `windows` records the requested windows in seconds, and `ends` their ends."""

    def __init__(self, flows: Mapping[Flow, Counts] | None = None, *, cut: tuple[str, ...] = ()) -> None:
        self.flows = flows or {}
        self.cut = cut
        self.windows: list[float] = []
        self.ends: list[float | None] = []
        self.fails = ""

    async def read(self, seconds: float, end: float | None = None) -> Reading:
        self.windows.append(seconds)
        self.ends.append(end)
        if self.fails:
            raise TelemetryError(self.fails)
        if end is not None and end < END - DAY_S:
            raise NoCounts("the stored windows begin later")
        return Reading(end=min(end or END, END), window=seconds, flows=self.flows, cut=self.cut)


def requests(success: int, failure: int = 0, *, ms: float = 10.5) -> Counts:
    latency = gathered({bucket_of(ms * 1000): success + failure})
    return Counts.of({class_index(200): success, class_index(500): failure}, latency)


def flow(
    source: Peer, destination: Peer, service: str = "default/web", backend: str = "", *, copy: bool = False
) -> Flow:
    return Flow(source=source, destination=destination, service=service, port=80, backend=backend or service, copy=copy)


FLOWS = {
    flow(SHOP, WEB1, backend="default/web-v1"): requests(90, 10),
    flow(SHOP, WEB2, backend="default/web-v2"): requests(9, ms=250),
    flow(GATEWAY, WEB1): requests(5),
    flow(SHOP, WEB2, backend="default/copies", copy=True): requests(0, 3, ms=98),
}


async def stored(store: MemoryStore | None = None) -> MemoryStore:
    """Return a store with two Deployments and their pods, three Services and a split."""
    store = store or MemoryStore(admit=admit)
    main = container("main", image="main")
    for name in ("shop", "web"):
        labels = {"app": name}
        owner = _controlled_by(await store.create(deployment(name, main)))
        content = {"selector": {"matchLabels": labels}, "template": pod_template(main, labels=labels)}
        replicas = await store.create(obj("ReplicaSet", f"{name}-5d", metadata=owner, spec=content))
        for peer in (SHOP, WEB1, WEB2):
            if peer.pod.startswith(f"default/{name}-"):
                metadata = {"labels": labels, **_controlled_by(replicas)}
                pod_name = peer.pod.removeprefix("default/")
                await store.create(pod(pod_name, containers=[main], nodeName="node-1", metadata=metadata))
    for name in ("web", "web-v1", "web-v2"):
        await store.create(service(name, {"port": 80}, selector={"app": "web"}))
    await store.create(split("web", {"web-v1": 90, "web-v2": 10}, name="canary"))
    return store


async def add_idle_pod(store: MemoryStore, name: str) -> None:
    """Create a pod with the label `app: idle`, a sidecar and no requests."""
    await store.create(pod(name, labels={"app": "idle"}, annotations=headgate_keys(sidecar_mode="transparent")))


def _controlled_by(owner: Any) -> Object:
    return {"ownerReferences": [owner_reference(owner, controller=True)]}
