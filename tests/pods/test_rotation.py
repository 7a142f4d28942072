"""The rotation of the mesh's root on a real cluster: pods with strict mutual TLS lose no request, and no server is left out."""

import base64
import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from tests.make.objects import tls_config
from tests.pods.conftest import (
    SYSTEM,
    Cluster,
    active_pod,
    app_deployment,
    graceful,
    http_service,
    mesh_namespace,
    until,
)
from tests.pods.kit import BIN
from tests.pods.load import failures, load

from headgate.kubernetes.names import API_PORT, SERVER_NAMES, WEBHOOK_PORT, XDS_PORT

BANK, OWN = "rotation", "app.kubernetes.io/name=headgate"
SERVERS = "accounts", "ledger"
RESTART = ("rollout", "restart", *(f"deployment/{name}" for name in SERVERS))
SERVED_S = 20
"""Seconds that a deleted server serves. Beside 30 processes, its callers' proxies learned of its deletion after 7 s; at a load of 24
they lost 5 of 10,833 connections to servers that had served for 10 s."""
SECRETS = """
import http.client, json, socket
connection = http.client.HTTPConnection("admin")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect("/run/headgate/admin.sock")
connection.request("GET", "/config_dump?resource=dynamic_active_secrets")
held = [item["secret"] for item in json.load(connection.getresponse())["configs"]]
(chain,) = (item["tls_certificate"]["certificate_chain"] for item in held if "tls_certificate" in item)
roots = (item["validation_context"]["trusted_ca"] for item in held if "validation_context" in item)
(trusted,) = (source for source in roots if "inline_string" in source)  # the other one is a file, for the control plane
print(json.dumps([chain["inline_string"], trusted["inline_string"]]))
"""
"""Prints the certificate chain and the trusted roots that an Envoy uses."""


@pytest.fixture(scope="module")
def bank(disturbed: Cluster) -> Cluster:
    """Two servers and a client for each, with strict mutual TLS. `ledger` has a TCP port: each connection is a handshake."""
    servers = (graceful(app_deployment(BANK, name), seconds=SERVED_S) for name in SERVERS)
    clients = (app_deployment(BANK, name, command=["sleep", "infinity"]) for name in ("client", "auditor"))
    disturbed.apply(
        mesh_namespace(BANK),
        http_service(BANK, "accounts", app="accounts"),
        _tcp(http_service(BANK, "ledger", app="ledger")),
        tls_config("strict", {}, namespace=BANK),
        *servers,
        *clients,
    )
    disturbed.wait_rolled_out(BANK, *SERVERS, "client", "auditor")
    disturbed.wait_programmed("tlsconfig/strict", BANK)
    return disturbed


def _tcp(obj: dict[str, Any]) -> dict[str, Any]:
    obj["spec"]["ports"][0]["name"] = "tcp"
    return obj


@contextmanager
def loads_without_loss(cluster: Cluster) -> Iterator[None]:
    """Send requests to both servers during the block; assert that all are answered."""
    with (
        load(cluster, BANK, "accounts") as requests,
        load(cluster, BANK, "ledger", client="auditor", reconnect=True) as connections,
    ):
        yield
    assert requests["accounts"] > 0
    assert connections["ledger"] > 0
    assert not failures(requests, "accounts")
    assert not failures(connections, "ledger")


def state(cluster: Cluster) -> Any:
    """Return the state of the certificate authority, which `headgate ca` shows."""
    return json.loads(cluster.get("configmap/headgate-ca", SYSTEM)["data"]["status.json"])


def only_root(cluster: Cluster) -> x509.Certificate:
    """Return the root that `headgate ca roots` prints, the only one."""
    (found,) = x509.load_pem_x509_certificates(cluster.headgate("ca", "roots").encode())
    return found


def running(cluster: Cluster, place: str, **labels: str) -> Mapping[str, str]:
    """Return the addresses of the pods that are not being deleted, by name."""
    found = cluster.get("pods", place, ",".join(f"{name}={value}" for name, value in labels.items()))
    return {
        pod["metadata"]["name"]: pod["status"]["podIP"]
        for pod in found["items"]
        if not pod["metadata"].get("deletionTimestamp")
    }


