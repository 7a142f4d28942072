"""Build the objects that the tests of the Gateway API apply, as JSON text, and parts of them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.e2e.running_mesh import RunningMesh
from tests.waiting import until
from tests.wire import Address

GROUP = "gateway.networking.k8s.io"


def web_listener(name: str = "http", hostname: str = "", **more: Any) -> Mapping[str, Any]:
    """Return an HTTP listener; `more` adds or replaces fields."""
    return {"name": name, "port": PORT, "protocol": "HTTP", **({"hostname": hostname} if hostname else {}), **more}


def edge_gateway(*listeners: Mapping[str, Any], name: str = "edge", **spec: Any) -> str:
    """Return a Gateway, by default with one HTTP listener; `spec` are further fields."""
    content = {"gatewayClassName": "headgate", "listeners": listeners or (web_listener(),), **spec}
    return gateway_api_object("Gateway", name, content)


def edge_route(
    name: str,
    *rules: Mapping[str, Any],
    hosts: Sequence[str] = (),
    parent: Mapping[str, Any] | None = None,
    kind: str = "HTTPRoute",
) -> str:
    """Return a route of the Gateway `edge`; `parent` adds or replaces fields of the parentRef."""
    spec = {"parentRefs": [{"name": "edge", **(parent or {})}], "hostnames": list(hosts), "rules": list(rules)}
    return gateway_api_object(kind, name, spec)


def rule_of(*backends: str, port: int = 8080, **more: Any) -> Mapping[str, Any]:
    """Return a rule with backends `NAME` or `NAME:WEIGHT`; `more` are further fields."""
    named = [backend.partition(":") for backend in backends]
    return {
        "backendRefs": [{"name": name, "port": port, "weight": int(weight or 1)} for name, _, weight in named]
    } | more


def path(value: str, kind: str = "PathPrefix", **more: Any) -> Mapping[str, Any]:
    """Return a match of a path; `more` are further fields."""
    return {"path": {"type": kind, "value": value}, **more}


def fields(**values: str) -> Sequence[Mapping[str, str]]:
    """Return names and values as a list of objects, for header matches and header changes; `_` stands for `-`."""
    return [{"name": name.replace("_", "-"), "value": value} for name, value in values.items()]


def route_grant(name: str, source: str, *, kind: str = "HTTPRoute", to: str = "Service", only: str = "") -> str:
    """Return a ReferenceGrant that lets objects of `kind` in the namespace `source` refer to objects of the kind `to`.

    `only` restricts the grant to the object with this name.
    """
    origin = {"group": GROUP, "kind": kind, "namespace": source}
    target = {"group": "", "kind": to, **({"name": only} if only else {})}
    return gateway_api_object("ReferenceGrant", name, {"from": [origin], "to": [target]})


def change(kind: str, **content: Any) -> Mapping[str, Any]:
    """Return a filter, for example of the kind `RequestRedirect`."""
    field = {"URLRewrite": "urlRewrite"}.get(kind, kind[0].lower() + kind[1:])
    return {"type": kind, field: content}


def redirect(prefix: str, **content: Any) -> Mapping[str, Any]:
    """Return a rule that redirects requests with a prefix of the path."""
    return {"matches": [path(prefix)], "filters": [change("RequestRedirect", **content)]}


def path_modifier(kind: str, value: str) -> Mapping[str, str]:
    """Return a path modifier of a redirect or rewrite; it replaces the matched prefix or the whole path."""
    field = {"ReplacePrefixMatch": "replacePrefixMatch", "ReplaceFullPath": "replaceFullPath"}[kind]
    return {"type": kind, field: value}


CHANGED = "x-header"  # the prefix of the names of the headers that tests change
MODIFIED = change(
    "RequestHeaderModifier",
    set=fields(X_Header_Set="set"),
    add=fields(X_Header_Add="added", X_Header_Append="appended"),
    remove=["X-Header-Remove"],
)
SENT = {"x_header_remove": "old", "x_header_append": "old", "x_header_set": "old"}
RECEIVED = {"x-header-set": "set", "x-header-add": "added", "x-header-append": "old,appended"}
"""The headers that a backend receives if a client sends the headers `SENT` and the filter `MODIFIED` changes them."""


GROUP = "gateway.networking.k8s.io"
PORT = 18080


def gateway_for_hosts(*hostnames: str) -> str:
    listeners = [
        {"name": f"l{index}", "port": PORT, "protocol": "HTTP"} | ({"hostname": hostname} if hostname else {})
        for index, hostname in enumerate(hostnames or ("",))
    ]
    return gateway_api_object("Gateway", "edge", {"gatewayClassName": "headgate", "listeners": listeners})


def gateway_with_listener(listener: Mapping[str, Any]) -> str:
    return gateway_api_object(
        "Gateway", "edge", {"gatewayClassName": "headgate", "listeners": [{"port": PORT, **listener}]}
    )


def route_of_gateway(
    *rules: Mapping[str, Any], name: str = "route", hosts: Sequence[str] = (), parent: Mapping[str, Any] | None = None
) -> str:
    spec = {"parentRefs": [parent or {"name": "edge"}], "hostnames": list(hosts), "rules": list(rules)}
    return gateway_api_object("HTTPRoute", name, spec)


def gateway_api_object(kind: str, name: str, spec: Mapping[str, Any], version: str = "v1") -> str:
    return json.dumps({"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": {"name": name}, "spec": spec})


def rule_to(*backends: str, path: str = "/", **more: Any) -> Mapping[str, Any]:
    """Return a rule; backends are `name` or `name:weight`."""
    refs = [{"name": name, "port": 8080, "weight": int(weight or 1)} for name, _, weight in _parts(backends)]
    return {"matches": [{"path": {"value": path}}], "backendRefs": refs, **more}


def _parts(backends: Sequence[str]) -> Sequence[tuple[str, str, str]]:
    return [backend.partition(":") for backend in backends]


def gateway_address(mesh: RunningMesh, namespace: str) -> Address:
    """Wait for the Gateway's address; return it with the port."""

    def address() -> Any:
        return mesh.get("gateway/edge", namespace)["status"]["addresses"][0]["value"]

    found = until(address, "the gateway's address")
    mesh.settle()
    return Address(found, PORT)
