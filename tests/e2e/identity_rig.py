"""A small mesh for the tests of identities: a server, its callers, and the admin interface of each proxy."""

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.manifests import counting_deployment
from tests.e2e.running_mesh import KUBECTL, RunningMesh
from tests.make import objects
from tests.make.objects import Object, headgate_keys, http_route_group, http_rule, manifest, tcp_rule, traffic_target
from tests.waiting import until
from tests.wire import Address, Answer, Client, Load, Network, Request, ask_unix

PORTS = {"http": 8080, "raw": 9000}
SIDECAR_PORT = 15001
CONNECTION_PAUSE_S = 0.1  # each connection has a handshake of mutual TLS
WEB, RAW = http_rule("web"), tcp_rule("raw")
"""Rules of TrafficTargets, whose routes `ROUTES` has."""
ROUTES = manifest(
    http_route_group("web", {"all": {"methods": ["*"], "pathRegex": ".*"}}), objects.obj("TCPRoute", "raw", spec={})
)
SERVER = "server"
CALLER = "caller"


def workload(name: str, root: Path, *, replicas: int = 1) -> str:
    """Return a Deployment that runs as the ServiceAccount of its name, and its Service: HTTP on 8080, TCP on 9000."""
    labels = {"app": name}
    made = counting_deployment(name, root / name, labels=labels, ports=PORTS, replicas=replicas, account=name)
    ports = [objects.port(PORTS["http"], "http"), objects.port(PORTS["raw"], "raw", app="tcp")]
    return f"{manifest(objects.service(name, *ports, selector=labels, namespace=''))}\n---\n{made}"


def site(root: Path, *, replicas: int = 1) -> Mapping[str, str]:
    """Return the manifests of `server` (with `replicas` pods) and of `caller`, by file name."""
    return {"server.yaml": workload(SERVER, root, replicas=replicas), "caller.yaml": workload(CALLER, root)}


def two_servers(root: Path) -> Mapping[str, str]:
    """Return the manifests of `server` with two pods and of `caller`, by file name."""
    return site(root, replicas=2)


def strict_tls(name: str = "strict", app: str = SERVER) -> str:
    """Return a TLSConfig for the pods of an application."""
    return manifest(objects.tls_config(name, {"app": app}))


def access(*sources: str, rule: Object, **annotations: str) -> str:
    """Return a TrafficTarget `RULE-callers` that allows ServiceAccounts to call the server by a rule, an SMI route."""
    written = headgate_keys(**annotations)
    return manifest(traffic_target(f"{rule['name']}-callers", SERVER, sources, [rule], annotations=written))


def headgate_wait(mesh: RunningMesh, what: str) -> str:
    """Run `headgate wait WHAT` and assert success; return the command's output."""
    done = mesh.headgate("wait", what, "--timeout", "60s")
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def kubectl_lines(mesh: RunningMesh, *words: str) -> Iterator[Iterable[str]]:
    """Run kubectl during the `with` block; yield its output lines."""
    command = [KUBECTL, "--kubeconfig", mesh.ready["kubeconfig"], "--cache-dir", str(mesh.root / "cache"), *words]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    with process.stdout as lines:
        try:
            yield lines
        finally:
            process.terminate()
            process.wait()


