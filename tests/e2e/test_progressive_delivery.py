"""Flagger and Argo Rollouts move traffic: their writes take effect in Envoy and are acknowledged in the status."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from tests.delivery import (
    HASH,
    PORT,
    ArgoRoute,
    ArgoSplit,
    Flagger,
    FlaggerRoute,
    FlaggerSplit,
    Object,
    conditions_at_parents,
)
from tests.draws import fits
from tests.e2e.manifests import counting_deployment
from tests.e2e.running_mesh import RunningMesh
from tests.waiting import until
from tests.wire import Request

MANY = 1000


def run_pods(
    mesh: RunningMesh, namespace: str, name: str, labels: Mapping[str, str], *, with_sidecar: bool = False
) -> None:
    """Run a Deployment whose pods answer with its name; wait until it is available.

    Most tests need no sidecars, because the gateway selects the version.
    """
    made = json.loads(counting_deployment(name, mesh.root / f"{namespace}-{name}", labels=labels, ports={"http": PORT}))
    if not with_sidecar:
        made["spec"]["template"]["metadata"]["labels"]["headgate.dev/inject"] = "false"
    mesh.apply(json.dumps(made), namespace=namespace)
    until(lambda: mesh.get(f"deployment/{name}", namespace)["status"].get("availableReplicas") == 1, name)


def wait_for_pods(mesh: RunningMesh, namespace: str, **served: str) -> None:
    """Wait until only the pods of one Deployment answer clients of a Service.

    Proxies learn of the pods that a selector selects later than of a route. `served` has the Deployments by Service, in whose
    names `_` stands for `-`. Two requests reach two pods, if there are several.
    """
    for name, deployment in served.items():
        request = mesh.request(name.replace("_", "-"), PORT, namespace=namespace)
        until(lambda request=request, deployment=deployment: mesh.send(2, request) == {deployment: 2}, name)
    mesh.settle()


def flagger_pods(mesh: RunningMesh, flagger: Flagger, *, with_sidecars: bool = False) -> None:
    """Run the pods of the primary and the canary, and create the Services; wait until clients reach them."""
    for name in ("podinfo-primary", "podinfo"):
        run_pods(mesh, flagger.namespace, name, {"app": name}, with_sidecar=with_sidecars)
    flagger.create_services()
    wait_for_pods(mesh, flagger.namespace, podinfo_primary="podinfo-primary", podinfo_canary="podinfo")


def programmed(mesh: RunningMesh, split: Object) -> None:
    """Wait until all proxies have a written split, according to the status of the split."""
    name, namespace = split["metadata"]["name"], split["metadata"]["namespace"]
    mesh.conditions(name, namespace, Accepted="True", ResolvedRefs="True", Programmed="True")
    assert mesh.get(f"trafficsplit/{name}", namespace)["metadata"]["generation"] == split["metadata"]["generation"]


def attached(mesh: RunningMesh, route: Object) -> None:
    """Wait until all proxies have a written route, according to the conditions at the parents of the route."""
    name, metadata = f"httproute/{route['metadata']['name']}", route["metadata"]
    wanted = {"Accepted": "True", "ResolvedRefs": "True", "headgate.dev/Programmed": "True"}

    def state() -> bool:
        found = conditions_at_parents(mesh.get(name, metadata["namespace"]), metadata["generation"])
        assert [{kind: one[kind] for kind in wanted} for one in found] == [wanted], found
        return True

    until(state, f"the status of {name}")


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha3"])
def test_flagger_promotes_a_canary_by_a_split(mesh: RunningMesh, namespace: str, version: str) -> None:
    """Weights are quantities in v1alpha1, and numbers in v1alpha2, which v1alpha3 extends by `matches`."""
    flagger = FlaggerSplit(mesh.api.call, namespace, version)
    flagger_pods(mesh, flagger, with_sidecars=version == "v1alpha3")
    flagger.create()
    mesh.settle()
    request = mesh.request("podinfo", PORT, namespace=namespace)
    until(lambda: mesh.send(1, request) == {"podinfo-primary": 1})
    for canary in (10, 30, 50):
        with mesh.load(request) as load:
            programmed(mesh, flagger.set_weights(100 - canary, canary))
        assert load.counts.keys() <= {"podinfo-primary", "podinfo"}  # no request failed
        assert mesh.send(100, request) == {"podinfo-primary": 100 - canary, "podinfo": canary}
    assert flagger.weights() == (50, 50)
    with mesh.load(request) as load:
        programmed(mesh, flagger.set_weights(100, 0))  # the primary has the canary's template by now
        assert mesh.send(50, request) == {"podinfo-primary": 50}
        mesh.patch("deployment/podinfo", {"spec": {"replicas": 0}}, namespace)
        until(lambda: len(mesh.get("pods", namespace)["items"]) == 1)
    assert load.counts.keys() <= {"podinfo-primary", "podinfo"}
    assert mesh.send(50, request) == {"podinfo-primary": 50}


def test_flagger_returns_all_traffic_to_the_primary_when_the_canary_has_no_pods(
    mesh: RunningMesh, namespace: str
) -> None:
    """D9: the canary's pods end before Flagger has changed the weights."""
    flagger = FlaggerSplit(mesh.api.call, namespace, "v1alpha3")
    flagger_pods(mesh, flagger)
    flagger.create()
    programmed(mesh, flagger.set_weights(50, 50))
    request = mesh.request("podinfo", PORT, namespace=namespace)
    with mesh.load(request) as load:
        mesh.patch("deployment/podinfo", {"spec": {"replicas": 0}}, namespace)
        mesh.conditions("podinfo", namespace, BackendsReady="NoReadyEndpoints")
        mesh.settle()
        assert mesh.send(20, request) == {"podinfo-primary": 20}
        programmed(mesh, flagger.set_weights(100, 0))
    assert load.counts.keys() <= {"podinfo-primary", "podinfo"}


