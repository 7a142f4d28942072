"""The writes of Flagger and Argo Rollouts, as their releases of 2026 make them: the same requests in the same order.

The objects have the fields that their Go clients write, also empty ones such as `creationTimestamp: null`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from headgate.resources.gateway_api.routes import PROGRAMMED_AT_PARENT

Object: TypeAlias = dict[str, Any]
Call: TypeAlias = Callable[..., Any]
"""`call(method, path, body, content_type)` returns the response; it raises AssertionError if the call fails."""

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
PORT = 9898
HASH = "rollouts-pod-template-hash"
ROUTES = "apis/gateway.networking.k8s.io/v1"


def update(call: Call, path: str, change: Callable[[Object], None]) -> Object:
    """Read an object, change it and replace it; begin again after a conflict, as both controllers do."""
    while True:
        found = call("GET", path)
        change(found)
        try:
            written: Object = call("PUT", path, found)
        except AssertionError as error:
            if ": 409 " not in str(error):
                raise
        else:
            return written


class Flagger:
    """Flagger's work on the Canary `podinfo`: its Services, and a TrafficSplit or an HTTPRoute of the same name."""

    def __init__(self, call: Call, namespace: str) -> None:
        self.call = call
        self.namespace = namespace

    def create_services(self) -> None:
        """Create the Services of the canary, the primary and the application, in this order."""
        selectors = {"podinfo-canary": "podinfo", "podinfo-primary": "podinfo-primary", "podinfo": "podinfo-primary"}
        for name, app in selectors.items():
            port = {"name": "http", "protocol": "TCP", "port": PORT, "targetPort": PORT}
            spec = {"ports": [port], "selector": {"app": app}, "type": "ClusterIP"}
            status: Object = {"loadBalancer": {}}
            service = {**self._owned("v1", "Service", name), "spec": spec, "status": status}
            service["metadata"]["labels"] = {"app": name}
            self.call("POST", f"/api/v1/namespaces/{self.namespace}/services", service)

    def _owned(self, version: str, kind: str, name: str) -> Object:
        owner = {"apiVersion": "flagger.app/v1beta1", "kind": "Canary", "name": "podinfo", "uid": "0-1-2"}
        references = [{**owner, "controller": True, "blockOwnerDeletion": True}]
        metadata = {"name": name, "namespace": self.namespace, "creationTimestamp": None}
        return {"apiVersion": version, "kind": kind, "metadata": {**metadata, "ownerReferences": references}}


class FlaggerSplit(Flagger):
    """The provider `smi:VERSION`."""

    def __init__(self, call: Call, namespace: str, version: str) -> None:
        super().__init__(call, namespace)
        self.version = f"split.smi-spec.io/{version}"
        self.splits = f"/apis/{self.version}/namespaces/{namespace}/trafficsplits"

    def create(self) -> None:
        """Create the TrafficSplit, with all traffic for the primary."""
        spec = {"service": "podinfo", "backends": self._backends(100, 0)}
        self.call("POST", self.splits, {**self._owned(self.version, "TrafficSplit", "podinfo"), "spec": spec})

    def set_weights(self, primary: int, canary: int) -> Object:
        """Replace the split by one with other weights. The client does not know the status, so it writes none."""

        def change(split: Object) -> None:
            split.pop("status", None)
            split["spec"]["backends"] = self._backends(primary, canary)

        return update(self.call, f"{self.splits}/podinfo", change)

    def weights(self) -> tuple[int, int]:
        """Return the weights of primary and canary in the split; Flagger reads nothing else back."""
        backends = self.call("GET", f"{self.splits}/podinfo")["spec"]["backends"]
        found = {backend["service"]: int(backend["weight"]) for backend in backends}
        return found["podinfo-primary"], found["podinfo-canary"]

    def _backends(self, primary: int, canary: int) -> list[Object]:
        weights = {"podinfo-canary": canary, "podinfo-primary": primary}
        quantity = str if self.version.endswith("v1alpha1") else int
        return [{"service": name, "weight": quantity(weight)} for name, weight in weights.items()]