def sidecar_pid(mesh: RunningMesh, found: Any) -> int:
    """Return the process ID of a pod's sidecar."""
    metadata = found["metadata"]
    return mesh.sidecars()[f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"]


def pods(mesh: RunningMesh, app: str) -> Sequence[Any]:
    """Return the pods of an application."""
    return [pod for pod in mesh.get("pods")["items"] if pod["metadata"]["labels"]["app"] == app]


def only_pod(mesh: RunningMesh, app: str) -> Any:
    """Return the only pod of an application."""
    (found,) = pods(mesh, app)
    return found


def pod_address(found: Any, port: int = PORTS["http"]) -> Address:
    """Return the address of a pod's port."""
    return Address(found["status"]["podIP"], port)


def request_through_sidecar(caller: Any, service: str = SERVER, target: str = "/") -> Request:
    """Return a pod's request to a Service, through the pod's own sidecar."""
    host = f"{service}.default:{PORTS['http']}"
    return Request(pod_address(caller, SIDECAR_PORT), f"http://{host}{target}", host)


def caller_requests(mesh: RunningMesh) -> Sequence[Request]:
    """Return two requests of each kind: to the Service's address, through the HTTP proxy, and from the caller's pod."""
    requests = [
        mesh.request(SERVER, PORTS["http"]),
        mesh.request(SERVER, PORTS["http"], via="proxy"),
        request_through_sidecar(only_pod(mesh, CALLER)),
    ]
    return [*requests, *requests]


class ConnectionLoad(Load):
    """A load generator that opens TCP connections one after the other and sends one request on each."""

    def __init__(self, network: Network, targets: Sequence[tuple[Address, str]]) -> None:
        """Start one connection loop for each target: an address, and the host of a CONNECT (empty for no tunnel)."""
        super().__init__(network, ())
        self._work = [network.begin(self._connect(*target)) for target in targets]

    async def _connect(self, address: Address, tunnel: str) -> None:
        while not self._stopping:
            client = TunnelClient(address, tunnel)
            try:
                self.counts[(await client.ask()).answered_by] += 1
            finally:
                client.close()
            await asyncio.sleep(CONNECTION_PAUSE_S)


class TunnelClient(Client):
    """A client with one connection, through a CONNECT tunnel if requested, that stays open until one side closes it."""

    def __init__(self, address: Address, tunnel: str = "", request: Request | None = None) -> None:
        super().__init__(request or Request(address, host=SERVER))
        self._address, self._tunnel = address, tunnel
        self.opened = 0

    async def wait_until_closed(self) -> None:
        """Wait until the server closes the connection."""
        assert self._reader
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(1000):
                pass

    async def _ask(self) -> Answer:
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(*self._address)
            self.opened += 1
            if self._tunnel:
                self._writer.write(f"CONNECT {self._tunnel} HTTP/1.1\r\nhost: {self._tunnel}\r\n\r\n".encode())
                head = await self._reader.readuntil(b"\r\n\r\n")
                if b" 200 " not in head.partition(b"\r")[0]:
                    return Answer(int(head.split(maxsplit=2)[1]), "", {})
        return await super()._ask()


async def close(*clients: Client) -> None:
    """Close clients on their event loop."""
    for client in clients:
        client.close()


def raw_port_targets(mesh: RunningMesh) -> Sequence[tuple[Address, str]]:
    """Return the address and CONNECT host of two paths to the server's TCP port: through the gateway and a sidecar."""
    port = PORTS["raw"]
    return [
        (mesh.address(SERVER, port), ""),
        (pod_address(only_pod(mesh, CALLER), SIDECAR_PORT), f"{SERVER}.default:{port}"),
    ]


@contextlib.contextmanager
def open_connections(mesh: RunningMesh) -> Iterator[tuple[TunnelClient, TunnelClient]]:
    """Yield two clients in a pod that call through its sidecar: one with HTTP, the other with TCP."""
    request = request_through_sidecar(only_pod(mesh, CALLER))
    web, raw = TunnelClient(request.address, request=request), TunnelClient(*raw_port_targets(mesh)[1])
    try:
        yield web, raw
    finally:
        mesh.network.run(close(web, raw))


def ask(mesh: RunningMesh, client: TunnelClient) -> Answer:
    """Send one request of a client."""
    return mesh.network.run(client.ask())


def wait_for_requests(load: Load, count: int = 50) -> None:
    """Wait until `count` more requests are answered."""
    seen = load.sent
    until(lambda: load.sent > seen + count)


def plaintext_answer(address: Address) -> bytes:
    """Send a request in plaintext without a client-side proxy; return the first line of the answer, or b""."""
    request = b"GET / HTTP/1.1\r\nhost: server\r\nconnection: close\r\n\r\n"
    try:
        with socket.create_connection(address, timeout=60) as plain:
            plain.sendall(request)
            return plain.makefile("rb").readline().strip()
    except ConnectionError:
        return b""


def counted_requests(path: Path) -> int:
    """Return how many requests an application's pods have served: the number of dots in their file."""
    return path.stat().st_size if path.exists() else 0


def admin_sockets(mesh: RunningMesh) -> Sequence[str]:
    """Return the admin sockets of the gateway and of all sidecars."""
    directory = Path(mesh.instance["admin"]).parent
    return [str(path) for path in directory.glob("*.sock") if path.name == "admin.sock" or path.name.startswith("pod-")]


def ask_admin(mesh: RunningMesh, socket_path: str, target: str) -> str:
    """GET from a proxy's admin interface."""
    return mesh.network.run(ask_unix(socket_path, target)).decode()


def sidecar_admin_socket(mesh: RunningMesh, found: Any) -> str:
    """Return the admin socket of a pod's sidecar."""
    node_id = f"sidecar/{found['metadata']['namespace']}/{found['metadata']['name']}"
    (own,) = [
        path
        for path in admin_sockets(mesh)
        if json.loads(ask_admin(mesh, path, "/server_info"))["node"]["id"] == node_id
    ]
    return own


def sidecar_counter(mesh: RunningMesh, found: Any, name: str) -> int:
    """Return the sum of the counters of a pod's sidecar whose names end with `name`."""
    text = ask_admin(mesh, sidecar_admin_socket(mesh, found), f"/stats?filter={name.replace('.', '[.]')}$")
    return sum(int(line.rpartition(": ")[2]) for line in text.splitlines() if line)


@contextlib.contextmanager
def load_without_loss(mesh: RunningMesh, root: Path) -> Iterator[Load]:
    """Send requests and open connections during the `with` block; assert that none fails and the server counted each.

    Requests reuse their connections; the TCP load opens a new connection each time.
    """
    before = counted_requests(root / SERVER)
    connections = ConnectionLoad(mesh.network, raw_port_targets(mesh))
    try:
        with mesh.load(*caller_requests(mesh)) as load:
            wait_for_requests(load)
            yield load
            wait_for_requests(load)
    finally:
        connections.stop()
    assert set(load.counts) == {SERVER}, load.counts
    assert set(connections.counts) == {SERVER}, connections.counts
    assert counted_requests(root / SERVER) - before >= load.sent + connections.sent
