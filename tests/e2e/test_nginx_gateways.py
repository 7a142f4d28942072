"""nginx listens for a Service that asks for it, instead of the gateway (001 and 004; R32, D23)."""

import os
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.e2e.manifests import annotated, protocol_service, split_manifest
from tests.e2e.running_mesh import RunningMesh
from tests.e2e.versions import Versions
from tests.make.objects import canary, manifest
from tests.processes import listens
from tests.protocols import connect_often, greeting_server
from tests.render.nginx.nginx_process import needs_nginx
from tests.waiting import until

NAMESPACE = "shop"


def specified_canary(next_weight: str = "100m", current_weight: str = "900m", **spec: Any) -> str:
    """Return the Canary of specification 004."""
    weights = {"web-next": next_weight, "web-current": current_weight}
    return manifest(canary("web", weights, name="my-canary", namespace="", **spec))


def reasons(findings: Iterable[Mapping[str, Any]]) -> list[str]:
    return [item["reason"] for item in findings]


def workers(pid: int) -> frozenset[str]:
    return frozenset(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def backends(mesh: RunningMesh) -> Any:
    """Return the backends and weights in the split of the Canary."""
    return mesh.get("trafficsplit/my-canary", NAMESPACE)["spec"]["backends"]


@needs_nginx
def test_nginx_splits_exactly_as_a_canary_says_until_the_gateway_serves_again(unstarted: RunningMesh) -> None:
    mesh = unstarted
    mesh.start()
    mesh.create_namespace(NAMESPACE)
    Versions(mesh, NAMESPACE)
    mesh.submit(specified_canary(gateway="Nginx"), namespace=NAMESPACE)
    until(lambda: mesh.get("service/web", NAMESPACE)["spec"]["clusterIP"])
    request = until(lambda: mesh.request("web", 8080, namespace=NAMESPACE))
    address = mesh.address("web", 8080, NAMESPACE)
    until(lambda: listens(mesh.nginx()["shop_web"], *address))
    ready = mesh.event("GatewayReady", "my-canary", NAMESPACE)
    assert "without a sidecar reach the Service shop/web through the workers of nginx, which split" in ready[2]
    assert mesh.send(100, request) == {"next": 10, "current": 90}
    tenth, master = backends(mesh), mesh.nginx()["shop_web"]
    before, mark = workers(master), len(mesh.lines)
    main = mesh.state / "nginx" / "shop_web" / "nginx.conf"
    main.unlink()
    main.mkdir()  # no file can replace a directory
    mesh.submit(specified_canary("500m", "500m", gateway="Nginx"), namespace=NAMESPACE)
    mesh.line(lambda line: "GatewayNotReady" in reasons(line.get("findings", ())), mark)
    assert "Is a directory" in mesh.event("GatewayNotReady", "my-canary", NAMESPACE)[2]
    checked = mesh.headgate("check")
    assert checked.returncode == 1
    assert "error GatewayNotReady Canary shop/my-canary: the nginx of the Service shop/web does not" in checked.stdout
    assert mesh.send(100, request) == {"next": 10, "current": 90}
    main.rmdir()
    mesh.line(lambda line: "GatewayNotReady" in reasons(line.get("resolved", ())), mark)
    until(lambda: workers(master) and not workers(master) & before)
    assert mesh.send(100, request) == {"next": 50, "current": 50}

    mesh.kill()
    assert mesh.send(10, request) == {"next": 5, "current": 5}
    mesh.start()
    assert mesh.nginx() == {"shop_web": master}

    os.kill(master, signal.SIGKILL)
    until(lambda: mesh.nginx()["shop_web"] != master and listens(mesh.nginx()["shop_web"], *address))
    assert mesh.send(10, request) == {"next": 5, "current": 5}

    events = mesh.get("events", NAMESPACE)["items"]
    assert [item["count"] for item in events if item["reason"] == "GatewayReady"] == [1]

    mesh.submit(specified_canary(), namespace=NAMESPACE)
    # The gateway follows the Canary itself, and the weights follow its split, which is written later.
    until(lambda: backends(mesh) == tenth and listens(mesh.processes()["envoy"], *address))
    mesh.settle()
    assert mesh.send(100, request) == {"next": 10, "current": 90}
    until(lambda: not mesh.nginx() and not list(mesh.state.glob("nginx/*")))

    mesh.submit(specified_canary(gateway="Nginx"), namespace=NAMESPACE)
    until(lambda: listens(mesh.nginx()["shop_web"], *address))
    assert mesh.send(100, request) == {"next": 10, "current": 90}


@needs_nginx
def test_nginx_splits_connections_and_ends_with_headgate(unstarted: RunningMesh) -> None:
    mesh = unstarted
    mesh.start()
    v1, v2 = (greeting_server(mesh.network, name) for name in ("v1", "v2"))
    mesh.apply(
        annotated(protocol_service("db", app="tcp").partition("\n")[0], gateway="nginx"),
        protocol_service("db-v1", v1, app="tcp"),
        protocol_service("db-v2", v2, app="tcp"),
        split_manifest("db", "db", {"db-v1": 1, "db-v2": 3}),
    )
    address = mesh.address("db", 9000)
    until(lambda: listens(mesh.nginx()["default_db"], *address))  # nginx has a process before it listens
    until(lambda: mesh.network.run(connect_often(address, 4)) == {"v1": 1, "v2": 3})
    master = mesh.nginx()["default_db"]
    mesh.kill()
    down = mesh.headgate("down")
    assert f"stopped the nginx of the Service default/db (process {master})" in down.stdout
    mesh.start()
    until(mesh.nginx)
    mesh.stop()
    assert not mesh.nginx()
