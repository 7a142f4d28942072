"""What holds of a TrafficTarget, TLSConfig or Pod with mistakes: leaving it out as a whole would open what it closes.

A TrafficTarget whose destination can be read keeps its pods closed and allows nothing. A TLSConfig whose selector can be
read keeps its pods strict and gives them no names. If that can't be read, nobody can tell whom it is about: it is left out.
A pod keeps its sidecar, and none of its exceptions: without the sidecar, its callers would send plaintext.
"""

from collections.abc import Mapping

from headgate.errors import DecodeError
from headgate.resources.decode import read
from headgate.resources.meta import Metadata, Object, Resource, part
from headgate.resources.pods import APPLICATION_PORTS, SIDECAR, Pod
from headgate.resources.registry import find_written
from headgate.resources.smi import (
    Destination,
    TLSConfig,
    TLSConfigSpec,
    TrafficTarget,
    TrafficTargetSpec,
)
from headgate.resources.workloads import LabelSelector

ACCOUNT = "ServiceAccount"
KEPT = (SIDECAR, APPLICATION_PORTS)  # annotations that nobody writes by hand


def restrictive_part(obj: Object) -> Resource | None:
    """Return the part that holds of an object that can't be decoded; none for all other kinds."""
    kind = find_written(str(obj.get("apiVersion")), str(obj.get("kind")))
    namespace = part(obj, "metadata").get("namespace") or "default"
    metadata = Metadata(namespace=str(namespace), name=str(part(obj, "metadata").get("name")))
    if kind is None or kind.shape not in {TrafficTarget, TLSConfig, Pod}:
        return None
    if kind.shape is Pod:
        return _pod(obj)
    return _target(obj, metadata) if kind.shape is TrafficTarget else _config(obj, metadata)


def _target(obj: Object, metadata: Metadata) -> TrafficTarget | None:
    destination = part(obj.get("spec"), "destination") or part(obj, "destination")  # v1alpha1 has no spec
    name, namespace = destination.get("name"), destination.get("namespace") or metadata.namespace
    if not isinstance(name, str) or not name or namespace != metadata.namespace:
        return None
    spec = TrafficTargetSpec(destination=Destination(kind=ACCOUNT, name=name))
    return TrafficTarget(metadata=metadata, spec=spec)


def _config(obj: Object, metadata: Metadata) -> TLSConfig | None:
    selector = part(obj.get("spec"), "selector")
    labels = selector.get("matchLabels")
    if (
        len(selector) != 1
        or not isinstance(labels, Mapping)
        or not all(isinstance(item, str) for item in labels.values())
    ):
        return None
    return TLSConfig(metadata=metadata, spec=TLSConfigSpec(selector=LabelSelector(match_labels=dict(labels))))


def _pod(obj: Object) -> Pod | None:
    metadata = part(obj, "metadata")
    written = part(metadata, "annotations")
    kept = {name: text for name in KEPT if isinstance(text := written.get(name), str)}
    try:
        return read({**obj, "metadata": {**metadata, "annotations": kept}}, Pod)
    except DecodeError:
        return None
