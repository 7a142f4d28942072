"""The end of a sidecar: the real Envoy ends after the application, and not before its last report has arrived."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.collector import collector
from tests.inotify_limit import limited
from tests.make.objects import container, namespace, pod
from tests.ports import free_port
from tests.stream_server import stream_server
from tests.telemetry.proxies import ABSENCES
from tests.waiting import until as poll
from tests.xds.proxies import ServerAuthority

from headgate.latest import Latest, until
from headgate.plane.job_sidecars import JobSidecars
from headgate.resources.meta import Key
from headgate.standalone.store.memory import MemoryStore
from headgate.telemetry.receiver import Receiver
from headgate.telemetry.reports import otlp
from headgate.telemetry.windows import Windows
from headgate.xds.authentication import LocalTokens
from headgate.xds.fleet import Fleet
from headgate.xds.server import XdsServer

NODE = "sidecar/shop/job-1"
POD = Key("", "Pod", "shop", "job-1")
DEADLINE_S = 60
SIDECAR = """
import sys, time
from headgate.cli import job_sidecar, main, sidecar
sidecar.DIRECTORY = sidecar.SECRETS = sys.argv[1]
sys.argv[1:] = ["sidecar", "run", "--job"]
job_sidecar.pause_randomly = lambda: time.sleep(0.05)
main()
"""
"""Runs `headgate sidecar run --job` with the files of a test, and with short pauses."""

DRAIN = """
import sys
from headgate.cli import sidecar
sidecar.DIRECTORY = sidecar.SECRETS = sys.argv[1]
sidecar._drain = lambda: None
sidecar.main(["drain"])
"""
"""Runs `headgate sidecar drain` in a pod whose application has ended."""


class SidecarRig:
    """A control plane for the sidecar of one pod.

    `asked` counts how often the sidecar asked whether the application has ended. `reported` is the time when the
    sidecar's last metrics report was complete.
    """

    def __init__(self, directory: Path) -> None:
        self.store = MemoryStore()
        self.asked = Latest(0)
        self.reported = 0.0
        self.port = free_port()
        self._directory = directory
        self._receiver = Receiver(Windows(), ABSENCES)
        self._tokens = LocalTokens(bytes(range(32)))
        self._authority = ServerAuthority()
        self._servers: list[XdsServer] = []

    async def prepare(self) -> None:
        """Write the files that the kubelet mounts, and create the pod."""
        (self._directory / "roots.pem").write_text(self._authority.roots)
        self._tokens.write(NODE, self._directory / "token")
        await self.store.create(namespace("shop"))
        containers = [container(name, image="x") for name in ("headgate-sidecar", "app")]
        await self.store.create(pod("job-1", containers=containers, namespace="shop", restartPolicy="Never"))

    async def serve(self, port: int = 0) -> None:
        """Serve on a port, or on that of Envoy's bootstrap."""
        methods = {otlp.METHOD: self._receiver.export, **JobSidecars(self, self._wait_for_report).methods}
        server = XdsServer(Fleet(), self._tokens, unary_methods=methods)
        await server.start(f"localhost:{port or self.port}", Latest(self._authority.issue("localhost")))
        self._servers.append(server)

    async def stop(self) -> None:
        while self._servers:
            await self._servers.pop().stop()

    async def get(self, key: Key) -> Any:
        """Count the sidecar's request, and return the pod."""
        self.asked.set(self.asked.get() + 1)
        return await self.store.get(key)

    async def more_requests(self, count: int) -> None:
        """Wait until the sidecar has asked `count` more times."""
        wanted = self.asked.get() + count
        await until(lambda: self.asked.get() >= wanted, self.asked)

    async def first_report(self) -> None:
        """Wait for Envoy's first metrics report. Envoy installs its signal handlers before this report."""
        await self._receiver.wait_for_report(NODE, 0)

    async def end_application(self) -> None:
        states = [
            {"name": "headgate-sidecar", "state": {"running": {}}},
            {"name": "app", "state": {"terminated": {"exitCode": 0}}},
        ]
        await self.store.update(
            {**await self.store.get(POD), "status": {"containerStatuses": states}}, subresource="status"
        )

    async def start(
        self, code: str = SIDECAR, *, inotify_limit: int | None = None, **variables: str
    ) -> asyncio.subprocess.Process:
        """Start the sidecar, as its container does, or another program in the container."""
        program = [sys.executable, "-c", code, str(self._directory)]
        words = program if inotify_limit is None else limited(inotify_limit, program)
        environment = {
            "POD_NAMESPACE": "shop",
            "POD_NAME": "job-1",
            "HEADGATE_XDS": f"localhost:{self.port}",
            **variables,
        }
        stderr = asyncio.subprocess.PIPE if inotify_limit == 3 or code == DRAIN else None
        return await asyncio.create_subprocess_exec(*words, env={**os.environ, **environment}, stderr=stderr)

    async def _wait_for_report(self, node_id: str, since: float) -> None:
        await self._receiver.wait_for_report(node_id, since)
        self.reported = time.time()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[SidecarRig]:
    found = SidecarRig(tmp_path)
    await found.prepare()
    await found.serve()
    yield found
    await found.stop()


