"""CustomResourceDefinitions for tests."""

from typing import Any

from headgate.resources.meta import Object

CRON_TAB_SPEC = {
    "type": "object",
    "required": ["cronSpec"],
    "properties": {
        "cronSpec": {"type": "string", "pattern": r"^(\d+|\*)( (\d+|\*)){4}$"},
        "image": {"type": "string", "default": "none"},
        "replicas": {"type": "integer", "minimum": 1, "maximum": 10, "default": 1},
        "port": {"x-kubernetes-int-or-string": True},
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
    },
}
COLUMNS = (
    {"name": "Spec", "type": "string", "jsonPath": ".spec.cronSpec"},
    {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)


def version(name: str = "v1", *, storage: bool = True, **fields: Any) -> dict[str, Any]:
    """Return a version of a definition, with the fields of CronTabs; `fields` replace its own."""
    schema = {
        "type": "object",
        "properties": {
            "spec": CRON_TAB_SPEC,
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "subresources": {"status": {}, "scale": scale},
        "additionalPrinterColumns": [*COLUMNS],
        "schema": {"openAPIV3Schema": schema},
        **fields,
    }


def definition(*versions: dict[str, Any], group: str = "stable.example.com", **spec: Any) -> Object:
    """Return the definition of CronTabs; `spec` replaces fields."""
    names = {"plural": "crontabs", "kind": "CronTab", "shortNames": ["ct"], "categories": ["all"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"crontabs.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names,
            "versions": [*(versions or (version(),))],
            **spec,
        },
    }


def cron_tab(name: str = "nightly", *, version: str = "v1", metadata: Any = None, **spec: Any) -> Object:
    """Return a CronTab."""
    return {
        "apiVersion": f"stable.example.com/{version}",
        "kind": "CronTab",
        "metadata": {"name": name, "namespace": "default", **(metadata or {})},
        "spec": {"cronSpec": "* * * * *", **spec},
    }