def flagger_parent(namespace: str) -> Object:
    """Return Flagger's `gatewayRefs` for a mesh, as its guide writes them."""
    return {"group": "core", "kind": "Service", "namespace": namespace, "name": "podinfo", "port": PORT}


def test_flagger_promotes_a_canary_by_a_route_of_the_service(mesh: RunningMesh, namespace: str) -> None:
    flagger = FlaggerRoute(mesh.api.call, namespace, flagger_parent(namespace))
    flagger_pods(mesh, flagger)
    flagger.create()
    mesh.settle()
    request = mesh.request("podinfo", PORT, namespace=namespace)
    until(lambda: mesh.send(1, request) == {"podinfo-primary": 1})
    with mesh.load(request) as load:
        for canary in (10, 50):
            attached(mesh, flagger.set_weights(100 - canary, canary))
            counts = mesh.send(MANY, request)
            assert fits(counts["podinfo"], canary / 100, of=MANY), counts
        assert flagger.weights() == (50, 50, False)
        attached(mesh, flagger.set_weights(100, 0))
        assert mesh.send(50, request) == {"podinfo-primary": 50}
    assert load.counts.keys() <= {"podinfo-primary", "podinfo"}


def test_flagger_tests_a_new_version_with_some_users(mesh: RunningMesh, namespace: str) -> None:
    """An A/B test: requests with a header go to the canary, all other requests to the primary."""
    flagger = FlaggerRoute(mesh.api.call, namespace, flagger_parent(namespace), header="x-user")
    flagger_pods(mesh, flagger)
    flagger.create()
    insider = mesh.request("podinfo", PORT, namespace=namespace, headers={"x-user": "insider"})
    other = mesh.request("podinfo", PORT, namespace=namespace, headers={"x-user": "guest"})
    attached(mesh, flagger.set_weights(0, 100))
    assert mesh.send(20, insider) == {"podinfo": 20}
    assert mesh.send(20, other) == {"podinfo-primary": 20}
    attached(mesh, flagger.set_weights(100, 0))
    assert mesh.send(20, insider) == {"podinfo-primary": 20}


