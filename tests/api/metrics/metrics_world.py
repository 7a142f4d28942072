"""A small mesh for tests of the metrics API: objects in a store, and a fake source of traffic counts."""

from collections.abc import Mapping
from typing import Any

from tests.decoding import admit

from headgate.errors import TelemetryError
from headgate.standalone.store.memory import MemoryStore
from headgate.telemetry.counters.counts import Counts, class_index
from headgate.telemetry.counters.flows import Flow, Peer, Reading
from headgate.telemetry.counters.histogram import bucket_of, gathered

END = 1_900_000_000.0  # 2030-03-17T17:46:40Z
SHOP, WEB1, WEB2 = (Peer(pod=f"default/{name}") for name in ("shop-5d-b2b2b", "web-5d-c4c4c", "web-5d-d5d5d"))
GATEWAY = Peer(outside="gateway")


class FakeSource:
    """A source of the given flows; `windows` records the requested windows in seconds."""

    def __init__(self, flows: Mapping[Flow, Counts] | None = None, *, cut: tuple[str, ...] = ()) -> None:
        self.flows = flows or {}
        self.cut = cut
        self.windows: list[float] = []
        self.fails = ""

    async def read(self, seconds: float) -> Reading:
        self.windows.append(seconds)
        if self.fails:
            raise TelemetryError(self.fails)
        return Reading(end=END, window=seconds, flows=self.flows, cut=self.cut)


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
    flow(SHOP, WEB2, backend="default/copies", copy=True): requests(0, 3),
}


async def stored(store: MemoryStore | None = None) -> MemoryStore:
    """Return a store with two Deployments and their pods, three Services and a split."""
    store = store or MemoryStore(admit=admit)
    for name in ("shop", "web"):
        deployment = await store.create(_object("apps/v1", "Deployment", name, {}, spec=_template(name)))
        owner = _owner(deployment)
        made = _object("apps/v1", "ReplicaSet", f"{name}-5d", {}, owner, spec=_template(name))
        replicas = await store.create(made)
        for peer in (SHOP, WEB1, WEB2):
            if peer.pod.startswith(f"default/{name}-"):
                spec = {"nodeName": "node-1", "containers": [{"name": "main", "image": "main"}]}
                pod = peer.pod.removeprefix("default/")
                await store.create(_object("v1", "Pod", pod, {"app": name}, _owner(replicas), spec=spec))
    for name in ("web", "web-v1", "web-v2"):
        await store.create(
            _object("v1", "Service", name, {}, spec={"selector": {"app": "web"}, "ports": [{"port": 80}]})
        )
    backends = [{"service": "web-v1", "weight": 90}, {"service": "web-v2", "weight": 10}]
    split = {"service": "web", "backends": backends}
    await store.create(_object("split.smi-spec.io/v1alpha4", "TrafficSplit", "canary", {}, spec=split))
    return store


async def add_idle_pod(store: MemoryStore, name: str) -> None:
    """Create a pod with the label `app: idle`, a sidecar and no requests."""
    pod = _object("v1", "Pod", name, {"app": "idle"}, spec={"containers": [{"name": "main", "image": "main"}]})
    pod["metadata"]["annotations"] = {"headgate.dev/sidecar": "transparent"}
    await store.create(pod)


def _object(api: str, kind: str, name: str, labels: Mapping[str, str], *owners: Any, spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "labels": dict(labels), "ownerReferences": list(owners)}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


def _owner(obj: Any) -> dict[str, Any]:
    metadata = obj["metadata"]
    fields = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": metadata["name"], "uid": metadata["uid"]}
    return {**fields, "controller": True}


def _template(name: str) -> dict[str, Any]:
    pod = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "main"}]}}
    return {"selector": {"matchLabels": {"app": name}}, "template": pod}
