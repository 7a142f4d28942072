"""Tests of volumes in real pods: their processes read them at the mountPath."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.make.objects import config_map, obj
from tests.standalone.pods.machine import ProcessMachine, key, process_pod, running

from headgate.resources.meta import Key
from headgate.standalone.isolation import MountSupport
from headgate.standalone.pods.logs import LogOptions

STAYS = "; exec sleep 600"


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[ProcessMachine]:
    if fault := await MountSupport().fault():
        pytest.skip(fault)
    async with running(tmp_path / "state") as started:
        yield started


async def next_line(machine: ProcessMachine, text: str) -> str:
    """Wait for a line of the pod's output that has a text; return the line."""
    async for piece in machine.runtime.logs.read(key(), LogOptions("app", follow=True)):
        for line in piece.decode().splitlines():
            if text in line:
                return line
    raise AssertionError(f"the process ended without {text!r} in its output")


def volume(name: str, path: str, *, mount: Any = None, **source: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a volume, and its mount at a path."""
    return {"name": name, **source}, {"name": name, "mountPath": path, **(mount or {})}


def shell_pod(script: str, *pairs: tuple[dict[str, Any], dict[str, Any]], **container: Any) -> Any:
    """Return a pod that runs a script with volumes."""
    spec = {"volumes": [made for made, _ in pairs], "restartPolicy": "Never", **container.pop("spec", {})}
    mounts = [mount for _, mount in pairs]
    return process_pod(command=["sh", "-c", script], volumeMounts=mounts, spec=spec, **container)


async def test_a_process_reads_all_kinds_of_volumes_at_their_mount_paths(machine, tmp_path):
    await machine.store.create(config_map("settings", {"color": "blue"}))
    await machine.store.create(obj("Secret", "keys", data={"key": "aGk="}))
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "file").write_text("host")
    downward = {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}
    sources = [{"secret": {"name": "keys"}}, {"downwardAPI": downward}]
    script = (
        "cat /etc/headgate-test/color /keys/key /downward/name /projected/key /projected/name /host/file /color.txt;"
        " echo; pwd; touch /scratch/new && touch /etc/headgate-test/new"
    )
    await machine.store.create(
        shell_pod(
            script,
            volume("a", "/etc/headgate-test", configMap={"name": "settings"}),
            volume("b", "/keys", secret={"secretName": "keys"}),
            volume("c", "/downward", downwardAPI=downward),
            volume("d", "/projected", projected={"sources": sources}),
            volume("e", "/scratch", emptyDir={}),
            volume("f", "/host", hostPath={"path": str(tmp_path / "host")}),
            volume("g", "/color.txt", configMap={"name": "settings"}, mount={"subPath": "color"}),
            workingDir="/scratch",
        )
    )
    await machine.state_of("Error")
    output = await machine.output()
    assert output.splitlines()[:2] == ["bluehiwebhiwebhostblue", "/scratch"]
    assert "Read-only file system" in output
    assert not Path("/scratch").exists()


async def test_a_running_process_sees_changes_to_a_config_map_and_to_the_labels_of_its_pod(machine):
    await machine.store.create(config_map("settings", {"color": "blue"}))
    downward = {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}
    script = "while :; do echo $(cat /settings/color) $(cat /downward/labels); sleep 0.05; done"
    await machine.store.create(
        shell_pod(
            script,
            volume("a", "/settings", configMap={"name": "settings"}),
            volume("b", "/downward", downwardAPI=downward),
        )
    )
    await machine.ready()
    await next_line(machine, 'blue app="web"')
    settings = await machine.store.get(Key("", "ConfigMap", "default", "settings"))
    await machine.store.update({**settings, "data": {"color": "green"}})
    await next_line(machine, "green")
    pod = await machine.get()
    labels = {"app": "web", "stage": "new"}
    await machine.store.update({**pod, "metadata": {**pod["metadata"], "labels": labels}})
    await next_line(machine, 'stage="new"')


async def test_running_processes_keep_the_files_of_a_deleted_config_map(machine):
    await machine.store.create(config_map("settings", {"color": "blue"}))
    script = "cat /settings/color; echo; while :; do cat /settings/color > /dev/null || echo lost; sleep 0.05; done"
    await machine.store.create(shell_pod(script, volume("a", "/settings", configMap={"name": "settings"})))
    await machine.ready()
    await next_line(machine, "blue")
    await machine.store.delete(Key("", "ConfigMap", "default", "settings"))
    event = await machine.event("FailedMount")
    assert "there is no ConfigMap 'settings'" in event["message"]
    assert "lost" not in await machine.output()


async def test_probe_commands_see_the_volumes_and_the_files_of_the_container(machine):
    """The directory /headgate-test exists in the mounts of the container only. An adopted process is probed in the same way."""
    script = "touch /headgate-test/started /headgate-test/data/well" + STAYS
    probe = {"exec": {"command": ["test", "-f", "/headgate-test/data/well", "-a", "-f", "/headgate-test/started"]}}
    pair = volume("a", "/headgate-test/data", emptyDir={})
    probe |= {"periodSeconds": 1, "timeoutSeconds": 60, "failureThreshold": 1}
    await machine.store.create(shell_pod(script, pair, readinessProbe=probe))
    await machine.ready()
    await machine.abandon()
    machine.start()
    (well,) = (machine.state / "pods").glob("*/_volumes/0/well")
    well.unlink()

    async def unready() -> bool:
        return not (await machine.get())["status"]["containerStatuses"][0]["ready"]

    await machine.until(unready)
    well.touch()
    await machine.ready()


async def test_containers_of_a_pod_share_its_volumes(machine):
    pair = volume("a", "/shared", emptyDir={})
    first = {
        "name": "first",
        "image": "x",
        "command": ["sh", "-c", "echo given > /shared/x"],
        "volumeMounts": [pair[1]],
    }
    await machine.store.create(shell_pod("cat /shared/x", pair, spec={"initContainers": [first]}))
    await machine.state_of("Completed")
    assert await machine.output() == "given\n"


async def test_a_missing_program_of_a_container_with_volumes_is_reported(machine):
    made = process_pod(
        command=["/app/none"],
        volumeMounts=[{"name": "a", "mountPath": "/app"}],
        spec={"volumes": [{"name": "a", "emptyDir": {}}]},
    )
    await machine.store.create(made)
    status = await machine.state_of("RunContainerError")
    assert "program '/app/none' not found" in status["state"]["waiting"]["message"]


async def test_without_mounts_paths_in_the_command_are_replaced_and_an_event_says_so(machine, monkeypatch):
    async def fault(_: MountSupport) -> str:
        return "headgate can't mount a mount namespace: Operation not permitted"

    monkeypatch.setattr(MountSupport, "fault", fault)
    await machine.store.create(config_map("settings", {"color": "blue"}))
    made = process_pod(
        command=["cat", "/settings/color"],
        volumeMounts=[{"name": "a", "mountPath": "/settings"}],
        spec={"volumes": [{"name": "a", "configMap": {"name": "settings"}}], "restartPolicy": "Never"},
    )
    await machine.store.create(made)
    await machine.state_of("Completed")
    assert await machine.output() == "blue"
    assert "Operation not permitted" in (await machine.event("VolumesNotMounted"))["message"]
