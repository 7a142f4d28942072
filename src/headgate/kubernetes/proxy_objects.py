"""The objects that run the proxies of a Gateway or of a Service on a cluster."""

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from headgate.kubernetes.names import NAME, NAMESPACE
from headgate.resources.gateway_api.proxies import OWN_KEYS
from headgate.resources.meta import Object, annotations_of, labels_of
from headgate.resources.registry import DISRUPTION_BUDGET

DIGEST = "headgate.dev/written-digest"
"""The annotation with the digest of what was applied: an object with the current digest is not applied again."""
_NAME, _INSTANCE, _MANAGED_BY, _ = OWN_KEYS


def own_labels(program: str) -> Mapping[str, str]:
    """Return the labels that all objects of one kind of proxy have; `program` names the kind."""
    return {_NAME: program, _MANAGED_BY: NAME}


def pod_selector(program: str, name: str) -> Mapping[str, str]:
    """Return the labels that select the pods of one Deployment."""
    return {_NAME: program, _INSTANCE: name}


def has_labels(obj: Object, labels: Mapping[str, str]) -> bool:
    """Return whether an object has all labels."""
    return labels.items() <= labels_of(obj).items()


def object_metadata(name: str, program: str, added: Mapping[str, Any], annotations: Mapping[str, str]) -> Object:
    """Return the metadata for the objects of one Gateway or Service; `added` has further labels."""
    labels = {**added, **own_labels(program), **pod_selector(program, name)}
    return {"name": name, "namespace": NAMESPACE, "labels": labels, "annotations": dict(annotations)}


def digest_of(content: object) -> str:
    """Return the digest of what is applied."""
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()


def applied_digest(obj: Object | None) -> str:
    """Return the digest in the annotation of a stored object; empty if there is none."""
    return str(annotations_of(obj).get(DIGEST, "")) if obj else ""


def with_digest(obj: Object, digest: str) -> Object:
    """Return an object with a digest in its annotation."""
    metadata = obj["metadata"]
    return {**obj, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), DIGEST: digest}}}


def proxy_objects(metadata: Object, annotations: Mapping[str, str], spec: Object) -> tuple[Object, Object]:
    """Return a Deployment and a PodDisruptionBudget with `metadata`; its pods have `annotations` and `spec`.

    The Deployment has no `replicas`, so that users and autoscalers can set them.
    """
    labels = metadata["labels"]
    selector = {"matchLabels": pod_selector(labels[_NAME], metadata["name"])}
    pod = {"metadata": {"labels": labels, "annotations": dict(annotations)}, "spec": spec}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    return (
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {"selector": selector, "strategy": strategy, "template": pod},
        },
        {
            "apiVersion": DISRUPTION_BUDGET.hub,
            "kind": DISRUPTION_BUDGET.kind,
            "metadata": metadata,
            "spec": {"maxUnavailable": 1, "selector": selector},
        },
    )
