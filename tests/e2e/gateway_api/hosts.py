"""The hosts of the tests of the Gateway API: what a test needs of its environment, and one machine that offers it.

`tests/pods` has the other host, a cluster.
"""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import quote

from tests.e2e.gateway_api.servers import PROTOCOLS, GrpcServer, call_repeatedly
from tests.e2e.manifests import counting_deployment, endpoints, external, protocol_service, service_manifest
from tests.e2e.running_mesh import RunningMesh
from tests.wire import Address, Answer, Network, Received, Request

NAMES = ("v1", "v2", "v3")


class SiteBackend(Protocol):
    """An HTTP server that answers with its name and counts requests.

    Tests may set `headers` (of all responses), `hangs` (to withhold responses) and `faults` (of the next requests, as in
    `tests.wire.Backend`). `last` is the last request.
    """

    headers: Mapping[str, str]
    hangs: bool
    faults: list[str]

    @property
    def address(self) -> Address: ...
    @property
    def requests(self) -> int: ...
    @property
    def last(self) -> Received: ...


class Host(Protocol):
    """Where headgate runs. Objects are written as JSON or YAML text, and named as `KIND/NAME`."""

    @property
    def network(self) -> Network:
        """Return the network of clients and servers on this machine."""

    def backends(self, namespace: str) -> Mapping[str, SiteBackend]:
        """Return the backends of the Services `NAMES` in a namespace, and create these Services."""

    def neighbor(self, namespace: str) -> str:
        """Return the name of a second namespace."""

    def apply(self, *objects: str, namespace: str) -> None:
        """Apply objects, and wait until they are active."""

    def patch(self, what: str, spec: Mapping[str, Any], namespace: str) -> None:
        """Change fields of an object's spec."""

    def get(self, what: str, namespace: str) -> Any:
        """Return an object."""

    def delete(self, what: str, namespace: str) -> None:
        """Delete an object without waiting."""

    def settle(self) -> None:
        """Wait until the proxies have applied every write so far."""

    def serve(self, name: str, *backends: str, ports: Mapping[str, int], namespace: str) -> None:
        """Create a Service, each of whose ports leads to all of the backends."""

    def start(self, protocol: str, name: str, *, port: int, namespace: str) -> None:
        """Start a server for one of PROTOCOLS, and create its Service."""

    def run(self, name: str, labels: Mapping[str, str], namespace: str) -> None:
        """Create a Deployment whose pods answer with its name on port 8080."""

    def address(self, service: str, port: int, namespace: str) -> Address:
        """Return the address of a Service with the port."""

    def wait_for_port(self, address: Address) -> None:
        """Wait until the port of a programmed Gateway accepts connections."""

    def ask(self, request: Request) -> Answer:
        """Send a request from a client outside the mesh."""

    def ask_in_mesh(self, request: Request) -> Answer:
        """Send a request from a client in the mesh."""

    def call_in_mesh(self, address: Address, count: int) -> Counter[str]:
        """Send calls over gRPC from a client in the mesh, on one connection; return how often each server answered."""

    def client_stats(self, pattern: str) -> str:
        """Return the counters of the client's proxy in the mesh whose names match a regular expression, as lines `NAME: VALUE`."""


class Machine:
    """One machine: `headgate up`, with backends in the test's process."""

    def __init__(self, mesh: RunningMesh) -> None:
        self.network = mesh.network
        self._mesh = mesh
        self._backends: dict[str, Mapping[str, Any]] = {}
        self._servers: list[GrpcServer] = []

    def backends(self, namespace: str) -> Mapping[str, SiteBackend]:
        found = self._backends[namespace] = {name: self._mesh.backend(name) for name in NAMES}
        self.apply(*(external(name, backend) for name, backend in found.items()), namespace=namespace)
        return found

    def neighbor(self, namespace: str) -> str:
        name = f"{namespace}-neighbor"
        self._mesh.create_namespace(name)
        return name

    def apply(self, *objects: str, namespace: str) -> None:
        self._mesh.apply(*objects, namespace=namespace)

    def patch(self, what: str, spec: Mapping[str, Any], namespace: str) -> None:
        kind, _, name = what.partition("/")
        change = json.dumps({"spec": spec})
        self._mesh.kubectl("patch", kind, name, "-n", namespace, "--type", "merge", "-p", change)

    def get(self, what: str, namespace: str) -> Any:
        return self._mesh.get(what, namespace)

    def delete(self, what: str, namespace: str) -> None:
        self._mesh.delete(what, namespace)

    def settle(self) -> None:
        self._mesh.settle()

    def serve(self, name: str, *backends: str, ports: Mapping[str, int], namespace: str) -> None:
        found = [self._backends[namespace][backend] for backend in backends]
        self.apply(service_manifest(name, ports), endpoints(name, dict.fromkeys(ports, found)), namespace=namespace)

    def start(self, protocol: str, name: str, *, port: int, namespace: str) -> None:
        wanted = PROTOCOLS[protocol]
        server = wanted.start(self.network, name)
        if isinstance(server, GrpcServer):
            self._servers.append(server)
        self.apply(protocol_service(name, server, app=wanted.app_protocol, port=port), namespace=namespace)

    def run(self, name: str, labels: Mapping[str, str], namespace: str) -> None:
        count_in = self._mesh.root / f"{namespace}-{name}"
        written = counting_deployment(name, count_in, labels=labels, ports={"http": 8080})
        self.apply(written, namespace=namespace)

    def address(self, service: str, port: int, namespace: str) -> Address:
        return self._mesh.address(service, port, namespace)

    def wait_for_port(self, address: Address) -> None:
        """Return at once: a programmed listener of the node's gateway accepts connections."""

    def ask(self, request: Request) -> Answer:
        return self._mesh.ask(request)

    def ask_in_mesh(self, request: Request) -> Answer:
        """Send a request to the node's gateway, which serves the Services of the mesh to clients without a sidecar."""
        return self._mesh.ask(request)

    def call_in_mesh(self, address: Address, count: int) -> Counter[str]:
        return call_repeatedly(address, count)

    def client_stats(self, pattern: str) -> str:
        return self._mesh.envoy(f"/stats?filter={quote(pattern)}").decode()

    def close(self) -> None:
        """Stop the servers that don't belong to the network."""
        for server in self._servers:
            server.close()
