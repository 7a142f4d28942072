"""Tests of the local runtime with real processes."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.make.objects import config_map, container, deployment, port, service
from tests.processes import runs
from tests.standalone.pods.machine import (
    PORTS,
    SERVER,
    ProcessMachine,
    ask,
    key,
    pid_of,
    process_pod,
    python,
    running,
)

from headgate.latest import until
from headgate.resources.meta import Key
from headgate.standalone.pods.logs import LogOptions


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[ProcessMachine]:
    async with running(tmp_path / "state") as started:
        yield started


async def test_a_pod_is_a_process_that_is_ready_when_its_port_listens(machine):
    await machine.store.create(process_pod(ports=PORTS))
    found = await machine.ready()
    assert await ask(found) == "web"
    assert machine.addresses.covers(found["status"]["podIP"], "pods")
    assert found["spec"]["nodeName"] == "local"
    assert found["status"]["phase"] == "Running"
    (status,) = found["status"]["containerStatuses"]
    assert (status["ready"], status["started"], status["restartCount"]) == (True, True, 0)
    assert "listening" in await machine.output()
    assert (machine.state / "pods").stat().st_mode & 0o777 == 0o700
    await machine.event("Started")


async def test_two_pods_can_use_the_same_port_number(machine):
    await machine.store.create(process_pod("a", ports=PORTS))
    await machine.store.create(process_pod("b", ports=PORTS))
    assert [await ask(await machine.ready(name)) for name in ("a", "b")] == ["a", "b"]


async def test_endpoint_slices_contain_the_ready_pods_of_a_deployment(machine):
    await machine.store.create(deployment("web", container(command=python(SERVER), ports=PORTS), replicas=2))
    await machine.store.create(service("web", port(80, target="http"), selector={"app": "web"}))

    async def both() -> bool:
        slices = (await machine.store.list("discovery.k8s.io", "EndpointSlice")).items
        endpoints = [endpoint for found in slices for endpoint in found["endpoints"] if endpoint["conditions"]["ready"]]
        return len(endpoints) == 2 and slices[0]["ports"][0]["port"] == 18080

    await machine.until(both)
    await machine.store.delete(Key("apps", "Deployment", "default", "web"))

    async def none() -> bool:
        slices = (await machine.store.list("discovery.k8s.io", "EndpointSlice")).items
        return not slices and not (await machine.store.list("", "Pod")).items

    await machine.until(none)


async def test_a_process_ends_after_all_proxies_stopped_routing_to_its_pod(machine, tmp_path):
    asked, free = asyncio.Event(), asyncio.Event()

    async def unrouted(_address: str) -> None:
        asked.set()
        await free.wait()

    await machine.abandon()
    machine.unrouted = unrouted
    machine.start()
    await machine.store.create(process_pod(ports=PORTS))
    found = await machine.ready()
    await machine.store.delete(key())
    await asyncio.wait_for(asked.wait(), 60)
    assert await ask(found) == "web"  # the pod still serves requests
    free.set()
    await machine.gone()
    assert not runs(pid_of(found))
    assert list((machine.state / "pods").iterdir()) == []


async def test_a_proxy_that_keeps_routing_to_a_pod_delays_its_end_only_by_the_grace_period(machine):
    async def never(_address: str) -> None:
        await asyncio.Event().wait()

    await machine.abandon()
    machine.unrouted = never
    machine.start()
    await machine.store.create(process_pod(ports=PORTS, spec={"terminationGracePeriodSeconds": 1}))
    await machine.ready()
    await machine.store.delete(key())
    await machine.gone()


async def test_a_process_that_ignores_the_term_signal_is_killed_with_its_children(machine):
    source = (
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nchild = os.fork()\n"
        "child and print(child, flush=True)\nwhile True: time.sleep(60)"
    )
    await machine.store.create(process_pod(command=python(source), spec={"terminationGracePeriodSeconds": 1}))
    found = await machine.ready()

    async for line in machine.runtime.logs.read(key(), LogOptions("app", follow=True)):
        child = int(line)
        break
    await machine.store.delete(key())
    await machine.gone()
    assert not runs(pid_of(found))
    async with asyncio.timeout(60):
        while runs(child):
            await asyncio.sleep(0)  # the orphaned process is no child of the test, so the test can only poll


async def test_a_process_that_ends_is_restarted_after_a_delay_and_keeps_its_previous_log(machine):
    source = "import os, sys\nprint('run', flush=True)\nsys.exit(3)"
    await machine.store.create(process_pod(command=python(source)))
    status = await machine.state_of("CrashLoopBackOff")
    assert status["lastState"]["terminated"]["exitCode"] == 3
    assert status["state"]["waiting"]["message"] == "back-off 1s restarting container app"
    event = await machine.event("BackOff")
    assert "exit code 3" in event["message"]

    async def again() -> bool:
        (status,) = (await machine.get())["status"]["containerStatuses"]
        return status["restartCount"] >= 2

    await machine.until(again)
    assert await machine.output(previous=True) == "run\n"


@pytest.mark.parametrize(("code", "policy", "phase"), [(0, "OnFailure", "Succeeded"), (7, "Never", "Failed")])
async def test_the_phase_of_an_ended_pod_follows_its_restart_policy(machine, code, policy, phase):
    await machine.store.create(process_pod(command=python(f"raise SystemExit({code})"), spec={"restartPolicy": policy}))

    async def ended() -> bool:
        return ((await machine.get()).get("status") or {}).get("phase") == phase

    await machine.until(ended)
    (status,) = (await machine.get())["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == code


@pytest.mark.parametrize(
    ("container", "reason", "words"),
    [
        ({"command": None, "image": "nginx"}, "NoCommand", "set spec.containers[].command to the program"),
        ({"command": ["/no/such/program"]}, "RunContainerError", "program '/no/such/program' not found"),
        ({"workingDir": "/no/such"}, "RunContainerError", "workingDir: directory /no/such not found"),
        ({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]}, "CreateContainerConfigError", "env[0] (A): there is no ConfigMap 'm'"),
        ({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}, "CreateContainerConfigError", "the pod has no volume 'v'"),
    ],
)  # fmt: skip
async def test_a_container_that_can_not_start_reports_the_reason(machine, container, reason, words):
    written = process_pod()
    written["spec"]["containers"][0].update(container)
    await machine.store.create(written)
    status = await machine.state_of(reason)
    assert words in status["state"]["waiting"]["message"]
    assert (await machine.get())["status"]["phase"] == "Pending"
    event = await machine.event("NoCommand" if reason == "NoCommand" else "Failed")
    assert words in event["message"]


async def test_a_port_that_another_program_uses_on_every_address_is_reported(machine):
    stranger = await asyncio.start_server(lambda _, writer: writer.close(), "0.0.0.0", 0)
    port = stranger.sockets[0].getsockname()[1]
    try:
        await machine.store.create(process_pod(ports=[{"containerPort": port}]))
        await machine.state_of("FailedBind")
        event = await machine.event("FailedBind")
        assert f"perhaps by a program that listens on 0.0.0.0:{port}" in event["message"]
    finally:
        stranger.close()


async def test_a_process_gets_the_environment_of_its_manifest(machine):
    await machine.store.create(config_map("m", {"k": "from map", "f.txt": "file"}))
    source = "import os, sys, json; print(json.dumps([dict(os.environ), sys.argv[1:], open(sys.argv[2]).read()]), flush=True)"
    written = process_pod(
        command=python(source),
        args=["$(GREETING)", "/etc/app/f.txt", "$$(NO)"],
        ports=[{"name": "web-ui", "containerPort": 18081}],
        env=[
            {"name": "GREETING", "value": "hello $(POD_NAME)"},
            {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
            {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
        ],
        envFrom=[{"prefix": "M_", "configMapRef": {"name": "m"}}],
        volumeMounts=[{"name": "v", "mountPath": "/etc/app"}],
        spec={"restartPolicy": "Never", "volumes": [{"name": "v", "configMap": {"name": "m"}}]},
    )
    await machine.store.create(written)
    await machine.state_of("Completed")
    env, args, body = __import__("json").loads(await machine.output())
    assert (env["GREETING"], env["A"], env["M_k"], env["LABEL"]) == ("hello web", "from map", "from map", "web")
    assert env["PORT"] == env["PORT_WEB_UI"] == "18081"
    assert env["HOST"] == env["POD_IP"] == (await machine.get())["status"]["podIP"]
    assert (env["EXTRA"], env["POD_NAMESPACE"], env["NODE_NAME"]) == ("given", "default", "local")
    assert env["HOSTNAME"] == env["POD_NAME"]
    assert (args[0], args[2], body) == ("hello web", "$(NO)", "file")
    assert "PYTEST_CURRENT_TEST" not in env


async def test_init_containers_run_first_in_their_order(machine):
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/data"}]}
    steps = [
        {"name": name, "command": ["sh", "-c", f'echo {name} >> "$0"', "/data/steps"], **mount}
        for name in ("one", "two")
    ]
    written = process_pod(
        command=["cat", "/data/steps"], spec={"restartPolicy": "Never", "initContainers": steps}, **mount
    )
    written["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    await machine.store.create(written)
    await machine.state_of("Completed")
    assert await machine.output() == "one\ntwo\n"


async def test_probes_control_readiness_and_restarts(machine, tmp_path):
    flag = tmp_path / "flag"
    # the timeout is long, so that the probe does not fail on a busy machine
    patient = {"periodSeconds": 1, "timeoutSeconds": 60}
    readiness = {"exec": {"command": ["test", "-e", str(flag)]}, **patient}
    liveness = {"exec": {"command": ["test", "!", "-e", f"{flag}.sick"]}, **patient, "failureThreshold": 1}
    await machine.store.create(
        process_pod(
            ports=PORTS,
            readinessProbe=readiness,
            livenessProbe=liveness,
            startupProbe={"tcpSocket": {"port": "http"}, "periodSeconds": 1},
        )
    )
    await machine.event("Unhealthy")
    flag.touch()
    found = await machine.ready()
    Path(f"{flag}.sick").touch()
    await machine.event("Killing")

    async def restarted() -> bool:
        Path(f"{flag}.sick").unlink(missing_ok=True)
        (status,) = (await machine.get())["status"]["containerStatuses"]
        return status["restartCount"] == 1 and status["ready"]

    await machine.until(restarted)
    assert not runs(pid_of(found))


async def test_processes_survive_headgate_and_are_adopted(machine):
    await machine.store.create(process_pod("stays", ports=PORTS))
    await machine.store.create(process_pod("dies", ports=PORTS))
    await machine.store.create(process_pod("unwanted", ports=PORTS))
    stays, dies, unwanted = [await machine.ready(name) for name in ("stays", "dies", "unwanted")]
    await machine.abandon()
    assert await ask(stays) == "stays"
    os.kill(pid_of(dies), 9)
    free = {**unwanted, "metadata": {**unwanted["metadata"], "finalizers": []}}
    await machine.store.update(free)
    await machine.store.delete(key("unwanted"))
    machine.start()
    await until(machine.runtime.corrected.get, machine.runtime.corrected)
    ended = await machine.get("dies")
    assert ended["metadata"]["resourceVersion"] != dies["metadata"]["resourceVersion"]

    async def restarted() -> bool:
        (status,) = (await machine.get("dies"))["status"]["containerStatuses"]
        return status["restartCount"] == 1 and status["ready"]

    await machine.until(restarted)
    again = await machine.ready("stays")
    assert pid_of(again) == pid_of(stays)
    # the status was not written, so the pod stayed ready
    assert again["metadata"]["resourceVersion"] == stays["metadata"]["resourceVersion"]
    assert again["status"]["containerStatuses"][0]["restartCount"] == 0
    assert (await machine.get("dies"))["status"]["podIP"] == dies["status"]["podIP"]
    assert not runs(pid_of(unwanted))
    os.kill(pid_of(stays), 9)  # the runtime detects the exit of an adopted process

    async def noticed() -> bool:
        (status,) = (await machine.get("stays"))["status"]["containerStatuses"]
        return status["restartCount"] == 1

    await machine.until(noticed)


async def test_a_start_after_a_clean_stop_creates_new_processes(machine):
    await machine.store.create(process_pod(ports=PORTS))
    first = await machine.ready()
    assert await machine.runtime.stop() == []
    assert not runs(pid_of(first))
    conditions = {found["type"]: found["status"] for found in (await machine.get())["status"]["conditions"]}
    assert conditions["Ready"] == "False"
    machine.start()
    second = await machine.ready()
    assert pid_of(second) != pid_of(first)
    assert second["status"]["containerStatuses"][0]["restartCount"] == 0


async def test_a_stop_also_ends_processes_that_a_canceled_run_detached(machine):
    await machine.store.create(process_pod(ports=PORTS))
    found = await machine.ready()
    await machine.abandon()
    assert runs(pid_of(found))
    assert await machine.runtime.stop() == []
    assert not runs(pid_of(found))


async def test_an_invalid_pod_does_not_affect_other_pods(machine):
    await machine.store.create({**process_pod("bad"), "spec": {"containers": "none"}})
    await machine.store.create(process_pod(ports=PORTS))
    await machine.ready()
    event = await machine.event("Invalid")
    assert "spec.containers" in event["message"]
