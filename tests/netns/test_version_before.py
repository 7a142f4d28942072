"""The control plane serves a sidecar of the version before: the rule of docs/reference/versions.md about proxies.

`version_before.json` is what that version wrote: the pod as its webhook changed it, the files, the redirection and Envoy's
arguments of the sidecar, and the calls of the sidecar's program. Nothing of it comes from the present code, except Envoy, whose
version is the same. A release replaces it by the record of the release.
"""

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from tests.make.objects import Object, smi_tcp_route, split, tcp_rule, tls_config, traffic_target
from tests.netns.namespaced_mesh import SETTLED_S, MeshPod, NamespacedMesh
from tests.netns.namespaces import PROXY
from tests.netns.objects import ALL_STRICT, ECHO, ONE, WEB, served
from tests.netns.traffic import CLOSED, Relay, ask, ask_often, talk
from tests.wire import Address
from tests.xds.proxies import NAME, ServerAuthority

from headgate.latest import Latest
from headgate.plane.job_sidecars import JobSidecars
from headgate.standalone.proxies.envoy_binary import find_envoy
from headgate.standalone.store.memory import MemoryStore
from headgate.telemetry.receiver import Receiver
from headgate.telemetry.reports import otlp
from headgate.telemetry.windows import Windows

RECORD: Any = json.loads((Path(__file__).parent / "version_before.json").read_text())
NODE = "sidecar/default/before"
OWN, OWN_ECHO = Address("10.96.0.30", 80), Address("10.96.0.31", 7000)
XDS_PORT, PROBE_PORT = 15010, 15020
START = """
mount -t tmpfs tmpfs /run && mkdir /run/headgate /run/headgate-secrets &&
mount --bind "$0/files" /run/headgate && mount --bind "$0" /run/headgate-secrets &&
mount --bind "$0/hosts" /etc/hosts && mount --bind "$0/resolv.conf" /etc/resolv.conf && exec "$@"
"""
"""Gives a command the directories of its container, and the name of the control plane. `$0` is the pod's directory."""


class ControlPlane:
    """The parts of a control plane that proxies call, over TLS."""

    def __init__(self, lab: NamespacedMesh) -> None:
        self.receiver = Receiver(Windows(), 1000)
        self.store = MemoryStore()
        self.authority = ServerAuthority()
        jobs = JobSidecars(self.store, self.receiver.wait_for_report)
        self.server = lab.server_over_tls({otlp.METHOD: self.receiver.export, **jobs.methods})
        # gRPC listens on ::1 alone, and only logs it, if another process has the port that it has chosen on 127.0.0.1.
        self.port = lab.run(self.server.start("127.0.0.1:0", Latest(self.authority.issue())))

    async def call(self, method: str, request: Mapping[str, Any], token: str) -> bytes:
        """Call a method as the program in a sidecar's container does."""
        credentials = grpc.ssl_channel_credentials(self.authority.roots.encode())
        options = [("grpc.ssl_target_name_override", NAME)]
        async with grpc.aio.secure_channel(f"127.0.0.1:{self.port}", credentials, options) as channel:
            answer: bytes = await channel.unary_unary(method)(
                json.dumps(request).encode(), metadata=[("authorization", f"Bearer {token}")], timeout=SETTLED_S
            )
        return answer


@pytest.fixture(scope="module")
def control_plane(lab: NamespacedMesh) -> Iterator[ControlPlane]:
    plane = ControlPlane(lab)
    yield plane
    lab.run(plane.server.stop())


@pytest.fixture(scope="module")
def before(lab: NamespacedMesh, control_plane: ControlPlane) -> Iterator[MeshPod]:
    """A pod whose sidecar the version before has started."""
    pod = lab.join(RECORD["pod"])
    pod.space.run("iptables-restore", stdin="\n".join((*RECORD["rules"], "")))
    lab.run(control_plane.store.create({**pod.manifest, "metadata": {**pod.manifest["metadata"], "uid": "1"}}))
    relay = lab.run(Relay("xds").forward_to_port(pod, XDS_PORT, control_plane.port))
    lab.listen(pod, 8080, "web")
    lab.listen(pod, 7000, "echo")
    _launch(pod, control_plane.authority.roots)
    yield pod
    lab.leave(pod)
    lab.run(relay.close())


