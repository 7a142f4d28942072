"""Build the objects that the tests of the Gateway API apply, as JSON text, and parts of them."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.e2e.running_mesh import RunningMesh
from tests.make import objects
from tests.make.objects import Object, manifest
from tests.waiting import until
from tests.wire import Address

PORT = 18080


def gateway_api_object(kind: str, name: str, spec: Mapping[str, Any], version: str = "v1") -> str:
    """Return an object of the Gateway API that names no namespace."""
    return manifest(objects.obj(kind, name, namespace="", version=f"{objects.GATEWAY_API}/{version}", spec=dict(spec)))


def web_listener(name: str = "http", hostname: str = "", **more: Any) -> Object:
    """Return an HTTP listener; `more` adds or replaces fields."""
    return objects.listener(**{"number": PORT, "name": name, **({"hostname": hostname} if hostname else {}), **more})


def edge_gateway(*listeners: Mapping[str, Any], name: str = "edge", **spec: Any) -> str:
    """Return a Gateway, by default with one HTTP listener; `spec` has further fields."""
    return manifest(objects.gateway(name, *(listeners or (web_listener(),)), namespace="", **spec))


def gateway_for_hosts(*hostnames: str) -> str:
    """Return a Gateway with a listener for each host, by default one for all hosts."""
    return edge_gateway(*(web_listener(f"l{index}", host) for index, host in enumerate(hostnames or ("",))))


def gateway_address(mesh: RunningMesh, namespace: str) -> Address:
    """Wait for the address of the Gateway `edge`; return it with the port of its listener."""

    def address() -> Any:
        return mesh.get("gateway/edge", namespace)["status"]["addresses"][0]["value"]

    host = until(address, "the gateway's address")
    mesh.settle()
    return Address(host, PORT)


def edge_route(
    name: str,
    *rules: Mapping[str, Any],
    hosts: Sequence[str] = (),
    parent: Mapping[str, Any] | None = None,
    kind: str = "HTTPRoute",
) -> str:
    """Return a route of the Gateway `edge`; `parent` adds or replaces fields of the parentRef."""
    parents = [{"name": "edge", **(parent or {})}]
    return manifest(objects.route(name, *rules, parents=parents, kind=kind, hostnames=list(hosts), namespace=""))


def rule_of(*backends: str, port: int = 8080, **more: Any) -> Object:
    """Return a rule with backends `NAME` or `NAME:WEIGHT`; `more` has further fields."""
    named = [backend.partition(":") for backend in backends]
    return objects.rule({name: int(weight or 1) for name, _, weight in named}, port=port, **more)


def rule_to(*backends: str, path: str = "/", **more: Any) -> Object:
    """Return a rule for a path; backends are `NAME` or `NAME:WEIGHT`."""
    return rule_of(*backends, **{"matches": [{"path": {"value": path}}], **more})


def path(value: str, kind: str = "PathPrefix", **more: Any) -> Mapping[str, Any]:
    """Return a match of a path; `more` has further fields."""
    return {"path": {"type": kind, "value": value}, **more}


def fields(**values: str) -> Sequence[Mapping[str, str]]:
    """Return names and values as a list of objects, for header matches and header changes; `_` stands for `-`."""
    return [{"name": name.replace("_", "-"), "value": value} for name, value in values.items()]


def route_grant(name: str, source: str, *, kind: str = "HTTPRoute", to: str = "Service", only: str = "") -> str:
    """Return a ReferenceGrant that lets objects of `kind` in the namespace `source` refer to objects of the kind `to`.

    `only` restricts the grant to the object with this name.
    """
    return manifest(objects.grant(name, (objects.GATEWAY_API, kind, source), ("", to), only=only, namespace=""))


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
