"""A real Kubernetes cluster with real pods, in which headgate is installed (`kit.py` starts it)."""

import concurrent.futures
import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

import pytest
from tests import headgate_program, waiting
from tests.api_client import MERGE, Api
from tests.delivery import is_programmed
from tests.make import objects
from tests.make.objects import Object
from tests.pods import kit
from tests.pods.kit import BIN, IMAGE, SECOND_IMAGE, CannotStart, Sharing
from tests.ports import free_port

NAMESPACES_OF_KUBERNETES = ("default", "kube-node-lease", "kube-public", "kube-system")
APPLICATION = "localhost/base:dev"
SERVE = """
import runpy, socketserver
socketserver.StreamRequestHandler.disable_nagle_algorithm = True
runpy.run_path("/app/server.py", run_name="__main__")
"""
"""Runs the HTTP server of APPLICATION. It writes headers and body apart: with Nagle's algorithm, each response to a proxy takes 40 ms."""
SERVER = ("python3", "-c", SERVE)
COMMAND_S = 300
TEST_S = 900
"""The limit of a test with its fixtures, of which the start of a cluster takes START_S at most."""
PATIENCE_S = 120
"""The limit of waits. The next active replica waits until the Lease of a killed one has expired, and all proxies connect again."""
POLL_S, COMMAND_POLL_S, LONGEST_POLL_S = 0.1, 0.5, 1.0
T = TypeVar("T")
SYSTEM = "headgate-system"
INSPECT = "/apis/inspect.headgate.dev/v1beta1"
INSTALLED = "installed"
ACTIVE = {"headgate.dev/active": "true"}
SIDECAR = "headgate-sidecar"
HELD = "/tmp/held"


_newest_ports = itertools.count(20001)


def until(condition: Callable[[], T], what: str = "", seconds: float = PATIENCE_S, *, poll: float = POLL_S) -> T:
    """Do what `until` does on one machine, with a longer limit, and fewer calls of the API server.

    Conditions that run a program have longer pauses, such as COMMAND_POLL_S.
    """
    return waiting.until(condition, what, seconds, poll=poll, longest=LONGEST_POLL_S)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if is_in_pods(item):
            item.add_marker(pytest.mark.timeout(TEST_S))


RUN_ONCE = 'output=$1; shift; python3 -c "$0" "$@" > "$output" && cat "$output"'
"""Runs the Python program `$0`, and keeps its output in the file `$1`."""


