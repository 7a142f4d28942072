from typing import Any

import pytest
from tests.make.objects import container, endpoint_slice, pod, port, service

from headgate.compiler.snapshot import SERVICE_NAME_LABEL
from headgate.resources.meta import Key
from headgate.standalone.controllers.endpoints import MANAGED_BY


def web_pod(name: str, **ports: int) -> dict[str, Any]:
    """Return a pod on this machine that the Service selects, with named ports."""
    written = [{"name": port, "containerPort": number} for port, number in ports.items()]
    return pod(name, containers=[container(ports=written)], labels={"app": "web"}, nodeName="local")


def web_service(target: int | str = 8080, **spec: Any) -> dict[str, Any]:
    http = {**port(80, "http", app="http", target=target), "protocol": "TCP"}
    selector = {"app": "web"}
    return service("web", http, labels={"team": "a"}, **{"clusterIP": "127.77.0.1", "selector": selector, **spec})


async def slices(rig):
    return await rig.all("discovery.k8s.io", "EndpointSlice")


def names(found, *conditions):
    return sorted(
        endpoint["targetRef"]["name"]
        for one in found
        for endpoint in one["endpoints"]
        if all(endpoint["conditions"][condition] for condition in conditions)
    )


async def test_a_slice_lists_the_selected_pods_as_in_kubernetes(rig):
    await rig.store.create(web_service())
    await rig.store.create(web_pod("a"))
    await rig.settle()
    (found,) = await slices(rig)
    stored = await rig.store.get(Key("", "Service", "default", "web"))
    assert found["metadata"]["labels"] == {SERVICE_NAME_LABEL: "web", MANAGED_BY: "headgate", "team": "a"}
    assert found["metadata"]["ownerReferences"][0]["uid"] == stored["metadata"]["uid"]
    assert found["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP", "appProtocol": "http"}]
    (endpoint,) = found["endpoints"]
    assert endpoint["addresses"] == ["127.77.200.1"]
    assert endpoint["conditions"] == {"ready": True, "serving": True, "terminating": False}
    assert (endpoint["targetRef"]["kind"], endpoint["targetRef"]["name"]) == ("Pod", "a")


async def test_pods_that_resolve_a_port_name_differently_are_in_different_slices(rig):
    """R38."""
    await rig.store.create(web_service("http"))
    await rig.store.create(web_pod("a", http=8080))
    await rig.store.create(web_pod("b", http=9090))
    await rig.store.create(web_pod("c", http=8080))
    await rig.store.create(web_pod("d"))  # this pod has no port named http
    await rig.settle()
    found = {one["ports"][0]["port"] if one["ports"] else 0: names([one]) for one in await slices(rig)}
    assert found == {8080: ["a", "c"], 9090: ["b"], 0: ["d"]}


async def test_a_pod_that_is_unready_or_terminating_is_listed_as_not_ready(rig):
    await rig.store.create(web_service())
    await rig.store.create(web_pod("a"))
    await rig.store.create(web_pod("b"))
    await rig.store.create(
        {**web_pod("c"), "metadata": {**web_pod("c")["metadata"], "finalizers": ["headgate.dev/stop-process"]}}
    )
    await rig.settle(ready=lambda found: found["metadata"]["name"] != "b")
    await rig.store.delete(Key("", "Pod", "default", "c"))
    await rig.controllers.reconcile("default")
    found = await slices(rig)
    assert names(found) == ["a", "b", "c"]
    assert names(found, "ready") == ["a"]
    assert names(found, "terminating", "serving") == ["c"]


async def test_publish_not_ready_addresses_makes_unready_pods_ready_endpoints(rig):
    await rig.store.create(web_service(publishNotReadyAddresses=True, clusterIP="None"))
    await rig.store.create(web_pod("a"))
    await rig.settle(ready=lambda _: False)
    found = await slices(rig)
    assert names(found, "ready") == ["a"]
    assert "service.kubernetes.io/headless" in found[0]["metadata"]["labels"]


@pytest.mark.parametrize(("subdomain", "expected"), [("web", ["db-0"]), ("other", [None]), ("", [None])])
async def test_a_pod_with_the_subdomain_of_the_service_has_its_hostname_there(rig, subdomain, expected):
    await rig.store.create(web_service(clusterIP="None"))
    named = web_pod("a")
    await rig.store.create({**named, "spec": {**named["spec"], "hostname": "db-0", "subdomain": subdomain}})
    await rig.settle()
    (found,) = await slices(rig)
    assert [item.get("hostname") for item in found["endpoints"]] == expected


async def test_pods_of_a_large_service_stay_in_their_slices(rig):
    await rig.store.create(web_service())
    for number in range(230):
        await rig.store.create(web_pod(f"p{number}"))
    await rig.settle()
    before = {one["metadata"]["name"]: names([one]) for one in await slices(rig)}
    assert sorted(map(len, before.values())) == [30, 100, 100]
    gone = next(iter(before.values()))[0]
    await rig.store.delete(Key("", "Pod", "default", gone))
    await rig.controllers.reconcile("default")
    after = {one["metadata"]["name"]: names([one]) for one in await slices(rig)}
    assert after == {name: [one for one in members if one != gone] for name, members in before.items()}


@pytest.mark.parametrize("spec", [{"selector": None}, {"type": "ExternalName"}])
async def test_a_service_without_a_selector_gets_no_slices(rig, spec):
    await rig.store.create(web_service(**spec))
    await rig.store.create(web_pod("a"))
    await rig.settle()
    assert await slices(rig) == []


async def test_a_slice_that_the_user_manages_is_not_changed(rig):
    by_hand = endpoint_slice("web", ["127.0.0.1"], {"http": 9999}, name="mine")
    kept = await rig.store.create(by_hand)
    await rig.store.create(web_service())
    await rig.store.create(web_pod("a"))
    await rig.settle()
    assert await rig.store.get(Key("discovery.k8s.io", "EndpointSlice", "default", "mine")) == kept
    assert len(await slices(rig)) == 2


async def test_a_slice_is_deleted_with_its_last_pod_or_its_service(rig):
    await rig.store.create(web_service())
    await rig.store.create(web_pod("a"))
    await rig.settle()
    await rig.store.delete(Key("", "Pod", "default", "a"))
    await rig.settle()
    assert await slices(rig) == []
    await rig.store.create(web_pod("b"))
    await rig.settle()
    await rig.store.delete(Key("", "Service", "default", "web"))
    assert await slices(rig) == []
