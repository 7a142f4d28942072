"""Deployments with sidecars whose pods the cluster refuses have a finding with the reason and what to do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.decoding import admit
from tests.make.objects import deployment, namespace

from headgate.admission.sidecar_containers import SidecarOptions, transparent_sidecars
from headgate.compiler.snapshot import Snapshot
from headgate.kubernetes.refused_pods import RefusedPods
from headgate.latest import Latest, until
from headgate.objects.ports import Store
from headgate.plane.feed import snapshot_of
from headgate.resources.meta import Key, Object
from headgate.resources.registry import key_of
from headgate.standalone.store.memory import MemoryStore

TIMEOUT_S = 20
WEB = Key("apps", "Deployment", "shop", "web")
QUOTA = 'pods "web-1" is forbidden: exceeded quota: small, requested: cpu=30m, used: cpu=90m, limited: cpu=100m'
INJECT = {"headgate.dev/inject": "true"}


def failing(message: str, *, status: str = "True") -> Object:
    condition = {"type": "ReplicaFailure", "status": status, "reason": "FailedCreate", "message": message}
    return {"conditions": [condition]}


@asynccontextmanager
async def following(store: Store, snapshot: Latest[Snapshot | None] | None = None) -> AsyncIterator[RefusedPods]:
    snapshot = snapshot or Latest(Snapshot())
    refused = RefusedPods(transparent_sidecars("labelled", SidecarOptions(image="i", xds="x:1")))
    task = asyncio.create_task(refused.run(store, snapshot))
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