class Cluster:
    """Runs commands against the cluster, and calls its API. Every command and call fails the test when it fails.

    Waits call the API: kubectl takes 0.1 s of processor time, and a call of `api` 3 ms. The CLI of headgate takes 0.5 s, but
    0.1 s when it is forked from a process that has imported it (`headgate_program`). A pod with a
    sidecar takes 2 s to start, and its Envoy then 0.35 % of a processor while there are no requests.
    `work` is the directory of the cluster's files, `host_address` the address of this machine for pods. `created` has the
    names of the namespaces that `apply` has created.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self.work = Path(environment.get("HEADGATE_CLUSTER_WORK", ""))
        self.host_address = environment.get("HEADGATE_CLUSTER_HOST_IP", "")
        self.kubeconfig = Path(environment["KUBECONFIG"])
        self.api = Api(self.kubeconfig)
        self._environment = os.environ | environment
        self.created: set[str] = set()
        self._applied: dict[str, Object] = {}  # by path, what `apply` has written last

    def run(self, *command: object, stdin: str = "") -> str:
        """Run a program with the cluster's kubeconfig; return its output."""
        done = subprocess.run(
            [str(word) for word in command],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            env=self._environment,
            check=False,
        )
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextlib.contextmanager
    def lines(self, *command: object) -> Iterator[IO[str]]:
        """Run a program with the cluster's kubeconfig during the `with` block; yield its output, to be read line by line."""
        words = [str(word) for word in command]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=self._environment) as process:
            assert process.stdout
            try:
                yield process.stdout
            finally:
                process.terminate()

    def kubectl(self, *arguments: object, stdin: str = "") -> str:
        """Run kubectl."""
        return self.run(BIN / "kubectl", *arguments, stdin=stdin)

    def headgate(self, *arguments: object) -> str:
        """Run headgate."""
        return self.run(*headgate_program.command(), *arguments)

    def apply(self, *objects: Object) -> None:
        """Create objects, or change them as `kubectl apply` does: fields that were applied before and are missing now are removed."""
        for obj in objects:
            collection = self.api.collection(obj)
            path = f"{collection}/{obj['metadata']['name']}"
            try:
                self.api.call("POST", collection, obj)
                if obj["kind"] == "Namespace":
                    self.created.add(obj["metadata"]["name"])
            except AssertionError as error:
                if "AlreadyExists" not in str(error):
                    raise
                self.api.call("PATCH", path, _merge_patch(self._applied.get(path, {}), obj), MERGE)
            self._applied[path] = obj

    def get(self, what: str, namespace: str = "", selector: str = "") -> Any:
        """Return an object or a list, as `Api.get` does."""
        return self.api.get(what, namespace, selector)

    def namespaces(self) -> set[str]:
        """Return the names of all namespaces."""
        return {item["metadata"]["name"] for item in self.get("namespaces")["items"]}

    def delete_namespaces(self, *names: str) -> None:
        """Delete namespaces with their pods, without waiting.

        A namespace whose pods end gracefully stays for up to a minute, and Kubernetes deletes and lists the objects of all kinds in
        it repeatedly: 40,000 of 70,000 requests to the API server in 9 minutes.
        """
        for name in names:
            path = f"/api/v1/namespaces/{name}"
            try:
                self.api.call("DELETE", path)  # no controller creates further pods
                self.api.call("DELETE", f"{path}/pods?gracePeriodSeconds=0")
            except AssertionError as error:
                if ": 404 " not in str(error):  # a test has deleted it
                    raise
        self.created.difference_update(names)

    @property
    def api_server(self) -> str:
        """Return the URL of the API server."""
        return self.kubectl("config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")

    def wait_rolled_out(self, namespace: str, *deployments: str) -> None:
        """Wait until Deployments have only ready pods of their newest template, as `kubectl rollout status` does.

        Fail at once if one does not exist, or has made no progress for its `progressDeadlineSeconds`.
        """

        def rolled_out() -> bool:
            current = {item["metadata"]["name"]: item for item in self.get("deployments", namespace)["items"]}
            if missing := [name for name in deployments if name not in current]:
                pytest.fail(f"Deployments not found in {namespace}: {', '.join(missing)}")
            waiting = {name: current[name].get("status") for name in deployments if not _is_rolled_out(current[name])}
            if stuck := [name for name in waiting if _is_stuck(current[name])]:
                pytest.fail(f"Deployments without progress in {namespace}: {', '.join(stuck)}: {waiting}")
            assert not waiting, waiting
            return True

        until(rolled_out, f"the rollout of {', '.join(deployments)} in {namespace}", 2 * PATIENCE_S)

    def wait_ended(self, namespace: str, **labels: str) -> None:
        """Wait until no container of a deleted pod runs.

        The kubelet of Kubernetes 1.20 often needs a minute more before it removes such a pod.
        """
        selector = ",".join(f"{name}={value}" for name, value in labels.items())

        def ended() -> bool:
            return not any(map(_is_ending, self.get("pods", namespace, selector)["items"]))

        until(ended, f"the end of deleted pods in {namespace}")

    def wait_programmed(self, what: str, namespace: str) -> None:
        """Wait until all proxies have acknowledged the current generation of an object, `KIND/NAME`, as `headgate wait` does."""

        def programmed() -> bool:
            obj = self.get(what, namespace)
            assert is_programmed(obj, obj["metadata"]["generation"]), obj.get("status")
            return True

        until(programmed, f"{what} programmed", 2 * PATIENCE_S)

    def wait_in_sync(self, namespace: str) -> None:
        """Wait until the sidecars of a namespace have acknowledged their whole configuration, also that of other Services.

        It has the ready pods of the namespace, and none that is being deleted, as endpoints: a Deployment is rolled out before
        Kubernetes writes them. Sidecars of pods that are being deleted don't matter.
        """

        compiled: list[str] = []

        def states() -> dict[str, str]:
            proxies = self.api.call("GET", f"{INSPECT}/proxies")["items"]
            return {item["node"]: item["status"]["state"] for item in proxies}

        def in_sync() -> bool:
            pods, services, slices = (
                self.get(kind, namespace)["items"] for kind in ("pods", "services", "endpointslices")
            )
            for service in services:
                assert _endpoints(service, slices) == _ready_addresses(service, pods), service["metadata"]["name"]
            nodes = {f"sidecar/{namespace}/{pod['metadata']['name']}" for pod in pods if _has_sidecar(pod)}
            stored = [item["metadata"]["resourceVersion"] for item in (*pods, *services, *slices)]
            if stored != compiled:
                assert nodes <= states().keys()  # before the call that lists objects of all kinds
                wait_compiled(self.api)
                compiled[:] = stored
            current = states()
            return all(current.get(node) == "InSync" for node in nodes)

        until(in_sync, f"sidecars of {namespace} in sync")

    def wait_for_nodes(self, namespace: str, **selector: str) -> None:
        """Wait until nodes know all Services and endpoints that the API server has.

        They get changes in order, so they know earlier ones when they know the newest port of a Service. `selector` selects
        pods with an HTTP server at the port 8080.
        """
        marker = http_service(namespace, "newest", **selector)
        marker["spec"]["ports"] = [{"name": "main", "port": next(_newest_ports), "targetPort": 8080}]
        self.apply(marker)
        found = self.get("service/newest", namespace)["spec"]
        wait_for_port(found["clusterIP"], found["ports"][0]["port"])

    def python(self, namespace: str, deployment: str, program: str, *arguments: object) -> Any:
        """Run a Python program in the container `app` of a Deployment; return its JSON output.

        `kubectl exec` now and then loses all output, and still succeeds (kubernetes/kubernetes#34256). A file keeps it.
        """
        target = ("-n", namespace, "exec", f"deployment/{deployment}", "-c", "app", "--")
        kept = f"/tmp/{uuid.uuid4()}"
        output = self.kubectl(*target, "sh", "-c", RUN_ONCE, program, kept, *arguments)
        return json.loads(output or until(lambda: self.kubectl(*target, "cat", kept), "the output of a program"))


