"""Where the metrics API is found: its resources, and the APIServices that put it into a cluster (R80 to R82)."""

import base64
from collections.abc import Sequence
from typing import Any

from headgate.api.metrics.groups import EDGES, FACES, SPLITS, face_of, is_cluster_scoped, told_apart
from headgate.resources import inspect
from headgate.resources.meta import Object
from headgate.resources.metrics import TRAFFIC_METRICS

# Below everything that Kubernetes has, and below custom resources (1000): `pods` and `deployments` go on to mean those.
_GROUP_PRIORITY, _VERSION_PRIORITY = 100, 10


def rows(group: str, version: str) -> list[dict[str, Any]]:
    """Return the resources of a face as an APIResourceList has them; nothing for what is none."""
    face = face_of(group, version)
    return [_row(plural, ["get", "list"]) for plural in face.kinds] if face else []


def aggregated_rows(group: str, version: str) -> list[dict[str, Any]]:
    """Return what only aggregated discovery has beyond `rows`: sub-resources, and kinds and singulars for kubectl.

    kubectl takes the kind in small letters for the singular where none is told, and nobody types that.
    """
    face = face_of(group, version)
    if face is None:
        return []
    kinds = [(row, face.kinds[row["name"]]) for row in rows(group, version)]
    found = [{**row, "kind": told_apart(kind), "singularName": kind.lower()} for row, kind in kinds]
    parts = [row for row in found if row["name"] != SPLITS]
    edges = [{**row, "name": f"{row['name']}/{EDGES}", "singularName": "", "verbs": ["get"]} for row in parts]
    return found + edges


def _row(plural: str, verbs: Sequence[str]) -> dict[str, Any]:
    return {
        "name": plural,
        "singularName": "",
        "namespaced": not is_cluster_scoped(plural),
        "kind": TRAFFIC_METRICS,
        "verbs": list(verbs),
    }


def api_services(service: str, authority: bytes, *, port: int = 443) -> tuple[Object, ...]:
    """Return an APIService for each face and for the inspect API, which lead to `service` (`namespace/name`).

    `authority` is the PEM of who signed its certificate.
    """
    namespace, name = service.split("/")
    return tuple(
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{version}.{group}"},
            "spec": {
                "group": group,
                "version": version,
                "service": {"namespace": namespace, "name": name, "port": port},
                "caBundle": base64.b64encode(authority).decode(),
                "groupPriorityMinimum": _GROUP_PRIORITY,
                "versionPriority": _VERSION_PRIORITY,
            },
        }
        for group, version in ((inspect.GROUP, inspect.VERSION), *((face.group, face.version) for face in FACES))
    )
