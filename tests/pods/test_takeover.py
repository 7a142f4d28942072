"""Requests, counts and changes on a real cluster while the control plane and the API server fail or are replaced."""

import concurrent.futures
import contextlib
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from tests.api_client import Api
from tests.pods.api_faults import STATUSES, ApiFaults
from tests.pods.conftest import (
    COMMAND_POLL_S,
    SYSTEM,
    Cluster,
    active_pod,
    app_deployment,
    graceful,
    held,
    holding,
    http_service,
    is_deleted,
    kill_program,
    lease_holder,
    mesh_namespace,
    program,
    split_in,
    until,
    wait_replicas,
)
from tests.pods.disturbed_website import assert_client_can_leave, counted, restarts, run_website, running, shift
from tests.pods.endpoints import endpoints_of_proxy
from tests.pods.load import failures, load
from tests.pods.test_split import COUNT

SHOP, ROLLOUT, UNLABELED = "taken-over", "replacement", "unlabeled"
OLD, NEW = "foobar-v1", "foobar-v2"
CREATION_PAUSE_S = 0.05


@pytest.fixture(scope="module")
def shop(installed: Cluster) -> Cluster:
    """A client, and two versions of a server. The Service `counted`, which is split too, is called by the tests of counts only."""
    versions = (
        graceful(app_deployment(SHOP, "v1", part=SHOP, version="v1")),
        held(app_deployment(SHOP, "v2", part=SHOP, version="v2")),
    )
    run_website(installed, SHOP, *versions)
    installed.apply(
        http_service(SHOP, "counted", part=SHOP), split_in(SHOP, "counted", "counted", website_v1=9, website_v2=1)
    )
    installed.wait_programmed("trafficsplit/counted", SHOP)
    return installed


def kill_active(cluster: Cluster, _place: str = "") -> None:
    """Kill the active replica, once another one is ready."""
    wait_replicas(cluster)
    kill_program(cluster, active_pod(cluster))


def test_a_client_that_is_asked_to_end_while_the_active_replica_is_killed_can_still_send_requests_and_they_are_counted(
    shop: Cluster,
) -> None:
    assert_client_can_leave(shop, SHOP, lambda: kill_active(shop))


class CountedClient:
    """A client of the Service `counted`, which has no other one."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._sent = 0

    def send(self) -> None:
        """Send 200 requests, which must have the shares of the split."""
        self._sent += 200
        assert self._cluster.python(SHOP, "client", COUNT, "counted", 200) == {"v1": 180, "v2": 20}

    def wait_counted(self) -> None:
        """Wait until the metrics API has all requests that were sent, each once."""
        path = f"/apis/traffic.metrics.k8s.io/v1beta1/namespaces/{SHOP}/services/counted/edges?t=15m"

        def is_complete() -> bool:
            metrics = [metric for edge in self._cluster.api.call("GET", path)["items"] for metric in edge["metrics"]]
            counts = [int(metric["value"]) for metric in metrics if metric["name"] == "called_count"]
            assert sum(counts) == self._sent, counts
            return True

        until(is_complete, f"{self._sent} requests")


@pytest.fixture(scope="module")
def client(shop: Cluster) -> CountedClient:
    return CountedClient(shop)


def test_a_new_active_replica_continues_the_counts_and_changes_nothing_at_the_proxies(
    shop: Cluster, client: CountedClient
) -> None:
    """D28. Each request counts once: those that the old replica counted, and those that no replica was there to count."""
    wait_replicas(shop)
    client.send()
    client.wait_counted()
    old = active_pod(shop)
    shop.kubectl("-n", SYSTEM, "delete", "pod", old, "--wait=false")
    client.send()
    wait_replicas(shop)
    shop.wait_programmed("trafficsplit/counted", SHOP)
    assert active_pod(shop) != old
    shop.wait_in_sync(SHOP)
    client.wait_counted()


def test_a_killed_active_replica_loses_no_count(shop: Cluster, client: CountedClient) -> None:
    """D28. The new replica continues from the last checkpoint, which is older than the last requests."""
    wait_replicas(shop)
    client.send()
    kill_active(shop)
    client.send()
    client.wait_counted()
    shop.wait_programmed("trafficsplit/counted", SHOP)


def test_commands_use_the_aggregated_api(shop: Cluster) -> None:
    """D29: one kubeconfig, no port-forward."""
    status = until(lambda: shop.headgate("status"), poll=COMMAND_POLL_S)  # it fails while a proxy lags
    assert "in sync" in status
    until(
        lambda: f"pods          {meshed_pods(shop)} of {meshed_pods(shop)} ready" in shop.headgate("status"),
        poll=COMMAND_POLL_S,
    )
    assert f"Route      TrafficSplit {SHOP}/counted" in shop.headgate("explain", f"http://counted.{SHOP}:8080/")
    until(lambda: shows_all_in_sync(shop), poll=COMMAND_POLL_S)
    assert "kube-system/kube-dns" not in shop.headgate("check")  # its UDP port does not concern the mesh
    assert "no rotation is in progress" in shop.headgate("ca", "status")


def meshed_pods(shop: Cluster) -> int:
    """Return the number of pods with sidecars in the whole cluster, without those that are being deleted or have ended."""
    pods = (pod for pod in shop.get("pods")["items"] if not is_deleted(pod))
    return sum("headgate.dev/sidecar-mode" in pod["metadata"].get("annotations", {}) for pod in pods)


def shows_all_in_sync(shop: Cluster) -> bool:
    """Return whether `headgate proxies` shows each pod's proxy in sync. Proxies of deleted pods may still be connected."""
    lines = shop.headgate("proxies", "-n", SHOP).splitlines()
    in_sync = [line for line in lines if "InSync" in line]
    pods = running(shop, SHOP)
    return bool(pods) and all(any(pod in line for line in in_sync) for pod in pods)