def wait_compiled(api: Api) -> bool:
    """Wait until all stored objects are compiled, and return True. headgate lists the objects of all kinds for this call.

    Raises AssertionError while no replica answers.
    """
    api.call("GET", f"{INSPECT}/findings")
    return True


def _is_rolled_out(deployment: Object) -> bool:
    """Return whether all pods of a Deployment have its newest template and are ready, and no older one is left."""
    replicas, status = deployment["spec"]["replicas"], deployment.get("status", {})
    return bool(
        status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
        and status.get("updatedReplicas", 0) >= replicas
        and status.get("updatedReplicas", 0) == status.get("replicas", 0)
        and status.get("availableReplicas", 0) == status.get("updatedReplicas", 0)
    )


def _is_stuck(deployment: Object) -> bool:
    """Return whether the newest generation of a Deployment has made no progress within its deadline."""
    status = deployment.get("status", {})
    is_observed = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
    reasons = {item.get("reason") for item in status.get("conditions", ())}
    return is_observed and "ProgressDeadlineExceeded" in reasons


def _merge_patch(before: Object, after: Object) -> Object:
    """Return the JSON merge patch that writes an object, and removes the fields that only `before` has."""
    removed = dict.fromkeys(before.keys() - after.keys())
    return removed | {
        name: _merge_patch(before.get(name) or {}, value) if isinstance(value, dict) else value
        for name, value in after.items()
    }


