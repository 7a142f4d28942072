"""A replica of the control plane as a process of its own, with webhooks that the API server calls."""

import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.api_server import CONTROL_PLANE, READY_S, KubeApiServer, end
from tests.cluster.installation import has_bundle, injected_image, reviews, run_pod
from tests.ports import free_port

POD = "replica"
POLL_S = 0.1
_PROGRAM = """
import os, sys
from pathlib import Path
from headgate import event_loop
from headgate.options import MeshOptions, parse_issuer
from headgate.kubernetes import aggregated_apis, app, handover, webhooks
from headgate.kubernetes.credentials import InCluster
from headgate.kubernetes.options import Options
account, pod, issuer, *ports = sys.argv[1:]
handover.PROPAGATION_S = handover.LONGEST_S = 0  # no other replica runs
webhooks.WEBHOOK_PORT, app.XDS_PORT, aggregated_apis.API_PORT = map(int, ports)
options = Options(pod=pod, image="headgate", mesh=MeshOptions(cert_manager_issuer=parse_issuer(issuer)))
event_loop.run(app.run(options, InCluster(os.environ, Path(account))))
"""


def of_version(source: str) -> dict[str, str]:
    """Return the variable by which Python imports headgate from a directory; with an empty one, the version under test."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, (source, *sys.path)))}


_REVISION = """
import os, sys
from pathlib import Path
from headgate import event_loop
from headgate.kubernetes import revision_app
from headgate.kubernetes.credentials import InCluster
from headgate.kubernetes.options import Options
account, name, port = sys.argv[1:]
revision_app.WEBHOOK_PORT = int(port)
options = Options(pod="revision", image=f"headgate:{name}", revision=name)
event_loop.run(revision_app.run(options, InCluster(os.environ, Path(account))))
"""


@contextmanager
def revision(server: KubeApiServer, name: str, port: int) -> Iterator[None]:
    """Run a replica of a revision on a port until the `with` block ends."""
    log = server.root / "revision.log"
    environment = os.environ | server.environment | of_version("")
    command = [sys.executable, "-c", _REVISION, str(server.account(CONTROL_PLANE)), name, str(port)]
    with log.open("wb") as output, subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process:
        try:
            wait_for(lambda: process.poll() is None and is_ready(port) and has_bundle(server, name), log)
            yield
        finally:
            end(process)


@contextmanager
def serving(server: KubeApiServer, issuer: str = "", *, source: str = "") -> Iterator[Path]:
    """Run a replica until the `with` block ends; yield the path of its log.

    `issuer` is the value of `--cert-manager-issuer`. `source` is the directory with the package of another version.
    """
    log = server.root / "replica.log"
    with start(server, log, issuer, source=source) as process:
        try:
            wait_for(lambda: process.poll() is None and is_ready(server.webhook_port) and has_bundle(server), log)
            wait_for(lambda: reviews(server) and injected_image(server), log)
            yield log
        finally:
            end(process)


def start(server: KubeApiServer, log: Path, issuer: str = "", *, source: str = "") -> "subprocess.Popen[bytes]":
    """Start a replica; its output goes to `log`."""
    run_pod(server, POD)
    environment = os.environ | server.environment | of_version(source)
    ports = (str(number) for number in (server.webhook_port, free_port(), free_port()))
    command = [sys.executable, "-c", _PROGRAM, str(server.account()), POD, issuer, *ports]
    with log.open("wb") as output:
        return subprocess.Popen(command, env=environment, stdout=output, stderr=output)


def is_ready(port: int) -> bool:
    """Return whether the replica with its webhooks at `port` has compiled all objects, as a kubelet's probe asks."""
    unverified = ssl._create_unverified_context()
    try:
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/readyz", context=unverified, timeout=READY_S) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


def wait_for(condition: Callable[[], object], log: Path) -> None:
    """Wait until `condition` returns a true value."""
    deadline = time.monotonic() + READY_S
    while not condition():
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(POLL_S)
