"""Tests of pods with explicit sidecars: real Envoys in front of real processes."""

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.processes import runs, stopped
from tests.standalone.pods.machine import PORTS, SERVER, ask, key, pid_of, process_pod, python
from tests.standalone.pods.meshed import MeshedMachine, fact

from headgate.resources.core.pod import format_process_identity
from headgate.resources.core.pod_metadata import APPLICATION_PORTS, INJECT, PROCESS, PROCESS_ID
from headgate.resources.core.pod_spec import Pod
from headgate.resources.decode import read
from headgate.standalone.address_pool import claim_range
from headgate.standalone.pods import health, sidecars
from headgate.standalone.pods.status import SIDECAR_READY
from headgate.standalone.processes import identity_of
from headgate.xds import server

IGNORANT = SERVER.replace('int(os.environ["PORT"])', "18080")
EVERYWHERE = SERVER.replace('os.environ["HOST"]', '"0.0.0.0"')
SHOWS = "import json, os; print(json.dumps(dict(os.environ)))"


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[MeshedMachine]:
    a, guard = claim_range()
    with tempfile.TemporaryDirectory(prefix="hg-", dir="/tmp") as sockets:
        async with MeshedMachine(tmp_path / "state", a, Path(sockets)) as built:
            yield built
    guard.close()


def number(found: Any) -> int:
    return int(found["metadata"]["annotations"][APPLICATION_PORTS].partition("=")[2])


async def test_requests_to_a_pod_go_through_its_sidecar(machine):
    await machine.store.create(process_pod(ports=PORTS))
    found = await machine.ready()
    assert await ask(found) == "web"
    address = found["status"]["podIP"]
    assert number(found) != 18080
    _, writer = await asyncio.open_connection(address, number(found))  # the process itself listens on its process port
    writer.close()
    await writer.wait_closed()
    with stopped(machine.sidecar(found)):
        reader, writer = await asyncio.open_connection(address, 18080)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)
        writer.close()


async def test_several_replicas_can_listen_on_0_0_0_0(machine):
    names = ("a", "b", "c")
    for name in names:
        await machine.store.create(process_pod(name, ports=PORTS, command=python(EVERYWHERE)))
    assert [await ask(await machine.ready(name)) for name in names] == list(names)


async def test_a_program_gets_its_port_and_its_proxy_as_variables(machine):
    ports = [{"name": "web-ui", "containerPort": 18080}, {"containerPort": 18081}]
    await machine.store.create(process_pod(command=python(SHOWS), ports=ports, spec={"restartPolicy": "Never"}))
    await machine.state_of("Completed")
    env = json.loads(await machine.output())
    found = await machine.get()
    numbers = dict(pair.split("=") for pair in found["metadata"]["annotations"][APPLICATION_PORTS].split(","))
    assert env["PORT"] == env["PORT_WEB_UI"] == env["PORT_18080"] == numbers["18080"]
    assert env["PORT_18081"] == numbers["18081"]
    assert env["HOST"] == env["POD_IP"] == found["status"]["podIP"]
    assert env["http_proxy"] == f"http://{env['HOST']}:15001"


async def test_a_pod_that_opts_out_has_no_sidecar(machine):
    plain = process_pod(ports=PORTS)
    plain["metadata"]["labels"][INJECT] = "false"
    await machine.store.create(plain)
    found = await machine.ready()
    assert await ask(found) == "web"
    assert "annotations" not in found["metadata"]
    assert not list(machine.state.glob("pods/*/_sidecar"))


async def test_no_container_starts_before_the_sidecar_serves(machine):
    machine.held_back.add("sidecar/default/web")
    await machine.store.create(
        process_pod(ports=PORTS, spec={"initContainers": [{"name": "init", "command": ["true"]}]})
    )
    found = await machine.condition(SIDECAR_READY, "False")
    assert fact(found, SIDECAR_READY)["reason"] == "SidecarNotReady"
    assert fact(found, "Ready")["status"] == "False"
    assert found["status"]["podIP"]
    assert found["metadata"]["annotations"][APPLICATION_PORTS]
    machine.held_back.clear()
    assert not list(machine.state.glob("pods/*/*/run.json"))
    await machine.store.update({**found, "metadata": {**found["metadata"], "labels": {"app": "web", "seen": "yes"}}})
    found = await machine.ready()
    assert fact(found, SIDECAR_READY)["status"] == "True"


