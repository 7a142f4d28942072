"""A real API server and a replica of the control plane accept all objects of the documentation, without a finding."""

import asyncio
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from ipaddress import ip_network
from itertools import count
from typing import Any

import pytest
from tests.cluster.api_server import MERGE, READY_S, KubeApiServer, controller, started
from tests.cluster.documentation.readers_manifests import (
    EXAMPLES,
    Manifest,
    assumed,
    example,
    manifests,
    namespace_of,
    without_beginnings,
)
from tests.cluster.installation import SIDECAR, SYSTEM, WITHOUT_APIS, install
from tests.cluster.replica import serving
from tests.docs.console import ROOT
from tests.e2e.running_mesh import KUBECTL
from tests.make.objects import split
from tests.waiting import until

from headgate.compiler.reasons import Reason
from headgate.kinds import names_of
from headgate.kubernetes.names import NAMESPACE
from headgate.plane.status.writer import ONLY_WITH_FINDINGS, STATUSES
from headgate.resources.gateway_api.proxies import proxy_name
from headgate.resources.meta import Object

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
CHANGES = "changes"  # a directory with changes to the objects of another example
RENDERED = {
    file.relative_to(EXAMPLES).parts[0]
    for name in ("Chart.yaml", "kustomization.yaml")
    for file in EXAMPLES.rglob(name)
}
"""The examples whose manifests a program makes."""
DIRECTORIES = sorted(
    {
        path.relative_to(EXAMPLES).parts[0].removesuffix("-steps")
        for path in EXAMPLES.rglob("*.yaml")
        if path.parent.name != CHANGES
    }
    - RENDERED
)
MESHES = without_beginnings(
    {
        **{f"{page.stem}-{number}": mesh for page in PAGES for number, mesh in enumerate(manifests(page), 1)},
        **{f"examples/{directory}": example(EXAMPLES / directory) for directory in DIRECTORIES},
    }
)
REASONS = {reason.value for reason in Reason}
HARMLESS = {"NoConflicts", "NoProxies", "Pending"}
"""Reasons of conditions that are False: of `Conflicted`, and of `Programmed` while no proxy runs, as here."""
NODE = "node"
ADDRESSES = ip_network("10.1.0.0/16")
SPLITS = "/apis/split.smi-spec.io/v1alpha4/namespaces/default/trafficsplits"
BUILD = f"{SPLITS}/build"
"""A split whose status shows that the control plane has compiled what was written before. To create and delete one each time
would make the control plane review and compile twice."""
POLL_S = 0.2  # most looks read all pods and objects of a reader


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeApiServer]:
    """An API server with a replica of the control plane, and the controllers that create pods and EndpointSlices."""
    with (
        ExitStack() as stack,
        started(tmp_path_factory.mktemp("documentation"), accounts=True) as found,
        controller(found, "deployment,replicaset,endpointslice,serviceaccount"),
    ):
        asyncio.run(install(found, WITHOUT_APIS))
        until(lambda: found.call("GET", f"{SYSTEM}/serviceaccounts/default")[0] == 200)
        stack.enter_context(serving(found))
        found.make("/api/v1/nodes", {"metadata": {"name": NODE}})
        found.make(SPLITS, split("missing", {"missing-v1": 1}, name="build", namespace="default"))
        yield found


