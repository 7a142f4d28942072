"""A control plane in this process, with the permissions of its installation on a real API server."""

import asyncio
import contextlib
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from tests.cluster.api_server import CONTROL_PLANE, KubeApiServer
from tests.cluster.installation import run_pod
from tests.ports import free_port

from headgate.kubernetes import aggregated_apis, app, handover, lease, state_secrets, webhooks
from headgate.kubernetes.options import Options
from headgate.kubernetes.permissions import DeniedRequests
from headgate.options import MeshOptions

POD = "headgate-1"
DEADLINE_S = 90
POLL_S, LONGEST_POLL_S = 0.1, 2.0


class NotAnswered(Exception):
    """The aggregated APIs can't answer now, such as before the objects are compiled, or while users can't be authorized."""


class RunningReplica:
    """A replica of the control plane that runs in this process. `log` has the messages of its log.

    `session` calls its aggregated APIs.
    """

    def __init__(self, server: KubeApiServer, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.log: list[str] = []
        self.ports = {name: free_port() for name in ("XDS_PORT", "WEBHOOK_PORT", "API_PORT")}
        self._session = session
        self._trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._trust.check_hostname, self._trust.verify_mode = False, ssl.CERT_NONE
        self._trust.load_cert_chain(server.root / "front-proxy.crt", server.root / "front-proxy.key")

    async def get(self, path: str, *, user: str = "admin") -> Any:
        """Call the aggregated APIs as the API server does; return the JSON. Raises NotAnswered after a status of 500 or more."""
        return json.loads(await self.get_text(path, user=user))

    async def get_text(self, path: str, *, user: str = "admin") -> str:
        """Do the same, and return the text of the response."""
        headers = {"x-remote-user": user, "x-remote-group": "system:masters" if user == "admin" else "users"}
        url = f"https://127.0.0.1:{self.ports['API_PORT']}{path}"
        async with self._session.get(url, ssl=self._trust, headers=headers) as response:
            if response.status >= 500:
                raise NotAnswered(await response.text())
            return await response.text()

    async def post(self, path: str, obj: Any) -> Any:
        """Create an object by the aggregated APIs as an administrator; return the JSON. Raises NotAnswered."""
        headers = {"x-remote-user": "admin", "x-remote-group": "system:masters"}
        url = f"https://127.0.0.1:{self.ports['API_PORT']}{path}"
        async with self._session.post(url, ssl=self._trust, headers=headers, json=obj) as response:
            if response.status >= 500:
                raise NotAnswered(await response.text())
            return await response.json(content_type=None)

    async def problems(self) -> list[str]:
        """Return what `headgate status` names as problems."""
        mesh = await self.get("/apis/inspect.headgate.dev/v1beta1/meshstatuses/mesh")
        assert mesh.get("kind") != "Status", mesh
        return [problem["message"] for problem in mesh["status"]["problems"]]

    async def served(self) -> bool:
        """Return whether the aggregated APIs respond."""
        await self.problems()
        return True

    async def has_all_permissions(self) -> bool:
        """Return whether `headgate status` names no missing permission."""
        return not [line for line in await self.problems() if line.startswith("permission missing")]


class _Lines(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())


@contextlib.asynccontextmanager
async def running(server: KubeApiServer, patch: pytest.MonkeyPatch, **options: Any) -> AsyncIterator[RunningReplica]:
    """Run a replica during the `with` block.

    The API server does not call its webhooks: a test that waits for the API server would block them.
    """
    run_pod(server, POD)
    session = aiohttp.ClientSession()
    plane = RunningReplica(server, session)
    for module, name in ((app, "XDS_PORT"), (webhooks, "WEBHOOK_PORT"), (aggregated_apis, "API_PORT")):
        patch.setattr(module, name, plane.ports[name])
    for name in ("PROPAGATION_S", "LONGEST_S"):  # no other replica runs
        patch.setattr(handover, name, 0)
    patch.setattr(lease, "STOP_S", float(DEADLINE_S))  # so a replica that could not renew the Lease may continue
    patch.setattr(state_secrets.StateSecrets, "interval_s", 0.1)
    handler = _Lines(plane.log)
    handler.addFilter(DeniedRequests())
    logging.getLogger().addHandler(handler)
    replica = app.run(
        Options(pod=POD, image="headgate:1", mesh=MeshOptions(**options)), server.credentials(CONTROL_PLANE)
    )
    task = asyncio.create_task(replica)
    try:
        async with session:
            yield plane
        assert not task.done(), task.exception()
    finally:
        logging.getLogger().removeHandler(handler)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def eventually(check: Any, *, of: object = "") -> Any:
    """Poll until `check` returns a true value, also from a coroutine; return the value.

    AssertionError and LookupError of `check` count as false, as in `tests.waiting.until`.
    """
    failure: Exception | None = None
    try:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                begun = time.monotonic()
                try:
                    value = check()
                    if value := await value if asyncio.iscoroutine(value) else value:
                        return value
                    failure = None
                except (aiohttp.ClientError, AssertionError, LookupError, NotAnswered) as error:
                    failure = error
                # The API server has no event for all of this. On a busy machine, a check takes longer.
                await asyncio.sleep(max(POLL_S, min(4 * (time.monotonic() - begun), LONGEST_POLL_S)))
    except TimeoutError:
        raise AssertionError(f"not reached within {DEADLINE_S} s: {of() if callable(of) else of}") from failure