def is_deleted(pod: dict[str, Any]) -> bool:
    """Return whether a pod is being deleted."""
    return "deletionTimestamp" in pod["metadata"]


def is_ready(pod: dict[str, Any]) -> bool:
    """Return whether a pod is ready."""
    conditions = pod["status"].get("conditions", ())
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def _has_sidecar(pod: dict[str, Any]) -> bool:
    """Return whether a pod that neither has ended nor is being deleted has a sidecar, an init container since Kubernetes 1.29."""
    containers = (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ()))
    has_ended = pod["status"].get("phase") in {"Succeeded", "Failed"}  # as the pods of Jobs
    return not has_ended and not is_deleted(pod) and any(item["name"] == SIDECAR for item in containers)


def _endpoints(service: dict[str, Any], slices: Sequence[dict[str, Any]]) -> set[str]:
    """Return the addresses of the ready endpoints of a Service that selects pods; an empty set for another one."""
    name = service["metadata"]["name"] if service["spec"].get("selector") else None
    return {
        address
        for one in slices
        if one["metadata"]["labels"].get("kubernetes.io/service-name") == name
        for endpoint in one["endpoints"] or ()
        if endpoint["conditions"].get("ready")
        for address in endpoint["addresses"]
    }


def _ready_addresses(service: dict[str, Any], pods: Sequence[dict[str, Any]]) -> set[str]:
    """Return the addresses of the ready pods that a Service selects."""
    selector = service["spec"].get("selector", {}).items()
    return {
        pod["status"]["podIP"]
        for pod in pods
        if selector and selector <= pod["metadata"].get("labels", {}).items() and is_ready(pod) and not is_deleted(pod)
    }


def is_left(pod: dict[str, Any]) -> bool:
    """Return whether a pod is not being deleted, or one of its containers runs.

    The kubelet of Kubernetes 1.20 removes a deleted pod up to 77 s after its containers have ended.
    """
    return not is_deleted(pod) or _is_ending(pod)


def _is_ending(pod: dict[str, Any]) -> bool:
    """Return whether a pod is being deleted, and one of its containers runs."""
    states = (item["state"] for item in pod["status"].get("containerStatuses", ()))
    return is_deleted(pod) and any("running" in state for state in states)


@contextlib.contextmanager
def removing_ended_pods(cluster: Cluster, namespace: str) -> Iterator[None]:
    """Remove deleted pods of a namespace during the block once their containers have ended, as newer kubelets do."""
    ended = threading.Event()

    def remove() -> None:
        with contextlib.closing(Api(cluster.kubeconfig)) as api:
            while not ended.wait(COMMAND_POLL_S):
                for pod in api.get("pods", namespace)["items"]:
                    if not is_left(pod):
                        path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}?gracePeriodSeconds=0"
                        with contextlib.suppress(AssertionError):  # the kubelet has removed it
                            api.call("DELETE", path)

    with concurrent.futures.ThreadPoolExecutor() as threads:
        removal = threads.submit(remove)
        try:
            yield
        finally:
            ended.set()
            removal.result()


def wait_for_port(host: str, port: int) -> None:
    """Wait until an address of the cluster accepts connections from this machine. Nodes learn of new Services with a delay.

    A node tracks a connection to a Service that it does not know yet for 2 minutes. Until then it leads no connection from the
    same port to the Service, and the client gets EHOSTUNREACH. So the ports of these connections are not ephemeral ones.
    """

    def connects() -> bool:
        own = ("", free_port("0.0.0.0"))
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1, source_address=own):
            return True
        return False

    until(connects, f"a connection to {host}:{port}")


