"""The TrafficSplit that a Canary owns, and the root Service that it creates if there is none (D19, R32).

In a step with copies the split has an annotation. In a step with matches, a second split sends the requests that an
HTTPRouteGroup matches to the canary; it has precedence over the first (D8).

The split carries its weights in an annotation too. If they differ from those of its spec, a user has edited the spec.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from headgate.resources.core.service import Service
from headgate.resources.kind import Kind
from headgate.resources.mesh.canary.types import CANARY_WEIGHTS, Canary, CanarySpec, NoEndpointsPolicy, StepKind
from headgate.resources.meta import Object, annotations_of, controller_reference, generation_of
from headgate.resources.registry import ROUTE_GROUP, TRAFFIC_SPLIT
from headgate.resources.smi.split_fields import ALLOW_SELF_REFERENCE, MIRROR, NO_ENDPOINTS, STICKY
from headgate.rollout.state import Edit

MANAGER = "headgate-rollout"
MATCH_SUFFIX = "-match"
"""The suffix that names the group and the split in a step with matches."""
_ANNOTATIONS = (ALLOW_SELF_REFERENCE, MIRROR, NO_ENDPOINTS, STICKY)  # what a Canary sets, and removes again


def wanted_objects(
    obj: Object, canary: Canary, weights: Mapping[str, int], kind: StepKind = StepKind.SHARE
) -> tuple[Object, ...]:
    """Return the split of a Canary (`obj`, decoded as `canary`) with some weights, for a server-side apply.

    In a step with matches, return their group and a split for the group first.
    """
    analysis = canary.spec.analysis
    annotations = dict(_annotations(canary.spec))
    if analysis and kind is StepKind.MIRROR:
        annotations[MIRROR] = f"{analysis.canary}={analysis.mirror}"
    spec = _split_spec(canary, weights)
    split = _owned(obj, TRAFFIC_SPLIT, spec, annotations={**annotations, CANARY_WEIGHTS: _weights_text(weights)})
    if not analysis or kind is not StepKind.MATCH:
        return (split,)
    group = _owned(obj, ROUTE_GROUP, {"matches": obj["spec"]["analysis"]["matches"]}, suffix=MATCH_SUFFIX)
    # With its defaults, because `has` compares it with what the API server has stored.
    matches = [{"apiGroup": ROUTE_GROUP.group, "kind": ROUTE_GROUP.kind, "name": group["metadata"]["name"]}]
    matched = {**_split_spec(canary, {analysis.canary: 1}), "matches": matches}
    return group, _owned(obj, TRAFFIC_SPLIT, matched, suffix=MATCH_SUFFIX), split


def _annotations(spec: CanarySpec) -> Iterator[tuple[str, str]]:
    """Yield the annotations of the split for fields of the Canary that TrafficSplits do not have."""
    if spec.allow_self_reference:
        yield ALLOW_SELF_REFERENCE, "true"
    if spec.no_endpoints_policy is NoEndpointsPolicy.FAIL:
        yield NO_ENDPOINTS, "fail"
    if spec.stickiness:
        yield STICKY, spec.stickiness.annotation


def _split_spec(canary: Canary, weights: Mapping[str, int]) -> Object:
    backends = [{"service": service, "weight": weight} for service, weight in weights.items()]
    return {"service": canary.spec.service, "backends": backends}


def _owned(
    obj: Object, kind: Kind, spec: Object, *, suffix: str = "", annotations: Mapping[str, str] | None = None
) -> Object:
    """Return an object that a Canary owns, with the Canary's name and a suffix."""
    metadata: dict[str, Any] = {
        "name": f"{obj['metadata']['name']}{suffix}",
        "namespace": obj["metadata"]["namespace"],
        "ownerReferences": [_owner(obj)],
    }
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": kind.hub, "kind": kind.kind, "metadata": metadata, "spec": spec}


def has(stored: Object | None, expected: Object) -> bool:
    """Return whether a stored object has everything of the expected one."""
    if stored is None or stored["spec"] != expected["spec"]:
        return False
    return annotations_of(expected).items() <= annotations_of(stored).items()


def has_more(stored: Object, expected: Object) -> bool:
    """Return whether a stored object has an annotation of a Canary that the expected one lacks.

    Copies have ended, for example, or another writer has added it.
    """
    extra = annotations_of(stored).keys() - annotations_of(expected).keys()
    return not extra.isdisjoint(_ANNOTATIONS)


def is_owned(stored: Object, owner: Object) -> bool:
    """Return whether an object belongs to a Canary."""
    references = stored["metadata"].get("ownerReferences") or ()
    return any(reference["uid"] == owner["metadata"]["uid"] for reference in references)


def _weights_text(weights: Mapping[str, int]) -> str:
    """Return weights as the annotation has them: `website-v1=9,website-v2=1`, in the order of the names."""
    return ",".join(f"{service}={weight}" for service, weight in sorted(weights.items()))


def edit_of(split: Object) -> Edit | None:
    """Return the backends and matches that a user has written into an owned split; None if there are none."""
    spec = split["spec"]
    weights = {backend["service"]: backend["weight"] for backend in spec["backends"]}
    matches = tuple(match["name"] for match in spec.get("matches") or ())
    if annotations_of(split).get(CANARY_WEIGHTS) == _weights_text(weights) and not matches:
        return None
    return Edit(weights=weights, matches=matches)


def replaced(stored: Object, expected: Object) -> Object:
    """Return a stored object with the whole spec of the expected one, and without other annotations of a Canary than its own."""
    foreign = {name: text for name, text in annotations_of(stored).items() if name not in _ANNOTATIONS}
    metadata = {**stored["metadata"], "annotations": {**foreign, **annotations_of(expected)}}
    return {**stored, "metadata": metadata, "spec": expected["spec"]}


def is_applied(stored: Object | None, expected: Object) -> bool:
    """Return whether an object is stored as expected and, if it is a split, every proxy has it."""
    if stored is None or not has(stored, expected):
        return False
    return expected["kind"] != TRAFFIC_SPLIT.kind or _is_programmed(stored)


def _is_programmed(split: Object) -> bool:
    """Return whether every proxy that needs the split has acknowledged its current generation."""
    generation = generation_of(split)
    conditions = (split.get("status") or {}).get("conditions") or ()
    return any(
        condition["type"] == "Programmed"
        and condition["status"] == "True"
        and condition.get("observedGeneration") == generation
        for condition in conditions
    )


def root_service(obj: Object, name: str, backend: Service) -> Object:
    """Return the root Service `name` of a Canary, with the ports of a backend and without pods of its own (R32).

    The split decides about each request, so the Service needs no selector.
    """
    metadata = obj["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "ownerReferences": [_owner(obj)],
        },
        "spec": {
            "ports": [_port(port.name, port.port, port.protocol, port.app_protocol) for port in backend.spec.ports]
        },
    }


def _owner(canary: Object) -> Mapping[str, object]:
    """Return the ownerReference of a Canary. To block its deletion would need another permission on some clusters."""
    return {**controller_reference(canary), "blockOwnerDeletion": False}


def _port(name: str, number: int, protocol: str, app_protocol: str) -> Mapping[str, Any]:
    port: dict[str, Any] = {"port": number, "protocol": protocol}
    if name:
        port["name"] = name
    if app_protocol:
        port["appProtocol"] = app_protocol
    return port
