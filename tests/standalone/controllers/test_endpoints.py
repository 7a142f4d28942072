from typing import Any

import pytest

from headgate.resources.meta import Key
from headgate.standalone.controllers.endpoints import MANAGED_BY, SERVICE_NAME


def pod(name: str, **ports: int) -> dict[str, Any]:
    written = [{"name": port, "containerPort": number} for port, number in ports.items()]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": "local", "containers": [{"name": "app", "ports": written}]},
    }


def service(target: int | str = 8080, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "labels": {"team": "a"}},
        "spec": {
            "clusterIP": "127.77.0.1",
            "selector": {"app": "web"},
            "ports": [{"name": "http", "port": 80, "targetPort": target, "protocol": "TCP", "appProtocol": "http"}],
            **spec,
        },
    }


async def slices(world):
    return await world.all("discovery.k8s.io", "EndpointSlice")


def names(found, *conditions):
    return sorted(
        endpoint["targetRef"]["name"]
        for one in found
        for endpoint in one["endpoints"]
        if all(endpoint["conditions"][condition] for condition in conditions)
    )


async def test_a_slice_lists_the_selected_pods_as_in_kubernetes(world):
    await world.store.create(service())
    await world.store.create(pod("a"))
    await world.settle()
    (found,) = await slices(world)
    stored = await world.store.get(Key("", "Service", "default", "web"))
    assert found["metadata"]["labels"] == {SERVICE_NAME: "web", MANAGED_BY: "headgate", "team": "a"}
    assert found["metadata"]["ownerReferences"][0]["uid"] == stored["metadata"]["uid"]
    assert found["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP", "appProtocol": "http"}]
    (endpoint,) = found["endpoints"]
    assert endpoint["addresses"] == ["127.77.200.1"]
    assert endpoint["conditions"] == {"ready": True, "serving": True, "terminating": False}
    assert (endpoint["targetRef"]["kind"], endpoint["targetRef"]["name"]) == ("Pod", "a")


async def test_pods_that_resolve_a_port_name_differently_are_in_different_slices(world):
    """R38."""
    await world.store.create(service("http"))
    await world.store.create(pod("a", http=8080))
    await world.store.create(pod("b", http=9090))
    await world.store.create(pod("c", http=8080))
    await world.store.create(pod("d"))  # this pod has no port named http
    await world.settle()
    found = {one["ports"][0]["port"] if one["ports"] else 0: names([one]) for one in await slices(world)}
    assert found == {8080: ["a", "c"], 9090: ["b"], 0: ["d"]}


async def test_a_pod_that_is_unready_or_terminating_is_listed_as_not_ready(world):
    await world.store.create(service())
    await world.store.create(pod("a"))
    await world.store.create(pod("b"))
    await world.store.create({**pod("c"), "metadata": {**pod("c")["metadata"], "finalizers": ["headgate.dev/process"]}})
    await world.settle(ready=lambda found: found["metadata"]["name"] != "b")
    await world.store.delete(Key("", "Pod", "default", "c"))
    await world.controllers.reconcile("default")
    found = await slices(world)
    assert names(found) == ["a", "b", "c"]
    assert names(found, "ready") == ["a"]
    assert names(found, "terminating", "serving") == ["c"]


async def test_publish_not_ready_addresses_makes_unready_pods_ready_endpoints(world):
    await world.store.create(service(publishNotReadyAddresses=True, clusterIP="None"))
    await world.store.create(pod("a"))
    await world.settle(ready=lambda _: False)
    found = await slices(world)
    assert names(found, "ready") == ["a"]
    assert "service.kubernetes.io/headless" in found[0]["metadata"]["labels"]


async def test_pods_of_a_large_service_stay_in_their_slices(world):
    await world.store.create(service())
    for number in range(230):
        await world.store.create(pod(f"p{number}"))
    await world.settle()
    before = {one["metadata"]["name"]: names([one]) for one in await slices(world)}
    assert sorted(map(len, before.values())) == [30, 100, 100]
    gone = next(iter(before.values()))[0]
    await world.store.delete(Key("", "Pod", "default", gone))
    await world.controllers.reconcile("default")
    after = {one["metadata"]["name"]: names([one]) for one in await slices(world)}
    assert after == {name: [one for one in members if one != gone] for name, members in before.items()}


@pytest.mark.parametrize("spec", [{"selector": None}, {"type": "ExternalName"}])
async def test_a_service_without_a_selector_gets_no_slices(world, spec):
    await world.store.create(service(**spec))
    await world.store.create(pod("a"))
    await world.settle()
    assert await slices(world) == []


async def test_a_slice_that_the_user_manages_is_not_changed(world):
    by_hand = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "mine", "namespace": "default", "labels": {SERVICE_NAME: "web"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"]}],
        "ports": [{"name": "http", "port": 9999}],
    }
    kept = await world.store.create(by_hand)
    await world.store.create(service())
    await world.store.create(pod("a"))
    await world.settle()
    assert await world.store.get(Key("discovery.k8s.io", "EndpointSlice", "default", "mine")) == kept
    assert len(await slices(world)) == 2


async def test_a_slice_is_deleted_with_its_last_pod_or_its_service(world):
    await world.store.create(service())
    await world.store.create(pod("a"))
    await world.settle()
    await world.store.delete(Key("", "Pod", "default", "a"))
    await world.settle()
    assert await slices(world) == []
    await world.store.create(pod("b"))
    await world.settle()
    await world.store.delete(Key("", "Service", "default", "web"))
    assert await slices(world) == []
