"""The TrafficSplit that a Canary owns, and the root Service that it creates if there is none (D19, R32).

The split carries its weights in an annotation too. If they differ from those of its spec, a user has edited the spec.
"""

import json
from collections.abc import Mapping
from typing import Any

from headgate.resources.canaries import CANARY_WEIGHTS, Canary
from headgate.resources.core import Service
from headgate.resources.meta import Object, controller_reference
from headgate.resources.registry import TRAFFIC_SPLIT
from headgate.resources.smi import ALLOW_SELF_REFERENCE, NO_ENDPOINTS, STICKY

MANAGER = "headgate-rollout"
_COPIED = (ALLOW_SELF_REFERENCE, NO_ENDPOINTS, STICKY)  # annotations of a Canary that its split gets too


def wanted_split(obj: Object, canary: Canary, weights: Mapping[str, int]) -> Object:
    """Return the split of a Canary (`obj`, decoded as `canary`) with some weights, for a server-side apply."""
    metadata = obj["metadata"]
    written = metadata.get("annotations") or {}
    annotations = {name: written[name] for name in _COPIED if name in written}
    return {
        "apiVersion": TRAFFIC_SPLIT.hub,
        "kind": TRAFFIC_SPLIT.kind,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "annotations": {**annotations, CANARY_WEIGHTS: json.dumps(weights)},
            "ownerReferences": [_owner(obj)],
        },
        "spec": {
            "service": canary.spec.service,
            "backends": [{"service": service, "weight": weight} for service, weight in weights.items()],
        },
    }


def has(split: Object | None, wanted: Object) -> bool:
    """Return whether a stored split has everything of the wanted one."""
    if split is None or split["spec"] != wanted["spec"]:
        return False
    annotations = split["metadata"].get("annotations") or {}
    return bool(wanted["metadata"]["annotations"].items() <= annotations.items())


def is_owned(split: Object, owner: Object) -> bool:
    """Return whether a split belongs to a Canary."""
    references = split["metadata"].get("ownerReferences") or ()
    return any(reference["uid"] == owner["metadata"]["uid"] for reference in references)


def edit_of(split: Object) -> str:
    """Return the backends and matches that a user has written into an owned split, as JSON; empty if there are none."""
    annotations = split["metadata"].get("annotations") or {}
    spec = split["spec"]
    try:
        written = json.loads(annotations.get(CANARY_WEIGHTS, ""))
    except ValueError:
        written = None
    if written == {backend["service"]: backend["weight"] for backend in spec["backends"]} and not spec.get("matches"):
        return ""
    return json.dumps([spec["backends"], spec.get("matches") or []], sort_keys=True)


def is_in_force(split: Object) -> bool:
    """Return whether every proxy that needs the split has acknowledged its current generation."""
    generation = split["metadata"].get("generation", 0)
    conditions = (split.get("status") or {}).get("conditions") or ()
    return any(
        item["type"] == "Programmed" and item["status"] == "True" and item.get("observedGeneration") == generation
        for item in conditions
    )


def root_service(obj: Object, canary: Canary, backend: Service) -> Object:
    """Return the root Service of a Canary, with the ports of a backend and without pods of its own (R32).

    The split decides about each request, so the Service needs no selector.
    """
    metadata = obj["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": canary.spec.service,
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
    found: dict[str, Any] = {"port": number, "protocol": protocol}
    if name:
        found["name"] = name
    if app_protocol:
        found["appProtocol"] = app_protocol
    return found
