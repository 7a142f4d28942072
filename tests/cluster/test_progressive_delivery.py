"""The writes of Flagger and Argo Rollouts pass a real API server: schemas, conversion and headgate's validation."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.api_server import KubeApiServer
from tests.cluster.replica import serving, wait_for
from tests.delivery import ArgoRoute, ArgoSplit, FlaggerRoute, FlaggerSplit, Object

NEWEST = "/apis/split.smi-spec.io/v1alpha4/namespaces"


@pytest.fixture(scope="module")
def served(cluster: KubeApiServer) -> Iterator[KubeApiServer]:
    """An API server with a replica of the control plane."""
    with serving(cluster):
        yield cluster


class AssertingWriter:
    """Calls the API and asserts success, as `tests.delivery` expects it."""

    def __init__(self, cluster: KubeApiServer) -> None:
        self.cluster = cluster

    def __call__(self, method: str, path: str, body: Any = None, content: str = "application/json") -> Any:
        status, answer = self.cluster.call(method, path, body, content_type=content)
        assert status < 300, f"{method} {path}: {status} {answer}"
        return answer

    def weights(self, namespace: str, name: str) -> dict[str, int]:
        """Return the weights of a split in the newest version, whatever version it was written in."""
        found = self("GET", f"{NEWEST}/{namespace}/trafficsplits/{name}")
        return {backend["service"]: backend["weight"] for backend in found["spec"]["backends"]}

    def acknowledged(self, path: str, written: Object) -> None:
        """Wait until the status is about the generation that was written."""

        def current() -> bool:
            status = self("GET", path).get("status") or {}
            parents = [condition for parent in status.get("parents", ()) for condition in parent["conditions"]]
            generations = {one.get("observedGeneration") for one in (status, *parents)} - {None}
            return generations == {written["metadata"]["generation"]}

        wait_for(current, self.cluster.root / "replica.log")


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2", "v1alpha3"])
def test_splits_are_accepted_converted_and_acknowledged(served: KubeApiServer, version: str) -> None:
    write, namespace = AssertingWriter(served), f"smi-{version}"
    served.namespace(namespace)
    flagger = FlaggerSplit(write, namespace, version)
    flagger.create_services()
    flagger.create()
    written = flagger.set_weights(70, 30)
    assert flagger.weights() == (70, 30)
    assert write.weights(namespace, "podinfo") == {"podinfo-primary": 70, "podinfo-canary": 30}
    write.acknowledged(f"{flagger.splits}/podinfo", written)

    argo = ArgoSplit(write, namespace, version, root="demo")
    argo.create_services("demo", "demo-stable", "demo-canary")
    argo.create()
    argo.select("demo-canary", "bbbb")
    written = argo.set_weight(20)
    assert write.weights(namespace, "demo") == {"demo-stable": 80, "demo-canary": 20}
    write.acknowledged(f"{argo.splits}/demo", written)


def test_a_dry_run_validates_and_stores_nothing(served: KubeApiServer) -> None:
    write = AssertingWriter(served)
    served.namespace("dry")
    argo = ArgoSplit(write, "dry", "v1alpha1", root="demo")
    argo.splits += "?dryRun=All"
    argo.create()
    assert served.call("GET", f"{NEWEST}/dry/trafficsplits/demo")[0] == 404
    argo.root = "demo-stable"
    with pytest.raises(AssertionError, match="demo-stable is both the root and a backend"):  # R18
        argo.create()


def test_routes_are_accepted_and_acknowledged(served: KubeApiServer) -> None:
    write = AssertingWriter(served)
    served.namespace("routes")
    flagger = FlaggerRoute(
        write,
        "routes",
        {"group": "core", "kind": "Service", "name": "podinfo", "port": 9898},
        header="x-user",
        cookie="flagger-cookie",
    )
    flagger.create_services()
    flagger.create()
    written = flagger.set_weights(50, 50, mirrored=True)
    assert flagger.weights() == (50, 50, True)
    write.acknowledged(f"{flagger.routes}/podinfo", written)

    argo = ArgoRoute(write, "routes")
    argo.create_services("demo", "demo-stable", "demo-canary")
    argo.create({"group": "", "kind": "Service", "name": "demo"})
    argo.set_weight(20)
    argo.set_header_route("header", "x-canary", "yes")
    argo.set_mirror_route("mirror", "GET", 10)
    argo.remove_routes("header", "mirror")
    written = argo.set_weight(0)
    assert len(written["spec"]["rules"]) == 1
    write.acknowledged(f"{argo.routes}/demo", written)
