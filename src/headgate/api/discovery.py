"""Discovery of groups, versions and resources, in the plain form and in the aggregated form (v2, v2beta1)."""

import platform
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

import headgate
from headgate.api import responses
from headgate.api.computed_groups import COMPUTED_GROUPS, api_resource
from headgate.api.self_subject_reviews import REVIEWS
from headgate.api.status import ApiError, no_such_path
from headgate.resources.kind import ServedKind, api_version
from headgate.resources.kind_set import KindSet
from headgate.resources.registry import BUILT_IN

_AGGREGATED = "APIGroupDiscoveryList"
_CHANGES = ("get", "patch", "update")
_STREAMED = {"exec": "PodExecOptions", "attach": "PodAttachOptions", "portforward": "PodPortForwardOptions"}
_UNSTORED = (*(review[:2] for review in REVIEWS), *COMPUTED_GROUPS)
"""Groups and versions whose objects are not stored."""


def version() -> dict[str, Any]:
    """Return the server's version for `kubectl version`: the Kubernetes version whose rules headgate follows."""
    return {
        "major": "1",
        "minor": "30",
        "gitVersion": headgate.KUBERNETES_VERSION,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": platform.python_implementation(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


def root(kinds: KindSet = BUILT_IN) -> dict[str, Any]:
    """Return the paths of the API for `/`."""
    paths = ["/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
    paths += [f"/api/{version}" for version in kinds.groups[""]]
    paths += [f"/apis/{api_version(group, version)}" for group in _named(kinds) for version in _versions(group, kinds)]
    return {"paths": sorted(paths)}


def answer_groups(
    request: Request, *, core: bool = False, only: Sequence[str] = (), kinds: KindSet = BUILT_IN
) -> Response:
    """Answer a request for /api (`core`) or /apis in the plain or the aggregated form. Raises ApiError 406.

    `only` has the groups to include; all groups if it is empty.
    """
    form = responses.negotiate(request.headers.get("accept", ""), (_AGGREGATED,))
    if form.shape:
        response = responses.json_response(_aggregated(form.version, [""] if core else only or _named(kinds), kinds))
        shape = f"g=apidiscovery.k8s.io;v={form.version};as={_AGGREGATED}"  # clients recognize aggregated discovery by this media type
        response.headers["content-type"] = f"{responses.JSON};{shape}"
        return response
    if core:
        return responses.json_response(
            {"kind": "APIVersions", "versions": list(kinds.groups[""]), "serverAddressByClientCIDRs": []}
        )
    listed = [_group(group, kinds) for group in only or _named(kinds)]
    return responses.json_response({"kind": "APIGroupList", "apiVersion": "v1", "groups": listed})


def group(name: str, kinds: KindSet = BUILT_IN) -> dict[str, Any]:
    """Return the response for /apis/GROUP. Raises ApiError 404."""
    if name not in _named(kinds):
        raise no_such_path()
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, kinds)}


def resource_list(group: str, version: str, kinds: KindSet = BUILT_IN) -> dict[str, Any]:
    """Return the response for /api/VERSION or /apis/GROUP/VERSION. Raises ApiError 404."""
    rows = [row for served in kinds.groups.get(group, {}).get(version, ()) for row in _rows(served)]
    rows += [
        api_resource(plural, kind, ["create"], namespaced=False, singular=kind.lower())
        for (*served, plural), kind in REVIEWS.items()
        if served == [group, version]
    ]
    if computed := COMPUTED_GROUPS.get((group, version)):
        rows += computed.resources()
    if not rows:
        raise no_such_path()
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version(group, version),
        "resources": rows,
    }


def _aggregated(api: str, names: Sequence[str], kinds: KindSet) -> dict[str, Any]:
    """Return all resources of the groups `names` in the aggregated form of version `api`. Raises ApiError 406."""
    if api not in ("v2", "v2beta1"):
        raise ApiError(406, f"apidiscovery.k8s.io/{api} is not supported; accept v2 or v2beta1")
    return {
        "kind": _AGGREGATED,
        "apiVersion": f"apidiscovery.k8s.io/{api}",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": name} if name else {},
                "versions": [
                    {"version": version, "freshness": "Current", "resources": _aggregated_rows(name, version, kinds)}
                    for version in _versions(name, kinds)
                ],
            }
            for name in names
        ],
    }


def _named(kinds: KindSet) -> list[str]:
    """Return all groups except the core group. kubectl looks up a name such as `pods` in the groups in this order."""
    return [*(name for name in kinds.groups if name), *dict.fromkeys(group for group, *_ in _UNSTORED)]


def _versions(group: str, kinds: KindSet) -> list[str]:
    return list(kinds.groups.get(group, {})) or list(dict.fromkeys(v for g, v in _UNSTORED if g == group))


def _group(name: str, kinds: KindSet) -> dict[str, Any]:
    versions = [{"groupVersion": api_version(name, version), "version": version} for version in _versions(name, kinds)]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _rows(served: ServedKind) -> list[dict[str, Any]]:
    kind = served.kind
    row = api_resource(served.plural, kind.kind, served.verbs, namespaced=kind.namespaced, singular=_singular(served))
    row |= {"shortNames": list(served.short)} if served.short else {}
    row |= {"categories": list(served.categories)} if served.categories else {}
    return [row, *(_subresource(served, name) for name in served.subresources)]


def _singular(served: ServedKind) -> str:
    lowered = served.kind.kind.lower()
    return lowered if served.group == served.kind.group else f"bare{lowered}"


def _subresource(served: ServedKind, name: str) -> dict[str, Any]:
    row = api_resource(f"{served.plural}/{name}", served.kind.kind, _CHANGES, namespaced=served.kind.namespaced)
    if name == "scale":
        return {**row, "group": "autoscaling", "version": "v1", "kind": "Scale"}
    if name == "eviction":  # clients send an Eviction of this version
        return {**row, "group": "policy", "version": "v1", "kind": "Eviction", "verbs": ["create"]}
    if name in _STREAMED:
        return {**row, "kind": _STREAMED[name], "verbs": ["create", "get"]}
    return {**row, "verbs": ["get"]} if name == "log" else row


def _aggregated_rows(group: str, version: str, kinds: KindSet) -> list[dict[str, Any]]:
    computed = COMPUTED_GROUPS.get((group, version))
    rows: dict[str, dict[str, Any]] = {}
    for row in computed.aggregated() if computed else resource_list(group, version, kinds)["resources"]:
        parent, _, subresource = row["name"].partition("/")
        kind = {"group": row.get("group", group), "version": row.get("version", version), "kind": row["kind"]}
        scope = "Namespaced" if row["namespaced"] else "Cluster"
        resource = rows.setdefault(parent, {"resource": parent, "scope": scope, "verbs": [], "subresources": []})
        if subresource:
            resource["subresources"].append({"subresource": subresource, "responseKind": kind, "verbs": row["verbs"]})
        else:
            resource |= {
                "responseKind": kind,
                "singularResource": row["singularName"],
                "verbs": row["verbs"],
                "shortNames": row.get("shortNames", []),
                "categories": row.get("categories", []),
            }
    return list(rows.values())
