"""Networks of pods on one machine (`headgate up --network pod`): programs as on a cluster, with fixed ports and plain names."""

import errno
import json
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest
from tests.e2e.answering_server import answering
from tests.e2e.running_mesh import UNPRIVILEGED_UID, RunningMesh, mesh_in_a_new_directory, missing_without_root
from tests.make.objects import (
    config_map,
    container,
    deployment,
    http_route_group,
    http_rule,
    manifest,
    obj,
    pod_template,
    port,
    service,
    split,
    traffic_target,
)
from tests.netns import namespaces
from tests.netns.namespaces import Namespace
from tests.processes import runs
from tests.waiting import until
from tests.wire import DEADLINE_S

from headgate.standalone.network.choice import missing

REQUESTS = 300
MACHINE, OUTSIDE = "198.51.100.1", "198.51.100.2"  # of a network for documentation (RFC 5737)
GREETER = """
from concurrent.futures import ThreadPoolExecutor

import grpc

serving = grpc.unary_unary_rpc_method_handler(lambda request, context: b"\\x08\\x01")
server = grpc.server(ThreadPoolExecutor(2))
handler = grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": serving})
server.add_generic_rpc_handlers((handler,))
server.add_insecure_port("0.0.0.0:50051")
server.start()
server.wait_for_termination()
"""
CLIENT = """
import collections, json, time, urllib.error, urllib.request

answers = collections.Counter()
for _ in range({requests}):
    try:
        answers[urllib.request.urlopen("http://cart:8080/items", timeout=60).read().decode()] += 1
    except urllib.error.HTTPError as error:
        answers[str(error.code)] += 1
print(json.dumps(answers), flush=True)
time.sleep(3600)
"""

OWN = """
import json, os, socket

with socket.socket() as client:
    refused = client.connect_ex(("127.0.0.1", 80))
print(json.dumps({
    "host": socket.gethostname(),
    "file": open("/etc/shell/greeting").read(),
    "hosts": open("/etc/hosts").read(),
    "port 80": refused,
    "environment": list(os.environ),
}))
"""
RESOLVE = """
import json, socket

def resolve(name):
    try:
        return sorted({{entry[4][0] for entry in socket.getaddrinfo(name, 80, socket.AF_INET)}})
    except socket.gaierror:
        return "unknown"

print(json.dumps({{name: resolve(name) for name in {names}}}))
"""


def cart(version: str, replicas: int) -> dict[str, Any]:
    """Return a Deployment whose program listens on port 80 of all addresses, without root."""
    app = container(
        command=answering("VERSION", "80"),
        ports=[{"containerPort": 80, "name": "http"}],
        env=[{"name": "VERSION", "value": version}],
        readinessProbe={"httpGet": {"path": "/healthz", "port": "http"}, "timeoutSeconds": 30},
        livenessProbe={"tcpSocket": {"port": 80}, "timeoutSeconds": 30, "failureThreshold": 30},
    )
    labels = {"app": "cart", "version": version}
    return deployment(f"cart-{version}", app, labels=labels, replicas=replicas, template={"account": "cart"})


def client(name: str, requests: int) -> dict[str, Any]:
    """Return a Deployment with an account of its name, whose program calls the cart by its name."""
    app = container(command=[sys.executable, "-c", CLIENT.format(requests=requests)])
    return deployment(name, app, template={"account": name})


def shop() -> str:
    """Return the cart: two versions with one replica and two, of which the split gives the second a tenth of the requests."""
    front = {**port(8080, "http"), "targetPort": 80}
    versions = [
        service(f"cart-{version}", front, selector={"app": "cart", "version": version}) for version in ("v1", "v2")
    ]
    return manifest(
        service("cart", front, selector={"app": "cart"}),
        *versions,
        cart("v1", 1),
        cart("v2", 2),
        split("cart", {"cart-v1": 90, "cart-v2": 10}),
        http_route_group("cart", {"items": {"pathRegex": "/items"}}),
        traffic_target("cart", "cart", ["shopper"], [http_rule("cart")]),
    )


