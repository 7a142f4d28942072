"""Definitions of SMI's kinds as other projects install them, with objects as their users and controllers write them.

They have the versions, the stored version and the looseness of the originals, not their texts.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from headgate.resources.meta import Object

LOOSE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_BACKEND = {
    "type": "object",
    "required": ["service", "weight"],
    "properties": {"service": {"type": "string"}, "weight": {"x-kubernetes-int-or-string": True}},
}
_SPLIT_SPEC = {
    "type": "object",
    "required": ["service", "backends"],
    "properties": {"service": {"type": "string"}, "backends": {"type": "array", "items": _BACKEND}},
}
_WEBHOOK = {
    "strategy": "Webhook",
    "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {
            "caBundle": "cm9vdHM=",
            "service": {"namespace": "osm-system", "name": "osm-bootstrap", "path": "/convert/split", "port": 9443},
        },
    },
}
_KINDS = {
    "TrafficSplit": ("split.smi-spec.io", "trafficsplits", "ts"),
    "HTTPRouteGroup": ("specs.smi-spec.io", "httproutegroups", "htr"),
    "TCPRoute": ("specs.smi-spec.io", "tcproutes", "tr"),
    "TrafficTarget": ("access.smi-spec.io", "traffictargets", "tt"),
}


class Origin(NamedTuple):
    """A project whose definitions are on a cluster, with objects of its users in the namespace `shop`."""

    name: str
    definitions: Sequence[Object]
    objects: Sequence[Object]


def plural(kind: str) -> str:
    """Return the resource name of a kind."""
    return _KINDS[kind][1]


def definition(
    kind: str,
    *versions: str,
    stored: str,
    labels: Mapping[str, str] | None = None,
    schema: Any = None,
    conversion: Object | None = None,
) -> Object:
    """Return the definition of a kind that serves these versions and stores objects in the version `stored`.

    `conversion` is that of a webhook of the project, by default none.
    """
    group, resource, short = _KINDS[kind]
    content = {"openAPIV3Schema": schema or {"type": "object", "properties": {"spec": _SPLIT_SPEC}}}
    names = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": resource,
        "singular": kind.lower(),
        "shortNames": [short],
    }
    columns = [{"name": "Service", "type": "string", "jsonPath": ".spec.service"}]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource}.{group}", "labels": dict(labels or {})},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names,
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": version == stored,
                    "schema": content,
                    "additionalPrinterColumns": columns,
                }
                for version in versions
            ],
            **({"conversion": conversion} if conversion else {}),
        },
    }


def early_definition(kind: str, version: str) -> Object:
    """Return the definition of a kind in `apiextensions.k8s.io/v1beta1`, without a schema: any field is kept."""
    group, resource, short = _KINDS[kind]
    return {
        "apiVersion": "apiextensions.k8s.io/v1beta1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource}.{group}"},
        "spec": {
            "group": group,
            "version": version,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": resource, "singular": kind.lower(), "shortNames": [short]},
        },
    }


def written(kind: str, version: str, name: str, *, metadata: Any = None, **content: Any) -> Object:
    """Return an object in the namespace `shop`; `content` has its top-level fields."""
    return {
        "apiVersion": f"{_KINDS[kind][0]}/{version}",
        "kind": kind,
        "metadata": {"name": name, "namespace": "shop", **(metadata or {})},
        **content,
    }


def split(version: str, *, metadata: Any = None, **weights: Any) -> Object:
    """Return a TrafficSplit of the Service `web`, whose backends have these weights."""
    backends = [{"service": f"web-{name}", "weight": weight} for name, weight in weights.items()]
    return written("TrafficSplit", version, "web", metadata=metadata, spec={"service": "web", "backends": backends})


def owned_by(api_version: str, kind: str) -> Object:
    """Return the metadata that a controller writes on the splits of its object `web`."""
    reference = {"apiVersion": api_version, "kind": kind, "name": "web", "uid": "5e3c", "controller": True}
    return {"ownerReferences": [{**reference, "blockOwnerDeletion": True}]}


_GET = [{"name": "get", "pathRegex": "/api/.*", "methods": ["GET"]}]
_ACCOUNT = {"kind": "ServiceAccount", "name": "web", "namespace": "shop"}
_CALLER = {**_ACCOUNT, "name": "client"}
_RULES = [{"kind": "HTTPRouteGroup", "name": "api", "matches": ["get"]}]
_LINKERD = definition("TrafficSplit", "v1alpha1", "v1alpha2", stored="v1alpha1", labels={"linkerd.io/extension": "smi"})

ORIGINS = (
    Origin("linkerd", [_LINKERD], [split("v1alpha1", v1="900m", v2="100m")]),
    Origin(
        "sdk",
        [
            definition("TrafficSplit", "v1alpha1", "v1alpha2", "v1alpha3", stored="v1alpha3"),
            definition("HTTPRouteGroup", "v1alpha1", "v1alpha2", "v1alpha3", stored="v1alpha3", schema=LOOSE),
        ],
        [split("v1alpha3", v1=9, v2=1), written("HTTPRouteGroup", "v1alpha3", "api", spec={"matches": _GET})],
    ),
    Origin(
        "osm",
        [
            definition("TrafficSplit", "v1alpha2", "v1alpha3", "v1alpha4", stored="v1alpha2", conversion=_WEBHOOK),
            definition("HTTPRouteGroup", "v1alpha3", "v1alpha4", stored="v1alpha4", schema=LOOSE),
            definition("TCPRoute", "v1alpha3", "v1alpha4", stored="v1alpha4", schema=LOOSE),
            definition("TrafficTarget", "v1alpha2", "v1alpha3", stored="v1alpha3", schema=LOOSE),
        ],
        [
            split("v1alpha2", v1=50, v2=50),
            written("HTTPRouteGroup", "v1alpha4", "api", spec={"matches": _GET}),
            written("TCPRoute", "v1alpha4", "db", spec={"matches": {"ports": [5432]}}),
            written(
                "TrafficTarget",
                "v1alpha3",
                "api",
                spec={"destination": _ACCOUNT, "sources": [_CALLER], "rules": _RULES},
            ),
        ],
    ),
    Origin(
        "flagger",
        [definition("TrafficSplit", "v1alpha1", "v1alpha2", stored="v1alpha2")],
        [split("v1alpha2", metadata=owned_by("flagger.app/v1beta1", "Canary"), v1=95, v2=5)],
    ),
    Origin("argo", [_LINKERD], [split("v1alpha1", metadata=owned_by("argoproj.io/v1alpha1", "Rollout"), v1=80, v2=20)]),
    Origin(
        "early",
        [
            early_definition("TrafficSplit", "v1alpha1"),
            early_definition("HTTPRouteGroup", "v1alpha1"),
            early_definition("TrafficTarget", "v1alpha1"),
        ],
        [
            split("v1alpha1", v1=1, v2="500m"),
            written("HTTPRouteGroup", "v1alpha1", "api", matches=_GET),
            written("TrafficTarget", "v1alpha1", "api", destination=_ACCOUNT, sources=[_CALLER], specs=_RULES),
        ],
    ),
)
"""The early definitions are those of 2019, with which Open Service Mesh and Linkerd 2.6 began."""
