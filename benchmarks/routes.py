"""Measure Gateways with many routes: the scenarios of the public benchmark gateway-api-bench.

A real `headgate up` serves one Gateway; `cluster_routes` runs the same scenarios on a cluster. Routes are created one by one
while a client probes each of them; one route changes under load; one endpoint fails again and again under load; routes are
attached and detached at once; and then nothing changes for a while. Besides, many ListenerSets add listeners to a Gateway, without a
proxy.
"""

import asyncio
import http.client
import json
import math
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.load import cpu_seconds
from tests.api_client import Api, access
from tests.delivery import is_programmed
from tests.e2e.gateway_api.objects import gateway_address, gateway_for_hosts
from tests.e2e.manifests import endpoints
from tests.e2e.running_mesh import RunningMesh, mesh_in_a_new_directory
from tests.make import objects
from tests.make.objects import Object
from tests.waiting import until
from tests.wire import Address, Backend, Client, Load, Network, Request, ask_once

from headgate.cli.compile import GATEWAY
from headgate.compiler.compile import Compiler
from headgate.compiler.snapshot import Snapshot
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import project
from headgate.plane.feed import snapshot_of, with_objects
from headgate.resources.registry import key_of
from headgate.resources.resilience import EJECTION, RETRY
from headgate.settings import Settings

CHANGE_PAUSE_S = 0.2
FLAP_S = 2.0
"""Seconds for which an endpoint fails, and after that works."""
POLICIES = {
    "no ejection": {EJECTION: "off"},
    "default": {},
    "ejection and retries": {RETRY: "on=503"},
}
"""The annotations of the Service with the failing endpoint."""
PROBE_PAUSE_S = 0.005
"""Seconds between two requests of a probe."""
LISTENERS = 16
"""Listeners of a ListenerSet."""
WRITERS = 8
"""Connections over which routes are attached and detached at the same time."""
WATCH = "/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways?watch=true&fieldSelector=metadata.name%3Dedge"
RESPONSES = "(cds|lds|rds|scoped_rds|sds).*update_success$"
"""The counters of Envoy that grow with each xDS response."""


class Scale(NamedTuple):
    """How many routes are created one by one, how many are attached at once, and how often a route changes.

    `flaps` is how often an endpoint fails, and `sets` the number of ListenerSets. `settle` has the seconds after the last change until the idle time begins, `idle` those of the idle time.
    """

    created: int
    attached: int
    changes: int
    flaps: int = 0
    sets: int = 0
    settle: float = 10
    idle: float = 180


USUAL = Scale(created=3000, attached=1000, changes=1000, flaps=20, sets=2500)
SMALLEST = Scale(created=3, attached=2, changes=1, flaps=1, sets=2, settle=0, idle=0)


class Edge(NamedTuple):
    """A headgate that serves the Gateway `edge` of the namespace `default` at an address.

    Its routes have the backends `backend` and `second`, each with the ports 8080 and 8081. `processes` returns the PIDs of
    the control plane and of the Gateway's Envoy, by name.
    """

    address: Address
    kubeconfig: Path
    api: Api
    network: Network
    processes: Callable[[], Mapping[str, int]]


def modifier(kind: str, name: str) -> Object:
    """Return a filter that adds a header to requests (`Request`) or responses (`Response`)."""
    added = {"add": [{"name": name, "value": "added"}]}
    return {"type": f"{kind}HeaderModifier", f"{kind.lower()}HeaderModifier": added}


def hosted(name: str, *rules: Object) -> Object:
    """Return an HTTPRoute for a host of its own."""
    return objects.route(name, *rules, parents=[{"name": "edge"}], hostnames=[f"{name}.example.com"])


def probed(name: str) -> Object:
    """Return a route with one rule to a backend, and one to a missing backend."""
    filters = [modifier("Request", "added-header"), modifier("Response", "added-resp-header")]
    served = objects.rule({"backend": 1}, matches=[objects.path_match(f"/{name}")], filters=filters)
    return hosted(name, served, objects.rule({"missing": 1}, filters=filters))