def database() -> str:
    """Return a StatefulSet with its headless Service, a name outside the mesh, and a client that only waits."""
    app = container(
        command=[sys.executable, "-m", "http.server", "5432"], ports=[{"containerPort": 5432, "name": "sql"}]
    )
    spec = {
        "replicas": 2,
        "serviceName": "db",
        "selector": {"matchLabels": {"app": "db"}},
        "template": pod_template(app, labels={"app": "db"}),
    }
    greeter = container(
        command=[sys.executable, "-c", GREETER],
        readinessProbe={"grpc": {"port": 50051}, "timeoutSeconds": 30},
        lifecycle={"postStart": {"exec": {"command": [sys.executable, "-c", "print('begun')"]}}},
    )
    return manifest(
        service("db", port(5432, "sql"), selector={"app": "db"}, clusterIP="None"),
        obj("StatefulSet", "db", version="apps/v1", spec=spec),
        obj("Service", "elsewhere", spec={"type": "ExternalName", "externalName": "cart.default.svc.cluster.local"}),
        deployment("greeter", greeter),
        *shell(),
    )


def shell() -> list[dict[str, Any]]:
    """Return a client that only waits, and a Service without pods."""
    return [
        service("front", port(80, "http"), selector={"app": "front"}),
        config_map("files", {"greeting": "hello"}),
        deployment(
            "shell",
            container(command=["sleep", "3600"], volumeMounts=[{"name": "files", "mountPath": "/etc/shell"}]),
            template={
                "volumes": [{"name": "files", "configMap": {"name": "files"}}],
                "hostAliases": [{"ip": "192.0.2.7", "hostnames": ["legacy.example"]}],
                "dnsConfig": {"options": [{"name": "ndots", "value": "2"}]},
            },
        ),
    ]


@pytest.fixture(scope="module", params=["root", "user"])
def user(request: pytest.FixtureRequest) -> int:
    """Return the user of headgate, 0 for that of the tests: root and other users get the same in different ways."""
    reason = missing() if request.param == "root" else missing_without_root()
    if reason:
        pytest.skip(reason)
    return UNPRIVILEGED_UID if request.param == "user" and not os.geteuid() else 0


@pytest.fixture(scope="module")
def mesh(user: int) -> Iterator[RunningMesh]:
    manifests = {"shop.yaml": shop(), "database.yaml": database()}
    with mesh_in_a_new_directory("--network", "pod", manifests=manifests, user=user) as mesh:
        until(lambda: all(is_available(mesh, name) for name in ("cart-v1", "cart-v2", "shell")), seconds=180)
        yield mesh


def is_available(mesh: RunningMesh, name: str) -> bool:
    made = mesh.get(f"deployment/{name}")
    return bool(made.get("status", {}).get("availableReplicas") == made["spec"]["replicas"])


def pods(mesh: RunningMesh, app: str) -> list[dict[str, Any]]:
    return [pod for pod in mesh.get("pods")["items"] if pod["metadata"]["labels"]["app"] == app]


def python(mesh: RunningMesh, code: str) -> str:
    """Run Python code in the pod of the Deployment `shell`; return its output."""
    return mesh.kubectl("exec", "deploy/shell", "--", sys.executable, "-c", code).strip()


def requests_at(mesh: RunningMesh, pod: dict[str, Any]) -> int:
    text: str = mesh.api.logs(pod["metadata"]["name"], "default")
    return text.count("request")


def answers_of(mesh: RunningMesh, name: str) -> Counter[str]:
    mesh.write(f"{name}.yaml", manifest(client(name, REQUESTS if name == "shopper" else 3)))
    return Counter(json.loads(until(lambda: pods(mesh, name) and mesh.log(name), seconds=180)[-1]))


