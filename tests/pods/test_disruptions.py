"""Requests on a real cluster while pods, sidecars, the control plane and the API server fail or are replaced."""

import concurrent.futures
import contextlib
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.api_client import Api
from tests.pods.api_faults import STATUSES, ApiFaults
from tests.pods.conftest import (
    COMMAND_POLL_S,
    PATIENCE_S,
    SERVER,
    SYSTEM,
    Cluster,
    active_pod,
    app_deployment,
    graceful,
    held,
    holding,
    http_service,
    is_deleted,
    is_ready,
    kill_program,
    lease_holder,
    mesh_namespace,
    program,
    split_in,
    until,
    wait_replicas,
)
from tests.pods.endpoints import endpoints_of_proxy
from tests.pods.kit import BIN
from tests.pods.load import CONNECTIONS, failures, load
from tests.pods.test_split import COUNT

from headgate.resources.metrics import FAILURE, SUCCESS

SHOP, ROLLOUT, UNLABELED = "disrupted", "replacement", "unlabeled"
OLD, NEW = "foobar-v1", "foobar-v2"
CREATION_PAUSE_S = 0.05
SKIP_ENDING = "--skip-wait-for-delete-timeout=1"
"""`kubectl drain` does not wait for a pod for longer than its grace period: the kubelet may need a minute more to remove it."""
LEAVE = """
import http.client, json, signal, sys, threading
stopped = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopped.set())
print("ready", flush=True)
stopped.wait()
statuses = []
for _ in range(100):
    connection = http.client.HTTPConnection(sys.argv[1], 8080, timeout=50)
    try:
        connection.request("GET", "/")
        statuses.append(connection.getresponse().status)
    except OSError as error:
        statuses.append(repr(error))
    connection.close()
print(json.dumps(statuses), flush=True)
"""
"""Sends requests once it is asked to end, and prints their statuses."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the log of each server's requests, also of deleted pods."""
    return tmp_path_factory.mktemp("log")