def changing(number: int) -> Object:
    """Return a route whose port, backend and filters alternate."""
    if number % 2:
        return hosted("changing", objects.rule({"backend": 1}))
    backend = objects.backend_ref("second", 8081, filters=[modifier("Response", "my-added-header")])
    return hosted("changing", {"backendRefs": [backend], "filters": [modifier("Request", "added-header")]})


class Probe(NamedTuple):
    """The statuses of the answers before the first 200, and the time of the 200 (`perf_counter`)."""

    statuses: Counter[int]
    served: float


class Times(NamedTuple):
    """Milliseconds until the first 200 of a route."""

    since_sent: float
    since_acknowledged: float


async def probe(request: Request) -> Probe:
    """Send requests until the answer is 200."""
    client, statuses = Client(request), Counter[int]()
    try:
        while (answer := await client.ask()).status != 200:
            statuses[answer.status] += 1
            await asyncio.sleep(PROBE_PAUSE_S)
        return Probe(statuses, time.perf_counter())
    finally:
        client.close()


def create_with_probes(edge: Edge, count: int) -> None:
    """Create routes one by one. For each third of them, print the times until the first 200 of a route, and the processor
    time of headgate and of Envoy for a route.

    The public benchmark measures since the write was acknowledged; a user also waits for the write itself.
    """
    times, statuses = [], Counter[int]()
    third = count // 3
    spent = []
    for number in range(count):
        if number in (0, third, 2 * third):
            spent.append(processor_times(edge))
        name = f"probed-{number}"
        probing = edge.network.begin(probe(Request(edge.address, f"/{name}", f"{name}.example.com")))
        began = time.perf_counter()
        edge.api.apply(probed(name))
        acknowledged = time.perf_counter()
        served = (found := probing.result()).served
        times.append(Times(since_sent=1000 * (served - began), since_acknowledged=1000 * max(0, served - acknowledged)))
        statuses += found.statuses
    print(f"{count} routes, created one by one; answers before the first 200: {dict(statuses)}", flush=True)
    spent.append(processor_times(edge))
    parts = ("first", times[:third]), ("second", times[third : 2 * third]), ("last", times[2 * third :])
    for (what, part), before, after in zip(parts, spent[:-1], spent[1:], strict=True):
        costs = ", ".join(f"{name} {1000 * (after[name] - before[name]) / len(part):.1f} ms" for name in after)
        print(f"  {what:6} third: processor: {costs}")
        for name, values in zip(("sent", "acknowledged"), zip(*part, strict=True), strict=True):
            p99 = sorted(values)[math.ceil(len(values) * 0.99) - 1]
            median = statistics.median(values)
            print(f"    since the write was {name:13} median {median:6.1f} ms   p99 {p99:6.1f} ms", flush=True)


def processor_times(edge: Edge) -> Mapping[str, float]:
    """Return the processor time of headgate and of its Envoy, in seconds."""
    return {name: cpu_seconds(pid) for name, pid in edge.processes().items()}


def change_under_load(edge: Edge, count: int) -> None:
    """Change one route again and again under load; print the answers."""
    edge.api.apply(changing(0))
    request = Request(edge.address, "/", "changing.example.com")
    until(lambda: edge.network.run(ask_once(request)).status == 200, "the route")
    load = Load(edge.network, [request, request], pause=0.01)
    for number in range(count):
        edge.api.apply(changing(number))
        time.sleep(CHANGE_PAUSE_S)
    load.stop()
    failed = sum(answers for answer, answers in load.counts.items() if answer not in ("backend", "second"))
    print(f"{count} changes to a route: {load.sent} requests, {failed} failed; {dict(load.counts)}", flush=True)


