"""Workloads with sidecars whose pods the cluster refuses have a finding with the reason and what to do."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.decoding import admit
from tests.make.objects import deployment, meshed_pod, namespace

from headgate.admission.sidecar_containers import SidecarOptions, transparent_sidecars
from headgate.compiler.snapshot import Snapshot
from headgate.kubernetes.refused_pods import RefusedPods, lacks_pods
from headgate.latest import Latest, until
from headgate.objects.ports import Store
from headgate.plane.feed import snapshot_of
from headgate.resources.kind_set import KindSet
from headgate.resources.meta import Key, Object
from headgate.resources.registry import CLUSTER_KINDS, key_of
from headgate.standalone.store.memory import MemoryStore

TIMEOUT_S = 20
WEB = Key("apps", "Deployment", "shop", "web")
QUOTA = 'pods "web-1" is forbidden: exceeded quota: small, requested: cpu=30m, used: cpu=90m, limited: cpu=100m'
INJECT = {"headgate.dev/inject": "true"}
FAILED_AT = "2026-01-01T00:00:10Z"


def failing(message: str, *, status: str = "True") -> Object:
    condition = {"type": "ReplicaFailure", "status": status, "reason": "FailedCreate", "message": message}
    return {"conditions": [condition]}


@asynccontextmanager
async def following(
    store: Store, snapshot: Latest[Snapshot | None] | None = None, events: Store | None = None
) -> AsyncIterator[RefusedPods]:
    snapshot = snapshot or Latest(Snapshot())
    refused = RefusedPods(transparent_sidecars("labelled", SidecarOptions(image="i", xds="x:1")))
    task = asyncio.create_task(refused.run(store, snapshot, events or MemoryStore()))
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield refused
    finally:
        task.cancel()


async def stored(message: str, labels: dict[str, str]) -> MemoryStore:
    """Return a store with a Deployment whose pods are refused."""
    store = MemoryStore(admit=admit)
    await store.create(namespace("shop"))
    web = deployment("web", namespace="shop", labels={"app": "web", **labels})
    created = await store.create(web)
    await store.update({**created, "status": failing(message)}, subresource="status")
    return store


def workload(kind: str, name: str, status: dict[str, Any], **spec: Any) -> Object:
    """Return a workload whose pods get sidecars."""
    template = {"metadata": {"labels": {"app": name, **INJECT}}, "spec": {"containers": [{"name": "app"}]}}
    metadata = {"name": name, "namespace": "shop"}
    version, fields = ("batch/v1", {}) if kind == "Job" else ("apps/v1", {"selector": {"matchLabels": {"app": name}}})
    fields = {"spec": {**fields, **spec, "template": template}, "status": status}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def lacking(name: str) -> Sequence[Object]:
    """Return a workload of each kind with fewer pods than it needs, whose status has no reason."""
    return (
        workload("StatefulSet", name, {"replicas": 1}, replicas=2),
        workload("DaemonSet", name, {"currentNumberScheduled": 1, "desiredNumberScheduled": 2}),
        workload("Job", name, {"succeeded": 1}, completions=2, parallelism=3),
    )


def failed_create(obj: Object, uid: str) -> Object:
    """Return the Event of a pod of a workload that could not be created."""
    metadata, kind = obj["metadata"], obj["kind"]
    regarding = {
        "apiVersion": obj["apiVersion"],
        "kind": kind,
        "namespace": "shop",
        "name": metadata["name"],
        "uid": uid,
    }
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.1", "namespace": "shop"},
    }
    return {
        **event,
        "regarding": regarding,
        "reason": "FailedCreate",
        "note": QUOTA,
        "deprecatedLastTimestamp": FAILED_AT,
    }


@pytest.mark.parametrize("index", range(3), ids=["StatefulSet", "DaemonSet", "Job"])
async def test_a_workload_without_a_reason_in_its_status_has_the_finding_by_its_event(index: int) -> None:
    """Until it has all pods, or a pod that is newer than the Event. An Event about an earlier object of the name does not count."""
    store, events, snapshot = MemoryStore(), MemoryStore(), Latest[Snapshot | None](Snapshot())
    events.kinds = KindSet(CLUSTER_KINDS)
    for each in (store, events):
        await each.create(namespace("shop"))
    uids = {}
    for name in ("api", "web"):
        obj = lacking(name)[index]
        created = await store.create(obj)
        await store.update({**created, "status": obj["status"]}, subresource="status")
        uids[name] = created["metadata"]["uid"]
        await events.create(failed_create(obj, uids[name] if name == "web" else "earlier"))
    async with following(store, snapshot, events) as refused:
        await until(lambda: bool(refused.findings.get()), refused.findings)
        (finding,) = refused.findings.get()
        assert (finding.about.kind, finding.about.name) == (lacking("web")[index]["kind"], "web")
        assert finding.message.startswith(f"the cluster refuses its new pods: {QUOTA}. Raise the ResourceQuota")
        owner = {"apiVersion": "v1", "kind": "Any", "name": "web", "uid": uids["web"], "controller": True}
        newer = meshed_pod("web-1", "10.1.0.1")
        newer["metadata"] |= {"ownerReferences": [owner], "creationTimestamp": "2026-01-01T00:00:11Z"}
        snapshot.set(snapshot_of({key_of(newer): newer}))
        await until(lambda: not refused.findings.get(), refused.findings)
        snapshot.set(Snapshot())
        await until(lambda: bool(refused.findings.get()), refused.findings)
        await store.delete(finding.about)
        await until(lambda: not refused.findings.get(), refused.findings)


@pytest.mark.parametrize(
    "obj",
    [
        workload("StatefulSet", "web", {"replicas": 2}, replicas=2),
        workload("DaemonSet", "web", {"currentNumberScheduled": 2, "desiredNumberScheduled": 2}),
        workload("Job", "web", {"active": 1}),
        workload("Job", "web", {"active": 1, "succeeded": 1}, completions=2, parallelism=3),
        workload("Job", "web", {"conditions": [{"type": "Complete", "status": "True"}]}),
        workload("Job", "web", {"conditions": [{"type": "Suspended", "status": "True"}]}),
        workload("ReplicaSet", "web", {"replicas": 1}, replicas=2),
    ],
    ids=str,
)
def test_a_workload_with_the_pods_that_it_needs_is_refused_none(obj: Object) -> None:
    """A ReplicaSet says so in its conditions."""
    assert not lacks_pods(obj)


def test_a_bare_replica_set_counts_and_one_of_a_deployment_does_not() -> None:
    obj = workload("ReplicaSet", "web", failing(QUOTA))
    assert lacks_pods(obj)
    obj["metadata"]["ownerReferences"] = [{"kind": "Deployment", "name": "web"}]
    assert not lacks_pods(obj)


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        (QUOTA, "Raise the ResourceQuota, or lower what the pods request; set the sidecar's resources by annotations"),
        ("failed quota: small: must specify limits.cpu", "needs requests and limits of all containers"),
        ("maximum memory usage per Pod is 512Mi, but limit is 1Gi", "Change the LimitRange"),
        (
            'violates PodSecurity "baseline:latest": non-default capabilities',
            "install headgate with --node-agent",
        ),
        ('admission webhook "policy" denied the request', "the policy that refuses the pods"),
    ],
)
async def test_a_deployment_whose_pods_are_refused_has_a_finding_with_the_fix(message: str, remedy: str) -> None:
    async with following(await stored(message, INJECT)) as refused:
        await until(lambda: bool(refused.findings.get()), refused.findings)
        (finding,) = refused.findings.get()
    assert (finding.about, finding.reason.value) == (WEB, "PodsRefused")
    assert finding.message.startswith(f"the cluster refuses its new pods: {message}. ")
    assert remedy in finding.message


async def test_the_finding_ends_when_the_pods_are_created_or_the_deployment_is_deleted() -> None:
    store = await stored(QUOTA, INJECT)
    async with following(store) as refused:
        await until(lambda: bool(refused.findings.get()), refused.findings)
        web = await store.get(WEB)
        await store.update({**web, "status": failing("", status="False")}, subresource="status")
        await until(lambda: not refused.findings.get(), refused.findings)
        await store.update({**await store.get(WEB), "status": failing(QUOTA)}, subresource="status")
        await until(lambda: bool(refused.findings.get()), refused.findings)
        await store.delete(WEB)
        await until(lambda: not refused.findings.get(), refused.findings)


async def test_a_deployment_without_sidecars_has_no_finding() -> None:
    store = await stored(QUOTA, {})
    async with following(store) as refused:
        other = deployment("api", namespace="shop", labels={"app": "api", **INJECT})
        created = await store.create(other)
        await store.update({**created, "status": failing(QUOTA)}, subresource="status")
        await until(lambda: bool(refused.findings.get()), refused.findings)
        assert [finding.about.name for finding in refused.findings.get()] == ["api"]


async def test_a_deployment_that_is_read_before_its_namespace_has_a_finding_once_the_namespace_is_read() -> None:
    """A replica that starts may list Deployments before its first snapshot; the label of the namespace injects."""
    snapshot: Latest[Snapshot | None] = Latest(None)
    async with following(await stored(QUOTA, {}), snapshot) as refused:
        await asyncio.sleep(0)
        shop = namespace("shop", labels=INJECT)
        snapshot.set(snapshot_of({key_of(shop): shop}))
        await until(lambda: bool(refused.findings.get()), refused.findings)
        assert [finding.about for finding in refused.findings.get()] == [WEB]
        snapshot.set(Snapshot())
        await until(lambda: not refused.findings.get(), refused.findings)
