"""Reads the objects that traffic metrics refer to, and caches them as object graphs (R82, R89)."""

from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any, NamedTuple

from headgate.compiler.services import EXTERNAL_NAME
from headgate.compiler.snapshot import (
    GATEWAY_SLICES,
    SELECTING_MANAGERS,
    SERVICE_NAME_LABEL,
    SLICE_MANAGER_LABEL,
    Snapshot,
)
from headgate.kinds import names_of
from headgate.latest import Latest
from headgate.model.identities import gateway_id, spiffe_id
from headgate.objects.ports import Lister
from headgate.resources.core.pod import ENDED
from headgate.resources.core.pod_metadata import SIDECAR, SIDECARS
from headgate.resources.meta import Object, labels_of, service_name
from headgate.resources.pod_owners import POD, TEMPLATE_HASH, FindObject, Ownership, Ref, controller, ownership_of
from headgate.resources.registry import ENDPOINT_SLICE
from headgate.resources.registry import POD as POD_KIND
from headgate.settings import Settings
from headgate.telemetry.answers.object_graph import (
    CLUSTER_SCOPED,
    SERVICE,
    SPLIT,
    Backend,
    ObjectGraph,
    ObjectInfo,
)

SLICE = ENDPOINT_SLICE.kind
_INTERMEDIATE: Mapping[str, tuple[str, ...]] = {"Deployment": ("ReplicaSet",), "CronJob": ("Job",), SERVICE: (SLICE,)}
"""Maps a kind to those between it and pods: a Deployment owns pods through ReplicaSets."""


class ObjectGraphs:
    """Builds object graphs for traffic metrics, and caches the fields of unchanged objects."""

    def __init__(self, objects: Lister, settings: Settings) -> None:
        self._objects = objects
        self._settings = settings
        self._cached: dict[str, _Cached] = {}
        self._graphs: dict[tuple[str, ...], tuple[Sequence[ObjectInfo], ObjectGraph]] = {}

    async def graph(self, kind: str) -> ObjectGraph:
        """Return a graph of all pods, all objects of a kind, and what leads from pods to them. Raises StoreError.

        Owners in between lead to indirect owners; EndpointSlices lead to Services without a selector.

        Repeated calls return the same graph until one of these objects changes.
        """
        return await self.graph_of(tuple(dict.fromkeys((POD, *_INTERMEDIATE.get(kind, ()), kind))))

    async def graph_of(self, kinds: tuple[str, ...]) -> ObjectGraph:
        """Return a graph of all objects of these kinds; the same until one of them changes. Raises StoreError."""
        infos = [info for kind in kinds for info in await self._all(kind)]
        before = self._graphs.get(kinds)
        if before is None or len(before[0]) != len(infos) or not all(map(is_, before[0], infos)):
            before = self._graphs[kinds] = infos, ObjectGraph(infos, gateway=gateway_id(self._settings.trust_domain))
        return before[1]

    async def _all(self, kind: str) -> Sequence[ObjectInfo]:
        objects = tuple((await self._objects.list(names_of(kind).group, kind)).items)
        before = self._cached.get(kind)
        if before is None or len(before.objects) != len(objects) or not all(map(is_, before.objects, objects)):
            cached = {id(obj): info for obj, info in zip(before.objects, before.infos, strict=True)} if before else {}
            infos = [cached.get(id(obj)) or object_info(_ref(kind, obj), obj, self._settings) for obj in objects]
            before = self._cached[kind] = _Cached(objects, infos)
        return before.infos


def pods_in(snapshots: Latest[Snapshot | None]) -> FindObject:
    """Return a function that finds the owners of a pod in the newest snapshot.

    For other kinds, the function returns None.
    """

    def find(ref: Ref) -> Ownership | None:
        snapshot = snapshots.get()
        pod = snapshot.objects.get(POD_KIND.key(ref.namespace, ref.name)) if snapshot and ref.kind == POD else None
        return ownership_of(pod.metadata) if pod else None

    return find