async def test_a_pod_whose_port_is_in_use_is_reported_and_starts_when_the_port_is_free(machine, monkeypatch):
    monkeypatch.setattr(sidecars, "_LONGEST_PAUSE_S", 0.01)
    monkeypatch.setattr(server, "RETRY_SECONDS", 0.05)
    with socket.create_server(("0.0.0.0", 0)) as stranger:
        taken = stranger.getsockname()[1]
        await machine.store.create(process_pod(ports=[{"name": "http", "containerPort": taken}]))
        event = await machine.event("SidecarNotReady")
        assert str(taken) in event["message"]
        assert "Address already in use" in event["message"]
        assert not list(machine.state.glob("pods/*/*/run.json"))
        assert str(taken) in fact(await machine.get(), SIDECAR_READY)["message"]
    assert await ask(await machine.ready(), taken) == "web"


async def test_an_adopted_sidecar_serves_while_it_has_no_new_configuration(machine, monkeypatch):
    """A sidecar may need half a minute to reconnect to the control plane. Its pod must stay ready meanwhile."""
    monkeypatch.setattr(sidecars, "_PATIENCE", 0.01)
    await machine.store.create(process_pod(ports=PORTS))
    found = await machine.ready()
    await machine.abandon()
    machine.fleet.remove("sidecar/default/web")
    machine.held_back.add("sidecar/default/web")
    machine.fleet.expect("sidecar/default/web")
    machine.start()
    await machine.store.create(process_pod("new", ports=PORTS))
    await machine.ready("new")
    assert (await machine.get())["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
    assert await ask(found) == "web"


async def test_a_pod_is_not_ready_while_its_sidecar_restarts(machine):
    await machine.store.create(process_pod(ports=PORTS))
    found = await machine.ready()
    first = machine.sidecar(found)
    os.kill(first, signal.SIGKILL)
    gone = await machine.condition("Ready", "False")
    assert fact(gone, "Ready")["reason"] == "SidecarNotReady"
    assert fact(gone, "ContainersReady")["status"] == "True"
    again = await machine.ready()
    assert machine.sidecar(again) != first
    assert pid_of(again) == pid_of(found)  # the process behind the sidecar was not restarted
    assert await ask(again) == "web"


async def test_sidecars_survive_headgate_and_are_adopted(machine):
    await machine.store.create(process_pod(ports=PORTS))
    await machine.store.create(process_pod("unwanted", ports=PORTS))
    found, unwanted = await machine.ready(), await machine.ready("unwanted")
    first, orphan = machine.sidecar(found), machine.sidecar(unwanted)
    await machine.abandon()
    assert await ask(found) == "web"
    await machine.store.update({**unwanted, "metadata": {**unwanted["metadata"], "finalizers": []}})
    await machine.store.delete(key("unwanted"))
    machine.start()

    await machine.store.create(process_pod("new", ports=PORTS))
    await machine.ready("new")  # a runtime adopts existing pods before it starts new ones
    again = await machine.ready()
    assert machine.sidecar(again) == first
    assert (pid_of(again), number(again)) == (pid_of(found), number(found))
    # the status was not written, so the pod stayed ready
    assert again["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
    assert not runs(orphan)
    os.kill(first, signal.SIGKILL)  # the runtime detects the exit of an adopted sidecar
    await machine.condition("Ready", "False")
    assert await ask(await machine.ready()) == "web"


async def test_a_clean_stop_also_ends_the_sidecars(machine):
    await machine.store.create(process_pod(ports=PORTS))
    found = await machine.ready()
    sidecar = machine.sidecar(found)
    assert await machine.runtime.stop() == []
    assert not runs(sidecar)
    assert [path.name for path in machine.proxy_services().runtime_dir.iterdir()] == ["xds.sock"]
    machine.start()
    again = await machine.ready()
    assert number(again) == number(found)
    assert await ask(again) == "web"


async def test_the_sidecar_ends_after_its_process(machine, tmp_path):
    """The last requests of a process must go through its sidecar."""
    source = SERVER.replace(
        "listener = ",
        "import signal\n"
        "def end(*_):\n"
        f"    socket.create_connection((os.environ['HOST'], 18080)).close(); open({str(tmp_path / 'received')!r}, 'w'); sys.exit()\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "listener = ",
    )
    await machine.store.create(process_pod(ports=PORTS, command=python(source)))
    found = await machine.ready()
    sidecar = machine.sidecar(found)
    await machine.store.delete(key())
    await machine.gone()
    assert (tmp_path / "received").exists()
    assert not runs(sidecar)
    assert list((machine.state / "pods").iterdir()) == []
    assert [path.name for path in machine.proxy_services().runtime_dir.iterdir()] == ["xds.sock"]


async def test_the_sidecar_of_a_completed_pod_ends(machine):
    await machine.store.create(process_pod(command=["sleep", "0.1"], ports=PORTS, spec={"restartPolicy": "Never"}))
    await machine.state_of("Completed")
    await machine.condition(SIDECAR_READY, "False")
    (record,) = machine.state.glob("pods/*/_sidecar")
    assert not (record / "envoy.json").exists()


@pytest.mark.parametrize("port", ["http", 18080])
async def test_probes_reach_the_process_and_not_the_sidecar(machine, port):
    """Probes must also work while the sidecar accepts only mutual TLS."""
    probe = {"httpGet": {"port": port}, "periodSeconds": 1}
    source = SERVER.replace("connection.recv(65536)", "print(connection.recv(65536), flush=True)")
    await machine.store.create(
        process_pod(command=python(source), ports=PORTS, readinessProbe=probe, livenessProbe=probe)
    )
    found = await machine.ready()
    received = await machine.output()
    assert f"Host: {found['status']['podIP']}:{number(found)}" in received
    assert "x-forwarded-proto" not in received  # Envoy would add this header


async def test_a_program_that_listens_on_its_container_port_is_advised_to_use_its_port_variable(machine):
    await machine.store.create(process_pod(ports=PORTS, command=python(IGNORANT)))
    event = await machine.event("BackOff")
    number_ = number(await machine.get())
    assert (
        f"must listen on $HOST or 0.0.0.0 and $PORT ({number_}), because its sidecar listens on 18080"
        in event["message"]
    )
    assert 'headgate.dev/inject: "false"' in event["message"]
    (status,) = (await machine.get())["status"]["containerStatuses"]
    assert "$PORT" in status["lastState"]["terminated"]["message"]


@pytest.mark.parametrize("probe", [None, {"httpGet": {"port": 18080}, "periodSeconds": 1}])
async def test_a_program_that_does_not_listen_is_advised_to_use_its_port_variable(machine, monkeypatch, probe):
    monkeypatch.setattr(health, "_PATIENCE", 0.0)
    more = {"readinessProbe": probe} if probe else {}
    await machine.store.create(process_pod(ports=PORTS, command=["sleep", "600"], **more))

    async def has_event() -> bool:
        events = (await machine.store.list("", "Event")).items
        return any("nothing listens" in event["message"] and "$PORT (" in event["message"] for event in events)

    await machine.until(has_event)
    if probe:
        assert fact(await machine.get(), "Ready")["status"] == "False"
    else:
        await machine.ready()


async def test_the_files_of_a_sidecar_are_private_and_its_token_is_renewed(machine, monkeypatch):
    written = asyncio.Event()
    count = 0

    class Counted:
        lifetime = timedelta(milliseconds=20)

        def write(self, node_id: str, path: Path) -> None:
            nonlocal count
            count += 1
            machine.tokens.write(node_id, path)
            if count > 3:
                written.set()

    services = machine.proxy_services()
    services = services._replace(mesh=services.mesh._replace(tokens=Counted()))
    monkeypatch.setattr(machine, "proxy_services", lambda: services)
    await machine.abandon()
    machine.start()
    await machine.store.create(process_pod(ports=PORTS))
    await asyncio.wait_for(written.wait(), 60)
    directory = machine.directory(await machine.ready())
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "credentials").stat().st_mode) == 0o700
    for path in directory.rglob("*"):
        assert path.is_dir() or stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert {path.name for path in (directory / "credentials").iterdir()} == {"token", "token.json"}
    assert (directory / "credentials" / "token").read_bytes() not in (directory / "bootstrap.json").read_bytes()


