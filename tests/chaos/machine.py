"""Start, kill and restart one `headgate up`, and call its API over one connection."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from tests.api_client import Api
from tests.fork_client import Forked
from tests.headgate_program import server
from tests.make.objects import Object

from headgate.resources.core.pod import ProcessIdentity
from headgate.standalone.processes import adopt

PATIENCE_S = 120.0
POLL_S = 0.05
LONGEST_POLL_S = 0.5
SPLITS = "/apis/split.smi-spec.io/v1alpha4/namespaces/default/trafficsplits"
SERVICES = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
PODS = "/api/v1/namespaces/default/pods"
TLS_CONFIGS = "/apis/headgate.dev/v1beta1/namespaces/default/tlsconfigs"
AUTHORITY = "/api/v1/namespaces/headgate-system/configmaps/headgate-ca"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


class Calls:
    """Calls of the Kubernetes API with the token of a kubeconfig; they leave the event loop to the load."""

    def __init__(self, kubeconfig: Path) -> None:
        self._api = Api(kubeconfig)

    async def get(self, path: str) -> dict[str, Any]:
        """Read an object or a list."""
        return await self._call("GET", path)

    async def create(self, path: str, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object in the list at `path`."""
        return await self._call("POST", path, obj)

    async def patch(self, path: str, change: Mapping[str, Any]) -> dict[str, Any]:
        """Merge-patch an object."""
        return await self._call("PATCH", path, change, "application/merge-patch+json")

    async def delete(self, path: str) -> dict[str, Any]:
        """Delete an object."""
        return await self._call("DELETE", path)

    async def _call(self, *arguments: Any) -> dict[str, Any]:
        return dict(await asyncio.to_thread(self._api.call, *arguments))

    def close(self) -> None:
        """Close the connection."""
        self._api.close()


class Up:
    """A `headgate up` with the manifests in `directory`; `ready` is the line that headgate prints when it is ready."""

    def __init__(self, directory: Path) -> None:
        self.manifests = directory / "manifests"
        self.state = directory / "state"
        self.manifests.mkdir()
        self._stderr = directory / "stderr"
        self._process: Forked | None = None
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
        reading, writing = os.pipe()
        words = ("up", str(self.manifests), "--state", str(self.state), "-o", "json")
        with (
            Path(os.devnull).open() as nothing,
            os.fdopen(writing, "w") as output,
            self._stderr.open("ab") as errors,
        ):
            self._process = Forked(server(), words, (nothing.fileno(), output.fileno(), errors.fileno()))
        lines = asyncio.StreamReader(limit=2**24)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(reading, "rb")
        )
        async with asyncio.timeout(PATIENCE_S):
            while (line := await lines.readline()) and not json.loads(line).get("ready"):
                pass  # skip the messages about starting pods
        if not line:
            await self._ended()
            raise AssertionError(f"headgate up ended: {self._stderr.read_text()[-2000:]}")
        self.ready = json.loads(line)
        self.api = Calls(Path(self.ready["kubeconfig"]))
        self._reading = asyncio.create_task(_drain(lines))

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
            self.api.close()
        self._process.send_signal(number)
        await self._ended()

    async def _ended(self) -> None:
        """Wait for the end of headgate."""
        assert self._process
        await asyncio.to_thread(self._process.wait)
        self._process.close()
        if self._reading:
            await self._reading
        self._process = self._reading = None

    async def weights(self, **weights: int) -> int:
        """Write the weights of the split `website` and return its new generation; `v1` is `website-v1`."""
        backends = [{"service": f"website-{name}", "weight": weight} for name, weight in weights.items()]
        split = await self.api.patch(f"{SPLITS}/website", {"spec": {"backends": backends}})
        return int(split["metadata"]["generation"])

    async def wait_until_active(self, generation: int = 0) -> None:
        """Wait until every proxy has acknowledged a generation of the split `website`, by default the newest."""
        split = await self.api.get(f"{SPLITS}/website")
        generation = generation or int(split["metadata"]["generation"])

        async def programmed() -> bool:
            status = (await self.api.get(f"{SPLITS}/website")).get("status") or {}
            conditions = {item["type"]: item["status"] for item in status.get("conditions") or ()}
            return status.get("observedGeneration", 0) >= generation and conditions.get("Programmed") == "True"

        await until(programmed, f"generation {generation} is active")


async def _end_recorded(record: Path) -> None:
    """Kill a recorded process, unless another process has its pid by now."""
    identity = msgspec.convert(json.loads(record.read_bytes())["identity"], ProcessIdentity)
    if process := adopt(identity):
        await process.end(0)


async def _drain(stream: asyncio.StreamReader) -> None:
    while await stream.readline():
        pass


async def until(condition: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> None:
    """Poll an async condition until it is true, more and more seldom; fail the test after a timeout."""
    start = time.monotonic()
    while not await condition():
        waited = time.monotonic() - start
        assert waited < seconds, f"not within {seconds} s: {what}"
        await asyncio.sleep(min(max(POLL_S, waited / 10), LONGEST_POLL_S))


async def ready(up: Up) -> list[str]:
    """Return the names of the ready pods of v1 and v2."""
    pods = (await up.api.get(f"{PODS}?labelSelector=version+in+%28v1%2Cv2%29"))["items"]
    return [
        pod["metadata"]["name"]
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        and any(
            item["type"] == "Ready" and item["status"] == "True" for item in pod.get("status", {}).get("conditions", ())
        )
    ]


async def pod_names(up: Up, version: str) -> set[str]:
    """Return the ready pods of a version that are not terminating."""
    pods = (await up.api.get(f"{PODS}?labelSelector=version%3D{version}"))["items"]
    return {
        pod["metadata"]["name"]
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        and {"Ready": "True"}
        in [{item["type"]: item["status"]} for item in pod.get("status", {}).get("conditions", ())]
    }


async def replace_pods(up: Up, spec: Object, replicas: int) -> None:
    """Change the Deployment of v1, and wait until all its pods are new ones."""
    before = await pod_names(up, "v1")
    await up.api.patch(f"{DEPLOYMENTS}/website-v1", {"spec": spec})

    async def replaced() -> bool:
        now = await pod_names(up, "v1")
        return len(now) == replicas and not now & before

    await until(replaced, "new pods of v1")
