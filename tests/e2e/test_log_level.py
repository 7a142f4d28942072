"""`headgate proxies --log-level`: the level returns, however the command ends."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest
from tests.e2e.manifests import counting_deployment
from tests.e2e.running_mesh import RunningMesh, mesh_in_a_new_directory
from tests.headgate_program import command
from tests.waiting import until


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    counts = tmp_path_factory.mktemp("counts") / "web"
    with mesh_in_a_new_directory(
        manifests={"web.yaml": counting_deployment("web", counts, labels={"app": "web"}, ports={"http": 8080})}
    ) as mesh:
        until(lambda: mesh.headgate("status").returncode == 0)
        yield mesh


@pytest.fixture(params=["gateway", "sidecar"])
def proxy(mesh: RunningMesh, request: pytest.FixtureRequest) -> str:
    return "gateway" if request.param == "gateway" else mesh.get("pods")["items"][0]["metadata"]["name"]


def level(mesh: RunningMesh, proxy: str) -> str:
    """Return the level of Envoy's main logger."""
    shown = json.loads(mesh.headgate("proxies", proxy, "-o", "json").stdout)
    with socket.socket(socket.AF_UNIX) as admin:
        admin.connect(shown["status"]["process"]["admin"])
        admin.sendall(b"POST /logging HTTP/1.1\r\nhost: envoy\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        text = b"".join(iter(lambda: admin.recv(1 << 16), b"")).decode()
    return text.partition("\n  main: ")[2].partition("\n")[0].strip()


def hold(mesh: RunningMesh, *words: str) -> "subprocess.Popen[str]":
    """Start the command and wait until it has set the level."""
    process = subprocess.Popen(
        [*command(), "proxies", *words, "--state", str(mesh.state)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout
    assert "logs at the level debug" in process.stdout.readline()
    return process


@pytest.mark.parametrize(
    ("proxy", "end"),
    [("gateway", signal.SIGINT), ("gateway", signal.SIGTERM), ("gateway", signal.SIGKILL), ("sidecar", signal.SIGKILL)],
    indirect=["proxy"],
)
def test_the_level_returns_when_the_command_ends(mesh: RunningMesh, proxy: str, end: signal.Signals) -> None:
    process = hold(mesh, proxy, "--log-level", "debug")
    assert level(mesh, proxy) == "debug"
    os.kill(process.pid, end)
    process.communicate()
    until(lambda: level(mesh, proxy) == "warning", "the level has returned")


def test_the_level_returns_after_the_time(mesh: RunningMesh, proxy: str) -> None:
    process = hold(mesh, proxy, "--log-level", "debug", "--for", "500ms")
    assert process.communicate()[0].endswith("logs at its usual level again\n")
    assert process.returncode == 0
    assert level(mesh, proxy) == "warning"


def test_wrong_use_is_an_error(mesh: RunningMesh) -> None:
    assert "name the proxy" in mesh.headgate("proxies", "--log-level", "debug").stderr
    assert "is not a duration" in mesh.headgate("proxies", "gateway", "--log-level", "debug", "--for", "x").stderr
    assert mesh.headgate("proxies", "gateway", "--log-level", "loud").returncode == 2