def test_a_client_with_plain_urllib_is_split_between_programs_with_one_fixed_port_and_another_is_denied(
    mesh: RunningMesh,
) -> None:
    """R1, R7, R67: the programs listen on port 80 of their pods, and know neither $PORT nor http_proxy."""
    until(lambda: mesh.get("trafficsplit/cart")["status"]["conditions"][-1]["status"] == "True")
    assert answers_of(mesh, "stranger") == {"403": 3}
    answers = answers_of(mesh, "shopper")
    assert answers.keys() == {"v1", "v2"}
    counted = {pod["metadata"]["name"]: requests_at(mesh, pod) for pod in pods(mesh, "cart")}
    first = sum(number for name, number in counted.items() if name.startswith("cart-v1"))
    second = [number for name, number in counted.items() if name.startswith("cart-v2")]
    assert (first, sum(second)) == (answers["v1"], answers["v2"])
    assert first + sum(second) == REQUESTS
    assert 5 <= sum(second) <= 65  # 30 expected, with a standard deviation of 5.2
    assert len(second) == 2
    assert all(second)


def test_a_pod_resolves_the_names_that_a_pod_of_a_cluster_resolves(mesh: RunningMesh) -> None:
    until(lambda: len(mesh.get("endpointslices")["items"]) and len(addresses_of(mesh, "db")) == 2, seconds=180)
    front = mesh.get("service/cart")["spec"]["clusterIP"]
    by_name = {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in pods(mesh, "db")}
    expected = {
        "cart": [front],
        "cart.default": [front],
        "cart.default.svc.cluster.local": [front],
        "elsewhere": [front],
        "db-0.db": [by_name["db-0"]],
        "db": sorted(by_name.values()),
        "localhost": ["127.0.0.1"],
        "legacy.example": ["192.0.2.7"],  # of hostAliases
        "nothing.default": "unknown",
    }
    assert json.loads(python(mesh, RESOLVE.format(names=list(expected)))) == expected
    ports = (
        "import dns.resolver; print(sorted(str(r) for r in dns.resolver.resolve('_sql._tcp.db', 'SRV', search=True)))"
    )
    hosts = [f"0 50 5432 {name}.db.default.svc.cluster.local." for name in ("db-0", "db-1")]
    assert python(mesh, ports) == str(hosts)


def addresses_of(mesh: RunningMesh, app: str) -> list[str]:
    return [pod["status"]["podIP"] for pod in pods(mesh, app) if pod["status"].get("podIP")]


def test_a_pod_has_a_host_name_and_a_localhost_of_its_own_and_its_volumes(mesh: RunningMesh) -> None:
    (shell,) = pods(mesh, "shell")
    name, address = shell["metadata"]["name"], shell["status"]["podIP"]
    shown = json.loads(python(mesh, OWN))
    assert shown["host"] == name
    assert shown["file"] == "hello"
    assert f"{address}\t{name}\n" in shown["hosts"] + "\n"
    assert shown["port 80"] == errno.ECONNREFUSED
    assert "http_proxy" not in shown["environment"]


def test_a_pod_becomes_ready_by_a_grpc_probe_inside_its_network(mesh: RunningMesh) -> None:
    until(lambda: is_available(mesh, "greeter"), seconds=180)
    (greeter,) = pods(mesh, "greeter")
    assert greeter["status"]["containerStatuses"][0]["restartCount"] == 0


def test_the_machine_reaches_a_service_by_its_address(mesh: RunningMesh) -> None:
    """The gateway has no right to call the cart (R67), so its answer is that of the cart's sidecar."""
    host, port = mesh.address("cart", 8080)
    opener = build_opener(ProxyHandler({}))
    with pytest.raises(Exception, match="403"):
        opener.open(f"http://{host}:{port}/items", timeout=60)
    assert mesh.ask(mesh.request_by_name("cart.localhost")).status == 403