class Reader:
    """Applies manifests in a namespace of its own, whose pods get sidecars."""

    numbers = count(1)

    def __init__(self, cluster: KubeApiServer) -> None:
        self.cluster = cluster
        self.namespace = f"reader-{next(self.numbers)}"
        self._namespaces: set[str] = set()
        self._objects: list[Object] = []
        self._create_namespace(self.namespace)
        config = json.loads(cluster.kubeconfig().read_text())
        config["contexts"][0]["context"]["namespace"] = self.namespace
        self._config = cluster.root / f"{self.namespace}.json"
        self._config.write_text(json.dumps(config))

    def _create_namespace(self, name: str) -> None:
        if name not in self._namespaces:
            self._namespaces.add(name)
            metadata = {"name": name, "labels": {"headgate.dev/inject": "true"}}
            self.cluster.call("POST", "/api/v1/namespaces", {"metadata": metadata})
            account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            until(lambda: self.cluster.call("GET", account)[0] == 200, account, poll=POLL_S)

    def play(self, mesh: list[Manifest]) -> None:
        """Apply manifests one after the other, after the objects that they assume."""
        for obj in (obj for manifest in mesh for obj in manifest.objects()):
            self._create_namespace(namespace_of(obj, self.namespace))
        if objects := assumed(mesh, self.namespace):
            self._create(objects)
        for manifest in mesh:
            self._apply(manifest)

    def _create(self, objects: list[Object]) -> None:
        """Create Services and pods; wait until the control plane has the endpoints of all pods.

        A split without ready endpoints, even for a moment, has an Event about it.
        """
        for obj in objects:
            self.cluster.make(f"/api/v1/namespaces/{obj['metadata']['namespace']}/{obj['kind'].lower()}s", obj)
        self._objects += objects
        for namespace in sorted(self._namespaces):
            self._run_pods(namespace)
        for service in (obj["metadata"] for obj in objects if obj["kind"] == "Service"):
            path = f"/apis/discovery.k8s.io/v1beta1/namespaces/{service['namespace']}/endpointslices"
            query = f"{path}?labelSelector=kubernetes.io/service-name={service['name']}"
            until(lambda query=query: self._has_ready_endpoint(query), query, poll=POLL_S)
        self._wait_for_a_build()

    def _has_ready_endpoint(self, slices: str) -> bool:
        _, listed = self.cluster.call("GET", slices)
        endpoints = [endpoint for part in listed["items"] for endpoint in part["endpoints"] or ()]
        return any(endpoint["conditions"].get("ready") for endpoint in endpoints)

    def _apply(self, manifest: Manifest) -> None:
        """Apply a manifest, and assert the result that its page names."""
        text = manifest.text.replace("autoscaling/v2\n", "autoscaling/v2beta2\n")  # before 1.23, as the page says
        ended = self.kubectl("apply", "-f", "-", stdin=text)
        assert (ended.returncode != 0) == bool(manifest.rejected), ended.stdout
        assert manifest.rejected in ended.stdout
        if not manifest.rejected:
            self._objects += manifest.objects()
            expected = set(re.findall(r"\w+", manifest.reports))
            until(lambda: self._reports(expected), manifest.place, poll=POLL_S)
            self._wait_for_a_build()
            until(lambda: self._reports(expected), manifest.place, poll=POLL_S)

    def kubectl(self, *arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        """Run kubectl; `stdout` has its warnings too."""
        command = [KUBECTL, "--kubeconfig", str(self._config), *arguments]
        return subprocess.run(
            command,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=READY_S,
            check=False,
        )

    def _wait_for_a_build(self) -> None:
        """Change the split of the fixture, and wait for its status, so that no finding about an older object is still to come."""
        backends = [{"service": "missing-v1", "weight": next(self.numbers)}]
        status, changed = self.cluster.call("PATCH", BUILD, {"spec": {"backends": backends}}, content_type=MERGE)
        assert status == 200, changed
        generation = changed["metadata"]["generation"]
        until(lambda: self._has_status_of(generation), f"status of {BUILD}", poll=POLL_S)

    def _has_status_of(self, generation: int) -> bool:
        conditions = self.cluster.call("GET", BUILD)[1]["status"]["conditions"]
        return {condition["observedGeneration"] for condition in conditions} == {generation}

    def _reports(self, expected: set[str]) -> bool:
        """Assert that all pods run, and that all statuses are current and have the expected reasons only."""
        for namespace in sorted(self._namespaces):
            self._run_pods(namespace)
        events = self._events()
        reported = [pair for obj in self._objects for pair in (*self._warnings(obj, events), *self._findings(obj))]
        assert {reason for reason, _ in reported} == expected, reported
        return True

    def _run_pods(self, namespace: str) -> None:
        """Give each new pod an address and readiness, as a kubelet does. Asserts that each has a sidecar."""
        _, replica_sets = self.cluster.call("GET", f"/apis/apps/v1/namespaces/{namespace}/replicasets")
        _, listed = self.cluster.call("GET", f"/api/v1/namespaces/{namespace}/pods")
        for pod in listed["items"]:
            name = pod["metadata"]["name"]
            assert SIDECAR in {container["name"] for container in pod["spec"]["containers"]}, f"{name} has no sidecar"
            if "podIP" not in pod["status"]:
                address = str(ADDRESSES[next(self.numbers)])
                ready = {"type": "Ready", "status": "True"}
                status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [ready]}
                path = f"/api/v1/namespaces/{namespace}/pods/{name}"
                self.cluster.make(f"{path}/binding", {"metadata": {"name": name}, "target": {"name": NODE}})
                self.cluster.call("PATCH", f"{path}/status", {"status": status}, content_type=MERGE)
        wanted = sum(one["spec"]["replicas"] for one in replica_sets["items"])
        assert len([pod for pod in listed["items"] if "ownerReferences" in pod["metadata"]]) == wanted

    def _findings(self, obj: Object) -> Iterator[tuple[str, str]]:
        """Yield the reason and the text of each finding about an object. Asserts that its status is current."""
        group = obj["apiVersion"].rpartition("/")[0]
        name, namespace = obj["metadata"]["name"], namespace_of(obj, self.namespace)
        external, _, domain = (obj.get("spec") or {}).get("externalName", "").partition(f".{NAMESPACE}.svc.")
        needed = proxy_name(namespace, name) if obj["kind"] == "Gateway" else external if domain else ""
        assert not needed or self.cluster.call("GET", f"/api/v1/namespaces/{NAMESPACE}/services/{needed}")[0] == 200
        if (group, obj["kind"]) not in STATUSES and (group, obj["kind"]) not in ONLY_WITH_FINDINGS:
            return
        plural = names_of(obj["kind"], group).plural
        path = f"/{'apis' if group else 'api'}/{obj['apiVersion']}/namespaces/{namespace}/{plural}/{name}"
        _, live = self.cluster.call("GET", path)
        conditions = list(_conditions(live.get("status")))
        generation = live["metadata"].get("generation")
        current = {one.get("observedGeneration", generation) for one in conditions} == {generation}
        assert current or (group, obj["kind"]) in ONLY_WITH_FINDINGS, f"{obj['kind']} {name} has no current status"
        for one in conditions:
            if one["reason"] in REASONS or (one["status"] != "True" and one["reason"] not in HARMLESS):
                yield one["reason"], f"{obj['kind']} {name}: {one['message']}"

    def _events(self) -> dict[tuple[str, str, str], dict[str, Object]]:
        """Return the Events about each object by their reasons; an object is its namespace, kind and name."""
        events: dict[tuple[str, str, str], dict[str, Object]] = defaultdict(dict)
        for namespace in self._namespaces:
            for event in self.cluster.call("GET", f"/api/v1/namespaces/{namespace}/events")[1]["items"]:
                about = event["involvedObject"]
                events[namespace, about["kind"], about["name"]][event["reason"]] = event
        return events

    def _warnings(
        self, obj: Object, events_by_object: Mapping[tuple[str, str, str], Mapping[str, Object]]
    ) -> Iterator[tuple[str, str]]:
        """Yield the reason and the message of each Event about an object that no later Event resolves.

        A fault of a field may have had another reason before it was resolved: the Event of the resolution names the last.
        """
        kind, name = obj["kind"], obj["metadata"]["name"]
        events = events_by_object.get((namespace_of(obj, self.namespace), kind, name), {})
        resolved = [_created(event) for reason, event in events.items() if reason.endswith("Resolved")]
        for reason, event in events.items():
            if reason in REASONS and not any(_created(event) <= time for time in resolved):
                yield reason, f"{kind} {name}: {event['message']}"


