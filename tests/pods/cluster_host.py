"""A cluster as the host of the tests of the Gateway API: real pods, and Gateways with proxies of their own.

All tests share two namespaces with their pods, and the Gateway `edge`, because a pod takes seconds to start. After each
test, the objects that it applied are deleted, and the Gateway gets its first listener again.
"""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import yaml
from tests.api_client import Api
from tests.e2e.gateway_api.hosts import NAMES, SiteBackend
from tests.e2e.gateway_api.objects import edge_gateway
from tests.e2e.gateway_api.servers import PROTOCOLS
from tests.pods.conftest import (
    INSPECT,
    SIDECAR,
    SYSTEM,
    Cluster,
    app_deployment,
    http_service,
    mesh_namespace,
    until,
    wait_compiled,
    wait_for_port,
)
from tests.pods.kit import SECOND_IMAGE
from tests.pods.traffic_pod import CONTROL_PORT, PORT, ControlledPod, PodBackend
from tests.wire import Address, Answer, Network, Request, ask_once

from headgate.kinds import names_of
from headgate.resources.gateway_api.proxies import proxy_name

SITE, NEIGHBOR = "conformance", "conformance-neighbor"
SERVERS = {"h2c": ("h2c", 9201), "ws": ("ws", 9202)} | {
    f"grpc-{name}": ("grpc", 9203 + index) for index, name in enumerate(NAMES)
}
"""The protocol and the port of each server in the pod `protocols`."""
STATS = """
import http.client, socket, sys
connection = http.client.HTTPConnection("admin")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect("/run/headgate/admin.sock")
connection.request("GET", "/stats?filter=" + sys.argv[1])
print(connection.getresponse().read().decode())
"""
"""Prints the counters of an Envoy whose names match a quoted regular expression."""