def served(address: str, port: int, root: x509.Certificate, *options: str) -> x509.Certificate:
    """Return the certificate that a server shows to openssl, which verifies it with a root."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(root.public_bytes(Encoding.PEM))
        file.flush()
        words = ["openssl", "s_client", "-connect", f"{address}:{port}", "-CAfile", file.name, "-verify_return_error"]
        done = subprocess.run([*words, *options], capture_output=True, check=False, stdin=subprocess.DEVNULL)
    assert b"Verification: OK" in done.stdout, (done.stdout, done.stderr)
    return x509.load_pem_x509_certificate(done.stdout)


def assert_only_new_root(cluster: Cluster, old: x509.Certificate) -> None:
    """Assert that proxies, servers and clients of the control plane use the current root, and it is not the old one."""
    new = only_root(cluster)
    assert new != old
    for name, address in running(cluster, BANK).items():
        target = ("-n", BANK, "exec", name, "-c", "headgate-sidecar", "--", "python3", "-c", SECRETS)
        chain, roots = json.loads(until(lambda target=target: cluster.kubectl(*target)))  # it may lose its output
        x509.load_pem_x509_certificate(chain.encode()).verify_directly_issued_by(new)
        assert x509.load_pem_x509_certificates(roots.encode()) == [new]
        if name.startswith(SERVERS):
            assert served(address, 8080, new) == x509.load_pem_x509_certificate(chain.encode())
    for pod, address in running(cluster, SYSTEM, **{"app.kubernetes.io/name": "headgate"}).items():
        ports = (WEBHOOK_PORT, XDS_PORT, API_PORT) if pod == active_pod(cluster) else (WEBHOOK_PORT,)
        for port in ports:
            served(address, port, new, "-verify_hostname", SERVER_NAMES[port == WEBHOOK_PORT])
    until(lambda: set(bundles(cluster)) == {new})


def bundles(cluster: Cluster) -> Iterator[x509.Certificate]:
    """Yield the roots that the API server and sidecars trust for the control plane's servers."""
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        for hook in cluster.get(f"{kind}.v1.admissionregistration.k8s.io/headgate")["webhooks"]:
            yield from _decoded(hook["clientConfig"]["caBundle"])
    for item in cluster.get("apiservices.v1.apiregistration.k8s.io", selector=OWN)["items"]:
        yield from _decoded(item["spec"]["caBundle"])
    for item in cluster.get("customresourcedefinitions.v1.apiextensions.k8s.io", selector=OWN)["items"]:
        if "webhook" in item["spec"]["conversion"]:
            yield from _decoded(item["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"])
    yield from volume_roots(cluster)


def volume_roots(cluster: Cluster) -> list[x509.Certificate]:
    """Return the roots that kubelets write into the volumes of sidecars."""
    config = cluster.get("configmap/headgate-roots", BANK)
    return x509.load_pem_x509_certificates(config["data"]["roots.pem"].encode())


def _decoded(bundle: str) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(base64.b64decode(bundle))


def delete_active_replica(cluster: Cluster) -> None:
    """Delete the active replica; wait until another one is active."""
    deleted = active_pod(cluster)
    cluster.kubectl("-n", SYSTEM, "delete", "pod", deleted, "--wait=false")
    until(lambda: active_pod(cluster) != deleted, f"another active replica than {deleted}")


def wait_until_stable(cluster: Cluster) -> None:
    """Wait until no rotation is in progress. If one does not end, the failure has the last state."""

    def reached() -> bool:
        found = state(cluster)
        assert found["phase"] == "stable", found
        return True

    until(reached, "the end of the rotation")


@contextmanager
def states(cluster: Cluster) -> Iterator[Iterator[Any]]:
    """Watch the state of the certificate authority during the block; yield an iterator over all published states.

    The phase `sign-new` lasts only a few seconds: on a busy machine, two questions of `headgate ca` are further apart.
    """
    path = r"jsonpath={.data.status\.json}{'\n'}"
    with cluster.lines(BIN / "kubectl", "-n", SYSTEM, "get", "configmap/headgate-ca", "--watch", "-o", path) as lines:
        yield map(json.loads, lines)


def test_no_request_is_lost_by_a_rotation_although_the_active_replica_is_deleted_in_two_of_its_steps(
    bank: Cluster,
) -> None:
    """R76. Each new active replica continues the step of the same rotation, and all servers and clients use the new root.

    Injection, conversion and the aggregated APIs work afterwards, also with a replica that starts then.
    """
    old = only_root(bank)
    with loads_without_loss(bank), states(bank) as published:
        bank.headgate("ca", "rotate")
        request = state(bank)["answered"]
        assert any(found.get("distributing") for found in published)
        bank.kubectl("-n", BANK, *RESTART)
        delete_active_replica(bank)  # not until all replicas run: a slow rollout outlasts the next phase
        assert any(found["phase"] == "sign-new" for found in published)
        delete_active_replica(bank)
        bank.wait_rolled_out(SYSTEM, "headgate")
        bank.wait_rolled_out(BANK, *SERVERS)
        wait_until_stable(bank)
        assert state(bank)["answered"] == request
        assert_only_new_root(bank, old)
        delete_active_replica(bank)
        bank.wait_rolled_out(SYSTEM, "headgate")
        bank.kubectl(
            "-n", BANK, "rollout", "restart", "deployment/accounts"
        )  # the new pod needs a webhook of a replica
        bank.wait_rolled_out(BANK, "accounts")
        bank.wait_programmed("tlsconfig/strict", BANK)
        bank.wait_in_sync(BANK)
        assert "accounts" in bank.run(BIN / "kubectl-traffic", "top", "deployments", "-n", BANK)
        bank.kubectl("get", "trafficsplits.v1alpha1.split.smi-spec.io", "--all-namespaces")