class FlaggerRoute(Flagger):
    """The provider `gatewayapi:v1`. The analysis is a canary, with `header` an A/B test, with `cookie` sticky."""

    def __init__(
        self, call: Call, namespace: str, parent: Mapping[str, Any], *, header: str = "", cookie: str = ""
    ) -> None:
        super().__init__(call, namespace)
        self.parent = parent
        self.header = header
        self.cookie = cookie
        self.routes = f"/{ROUTES}/namespaces/{namespace}/httproutes"

    def create(self) -> None:
        """Create the HTTPRoute, with all traffic for the primary."""
        route = self._owned("gateway.networking.k8s.io/v1", "HTTPRoute", "podinfo")
        self.call("POST", self.routes, {**route, "spec": self._spec(100, 0), "status": {"parents": None}})

    def set_weights(self, primary: int, canary: int, *, mirrored: bool = False) -> Object:
        """Replace the route by one with other weights, and with a mirror if `mirrored`."""

        def change(route: Object) -> None:
            route["spec"] = self._spec(primary, canary, mirrored=mirrored)
            route.setdefault("status", {"parents": None})

        return update(self.call, f"{self.routes}/podinfo", change)

    def weights(self) -> tuple[int, int, bool]:
        """Return the weights of primary and canary, and whether the canary is mirrored, as Flagger reads them back."""
        rules = self.call("GET", f"{self.routes}/podinfo")["spec"]["rules"]
        weighted = next(rule for rule in reversed(rules) if len(rule["backendRefs"]) == 2)
        found = {ref["name"]: ref["weight"] for ref in weighted["backendRefs"]}
        mirrors = [item for rule in rules for item in rule.get("filters", ()) if item["type"] == "RequestMirror"]
        return found["podinfo-primary"], found["podinfo-canary"], bool(mirrors)

    def _spec(self, primary: int, canary: int, *, mirrored: bool = False) -> Object:
        path = {"path": {"type": "PathPrefix", "value": "/"}}
        refs = [_ref("podinfo-primary", primary), _ref("podinfo-canary", canary)]
        rules: list[Object] = [{"matches": [path], "backendRefs": refs}]
        if mirrored:
            reference = {name: value for name, value in refs[1].items() if name != "weight"}
            rules[0]["filters"] = [{"type": "RequestMirror", "requestMirror": {"backendRef": reference}}]
        if self.header:
            match = {"type": "Exact", "name": self.header, "value": "insider"}
            rules[0]["matches"] = [{**path, "headers": [match]}]
            rules.append({"matches": [path], "backendRefs": [_ref("podinfo-primary", 100)]})
        if self.cookie and canary:
            rules[0]["backendRefs"][1]["filters"] = [_set_cookie(f"{self.cookie}=LpsIaLdoNZ; Max-Age=21600")]
            match = {"type": "RegularExpression", "name": "Cookie", "value": f".*{self.cookie}.*LpsIaLdoNZ.*"}
            sticky = [_ref("podinfo-primary", 0), _ref("podinfo-canary", 100)]
            rules.insert(0, {"matches": [{"headers": [match]}], "backendRefs": sticky})
        return {"parentRefs": [self.parent], "rules": rules}


def _ref(name: str, weight: int) -> Object:
    return {"group": "", "kind": "Service", "name": name, "port": PORT, "weight": weight}


def _set_cookie(value: str) -> Object:
    added = {"add": [{"name": "Set-Cookie", "value": value}]}
    return {"type": "ResponseHeaderModifier", "responseHeaderModifier": added}


class Argo:
    """Argo Rollouts' work on the Rollout `demo` with the Services `demo-stable` and `demo-canary` of the user."""

    def __init__(self, call: Call, namespace: str) -> None:
        self.call = call
        self.namespace = namespace

    def create_services(self, *names: str) -> None:
        """Create the user's Services, which select all pods of the Rollout."""
        for name in names:
            spec = {"ports": [{"name": "http", "port": PORT, "targetPort": PORT}], "selector": {"app": "demo"}}
            service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
            self.call("POST", f"/api/v1/namespaces/{self.namespace}/services", service)

    def select(self, service: str, pod_template_hash: str) -> None:
        """Select the pods of one ReplicaSet in addition to the user's selector."""
        annotations = {"argo-rollouts.argoproj.io/managed-by-rollouts": "demo"}
        patch = {"metadata": {"annotations": annotations}, "spec": {"selector": {HASH: pod_template_hash}}}
        self.call("PATCH", f"/api/v1/namespaces/{self.namespace}/services/{service}", patch, STRATEGIC)


class ArgoSplit(Argo):
    """Traffic routing `smi`, with `--traffic-split-api-version`; an empty root is the stable Service."""

    def __init__(self, call: Call, namespace: str, version: str, root: str = "") -> None:
        super().__init__(call, namespace)
        self.version = f"split.smi-spec.io/{version}"
        self.splits = f"/apis/{self.version}/namespaces/{namespace}/trafficsplits"
        self.root = root or "demo-stable"

    def create(self) -> None:
        """Create the TrafficSplit, with all traffic for the stable Service."""
        owner = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "demo", "uid": "0-1-2"}
        references = [{**owner, "controller": True, "blockOwnerDeletion": True}]
        metadata = {"name": "demo", "namespace": self.namespace, "creationTimestamp": None}
        body = {
            "apiVersion": self.version,
            "kind": "TrafficSplit",
            "metadata": {**metadata, "ownerReferences": references},
            "spec": {"service": self.root, "backends": self._backends(0)},
        }
        self.call("POST", self.splits, body)

    def set_weight(self, canary: int, **experiments: int) -> Object:
        """Patch the backends; `experiments` has the weights of further Services."""
        backends = self._backends(canary, **experiments)
        written: Object = self.call("PATCH", f"{self.splits}/demo", {"spec": {"backends": backends}}, MERGE)
        return written

    def _backends(self, canary: int, **experiments: int) -> list[Object]:
        stable = 100 - canary - sum(experiments.values())
        weights = {"demo-canary": canary, **experiments, "demo-stable": stable}
        quantity = str if self.version.endswith("v1alpha1") else int
        return [{"service": name, "weight": quantity(weight)} for name, weight in weights.items()]