def _launch(pod: MeshPod, roots: str) -> None:
    files = pod.directory / "files"
    (files / "sources").mkdir(parents=True)
    for path, content in RECORD["files"].items():
        (files / path).write_text(json.dumps(content))
    (pod.directory / "roots.pem").write_text(roots)
    (pod.directory / "hosts").write_text(f"127.0.0.1 {NAME}\n")
    (pod.directory / "resolv.conf").write_text("nameserver 127.0.0.1\n")  # which refuses queries at once
    for path in pod.directory.rglob("*"):
        os.chown(path, PROXY, PROXY)
    binary = os.open(find_envoy(os.environ), os.O_RDONLY)
    proxy = ("setpriv", f"--reuid={PROXY}", f"--regid={PROXY}", "--clear-groups", "--pdeathsig=KILL")
    envoy = (f"/proc/self/fd/{binary}", "-c", "/run/headgate/bootstrap.json", *RECORD["arguments"])
    command = pod.space.command("unshare", "--mount", "sh", "-c", START, pod.directory, *proxy, *envoy)
    with (pod.directory / "envoy.log").open("wb") as log:
        pod.envoy = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[binary])
    os.close(binary)


@pytest.fixture
def objects(services: Sequence[Object], before: MeshPod) -> Sequence[Object]:
    """The Services of the lab, and those of the pod."""
    return [*services, *served("before", OWN, [before], 8080), *served("before-echo", OWN_ECHO, [before], 7000, "tcp")]


def test_it_serves_and_calls_proxies_of_this_version_over_mutual_tls(
    lab: NamespacedMesh, objects: Sequence[Object], before: MeshPod
) -> None:
    lab.serve(*objects, *ALL_STRICT, tls_config("before", {"app": "before"}), split("web", {"one": 3, "two": 1}))
    client = lab.members["client"]
    assert lab.run(ask_often(client, OWN, 5)) == {"before": 5}
    assert "spiffe://cluster.local/ns/default/sa/client" in str(before.apps[8080].seen[-1].headers)
    assert lab.run(ask_often(before, WEB, 20)) == {"one": 15, "two": 5}
    assert "spiffe://cluster.local/ns/default/sa/before" in str(lab.members["two"].apps[8080].seen[-1].headers)
    assert lab.run(talk(client, OWN_ECHO, b"raw")) == lab.run(talk(before, ECHO, b"raw")) == ("", "raw")


def test_it_enforces_access_to_its_pod(lab: NamespacedMesh, objects: Sequence[Object], before: MeshPod) -> None:
    rules = smi_tcp_route("raw", 7000), traffic_target("raw", "before", ["client"], [tcp_rule("raw")])
    lab.serve(*objects, *rules)
    client, stranger = lab.members["client"], lab.members["stranger"]
    assert lab.run(talk(client, OWN_ECHO, b"raw")) == ("", "raw")
    assert lab.run(talk(stranger, OWN_ECHO, b"raw")) == CLOSED
    assert lab.run(ask(stranger, OWN)).status != 200


def test_it_makes_the_probes_that_the_kubelet_requests(
    lab: NamespacedMesh, objects: Sequence[Object], before: MeshPod
) -> None:
    lab.serve(*objects)
    kubelet, (app,) = (
        lab.members["plain"],
        (entry for entry in RECORD["pod"]["spec"]["containers"] if entry["name"] == "app"),
    )
    paths = ["/ready", *(app[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe"))]
    for path in paths:
        assert lab.run(ask(kubelet, Address(before.address, PROBE_PORT), path=path)).status == 200, path


def test_its_requests_count_and_its_program_gets_answers(
    lab: NamespacedMesh, objects: Sequence[Object], before: MeshPod, control_plane: ControlPlane
) -> None:
    lab.serve(*objects)
    assert lab.run(ask_often(before, ONE, 7)) == {"one": 7}
    (has_ended, question), (wait, request) = RECORD["calls"].items()
    token = (before.directory / "token").read_text()
    assert lab.run(control_plane.call(wait, {**request, "since": time.time()}, token)) == b""
    flows = lab.run(control_plane.receiver.windows.read(900)).flows
    counted = {flow.service: count.success for flow, count in flows.items() if flow.source.pod == "default/before"}
    assert counted["default/one"] == 7
    assert json.loads(lab.run(control_plane.call(has_ended, question, token))) == {"ended": False}