def test_a_frozen_active_replica_is_replaced_and_ends_when_it_continues(shop: Cluster) -> None:
    """D28. The other replica waits until the Lease has expired; meanwhile the proxies keep their configuration."""
    shift(shop, SHOP, website_v1=1, website_v2=0)
    frozen = active_pod(shop)
    process, restarts_before = program(frozen), restarts(shop, SYSTEM, frozen)
    with load(shop, SHOP, "website") as counts:
        os.kill(process, signal.SIGSTOP)
        try:
            until(lambda: lease_holder(shop) != frozen)
            until(lambda: shop.apply(split_in(SHOP, "canary", "website", website_v1=0, website_v2=1)) is None)
            shop.wait_programmed("trafficsplit/canary", SHOP)
        finally:
            with contextlib.suppress(ProcessLookupError):  # the kubelet may have killed it, for its liveness probe
                os.kill(process, signal.SIGCONT)
        until(lambda: restarts(shop, SYSTEM, frozen) == restarts_before + 1)
        wait_replicas(shop)
        assert active_pod(shop) != frozen
    assert not failures(counts, "v1", "v2")
    assert counts["v2"] > 0


def test_a_restarted_api_server_loses_no_request_and_the_next_change_takes_effect(shop: Cluster) -> None:
    shift(shop, SHOP, website_v1=1, website_v2=0)
    with load(shop, SHOP, "website") as counts:
        os.kill(int((shop.work / "run/kube-apiserver.pid").read_text()), signal.SIGKILL)
        until(lambda: "ok" in shop.kubectl("get", "--raw", "/readyz"))
        shop.wait_in_sync(SHOP)
        shift(shop, SHOP, website_v1=0, website_v2=1)
    assert not failures(counts, "v1", "v2")
    assert counts["v2"] > 0


class Rollout:
    """The client of a rollout in a namespace. `received` counts its requests by the Deployment that answered, or by the failure."""

    def __init__(self, cluster: Cluster, place: str) -> None:
        self.cluster = cluster
        self.received: Counter[str] = Counter()
        self._place = place

    def send(self, host: str, count: int) -> dict[str, int]:
        """Send requests one after the other."""
        answers: dict[str, int] = self.cluster.python(self._place, "client", COUNT, host, count)
        self.received.update(answers)
        return answers

    @contextlib.contextmanager
    def load(self, *allowed: str) -> Iterator[None]:
        """Send requests to the root during the block; assert that only the allowed Deployments answer."""
        with load(self.cluster, self._place, f"foobar.{self._place}.svc.cluster.local") as counts:
            yield
        self.received.update(counts)
        assert not failures(counts, *allowed)

    def shift(self, **weights: int) -> None:
        """Change the weights. After a kill, the API server may send a webhook request to the killed replica first."""
        changed = split_in(self._place, "foobar-rollout", "foobar", **weights)
        until(lambda: self.cluster.apply(changed) is None)

    def wait_programmed(self) -> None:
        """Wait until all proxies have the split."""
        self.cluster.wait_programmed("trafficsplit/foobar-rollout", self._place)


