"""The limits of containers, by the kernel: memory and processor time."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.running_mesh import RunningMesh
from tests.make.objects import container, manifest, pod
from tests.waiting import until

from headgate.control_groups import CONTROLLERS, limited, usable

pytestmark = pytest.mark.skipif(limited() != CONTROLLERS, reason="needs a writable hierarchy of control groups")
LARGE = "text = bytearray(256 << 20)\nwhile True: pass"
BUSY = "while True: pass"


def limits(name: str, script: str, **amounts: str) -> str:
    app = container("app", command=[sys.executable, "-c", script], resources={"limits": amounts})
    return manifest(pod(name, namespace="", containers=[app]))


def groups(uid: str) -> list[Path]:
    """Return the control groups of the containers of a pod."""
    return [path for place in usable() for path in place.directory.glob(f"headgate-{uid}-*")]


def test_a_container_above_its_memory_is_killed_with_a_reason_and_restarted(mesh: RunningMesh, namespace: str) -> None:
    mesh.apply(limits("large", LARGE, memory="64Mi"), namespace=namespace)

    def ended() -> str:
        (status,) = mesh.get("pod/large", namespace)["status"]["containerStatuses"]
        assert status["restartCount"]
        last = status["lastState"]["terminated"]
        return f"{last['reason']} {last['exitCode']}"

    assert until(ended) == "OOMKilled 137"
    *_, message = mesh.event("BackOff", "large", namespace)
    assert message.endswith("ended with exit code 137: it used more memory than resources.limits.memory")


def test_a_container_gets_no_more_processor_time_than_its_limit_and_leaves_no_group_behind(
    new_mesh: Callable[..., RunningMesh],
) -> None:
    mesh = new_mesh(manifests={"busy.yaml": limits("busy", BUSY, cpu="100m")})
    uid = mesh.get("pod/busy")["metadata"]["uid"]

    def throttled() -> int:
        (group,) = groups(uid)
        return int(dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())["nr_throttled"])

    until(lambda: groups(uid) and throttled(), "a period in which the container has used its time")
    assert f"headgate-{uid}-app" in mesh.kubectl("exec", "busy", "--", "cat", "/proc/self/cgroup")
    mesh.kill()
    mesh.start()
    assert throttled()  # the pod and its group are adopted
    mesh.kill()
    assert mesh.headgate("down").returncode == 0
    assert groups(uid) == []
    mesh.start()
    until(lambda: groups(uid) and throttled(), "the container in a new group")
    assert mesh.stop() == 0
    assert groups(uid) == []