class ArgoRoute(Argo):
    """Traffic routing by the plugin `argoproj-labs/gatewayAPI`: the HTTPRoute is the user's, the plugin updates it."""

    def __init__(self, call: Call, namespace: str) -> None:
        super().__init__(call, namespace)
        self.routes = f"/{ROUTES}/namespaces/{namespace}/httproutes"

    def create(self, parent: Mapping[str, Any]) -> None:
        """Create the user's HTTPRoute."""
        refs = [{"name": "demo-stable", "port": PORT}, {"name": "demo-canary", "port": PORT}]
        rule = {"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": refs}
        spec = {"parentRefs": [parent], "rules": [rule]}
        body = {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": "demo"}}
        self.call("POST", self.routes, {**body, "spec": spec})

    def set_weight(self, canary: int) -> Object:
        """Set the weights of rules that the plugin does not manage, and the label of a rollout in progress."""
        weights = {"demo-canary": canary, "demo-stable": 100 - canary}

        def change(route: Object) -> None:
            labels = {"rollouts.argoproj.io/gatewayapi-canary": "in-progress"} if canary else {}
            route["metadata"]["labels"] = labels
            for rule in route["spec"]["rules"]:
                for ref in rule["backendRefs"] if "name" not in rule else ():
                    ref["weight"] = weights[ref["name"]]

        return update(self.call, f"{self.routes}/demo", change)

    def set_header_route(self, name: str, header: str, value: str) -> Object:
        """Add the rule of a step `setHeaderRoute`."""
        match = {"type": "Exact", "name": header, "value": value}
        ref = {"group": "", "kind": "Service", "name": "demo-canary", "port": PORT}

        def change(route: Object) -> None:
            path = route["spec"]["rules"][0]["matches"][0]["path"]
            rule = {"name": name, "matches": [{"path": path, "headers": [match]}], "backendRefs": [ref]}
            route["spec"]["rules"].append(rule)

        return update(self.call, f"{self.routes}/demo", change)

    def set_mirror_route(self, name: str, method: str, percent: int) -> Object:
        """Add the rule of a step `setMirrorRoute`."""
        mirror = {"backendRef": {"name": "demo-canary", "port": PORT}, "percent": percent}

        def change(route: Object) -> None:
            first = route["spec"]["rules"][0]
            matches = [{"method": method, "path": {"type": "PathPrefix", "value": "/"}}]
            filters = [{"type": "RequestMirror", "requestMirror": mirror}]
            rule = {"name": name, "matches": matches, "backendRefs": first["backendRefs"], "filters": filters}
            route["spec"]["rules"].append(rule)

        return update(self.call, f"{self.routes}/demo", change)

    def remove_routes(self, *names: str) -> Object:
        """Remove the rules of earlier steps."""

        def change(route: Object) -> None:
            route["spec"]["rules"] = [rule for rule in route["spec"]["rules"] if rule.get("name") not in names]

        return update(self.call, f"{self.routes}/demo", change)


def conditions_at_parents(route: Mapping[str, Any], generation: int) -> Sequence[Mapping[str, str]]:
    """Return the status of each condition by type, for each parent; none while a condition is older than `generation`."""
    parents = (route.get("status") or {}).get("parents") or []
    current = all(one["observedGeneration"] >= generation for parent in parents for one in parent["conditions"])
    return [{one["type"]: one["status"] for one in parent["conditions"]} for parent in parents] if current else []


def is_programmed(found: Mapping[str, Any], generation: int) -> bool:
    """Return whether all proxies have a generation of a split or route, according to its status."""
    status = found.get("status") or {}
    is_route = found["kind"] == "HTTPRoute"
    entries, name = (status.get("parents"), PROGRAMMED_AT_PARENT) if is_route else ([status], "Programmed")
    conditions = [one for entry in entries or () for one in entry.get("conditions", ()) if one["type"] == name]
    return bool(conditions) and all(
        one["status"] == "True" and one["observedGeneration"] >= generation for one in conditions
    )