def logging(workload: dict[str, Any], log: Path) -> dict[str, Any]:
    """Let the server write its log into a directory of the node."""
    pod = workload["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "log", "hostPath": {"path": str(log), "type": "Directory"}}]
    pod["containers"][0] |= {
        "command": ["sh", "-c", 'exec "$0" "$@" 2>> /log/$HOSTNAME', *SERVER],
        "volumeMounts": [{"name": "log", "mountPath": "/log"}],
    }
    return workload


def logged(log: Path) -> Counter[str]:
    """Return how many requests the servers of each Deployment have logged, without those of probes."""
    found: Counter[str] = Counter()
    for file in log.iterdir():
        found[file.name.rsplit("-", 2)[0]] += file.read_text().count('"GET / ')
    return found


@pytest.fixture(scope="module")
def shop(installed: Cluster, log: Path) -> Cluster:
    """A client, and two versions of a server: the Deployments `v1` and `v1-more`, and `v2`."""
    installed.apply(
        mesh_namespace(SHOP),
        http_service(SHOP, "website", part="website"),
        http_service(SHOP, "website-v1", version="v1"),
        http_service(SHOP, "website-v2", version="v2"),
        logging(graceful(app_deployment(SHOP, "v1", replicas=2, part="website", version="v1")), log),
        logging(graceful(app_deployment(SHOP, "v1-more", part="website", version="v1")), log),
        held(app_deployment(SHOP, "v2", part="website", version="v2")),
        app_deployment(SHOP, "client", command=["sleep", "infinity"]),
    )
    installed.wait_rolled_out(SHOP, "v1", "v1-more", "v2", "client")
    installed.wait_in_sync(SHOP)
    return installed


def shift(cluster: Cluster, **weights: int) -> None:
    """Change the weights of the split, and wait until all proxies have them."""
    until(
        lambda: cluster.apply(split_in(SHOP, "canary", "website", **weights)) is None
    )  # the API server may have restarted
    cluster.wait_programmed("trafficsplit/canary", SHOP)


def pods(cluster: Cluster, app: str) -> list[str]:
    """Return the names of the pods of a Deployment, without those that are being deleted."""
    return running(cluster, SHOP, f"app={app}")


def running(cluster: Cluster, place: str, selector: str = "") -> list[str]:
    """Return the names of the pods that a selector selects, without those that are being deleted."""
    found = cluster.get("pods", place, selector)["items"]
    return [pod["metadata"]["name"] for pod in found if not is_deleted(pod)]


def wait_ready(cluster: Cluster, app: str, count: int) -> None:
    """Wait until a Deployment has `count` ready pods that are not being deleted."""

    def ready() -> bool:
        found = cluster.get("pods", SHOP, f"app={app}")["items"]
        return [is_ready(pod) for pod in found if not is_deleted(pod)] == [True] * count

    until(ready, f"{count} ready pods of {app}")


def counted(cluster: Cluster, place: str, path: str = "", caller: str = "") -> Counter[str]:
    """Return how many requests resources received in the last 15 minutes, by the metrics API.

    `path` is the rest of the API's path; without one, return the requests of the whole namespace. Of edges, return those
    from the pod `caller`.
    """
    url = f"/apis/traffic.metrics.k8s.io/v1beta1/namespaces/{place}{path and f'/{path}'}?t=15m"
    answer = cluster.api.call("GET", url)
    found: Counter[str] = Counter()
    for item in answer.get("items", [answer]):
        if caller and item["edge"]["resource"].get("name") != caller:
            continue
        values = [int(metric["value"]) for metric in item["metrics"] if metric["name"] in (SUCCESS, FAILURE)]
        found[item["resource"]["name"]] += sum(values)
    return +found


def results(cluster: Cluster, client: str) -> Counter[str]:
    """Return the results that the proxies of a client Deployment have counted, by the metrics API.

    The keys are those of `load`: the Deployment that answered, or a failure.
    """
    url = f"/apis/traffic.metrics.k8s.io/v1beta1/namespaces/{SHOP}/deployments/{client}/edges?t=15m"
    found: Counter[str] = Counter()
    for item in cluster.api.call("GET", url)["items"]:
        server = item["edge"]["resource"]["name"]
        for metric in item["metrics"]:
            name, value = metric["name"], metric["value"]
            if name.endswith("_count"):
                found[server if name == "success_count" else f"{server}: {name}"] += int(value)
    return +found


def kill_active(cluster: Cluster, _place: str = "") -> None:
    """Kill the active replica, once another one is ready."""
    wait_replicas(cluster)
    kill_program(cluster, active_pod(cluster))


def restarts(cluster: Cluster, place: str, pod: str) -> int:
    """Return how often the containers of a pod were restarted."""
    statuses = cluster.get(f"pod/{pod}", place)["status"]["containerStatuses"]
    return sum(status["restartCount"] for status in statuses)


def test_no_request_is_lost_when_pods_are_replaced_removed_or_evicted(shop: Cluster, log: Path) -> None:
    """A rolling update, a scale-down, a deleted pod, and a drained node.

    The client, its proxy and the servers count the same requests for each Deployment. The client is one of this test only, because
    the proxy of another one may still report earlier requests.
    """
    (node,) = (item["metadata"]["name"] for item in shop.get("nodes")["items"])
    shop.apply(app_deployment(SHOP, "customer", command=["sleep", "infinity"]))
    shop.wait_rolled_out(SHOP, "customer")
    shop.wait_in_sync(SHOP)
    shift(shop, website_v1=1, website_v2=0)
    logged_before, counted_before = logged(log), results(shop, "customer")
    with load(shop, SHOP, "website", client="customer") as counts:
        shop.kubectl("-n", SHOP, "rollout", "restart", "deployment/v1")
        shop.wait_rolled_out(SHOP, "v1")
        shop.kubectl("-n", SHOP, "scale", "deployment/v1", "--replicas=1")
        until(lambda: len(pods(shop, "v1")) == 1)
        shop.kubectl("-n", SHOP, "delete", "pod", pods(shop, "v1-more")[0], "--wait=false")
        wait_ready(shop, "v1-more", 1)
        try:
            shop.kubectl("drain", node, "--pod-selector=app=v1,part=website", "--delete-emptydir-data", SKIP_ENDING)
        finally:
            shop.kubectl("uncordon", node)
        shop.wait_rolled_out(SHOP, "v1")
    assert set(counts) == {"v1", "v1-more"}
    assert logged(log) - logged_before == counts
    until(lambda: results(shop, "customer") - counted_before == counts)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_client_that_is_asked_to_end_can_still_send_requests_and_they_are_counted(
    shop: Cluster, *, is_killed: bool
) -> None:
    """The proxy ends after the application and after its last report, for which it waits for the next active replica."""
    leaver = app_deployment(SHOP, "leaver", command=["python3", "-c", LEAVE, "website"])
    leaver["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 2 * PATIENCE_S
    shop.apply(leaver)
    shop.wait_rolled_out(SHOP, "leaver")
    (pod,) = pods(shop, "leaver")
    with shop.lines(BIN / "kubectl", "-n", SHOP, "logs", "-f", pod, "-c", "app") as output:
        assert output.readline() == "ready\n"
        if is_killed:
            kill_active(shop)
        shop.kubectl("-n", SHOP, "delete", "deployment/leaver")
        printed = output.readline()
    assert json.loads(printed) == [200] * 100
    until(lambda: counted(shop, SHOP, "services/website/edges", pod)["website"] == 100)


def test_a_killed_sidecar_misroutes_no_request(shop: Cluster) -> None:
    """R4. Only requests in flight at the killed proxy may fail: one for each connection of the client."""
    shift(shop, website_v1=1, website_v2=0)
    pod = pods(shop, "v1-more")[0]
    restarts_before = restarts(shop, SHOP, pod)
    with load(shop, SHOP, "website") as counts:
        kill_program(shop, pod, SHOP)
        until(lambda: restarts(shop, SHOP, pod) == restarts_before + 1)
        shop.kubectl("-n", SHOP, "wait", f"pod/{pod}", "--for=condition=Ready", "--timeout=240s")
    assert counts["v1"] > 0
    assert "v2" not in counts
    assert sum(failures(counts, "v1", "v1-more").values()) <= CONNECTIONS


def test_a_frozen_active_replica_is_replaced_and_ends_when_it_continues(shop: Cluster) -> None:
    """D28. The other replica waits until the Lease has expired; meanwhile the proxies keep their configuration."""
    shift(shop, website_v1=1, website_v2=0)
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
    assert not failures(counts, "v1", "v1-more", "v2")
    assert counts["v2"] > 0


def test_a_restarted_api_server_loses_no_request_and_the_next_change_takes_effect(shop: Cluster) -> None:
    shift(shop, website_v1=1, website_v2=0)
    with load(shop, SHOP, "website") as counts:
        os.kill(int((shop.work / "run/kube-apiserver.pid").read_text()), signal.SIGKILL)
        until(lambda: "ok" in shop.kubectl("get", "--raw", "/readyz"))
        shop.wait_in_sync(SHOP)
        shift(shop, website_v1=0, website_v2=1)
    assert not failures(counts, "v1", "v1-more", "v2")
    assert counts["v2"] > 0


class Rollout:
    """The client of a rollout in a namespace. `received` counts its requests by the Deployment that answered, or by the failure."""

    def __init__(self, cluster: Cluster, place: str) -> None:
        self.cluster = cluster
        self.received: Counter[str] = Counter()
        self._place = place

    def send(self, host: str, count: int) -> dict[str, int]:
        """Send requests one after the other."""
        found: dict[str, int] = self.cluster.python(self._place, "client", COUNT, host, count)
        self.received.update(found)
        return found

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
    found = cluster.get("mutatingwebhookconfigurations.v1.admissionregistration.k8s.io/headgate")
    for hook in found["webhooks"]:
        hook["timeoutSeconds"] = 30
    cluster.kubectl("replace", "-f", "-", stdin=json.dumps(found))


def webhook_replicas(cluster: Cluster) -> int:
    """Return to how many replicas the API server may send webhook requests."""
    subsets = cluster.get("endpoints.v1./headgate-webhooks", SYSTEM).get("subsets", ())
    return sum(len(one.get("addresses", ())) for one in subsets)


@pytest.fixture(scope="module")
def faults(shop: Cluster) -> Iterator[ApiFaults]:
    """A proxy through which the control plane reaches the API server."""
    found = ApiFaults(shop.api_server, shop.host_address)
    with found.running(shop.work / "pki"):
        variables = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
        values = (found.address, str(found.port))
        pairs = [f"{name}={value}" for name, value in zip(variables, values, strict=True)]
        shop.kubectl("-n", SYSTEM, "set", "env", "deployment/headgate", *pairs)
        wait_replicas(shop)
        yield found
        shop.kubectl("-n", SYSTEM, "set", "env", "deployment/headgate", *(f"{name}-" for name in variables))
        wait_replicas(shop)


def test_changes_take_effect_while_the_api_server_rejects_half_of_the_requests(
    shop: Cluster, faults: ApiFaults
) -> None:
    """The replaced pod serves until the client's proxy knows the new one, which may take a second for each rejected watch."""
    active = active_pod(shop)
    restarts_before = restarts(shop, SYSTEM, active)
    shift(shop, website_v1=1, website_v2=0)
    (replaced,) = pods(shop, "v2")
    address = shop.get(f"pod/{replaced}", SHOP)["status"]["podIP"]
    with load(shop, SHOP, "website") as counts:
        with holding(shop, SHOP, replaced), faults.rejecting():
            faults.cut_watches()
            shop.kubectl("-n", SHOP, "rollout", "restart", "deployment/v2")
            shop.wait_rolled_out(SHOP, "v2")
            shift(shop, website_v1=0, website_v2=1)
            until(lambda: not has_endpoint(shop, address), "another endpoint", poll=COMMAND_POLL_S)
        shop.wait_ended(SHOP, app="v2")
    assert all(faults.seen[str(status)] > 0 for status in STATUSES)
    assert not failures(counts, "v1", "v1-more", "v2")
    assert counts["v2"] > 0
    assert restarts(shop, SYSTEM, active) == restarts_before


def has_endpoint(cluster: Cluster, address: str) -> bool:
    """Return whether the client's proxy may send requests to an address."""
    return any(endpoint == address for endpoint, _ in endpoints_of_proxy(cluster, SHOP, "client"))


def test_changes_take_effect_after_watches_were_cut_and_have_expired(shop: Cluster, faults: ApiFaults) -> None:
    shift(shop, website_v1=1, website_v2=0)
    faults.seen.clear()
    with load(shop, SHOP, "website") as counts:
        faults.expires = True
        try:
            faults.cut_watches()
            until(lambda: faults.seen["expired"] > 0)
            shift(shop, website_v1=0, website_v2=1)
        finally:
            faults.expires = False
    assert faults.seen["cut"] > 0
    assert not failures(counts, "v1", "v1-more", "v2")
    assert counts["v2"] > 0
