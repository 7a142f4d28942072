"""Networks of pods of a headgate without root; `test_pod_networks.py` has what they have in common with those of root."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.e2e.answering_server import answering
from tests.e2e.running_mesh import UNPRIVILEGED_UID, RunningMesh, mesh_in_a_new_directory, missing_without_root
from tests.fork_client import Forked
from tests.headgate_program import server
from tests.make.objects import config_map, container, deployment, gateway, listener, manifest, port, service
from tests.waiting import until
from tests.wire import DEADLINE_S

UID = UNPRIVILEGED_UID if not os.geteuid() else os.geteuid()
NET_ADMIN = 1 << 12
FORBIDDEN = """
import os, sys
from headgate.standalone import user_namespace
from headgate.standalone.network.choice import enter_user_namespace

(here, there), (begun, begins) = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    user_namespace._call("unshare", 0x10000000)
    os.write(there, b"+")
    os.read(begun, 1)
    open("/proc/sys/user/max_user_namespaces", "w").write("0")
    os.setgroups(())
    os.setgid(65534)
    os.setuid(65534)
    print(enter_user_namespace("pod", 0), flush=True)
    os._exit(0)
os.read(here, 1)
for name in ("gid_map", "uid_map"):
    open(f"/proc/{child}/{name}", "w").write("0 0 65536")
os.write(begins, b"+")
os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def mesh() -> Iterator[RunningMesh]:
    if reason := missing_without_root():
        pytest.skip(reason)
    app = container(command=answering("POD_NAME"), ports=[{"containerPort": 8080}])
    text = manifest(
        service("web", port(80, "http"), selector={"app": "web"}),
        service("near", port(8080, "http"), selector={"app": "near"}),
        deployment("near", app, template={"hostNetwork": True}),
        service("ran", port(8080, "http"), selector={"app": "ran"}),
        config_map("files", {"greeting": "hello"}),
        deployment(
            "shell",
            container(
                command=["sleep", "3600"],
                readinessProbe={"exec": {"command": ["test", "-e", "/etc/shell/greeting"]}, "timeoutSeconds": 30},
                lifecycle={"postStart": {"exec": {"command": ["sh", "-c", "test $(hostname) = $HOSTNAME"]}}},
                volumeMounts=[{"name": "files", "mountPath": "/etc/shell"}],
            ),
            template={"volumes": [{"name": "files", "configMap": {"name": "files"}}]},
        ),
        gateway("edge", listener(8000)),
    )
    user = 0 if os.geteuid() else UNPRIVILEGED_UID
    with mesh_in_a_new_directory("--network", "pod", manifests={"near.yaml": text}, user=user) as mesh:
        until(lambda: all(is_available(mesh, name) for name in ("near", "shell")), seconds=180)
        yield mesh


def is_available(mesh: RunningMesh, name: str) -> bool:
    return bool(mesh.get(f"deployment/{name}").get("status", {}).get("availableReplicas"))


def shell(mesh: RunningMesh, *command: str) -> str:
    return mesh.kubectl("exec", "deploy/shell", "--", *command).strip()


def test_commands_of_probes_and_hooks_run_in_the_container(mesh: RunningMesh) -> None:
    (pod,) = (pod for pod in mesh.get("pods")["items"] if pod["metadata"]["labels"]["app"] == "shell")
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    assert is_available(mesh, "shell")


def capabilities(pid: int) -> dict[str, int]:
    rows = (row.split(":") for row in Path(f"/proc/{pid}/status").read_text().splitlines() if row.startswith("Cap"))
    return {name: int(value, 16) for name, value in rows}


def called(mesh: RunningMesh, name: str) -> str:
    """Return what the Service `name` responds to a program of the shell."""
    code = f"import urllib.request; print(urllib.request.urlopen('http://{name}:8080/', timeout=60).read().decode())"
    return shell(mesh, sys.executable, "-c", code)


