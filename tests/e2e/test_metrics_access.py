"""The metrics API counts requests to Services (R89, D25), denied requests (R68, R69), and those over mutual TLS (R74)."""

import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.e2e import identity_rig as rig
from tests.e2e.identity_rig import CALLER, SERVER, TunnelClient
from tests.e2e.manifests import counting_deployment, service_manifest, split_manifest
from tests.e2e.metrics_api import RELEASED, SEED, WINDOW, ask, counts
from tests.e2e.running_mesh import RunningMesh
from tests.make.objects import http_route_group, manifest, obj
from tests.waiting import until
from tests.wire import Address, Request

HTTP, RAW = rig.PORTS["http"], rig.PORTS["raw"]
ROUTES = manifest(
    http_route_group("web", {"open": {"methods": ["GET"], "pathRegex": "/open"}}), obj("TCPRoute", "raw", spec={})
)
IDENTITY = "spiffe://cluster.local/ns/default/sa"
GATEWAY = "spiffe://cluster.local/ns/headgate-system/sa/gateway"


def restrict_access(mesh: RunningMesh) -> None:
    """Allow only the caller to call the server: requests to /open, and TCP connections."""
    mesh.submit(ROUTES, *(rig.access(CALLER, rule=rule) for rule in (rig.WEB, rig.RAW)))
    for name in ("web", "raw"):
        rig.headgate_wait(mesh, f"traffictarget/{name}-callers")


def statuses(mesh: RunningMesh, request: Request, times: int) -> set[int]:
    """Send requests one after the other; return the set of statuses."""
    client = TunnelClient(request.address, request=request)
    try:
        return {mesh.network.run(client.ask()).status for _ in range(times)}
    finally:
        mesh.network.run(rig.close(client))


def connect(address: Address, times: int) -> None:
    """Open connections, and assert that the proxy closes each without an answer."""
    for _ in range(times):
        with socket.create_connection(address, timeout=60) as client:
            client.sendall(b"GET / HTTP/1.1\r\nhost: server\r\n\r\n")
            try:
                assert client.recv(1) == b""
            except ConnectionResetError:
                continue


def edges(mesh: RunningMesh, resource: str) -> Mapping[tuple[str, str], Any]:
    """Return the edges of a resource, by direction and the peer's name."""
    items = ask(mesh, f"{SEED}/namespaces/default/{resource}/edges{WINDOW}")["items"]
    return {(item["edge"]["direction"], item["edge"]["resource"]["name"]): item for item in items}


def test_denied_requests_are_counted_as_denied_and_do_not_reach_the_server(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    """R68, R69, R84: requests and connections of a pod and of the gateway."""
    mesh = new_mesh(manifests=rig.site(tmp_path))
    restrict_access(mesh)
    before = rig.counted_requests(tmp_path / SERVER)
    caller = rig.only_pod(mesh, CALLER)
    assert statuses(mesh, rig.request_through_sidecar(caller, target="/open"), 6) == {200}
    assert statuses(mesh, rig.request_through_sidecar(caller, target="/closed"), 4) == {403}
    assert statuses(mesh, mesh.request(SERVER, HTTP, via="proxy"), 5) == {403}
    raw = rig.TunnelClient(*rig.raw_port_targets(mesh)[1])
    assert mesh.network.run(raw.ask()).answered_by == SERVER
    mesh.network.run(rig.close(raw))
    connect(mesh.address(SERVER, RAW), 3)
    assert rig.counted_requests(tmp_path / SERVER) == before + 7

    expected = {
        "success_count": 6,
        "failure_count": 0,
        "denied_count": 9,
        "connection_count": 4,
        "connection_denied_count": 3,
        "connection_failure_count": 0,
    }
    for resource in (f"services/{SERVER}", f"deployments/{SERVER}"):
        url = f"{SEED}/namespaces/default/{resource}{WINDOW}"
        until(lambda url=url: counts(ask(mesh, url)) == expected, f"{resource}: {expected}")
        assert ask(mesh, url)["mesh"] == {"pods": 1, "meshed": 1}
    received = edges(mesh, f"deployments/{SERVER}")
    assert set(received) == {("from", CALLER), ("from", "gateway")}
    assert counts(received["from", CALLER]) == {
        "success_count": 6,
        "failure_count": 0,
        "denied_count": 4,
        "connection_count": 1,
        "connection_failure_count": 0,
    }
    found = received["from", CALLER]["edge"]["security"]
    servers = [f"{IDENTITY}/{SERVER}"]
    assert found == {"exchanged": 11, "secured": 11, "clients": [f"{IDENTITY}/{CALLER}"], "servers": servers}
    assert received["from", "gateway"]["edge"]["security"]["clients"] == [GATEWAY]
    sent = edges(mesh, f"deployments/{CALLER}")["to", SERVER]
    assert (counts(sent), sent["edge"]["security"]) == (counts(received["from", CALLER]), found)


def test_a_service_counts_all_requests_to_its_pods(new_mesh: Callable[..., RunningMesh], tmp_path: Path) -> None:
    """R89, D25: a request counts for each Service that selects the pod, whichever Service the client called."""
    manifests = {"web.yaml": service_manifest("web", {"http": HTTP}, selector={"app": "web"})}
    for version in ("v1", "v2"):
        labels = {"app": "web", "version": version}
        made = counting_deployment(f"web-{version}", tmp_path / version, labels=labels, ports={"http": HTTP})
        led = service_manifest(f"web-{version}", {"http": HTTP}, selector=labels)
        manifests[f"{version}.yaml"] = f"{led}\n---\n{made}"
    mesh = new_mesh(manifests={**manifests, "split.yaml": split_manifest("web", "web", {"web-v1": 90, "web-v2": 10})})
    mesh.send(100, mesh.request("web", HTTP))
    mesh.send(7, mesh.request("web-v2", HTTP))
    assert [rig.counted_requests(tmp_path / version) for version in ("v1", "v2")] == [90, 17]
    expected = {"web": 107, "web-v1": 90, "web-v2": 17}

    def success_counts() -> Mapping[str, int]:
        items = ask(mesh, f"{SEED}/namespaces/default/services{WINDOW}")["items"]
        return {item["resource"]["name"]: counts(item)["success_count"] for item in items}

    until(lambda: success_counts() == expected, str(expected))
    for name, count in expected.items():
        (edge,) = edges(mesh, f"services/{name}").values()
        assert (edge["edge"]["resource"]["name"], counts(edge)["success_count"]) == ("gateway", count)
        assert counts(edge)["called_count"] == {"web": 100, "web-v1": 0, "web-v2": 7}[name]
    legs = ask(mesh, f"{RELEASED}/namespaces/default/trafficsplits/web{WINDOW}")["items"]
    assert {leg["backend"]["name"]: counts(leg)["success_count"] for leg in legs} == {"web-v1": 90, "web-v2": 10}