def _created(event: Object) -> str:
    return str(event["metadata"]["creationTimestamp"])


def _conditions(status: Any) -> Iterator[Any]:
    """Yield the conditions in a status, also those of listeners and parents."""
    if isinstance(status, dict) and {"type", "status", "reason"} <= status.keys():
        yield status
    for part in status.values() if isinstance(status, dict) else status if isinstance(status, list) else ():
        yield from _conditions(part)


@pytest.mark.parametrize("name", MESHES)
def test_the_objects_of_a_page_or_an_example_get_the_statuses_that_it_names(cluster: KubeApiServer, name: str) -> None:
    Reader(cluster).play(MESHES[name])


def test_a_deletion_is_answered_with_what_it_does_to_access(cluster: KubeApiServer) -> None:
    """docs/tasks/plan.md: the API server asks the webhook, and kubectl prints the warning, which a busy replica omits."""
    reader = Reader(cluster)
    reader.play(example(EXAMPLES / "bookstore"))
    deletion = ("delete", "traffictarget", "buyer-to-bookstore", "--dry-run=server")
    lost = f"ServiceAccount {reader.namespace}/buyer may no longer send GET, path /books to "
    warning = f"Warning: effect on requests and access: 2 losses of access; first: {lost}"
    until(lambda: warning in reader.kubectl(*deletion).stdout)
