"""Responses of the metrics API in the format of 004: TrafficMetrics, lists and edges."""

from typing import Any

API = "traffic.metrics.k8s.io/v1beta1"
RELEASED = "metrics.smi-spec.io/v1alpha1"
Object = dict[str, Any]


def traffic_metrics(
    name: str, success: int, failure: int = 0, *, kind: str = "Pod", namespace: str = "default", **more: Any
) -> Object:
    """Return a TrafficMetrics.

    `p99` is a quantity of seconds. `peer`, `direction`, `copy` and `security` describe the edge. `mesh` has the number of
    all pods and the number of pods with a sidecar. `counts` and `more_metrics` are additional metrics.
    """
    p99, peer = more.get("p99", "1m"), more.get("peer")
    resource = {"kind": peer[0], "namespace": peer[1], "name": peer[2]} if peer else {}
    edge = {
        "direction": more.get("direction", "to"),
        "resource": {key: value for key, value in resource.items() if value},
    }
    pods = {"mesh": dict(zip(("pods", "meshed"), more["mesh"], strict=True))} if "mesh" in more else {}
    edge |= {"copy": True} if more.get("copy") else {}
    edge |= {"security": more["security"]} if "security" in more else {}
    return {
        "kind": "TrafficMetrics",
        "apiVersion": API,
        "resource": {"kind": kind, "name": name, **({"namespace": namespace} if namespace else {})},
        "edge": edge,
        **pods,
        "timestamp": "2019-04-08T22:25:55Z",
        "window": more.get("window", "30s"),
        "metrics": [
            {"name": "p99_response_latency", "unit": "seconds", "value": p99},
            {"name": "p90_response_latency", "unit": "seconds", "value": "800u"},
            {"name": "p50_response_latency", "unit": "seconds", "value": "500u"},
            {"name": "success_count", "value": str(success)},
            {"name": "failure_count", "value": str(failure)},
            *more.get("more_metrics", ()),
            *({"name": f"{what}_count", "value": str(count)} for what, count in more.get("counts", {}).items()),
        ],
    }


def leg(split: str, apex: str, backend: str, weight: int, success: int, *, failure: int = 0) -> Object:
    """Return the TrafficMetrics of a TrafficSplit's backend in the released API, with latencies in milliseconds."""
    found = traffic_metrics(split, success, failure, kind="TrafficSplit")
    for one in found["metrics"][:3]:
        one |= {"unit": "ms", "value": "1500m"}
    return {**found, "apiVersion": RELEASED, "backend": {"apex": apex, "name": backend, "weight": weight}}


def listed(*items: Object, **resource: str) -> Object:
    """Return a TrafficMetricsList of items; `resource` has the fields of the list's own resource."""
    return {"kind": "TrafficMetricsList", "apiVersion": API, "resource": resource, "items": list(items)}


def deployments(
    calls: dict[tuple[str, str], int], *names: str, failures: dict[tuple[str, str], int] | None = None
) -> Object:
    """Return the responses for Deployments by path. `calls` are requests in 30 s; `names` has idle Deployments."""
    failed = failures or {}
    every = sorted({name for ends in calls for name in ends} | set(names))
    base = f"/apis/{API}/namespaces/default/deployments"

    def about(name: str, direction: str, ends: tuple[str, str]) -> Object:
        peer = ends[direction == "to"]
        given: dict[str, Any] = {"direction": direction, "peer": ("Deployment", "default", peer), "kind": "Deployment"}
        return traffic_metrics(name, calls[ends], failed.get(ends, 0), **given)

    found = {
        base: listed(
            *(traffic_metrics(name, 1, kind="Deployment") for name in every), kind="Deployment", namespace="default"
        )
    }
    for name in every:
        edges = [about(name, "to", ends) for ends in calls if ends[0] == name]
        edges += [about(name, "from", ends) for ends in calls if ends[1] == name]
        found[f"{base}/{name}/edges"] = listed(*edges, kind="Deployment", namespace="default", name=name)
    return found


SEED = {("traffic", "foo"): 54, ("foo", "bar"): 27, ("foo", "baz"): 27, ("bar", "baz"): 20, ("baz", "bar"): 20}
"""The example of 004: traffic -> foo -> bar <-> baz, foo -> baz."""
