"""`kubectl traffic` with a real kubectl, against an API server with recorded responses."""

import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.traffic.conftest import RecordedApi
from tests.cli.traffic.responses import API, SEED, deployments, listed, traffic_metrics

BASE = f"/apis/{API}"
PODS = listed(traffic_metrics("foo", 54), traffic_metrics("bar", 27, 27), kind="Pod", namespace="default")


def test_top_pods_prints_the_table_of_the_api(api: RecordedApi):
    api.responses[f"{BASE}/namespaces/default/pods"] = PODS
    assert api.ok("top", "pods") == (
        "NAME   SUCCESS      RPS   LATENCY_P99\n"
        "foo    100.00%   1.8rps           1ms\n"
        "bar     50.00%   1.8rps           1ms\n"
    )
    assert api.requests == [f"{BASE}/namespaces/default/pods"]
    assert api.headers[0]["authorization"] == "Bearer a-token"


@pytest.mark.parametrize("arguments", [["top", "pods", "--context", "shop"], ["--context=shop", "top", "pods"]])
def test_kubectl_options_may_precede_or_follow_the_command(api: RecordedApi, arguments: list[str]):
    api.responses[f"{BASE}/namespaces/shop/pods"] = PODS
    api.ok(*arguments)


def test_version_prints_the_version_of_the_plugin(api: RecordedApi):
    assert api.ok("version").startswith("kubectl traffic 0.")


def test_an_option_without_its_value_exits_with_2(api: RecordedApi):
    assert api.run("top", "pods", "--context") == (2, "", "error: --context needs a value\n")


def test_a_topology_requests_the_list_and_the_edges_of_each_resource_once(api: RecordedApi):
    # R105, R107
    api.responses = deployments(SEED, "idle")
    assert api.ok("topology", "deployment") == (
        "                  +------------------------+\n"
        "                  |                        v\n"
        "+---------+     +-----+     +-----+      +-----+\n"
        "| traffic | --> | foo | --> | bar | <--> | baz |\n"
        "+---------+     +-----+     +-----+      +-----+\n"
        "\n"
        "no traffic: idle\n"
    )
    base = f"{BASE}/namespaces/default/deployments"
    assert api.requests[0] == base
    assert sorted(api.requests[1:]) == [f"{base}/{name}/edges" for name in ("bar", "baz", "foo", "idle", "traffic")]


def test_an_unreachable_api_server_exits_with_3(api: RecordedApi):
    ran = api.run("top", "pods", "--server", "http://127.0.0.1:1")
    assert ran.code == 3
    assert "the API server can't be reached (dial tcp 127.0.0.1:1: connect: connection refused)" in ran.err


def test_an_unknown_context_prints_the_error_of_kubectl(api: RecordedApi):
    assert api.run("top", "pods", "--context", "nowhere") == (1, "", 'error: context "nowhere" does not exist\n')


def test_an_exec_plugin_runs_once_for_a_whole_topology(api: RecordedApi, tmp_path: Path):
    # An exec plugin of a cloud can take a second, so 40 resources must not run it 41 times.
    runs, program = tmp_path / "runs", tmp_path / "log-in"
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "from-a-program"},
    }
    program.write_text(f"#!/bin/sh\necho >> {runs}\necho Log in on this page. >&2\necho '{json.dumps(credential)}'\n")
    program.chmod(0o700)
    config = json.loads(api.kubeconfig.read_text())
    asks = {"apiVersion": credential["apiVersion"], "command": str(program), "interactiveMode": "Never"}
    config["users"][0]["user"] = {"exec": asks}
    api.kubeconfig.write_text(json.dumps(config))
    api.responses = deployments({(f"a{number}", f"b{number}"): 1 for number in range(10)})
    ran = api.run("topology")
    assert ran.code == 0
    assert ran.err == "Log in on this page.\n"  # the login instructions reach the user
    assert {headers["authorization"] for headers in api.headers} == {"Bearer from-a-program"}
    assert len(runs.read_text().splitlines()) == 1


def shown_at(terminal: int) -> str:
    """Return the output of a terminal until its last program has ended; close the terminal."""
    shown = b""
    with contextlib.suppress(OSError):  # EIO: no program has the terminal open
        while segment := os.read(terminal, 1 << 16):
            shown += segment
    os.close(terminal)
    return shown.decode()


