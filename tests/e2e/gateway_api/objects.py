"""Build the objects that the tests of the Gateway API apply, as JSON text, and parts of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.e2e.test_routes import PORT, gateway_api_object

GROUP = "gateway.networking.k8s.io"


def listener(name: str = "http", hostname: str = "", **more: Any) -> Mapping[str, Any]:
    """Return an HTTP listener; `more` adds or replaces fields."""
    return {"name": name, "port": PORT, "protocol": "HTTP", **({"hostname": hostname} if hostname else {}), **more}


def gateway(*listeners: Mapping[str, Any], name: str = "edge", **spec: Any) -> str:
    """Return a Gateway, by default with one HTTP listener; `spec` are further fields."""
    content = {"gatewayClassName": "headgate", "listeners": listeners or (listener(),), **spec}
    return gateway_api_object("Gateway", name, content)


def route(
    name: str,
    *rules: Mapping[str, Any],
    hosts: Sequence[str] = (),
    parent: Mapping[str, Any] | None = None,
    kind: str = "HTTPRoute",
) -> str:
    """Return a route of the Gateway `edge`; `parent` adds or replaces fields of the parentRef."""
    spec = {"parentRefs": [{"name": "edge", **(parent or {})}], "hostnames": list(hosts), "rules": list(rules)}
    return gateway_api_object(kind, name, spec)


def rule(*backends: str, port: int = 8080, **more: Any) -> Mapping[str, Any]:
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


def grant(name: str, source: str, *, kind: str = "HTTPRoute", to: str = "Service", only: str = "") -> str:
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