def replace_new_pods(cluster: Cluster, place: str) -> None:
    """Begin to replace the pods of the new version."""
    cluster.kubectl("-n", place, "rollout", "restart", f"deployment/{NEW}")


@pytest.mark.parametrize(
    "disturb",
    [
        kill_active,
        pytest.param(
            replace_new_pods,
            marks=pytest.mark.nightly(
                reason="it has the cluster alone for a minute; pods are also replaced in the other tests of this module"
            ),
        ),
    ],
)
def test_a_rollout_of_a_new_version_loses_no_request_has_exact_shares_and_counts_each_request(
    installed: Cluster, disturb: Callable[[Cluster, str], None]
) -> None:
    """001, Workflow. R4, R85. The disturbance comes before a change, after one, and before the deletion of the old version.

    The Deployments count until the old one is deleted; the namespace counts the requests to its deleted pods too.
    """
    place = f"{ROLLOUT}-{disturb.__name__.split('_')[0]}"
    rollout = Rollout(installed, place)
    installed.apply(
        mesh_namespace(place),
        http_service(place, "foobar", part="foobar"),
        http_service(place, OLD, version="v1"),
        graceful(app_deployment(place, OLD, part="foobar", version="v1")),
        app_deployment(place, "client", command=["sleep", "infinity"]),
    )
    installed.wait_rolled_out(place, OLD, "client")
    installed.wait_in_sync(place)
    rollout.shift(foobar_v1=100, foobar_v2=0)
    rollout.wait_programmed()
    with rollout.load(OLD):
        installed.apply(graceful(app_deployment(place, NEW, replicas=2, part="foobar", version="v2")))
        installed.apply(http_service(place, NEW, version="v2"))
        installed.wait_rolled_out(place, NEW)
    rollout.wait_programmed()
    installed.wait_in_sync(place)
    assert rollout.send(NEW, 10) == {NEW: 10}
    with rollout.load(OLD, NEW):  # before a change
        disturb(installed, place)
        rollout.shift(foobar_v1=1000, foobar_v2=500)
        rollout.wait_programmed()
        installed.wait_rolled_out(place, NEW)
    installed.wait_in_sync(place)
    shares = rollout.send("foobar", 300)
    assert abs(shares[NEW] - 100) <= 1, shares
    with rollout.load(OLD, NEW):  # after a change
        rollout.shift(foobar_v2=1)
        disturb(installed, place)
        rollout.wait_programmed()
        installed.wait_rolled_out(place, NEW)
    installed.wait_in_sync(place)
    assert rollout.send("foobar", 50) == {NEW: 50}
    until(lambda: counted(installed, place, "deployments") == rollout.received)
    with rollout.load(
        OLD, NEW
    ):  # before the deletion of the old version, whose last pods the root selects without a split
        disturb(installed, place)
        for what in (f"deployment/{OLD}", f"service/{OLD}", "trafficsplit/foobar-rollout"):
            installed.kubectl("-n", place, "delete", what)
        installed.wait_ended(place)
    assert rollout.received[OLD] > 0
    until(lambda: counted(installed, place)[place] == rollout.received.total())


@contextlib.contextmanager
def creating_pods(cluster: Cluster, place: str, **annotations: str) -> Iterator[list[str]]:
    """Create pods one after the other, without running them; add the names of the containers of each to the yielded list."""
    template = app_deployment(place, "many")["spec"]["template"]
    metadata = {"generateName": "many-", "namespace": place, "annotations": annotations}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    containers: list[str] = []
    ended = threading.Event()

    def create() -> None:
        with contextlib.closing(Api(cluster.kubeconfig)) as api:
            while not ended.wait(CREATION_PAUSE_S):
                made = api.call("POST", f"/api/v1/namespaces/{place}/pods?dryRun=All", pod)
                containers.append(" ".join(container["name"] for container in made["spec"]["containers"]))

    with concurrent.futures.ThreadPoolExecutor() as threads:
        creating = threads.submit(create)
        try:
            until(lambda: containers)
            yield containers
        finally:
            ended.set()
            creating.result()


