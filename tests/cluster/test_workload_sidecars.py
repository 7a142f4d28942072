"""A replica on a real API server, with the permissions of its installation: outdated pods, and pods that a quota refuses."""

import pytest
from tests.cluster.api_server import MERGE, KubeApiServer
from tests.cluster.control_planes import RunningReplica, eventually, running
from tests.make.objects import container, deployment, obj, pod

from headgate.admission.sidecar_containers import SidecarOptions, with_transparent_sidecar

API = "/apis/inspect.headgate.dev/v1beta1/namespaces"
INSPECT = f"{API}/refused"
DEPLOYMENTS = "/apis/apps/v1/namespaces/refused/deployments"
INJECT = {"headgate.dev/inject": "true"}
APP = container("app", image="app:1")
OPTIONS = SidecarOptions(image="headgate:1", xds="headgate:15010")
QUOTA = 'pods "web-1" is forbidden: exceeded quota: small'


async def test_a_replica_lists_outdated_workloads_and_those_whose_pods_a_quota_refuses(
    cluster: KubeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.namespace("refused")
    cluster.make("/api/v1/namespaces/refused/serviceaccounts", obj("ServiceAccount", "default", namespace="refused"))
    async with running(cluster, monkeypatch) as plane:
        await eventually(plane.served)
        # The API server calls no webhook here, and stores a pod with the annotation without a sidecar.
        cluster.make(DEPLOYMENTS, deployment("web", APP, namespace="refused", labels={"app": "web", **INJECT}))
        cluster.make(
            "/api/v1/namespaces/refused/pods", pod("alone", namespace="refused", annotations=INJECT, containers=[APP])
        )
        condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": QUOTA}
        refused = {"status": {"conditions": [condition]}}
        assert cluster.call("PATCH", f"{DEPLOYMENTS}/web/status", refused, content_type=MERGE)[0] == 200
        await eventually(lambda: _has_finding(plane))
        _refuse_stateful_set(cluster)
        await eventually(lambda: _has_finding(plane, "db"))
        spec = {"url": "http://web/", "caller": {"kind": "StatefulSet", "name": "db"}}
        unexplained = await plane.post(f"{INSPECT}/explanations", {"spec": spec})
        assert f"; the cluster refuses its new pods: {QUOTA}. Raise" in unexplained["message"]
        (workload,) = (await plane.get(f"{INSPECT}/workloadsidecars"))["items"]
        assert (workload["object"]["kind"], workload["object"]["name"]) == ("Pod", "alone")
        assert workload["pods"][0]["messages"][0].startswith(
            "has no sidecar, and a new pod gets one: the pod's annotation"
        )
        assert await plane.has_all_permissions()
    assert not [line for line in plane.log if "refused" in line]


async def test_a_replica_reads_the_quotas_of_a_namespace(
    cluster: KubeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.namespace("limited")
    cluster.make("/api/v1/namespaces/limited/serviceaccounts", obj("ServiceAccount", "default", namespace="limited"))
    plain = pod("web", namespace="limited", account="default", annotations=INJECT, containers=[APP])
    cluster.make("/api/v1/namespaces/limited/pods", with_transparent_sidecar(plain, OPTIONS))
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"limits.cpu": "4"}}}
    cluster.make("/api/v1/namespaces/limited/resourcequotas", quota)
    async with running(cluster, monkeypatch) as plane:
        await eventually(plane.served)
        await eventually(lambda: _has_limit(plane))
        assert await plane.has_all_permissions()


def _refuse_stateful_set(cluster: KubeApiServer) -> None:
    """Create a StatefulSet, whose controller could not create its pod and writes the reason into an Event."""
    path = "/apis/apps/v1/namespaces/refused/statefulsets"
    template = {"metadata": {"labels": {"app": "db", **INJECT}}, "spec": {"containers": [APP]}}
    spec = {"selector": {"matchLabels": {"app": "db"}}, "serviceName": "db", "template": template}
    made = cluster.make(path, {"metadata": {"name": "db"}, "spec": spec})
    about = {"apiVersion": "apps/v1", "kind": "StatefulSet", "namespace": "refused", "name": "db"}
    event = {"metadata": {"name": "db.1"}, "involvedObject": {**about, "uid": made["metadata"]["uid"]}}
    event |= {"reason": "FailedCreate", "message": QUOTA, "type": "Warning", "lastTimestamp": "2026-01-01T00:00:00Z"}
    cluster.make("/api/v1/namespaces/refused/events", event)


async def _has_limit(plane: RunningReplica) -> bool:
    """Return whether a new pod would have a limit of processor time, which the stored one does not have."""
    workloads = (await plane.get(f"{API}/limited/workloadsidecars"))["items"]
    return any("cpu limit none, now 1" in text for entry in workloads for text in entry["pods"][0]["messages"])


async def _has_finding(plane: RunningReplica, name: str = "web") -> bool:
    findings = (await plane.get(f"{INSPECT}/findings"))["items"]
    return [
        finding["message"].startswith(f"the cluster refuses its new pods: {QUOTA}. Raise the ResourceQuota")
        for finding in findings
        if (finding["reason"], finding["object"]["name"]) == ("PodsRefused", name)
    ] == [True]
