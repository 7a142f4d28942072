"""A mesh that is limited to namespaces, on a real cluster: what works in them, what stays outside, and changes of the list."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests import headgate_program
from tests.pods.conftest import (
    COMMAND_POLL_S,
    Cluster,
    app_deployment,
    graceful,
    http_service,
    mesh_namespace,
    split_in,
    until,
)
from tests.pods.kit import BIN, IMAGE
from tests.pods.load import CONNECTIONS, failures, load
from tests.pods.test_split import COUNT

SHOP, PAY, OTHER = "limited-shop", "limited-pay", "unlimited"
USER = "viewer"


class Mesh:
    """A cluster in which headgate is limited to namespaces."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def install(self, *names: str) -> None:
        """Install headgate for namespaces only."""
        self.cluster.headgate("install", "--image", IMAGE, "--replicas", 1, "--namespaces", ",".join(names))

    def send(self, place: str, host: str, count: int) -> dict[str, int]:
        """Send requests from the client of a namespace; return how many each Deployment answered."""
        found: dict[str, int] = self.cluster.python(place, "client", COUNT, host, count)
        return found

    def apply_pods(self, servers: Mapping[str, Sequence[str]]) -> None:
        """Create servers in namespaces, and a client in each."""
        for place, names in servers.items():
            made = [graceful(app_deployment(place, name, part="website")) for name in names]
            self.cluster.apply(*made, app_deployment(place, "client", command=["sleep", "infinity"]))
        for place, names in servers.items():
            self.cluster.wait_rolled_out(place, *names, "client")

    def restart(self, place: str, *names: str) -> None:
        """Replace the pods of Deployments, and wait until the old ones have ended."""
        self.cluster.kubectl("-n", place, "rollout", "restart", *(f"deployment/{name}" for name in names))
        self.cluster.wait_rolled_out(place, *names)
        self.cluster.wait_ended(place)

    def sidecars(self, place: str) -> Sequence[bool]:
        """Return for each pod of a namespace whether it has a sidecar."""
        return [
            any(container["name"] == "headgate-sidecar" for container in pod["spec"]["containers"])
            for pod in self.pods(place)
        ]

    def pods(self, place: str, *apps: str) -> Sequence[dict[str, Any]]:
        """Return the pods of a namespace that are not being deleted, of these applications if any are given."""
        found = self.cluster.get("pods", place)["items"]
        left = (pod for pod in found if not pod["metadata"].get("deletionTimestamp"))
        return [pod for pod in left if not apps or pod["metadata"]["labels"]["app"] in apps]

    def counted(self, place: str, deployment: str) -> int:
        """Return how many requests a Deployment answered in the last 15 minutes, by the metrics API."""
        path = f"/apis/traffic.metrics.k8s.io/v1beta1/namespaces/{place}/deployments/{deployment}?t=15m"
        metrics = self.cluster.api.call("GET", path)["metrics"]
        return sum(int(metric["value"]) for metric in metrics if metric["name"] == "success_count")


@pytest.fixture(scope="module")
def mesh(cluster: Cluster) -> Mesh:
    """A split in `shop`, a server with strict mutual TLS in `pay`, and the same outside of the mesh in `other`."""
    found = Mesh(cluster)
    cluster.apply(*(_namespace(place) for place in (SHOP, PAY, OTHER)))
    found.install(SHOP, PAY)
    for place in (SHOP, OTHER):
        roots = [
            http_service(place, "website", part="website"),
            *(http_service(place, f"website-{v}", app=v) for v in ("v1", "v2")),
        ]
        cluster.apply(*roots, split_in(place, "canary", "website", website_v1=90, website_v2=10))
    cluster.apply(http_service(PAY, "accounts", app="accounts"), _strict(PAY))
    found.apply_pods({SHOP: ("v1", "v2"), PAY: ("accounts",), OTHER: ("v1", "v2")})
    cluster.wait_programmed("trafficsplit/canary", SHOP)
    cluster.wait_programmed("tlsconfig/strict", PAY)
    for place in (SHOP, PAY):
        cluster.wait_in_sync(place)
    return found


def _namespace(place: str) -> dict[str, Any]:
    labeled = mesh_namespace(place)
    labeled["metadata"]["labels"]["kubernetes.io/metadata.name"] = place  # newer versions of Kubernetes write it
    return labeled


def _strict(place: str) -> dict[str, Any]:
    strict = {"metadata": {"name": "strict", "namespace": place}, "spec": {"selector": {"matchLabels": {}}}}
    return {"apiVersion": "headgate.dev/v1beta1", "kind": "TLSConfig", **strict}


def test_injection_shares_mutual_tls_and_metrics_work_in_the_namespaces_and_nowhere_else(mesh: Mesh) -> None:
    """A pod elsewhere gets no sidecar, although its namespace has the label."""
    assert all(mesh.sidecars(SHOP))
    assert all(mesh.sidecars(PAY))
    assert not any(mesh.sidecars(OTHER))
    before = mesh.counted(PAY, "accounts")
    assert mesh.send(SHOP, "website", 200) == {"v1": 180, "v2": 20}
    assert mesh.send(SHOP, f"accounts.{PAY}", 20) == {"accounts": 20}
    assert "accounts" not in mesh.send(OTHER, f"accounts.{PAY}", 20)
    until(lambda: mesh.counted(PAY, "accounts") == before + 20)
    edges = mesh.cluster.run(BIN / "kubectl-traffic", "edges", "deployment/accounts", "-n", PAY, "--window", "15m")
    (edge,) = (line.split() for line in edges.splitlines() if f"{SHOP}/client" in line)
    assert (edge[2], edge[-1]) == ("100.00%", "yes")
    until(
        lambda: "permission missing" not in mesh.cluster.headgate("status"), poll=COMMAND_POLL_S
    )  # which may fail while a proxy lags