def test_the_start_says_where_the_machine_reaches_services(mesh: RunningMesh) -> None:
    assert "without root, they are in a user namespace, and this machine reaches 10.A.x.y as 127.A.x.y" in mesh.stderr
    assert "Ports below 1024 need root on this machine, such as port 80 of 10." in mesh.stderr
    services = mesh.ready["services"]
    assert services["default/near"]["8080"].startswith("127.")
    assert services["default/web"] == {}
    assert mesh.ready["gateways"]["default/edge"]["8000"].startswith("127.")


def test_programs_have_the_user_of_headgate_and_no_capabilities(mesh: RunningMesh) -> None:
    assert shell(mesh, "id", "-u") == str(UID)
    for pid in mesh.processes().values():
        granted = capabilities(pid)
        assert {granted[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
        assert "NoNewPrivs:\t1" in Path(f"/proc/{pid}/status").read_text()  # files give none either
    for pid in mesh.sidecars().values():
        assert capabilities(pid)["CapEff"] in {0, NET_ADMIN}  # 0 in the node, where nothing is redirected
    assert {path.stat().st_uid for path in mesh.state.rglob("*")} == {UID}


def test_a_pod_with_host_network_is_reached_by_its_service(mesh: RunningMesh) -> None:
    (name,) = (
        pod["metadata"]["name"] for pod in mesh.get("pods")["items"] if pod["metadata"]["labels"]["app"] == "near"
    )
    assert called(mesh, "near") == name
    assert mesh.ask(mesh.request("near", 8080)).body == name
    assert mesh.ask(mesh.request("near", 8080, via="proxy")).body == name
    assert mesh.ask(mesh.request_by_name("near.localhost")).body == name


def test_a_program_of_headgate_run_is_reached_by_its_service(mesh: RunningMesh) -> None:
    with Path(os.devnull).open("r+") as null:
        words = (
            "run",
            "--label",
            "app=ran",
            "--port",
            "8080",
            "--state",
            str(mesh.state),
            "--",
            *answering("POD_NAME"),
        )
        process = Forked(server(), words, (null.fileno(),) * 3, user=0 if os.geteuid() else UNPRIVILEGED_UID)
        with closing(process):
            assert until(lambda: attempt(mesh, "ran"), seconds=2 * DEADLINE_S).startswith("run-")
            process.send_signal(15)
            process.wait(DEADLINE_S)


def attempt(mesh: RunningMesh, name: str) -> str:
    answer = mesh.ask(mesh.request(name, 8080))
    return answer.body if answer.status == 200 else ""


def test_only_loopback_of_the_machine_is_listened_on(mesh: RunningMesh) -> None:
    """Whatever the machine reaches of the mesh has an address in 127.0.0.0/8."""
    inodes = {str(path.readlink()) for path in Path(f"/proc/{mesh.instance['pid']}/fd").iterdir()}
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]
    assert listening
    assert {int(address.partition(":")[0], 16) & 0xFF for address in listening} == {127}


def test_packets_that_the_portal_does_not_forward_are_rejected_at_once(mesh: RunningMesh) -> None:
    code = (
        "import socket\nout = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nout.connect(('192.0.2.7', 123))\n"
        "out.settimeout(60)\nout.send(b'x')\ntry: out.recv(1)\nexcept ConnectionRefusedError: print('refused')"
    )
    assert shell(mesh, sys.executable, "-c", code) == "refused"


def test_queries_to_other_resolvers_are_answered_by_that_of_headgate(mesh: RunningMesh) -> None:
    code = (
        "import dns.resolver\nother = dns.resolver.Resolver(configure=False)\nother.nameservers = ['192.0.2.53']\n"
        "print(other.resolve('near.default.svc.cluster.local')[0])"
    )
    assert shell(mesh, sys.executable, "-c", code) == mesh.get("service/near")["spec"]["clusterIP"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a machine without user namespaces")
def test_a_machine_without_user_namespaces_is_named_with_the_setting() -> None:
    done = subprocess.run([sys.executable, "-c", FORBIDDEN], capture_output=True, text=True, check=True)
    assert "this machine forbids unprivileged user namespaces" in done.stdout
    assert "run headgate as root, or allow them: sysctl -w user.max_user_namespaces=10000" in done.stdout
