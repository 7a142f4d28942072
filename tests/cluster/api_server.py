"""A real kube-apiserver with its etcd, on loopback. KUBEBUILDER_ASSETS is the directory of the binaries."""

import http.client
import json
import os
import select
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.api.request_header_ca import FrontProxyAuthority
from tests.cluster.audit_log import AuditLog, write_policy
from tests.ports import free_port

from headgate.api.certificate import self_signed
from headgate.kubernetes.client import ApiServer, Client
from headgate.kubernetes.credentials import InCluster

READY_S = 90
STOP_S = 20
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
ADMIN, HEADGATE, UNPRIVILEGED = "token-of-the-admin", "token-of-headgate", "token-without-permissions"
CONTROL_PLANE = "token-of-the-control-plane"
USERS = f"""{ADMIN},admin,1,"system:masters"
{HEADGATE},headgate,2
{UNPRIVILEGED},unprivileged,3
{CONTROL_PLANE},system:serviceaccount:headgate-system:headgate,4
"""
ISSUER = "https://kubernetes.default.svc"
_UNUSED_VERSIONS = (
    "admissionregistration.k8s.io/v1beta1",
    "apiregistration.k8s.io/v1beta1",
    "authentication.k8s.io/v1beta1",
    "authorization.k8s.io/v1beta1",
    "autoscaling/v2beta1",
    "batch/v1beta1",
    "certificates.k8s.io/v1",
    "certificates.k8s.io/v1beta1",
    "coordination.k8s.io/v1beta1",
    "events.k8s.io/v1beta1",
    "extensions/v1beta1",
    "flowcontrol.apiserver.k8s.io/v1beta1",
    "networking.k8s.io/v1beta1",
    "node.k8s.io/v1",
    "node.k8s.io/v1beta1",
    "rbac.authorization.k8s.io/v1beta1",
    "scheduling.k8s.io/v1",
    "scheduling.k8s.io/v1beta1",
    "storage.k8s.io/v1",
    "storage.k8s.io/v1beta1",
)
"""Versions that no test reads. The API server writes its whole OpenAPI document again after each change to a definition or
an APIService, which is two thirds of its processor time while headgate is installed."""
_UNUSED_PLUGINS = (  # they read these versions
    "DefaultStorageClass",
    "PersistentVolumeClaimResize",
    "Priority",
    "RuntimeClass",
    "StorageObjectInUseProtection",
)