def test_a_user_with_roles_in_one_namespace_reads_metrics_and_routes_of_this_namespace_only(
    mesh: Mesh, tmp_path: Path
) -> None:
    """The ServiceAccount's token is sent to the API server, and RBAC decides."""
    config = as_viewer(mesh.cluster, tmp_path)
    traffic, explain = (
        (BIN / "kubectl-traffic", "--kubeconfig", config),
        (*headgate_program.command(), "explain", "--kubeconfig", config),
    )
    request = ("http://website:8080/", "--from", "deployment/client", "-n")
    until(lambda: "v1" in mesh.cluster.run(*traffic, "top", "deployments", "-n", SHOP), "the API server knows the Role")
    assert f"TrafficSplit {SHOP}/canary" in mesh.cluster.run(*explain, *request, SHOP)
    for refused in (
        (*traffic, "top", "deployments", "-n", PAY),
        (*traffic, "top", "deployments", "-A"),
        (*traffic, "top", "pods", "-n", SHOP),
        (*traffic, "edges", "deployment/v1", "-n", SHOP),
        (*explain, *request, PAY),
        (*headgate_program.command(), "status", "--kubeconfig", config),
    ):
        with pytest.raises(
            AssertionError, match=rf"User .*system:serviceaccount:{SHOP}:{USER}.* cannot (get|list|create)"
        ):
            mesh.cluster.run(*refused)


def as_viewer(cluster: Cluster, directory: Path) -> Path:
    """Return a kubeconfig for a ServiceAccount that may read Deployments' numbers and explanations in one namespace."""
    rules = [
        {"apiGroups": ["traffic.metrics.k8s.io"], "resources": ["deployments"], "verbs": ["get", "list"]},
        {"apiGroups": ["inspect.headgate.dev"], "resources": ["explanations"], "verbs": ["create"]},
    ]
    subject = {"kind": "ServiceAccount", "name": USER, "namespace": SHOP}
    metadata, rbac = {"name": USER, "namespace": SHOP}, "rbac.authorization.k8s.io"
    role = {"apiGroup": rbac, "kind": "Role", "name": USER}
    cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": role,
            "subjects": [subject],
        },
    )
    config = json.loads(cluster.kubectl("config", "view", "--minify", "--raw", "--flatten", "-o", "json"))
    config["users"][0]["user"] = {"token": cluster.kubectl("-n", SHOP, "create", "token", USER).strip()}
    path = directory / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


def test_a_namespace_is_added_and_removed_without_a_lost_request_in_another_one(mesh: Mesh) -> None:
    """As docs/tasks/kubernetes.md says: pods are restarted after the addition, and before the removal.

    The removal of a route may answer one request on each open connection of a client with 404.
    """
    before = mesh.counted(PAY, "accounts")
    with load(mesh.cluster, PAY, f"website.{SHOP}") as kept:
        mesh.install(SHOP, PAY, OTHER)
        mesh.restart(OTHER, "v1", "v2", "client")
        mesh.cluster.wait_programmed("trafficsplit/canary", OTHER)
        for place in (SHOP, PAY, OTHER):
            mesh.cluster.wait_in_sync(place)
        assert all(mesh.sidecars(OTHER))
        assert mesh.send(OTHER, "website", 200) == {"v1": 180, "v2": 20}
        assert mesh.send(OTHER, f"accounts.{PAY}", 20) == {"accounts": 20}
        until(lambda: mesh.counted(PAY, "accounts") == before + 20)

        with load(mesh.cluster, SHOP, f"website.{OTHER}") as removed:
            mesh.cluster.kubectl("label", "namespace", OTHER, "headgate.dev/inject-")
            mesh.restart(OTHER, "v1", "v2", "client")
            assert not any(mesh.sidecars(OTHER))
            mesh.install(SHOP, PAY)
            (caller,) = (pod["metadata"]["name"] for pod in mesh.pods(SHOP, "client"))
            until(lambda: f".{OTHER}" not in mesh.cluster.headgate("config", f"{SHOP}/{caller}"), poll=COMMAND_POLL_S)
            mesh.cluster.wait_in_sync(SHOP)
            mesh.cluster.wait_for_nodes(PAY, app="accounts")
            assert mesh.send(SHOP, f"website.{OTHER}", 20).keys() <= {"v1", "v2"}
        assert "headgate-namespace" not in mesh.cluster.kubectl("-n", OTHER, "get", "roles,rolebindings", "-o", "name")
    assert not failures(kept, "v1", "v2")
    lost = failures(removed, "v1", "v2")
    assert lost.keys() <= {"404 "}
    assert sum(lost.values()) <= CONNECTIONS
    until(lambda: "in sync" in mesh.cluster.headgate("status"), poll=COMMAND_POLL_S)
    mesh.cluster.apply(_namespace(OTHER))