class _Cached(NamedTuple):
    """The objects of a kind, each with its `ObjectInfo`. While an object is cached, no other object has its `id()`."""

    objects: Sequence[Object]
    infos: Sequence[ObjectInfo]


def _ref(kind: str, obj: Object) -> Ref:
    metadata = obj["metadata"]
    return Ref(kind, "" if kind in CLUSTER_SCOPED else metadata["namespace"], metadata["name"])


def object_info(ref: Ref, obj: Object, settings: Settings) -> ObjectInfo:
    """Extract the fields of an object that traffic metrics need."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    labels = metadata.get("labels") or {}
    if ref.kind == SPLIT:
        return _split(ref, labels, spec, settings.domain)
    if ref.kind == POD:
        return _pod(ref, obj, settings)
    if ref.kind == SERVICE:
        selector = spec.get("selector") if spec.get("type") != EXTERNAL_NAME else None
        return ObjectInfo(ref=ref, labels=labels, selector=selector or {}, targets=_targets(spec))
    if ref.kind == SLICE:
        return _slice(ref, obj)
    return ObjectInfo(ref=ref, labels=labels, owner=controller(obj))


def _pod(ref: Ref, obj: Object, settings: Settings) -> ObjectInfo:
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    ports = (port for container in spec.get("containers") or () for port in container.get("ports") or ())
    meshed = (metadata.get("annotations") or {}).get(SIDECAR) in SIDECARS
    account = spec.get("serviceAccountName") or "default"
    labels = metadata.get("labels") or {}
    return ObjectInfo(
        ref=ref,
        labels=labels,
        owner=controller(obj),
        address="" if spec.get("hostNetwork") else (obj.get("status") or {}).get("podIP") or "",
        template_hash=labels.get(TEMPLATE_HASH, ""),
        node=spec.get("nodeName") or "",
        ports={port["name"]: port["containerPort"] for port in ports if port.get("name")},
        identity=spiffe_id(settings.trust_domain, ref.namespace, account) if meshed else "",
        ended=(obj.get("status") or {}).get("phase") in ENDED,
    )


def _slice(ref: Ref, obj: Object) -> ObjectInfo:
    """Extract the endpoints of a hand-written slice. Those of other slices follow from selectors, or are gateways."""
    labels = labels_of(obj)
    service = labels.get(SERVICE_NAME_LABEL)
    if not service or labels.get(SLICE_MANAGER_LABEL) in (*SELECTING_MANAGERS, GATEWAY_SLICES):
        return ObjectInfo(ref=ref)
    ports = [port["port"] for port in obj.get("ports") or () if port.get("port")]
    places = [
        _pod_named(endpoint, ref.namespace) or endpoint["addresses"][0] for endpoint in obj.get("endpoints") or ()
    ]
    return ObjectInfo(
        ref=ref,
        lists_for=Ref(SERVICE, ref.namespace, service),
        endpoints=frozenset((place, port) for place in places for port in ports),
    )


def _pod_named(endpoint: Mapping[str, Any], namespace: str) -> str:
    target = endpoint.get("targetRef") or {}
    named = target.get("kind") == POD and target.get("name")
    return f"{target.get('namespace') or namespace}/{named}" if named else ""


def _targets(spec: Mapping[str, Any]) -> frozenset[int | str]:
    """Return the target ports of a Service, as names or numbers; the default is the Service's own port."""
    ports = (port for port in spec.get("ports") or () if port.get("protocol", "TCP") == "TCP")
    return frozenset(port.get("targetPort") or port["port"] for port in ports)


def _split(ref: Ref, labels: Mapping[str, str], spec: Mapping[str, Any], domain: str) -> ObjectInfo:
    def resolved(name: str) -> str:
        return service_name(name, ref.namespace, domain)

    return ObjectInfo(
        ref=ref,
        labels=labels,
        apex=(resolved(spec["service"]), spec["service"]),
        backends=tuple(
            Backend(name=backend["service"], service=resolved(backend["service"]), weight=backend["weight"])
            for backend in spec["backends"]
        ),
    )
