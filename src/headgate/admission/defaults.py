"""The values that Kubernetes fills in for workloads and Secrets; kubectl's describe and rollout rely on some of them.

A store that is also filled from files has `admit` among its hooks, so that both ways give the same object.
"""

import base64
from collections.abc import Mapping
from typing import Any

from headgate.resources.meta import Object

_POD = {"restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst"}
_ROLLING = {"maxSurge": "25%", "maxUnavailable": "25%"}
_DEPLOYMENT = {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}


def completed(obj: Object) -> Object:
    """Return the object with what its kind leaves optional; a mistyped part is left for the checks to name."""
    if obj.get("kind") == "Secret":
        return _secret(obj)
    spec = obj.get("spec")
    if not isinstance(spec, Mapping):
        return obj
    match obj.get("kind"):
        case "Pod":
            return {**obj, "spec": _pod(spec)}
        case "ReplicaSet":
            return {**obj, "spec": _workload({"replicas": 1, **_given(spec)})}
        case "Deployment":
            return {
                **obj,
                "spec": _workload({**_DEPLOYMENT, **_given(spec), "strategy": _strategy(spec.get("strategy"))}),
            }
        case _:
            return obj


def admit(new: Object, _old: Object | None, _view: object = None) -> Object:
    """Complete an object on its way into the store (type `objects.ports.Admit`)."""
    return completed(new)


def _secret(obj: Object) -> Object:
    """Move `stringData`, which is for writing only, into `data`."""
    filled = {"type": "Opaque", **_given(obj)}
    texts = filled.pop("stringData", None)
    if not isinstance(texts, Mapping) or not all(isinstance(text, str) for text in texts.values()):
        return filled if texts is None else obj
    encoded = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    return {**filled, "data": {**(filled.get("data") or {}), **encoded}}


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _strategy(strategy: Any) -> Any:
    if strategy is not None and not isinstance(strategy, Mapping):
        return strategy
    given = {"type": "RollingUpdate", **_given(strategy or {})}
    if given["type"] == "RollingUpdate" and isinstance(given.get("rollingUpdate", {}), Mapping):
        given["rollingUpdate"] = {**_ROLLING, **_given(given.get("rollingUpdate", {}))}
    return given


def _workload(spec: dict[str, Any]) -> dict[str, Any]:
    template = spec.get("template")
    if not isinstance(template, Mapping) or not isinstance(template.get("spec"), Mapping):
        return spec
    return {**spec, "template": {**template, "spec": _pod(template["spec"])}}


def _pod(spec: Mapping[str, Any]) -> dict[str, Any]:
    filled = {**_POD, **_given(spec)}
    containers = filled.get("containers")
    if isinstance(containers, list):
        filled["containers"] = [_container(container) for container in containers]
    return filled


def _container(container: Any) -> Any:
    ports = container.get("ports") if isinstance(container, Mapping) else None
    if not isinstance(ports, list):
        return container
    return {**container, "ports": [_port(port) for port in ports]}


def _port(port: Any) -> Any:
    return {"protocol": "TCP", **_given(port)} if isinstance(port, Mapping) else port