def test_flagger_mirrors_requests_before_the_switch(mesh: RunningMesh, namespace: str) -> None:
    """Blue-green: the canary gets a copy of each request (R44), then all requests, then none."""
    flagger = FlaggerRoute(mesh.api.call, namespace, flagger_parent(namespace))
    flagger_pods(mesh, flagger)
    flagger.create()
    request = mesh.request("podinfo", PORT, namespace=namespace)
    canary = mesh.root / f"{namespace}-podinfo"
    attached(mesh, flagger.set_weights(100, 0, mirrored=True))
    assert flagger.weights() == (100, 0, True)
    before = len(canary.read_bytes()) if canary.exists() else 0
    assert mesh.send(40, request) == {"podinfo-primary": 40}
    until(lambda: len(canary.read_bytes()) == before + 40, "40 copies")
    attached(mesh, flagger.set_weights(0, 100))
    assert mesh.send(20, request) == {"podinfo": 20}
    attached(mesh, flagger.set_weights(100, 0))
    assert mesh.send(20, request) == {"podinfo-primary": 20}
    assert len(canary.read_bytes()) == before + 60


def test_flagger_keeps_a_user_at_the_canary_by_a_cookie(mesh: RunningMesh, namespace: str) -> None:
    flagger = FlaggerRoute(mesh.api.call, namespace, flagger_parent(namespace), cookie="flagger-cookie")
    flagger_pods(mesh, flagger)
    flagger.create()
    attached(mesh, flagger.set_weights(50, 50))
    request = mesh.request("podinfo", PORT, namespace=namespace)
    answers = [mesh.ask(request) for _ in range(40)]
    cookies = {(answer.answered_by, answer.headers.get("set-cookie", "")) for answer in answers}
    cookie = "flagger-cookie=LpsIaLdoNZ"
    assert cookies == {("podinfo-primary", ""), ("podinfo", f"{cookie}; Max-Age=21600")}
    returning = mesh.request("podinfo", PORT, namespace=namespace, headers={"cookie": f"a=b; {cookie}"})
    assert mesh.send(20, returning) == {"podinfo": 20}


def hashed(value: str) -> Mapping[str, str]:
    return {"app": "demo", HASH: value}


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha3"])
def test_argo_rollouts_promotes_a_version_by_a_split(mesh: RunningMesh, namespace: str, version: str) -> None:
    """The selectors of the Services change during the rollout; no request fails or gets to another version."""
    argo = ArgoSplit(mesh.api.call, namespace, version, root="demo")
    argo.create_services("demo", "demo-stable", "demo-canary")
    has_sidecars = version == "v1alpha3"
    run_pods(mesh, namespace, "v1", hashed("aaaa"), with_sidecar=has_sidecars)
    for service in ("demo-stable", "demo-canary"):
        argo.select(service, "aaaa")
    wait_for_pods(mesh, namespace, demo_stable="v1", demo_canary="v1")
    argo.create()
    mesh.settle()
    request = mesh.request("demo", PORT, namespace=namespace)
    until(lambda: mesh.send(1, request) == {"v1": 1})

    with mesh.load(request) as load:  # the root selects both versions by now
        run_pods(mesh, namespace, "v2", hashed("bbbb"), with_sidecar=has_sidecars)
        argo.select("demo-canary", "bbbb")
        wait_for_pods(mesh, namespace, demo_canary="v2")
    assert load.counts == {"v1": load.sent}

    for weight in (20, 60, 100):
        with mesh.load(request) as load:
            programmed(mesh, argo.set_weight(weight))
        assert load.counts.keys() <= {"v1", "v2"}
        assert mesh.send(100, request) == {name: n for name, n in {"v1": 100 - weight, "v2": weight}.items() if n}

    with mesh.load(request) as load:  # fully promoted: v2 becomes the stable version
        argo.select("demo-stable", "bbbb")
        wait_for_pods(mesh, namespace, demo_stable="v2")
        programmed(mesh, argo.set_weight(0))
        mesh.delete("deployment/v1", namespace)
        until(lambda: len(mesh.get("pods", namespace)["items"]) == 1)
    assert load.counts == {"v2": load.sent}