def test_all_pods_that_are_created_while_replicas_end_get_a_sidecar(shop: Cluster) -> None:
    """D28. The active replica and the other one. The webhook for the namespace fails closed, and that for the annotation fails open."""
    shop.apply(mesh_namespace(UNLABELED, injected=False))
    wait_replicas(shop)
    wait_for_webhooks(shop)
    old = running(shop, SYSTEM)
    old.sort(key=active_pod(shop).__ne__)
    with (
        creating_pods(shop, SHOP) as labeled,
        creating_pods(shop, UNLABELED, **{"headgate.dev/inject": "enabled"}) as annotated,
    ):
        for pod in old:
            until(lambda: webhook_replicas(shop) == len(old), "all replicas as endpoints of the webhooks")
            shop.kubectl("-n", SYSTEM, "delete", "pod", pod, "--wait=false")
            shop.wait_ended(SYSTEM)
    assert set(labeled) == set(annotated) == {"headgate-sidecar app"}
    wait_replicas(shop)


def wait_for_webhooks(cluster: Cluster) -> None:
    """Let the API server wait for each answer of a webhook, and not only for 2 s: a busy machine may take longer."""
    configuration = cluster.get("mutatingwebhookconfigurations.v1.admissionregistration.k8s.io/headgate")
    for hook in configuration["webhooks"]:
        hook["timeoutSeconds"] = 30
    cluster.kubectl("replace", "-f", "-", stdin=json.dumps(configuration))


def webhook_replicas(cluster: Cluster) -> int:
    """Return to how many replicas the API server may send webhook requests."""
    subsets = cluster.get("endpoints.v1./headgate-webhooks", SYSTEM).get("subsets", ())
    return sum(len(subset.get("addresses", ())) for subset in subsets)


@pytest.fixture(scope="module")
def faults(shop: Cluster) -> Iterator[ApiFaults]:
    """A proxy through which the control plane reaches the API server."""
    proxy = ApiFaults(shop.api_server, shop.host_address)
    with proxy.running(shop.work / "pki"):
        variables = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
        values = (proxy.address, str(proxy.port))
        pairs = [f"{name}={value}" for name, value in zip(variables, values, strict=True)]
        shop.kubectl("-n", SYSTEM, "set", "env", "deployment/headgate", *pairs)
        wait_replicas(shop)
        yield proxy
        shop.kubectl("-n", SYSTEM, "set", "env", "deployment/headgate", *(f"{name}-" for name in variables))
        wait_replicas(shop)


def test_changes_take_effect_while_the_api_server_rejects_half_of_the_requests(
    shop: Cluster, faults: ApiFaults
) -> None:
    """The replaced pod serves until the client's proxy knows the new one, which may take a second for each rejected watch."""
    active = active_pod(shop)
    restarts_before = restarts(shop, SYSTEM, active)
    shift(shop, SHOP, website_v1=1, website_v2=0)
    (replaced,) = running(shop, SHOP, "app=v2")
    address = shop.get(f"pod/{replaced}", SHOP)["status"]["podIP"]
    with load(shop, SHOP, "website") as counts:
        with holding(shop, SHOP, replaced), faults.rejecting():
            faults.cut_watches()
            shop.kubectl("-n", SHOP, "rollout", "restart", "deployment/v2")
            shop.wait_rolled_out(SHOP, "v2")
            shift(shop, SHOP, website_v1=0, website_v2=1)
            until(lambda: not has_endpoint(shop, address), "another endpoint", poll=COMMAND_POLL_S)
        shop.wait_ended(SHOP, app="v2")
    assert all(faults.seen[str(status)] > 0 for status in STATUSES)
    assert not failures(counts, "v1", "v2")
    assert counts["v2"] > 0
    assert restarts(shop, SYSTEM, active) == restarts_before


def has_endpoint(cluster: Cluster, address: str) -> bool:
    """Return whether the client's proxy may send requests to an address."""
    return any(endpoint == address for endpoint, _ in endpoints_of_proxy(cluster, SHOP, "client"))


def test_changes_take_effect_after_watches_were_cut_and_have_expired(shop: Cluster, faults: ApiFaults) -> None:
    shift(shop, SHOP, website_v1=1, website_v2=0)
    faults.seen.clear()
    with load(shop, SHOP, "website") as counts:
        faults.expires = True
        try:
            faults.cut_watches()
            until(lambda: faults.seen["expired"] > 0)
            shift(shop, SHOP, website_v1=0, website_v2=1)
        finally:
            faults.expires = False
    assert faults.seen["cut"] > 0
    assert not failures(counts, "v1", "v2")
    assert counts["v2"] > 0