async def test_the_pod_and_sidecar_of_an_external_process_exist_while_the_process_runs(machine):
    with subprocess.Popen(["sleep", "600"]) as elsewhere:
        external = process_pod(command=["false"], ports=PORTS, spec={"restartPolicy": "Never"})
        external["metadata"]["annotations"] = {
            PROCESS: "external",
            PROCESS_ID: format_process_identity(identity_of(elsewhere.pid)),
        }
        await machine.store.create(external)
        found = await machine.condition(SIDECAR_READY, "True")
        assert fact(found, "Ready")["status"] == "False"  # the process does not listen yet
        env = {"HOST": found["status"]["podIP"], "PORT": str(number(found)), "POD_NAME": "mine"}
        with subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", SERVER], env=env, stdout=subprocess.DEVNULL
        ) as program:
            found = await machine.ready()
            assert await ask(found) == "mine"
            assert pid_of(found) == elsewhere.pid
            sidecar = machine.sidecar(found)
            await machine.abandon()
            machine.start()
            await machine.ready()
            assert machine.sidecar(found) == sidecar
            elsewhere.kill()
            elsewhere.wait()
            await machine.gone()
            assert not runs(sidecar)
            assert program.poll() is None  # headgate does not end a process that it did not start
            program.kill()


def leading(port: int, name: str = "web") -> Any:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": port}]},
    }