def test_argo_rollouts_aborts_a_rollout(mesh: RunningMesh, namespace: str) -> None:
    argo = ArgoSplit(mesh.api.call, namespace, "v1alpha1", root="demo")
    argo.create_services("demo", "demo-stable", "demo-canary", "demo-experiment")
    for name, value in (("v1", "aaaa"), ("v2", "bbbb"), ("v3", "cccc")):
        run_pods(mesh, namespace, name, hashed(value))
    for service, value in (("demo-stable", "aaaa"), ("demo-canary", "bbbb"), ("demo-experiment", "cccc")):
        argo.select(service, value)
    wait_for_pods(mesh, namespace, demo_stable="v1", demo_canary="v2", demo_experiment="v3")
    argo.create()
    request = mesh.request("demo", PORT, namespace=namespace)
    programmed(mesh, argo.set_weight(30, **{"demo-experiment": 20}))
    assert mesh.send(100, request) == {"v1": 50, "v2": 30, "v3": 20}
    with mesh.load(request) as load:
        programmed(mesh, argo.set_weight(0))
        seen = load.sent
        until(lambda: load.sent > seen, "the end of a request in flight")
        before = Counter(load.counts)
        assert mesh.send(50, request) == {"v1": 50}
        for name in ("v2", "v3"):
            mesh.delete(f"deployment/{name}", namespace)
        until(lambda: len(mesh.get("pods", namespace)["items"]) == 1)
    assert load.counts - before == {"v1": load.counts["v1"] - before["v1"]}
    assert load.counts.keys() <= {"v1", "v2", "v3"}


def test_a_split_whose_root_is_the_stable_service_is_rejected_with_the_fix(mesh: RunningMesh, namespace: str) -> None:
    """R18: Argo Rollouts makes the stable Service the root when `rootService` is absent."""
    argo = ArgoSplit(mesh.api.call, namespace, "v1alpha1")
    with pytest.raises(AssertionError, match="demo-stable is both the root and a backend") as raised:
        argo.create()
    assert "Name a Service" in str(raised.value)


def test_argo_rollouts_moves_a_route_with_headers_and_mirrors(mesh: RunningMesh, namespace: str) -> None:
    argo = ArgoRoute(mesh.api.call, namespace)
    argo.create_services("demo", "demo-stable", "demo-canary")
    for name, value in (("v1", "aaaa"), ("v2", "bbbb")):
        run_pods(mesh, namespace, name, hashed(value))
    for service, value in (("demo-stable", "aaaa"), ("demo-canary", "bbbb")):
        argo.select(service, value)
    wait_for_pods(mesh, namespace, demo_stable="v1", demo_canary="v2")
    argo.create({"group": "", "kind": "Service", "name": "demo"})

    def request(method: str = "GET", **headers: str) -> Request:
        more: dict[str, Any] = {"headers": headers}
        return mesh.request("demo", PORT, namespace=namespace, **more)

    attached(mesh, argo.set_weight(0))
    canary = mesh.root / f"{namespace}-v2"
    before = len(canary.read_bytes()) if canary.exists() else 0
    attached(mesh, argo.set_mirror_route("mirror", "GET", 100))
    assert mesh.send(30, request()) == {"v1": 30}
    until(lambda: len(canary.read_bytes()) == before + 30, "30 copies")
    argo.remove_routes("mirror")
    attached(mesh, argo.set_weight(10))
    attached(mesh, argo.set_header_route("header", "x-canary", "yes"))
    assert mesh.send(20, request(**{"x-canary": "yes"})) == {"v2": 20}
    attached(mesh, argo.set_weight(40))
    assert mesh.send(20, request(**{"x-canary": "yes"})) == {"v2": 20}
    counts = mesh.send(MANY, request())
    assert fits(counts["v2"], 0.4, of=MANY), counts
    with mesh.load(request()) as load:
        argo.remove_routes("header")
        attached(mesh, argo.set_weight(0))
    assert load.counts.keys() <= {"v1", "v2"}
    assert mesh.send(20, request(**{"x-canary": "yes"})) == {"v1": 20}
