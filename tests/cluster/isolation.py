"""Keeps the modules apart that share an API server: what a module creates is removed, and what it changes is an error."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.cluster.api_server import MERGE, READY_S, KubeApiServer
from tests.waiting import until

_DEFINING = {
    "admissionregistration.k8s.io": ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
    "apiextensions.k8s.io": ("customresourcedefinitions",),
    "apiregistration.k8s.io": ("apiservices",),
    "rbac.authorization.k8s.io": ("clusterroles", "clusterrolebindings", "roles", "rolebindings"),
}
"""The resources that decide how the API server treats requests of all modules. Each module has to restore them itself."""
_ROLES = ("/apis/rbac.authorization.k8s.io/v1", "roles"), ("/apis/rbac.authorization.k8s.io/v1", "rolebindings")
_OF_SERVER = {"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NAMESPACES = "/api/v1/namespaces"
_KEPT = "/api/v1/namespaces/headgate-system/secrets/headgate-ca"
"""The keys of the mesh's authority: a new one changes all definitions, which costs seconds of processor time."""

Definitions = Mapping[str, Any]


class Leftovers:
    """Finds what has been created on an API server since `contents` was read."""

    def __init__(self, server: KubeApiServer) -> None:
        self._server = server
        self._collections = sorted(_collections(server))
        self._before = self.contents()

    def contents(self) -> set[str]:
        """Return the paths of all objects that do not define anything for other modules."""
        return {
            _path(version, resource, item["metadata"])
            for version, resource in self._collections
            for item in self._server.call("GET", f"{version}/{resource}")[1].get("items", ())
        }

    def remove(self) -> None:
        """Delete what is new, and end namespaces as Kubernetes' controller does, which does not run here."""
        new = self.contents() - self._before - {_KEPT}
        namespaces = {path for path in new if path.rpartition("/")[0] == _NAMESPACES}
        for path in (*namespaces, *(new - namespaces)):
            status, answer = self._server.call("DELETE", path, {"gracePeriodSeconds": 0})
            assert status in {200, 202, 404, 409}, (path, answer)
        for path in namespaces:
            status, ending = self._server.call("GET", path)
            if status == 200:
                status, answer = self._server.call("PUT", f"{path}/finalize", {**ending, "spec": {"finalizers": []}})
                assert status in {200, 404}, answer
        left = self.contents() - self._before - {_KEPT}
        assert not left, f"objects that can't be deleted: {sorted(left)}"


@contextmanager
def emptied(server: KubeApiServer, leftovers: Leftovers) -> Iterator[None]:
    """Remove all objects that the `with` block creates, with webhooks, definitions and roles."""
    before = definitions(server)
    yield
    new = definitions(server).keys() - before
    for path in new:
        _delete_defining(server, path)
    leftovers.remove()
    for path in new:
        while server.call("GET", path)[0] != 404:
            time.sleep(0.1)  # the API server removes a definition after its objects


def remove_definition(server: KubeApiServer, name: str) -> None:
    """Delete a definition with its objects, which no replica converts; wait until it is gone."""
    path = f"{DEFINITIONS}/{name}"
    _delete_defining(server, path)
    until(lambda: server.call("GET", path)[0] == 404, f"the end of {name}", READY_S)


def _delete_defining(server: KubeApiServer, path: str) -> None:
    if path.startswith(DEFINITIONS):  # a webhook that does not answer would stop the deletion
        server.call("PATCH", path, {"spec": {"conversion": None}}, content_type=MERGE)
    status, answer = server.call("DELETE", path)
    assert status in {200, 404}, answer  # the API server deletes the APIServices of a definition


@contextmanager
def isolated(server: KubeApiServer, leftovers: Leftovers) -> Iterator[None]:
    """Remove the objects that the `with` block creates. Assert that it leaves webhooks, definitions and roles as they were."""
    before = definitions(server)
    server.audit_log.restart()
    yield
    leftovers.remove()
    after = definitions(server)
    changed = sorted(path for path in before.keys() | after if before.get(path) != after.get(path))
    assert not changed, f"left changed by this module: {changed}"


def definitions(server: KubeApiServer) -> Definitions:
    """Return the content of the objects that define something for other modules, by path."""
    return {
        _path(f"/apis/{group}/v1", resource, item["metadata"]): _content(item)
        for group, resources in _DEFINING.items()
        for resource in resources
        for item in server.call("GET", f"/apis/{group}/v1/{resource}")[1]["items"]
        if resource != "apiservices"
        or item["spec"].get("service")  # the API server itself writes those of its own groups
    }


def _content(obj: Any) -> Any:
    """Return an object without what the API server and the control plane write: its status and CA bundles."""
    if isinstance(obj, dict):
        dropped = {"status", "caBundle"} | _OF_SERVER
        return {name: _content(value) for name, value in obj.items() if name not in dropped}
    return [_content(value) for value in obj] if isinstance(obj, list) else obj


def _collections(server: KubeApiServer) -> Iterator[tuple[str, str]]:
    """Yield the paths of API versions and the resources in them whose objects can be listed and deleted."""
    yield from _ROLES  # those of namespaces
    groups = server.call("GET", "/apis")[1]["groups"]
    chosen = [group for group in groups if group["name"] not in _DEFINING]
    for version in ("/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in chosen)):
        status, listed = server.call("GET", version)
        for resource in listed["resources"] if status == 200 else ():  # not of an aggregated API: no server answers
            if {"list", "delete"} <= {*resource["verbs"]} and "/" not in resource["name"]:
                yield version, resource["name"]


def _path(version: str, resource: str, metadata: Mapping[str, Any]) -> str:
    inside = f"/namespaces/{metadata['namespace']}" if metadata.get("namespace") else ""
    return f"{version}{inside}/{resource}/{metadata['name']}"