async def test_the_sidecar_listens_on_a_target_port_that_no_container_declares(machine):
    """D26. The targetPort counts as declared: the sidecar listens on it, and the process gets a process port."""
    await machine.store.create(leading(18080))
    await machine.store.create(process_pod(readinessProbe={"tcpSocket": {"port": 18080}, "periodSeconds": 1}))
    found = await machine.ready()
    assert number(found) != 18080
    assert await ask(found) == "web"


async def test_the_target_port_of_a_service_created_during_the_sidecars_start_is_served(machine):
    """`kubectl apply` may write a Deployment shortly before its Service."""
    machine.held_back.add("sidecar/default/web")
    await machine.store.create(process_pod(command=python(SHOWS), spec={"restartPolicy": "Never"}))
    found = await machine.condition(SIDECAR_READY, "False")
    assert APPLICATION_PORTS not in (found["metadata"].get("annotations") or {})
    await machine.store.create(leading(18080))
    machine.held_back.clear()
    machine.give(read(found, Pod))
    await machine.state_of("Completed")
    assert json.loads(await machine.output())["PORT"] == str(number(await machine.get()))


async def test_a_service_that_is_created_later_does_not_change_the_ports_of_a_running_pod(machine):
    await machine.store.create(process_pod(ports=PORTS))
    before = await machine.ready()
    await machine.store.create(leading(18081))
    await machine.abandon()
    machine.start()
    found = await machine.condition(SIDECAR_READY, "True")
    assert found["metadata"]["annotations"] == before["metadata"]["annotations"]
    assert await ask(found) == "web"


async def test_a_target_port_without_a_listener_is_reported_and_the_pod_is_ready(machine, monkeypatch):
    monkeypatch.setattr(health, "_PATIENCE", 0.0)
    await machine.store.create(leading(18081))
    await machine.store.create(process_pod(ports=PORTS))
    found = await machine.ready()
    process_port = dict(pair.split("=") for pair in found["metadata"]["annotations"][APPLICATION_PORTS].split(","))[
        "18081"
    ]

    async def has_event() -> str:
        messages = [event["message"] for event in (await machine.store.list("", "Event")).items]
        return next((text for text in messages if "the sidecar forwards port 18081" in text), "")

    text = await machine.until(has_event)
    assert f"nothing listens on {found['status']['podIP']}:{process_port}" in text
    assert "Correct the targetPort" in text
    assert f"$PORT_18081 ({process_port})" in text
