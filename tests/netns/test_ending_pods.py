"""A pod whose application ends before all callers know it: the hook of its sidecar lets callers reach other pods."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.make.objects import tls_config
from tests.netns.namespaced_mesh import MeshPod, NamespacedMesh
from tests.netns.objects import ECHO, ECHO_ONE, WEB, served
from tests.netns.traffic import PATIENCE_S, ask_often, connect, talk

from headgate.cli.refusal import LISTEN
from headgate.envoy.node_ids import INBOUND_PORT

COUNT = 40
WORDS = b"words"
STOPPED_S = 15
"""How long an Envoy has no processor time: longer than a command waits for the answer of its admin interface."""
DRAIN = """
import importlib, sys
from headgate.cli import refusal
role, refusal.DIRECTORY, refusal.ADMIN_SOCKET = sys.argv[1:]
importlib.import_module(f"headgate.cli.{role}")._drain()
"""
"""Runs the preStop hook of a `sidecar` or a `gateway`, but for the report of the last requests."""


@pytest.fixture
def mesh() -> Iterator[NamespacedMesh]:
    """Run a client, and two servers with strict mutual TLS. No proxy learns that a server ends."""
    with NamespacedMesh() as mesh:
        mesh.pod("client", account="client")
        servers = [mesh.pod(name, account="web") for name in ("one", "two")]
        for member in servers:
            mesh.listen(member, 7000, "echo")
            mesh.listen(member, 8080, "web")
        mesh.start()
        mesh.serve(
            *served("web", WEB, servers, 8080),
            *served("echo", ECHO, servers, 7000, "tcp"),
            *served("echo-one", ECHO_ONE, servers[:1], 7000, "tcp"),
            *(tls_config(name, {"app": name}) for name in ("one", "two")),
        )
        yield mesh


def draining(member: MeshPod, role: str) -> "subprocess.Popen[bytes]":
    """Start the preStop hook of a pod's Envoy."""
    return subprocess.Popen(member.space.command(sys.executable, "-c", DRAIN, role, str(member.directory), "admin"))


def listens(member: MeshPod) -> bool:
    """Return whether the sidecar of a pod accepts connections."""
    sockets = (line.split() for line in member.space.run("cat", "/proc/net/tcp").splitlines())
    return any(line[1].endswith(f":{INBOUND_PORT:04X}") and line[3] == LISTEN for line in sockets)


async def refuses(member: MeshPod, hook: subprocess.Popen[bytes]) -> None:
    """Wait until the sidecar of a pod accepts no connection."""
    async with asyncio.timeout(PATIENCE_S):
        while listens(member):
            assert hook.poll() is None, "the hook ended, and the sidecar still accepts connections"
            await asyncio.sleep(0.02)  # there is no event to wait for


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Send words over a connection; return what comes back."""
    async with asyncio.timeout(PATIENCE_S):
        writer.write(WORDS)
        return await reader.readexactly(len(WORDS))


def test_connections_to_a_pod_whose_application_has_ended_reach_another_pod_and_open_ones_stay(
    mesh: NamespacedMesh,
) -> None:
    """The application listens until it ends, for two seconds after its deletion, and answers its open connections."""
    one, client = mesh.members["one"], mesh.members["client"]
    held = mesh.run(connect(client, ECHO_ONE))
    assert mesh.run(exchange(*held)) == WORDS
    with draining(one, "sidecar") as hook:
        try:
            assert [mesh.run(talk(client, ECHO, WORDS)) for _ in range(COUNT)] == [("", WORDS.decode())] * COUNT
            assert listens(one)
            for app in one.apps.values():
                mesh.run(app.end_listening())
            mesh.run(refuses(one, hook))
            assert [mesh.run(talk(client, ECHO, WORDS)) for _ in range(COUNT)] == [("", WORDS.decode())] * COUNT
            assert mesh.run(ask_often(client, WEB, COUNT)) == {"two": COUNT}
            assert mesh.run(exchange(*held)) == WORDS
            assert hook.poll() is None
            held[1].close()
            assert hook.wait(PATIENCE_S) == 0
        finally:
            hook.kill()


def test_the_hooks_wait_for_an_envoy_without_processor_time(mesh: NamespacedMesh) -> None:
    """Without their hook, the kubelet would end the Envoys, with the requests that they can't answer now."""
    sidecar, gateway = (mesh.members[name] for name in ("one", "two"))
    stopped = [member.envoy for member in (sidecar, gateway) if member.envoy]
    for envoy in stopped:
        envoy.send_signal(signal.SIGSTOP)
    for app in (*sidecar.apps.values(), *gateway.apps.values()):
        mesh.run(app.end_listening())
    with draining(sidecar, "sidecar") as first, draining(gateway, "gateway") as second:
        try:
            for hook, seconds in ((first, STOPPED_S), (second, 0)):
                with pytest.raises(subprocess.TimeoutExpired):
                    hook.wait(seconds)
            for envoy in stopped:
                envoy.send_signal(signal.SIGCONT)
            mesh.run(refuses(sidecar, first))
            assert (first.wait(PATIENCE_S), second.wait(PATIENCE_S)) == (0, 0)
        finally:
            first.kill()
            second.kill()