@pytest.mark.skipif(bool(namespaces.missing()), reason="needs root, to make a machine outside")
def test_a_pod_reaches_the_outside_and_the_machine_by_the_addresses_of_the_machine(mesh: RunningMesh) -> None:
    outside = Namespace()
    subprocess.run(
        ["ip", "link", "add", "hgoutside", "type", "veth", "peer", "name", "eth0", "netns", str(outside.pid)],
        check=True,
    )
    for words in (["addr", "add", f"{MACHINE}/30", "dev", "hgoutside"], ["link", "set", "hgoutside", "up"]):
        subprocess.run(["ip", *words], check=True)
    outside.ip(f"addr add {OUTSIDE}/30 dev eth0", "link set eth0 up")

    def serve(server: socket.socket) -> None:
        server.settimeout(DEADLINE_S)
        connection, client = server.accept()
        with connection:
            connection.sendall(client[0].encode())

    def call(address: str, server: socket.socket) -> str:
        serving = threading.Thread(target=serve, args=(server,))
        serving.start()
        place = (address, server.getsockname()[1])
        answer = python(mesh, f"import socket; print(socket.create_connection({place}).recv(100).decode())")
        serving.join()
        return answer

    with closing(outside):
        with outside.listening(8000) as server:
            assert call(OUTSIDE, server) == MACHINE
        with socket.create_server((MACHINE, 0)) as server:
            assert call(MACHINE, server)
        with socket.create_server(("", 0)) as server:
            assert call(addresses_of(mesh, "shell")[0].rsplit(".", 2)[0] + ".255.254", server)  # status.hostIP


def test_a_start_with_another_network_replaces_the_pods(new_mesh: Callable[..., RunningMesh], user: int) -> None:
    mesh = new_mesh(manifests={"shell.yaml": manifest(*shell())}, user=user)
    until(lambda: is_available(mesh, "shell"), seconds=180)
    (before,) = pods(mesh, "shell")
    assert before["status"]["podIP"].startswith("127.")
    mesh.stop()
    mesh.options = ("--network", "pod")
    mesh.start()
    until(lambda: is_available(mesh, "shell") and addresses_of(mesh, "shell")[0].startswith("10."), seconds=180)
    assert python(mesh, "import socket; print(socket.gethostbyname('front'))").startswith("10.")


def test_a_killed_headgate_leaves_pods_that_the_next_one_adopts_and_down_removes_everything(
    new_mesh: Callable[..., RunningMesh], user: int
) -> None:
    # For one user with pods of a StatefulSet and a gRPC probe too.
    names, objects = (("shell",), manifest(*shell())) if user else (("shell", "greeter"), database())
    mesh = new_mesh("--network", "pod", manifests={"pods.yaml": objects}, user=user)
    until(lambda: all(is_available(mesh, name) for name in names), seconds=180)
    until(lambda: user or mesh.get("statefulset/db").get("status", {}).get("readyReplicas") == 2, seconds=180)
    before = {**mesh.processes(), **mesh.sidecars()}
    mesh.kill()
    mesh.start()
    assert {**mesh.processes(), **mesh.sidecars()} == before
    python(mesh, "import socket; print(socket.getaddrinfo('front', 80))")
    number = pods(mesh, "shell")[0]["status"]["podIP"].split(".")[1]
    assert bool(traces(number)) == (mesh.user == 0)
    mesh.kill()
    done = mesh.headgate("down")
    if mesh.user == 0:
        assert f"removed the network headgate{number}" in done.stdout
    assert not any(runs(pid) for pid in before.values())
    assert traces(number) == []


def test_a_stop_removes_the_network(new_mesh: Callable[..., RunningMesh], user: int) -> None:
    mesh = new_mesh("--network", "auto", manifests={"shell.yaml": manifest(*shell())}, user=user)
    assert "Pods have networks of their own (--network auto)" in mesh.stderr
    number = mesh.get("pods")["items"][0]["status"]["podIP"].split(".")[1]
    pids = (*mesh.processes().values(), *mesh.sidecars().values())
    assert mesh.stop() == 0
    assert traces(number) == []
    assert pids
    assert not any(runs(pid) for pid in pids)


def traces(number: str) -> list[str]:
    """Return the devices, addresses and firewall rules of a range on this machine."""
    devices = [
        path.name
        for path in Path("/sys/class/net").iterdir()
        if path.name.startswith(("headgate" + number, f"hg{number}-"))
    ]
    saved = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout.splitlines()
    routes = subprocess.run(["ip", "route", "show", "table", "all"], capture_output=True, text=True, check=True).stdout
    return [
        *devices,
        *(rule for rule in saved if f"HEADGATE-{number}" in rule or f"headgate{number} " in rule),
        *(route for route in routes.splitlines() if f"10.{number}." in route),
    ]
