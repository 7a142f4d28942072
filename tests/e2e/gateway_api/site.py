"""A namespace for a test of the Gateway API: send requests to its Gateways, and read the statuses of its objects."""

import asyncio
import contextlib
import ssl
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Self

from cryptography import x509
from tests.e2e.gateway_api.hosts import Host
from tests.e2e.gateway_api.objects import CHANGED, PORT
from tests.waiting import until
from tests.wire import DEADLINE_S, Address, Answer, Network, Request, send

from headgate.model.identities import Credential

CLOSED = "closed"
ENTRIES = ("listeners", "parents", "ancestors")
"""The lists in statuses whose entries have conditions."""
ROUNDED = 1
"""A count's distance from exact shares: at 70 and 30, two backends can be due at once (docs/tasks/traffic-split.md#weights)."""


def conditions(entry: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition by type."""
    return {item["type"]: (item["status"], item["reason"]) for item in entry["conditions"]}


def assert_shares(answers: Mapping[str, int], expected: Mapping[str, int], cut: int = 0) -> None:
    """Assert that no answer is missing, and that each count is the expected one but for rounding and `cut` cycles of weights."""
    assert sum(answers.values()) == sum(expected.values()), answers
    for name, count in expected.items():
        assert abs(answers[name] - count) <= ROUNDED + cut, (answers, cut)


class HeldConnection:
    """A TLS connection to a server that greets and then echoes."""

    def __init__(self, network: Network, address: Address, server_name: str) -> None:
        self._network = network
        self._reader, self._writer = network.run(
            asyncio.open_connection(*address, ssl=trusting(), server_hostname=server_name)
        )
        network.run(self._reader.readline())

    def echo(self, text: str) -> str:
        """Send a line; return the line that comes back, which is empty on a closed connection."""
        return self._network.run(self._echo(text))

    async def _echo(self, text: str) -> str:
        async with asyncio.timeout(DEADLINE_S):
            send(self._writer, f"{text}\n".encode())
            return (await self._reader.readline()).decode().strip()

    def wait_closed(self) -> None:
        """Wait until the connection is closed."""
        self._network.run(self._read_all())

    async def _read_all(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            with contextlib.suppress(ConnectionError):
                await self._reader.read()

    def close(self) -> None:
        """Close the connection."""
        self._network.loop.call_soon_threadsafe(self._writer.close)


class Site:
    """A namespace with the Services v1, v2 and v3, in which a test creates Gateways and routes."""

    def __init__(self, host: Host, namespace: str) -> None:
        self.host, self.namespace = host, namespace
        self.backends = host.backends(namespace)
        self._ask = host.ask

    def in_mesh(self) -> Self:
        """Send all requests from a client in the mesh; return the site."""
        self._ask = self.host.ask_in_mesh
        return self

    def client_counters(self) -> Counter[str]:
        """Return counters of the client's proxy in the mesh: the requests that it sent for routes, and changes of endpoints.

        They have names, because those of a deleted route are missing later.
        """
        pattern = r"^(cluster[.]route/.*[.]upstream_rq_total|cluster_manager[.]cluster_(modified|updated.*))$"
        lines = (line.rpartition(": ") for line in self.host.client_stats(pattern).splitlines() if line)
        return Counter({name: int(number) for name, _, number in lines})

    def neighbor(self) -> "Site":
        """Return a site in a second namespace."""
        return Site(self.host, self.host.neighbor(self.namespace))

    def apply(self, *objects: str) -> None:
        """Apply objects, and wait until they are active."""
        self.host.apply(*objects, namespace=self.namespace)

    def patch(self, what: str, spec: Mapping[str, Any]) -> None:
        """Change fields of an object's spec."""
        self.host.patch(what, spec, self.namespace)

    def delete(self, what: str) -> None:
        """Delete an object without waiting."""
        self.host.delete(what, self.namespace)

    def serve(self, name: str, *backends: str, **ports: int) -> None:
        """Create a Service with named ports, by default `http` 8080, for some backends."""
        self.host.serve(name, *backends, ports=ports or {"http": 8080}, namespace=self.namespace)

    def start(self, protocol: str, name: str, *, port: int = 8080) -> None:
        """Start a server for `h2c`, `ws` or `grpc`, and create its Service."""
        self.host.start(protocol, name, port=port, namespace=self.namespace)

    def run(self, name: str, labels: Mapping[str, str]) -> None:
        """Create a Deployment whose pods answer with its name on port 8080."""
        self.host.run(name, labels, self.namespace)

    def address(self, service: str, port: int = 8080) -> Address:
        """Return the address of a Service."""
        return self.host.address(service, port, self.namespace)

    def generation(self, what: str) -> int:
        """Return the generation of an object."""
        return int(self.host.get(what, self.namespace)["metadata"]["generation"])

    def status(self, what: str) -> Any:
        """Wait for the status of an object's current generation; return it."""

        def current() -> Any:
            found = self.host.get(what, self.namespace)
            status = found["status"]
            entries = [status, *(entry for name in ENTRIES for entry in status.get(name, ()))]
            shown = [item for entry in entries for item in entry.get("conditions", ())]
            assert shown, status
            assert all(item["observedGeneration"] == found["metadata"]["generation"] for item in shown), status
            return status

        return until(current, f"the status of {what}")

    def parent(self, route: str) -> dict[str, tuple[str, str]]:
        """Return the conditions of a route's only parent, by type."""
        (entry,) = self.status(route)["parents"]
        return conditions(entry)

    def listener(self, name: str = "http", gateway: str = "edge") -> Any:
        """Return the status of a listener, with its conditions by type."""
        entries = self.status(f"gateway/{gateway}")["listeners"]
        found = next(entry for entry in entries if entry["name"] == name)
        return {**found, "conditions": conditions(found)}

    def wait_for_attached(self, wanted: Mapping[str, int], gateway: str = "edge") -> None:
        """Wait until the listeners have the wanted numbers of attached routes."""

        def same() -> bool:
            entries = self.status(f"gateway/{gateway}")["listeners"]
            assert {entry["name"]: entry["attachedRoutes"] for entry in entries} == wanted
            return True

        until(same, f"{wanted} attached routes")

    def wait_for_parent(self, route: str, **wanted: str) -> None:
        """Wait until conditions of a route's only parent have the wanted reasons.

        A condition whose wanted reason is the condition's type, without a prefix, must be True, any other one False.
        """

        def same() -> bool:
            reported = self.parent(route)
            expected = {
                kind: ("True" if reason == kind.rpartition("/")[2] else "False", reason)
                for kind, reason in wanted.items()
            }
            assert {kind: reported[kind] for kind in wanted} == expected, reported
            return True

        until(same, f"{wanted} of {route}")

    def accepted(self, *routes: str, name: str = "edge") -> Address:
        """Wait until a Gateway is programmed and accepts the routes; return its address with the port `PORT`.

        `routes` has names of HTTPRoutes, or `KIND/NAME`.
        """

        def programmed() -> bool:
            return conditions(self.status(f"gateway/{name}"))["Programmed"] == ("True", "Programmed")

        until(programmed, f"the Gateway {name}")
        for written in routes:
            what = written if "/" in written else f"httproute/{written}"
            self.wait_for_parent(what, Accepted="Accepted", ResolvedRefs="ResolvedRefs")
        self.host.settle()
        found = self.host.get(f"gateway/{name}", self.namespace)
        address = Address(found["status"]["addresses"][0]["value"], PORT)
        usable = {item["name"] for item in found["status"]["listeners"] if conditions(item)["Programmed"][0] == "True"}
        for item in found["spec"]["listeners"]:
            if item["name"] in usable:
                self.host.wait_for_port(address._replace(port=item["port"]))
        return address

    def ask(self, address: Address, url: str, *, method: str = "GET", **headers: str) -> Answer:
        """Send a request for `HOST/PATH`; `_` stands for `-` in names of headers."""
        host, slash, target = url.partition("/")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._ask(Request(address, slash + target or "/", host or "any", named, method=method))

    def answers(self, address: Address, *urls: str) -> Mapping[str, str]:
        """Return the backend, or the status, that answers each `HOST/PATH`."""
        return {url: self.ask(address, url).answered_by for url in urls}

    def changed_headers(self) -> Mapping[str, str]:
        """Return the headers `x-header-...` of the last request that v1 received."""
        return {name: text for name, text in self.backends["v1"].last.headers.items() if name.startswith(CHANGED)}

    def ask_tls(
        self, address: Address, server_name: str, host: str, client: Credential | None = None, path: str = "/"
    ) -> str:
        """Return the status of a GET request over TLS for a path on a host; `closed` if the connection ends without a response.

        The client presents the certificate of `client`.
        """
        return self.host.network.run(ask_tls(address, server_name, Request(address, path, host), trusting(client)))

    @contextlib.contextmanager
    def asking_tls(self, address: Address, host: str, client: Credential) -> Iterator[Counter[str]]:
        """Send requests one after another, each on a connection of its own; yield the numbers of their statuses."""
        answers, stopped = Counter[str](), threading.Event()
        asking = _keep_asking(address, host, client, answers, stopped)
        task = asyncio.run_coroutine_threadsafe(asking, self.host.network.loop)
        try:
            yield answers
        finally:
            stopped.set()
            task.result(DEADLINE_S)

    def greeting(self, address: Address, server_name: str, client: Credential | None = None) -> str:
        """Return the name in the certificate and the first line of a TLS server: `db: v1`; `closed` without a server.

        With an empty name, the client sends no SNI. It presents the certificate of `client`.
        """
        return self.host.network.run(greeting(address, server_name, trusting(client)))

    def hold(self, address: Address, server_name: str) -> HeldConnection:
        """Open a TLS connection to a server that greets."""
        return HeldConnection(self.host.network, address, server_name)

    def greetings(self, address: Address, *server_names: str) -> Mapping[str, str]:
        """Return the result of `greeting` for each name."""
        return {name: self.greeting(address, name) for name in server_names}


def trusting(client: Credential | None = None) -> ssl.SSLContext:
    """Return the context of a client that accepts every certificate, and presents its own if it has one.

    `ssl.create_default_context` would read the certificates of the system, which takes 20 ms of processor time.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if client:
        with tempfile.NamedTemporaryFile("w") as file:  # the module ssl reads certificates from files only
            file.write(client.chain + client.key.reveal())
            file.flush()
            context.load_cert_chain(file.name)
    return context


async def greeting(address: Address, server_name: str, context: ssl.SSLContext) -> str:
    """Return what `Site.greeting` does."""
    async with asyncio.timeout(DEADLINE_S):
        try:
            reader, writer = await asyncio.open_connection(*address, ssl=context, server_hostname=server_name)
            line = await reader.readline()
        except OSError:  # closed before or after the handshake
            return CLOSED
        shown = x509.load_der_x509_certificate(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
        writer.close()
        (name,) = shown.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        return f"{name.value!s}: {line.decode().strip()}" if line else CLOSED


async def ask_tls(address: Address, server_name: str, request: Request, context: ssl.SSLContext) -> str:
    """Return the status of a request over TLS; `closed` if the connection ends without a response."""
    async with asyncio.timeout(DEADLINE_S):
        try:
            reader, writer = await asyncio.open_connection(*address, ssl=context, server_hostname=server_name)
            writer.write(request.encoded())
            head = await reader.readuntil(b"\r\n\r\n")
        except (OSError, asyncio.IncompleteReadError):  # refused, or closed during or after the handshake
            return CLOSED
        writer.close()
        return head.split()[1].decode()


async def _keep_asking(
    address: Address, host: str, client: Credential, answers: Counter[str], stopped: threading.Event
) -> None:
    context = trusting(client)
    while not stopped.is_set():
        answers[await ask_tls(address, host, Request(address, "/", host), context)] += 1
