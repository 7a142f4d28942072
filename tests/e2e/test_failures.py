"""Messages of `headgate up` about failures: pods, the gateway's Envoy, a full disk, a slow shutdown."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.bookstore import BOOKSTORE
from tests.e2e.manifests import service_manifest, split_manifest
from tests.e2e.running_mesh import HEADGATE, RunningMesh, assert_healthy
from tests.headgate_program import command
from tests.inotify_limit import limited
from tests.make.objects import container, deployment, manifest
from tests.waiting import until

New = Callable[..., RunningMesh]


def deployed(name: str, command: Sequence[str], **fields: Any) -> str:
    """Return a Deployment of one pod without a sidecar."""
    run = {"command": list(command)} if command else {}
    template = {"labels": {"app": name, "headgate.dev/inject": "false"}}
    return manifest(
        deployment(name, container("main", **run, **fields), labels={"app": name}, template=template, namespace="")
    )


CRASHES = deployed("crashes", ["sh", "-c", "echo first; echo the last words; exit 7"])
LISTENS = deployed("crashes", ["sh", "-c", "echo first; echo the last words; exit 7"], ports=[{"containerPort": 8080}])
NO_COMMAND = deployed("silent", [])
NO_PROGRAM = deployed("absent", ["no-such-program"])
STUBBORN = deployed("stubborn", ["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"])


@pytest.mark.parametrize(
    ("manifest", "expected", "words", "is_awaited"),
    [
        (LISTENS, ("BackOff", 7, ["first", "the last words"]), "ended with exit code 7", True),
        (NO_COMMAND, ("NoCommand", None, []), "container main has no command", False),
        (NO_PROGRAM, ("Failed", None, []), "program 'no-such-program' not found", False),
    ],
    ids=["crash", "no command", "no program"],
)
def test_up_reports_a_pod_that_can_not_start_and_waits_for_a_pod_that_may_still_become_ready(
    unstarted: RunningMesh, manifest: str, expected: tuple[str, int | None, list[str]], words: str, *, is_awaited: bool
) -> None:
    mesh = unstarted
    (mesh.directory / "pod.json").write_text(manifest)
    mark = mesh.launch()
    pod = mesh.line(lambda line: "pod" in line, mark)["pod"]
    assert (pod["reason"], pod["exitCode"], pod["output"]) == expected
    assert words in pod["message"]
    assert pod["name"].startswith(json.loads(manifest)["metadata"]["name"])
    first = mesh.line(lambda line: line.get("waiting") or "ready" in line, mark)
    assert ("waiting" in first) is is_awaited
    if is_awaited:
        waits = f"Deployment default/{json.loads(manifest)['metadata']['name']} (0 of 1 replicas available)"
        assert first["waiting"] == [waits]


def test_up_reports_a_crashing_pod_once(new_mesh: New) -> None:
    mesh = new_mesh()
    mark = len(mesh.lines)
    mesh.write("crashes.json", CRASHES)
    name = mesh.line(lambda line: "pod" in line, mark)["pod"]["name"]
    until(lambda: mesh.get(f"pod/{name}")["status"]["containerStatuses"][0]["restartCount"] > 1)
    mesh.write("silent.json", NO_COMMAND)
    mesh.line(lambda line: line.get("pod", {}).get("reason") == "NoCommand", mark)
    assert len([line for line in mesh.lines[mark:] if "pod" in line]) == 2


def test_headgate_names_the_pod_that_delays_its_stop_and_kills_the_pod_at_a_second_signal(new_mesh: New) -> None:
    mesh = new_mesh(manifests={"stubborn.json": STUBBORN})
    (name,) = [pod["metadata"]["name"] for pod in mesh.get("pods")["items"]]
    mark = len(mesh.lines)
    assert mesh.process
    mesh.process.send_signal(signal.SIGINT)
    (waits,) = mesh.line(lambda line: "waiting" in line, mark)["waiting"]  # the pod's grace period is 30 s
    assert waits.startswith(f"pod default/{name} (container main, process ")
    assert mesh.runs
    assert mesh.stop() == 0
    assert mesh.processes() == {}
    assert len([line for line in mesh.lines[mark:] if "waiting" in line]) < 10


def test_a_healthy_start_and_restart_record_no_warnings_and_no_recoveries(new_mesh: New) -> None:
    mesh = new_mesh(manifests=BOOKSTORE)
    for is_restart in (False, True):
        if is_restart:
            mesh.start()
        assert_healthy(mesh)
        mesh.stop()
        assert mesh.complaints == []
        assert not [line for line in mesh.lines if {"trouble", "pod"} & line.keys()]


def test_a_backend_without_pods_gets_a_warning_after_the_start(mesh: RunningMesh, namespace: str) -> None:
    web, none = (service_manifest(name, {"http": 8080}, selector={"app": name}) for name in ("web", "none"))
    mesh.apply(web, none, split_manifest("web", "web", {"none": 1}), namespace=namespace)
    assert mesh.event("NoReadyEndpoints", "web", namespace)[0] == "Warning"
    mesh.event("Programmed", "web", namespace)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 2000 KB in memory."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2000k", "tmpfs", disk], check=False).returncode:
        pytest.skip("only root can mount a file system")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.parametrize("left", [0, 4, 90])
def test_up_on_a_full_disk_fails_with_one_message_and_starts_no_envoy(small_disk: Path, left: int) -> None:
    (small_disk / "fill").write_bytes(bytes((2000 - left) << 10))
    manifests = small_disk.parent / "manifests"
    manifests.mkdir()
    words = [*command(), "up", str(manifests), "--state", str(small_disk / "state")]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    *_, last = ended.stderr.splitlines()
    assert last.startswith("error: ")
    assert str(small_disk / "state") in last
    assert "No space left on device" in last or "disk is full" in last
    assert (
        "start headgate again" in last or "free disk space" in last or "choose another directory with --state" in last
    )
    assert not list((small_disk / "state").glob("gateway/envoy.json"))


def test_headgate_continues_when_a_full_disk_has_space_again(small_disk: Path) -> None:
    (small_disk / "mesh").mkdir()
    with RunningMesh(small_disk / "mesh") as mesh:
        mesh.write("sleeper.json", deployed("sleeper", ["sleep", "600"]))
        until(lambda: mesh.get("deployment/sleeper")["status"].get("availableReplicas"))
        with suppress(OSError), (small_disk / "fill").open("wb", buffering=0) as fill:
            while fill.write(bytes(4096)):
                pass
        (pid,) = (pid for name, pid in mesh.processes().items() if name != "envoy")
        os.kill(pid, signal.SIGKILL)
        until(lambda: mesh.try_kubectl("create", "configmap", "more", f"--from-literal=a={'x' * 90_000}").returncode)
        (small_disk / "fill").unlink()
        until(lambda: {name for name in mesh.processes() if name != "envoy"})
        until(lambda: mesh.get("deployment/sleeper")["status"].get("availableReplicas"))
        assert "Traceback" not in mesh.stderr


@pytest.mark.parametrize(("limit", "fails"), [(1, "Envoy ended"), (2, "can't be watched")])
def test_up_names_the_limit_of_inotify_instances_that_it_reaches(tmp_path: Path, limit: int, fails: str) -> None:
    """Envoy needs two instances, and `headgate up` needs one for the directory."""
    (tmp_path / "manifests").mkdir()
    words = [HEADGATE, "up", str(tmp_path / "manifests"), "--state", str(tmp_path / "state"), "--ephemeral"]
    ended = subprocess.run(limited(limit, words), capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode in (1, 3)  # 3: the proxy fails
    assert "Traceback" not in ended.stderr
    *_, last = ended.stderr.splitlines()
    assert fails in last
    assert f"the limit user.max_inotify_instances ({limit}) of inotify instances is reached" in last
    assert "sysctl -w user.max_inotify_instances=" in last
