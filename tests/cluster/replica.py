"""A replica of the control plane as a process of its own, with webhooks that the API server of `conftest` calls."""

import contextlib
import json
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
from typing import Any

from tests.cluster.conftest import ADMIN, READY_S, Cluster, end
from tests.ports import free_port

from headgate.kubernetes.install.custom_resources import custom_resource_definitions
from headgate.kubernetes.install.manifests import Values, manifests
from headgate.kubernetes.names import NAME, NAMESPACE, WEBHOOKS
from headgate.resources.meta import Object
from headgate.resources.registry import KINDS

POD = "replica"
POLL_S = 0.1
CONFIGURATION = f"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{NAME}"
_PROGRAM = """
import os, sys
from pathlib import Path
from headgate import event_loop
from headgate.cli.mesh_options import parse_issuer
from headgate.kubernetes import aggregated_apis, app, handover, webhooks
from headgate.kubernetes.credentials import InCluster
from headgate.kubernetes.options import Options
account, pod, issuer, *ports = sys.argv[1:]
handover.PROPAGATION_S = handover.LONGEST_S = 0  # no other replica runs
webhooks.WEBHOOK_PORT, app.XDS_PORT, aggregated_apis.API_PORT = map(int, ports)
options = Options(pod=pod, image="headgate", issuer=parse_issuer(issuer))
event_loop.run(app.run(options, InCluster(os.environ, Path(account))))
"""


def start(cluster: Cluster, log: Path, port: int, issuer: str = "") -> "subprocess.Popen[bytes]":
    """Start a replica with its webhooks at `port`; its output goes to `log`.

    `issuer` is the value of `--cert-manager-issuer`.
    """
    cluster.api(ADMIN)  # writes the files of the account
    environment = os.environ | cluster.environment | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ports = (str(one) for one in (port, free_port(), free_port()))
    command = [sys.executable, "-c", _PROGRAM, str(cluster.root / ADMIN), POD, issuer, *ports]
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


@contextmanager
def running(cluster: Cluster, issuer: str = "") -> Iterator[None]:
    """Install the definitions and the webhooks, and run a replica until the `with` block ends."""
    port = free_port()  # tests of other files run replicas at the same time
    install(cluster, port)
    log = cluster.root / "replica.log"
    process = start(cluster, log, port, issuer)
    try:
        wait_for(lambda: process.poll() is None and is_ready(port) and has_bundle(cluster), log)
        yield
    finally:
        end(process)


def has_bundle(cluster: Cluster) -> bool:
    """Return whether a replica has written its roots into the configuration of the webhooks."""
    _, found = cluster.call("GET", CONFIGURATION)
    return all("caBundle" in hook["clientConfig"] for hook in found["webhooks"])


def wait_for(condition: Callable[[], object], log: Path) -> None:
    """Wait until `condition` returns a true value."""
    deadline = time.monotonic() + READY_S
    while not condition():
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(POLL_S)


def install(cluster: Cluster, port: int) -> None:
    """Create the definitions of all kinds, the webhooks and the pod of the replica; definitions may exist.

    The API server calls the webhooks at `port` of this machine.
    """
    define_kinds(cluster, port)
    install_webhooks(cluster, port)


def define_kinds(cluster: Cluster, port: int) -> None:
    """Create the definitions of the mesh's and the Gateway API's kinds that do not exist."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    definitions = [obj for obj in manifests(Values(image="headgate:1")) if obj["kind"] == "CustomResourceDefinition"]
    for obj in (*definitions, *_gateway_api()):
        _create(cluster, path, _on_this_machine(obj, port))


def install_webhooks(cluster: Cluster, port: int) -> None:
    """Create the webhooks, and the pod and the Service of the replica."""
    place = f"/api/v1/namespaces/{NAMESPACE}"
    _create(cluster, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    _create(cluster, f"{place}/serviceaccounts", {"metadata": {"name": "default"}})
    _create(cluster, f"{place}/pods", _pod())
    _create(cluster, f"{place}/services", _service(port))
    for obj in manifests(Values(image="headgate:1")):
        if obj["kind"].endswith("WebhookConfiguration"):
            for hook in obj["webhooks"]:
                hook["timeoutSeconds"] = 30  # after its own limit, a webhook that fails open would accept a mistake
            path = f"/apis/admissionregistration.k8s.io/v1/{obj['kind'].lower()}s"
            _create(cluster, path, _on_this_machine(obj, port))


def _create(cluster: Cluster, path: str, body: Object) -> None:
    status, answer = cluster.call("POST", path, body)
    assert status in {201, 409}, answer


def _pod() -> Object:
    return {"metadata": {"name": POD}, "spec": {"containers": [{"name": "headgate", "image": "headgate"}]}}


def _service(port: int) -> Object:
    """Return the Service of the webhooks as a name of this machine, because no pod runs."""
    spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    return {"metadata": {"name": WEBHOOKS}, "spec": spec}


def _on_this_machine(obj: Object, port: int) -> Any:
    """Return an object whose webhooks are called at the port on which the replica listens."""
    return json.loads(json.dumps(obj).replace('"port": 443', f'"port": {port}'))


def _gateway_api() -> Iterator[Object]:
    """Yield definitions of the Gateway API's kinds, as its releases have them: without conversion of versions."""
    kinds = [kind for kind in KINDS if kind.group == "gateway.networking.k8s.io"]
    for definition in custom_resource_definitions(kinds, {"service": {}}):
        with contextlib.suppress(KeyError):
            del definition["spec"]["conversion"]
        metadata = {**definition["metadata"], "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"}}
        yield {**definition, "metadata": metadata}