class ClusterHost:
    """The two namespaces, with backends in pods; it implements `tests.e2e.gateway_api.hosts.Host`.

    The pods of the first namespace have sidecars, those of the second one have none.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._network = Network()
        self._cluster = cluster
        self._api = cluster.api
        self._applied: set[tuple[str, str]] = set()  # objects as `KIND/NAME`, with the namespace
        self._is_written = True  # whether a write may not be compiled yet
        self._pods = {
            (place, name): ControlledPod(self._pod_address(place, name))
            for place, names in ((SITE, (*NAMES, "client")), (NEIGHBOR, NAMES))
            for name in names
        }

    def _pod_address(self, place: str, name: str) -> str:
        (pod,) = self._cluster.get("pods", place, f"app={name}")["items"]
        return str(pod["status"]["podIP"])

    def backends(self, namespace: str) -> Mapping[str, SiteBackend]:
        found = {name: PodBackend(self._pods[namespace, name]) for name in NAMES}
        for backend in found.values():
            backend.reset()
        return found

    def neighbor(self, namespace: str) -> str:
        assert namespace == SITE
        return NEIGHBOR

    def apply(self, *objects: str, namespace: str) -> None:
        for obj in yaml.safe_load_all("\n---\n".join(objects)):
            if (obj["kind"], obj["metadata"]["name"]) == ("Gateway", "edge"):
                self._replace(obj)
            else:
                self._apply(obj, namespace)
        self.settle()

    def _replace(self, edge: Mapping[str, Any]) -> None:
        """Replace the Gateway that all tests share.

        A second server-side apply with fewer fields fails: Kubernetes 1.20 writes null for a map that becomes empty, and
        then rejects it.
        """
        metadata = {**edge["metadata"], "namespace": SITE}
        path = f"{self._api.collection({**edge, 'metadata': metadata})}/edge"
        self._is_written = True

        def write() -> Any:  # it fails when headgate writes the status at the same time
            version = self._api.call("GET", path)["metadata"]["resourceVersion"]
            return self._api.call("PUT", path, {**edge, "metadata": {**metadata, "resourceVersion": version}})

        until(write, "the Gateway")

    def _apply(self, obj: Mapping[str, Any], namespace: str) -> Any:
        """Apply an object, in the form that Kubernetes 1.20 accepts; return the result."""
        if obj["kind"] == "EndpointSlice":
            obj = {**obj, "apiVersion": self._api.preferred_version("discovery.k8s.io")}
        if obj["kind"] == "Service":
            ports = [{"protocol": "TCP", **port} for port in obj["spec"]["ports"]]
            obj = {**obj, "spec": {**obj["spec"], "ports": ports}}
        applied = self._api.apply(obj, namespace)
        self._is_written = True
        if obj["kind"] != "Namespace":
            self._applied.add((f"{names_of(obj['kind']).singular}/{obj['metadata']['name']}", namespace))
        return applied

    def patch(self, what: str, spec: Mapping[str, Any], namespace: str) -> None:
        self._api.patch(what, {"spec": spec}, namespace)
        self._is_written = True

    def get(self, what: str, namespace: str) -> Any:
        return self._api.get(what, namespace)

    def delete(self, what: str, namespace: str) -> None:
        self._api.delete(what, namespace)
        self._is_written = True
        self._applied.remove((what, namespace))

    def settle(self) -> None:
        if self._is_written:
            settle(self._api)
        else:
            wait_for_proxies(self._api)
        self._is_written = False

    def _settle_writes(self) -> None:
        if self._is_written:
            self.settle()

    def serve(self, name: str, *backends: str, ports: Mapping[str, int], namespace: str) -> None:
        assert backends == NAMES or len(backends) == 1
        selector = {"app": backends[0]} if len(backends) == 1 else {"part": "backends"}
        written = [{"name": port, "port": number, "targetPort": PORT} for port, number in ports.items()]
        self._serve(name, selector, written, namespace)

    def start(self, protocol: str, name: str, *, port: int, namespace: str) -> None:
        app_protocol, (started, target) = PROTOCOLS[protocol].app_protocol, SERVERS[name]
        assert started == protocol
        written = {"name": "main", "port": port, "targetPort": target, "appProtocol": app_protocol}
        self._serve(name, {"app": "protocols"}, [written], namespace)

    def _serve(self, name: str, selector: Mapping[str, str], ports: list[dict[str, Any]], namespace: str) -> None:
        """Create a Service, and wait until its pods are endpoints of the proxies."""
        written = {**http_service(namespace, name), "spec": {"selector": selector, "ports": ports}}
        created = self._apply(written, namespace)["metadata"]["uid"]
        pods = self._cluster.get("pods", namespace, ",".join("=".join(item) for item in selector.items()))

        def has_endpoints() -> bool:
            slices = self._api.get("endpointslices", namespace)["items"]
            own = [
                item
                for item in slices
                if created in {owner["uid"] for owner in item["metadata"].get("ownerReferences", ())}
            ]
            return sum(len(item["endpoints"] or ()) for item in own) == len(pods["items"])

        until(has_endpoints, f"endpoints of {name}")
        self.settle()

    def run(self, name: str, labels: Mapping[str, str], namespace: str) -> None:
        assert labels == {"app": name}
        self._apply(traffic_deployment(namespace, name), namespace)
        self._cluster.wait_rolled_out(namespace, name)

    def address(self, service: str, port: int, namespace: str) -> Address:
        return Address(self.get(f"service/{service}", namespace)["spec"]["clusterIP"], port)

    def wait_for_port(self, address: Address) -> None:
        wait_for_port(*address)

    @property
    def network(self) -> Network:
        """Return the network of clients on this machine, once the proxies know what was written."""
        self._settle_writes()
        return self._network

    def ask(self, request: Request) -> Answer:
        return self.network.run(ask_once(request))

    def ask_in_mesh(self, request: Request) -> Answer:
        self._settle_writes()
        return self._pods[SITE, "client"].ask(request)

    def call_in_mesh(self, address: Address, count: int) -> Counter[str]:
        self._settle_writes()
        return self._pods[SITE, "client"].call_grpc(address, count)

    def client_stats(self, pattern: str) -> str:
        program = ("-n", SITE, "exec", "deployment/client", "-c", SIDECAR, "--", "python3", "-c", STATS, quote(pattern))
        return until(lambda: self._cluster.kubectl(*program), "counters of a proxy")  # `kubectl exec` may lose them

    def reset(self) -> None:
        """Delete what a test has applied, and restore the objects that all tests share.

        The first write or request of the next test waits until the proxies know it.
        """
        if applied := tuple(self._applied):
            for what, place in applied:
                self.delete(what, place)
            # The statuses and the Service of the Gateway that are read next are those without the deleted objects.
            until(lambda: wait_compiled(self._api), "compiled objects")
        self._api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NEIGHBOR}})
        original = json.loads(edge_gateway())
        ports = {listener["port"] for listener in original["spec"]["listeners"]}
        self._wait_for_service_of_gateway()
        changed = self._ports_of_gateway() != ports
        self._replace(original)
        if changed:
            until(lambda: self._ports_of_gateway() == ports, "the ports of the Gateway's Service")
            self._cluster.wait_for_nodes(SITE, app="v1")

    def _ports_of_gateway(self) -> set[int]:
        found = self._cluster.get(f"service/{proxy_name(SITE, 'edge')}", SYSTEM)
        return {port["port"] for port in found["spec"]["ports"]}

    def _wait_for_service_of_gateway(self) -> None:
        """Wait until the Gateway's Service has the ports of its listeners, unless the Gateway is not accepted.

        A test may end before, and its ports would then come and go during the next test.
        """

        def is_current() -> bool:
            found = self.get("gateway/edge", SITE)
            wanted = {listener["port"] for listener in found["spec"]["listeners"]}
            accepted = {item["type"]: item["status"] for item in found["status"]["conditions"]}["Accepted"] == "True"
            return not accepted or self._ports_of_gateway() == wanted

        until(is_current, "the ports of the Gateway's Service")

    def close(self) -> None:
        """Close all connections."""
        for pod in self._pods.values():
            pod.close()
        self._network.close()


def settle(api: Api) -> None:
    """Wait until all stored objects are compiled, and all connected proxies have the result."""
    # On a busy machine, a replica may lose the Lease meanwhile: the next one answers.
    until(lambda: wait_compiled(api), "compiled objects")
    wait_for_proxies(api)


def wait_for_proxies(api: Api) -> None:
    """Wait until all connected proxies have what is compiled."""

    def is_active() -> bool:
        proxies = api.call("GET", f"{INSPECT}/proxies")["items"]
        states = {item["node"]: item["status"]["state"] for item in proxies}
        assert set(states.values()) <= {"InSync", "Disconnected"}, states
        return True

    until(is_active, "all connected proxies in sync")


def traffic_deployment(
    place: str,
    name: str,
    *,
    port: int = PORT,
    servers: Mapping[str, tuple[str, int]] | None = None,
    **labels: str,
) -> dict[str, Any]:
    """Return a Deployment of the program in `traffic_pod`, which a test controls; its HTTP server listens on `port`.

    `servers` has the protocol and the port of each further server, as SERVERS.
    """
    command = ["/opt/headgate/bin/python", "-m", "tests.pods.traffic_pod"]
    written = app_deployment(place, name, replicas=1, command=command, **labels)
    pod = written["spec"]["template"]
    pod["metadata"]["annotations"] = {"headgate.dev/excluded-inbound-ports": str(CONTROL_PORT)}
    (container,) = pod["spec"]["containers"]
    servers = servers or {}
    container |= {
        "image": SECOND_IMAGE,
        "env": [
            {"name": "NAME", "value": name},
            {"name": "PORT", "value": str(port)},
            {"name": "SERVERS", "value": json.dumps(servers)},
        ],
        "ports": [{"containerPort": number} for number in (port, *(number for _, number in servers.values()))],
        "readinessProbe": {"tcpSocket": {"port": CONTROL_PORT}, "periodSeconds": 1},
    }
    return written


def prepare(cluster: Cluster) -> None:
    """Create the objects that all tests share, and wait until they are ready."""
    cluster.apply(mesh_namespace(SITE), mesh_namespace(NEIGHBOR, injected=False))
    cluster.kubectl("-n", SITE, "create", "-f", "-", stdin=edge_gateway())
    for place in (SITE, NEIGHBOR):
        cluster.apply(*(traffic_deployment(place, name, part="backends") for name in NAMES))
        cluster.apply(*(http_service(place, name, app=name) for name in NAMES))
    cluster.apply(traffic_deployment(SITE, "protocols", servers=SERVERS), traffic_deployment(SITE, "client"))
    cluster.wait_rolled_out(SITE, *NAMES, "protocols", "client")
    cluster.wait_rolled_out(NEIGHBOR, *NAMES)
    cluster.kubectl("-n", SITE, "wait", "gateway/edge", "--for=condition=Programmed", "--timeout=240s")
    for place in (SITE, NEIGHBOR):
        cluster.wait_in_sync(place)