def shared_installation() -> Sequence[str]:
    """Return the command that installs headgate with the options of the installation that modules share."""
    nginx = ("--nginx-image", SECOND_IMAGE) if shutil.which("nginx") else ()
    return ("install", "--image", IMAGE, "--custom-metrics", *nginx)


class SharedInstallation:
    """The cluster of all modules, and its installation of headgate."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._cluster: Cluster | None = None

    def cluster(self, *, alone: bool) -> Cluster:
        """Return the cluster, which starts if it does not run, to be used alone or beside another module. Raises CannotStart."""
        self._sharing.use(alone=alone)
        if self._cluster is None:
            self._cluster = Cluster(kit.environment())
        return self._cluster

    def installed(self, *, alone: bool) -> Cluster:
        """Return the cluster with headgate. Raises CannotStart."""
        cluster = self.cluster(alone=alone)
        self._sharing.once(INSTALLED, lambda: cluster.headgate(*shared_installation()))
        if alone:
            replace_restarted(cluster)
        return cluster

    def changed(self) -> None:
        """Note that a module has changed the installation: the next module that needs it installs it again."""
        self._sharing.forget(INSTALLED)

    def leave(self) -> None:
        """Leave the cluster. It ends when no process uses it any more."""
        if self._cluster:
            self._cluster.api.close()
            self._cluster = None
        self._sharing.leave()


SHARED = pytest.StashKey[SharedInstallation]()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory, worker_id: str, pytestconfig: pytest.Config) -> SharedInstallation:
    """The cluster that modules share. It ends with the last module in tests/pods, whichever process runs it."""
    run = tmp_path_factory.getbasetemp()
    shared = SharedInstallation(Sharing(run if worker_id == "master" else run.parent))
    pytestconfig.stash[SHARED] = shared
    return shared


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Leave the cluster after the last test in tests/pods that this process runs before further tests: a module may wait for that."""
    try:
        return (yield)
    finally:
        if (nextitem is None or not is_in_pods(nextitem)) and SHARED in item.config.stash:
            item.config.stash[SHARED].leave()


def is_in_pods(item: pytest.Item) -> bool:
    """Return whether a test may use the cluster."""
    return item.nodeid.startswith("tests/pods/")