def fail_under_load(mesh: RunningMesh, edge: Edge, count: int) -> None:
    """Let one of three endpoints answer 503 again and again under load; print the errors of clients for each policy."""
    several = [mesh.backend(f"flapping-{number}") for number in range(3)]
    for what, annotations in POLICIES.items():
        served = objects.service("flapping", objects.port(8080, "http"), annotations=annotations)
        mesh.apply(objects.manifest(served, hosted("flapping", objects.rule({"flapping": 1}))))
        mesh.apply(endpoints("flapping", {"http": several}))
        request = Request(edge.address, "/", "flapping.example.com")
        until(lambda: edge.network.run(ask_once(request)).status == 200, "the route")  # noqa: B023  # called at once
        load = Load(edge.network, [request] * 4, pause=0.005)
        for _ in range(count):
            flap(several[0])
        load.stop()
        failed = sum(number for answer, number in load.counts.items() if not answer.startswith("flapping"))
        print(f"an endpoint fails {count} times, {what}: {load.sent} requests, {failed} failed", flush=True)


def flap(backend: Backend) -> None:
    """Let a backend fail for a while, and then work."""
    for status in ("503 Service Unavailable", "200 OK"):
        backend.status = status
        time.sleep(FLAP_S)


class StatusWrites:
    """Counts the writes of the Gateway's status; `attached` is the number of attached routes in the last status."""

    def __init__(self, kubeconfig: Path) -> None:
        self.count, self.attached, self.changed = 0, 0, 0.0
        found = access(kubeconfig)
        self._connection = http.client.HTTPSConnection(found.host, found.port, context=found.tls)
        self._connection.request("GET", WATCH, headers=dict(found.headers))
        self._answer = self._connection.getresponse()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while line := self._answer.readline():
            status = json.loads(line)["object"]["status"]
            self.attached, self.changed = status["listeners"][0]["attachedRoutes"], time.perf_counter()
            self.count += 1


def attach_and_detach(edge: Edge, count: int, settle: float) -> None:
    """Create and delete routes at once; print how often the Gateway's status is written, and when it is right."""
    writes = StatusWrites(edge.kubeconfig)
    until(lambda: writes.count, "the watch")
    before, begun = writes.attached, writes.count
    clients = [Api(edge.kubeconfig) for _ in range(WRITERS)]

    def each(work: Any, target: int, what: str) -> None:
        counted, began = writes.count, time.perf_counter()
        with ThreadPoolExecutor(WRITERS) as pool:
            list(pool.map(lambda number: work(clients[number % WRITERS], f"attached-{number}"), range(count)))
        ended = time.perf_counter()
        until(lambda: writes.attached == target, f"{target} attached routes")
        late, took = max(writes.changed - ended, 0), ended - began
        print(
            f"{count} routes {what} in {took:.1f} s: the number is right {1000 * late:.0f} ms after the last; "
            f"{writes.count - counted} writes of the Gateway's status",
            flush=True,
        )

    each(lambda api, name: api.apply(probed(name)), before + count, "attached")
    ended = time.perf_counter()
    until(
        lambda: all(is_programmed(route, 1) for route in edge.api.get("httproutes")["items"]),
        "the statuses of all routes",
        300,
    )
    print(f"  all routes have their status {time.perf_counter() - ended:.1f} s later", flush=True)
    each(lambda api, name: api.delete(f"httproute/{name}"), before, "detached")
    time.sleep(settle)
    print(f"  {writes.count - begun} writes in total", flush=True)
    for client in clients:
        client.close()


def idle(mesh: RunningMesh, settle: float, seconds: float) -> None:
    """Change nothing for a while; print the numbers of writes to the API and of xDS responses."""

    def state() -> tuple[int, int]:
        stats = json.loads(mesh.envoy(f"/stats?format=json&filter={RESPONSES}"))["stats"]
        return int(mesh.get("httproute")["metadata"]["resourceVersion"]), sum(stat["value"] for stat in stats)

    time.sleep(settle)
    before = state()
    time.sleep(seconds)
    writes, responses = (now - then for now, then in zip(state(), before, strict=True))
    print(f"{seconds} s without a change: {writes} writes to the API, {responses} xDS responses", flush=True)


