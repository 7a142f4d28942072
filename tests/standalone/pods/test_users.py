"""Tests of users and groups: which ones a container has, and with real processes as root."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.make.objects import config_map, container, pod
from tests.standalone.pods.machine import ProcessMachine, process_pod, running

from headgate.resources.core.pod_spec import Pod
from headgate.resources.decode import read
from headgate.standalone.isolation import MountSupport
from headgate.standalone.pods import users
from headgate.standalone.pods.runs import ConfigError
from headgate.standalone.pods.users import ContainerUser, container_user, proxy_group

UNKNOWN = 54321


def user_of(shared: Any, own: Any) -> ContainerUser:
    made = read(pod("web", containers=[container(securityContext=own)], securityContext=shared), Pod)
    return container_user(made, made.spec.containers[0])


def test_the_context_of_the_container_precedes_that_of_the_pod():
    shared = {"runAsUser": UNKNOWN, "runAsGroup": 7, "supplementalGroups": [5], "fsGroup": 9}
    assert user_of(shared, None) == (UNKNOWN, 7, (5, 9))
    assert user_of(shared, {"runAsUser": 12, "runAsGroup": 13}) == (12, 13, (5, 9))
    assert user_of(None, None) == (None, None, None)


def test_a_user_without_a_group_has_the_one_of_this_machine_or_its_own_number():
    assert user_of({"runAsUser": 0}, None).group == 0
    assert user_of({"runAsUser": UNKNOWN}, None) == (UNKNOWN, UNKNOWN, ())


@pytest.mark.parametrize(
    ("shared", "own", "group"),
    [
        (None, None, 1337),
        ({"fsGroup": 1337, "supplementalGroups": [1338]}, {"runAsGroup": 1339}, 1340),
        ({"runAsUser": 1337}, None, 1338),  # its group has its number
    ],
)
def test_a_program_is_not_in_the_group_whose_connections_bypass_the_sidecar(shared: Any, own: Any, group: int) -> None:
    made = read(pod("web", containers=[container(securityContext=own)], securityContext=shared), Pod)
    assert proxy_group(made) == group


def test_root_is_rejected_where_it_is_forbidden():
    with pytest.raises(ConfigError, match="runAsNonRoot forbids runAsUser 0"):
        user_of({"runAsNonRoot": True}, {"runAsUser": 0})
    assert user_of({"runAsNonRoot": True}, {"runAsUser": 5}).user == 5


@pytest.mark.parametrize("is_root", [True, False])
def test_the_user_of_the_image_is_not_root_where_it_is_forbidden(monkeypatch, is_root):
    monkeypatch.setattr(users.os, "geteuid", lambda: 0 if is_root else 1000)
    if is_root:
        with pytest.raises(ConfigError, match="runAsNonRoot needs runAsUser"):
            user_of({"runAsNonRoot": True}, None)
    else:
        assert user_of({"runAsNonRoot": True}, None).user is None


def test_an_unknown_user_has_no_home_of_another_user():
    assert user_of({"runAsUser": UNKNOWN}, None).variables()["HOME"] == "/"


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[ProcessMachine]:
    if os.geteuid() != 0:
        pytest.skip("only root can start programs as another user")
    if fault := await MountSupport().fault():
        pytest.skip(fault)
    async with running(tmp_path / "state") as started:
        yield started


async def test_a_process_and_its_probes_run_as_their_user_with_readable_volumes(machine):
    await machine.store.create(config_map("settings", {"color": "blue"}))
    context = {"runAsUser": UNKNOWN, "runAsGroup": 7, "supplementalGroups": [5], "fsGroup": 9}
    script = "id -u; id -G; cat /settings/color; echo; echo to stdout >> /dev/stdout; touch /scratch/x; stat -c %g /scratch/x"
    volumes = [{"name": "a", "configMap": {"name": "settings", "defaultMode": 0o400}}, {"name": "b", "emptyDir": {}}]
    mounts = [{"name": "a", "mountPath": "/settings"}, {"name": "b", "mountPath": "/scratch"}]
    check = {
        "exec": {"command": ["sh", "-c", f"test $(id -u) = {UNKNOWN} && test -f /scratch/x"]},
        "timeoutSeconds": 60,
    }
    made = process_pod(
        command=["sh", "-c", f"{script}; exec sleep 600"],
        volumeMounts=mounts,
        readinessProbe=check,
        spec={"volumes": volumes, "securityContext": context},
    )
    await machine.store.create(made)
    await machine.ready()
    assert (await machine.output()).splitlines() == [str(UNKNOWN), "7 5 9", "blue", "to stdout", "9"]


async def test_an_exit_code_is_known_although_the_process_had_another_user(machine):
    spec = {"restartPolicy": "Never", "securityContext": {"runAsUser": UNKNOWN}}
    await machine.store.create(process_pod(command=["sh", "-c", "exit 7"], spec=spec))
    status = await machine.state_of("Error")
    assert status["state"]["terminated"]["exitCode"] == 7


async def test_without_root_an_event_says_that_the_user_has_no_effect(tmp_path, monkeypatch):
    monkeypatch.setattr(users.os, "geteuid", lambda: 1000)
    async with running(tmp_path / "state") as machine:
        spec = {"securityContext": {"runAsUser": UNKNOWN}}
        await machine.store.create(process_pod(command=["sleep", "600"], spec=spec))
        await machine.ready()
        assert "only root can start programs as another user" in (await machine.event("FieldIgnored"))["message"]