def test_a_narrow_terminal_prints_a_list_and_how_to_see_the_diagram(api: RecordedApi):
    api.responses = deployments(SEED)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    with subprocess.Popen(
        api.command("topology"), stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=api.environment()
    ) as process:
        _, note = process.communicate()
    os.close(theirs)
    shown = shown_at(ours).replace("\r\n", "\n")
    assert shown == "bar\n  <--> baz\nfoo\n  -->  bar\n  -->  baz\ntraffic\n  -->  foo\n"
    assert note.decode().startswith("The diagram needs 48 columns")


@pytest.mark.parametrize(("variable", "colored"), [("LANG", True), ("NO_COLOR", False)])
def test_output_is_colored_only_on_a_terminal_and_not_if_the_variable_no_color_is_set(
    api: RecordedApi, variable: str, colored: bool
):
    api.responses[f"{BASE}/namespaces/default/pods"] = listed(traffic_metrics("foo", 1, 1))
    kept = {name: text for name, text in api.environment().items() if name != "NO_COLOR"}
    ours, theirs = pty.openpty()
    environment = {**kept, "TERM": "xterm", variable: "C"}
    subprocess.run(api.command("top", "pods"), stdin=theirs, stdout=theirs, env=environment, check=True)
    os.close(theirs)
    shown = shown_at(ours)
    assert ("\x1b[31m50.00%\x1b[0m" in shown) is colored
    assert "\x1b" not in api.ok("top", "pods")  # stdout is a pipe


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Return an empty directory for sockets, whose paths have at most 107 bytes; `tmp_path` may be longer."""
    with tempfile.TemporaryDirectory(prefix="headgate-", dir="/tmp") as found:
        yield Path(found)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_a_watch_and_its_kubectl_proxy(
    api: RecordedApi, short_path: Path, number: signal.Signals, code: int
):
    api.responses[f"{BASE}/namespaces/default/pods"] = PODS
    with subprocess.Popen(
        [sys.executable, "-m", "headgate.cli.traffic", "top", "pods", "--watch"],
        stdout=subprocess.PIPE,
        env={**api.environment(), "TMPDIR": str(short_path)},
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"NAME   SUCCESS      RPS   LATENCY_P99\n"
        (directory,) = short_path.glob("kubectl-traffic-*")
        assert (directory / "api").stat().st_mode & 0o077 == 0  # no other user may call the API with this user's rights
        assert directory.stat().st_mode & 0o077 == 0
        process.send_signal(number)
        process.communicate()
    assert process.returncode == code
    assert list(short_path.glob("kubectl-traffic-*")) == []


def test_the_socket_of_kubectl_proxy_rejects_writes(api: RecordedApi, short_path: Path):
    api.responses[f"{BASE}/namespaces/default/pods"] = PODS
    with subprocess.Popen(
        [sys.executable, "-m", "headgate.cli.traffic", "top", "pods", "--watch"],
        stdout=subprocess.PIPE,
        env={**api.environment(), "TMPDIR": str(short_path)},
    ) as process:
        assert process.stdout
        process.stdout.readline()
        (socket,) = short_path.glob("kubectl-traffic-*/api")
        code = (
            "import http.client as h, socket, sys\n"
            "c = h.HTTPConnection('localhost'); c.sock = socket.socket(socket.AF_UNIX); c.sock.connect(sys.argv[1])\n"
            "c.request('DELETE', '/api/v1/namespaces/default'); print(c.getresponse().status)"
        )
        done = subprocess.run([sys.executable, "-c", code, str(socket)], capture_output=True, text=True, check=True)
        process.terminate()
        process.communicate()
    assert done.stdout == "403\n"
    assert all(path.startswith(BASE) for path in api.requests)


def test_the_same_warning_of_the_api_is_printed_once(api: RecordedApi):
    # The metrics API sends the warning with each response.
    api.responses = deployments(SEED)
    api.warning = r"the proxy of \"shop/foo\" does not report"
    ran = api.run("topology")
    assert ran.err == 'Warning: the proxy of "shop/foo" does not report\n'
    assert "| foo |" in ran.out