def listener_set(number: int, last: str) -> Object:
    """Return a ListenerSet of the Gateway `edge` with `LISTENERS` listeners; `last` is the name of the last one's host."""
    names = [*(f"h{index}" for index in range(LISTENERS - 1)), last]
    listeners = [
        objects.listener(8080, f"l{index}", hostname=f"{name}.s{number}.example") for index, name in enumerate(names)
    ]
    return objects.obj("ListenerSet", f"s{number}", spec={"parentRef": {"name": "edge"}, "listeners": listeners})


def change_listener_sets(count: int) -> None:
    """Compile and encode many ListenerSets, each with a route; print the processor time of all, and of a change to one."""
    address = {"addresses": [{"type": "IPAddress", "value": "127.0.0.9"}]}
    allowed = {"namespaces": {"from": "All"}}
    every = [
        objects.gateway("edge", objects.listener(8080), allowedListeners=allowed, status=address),
        *objects.backed_service("backend", ("", "10.1.0.1")),
        *(listener_set(number, "last") for number in range(count)),
        *(
            objects.route(
                f"s{number}", objects.rule({"backend": 1}), parents=[{"kind": "ListenerSet", "name": f"s{number}"}]
            )
            for number in range(count)
        ),
    ]
    snapshot, compiler, memo = snapshot_of({key_of(obj): obj for obj in every}), Compiler(), Memo()

    def build(current: Snapshot) -> float:
        began = time.process_time()
        encode(project(compiler.compile(current, Settings()).mesh, GATEWAY), memo)
        return time.process_time() - began

    first, times = build(snapshot), []
    for number in range(5):
        changed = listener_set(0, f"new-{number}")
        snapshot = with_objects(snapshot, {key_of(changed): changed})
        times.append(build(snapshot))
    changed = objects.route("s0", objects.rule({"missing": 1}), parents=[{"kind": "ListenerSet", "name": "s0"}])
    of_route = build(with_objects(snapshot, {key_of(changed): changed}))
    print(
        f"{count} ListenerSets with {LISTENERS} listeners, each with a route: processor time of all {first:.2f} s, of a "
        f"change to one ListenerSet {1000 * statistics.median(times):.0f} ms, to one route {1000 * of_route:.0f} ms",
        flush=True,
    )


async def measure(scale: Scale) -> None:
    """Run the scenarios on one headgate, one after the other."""
    change_listener_sets(scale.sets)
    with mesh_in_a_new_directory() as mesh:
        ports = {"http": 8080, "other": 8081}
        for name in ("backend", "second"):
            backends: Sequence[Any] = [mesh.backend(name)]
            served = objects.service(name, *(objects.port(number, port) for port, number in ports.items()))
            mesh.apply(objects.manifest(served), endpoints(name, dict.fromkeys(ports, backends)))
        mesh.apply(gateway_for_hosts())
        edge = on_one_machine(mesh)
        change_under_load(edge, scale.changes)
        fail_under_load(mesh, edge, scale.flaps)
        attach_and_detach(edge, scale.attached, scale.settle)
        idle(mesh, scale.settle, scale.idle)
        create_with_probes(edge, scale.created)


def on_one_machine(mesh: RunningMesh) -> Edge:
    """Return the Gateway that `headgate up` serves."""

    def processes() -> Mapping[str, int]:
        assert mesh.process
        return {"headgate": mesh.process.pid, "Envoy": mesh.processes()["envoy"]}

    address, kubeconfig = gateway_address(mesh, "default"), Path(mesh.ready["kubeconfig"])
    return Edge(address, kubeconfig, mesh.api, mesh.network, processes)
