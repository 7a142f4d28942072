"""The writes of Flagger and Argo Rollouts, and access to TCP ports, on a real cluster; the pods count the requests."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.delivery import HASH, PORT, Argo, ArgoRoute, ArgoSplit, FlaggerRoute, FlaggerSplit, Object, is_programmed
from tests.draws import fits
from tests.make.objects import gateway
from tests.pods.cluster_host import settle, traffic_deployment
from tests.pods.conftest import Cluster, http_service, mesh_namespace, until, wait_for_port
from tests.pods.gateway_api import install_gateway_api
from tests.pods.traffic_pod import ControlledPod
from tests.wire import Address, Request

PLACE = "delivery"
MANY = 1000
VERSIONS = {"v1": "aaaa", "v2": "bbbb", "v3": "cccc"}
"""The Deployments of the Rollout `demo`, and the values of their label HASH."""
COUNTED = ("podinfo-primary", "podinfo", *VERSIONS, "service-1", "service-2")
CLIENTS = {"client": "default", "sa-2": "sa-2"}
"""The Deployments that send requests, and their ServiceAccounts."""
PROMOTING = {"group": "core", "kind": "Service", "name": "podinfo", "port": PORT}  # as Flagger's guide writes it


ACCESS_VERSIONS = {
    "TCPRoute": "specs.smi-spec.io/v1alpha4",
    "HTTPRouteGroup": "specs.smi-spec.io/v1alpha4",
    "TrafficTarget": "access.smi-spec.io/v1alpha3",
}
ACCESS = (
    ("TCPRoute", "tcp-route", {"matches": {"ports": [8080]}}),
    ("HTTPRouteGroup", "http-route", {"matches": [{"name": "version", "pathRegex": "/version", "methods": ["GET"]}]}),
    (
        "TrafficTarget",
        "test",
        {
            "destination": {"kind": "ServiceAccount", "name": "sa-1", "namespace": PLACE},
            "rules": [{"kind": "TCPRoute", "name": "tcp-route"}, {"kind": "HTTPRouteGroup", "name": "http-route"}],
            "sources": [{"kind": "ServiceAccount", "name": "sa-2", "namespace": PLACE}],
        },
    ),
)
"""The kind, name and spec of each object of the example in specification 003."""


class Rollouts:
    """A namespace with the pods of a Canary, a Rollout and two protected Services."""

    def __init__(self, cluster: Cluster) -> None:
        self.api = cluster.api
        found = cluster.get("pods", PLACE)["items"]
        addresses = {pod["metadata"]["name"].rsplit("-", 2)[0]: pod["status"]["podIP"] for pod in found}
        self.pods = {name: ControlledPod(addresses[name]) for name in (*COUNTED, *CLIENTS)}

    def request(self, name: str, port: int = PORT, path: str = "/", method: str = "GET", **headers: str) -> Request:
        """Return a request to a Service; `_` stands for `-` in names of headers."""
        address = Address(self.api.get(f"service/{name}", PLACE)["spec"]["clusterIP"], port)
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        return Request(address, path, f"{name}:{port}", named, method=method)

    def request_to_gateway(self) -> Request:
        """Return a request to the Gateway."""
        found = self.api.get("gateway/edge", PLACE)["status"]["addresses"][0]["value"]
        return Request(Address(found, 80), "/", "podinfo.example")

    def send(self, count: int, request: Request, client: str = "client") -> Counter[str]:
        """Send requests from a pod; return how many requests each pod received, after the last answer."""
        for name in COUNTED:
            self.pods[name].call(set={"requests": 0})
        answers = self.pods[client].send(count, request)
        counts = self.counts()
        assert answers.keys() <= {*COUNTED, "403", "IncompleteReadError", "ConnectionResetError"}, answers
        assert all(counts[name] >= answers[name] for name in COUNTED), (answers, counts)
        return counts

    def counts(self) -> Counter[str]:
        """Return how many requests each pod received since the last reset."""
        return +Counter({name: int(self.pods[name].call()["requests"]) for name in COUNTED})

    def programmed(self, path: str, written: Object) -> None:
        """Wait until all proxies have a written object, according to its status."""
        generation = written["metadata"]["generation"]
        until(lambda: is_programmed(self.api.call("GET", path), generation), f"the status of {path}")

    def close(self) -> None:
        """Close the connections to the pods."""
        for pod in self.pods.values():
            pod.close()


@pytest.fixture(scope="module")
def rollouts(shared_cluster: Cluster) -> Iterator[Rollouts]:
    """A cluster whose pods are behind the Services that Flagger and the user of Argo Rollouts create."""
    install_gateway_api(shared_cluster)
    accounts = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": PLACE}}
        for name in ("sa-1", "sa-2")
    ]
    shared_cluster.apply(
        mesh_namespace(PLACE),
        *accounts,
        *(pods(name, port=PORT) for name in ("podinfo-primary", "podinfo")),
        *(pods(name, port=PORT, app="demo", **{HASH: value}) for name, value in VERSIONS.items()),
        *(pods(name, account="sa-1") for name in ("service-1", "service-2")),
        *(pods(name, account=account) for name, account in CLIENTS.items()),
        *(service_of(name, protocol) for name, protocol in (("service-1", "http"), ("service-2", "tcp"))),
        gateway("edge", namespace=PLACE),
    )
    call = shared_cluster.api.call
    FlaggerSplit(call, PLACE, "v1alpha1").create_services()
    services = ArgoSplit(call, PLACE, "v1alpha1")
    services.create_services("demo", "demo-stable", "demo-canary", "demo-experiment")
    services.select("demo-experiment", VERSIONS["v3"])
    shared_cluster.wait_rolled_out(PLACE, *COUNTED, *CLIENTS)
    shared_cluster.kubectl("-n", PLACE, "wait", "gateway/edge", "--for=condition=Programmed", "--timeout=240s")
    shared_cluster.wait_in_sync(PLACE)
    with closing(Rollouts(shared_cluster)) as found:
        wait_for_port(*found.request_to_gateway().address)
        yield found


def pods(name: str, *, account: str = "default", **options: Any) -> dict[str, Any]:
    """Return a Deployment of pods that count requests."""
    made = traffic_deployment(PLACE, name, **options)
    made["spec"]["template"]["spec"]["serviceAccountName"] = account
    return made


def service_of(name: str, protocol: str) -> dict[str, Any]:
    """Return a Service as specification 003 writes it."""
    made = http_service(PLACE, name, app=name)
    made["spec"]["ports"] = [{"name": "some-port", "port": 8080, "appProtocol": protocol}]
    return made


@pytest.fixture
def written(rollouts: Rollouts) -> Iterator[Callable[[str], None]]:
    """Return a function that names an object, which is deleted after the test."""
    paths: list[str] = []
    yield paths.append
    for path in paths:
        rollouts.api.call("DELETE", path)
    settle(rollouts.api)  # the next test writes objects of another kind about the same Services


Written = Callable[[str], None]


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2", "v1alpha3"])
def test_flagger_promotes_a_canary_by_a_split(rollouts: Rollouts, written: Written, version: str) -> None:
    flagger, request = FlaggerSplit(rollouts.api.call, PLACE, version), rollouts.request("podinfo")
    flagger.create()
    split = f"{flagger.splits}/podinfo"
    written(split)
    for canary in (10, 50, 0):
        rollouts.programmed(split, flagger.set_weights(100 - canary, canary))
        assert rollouts.send(100, request) == +Counter({"podinfo-primary": 100 - canary, "podinfo": canary})
        assert flagger.weights() == (100 - canary, canary)


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha3"])
def test_argo_rollouts_promotes_a_version_by_a_split(rollouts: Rollouts, written: Written, version: str) -> None:
    """The selectors of the Services change during the rollout."""
    argo, request = ArgoSplit(rollouts.api.call, PLACE, version, root="demo"), rollouts.request("demo")
    split = f"{argo.splits}/demo"
    for name in ("demo-stable", "demo-canary"):
        select(rollouts, argo, name, "v1")
    argo.create()
    written(split)
    select(rollouts, argo, "demo-canary", "v2")
    rollouts.programmed(split, argo.set_weight(30, **{"demo-experiment": 20}))
    assert rollouts.send(100, request) == {"v1": 50, "v2": 30, "v3": 20}
    rollouts.programmed(split, argo.set_weight(100))
    assert rollouts.send(50, request) == {"v2": 50}
    select(rollouts, argo, "demo-stable", "v2")
    rollouts.programmed(split, argo.set_weight(0))
    assert rollouts.send(50, request) == {"v2": 50}


@pytest.mark.parametrize("parent", [PROMOTING, {"name": "edge", "namespace": PLACE}], ids=["mesh", "gateway"])
def test_flagger_promotes_a_canary_by_a_route(rollouts: Rollouts, written: Written, parent: Object) -> None:
    """Each request is drawn by the weights."""
    flagger = FlaggerRoute(rollouts.api.call, PLACE, parent)
    request = rollouts.request("podinfo") if parent == PROMOTING else rollouts.request_to_gateway()
    flagger.create()
    route = f"{flagger.routes}/podinfo"
    written(route)
    for canary in (10, 50):
        rollouts.programmed(route, flagger.set_weights(100 - canary, canary))
        counts = rollouts.send(MANY, request)
        assert counts.keys() == {"podinfo-primary", "podinfo"}
        assert counts.total() == MANY
        assert fits(counts["podinfo"], canary / 100, of=MANY), counts
    assert flagger.weights() == (50, 50, False)
    rollouts.programmed(route, flagger.set_weights(100, 0, mirrored=True))
    assert rollouts.send(40, request)["podinfo-primary"] == 40
    until(lambda: rollouts.counts() == {"podinfo-primary": 40, "podinfo": 40}, "40 copies")
    rollouts.programmed(route, flagger.set_weights(0, 100))
    assert rollouts.send(20, request) == {"podinfo": 20}
    rollouts.programmed(route, flagger.set_weights(100, 0))
    assert rollouts.send(20, request) == {"podinfo-primary": 20}


def test_flagger_selects_users_by_a_header_and_keeps_them_by_a_cookie(rollouts: Rollouts, written: Written) -> None:
    flagger = FlaggerRoute(rollouts.api.call, PLACE, PROMOTING, header="x-user", cookie="flagger-cookie")
    insider = rollouts.request("podinfo", x_user="insider")
    flagger.create()
    route = f"{flagger.routes}/podinfo"
    written(route)
    rollouts.programmed(route, flagger.set_weights(0, 100))
    assert rollouts.send(20, insider) == {"podinfo": 20}
    assert rollouts.send(20, rollouts.request("podinfo", x_user="guest")) == {"podinfo-primary": 20}
    cookie = rollouts.pods["client"].ask(insider).headers["set-cookie"].partition(";")[0]
    assert rollouts.send(20, rollouts.request("podinfo", cookie=f"a=b; {cookie}")) == {"podinfo": 20}
    rollouts.programmed(route, flagger.set_weights(100, 0))
    assert rollouts.send(20, insider) == {"podinfo-primary": 20}


def test_argo_rollouts_moves_a_route_with_headers_and_mirrors(rollouts: Rollouts, written: Written) -> None:
    argo, request = ArgoRoute(rollouts.api.call, PLACE), rollouts.request("demo")
    select(rollouts, argo, "demo-stable", "v1")
    select(rollouts, argo, "demo-canary", "v2")
    argo.create({"group": "", "kind": "Service", "name": "demo"})
    route = f"{argo.routes}/demo"
    written(route)
    argo.set_weight(0)
    rollouts.programmed(route, argo.set_mirror_route("mirror", "GET", 100))
    assert rollouts.send(30, request)["v1"] == 30
    until(lambda: rollouts.counts() == {"v1": 30, "v2": 30}, "30 copies")
    argo.remove_routes("mirror")
    argo.set_weight(40)
    rollouts.programmed(route, argo.set_header_route("header", "x-canary", "yes"))
    assert rollouts.send(20, rollouts.request("demo", x_canary="yes")) == {"v2": 20}
    counts = rollouts.send(MANY, request)
    assert counts.total() == MANY
    assert fits(counts["v2"], 0.4, of=MANY), counts
    argo.remove_routes("header")
    rollouts.programmed(route, argo.set_weight(0))
    assert rollouts.send(20, rollouts.request("demo", x_canary="yes")) == {"v1": 20}


def select(rollouts: Rollouts, argo: Argo, service: str, version: str) -> None:
    """Let a Service select the pods of a version, and wait until the proxies have its endpoints."""
    argo.select(service, VERSIONS[version])
    wanted = [rollouts.pods[version].address.host]

    def selected() -> bool:
        slices = [
            item
            for item in rollouts.api.get("endpointslices", PLACE)["items"]
            if item["metadata"]["labels"]["kubernetes.io/service-name"] == service
        ]
        return [address for item in slices for one in item["endpoints"] or () for address in one["addresses"]] == wanted

    until(selected, f"the endpoints of {service}")
    settle(rollouts.api)


def test_a_traffic_target_allows_http_requests_and_tcp_connections(rollouts: Rollouts, written: Written) -> None:
    """R67, R68: the example of specification 003. Both Services have the port 8080, with different protocols."""
    for kind, name, spec in ACCESS:
        version = ACCESS_VERSIONS[kind]
        root = f"/apis/{version}/namespaces/{PLACE}/{kind.lower()}s"
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": PLACE}, "spec": spec}
        rollouts.api.call("POST", root, body)
        written(f"{root}/{name}")
    settle(rollouts.api)
    http, raw = (rollouts.request(name, 8080, "/version") for name in ("service-1", "service-2"))
    assert rollouts.send(20, http, "sa-2") == {"service-1": 20}
    assert rollouts.send(20, raw._replace(target="/any", method="POST"), "sa-2") == {"service-2": 20}
    for denied in (http._replace(target="/other"), http._replace(method="POST")):
        assert rollouts.send(20, denied, "sa-2") == {}
    for request in (http, raw):
        assert rollouts.send(20, request, "client") == {}
    assert rollouts.pods["sa-2"].send(5, http._replace(target="/other")) == {"403": 5}
    assert "403" not in rollouts.pods["client"].send(5, raw)  # the connection is closed: the port is not HTTP
