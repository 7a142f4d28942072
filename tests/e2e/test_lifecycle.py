"""Start, kill, restart and stop headgate: workloads run without headgate, and a stop leaves no process or file."""

import json
import os
import signal
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.e2e.manifests import deployment, external, service, split
from tests.e2e.world import HEADGATE, World
from tests.waiting import until

PORTS = {"http": 8080}


def workload(name: str, root: Path) -> str:
    """Return a Deployment and the Service of its pods, which count requests in the file `root/name`."""
    labels = {"app": name}
    return "\n---\n".join(
        [service(name, PORTS, selector=labels), deployment(name, root / name, labels=labels, ports=PORTS)]
    )


def site(root: Path) -> dict[str, str]:
    """Return manifests of a Service `web` that is split between two Deployments, by file name."""
    return {
        "web.yaml": service("web", PORTS),
        "v1.yaml": workload("v1", root),
        "v2.yaml": workload("v2", root),
        "split.yaml": split("web", "web", {"v1": 3, "v2": 1}),
    }


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_all_objects_are_in_force_when_headgate_is_ready(new_world: Callable[..., World], tmp_path: Path) -> None:
    world = new_world(manifests=site(tmp_path))
    assert world.ready["findings"] == []
    assert world.ready["services"]["default/web"] == {"8080": str(world.address("web", 8080))}
    assert world.send(40, world.request("web", 8080)) == {"v1": 30, "v2": 10}
    assert stat.S_IMODE(Path(world.ready["kubeconfig"]).stat().st_mode) == 0o600


def test_no_request_fails_when_headgate_is_killed_and_restarted(
    new_world: Callable[..., World], tmp_path: Path
) -> None:
    """Envoy and the pods run without headgate, and the next start adopts them."""
    world = new_world(manifests=site(tmp_path))
    before, ready = world.processes(), world.ready
    assert len(before) == 3
    with world.load(world.request("web", 8080)) as load:
        world.kill()
        seen = load.sent
        until(lambda: load.sent > seen + 50)
        world.start()
        seen = load.sent
        until(lambda: load.sent > seen + 50)
        world.write("split.yaml", split("web", "web", {"v2": 1}))
        seen = load.counts["v2"]
        until(lambda: load.counts["v2"] > seen + 20)
    assert set(load.counts) == {"v1", "v2"}
    assert world.processes() == before
    assert world.ready["services"] == ready["services"]
    assert world.ready["proxy"] == ready["proxy"]
    assert world.send(20, world.request("web", 8080)) == {"v2": 20}
    assert all(pod["status"]["containerStatuses"][0]["restartCount"] == 0 for pod in world.get("pods")["items"])


def test_the_next_start_applies_files_that_changed_while_headgate_was_down(
    new_world: Callable[..., World], tmp_path: Path
) -> None:
    world = new_world(manifests=site(tmp_path))
    world.kubectl("label", "service", "web", "kept=yes")
    world.stop()
    (world.directory / "split.yaml").write_text(split("web", "web", {"v1": 1, "v2": 1}))
    (world.directory / "more.yaml").write_text(external("more", world.backend("more")))
    world.start()
    assert world.send(20, world.request("web", 8080)) == {"v1": 10, "v2": 10}
    assert world.send(5, world.request("more", 8080)) == {"more": 5}
    assert world.get("service/web")["metadata"]["labels"] == {"kept": "yes"}


def test_a_stopped_headgate_leaves_no_process_and_no_socket(new_world: Callable[..., World], tmp_path: Path) -> None:
    world = new_world(manifests=site(tmp_path))
    processes, sockets = world.processes(), Path(world.instance["admin"]).parent
    assert list(sockets.iterdir())
    assert world.stop() == 0
    assert world.processes() == {}
    assert not [pid for pid in processes.values() if alive(pid)]
    assert not sockets.exists()
    assert world.complaints == []


def test_the_next_start_removes_the_sockets_of_a_killed_headgate(new_world: Callable[..., World]) -> None:
    killed = new_world()
    sockets, envoy = Path(killed.instance["admin"]).parent, killed.processes()["envoy"]
    killed.kill()
    other = new_world()
    assert sockets.is_dir()  # the Envoy of the killed headgate still uses the sockets
    other.stop()
    os.kill(envoy, signal.SIGKILL)
    until(lambda: not killed.processes())
    other.start()
    assert not sockets.exists()


def test_a_signal_during_the_start_ends_headgate(unstarted: World, tmp_path: Path) -> None:
    for name, text in site(tmp_path).items():
        (unstarted.directory / name).write_text(text)
    unstarted.launch()
    until(unstarted.processes)
    assert unstarted.stop() == 0
    assert unstarted.processes() == {}


def test_a_second_headgate_with_the_same_state_directory_fails(new_world: Callable[..., World]) -> None:
    world = new_world()
    second = subprocess.run(
        [HEADGATE, "up", str(world.directory), "--state", str(world.state)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == 1
    assert str(world.state) in second.stderr
    assert "Traceback" not in second.stderr
    world.apply(external("web", world.backend("v1")))  # the first headgate still works
    assert world.send(5, world.request("web", 8080)) == {"v1": 5}


def test_two_headgates_run_side_by_side(new_world: Callable[..., World], tmp_path: Path) -> None:
    one, two = new_world(manifests=site(tmp_path)), new_world(manifests=site(tmp_path))
    assert one.address("web", 8080) != two.address("web", 8080)
    two.write("split.yaml", split("web", "web", {"v2": 1}))
    assert one.send(20, one.request("web", 8080)) == {"v1": 15, "v2": 5}
    assert two.send(20, two.request("web", 8080)) == {"v2": 20}
    two.stop()
    assert one.send(20, one.request("web", 8080, via="proxy")) == {"v1": 15, "v2": 5}


def test_an_ephemeral_headgate_keeps_no_state(new_world: Callable[..., World], tmp_path: Path) -> None:
    world = new_world("--ephemeral", manifests=site(tmp_path))
    world.apply(external("by-hand", world.backend("here")))
    world.stop()
    assert not world.state.exists()
    world.start()
    names = {item["metadata"]["name"] for item in world.get("services")["items"]}
    assert "by-hand" not in names
    assert "web" in names


def test_headgate_restarts_an_envoy_that_was_killed(new_world: Callable[..., World], tmp_path: Path) -> None:
    world = new_world(manifests=site(tmp_path))
    first = world.processes()["envoy"]
    os.kill(first, signal.SIGKILL)
    until(lambda: world.processes().get("envoy", first) != first)
    request = world.request("web", 8080)
    until(lambda: world.send(1, request) in ({"v1": 1}, {"v2": 1}))
    assert world.send(40, request) == {"v1": 30, "v2": 10}
    config = json.loads(world.envoy("/config_dump?resource=dynamic_active_clusters"))
    assert any("default/web/8080" in item["cluster"]["name"] for item in config["configs"])
