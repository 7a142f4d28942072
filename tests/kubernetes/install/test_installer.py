"""Which parts of an installation depend on the API server: on its version, and on whether it answers."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from headgate.errors import NotFound, Unavailable
from headgate.kubernetes.install import installer
from headgate.kubernetes.install.installer import Installer
from headgate.kubernetes.install.manifests import Values, manifests
from headgate.resources.meta import timestamp
from headgate.resources.schema.builders import RULES

INSPECT = "v1beta1.inspect.headgate.dev"
RESOURCES = [{"name": "customresourcedefinitions", "kind": "CustomResourceDefinition", "namespaced": False}]


class FakeCluster:
    """An API server of this minor version of Kubernetes 1, without headgate, that records what is applied."""

    def __init__(self, minor: str) -> None:
        self.minor = minor
        self.applied: list[Any] = []

    async def get(self, path: str) -> Any:
        if path == "/version":
            return {"major": "1", "minor": self.minor}
        if path == "/apis/apiextensions.k8s.io/v1":
            return {"resources": RESOURCES}
        raise NotFound(path)

    async def apply(self, _path: str, obj: Any, *, manager: str) -> Any:
        self.applied.append(obj)
        return {**obj, "metadata": {**obj["metadata"], "manager": manager}}


@pytest.mark.parametrize(("minor", "expected"), [("20", False), ("24", False), ("25", True), ("31+", True)])
async def test_definitions_have_rules_if_the_api_server_evaluates_them(minor: str, expected: bool) -> None:
    """API servers before Kubernetes 1.25 reject an applied definition with rules."""
    definitions = [obj for obj in manifests(Values(image="headgate:1")) if obj["kind"] == "CustomResourceDefinition"]
    cluster = FakeCluster(minor)
    outcomes = [outcome async for _, outcome in Installer(cluster).apply(definitions)]  # type: ignore[arg-type]
    assert outcomes == ["created"] * len(definitions)
    assert (RULES in str(cluster.applied)) is expected
    assert (cluster.applied == definitions) is expected


class StartingCluster:
    """An API server that gives these answers, one after the other; errors are raised. `requested` has the last words of the paths.

    `replaced` has the pods of the control plane at each of the first requests for pods; later there are none.
    """

    def __init__(self, *answers: Any, replaced: Sequence[Any] = ()) -> None:
        self.requested: list[str] = []
        self._answers: Iterator[Any] = iter(answers)
        self._replaced = iter(replaced)

    async def get(self, path: str, **_parameters: str) -> Any:
        if path.endswith("/pods"):
            return {"items": next(self._replaced, ())}
        self.requested.append(path.rpartition("/")[2])
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_the_wait_continues_while_the_api_server_fails_or_does_not_serve_the_api_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(installer, "POLL_S", 0)
    counts = {"updatedReplicas": 2, "replicas": 2, "readyReplicas": 2, "observedGeneration": 1}
    ready = {"metadata": {"generation": 1}, "spec": {"replicas": 2}, "status": counts}
    starting = {**ready, "status": {**counts, "readyReplicas": 1}}
    answers: tuple[Any, ...] = (
        Unavailable("restarts"),
        starting,
        ready,
        {"spec": {}},
        NotFound("not served"),
        ready,
        {"spec": {}},
        Unavailable("503"),
        ready,
        {"spec": {}},
        {"items": []},
    )
    cluster = StartingCluster(*answers)
    await Installer(cluster).wait_ready()  # type: ignore[arg-type]
    assert cluster.requested == ["headgate"] * 2 + ["headgate", INSPECT, "meshstatuses"] * 3


async def test_without_registered_apis_the_control_plane_is_ready_when_its_pods_are() -> None:
    counts = {"updatedReplicas": 2, "replicas": 2, "readyReplicas": 2, "observedGeneration": 1}
    ready = {"metadata": {"generation": 1}, "spec": {"replicas": 2}, "status": counts}
    cluster = StartingCluster(ready, NotFound("no APIService"))
    await Installer(cluster).wait_ready()  # type: ignore[arg-type]
    assert cluster.requested == ["headgate", INSPECT]


async def test_replicas_of_the_installation_before_are_awaited_because_they_may_still_answer_webhook_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(installer, "POLL_S", 0)
    counts = {"updatedReplicas": 1, "replicas": 1, "readyReplicas": 1, "observedGeneration": 1}
    ready = {"metadata": {"generation": 1}, "spec": {"replicas": 1}, "status": counts}
    serving = {"metadata": {"name": "headgate-1"}, "status": {"containerStatuses": [{"state": {"running": {}}}]}}
    ending = {**serving, "metadata": {"name": "headgate-0", "deletionTimestamp": timestamp(time.time() + 30)}}
    ended = {**ending, "status": {"containerStatuses": [{"state": {"terminated": {"exitCode": 0}}}]}}
    on_a_dead_node = {**serving, "metadata": {"name": "headgate-0", "deletionTimestamp": timestamp(time.time() - 1)}}
    replaced = [[serving, ending], [serving, ending], [serving, ended, on_a_dead_node]]
    cluster = StartingCluster(*[ready] * 3, NotFound("no APIService"), replaced=replaced)
    await Installer(cluster).wait_ready()  # type: ignore[arg-type]
    assert cluster.requested == ["headgate"] * 3 + [INSPECT]


class EndingCluster:
    """An API server with an installation. Each object that `gone` names is deleted between its read and the request about it."""

    def __init__(self, *gone: str) -> None:
        self.gone = gone
        self.removed: list[str] = []

    async def get(self, path: str, **_query: str) -> Any:
        kinds = {
            **{kind: plural for _, plural, kind in installer._PRUNED},
            **{obj["kind"]: f"{obj['kind'].lower()}s" for obj in manifests(Values(image="headgate:1"))},
        }
        if path.startswith("/api/v1/configmaps"):
            return {"items": [{"metadata": {"namespace": name, "name": "roots"}} for name in ("ending", "shop")]}
        if path.endswith(("/v1", "/v1beta1")):
            return {"resources": [{"name": kinds[kind], "kind": kind, "namespaced": False} for kind in kinds]}
        if path.endswith("/roles"):
            return {"items": [{"metadata": {"name": "of-an-option"}}]}
        if "/apiservices/" in path:
            return {"spec": {"service": {"namespace": "headgate-system", "name": "headgate"}}}
        if path.endswith(("roles", "rolebindings", "/apiservices", "/daemonsets", "/serviceaccounts")):
            return {"items": []}
        if "/customresourcedefinitions/" in path:
            ending = {"name": path.rpartition("/")[2], "deletionTimestamp": "2026-01-01T00:00:00Z"}
            return {"metadata": ending, "spec": {"conversion": {"strategy": "Webhook"}}}
        raise NotFound(path)

    async def remove(self, path: str, _options: Any) -> None:
        if any(f"/{name}/" in path for name in self.gone):
            raise NotFound(path)
        self.removed.append(path)

    async def merge(self, path: str, _patch: Any) -> Any:
        raise NotFound(path)


async def test_an_uninstallation_removes_webhooks_that_fail_closed_before_the_control_plane_and_its_permissions() -> (
    None
):
    cluster = EndingCluster("ending")
    objects = [obj for obj in manifests(Values(image="headgate:1")) if obj["kind"] != "CustomResourceDefinition"]
    async for _ in Installer(cluster).delete_installation(objects):  # type: ignore[arg-type]
        pass
    first = [path.rpartition("/")[0].rpartition("/")[2] for path in dict.fromkeys(cluster.removed)]
    order = ["mutatingwebhookconfigurations", "deployments", "clusterroles", "namespaces"]
    assert sorted(order, key=first.index) == order
    webhooks = next(number for number, path in enumerate(cluster.removed) if "mutatingwebhook" in path)
    assert cluster.removed.index("/apis/rbac.authorization.k8s.io/v1/roles/of-an-option") > webhooks
    assert "/api/v1/namespaces/shop/configmaps/headgate-roots" in cluster.removed  # although another one was gone


async def test_a_definition_that_is_gone_in_the_meantime_is_not_unblocked() -> None:
    definitions = [obj for obj in manifests(Values(image="headgate:1")) if obj["kind"] == "CustomResourceDefinition"]
    unblocked = Installer(EndingCluster()).unblock_deletion(definitions)  # type: ignore[arg-type]
    assert [outcome async for _, outcome in unblocked] == []