class KubeApiServer:
    """An API server for tests, with functions that create objects and tokens."""

    def __init__(self, root: Path, port: int) -> None:
        self.root = root
        self.url = f"https://127.0.0.1:{port}"
        self.port = port
        self.webhook_port = free_port()  # of the replica of an installation (`installation.install`)
        self.audit_log = AuditLog(root)
        self._of_thread = threading.local()
        self._connections: list[http.client.HTTPSConnection] = []

    def close(self) -> None:
        """Close the connections of all threads."""
        for connection in self._connections:
            connection.close()

    def credentials(self, token: str = ADMIN) -> InCluster:
        """Return the credentials of a pod whose ServiceAccount has this token."""
        return InCluster(self.environment, self.account(token))

    def account(self, token: str = ADMIN) -> Path:
        """Write the files of a pod whose ServiceAccount has this token; return their directory."""
        account = self.root / token
        account.mkdir(exist_ok=True)
        (account / "token").write_text(token)
        (account / "ca.crt").write_bytes((self.root / "api.crt").read_bytes())
        return account

    def client(self, token: str = ADMIN) -> Client:
        """Return a client of the API server that uses a pod's token."""
        return Client(self.credentials(token))

    def api(self, token: str = HEADGATE) -> ApiServer:
        """Return the API server as aggregated APIs and token reviews use it, with a pod's token."""
        return ApiServer(self.client(token))

    def kubeconfig(self) -> Path:
        """Write a kubeconfig of the admin; return its path."""
        path = self.root / "kubeconfig"
        server = {"server": self.url, "certificate-authority": str(self.root / "api.crt")}
        config = {
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": "admin", "user": {"token": ADMIN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
        path.write_text(json.dumps(config))
        return path

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables by which a pod finds the API server."""
        return {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.port)}

    def call(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", accept: str = "*/*"
    ) -> tuple[int, Any]:
        """Call the API as admin; return the status and the response."""
        connection = self._connection()
        headers = {"authorization": f"Bearer {ADMIN}", "content-type": content_type, "accept": accept}
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            content = answer.read()
        except BaseException:
            connection.close()
            raise
        return answer.status, json.loads(content) if content.startswith(b"{") else content.decode()

    def _connection(self) -> http.client.HTTPSConnection:
        """Return this thread's connection; the next request opens it again if the API server has closed it."""
        kept: http.client.HTTPSConnection | None = getattr(self._of_thread, "connection", None)
        if kept is None:
            trust = ssl.create_default_context(cafile=str(self.root / "api.crt"))
            kept = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=READY_S, context=trust)
            self._of_thread.connection = kept
            self._connections.append(kept)
        if kept.sock and select.select([kept.sock], [], [], 0)[0]:  # nothing is expected between two requests
            kept.close()
        return kept

    def make(self, path: str, body: Any) -> Any:
        """Create an object as admin."""
        status, answer = self.call("POST", path, body)
        assert status in {200, 201}, json.dumps(answer)
        return answer

    def namespace(self, name: str) -> None:
        """Create a namespace with the ServiceAccount `web`."""
        self.make("/api/v1/namespaces", {"metadata": {"name": name}})
        self.make(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "web"}})

    def pod(self, namespace: str, name: str) -> str:
        """Create a pod, which no kubelet runs; return its uid."""
        spec = {"serviceAccountName": "web", "containers": [{"name": "web", "image": "web"}]}
        made = self.make(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": name}, "spec": spec})
        return str(made["metadata"]["uid"])

    def delete_pod(self, namespace: str, name: str) -> None:
        """Delete a pod without a grace period."""
        status, answer = self.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", {"gracePeriodSeconds": 0})
        assert status == 200, answer

    def token(self, namespace: str, pod: str = "", audiences: Sequence[str] = ("headgate",)) -> str:
        """Request a token, as a kubelet does for a projected volume; the token is bound to `pod` unless empty."""
        spec: dict[str, Any] = {"audiences": list(audiences), "expirationSeconds": 600}
        if pod:
            uid = self.call("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}")[1]["metadata"]["uid"]
            spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/web/token"
        made = self.make(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
        return str(made["status"]["token"])


@contextmanager
def controller(server: KubeApiServer, name: str, **options: str) -> Iterator[None]:
    """Run one of Kubernetes' own controllers with `options`; skip the test if there is no program for it."""
    program = Path(os.environ.get("KUBEBUILDER_ASSETS", ""), "kube-controller-manager")
    if not program.is_file():
        pytest.skip("KUBEBUILDER_ASSETS names no directory with kube-controller-manager")
    command = [
        str(program),
        *("--kubeconfig", str(server.kubeconfig())),
        *(f"--controllers={name}", "--leader-elect=false", "--port=0", "--secure-port=0"),
        *(f"--{option.replace('_', '-')}={value}" for option, value in options.items()),
    ]
    with _running(command, server.root / f"{name}.log"):
        yield


@contextmanager
def started(root: Path, *, accounts: bool = False) -> Iterator[KubeApiServer]:
    """Run an API server whose files are in `root`; skip the test if there is no program for it.

    With `accounts`, it gives pods the token of their ServiceAccount, which the controller `serviceaccount` has to create.
    """
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS", ""))
    missing = [name for name in ("etcd", "kube-apiserver") if not (assets / name).is_file()]
    if not os.environ.get("KUBEBUILDER_ASSETS") or missing:
        pytest.skip("KUBEBUILDER_ASSETS names no directory with etcd and kube-apiserver")
    with ExitStack() as stack:
        server = KubeApiServer(root, free_port())
        stack.callback(server.close)
        stack.callback(shutil.rmtree, root / "etcd", ignore_errors=True)  # 130 MB
        etcd, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        stack.enter_context(_running(_etcd(assets, root, etcd, peers), root / "etcd.log"))
        command = _api_server(assets, root, etcd, server.port, accounts=accounts)
        stack.enter_context(_running(command, root / "api.log"))
        _wait(server)
        yield server


def _etcd(assets: Path, root: Path, clients: str, peers: str) -> list[str]:
    return [
        str(assets / "etcd"),
        *("--data-dir", str(root / "etcd")),
        *("--listen-client-urls", clients, "--advertise-client-urls", clients),
        *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
        *("--initial-cluster", f"default={peers}"),
        "--unsafe-no-fsync",  # the data is deleted with the test; on a busy disk a write waited for milliseconds
    ]


def _api_server(assets: Path, root: Path, etcd: str, port: int, *, accounts: bool) -> list[str]:
    certificate, key = self_signed()
    signing = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = signing.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    private = signing.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    files = {"api.crt": certificate, "api.key": key, "sa.pub": public, "sa.key": private, "users.csv": USERS.encode()}
    for name, content in files.items():
        (root / name).write_bytes(content)
    front = FrontProxyAuthority()  # authority of the API server's client certificate for aggregated API servers
    (root / "front.crt").write_bytes(front.pem)
    proxy = front.write(root, "front-proxy")
    front.write(root, "other-client")
    users = FrontProxyAuthority()
    (root / "users.crt").write_bytes(users.pem)
    users.write(root, "certified")
    front.write(root, "metrics", "metrics.mesh.svc", "localhost")
    options = {
        "client-ca-file": root / "users.crt",
        "requestheader-client-ca-file": root / "front.crt",
        "requestheader-allowed-names": "front-proxy",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": proxy[0],
        "proxy-client-key-file": proxy[1],
        "etcd-servers": etcd,
        "bind-address": "127.0.0.1",
        "secure-port": port,
        "tls-cert-file": root / "api.crt",
        "tls-private-key-file": root / "api.key",
        "cert-dir": root,
        "service-account-issuer": ISSUER,
        "service-account-key-file": root / "sa.pub",
        "service-account-signing-key-file": root / "sa.key",
        "token-auth-file": root / "users.csv",
        "authorization-mode": "RBAC",
        "audit-policy-file": write_policy(root),
        "audit-log-path": AuditLog(root).path,
        "service-cluster-ip-range": "10.0.0.0/16",
        "disable-admission-plugins": ",".join((*_UNUSED_PLUGINS, *(() if accounts else ("ServiceAccount",)))),
        "feature-gates": f"BoundServiceAccountTokenVolume={str(accounts).lower()}",
        "enable-priority-and-fairness": "false",
        "endpoint-reconciler-type": "none",
        "runtime-config": ",".join(f"{version}=false" for version in _UNUSED_VERSIONS),
    }
    return [str(assets / "kube-apiserver"), *(f"--{name}={value}" for name, value in options.items())]


@contextmanager
def _running(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process; kill it if it has not ended after STOP_S seconds."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()


def _is_ready(server: KubeApiServer) -> bool:
    """Return whether an API server is ready, and has the namespace `default`, which it creates after that."""
    try:
        return [server.call("GET", path)[0] for path in ("/readyz", "/api/v1/namespaces/default")] == [200, 200]
    except (OSError, http.client.HTTPException):
        return False


def _wait(server: KubeApiServer) -> None:
    deadline = time.monotonic() + READY_S
    while not _is_ready(server):
        assert time.monotonic() < deadline, (server.root / "api.log").read_text()[-3000:]
        time.sleep(0.1)  # the API server has no event for readiness
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:auth-delegator"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "headgate"}
    server.make(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {"metadata": {"name": "token-reviews-of-headgate"}, "roleRef": role, "subjects": [subject]},
    )
