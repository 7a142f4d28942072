"""The webhooks of an installation: of injection, and of validation."""

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.admission.injection import INJECT_LABELED, NAMESPACE_NAME, OF_REVISIONS
from headgate.kinds import ACCESS, EXPERIMENTAL, GATEWAY, MESH, NAMES, SPECS, SPLIT
from headgate.kubernetes.names import NAMESPACE, WEBHOOKS
from headgate.options import NEVER_INJECTED
from headgate.resources.core.pod_metadata import INJECT, INJECTED, NOT_INJECTED, REVISION
from headgate.resources.meta import Object

_GROUPS = [SPLIT, SPECS, ACCESS, MESH, GATEWAY]
_EXPERIMENTAL_RESOURCES = [names.plural for names in NAMES if names.group == EXPERIMENTAL]
_SHORT_S = 2  # seconds that a write waits for a webhook whose answer is not required


def service_of_webhooks(name: str = WEBHOOKS) -> dict[str, Any]:
    """Return the reference to a Service of webhooks."""
    return {"namespace": NAMESPACE, "name": name, "port": 443}


def _webhook(name: str, path: str, **more: Any) -> dict[str, Any]:
    return {
        "name": f"{name}.headgate.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": {**service_of_webhooks(), "path": path}},
        **more,
    }


def injection_webhooks(namespaces: Sequence[str]) -> Sequence[Object]:
    """Return the webhooks of injection of the default revision: for namespaces without the label `REVISION`, and for those with it.

    A replica may read a label later than the API server. When the label has just been removed, it would leave the pod to the
    revision, whose webhook is not called any more. So each part has a path of its own.
    """
    without, has = ({"key": REVISION, "operator": operator} for operator in ("DoesNotExist", "Exists"))
    return (
        *_injection(namespaces, without),
        *_injection(namespaces, has, path=OF_REVISIONS, name="-of-revisions"),
    )


def revision_webhooks(namespaces: Sequence[str], revision: str, service: str) -> Sequence[Object]:
    """Return the webhooks of injection of a revision, which has a Service of its own."""
    has = {"key": REVISION, "operator": "In", "values": [revision]}
    return _injection(namespaces, has, service=service, path=OF_REVISIONS)


def _injection(
    namespaces: Sequence[str],
    of_revision: Mapping[str, Any],
    *,
    service: str = WEBHOOKS,
    path: str = "",
    name: str = "",
) -> Sequence[Object]:
    """Return three webhooks: for labeled namespaces, for labeled pods elsewhere, and for pods without the label.

    `of_revision` is a further requirement of namespaces. `path` and `name` end the paths and the names.
    The first one has a path of its own, so that the label holds as the API server knows it.
    The first two fail closed, because these pods must not start without a sidecar. The third one is for pods that get a
    sidecar by their annotation, by a TLSConfig or by `--sidecars all`. It must not stop other pods, so it fails open.
    """
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    labeled, unlabeled = ({"key": INJECT, "operator": operator} for operator in ("Exists", "DoesNotExist"))
    not_opted_out = {"key": INJECT, "operator": "NotIn", "values": list(NOT_INJECTED)}
    injected = _selector(namespaces, {"key": INJECT, "operator": "In", "values": list(INJECTED)}, of_revision)
    elsewhere = _selector(namespaces, {"key": INJECT, "operator": "NotIn", "values": list(INJECTED)}, of_revision)
    hooks = [
        _webhook(
            f"namespaces{name}",
            f"{INJECT_LABELED}{path}",
            failurePolicy="Fail",
            rules=rules,
            namespaceSelector=injected,
        ),
        _webhook(
            f"pods{name}",
            f"/inject{path}",
            failurePolicy="Fail",
            rules=rules,
            namespaceSelector=elsewhere,
            objectSelector={"matchExpressions": [labeled, not_opted_out]},
        ),
        _webhook(
            f"unlabeled-pods{name}",
            f"/inject{path}",
            failurePolicy="Ignore",
            timeoutSeconds=_SHORT_S,
            rules=rules,
            namespaceSelector=elsewhere,
            objectSelector={"matchExpressions": [unlabeled]},
        ),
    ]
    for hook in hooks:
        hook["clientConfig"]["service"]["name"] = service
    return hooks


def _selector(namespaces: Sequence[str], *requirements: Mapping[str, Any]) -> dict[str, Any]:
    """Return a selector of namespaces, of all if none are given, without those that a webhook must never delay.

    Kubernetes 1.21 and newer write the label with their names.
    """
    names = {"key": NAMESPACE_NAME, "operator": "NotIn", "values": list(NEVER_INJECTED)}
    return {"matchExpressions": [*requirements, names, *_only(namespaces).get("matchExpressions", ())]}


def _only(namespaces: Sequence[str]) -> dict[str, Any]:
    limit = {"key": NAMESPACE_NAME, "operator": "In", "values": list(namespaces)}
    return {"matchExpressions": [limit]} if namespaces else {}


def validation_webhooks(namespaces: Sequence[str]) -> Sequence[Object]:
    """Return the webhooks of validation, which fail open."""

    def rule(
        groups: Sequence[str], *resources: str, operations: Sequence[str] = ("CREATE", "UPDATE")
    ) -> dict[str, Any]:
        fields = {"operations": list(operations), "resources": list(resources)}
        return {"apiGroups": list(groups), "apiVersions": ["*"], **fields}

    def of_mesh(*operations: str) -> list[dict[str, Any]]:
        # Other controllers own the remaining experimental kinds: their writes and deletions must not wait for headgate.
        experimental = rule([EXPERIMENTAL], *_EXPERIMENTAL_RESOURCES, operations=operations)
        return [rule(_GROUPS, "*", operations=operations), experimental]

    workloads = [rule(["apps"], "daemonsets", "deployments", "statefulsets"), rule(["batch"], "cronjobs", "jobs")]
    short = {"failurePolicy": "Ignore", "timeoutSeconds": _SHORT_S, "namespaceSelector": _selector(namespaces)}
    return [
        _webhook(
            "objects",
            "/validate",
            failurePolicy="Ignore",
            timeoutSeconds=5,
            rules=of_mesh("CREATE", "UPDATE"),
            namespaceSelector=_only(namespaces),
        ),
        # Only for warnings. While no control plane answers, it delays the deletion of an object by this time at most.
        _webhook(
            "deletions",
            "/validate",
            failurePolicy="Ignore",
            timeoutSeconds=_SHORT_S,
            rules=of_mesh("DELETE"),
            namespaceSelector=_only(namespaces),
        ),
        # Only for warnings: Kubernetes itself validates Services.
        _webhook("services", "/validate", rules=[rule([""], "services")], **{**short, "timeoutSeconds": 5}),
        _webhook("labels", "/validate", rules=[rule([""], "namespaces")], **short),
        _webhook("workloads", "/validate", rules=workloads, **short),
    ]
