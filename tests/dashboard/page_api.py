"""The API behind a page in a browser: lists and objects of a test, with watches that the test can end or feed."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import yaml
from aiohttp import web
from tests.dashboard.running_dashboard import StaticToken
from tests.kubernetes import http_server
from tests.wire import DEADLINE_S

from headgate.dashboard.local import Address, serving
from headgate.dashboard.server import PageSettings

INSPECT = "/apis/inspect.headgate.dev/v1beta1"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class PageApi:
    """Answers by path: `objects` has what it returns, `errors` the status codes of paths that fail, `denied` resources that are not allowed.

    A PATCH merges its `spec` into the object of the path, and a PUT replaces it, as the embedded API server does: with a new version and
    generation, and a conflict if the body names another version. A POST of an object creates it with a UID of its own, and is a conflict if
    the name exists; a DELETE removes it. A write with `dryRun` changes nothing.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.errors: dict[str, int] = {}
        self.denied: set[str] = set()
        self.streams: set[str] = set()
        """Paths whose response is a stream, such as a tap; `send` adds a line to it."""
        self.late_watches: dict[str, asyncio.Event] = {}
        """Paths whose watches begin once their event is set."""
        self.warning = ""
        """The Warning header of writes."""
        self.allowed_namespaces: set[str] = set()
        """Namespaces in which denied resources are allowed."""
        self.requested: list[str] = []
        self.written: list[tuple[str, str, Any]] = []
        """The method, path and body of each request that is not a GET, without dry runs."""
        self.dry_runs: list[tuple[str, str, Any]] = []
        self.unwatched = asyncio.Event()
        """Set when the last watch ends."""
        self._created = 0
        self._watches: dict[str, set[asyncio.Queue[bytes | None]]] = {}
        self._changed = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request of the page."""
        path = request.path
        self.requested.append(request.path_qs)
        self._note_change()
        if path == REVIEWS:
            right = (await request.json())["spec"]["resourceAttributes"]
            allowed = right["resource"] not in self.denied or right.get("namespace") in self.allowed_namespaces
            return web.json_response({"status": {"allowed": allowed}}, status=201)
        if request.query.get("watch") == "true" and (late := self.late_watches.get(path)):
            await late.wait()
        if code := self.errors.get(path, 0 if path in self.objects or path in self.streams else 404):
            return web.json_response({"kind": "Status", "message": f"{path} is not available"}, status=code)
        if request.query.get("watch") == "true" or path in self.streams:
            return await self._watch(request)
        if request.method == "GET":
            return web.json_response(self.objects[path])
        return await self._write(request)

    async def _write(self, request: web.Request) -> web.Response:
        path = request.path
        if request.method == "PUT":
            return self._replace(path, (await request.read()).decode(), is_dry_run="dryRun" in request.query)
        body = await request.json()
        is_dry_run = "dryRun" in request.query or (request.method == "DELETE" and "dryRun" in body)
        (self.dry_runs if is_dry_run else self.written).append((request.method, path, body))
        if request.method == "POST" and "name" in body.get("metadata", {}):
            return self._create(path, body, is_dry_run=is_dry_run)
        if request.method == "PATCH" and not is_dry_run:
            return self._patch(path, body)
        if request.method == "DELETE" and not is_dry_run:
            return web.json_response(self.objects.pop(path))
        return web.json_response(self.objects[path])

    def _replace(self, path: str, text: str, *, is_dry_run: bool) -> web.Response:
        """Replace an object by YAML, as an API server does that knows the fields of TrafficSplits."""
        try:
            sent = yaml.safe_load(text)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 0
            return _status(400, f"it is not YAML, like line 1: {error.problem} (line {line}, column 1)")
        old = self.objects[path]
        version = old["metadata"]["resourceVersion"]
        if sent["metadata"].get("resourceVersion", version) != version:
            return _status(409, "the object has been modified")
        causes = [
            {"field": f"spec.backends[{index}].weight", "message": "must be 0 or more"}
            for index, backend in enumerate(sent["spec"]["backends"])
            if backend["weight"] < 0
        ]
        if causes:
            return _status(422, "TrafficSplit is invalid", causes)
        headers = {"warning": self.warning} if self.warning else None
        if is_dry_run:
            return web.json_response({**old, "spec": sent["spec"]}, headers=headers)
        self.written.append(("PUT", path, sent))
        self.objects[path] = changed(old, **sent["spec"])
        return web.json_response(self.objects[path], headers=headers)

    def _create(self, path: str, obj: Mapping[str, Any], *, is_dry_run: bool) -> web.Response:
        name = obj["metadata"]["name"]
        if f"{path}/{name}" in self.objects:
            return _status(409, f'{path.rpartition("/")[2]} "{name}" already exists')
        self._created += 1
        stored = {**obj, "metadata": {**obj["metadata"], "uid": f"u-{self._created}", "resourceVersion": "1"}}
        if not is_dry_run:
            self.objects[f"{path}/{name}"] = stored
        return web.json_response(stored, status=201)

    def _patch(self, path: str, body: Mapping[str, Any]) -> web.Response:
        obj = self.objects[path]
        metadata = obj["metadata"]
        if body.get("metadata", {}).get("resourceVersion", metadata["resourceVersion"]) != metadata["resourceVersion"]:
            return web.json_response({"kind": "Status", "message": "the object has been modified"}, status=409)
        self.objects[path] = changed(obj, **body["spec"])
        return web.json_response(self.objects[path], headers={"warning": self.warning} if self.warning else None)

    def change(self, path: str, kind: str, obj: Mapping[str, Any]) -> None:
        """Change the object or the list of a path, and send the event to all watches: one that begins later reads the change."""
        stored = self.objects.get(path)
        if stored and "items" in stored:
            others = [other for other in stored["items"] if _name_of(other) != _name_of(obj)]
            self.objects[path] = {**stored, "items": others if kind == "DELETED" else [*others, obj]}
        else:
            self.objects[path] = obj
        self.send(path, {"type": kind, "object": obj})

    def send(self, path: str, *lines: Mapping[str, Any]) -> None:
        """Send lines to all streams on a path."""
        for line in lines:
            self._send(path, json.dumps(line).encode() + b"\n")

    def fail(self, *paths: str) -> None:
        """Let requests to paths fail with 503, and end their watches."""
        for path in paths:
            self.errors[path] = 503
            self._send(path, None)

    def _send(self, path: str, event: bytes | None) -> None:
        for queue in self._watches.get(path, ()):
            queue.put_nowait(event)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        watches = self._watches.setdefault(request.path, set())
        watches.add(queue)
        self.unwatched.clear()
        self._note_change()
        response = web.StreamResponse(headers={"content-type": "application/json"})
        try:
            await response.prepare(request)
            while event := await queue.get():
                await response.write(event)
        finally:
            watches.remove(queue)
            self._note_change()
            if not self.watched():
                self.unwatched.set()
        return response

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def next_activity(self) -> None:
        """Wait until a request arrives, or a watch or another stream begins or ends."""
        await self._changed.wait()

    async def receives(self, path: str) -> None:
        """Wait until a request for a path with its query has arrived, which a page sends before it shows anything of it."""
        async with asyncio.timeout(DEADLINE_S):
            while path not in self.requested:
                await self.next_activity()

    def watched(self) -> set[str]:
        """Return the paths with a watch or another stream."""
        return {path for path, watches in self._watches.items() if watches}


def _name_of(obj: Mapping[str, Any]) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def _status(code: int, message: str, causes: Sequence[Any] = ()) -> web.Response:
    return web.json_response({"kind": "Status", "message": message, "details": {"causes": [*causes]}}, status=code)


@contextlib.asynccontextmanager
async def serving_page(api: PageApi, last: Address) -> AsyncIterator[Address]:
    """Serve the dashboard in front of an API, at the `last` address if it is free, and yield its address."""
    async with http_server.serving(api.answer) as upstream:
        credentials = StaticToken((await upstream.connect()).host, "secret")
        async with serving(credentials, PageSettings("kind-shop", "shop"), port=0, last=last) as address:
            yield address


def changed(obj: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    """Return an object with other fields of its spec, and with the next version and generation."""
    metadata = obj["metadata"]
    version = {"resourceVersion": str(int(metadata["resourceVersion"]) + 1), "generation": metadata["generation"] + 1}
    return {**obj, "metadata": metadata | version, "spec": obj["spec"] | spec}


def no_differences() -> dict[str, Any]:
    """Return a Plan whose change has no effect."""
    names = (
        "lost",
        "gained",
        "requests",
        "tls",
        "unreachable",
        "findings",
        "departures",
        "clientCertificates",
        "gateways",
    )
    return {"status": {"differences": {name: [] for name in names}, "revisionMessage": ""}}


def mesh_status(**changes: Any) -> dict[str, Any]:
    """Return the list with the MeshStatus of a healthy mesh with three proxies, with changes to its `status`."""
    status = {
        "healthy": True,
        "problems": [],
        "version": "0.1.0",
        "startTime": "2026-01-01T00:00:00Z",
        "proxies": {"total": 3, "inSync": 3, "lagging": 0, "refused": 0, "disconnected": 0},
        "certificates": {"total": 3, "oldestIssueTime": None, "firstExpiryTime": None, "faults": 0},
        "findings": {"errors": 0, "warnings": 0, "notes": 0},
        "workloads": {"ready": 2, "wanted": 2, "unready": []},
        "store": None,
        "settings": {"mtls": "permissive", "access": "selected"},
    }
    return {
        "items": [{"kind": "MeshStatus", "metadata": {"name": "mesh", "namespace": ""}, "status": status | changes}]
    }


def finding(name: str, severity: str = "Error") -> dict[str, Any]:
    """Return a finding about a TrafficSplit."""
    return {
        "kind": "Finding",
        "metadata": {"name": name, "namespace": "shop"},
        "object": {"group": "split.smi-spec.io", "kind": "TrafficSplit", "namespace": "shop", "name": name},
        "severity": severity,
        "reason": "BackendNotFound",
        "field": "spec.backends[1].service",
        "message": "Service shop/gone not found; create it",
    }


def proxy(name: str, **status: Any) -> dict[str, Any]:
    """Return a sidecar that has acknowledged all its resources."""
    certificate = {
        "identity": f"spiffe://cluster.local/ns/shop/sa/{name}",
        "issueTime": "2026-01-01T00:00:00Z",
        "notAfterTime": "2999-01-02T00:00:00Z",
        "message": "",
    }
    shown = {
        "state": "InSync",
        "message": "",
        "lastAcknowledgedTime": "2026-01-01T00:00:00Z",
        "types": [{"type": "clusters", "resources": 12, "held": 12}],
        "refusals": [],
        "lastRefusal": None,
        "certificate": certificate,
    }
    metadata = {"name": name, "namespace": "shop"}
    return {
        "metadata": metadata,
        "node": f"sidecar/shop/{name}",
        "workloads": [],
        "revision": "",
        "status": shown | status,
    }


def node(name: str, **changes: Any) -> dict[str, Any]:
    """Return a Service of a TrafficGraph."""
    counts = {"pods": 1, "meshed": 1, "errors": 0, "warnings": 0}
    return {"kind": "Service", "namespace": "shop", "name": name, "labels": {"app": name}} | counts | changes


def edge(source: int, target: int, **changes: Any) -> dict[str, Any]:
    """Return an edge of a TrafficGraph with 300 requests."""
    counts = {"copy": False, "requests": 300, "failures": 0, "denied": 0, "exchanged": 300, "secured": 300}
    tcp = {"connections": 0, "failedConnections": 0, "deniedConnections": 0, "bytes": None}
    latencies = {"p50Microseconds": 1500, "p90Microseconds": 4400, "p99Microseconds": 10500}
    return {"source": source, "target": target} | counts | tcp | latencies | changes


def even_split(service: int, backends: Mapping[int, int]) -> dict[str, Any]:
    """Return a split of a TrafficGraph, whose backends have these requests and equal weights."""
    wanted = {"numerator": 1, "denominator": len(backends)}
    of_backends = [
        {"service": node, "wanted": wanted, "requests": requests, "expectedLow": requests, "expectedHigh": requests}
        for node, requests in backends.items()
    ]
    ref = {"group": "split.smi-spec.io", "kind": "TrafficSplit", "namespace": "shop", "name": "website"}
    return {"object": ref, "service": service, "match": "", "backends": of_backends}


def graph(nodes: list[Any], edges: list[Any], reason: str = "", splits: Sequence[Any] = ()) -> dict[str, Any]:
    """Return a TrafficGraph of Services over 30 seconds."""
    status = {
        "startTime": "2026-01-01T00:00:00Z",
        "endTime": "2026-01-01T00:00:30Z",
        "windowMilliseconds": 30_000,
        "reason": reason,
        "message": "",
        "nodes": nodes,
        "edges": edges,
        "splits": splits,
        "mirrors": [],
    }
    return {"kind": "TrafficGraph", "metadata": {"name": "services", "namespace": ""}, "status": status}
