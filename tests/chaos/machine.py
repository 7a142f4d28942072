"""Start, kill and restart one `headgate up`, and call its API over one connection."""

import asyncio
import base64
import contextlib
import itertools
import json
import signal
import ssl
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from headgate.resources.pods import ProcessIdentity
from headgate.standalone.processes import adopt

PATIENCE_S = 120.0
POLL_S = 0.02
SPLITS = "/apis/split.smi-spec.io/v1alpha4/namespaces/default/trafficsplits"
SERVICES = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
PODS = "/api/v1/namespaces/default/pods"
TLS_CONFIGS = "/apis/headgate.dev/v1beta1/namespaces/default/tlsconfigs"
AUTHORITY = "/api/v1/namespaces/headgate-system/configmaps/headgate-ca"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


class Api:
    """A client of the Kubernetes API with the token of a kubeconfig and a keep-alive connection."""

    def __init__(self, kubeconfig: Path) -> None:
        content = yaml.safe_load(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        self._host, _, self._port = cluster["server"].removeprefix("https://").rpartition(":")
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        self._token = user["token"]
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()

    async def get(self, path: str) -> dict[str, Any]:
        """Read an object or a list."""
        return await self.call("GET", path)

    async def create(self, path: str, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object in the list at `path`."""
        return await self.call("POST", path, obj)

    async def patch(self, path: str, change: Mapping[str, Any]) -> dict[str, Any]:
        """Merge-patch an object."""
        return await self.call("PATCH", path, change)

    async def delete(self, path: str) -> dict[str, Any]:
        """Delete an object."""
        return await self.call("DELETE", path)

    async def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send one request; any status but success fails the test."""
        content = json.dumps(body).encode() if body else b""
        async with self._turn:
            try:
                status, answer = await self._exchange(method, path, content)
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                if getattr(error, "partial", b""):
                    raise
                await self.close()  # the server closes connections that are idle for 5 s
                status, answer = await self._exchange(method, path, content)
        assert status < 300, f"{method} {path}: {status} {answer.decode()}"
        found: dict[str, Any] = json.loads(answer)
        return found

    async def close(self) -> None:
        """Close the connection."""
        if self._streams:
            self._streams[1].close()
            with contextlib.suppress(OSError):
                await self._streams[1].wait_closed()
            self._streams = None

    async def _exchange(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, int(self._port), ssl=self._tls)
        reader, writer = self._streams
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        head = (
            f"{method} {path} HTTP/1.1\r\nhost: {self._host}:{self._port}\r\nauthorization: Bearer {self._token}\r\n"
            f"content-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = int(answer.partition("content-length: ")[2].partition("\r")[0])
        return int(answer.split(" ", 2)[1]), await reader.readexactly(length)


class Up:
    """A `headgate up` with the manifests in `directory`; `ready` is the line that headgate prints when it is ready."""

    def __init__(self, directory: Path) -> None:
        self.manifests = directory / "manifests"
        self.state = directory / "state"
        self.manifests.mkdir()
        self._stderr = directory / "stderr"
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def proxy(self) -> str:
        """Return the address of the HTTP proxy."""
        return str(self.ready["proxy"])

    def address(self, service: str, port: int) -> str:
        """Return the address of a Service in the namespace `default`."""
        return str(self.ready["services"][f"default/{service}"][str(port)])

    async def start(self) -> None:
        """Start headgate, and return when all proxies have acknowledged the applied manifests."""
        command = (sys.executable, "-m", "headgate", "up", self.manifests, "--state", self.state, "-o", "json")
        with self._stderr.open("ab") as errors:
            self._process = process = await asyncio.create_subprocess_exec(
                *map(str, command), stdout=asyncio.subprocess.PIPE, stderr=errors, limit=2**24
            )
        assert process.stdout
        async with asyncio.timeout(PATIENCE_S):
            while (line := await process.stdout.readline()) and not json.loads(line).get("ready"):
                pass  # skip the messages about starting pods
        if not line:
            await self._process.wait()
            self._process = None
            raise AssertionError(f"headgate up ended: {self._stderr.read_text()[-2000:]}")
        self.ready = json.loads(line)
        self.api = Api(Path(self.ready["kubeconfig"]))
        self._reading = asyncio.create_task(_drain(process.stdout))

    @property
    def pid(self) -> int:
        """Return the process ID of the control plane."""
        assert self._process
        return self._process.pid

    async def kill(self) -> None:
        """Kill the control plane with SIGKILL; pods and proxies keep running."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """End all processes, also those that a killed control plane left running."""
        try:
            if self._process:
                await self._end(signal.SIGTERM)
        finally:
            records = [self.state.glob(f"pods/*/{name}") for name in ("*/run.json", "_sidecar/envoy.json")]
            for record in (self.state / "gateway" / "envoy.json", *itertools.chain(*records)):
                with contextlib.suppress(FileNotFoundError):
                    await _end_recorded(record)

    async def _end(self, number: int) -> None:
        assert self._process
        if self._reading:
            await self.api.close()
        self._process.send_signal(number)
        await self._process.wait()
        if self._reading:
            await self._reading
        self._process = self._reading = None

    async def weights(self, **weights: int) -> int:
        """Write the weights of the split `website` and return its new generation; `v1` is `website-v1`."""
        backends = [{"service": f"website-{name}", "weight": weight} for name, weight in weights.items()]
        split = await self.api.patch(f"{SPLITS}/website", {"spec": {"backends": backends}})
        return int(split["metadata"]["generation"])

    async def in_force(self, generation: int = 0) -> None:
        """Wait until every proxy has acknowledged a generation of the split `website`, by default the newest."""
        split = await self.api.get(f"{SPLITS}/website")
        generation = generation or int(split["metadata"]["generation"])

        async def programmed() -> bool:
            status = (await self.api.get(f"{SPLITS}/website")).get("status") or {}
            conditions = {item["type"]: item["status"] for item in status.get("conditions") or ()}
            return status.get("observedGeneration", 0) >= generation and conditions.get("Programmed") == "True"

        await until(programmed, f"generation {generation} is in force")


async def _end_recorded(record: Path) -> None:
    """Kill a recorded process, unless another process has its pid by now."""
    identity = msgspec.convert(json.loads(record.read_bytes())["identity"], ProcessIdentity)
    if process := adopt(identity):
        await process.end(0)


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.readline():
        pass


async def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> None:
    """Poll an async condition until it is true; fail the test after a timeout."""
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(POLL_S)