async def test_envoy_ends_successfully_after_the_application_and_its_last_report(rig: SidecarRig) -> None:
    """R85: all requests are counted."""
    async with asyncio.timeout(DEADLINE_S):
        sidecar = await rig.start()
        await rig.more_requests(3)
        assert sidecar.returncode is None
        ended = time.time()
        await rig.end_application()
        assert await sidecar.wait() == 0
        assert rig.reported > ended


async def test_the_sidecar_continues_while_the_control_plane_is_unavailable(rig: SidecarRig) -> None:
    async with asyncio.timeout(DEADLINE_S):
        sidecar = await rig.start()
        await rig.more_requests(2)
        await rig.stop()
        await rig.end_application()
        await rig.serve()
        assert await sidecar.wait() == 0


async def test_a_sidecar_that_is_asked_to_end_waits_for_the_next_control_plane_and_its_last_report(
    rig: SidecarRig,
) -> None:
    """The first control plane accepts no call and ends."""
    called = asyncio.Event()

    async def end(*_: object) -> None:
        called.set()

    port = free_port()
    async with asyncio.timeout(DEADLINE_S):
        sidecar = await rig.start()
        await rig.first_report()
        async with stream_server(end, ("localhost", port)):
            asked = time.time()
            drain = await rig.start(DRAIN, HEADGATE_XDS=f"localhost:{port}")
            await called.wait()
        await rig.serve(port)
        assert (await drain.communicate(), drain.returncode) == ((None, b""), 0)
        assert rig.reported > asked
        sidecar.send_signal(signal.SIGTERM)
        await sidecar.wait()


async def test_a_sidecar_that_is_asked_to_end_does_not_wait_for_a_control_plane_that_rejects_it(
    rig: SidecarRig,
) -> None:
    async with asyncio.timeout(DEADLINE_S):
        drain = await rig.start(DRAIN, POD_NAME="job-2")
        _, log = await drain.communicate()
    assert drain.returncode == 0
    assert "the last requests of the proxy may not be counted: UNAUTHENTICATED" in log.decode()


async def test_sigterm_ends_envoy_while_the_application_runs(rig: SidecarRig) -> None:
    async with asyncio.timeout(DEADLINE_S):
        sidecar = await rig.start()
        await rig.first_report()
        sidecar.send_signal(signal.SIGTERM)
        assert await sidecar.wait() == 0


async def test_the_container_exits_with_the_code_of_a_crashed_envoy(rig: SidecarRig, tmp_path: Path) -> None:
    crashing = tmp_path / "envoy"
    crashing.write_text("#!/bin/sh\nexit 7\n")
    crashing.chmod(0o755)
    async with asyncio.timeout(DEADLINE_S):
        sidecar = await rig.start(HEADGATE_ENVOY=str(crashing))
        assert await sidecar.wait() == 7


async def test_the_sidecars_log_names_the_limit_of_inotify_instances_of_the_node(rig: SidecarRig) -> None:
    async with asyncio.timeout(DEADLINE_S):
        sidecar = await rig.start(inotify_limit=3)
        _, log = await sidecar.communicate()
    assert sidecar.returncode == 1
    message = log.decode().splitlines()[-1]
    assert "Envoy can't start: the limit user.max_inotify_instances (3) of inotify instances is reached" in message
    assert "raise it as root on the node: sysctl -w" in message


async def test_a_sidecar_serves_with_four_inotify_instances(rig: SidecarRig) -> None:
    async with asyncio.timeout(DEADLINE_S):
        sidecar = await rig.start(inotify_limit=4)
        await rig.first_report()
        await rig.end_application()
        assert await sidecar.wait() == 0


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_the_proxy_also_reports_to_the_collector_of_the_installation(rig: SidecarRig, host: str) -> None:
    with collector() as (address, found):
        async with asyncio.timeout(DEADLINE_S):
            variable = f"{host}:{address.rpartition(':')[2]}"
            sidecar = await rig.start(HEADGATE_OTLP_COLLECTOR=variable)
            await rig.first_report()
            await asyncio.to_thread(poll, lambda: NODE in found.values, "a report to the collector")
            await rig.end_application()
            assert await sidecar.wait() == 0
    assert found.services == {"headgate-proxy"}