@pytest.fixture(scope="module")
def shared_cluster(shared: SharedInstallation) -> Iterator[Cluster]:
    """A cluster with headgate for modules that leave it as it is, except for their namespaces. Another module may run beside them."""
    with _namespaces_of_module(lambda: shared.installed(alone=False)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def disturbed(shared: SharedInstallation) -> Iterator[Cluster]:
    """The cluster with headgate for modules that end replicas or rotate roots, and leave the installation as it is."""
    with _namespaces_of_module(lambda: shared.installed(alone=True)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def installed(shared: SharedInstallation) -> Iterator[Cluster]:
    """The cluster with headgate for modules that change its installation."""
    with _namespaces_of_module(lambda: shared.installed(alone=True)) as cluster:
        shared.changed()
        yield cluster


@pytest.fixture(scope="module")
def cluster(shared: SharedInstallation) -> Iterator[Cluster]:
    """The cluster for modules that install headgate with their own options over an installation."""
    with _namespaces_of_module(lambda: shared.cluster(alone=True)) as cluster:
        shared.changed()
        yield cluster


@pytest.fixture(scope="module")
def empty_cluster(shared: SharedInstallation) -> Iterator[Cluster]:
    """The cluster without headgate and without namespaces of other modules, which runs last."""
    with _namespaces_of_module(lambda: shared.cluster(alone=True)) as cluster:
        shared.changed()
        _delete_namespaces(cluster)
        if SYSTEM in cluster.namespaces():
            with removing_ended_pods(cluster, SYSTEM):
                until(lambda: cluster.headgate("uninstall"))
                until(lambda: SYSTEM not in cluster.namespaces(), "the end of the installation")
        yield cluster


def _delete_namespaces(cluster: Cluster) -> None:
    """Delete the namespaces of other modules; wait until they are gone."""
    left = cluster.namespaces() - {SYSTEM, *NAMESPACES_OF_KUBERNETES}
    cluster.delete_namespaces(*left)
    until(lambda: not left & cluster.namespaces(), "the end of the namespaces of other modules")


@contextlib.contextmanager
def _namespaces_of_module(start: Callable[[], Cluster]) -> Iterator[Cluster]:
    """Delete the namespaces that the `with` block creates, without waiting; each module has names of its own."""
    try:
        cluster = start()
    except CannotStart as error:
        pytest.skip(str(error))
    earlier = set(cluster.created)
    yield cluster
    cluster.delete_namespaces(*cluster.created - earlier)


@contextlib.contextmanager
def started() -> Iterator[Cluster]:
    """Start a cluster, and load headgate's image into it, for the `with` block. Raises CannotStart."""
    with kit.started() as environment:
        cluster = Cluster(environment)
        with contextlib.closing(cluster.api):
            yield cluster


def lease_holder(cluster: Cluster) -> str:
    """Return the name of the replica that holds the Lease of the control plane."""
    lease = cluster.get("leases.v1.coordination.k8s.io/headgate-control-plane", SYSTEM)
    return str(lease["spec"].get("holderIdentity"))


def active_pod(cluster: Cluster) -> str:
    """Return the name of the pod of the active replica, once it is ready and holds the Lease.

    The label of a killed replica stays until the next one is active.
    """

    def active() -> list[str]:
        listed, holder = cluster.get("pods", SYSTEM)["items"], lease_holder(cluster)
        labeled = (item for item in listed if ACTIVE.items() <= item["metadata"].get("labels", {}).items())
        pods = [pod for pod in labeled if not is_deleted(pod)]
        return [pod["metadata"]["name"] for pod in pods if is_ready(pod) and pod["metadata"]["name"] == holder]

    (found,) = until(active, "the active replica")
    return found


def program(pod: str) -> int:
    """Return the pid, on this machine, of the program of headgate in a pod: Envoy, or the control plane."""
    variable = f"POD_NAME={pod}".encode()

    def found() -> list[int]:
        pids = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if variable in (process / "environ").read_bytes().split(b"\0"):
                    pids.append(int(process.name))
        return pids if len(pids) == 1 else []  # a hook of the container runs beside it for a while

    (pid,) = until(found, f"the program in {pod}")
    return pid


def kill_program(cluster: Cluster, pod: str, place: str = SYSTEM) -> None:
    """Kill the program of headgate in a pod; wait until the pod's status shows it. The kubelet starts the program again."""

    def containers() -> list[tuple[str, bool]]:
        statuses = cluster.get(f"pod/{pod}", place)["status"]["containerStatuses"]
        return [(item.get("containerID", ""), "running" in item["state"]) for item in statuses]

    before = containers()
    os.kill(program(pod), signal.SIGKILL)
    until(lambda: containers() != before, f"the end of the program in {pod}")


def wait_replicas(cluster: Cluster) -> None:
    """Wait until all replicas of the control plane are ready, also after `kill_program`.

    The status of their Deployment does not show at once that a container has ended.
    """
    cluster.wait_rolled_out(SYSTEM, "headgate")
    wanted = cluster.get("deployment/headgate", SYSTEM)["spec"]["replicas"]

    def ready() -> bool:
        pods = cluster.get("pods", SYSTEM, "app.kubernetes.io/name=headgate")["items"]
        return [is_ready(pod) for pod in pods if not is_deleted(pod)] == [True] * wanted

    until(ready, "all replicas ready")


def replace_restarted(cluster: Cluster) -> None:
    """Replace the replicas of the control plane whose programs modules have killed repeatedly.

    The kubelet starts a program again after 10 s, and after twice as long each time, up to 5 minutes, until 10 minutes have
    passed without an end. After nine kills within 5 minutes both replicas waited at once. From the sixth end of a program on,
    the wait is longer than PATIENCE_S.
    """
    replicas = cluster.get("pods", SYSTEM, "app.kubernetes.io/name=headgate")["items"]
    statuses = {pod["metadata"]["name"]: pod["status"].get("containerStatuses", ()) for pod in replicas}
    restarted = [name for name, containers in statuses.items() if any(item["restartCount"] > 1 for item in containers)]
    if restarted:
        cluster.kubectl("-n", SYSTEM, "delete", "pods", "--wait=false", *restarted)
        wait_replicas(cluster)


def counted(cluster: Cluster, place: str, name: str) -> int:
    """Return how many requests a Deployment received in the last 15 minutes, by the metrics API."""
    path = f"/apis/traffic.metrics.k8s.io/v1beta1/namespaces/{place}/deployments?t=15m"
    items = cluster.api.call("GET", path)["items"]
    metrics = [metric for item in items if item["resource"]["name"] == name for metric in item["metrics"]]
    return sum(int(metric["value"]) for metric in metrics if metric["name"].endswith("_count"))


def token(cluster: Cluster, place: str, account: str) -> str:
    """Return a token of a ServiceAccount."""
    requested = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{place}/serviceaccounts/{account}/token"
    return str(cluster.api.call("POST", path, requested)["status"]["token"])


# --- objects


def mesh_namespace(name: str, *, injected: bool = True) -> Object:
    """Return a Namespace, whose pods get sidecars if it is `injected`."""
    return objects.namespace(name, labels=objects.headgate_keys(inject="true") if injected else {})


def http_service(place: str, name: str, **selector: str) -> Object:
    """Return a Service with the HTTP port 8080."""
    return objects.service(name, objects.port(8080, "http"), selector=selector, namespace=place)


def app_deployment(place: str, name: str, *, replicas: int = 1, command: Sequence[str] = (), **labels: str) -> Object:
    """Return a Deployment of the HTTP server that says which pod answers; with `command`, of another program."""
    app = objects.container("app", command=list(command or SERVER), image=APPLICATION, imagePullPolicy="Never")
    if not command:
        probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1}
        app |= {"ports": [{"containerPort": 8080}], "readinessProbe": probe}
    template = {"terminationGracePeriodSeconds": 3}
    chosen = {"app": name, **labels}
    return objects.deployment(name, app, labels=chosen, replicas=replicas, template=template, namespace=place)


def graceful(workload: dict[str, Any], *, seconds: int = 2) -> dict[str, Any]:
    """Let the application serve for `seconds` after its deletion. At SIGTERM it ends at once."""
    pod = workload["spec"]["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = seconds + 8
    pod["containers"][0]["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", str(seconds)]}}}
    return workload


def held(workload: dict[str, Any]) -> dict[str, Any]:
    """Let the application serve after its deletion as `graceful` does, and then for as long as it has the file HELD."""
    pod = graceful(workload)["spec"]["template"]["spec"]
    pod["terminationGracePeriodSeconds"] = 2 * PATIENCE_S
    hook = f"sleep 2; while [ -e {HELD} ]; do sleep 0.1; done"
    pod["containers"][0]["lifecycle"] = {"preStop": {"exec": {"command": ["sh", "-c", hook]}}}
    return workload


@contextlib.contextmanager
def holding(cluster: Cluster, place: str, pod: str) -> Iterator[None]:
    """Let a pod of a `held` workload serve until the end of the block, also while it is being deleted."""
    in_pod = ("-n", place, "exec", pod, "-c", "app", "--")
    cluster.kubectl(*in_pod, "touch", HELD)
    try:
        yield
    finally:
        cluster.kubectl(*in_pod, "rm", HELD)


def split_in(place: str, name: str, root: str, **weights: int) -> Object:
    """Return a TrafficSplit. Backends are written with `_` for `-`."""
    backends = {word.replace("_", "-"): weight for word, weight in weights.items()}
    return objects.split(root, backends, name=name, namespace=place)
