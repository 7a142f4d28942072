"""cert-manager's issuer signs all certificates of a cluster: the webhooks' and the workloads', also after a new root."""

import base64
import datetime as dt
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from tests.cluster.api_server import MERGE, KubeApiServer
from tests.cluster.installation import CONFIGURATION, SYSTEM
from tests.cluster.replica import POLL_S, serving, wait_for
from tests.delivery import ArgoSplit
from tests.make.objects import container, headgate_keys, pod

REQUESTS = "/apis/cert-manager.io/v1/namespaces/headgate-system/certificaterequests"
PODS = "/api/v1/namespaces/shop/pods"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/certificaterequests.cert-manager.io"
LIFE = dt.timedelta(seconds=20)  # headgate renews the certificate of its servers after a quarter of its life


class AnsweringCertManager:
    """A stand-in for cert-manager, with a CA issuer: it answers each CertificateRequest as cert-manager does."""

    def __init__(self, cluster: KubeApiServer) -> None:
        self.cluster = cluster
        self.names: set[str] = set()
        self.asked: list[Mapping[str, Any]] = []
        self._stopping = threading.Event()
        self.replace_root()
        names = {"kind": "CertificateRequest", "plural": "certificaterequests"}
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
        spec = {"group": "cert-manager.io", "names": names, "scope": "Namespaced", "versions": [version]}
        path, _, name = DEFINITION.rpartition("/")
        cluster.make(path, {"metadata": {"name": name}, "spec": spec})

    def replace_root(self) -> None:
        """Sign by a new root from now on."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "mesh")])
        builder = self._builder(name, key.public_key(), dt.timedelta(days=1))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._authority = builder.subject_name(name).sign(key, hashes.SHA256()), key  # at once: another thread signs

    @property
    def root(self) -> str:
        """The root certificate."""
        return self._authority[0].public_bytes(Encoding.PEM).decode()

    @staticmethod
    def _builder(issuer: x509.Name, key: Any, life: dt.timedelta) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        builder = x509.CertificateBuilder().issuer_name(issuer).public_key(key)
        builder = builder.serial_number(x509.random_serial_number())
        return builder.not_valid_before(now - LIFE).not_valid_after(now + life)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Answer requests until the `with` block ends."""
        thread = threading.Thread(target=self._answer)
        thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            thread.join()

    def _answer(self) -> None:
        while not self._stopping.wait(POLL_S):
            _, found = self.cluster.call("GET", REQUESTS)
            for item in found["items"] if isinstance(found, dict) else ():
                if "status" not in item:
                    path = f"{REQUESTS}/{item['metadata']['name']}/status"
                    self.cluster.call("PATCH", path, {"status": self._signed(item["spec"])}, content_type=MERGE)

    def _signed(self, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append(spec)
        request = x509.load_pem_x509_csr(base64.b64decode(spec["request"]))
        root, key = self._authority
        builder = self._builder(root.subject, request.public_key(), LIFE).subject_name(request.subject)
        for extension in request.extensions:
            builder = builder.add_extension(extension.value, extension.critical)
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        self.names.update(str(name.value) for name in names)
        leaf = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
        ready = {"type": "Ready", "status": "True", "reason": "Issued"}
        ca = base64.b64encode(root.public_bytes(Encoding.PEM)).decode()
        encoded = {"certificate": base64.b64encode(leaf).decode(), "ca": ca}
        return {"conditions": [ready], **encoded}


@pytest.fixture
def manager(cluster: KubeApiServer) -> Iterator[AnsweringCertManager]:
    yield AnsweringCertManager(cluster)
    assert cluster.call("DELETE", DEFINITION)[0] == 200
    while cluster.call("GET", DEFINITION)[0] != 404:
        time.sleep(POLL_S)


def bundles(cluster: KubeApiServer) -> set[str]:
    """Return the CA bundles of the validating webhooks."""
    _, found = cluster.call("GET", CONFIGURATION)
    encoded = [hook["clientConfig"].get("caBundle", "") for hook in found["webhooks"]]
    return {base64.b64decode(text).decode() for text in encoded}


def rejects(cluster: KubeApiServer) -> bool:
    """Return whether the API server trusts the webhook: else it ignores the webhook and accepts the split."""

    def call(method: str, path: str, body: Any, content: str = "application/json") -> None:
        status, answer = cluster.call(method, f"{path}?dryRun=All", body, content_type=content)
        assert status < 300, f"{answer}"

    try:
        ArgoSplit(call, "shop", "v1alpha3").create()
    except AssertionError as error:
        return "both the root and a backend" in str(error)
    return False


def test_all_certificates_come_from_the_issuer_and_a_new_root_is_distributed(manager: AnsweringCertManager) -> None:
    cluster = manager.cluster
    cluster.namespace("shop")
    containers = [container(image="web")]
    annotations = headgate_keys(sidecar_mode="transparent")
    cluster.make(PODS, pod("web", namespace="shop", account="web", annotations=annotations, containers=containers))
    assert cluster.call("DELETE", f"{SYSTEM}/secrets/headgate-ca")[0] in {200, 404}  # of other modules
    address = {"status": {"phase": "Running", "podIP": "10.1.1.1", "podIPs": [{"ip": "10.1.1.1"}]}}
    cluster.call("PATCH", f"{PODS}/web/status", address, content_type=MERGE)
    with manager.answering(), serving(cluster, "ClusterIssuer/mesh") as log:
        wait_for(lambda: bundles(cluster) == {manager.root}, log)
        wait_for(lambda: rejects(cluster), log)
        wait_for(lambda: "spiffe://cluster.local/ns/shop/sa/web" in manager.names, log)
        assert "headgate-webhooks.headgate-system.svc" in manager.names
        assert manager.asked[0]["issuerRef"] == {"name": "mesh", "kind": "ClusterIssuer", "group": "cert-manager.io"}
        assert cluster.call("GET", f"{SYSTEM}/secrets/headgate-ca")[0] == 404  # no own root

        manager.replace_root()
        wait_for(lambda: all(manager.root in bundle for bundle in bundles(cluster)), log)
        wait_for(lambda: rejects(cluster), log)
        wait_for(lambda: manager.root in roots_of_sidecars(cluster), log)


def roots_of_sidecars(cluster: KubeApiServer) -> str:
    """Return the root certificates by which sidecars of the namespace trust the control plane."""
    status, found = cluster.call("GET", "/api/v1/namespaces/shop/configmaps/headgate-roots")
    return str(found["data"]["roots.pem"]) if status == 200 else ""
