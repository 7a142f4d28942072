"""Gateways whose objects a real API server rejects: their statuses and Events say why, and they recover by themselves."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.cluster.admission_webhook import MESSAGE, denying
from tests.cluster.admission_webhook import NAME as WEBHOOK
from tests.cluster.api_server import APPLY, MERGE, KubeApiServer
from tests.cluster.control_planes import RunningReplica, eventually, running
from tests.cluster.installation import SYSTEM
from tests.make.objects import config_map, gateway, listener

from headgate.backoff import Backoff
from headgate.kubernetes.names import NAMESPACE
from headgate.resources.gateway_api.proxies import proxy_name

pytestmark = pytest.mark.asyncio(loop_scope="module")

GATEWAYS = "/apis/gateway.networking.k8s.io/v1/namespaces/shop/gateways"
ROLE = "/apis/rbac.authorization.k8s.io/v1/namespaces/headgate-system/roles/headgate"
QUOTAS = f"{SYSTEM}/resourcequotas"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(cluster: KubeApiServer) -> AsyncIterator[RunningReplica]:
    """A replica that is active, and the namespace of the Gateways."""
    cluster.namespace("shop")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Backoff, "next_pause", lambda _backoff: 0.5)  # not up to 20 s
        async with running(cluster, patch) as found:
            await eventually(found.served)
            yield found


class AppliedGateway:
    """A Gateway in the namespace `shop`."""

    def __init__(self, cluster: KubeApiServer, name: str) -> None:
        self.cluster = cluster
        self.name = name

    def write(self, *ports: int, **spec: Any) -> "AppliedGateway":
        listeners = [listener(port, f"http-{port}") for port in ports or (80,)]
        body = gateway(self.name, *listeners, namespace="shop", **spec)
        path = f"{GATEWAYS}/{self.name}?fieldManager=user&force=true"
        status, answer = self.cluster.call("PATCH", path, body, content_type=APPLY)
        assert status in {200, 201}, answer
        return self

    def delete(self) -> None:
        self.cluster.call("DELETE", f"{GATEWAYS}/{self.name}")

    def programmed(self) -> str:
        """Return the reason and the message of the condition Programmed."""
        status = self.cluster.call("GET", f"{GATEWAYS}/{self.name}")[1].get("status") or {}
        found = [item for item in status.get("conditions", ()) if item["type"] == "Programmed"]
        return f"{found[0]['reason']}: {found[0]['message']}" if found else ""

    def listeners(self) -> set[tuple[str, str]]:
        """Return the status and the reason of the condition Programmed of each listener."""
        status = self.cluster.call("GET", f"{GATEWAYS}/{self.name}")[1].get("status") or {}
        found = [item for listener in status.get("listeners", ()) for item in listener["conditions"]]
        return {(item["status"], item["reason"]) for item in found if item["type"] == "Programmed"}

    def events(self, reason: str) -> list[str]:
        listed = self.cluster.call("GET", "/api/v1/namespaces/shop/events")[1]["items"]
        return [
            item["message"]
            for item in listed
            if (item["involvedObject"]["name"], item["reason"]) == (self.name, reason)
        ]

    def service(self) -> Any:
        """Return `spec` of the Gateway's Service; None if there is none."""
        status, found = self.cluster.call("GET", f"{SYSTEM}/services/{proxy_name('shop', self.name)}")
        return found["spec"] if status == 200 else None

    async def rejected(self, reason: str, *texts: str) -> None:
        """Wait until the condition and one Event have the reason and the texts."""
        await eventually(lambda: self.programmed().startswith(f"{reason}: "), of=self.programmed)
        assert all(text in self.programmed() for text in texts), self.programmed()
        assert self.listeners() == {("False", reason)}
        await eventually(lambda: self.events(reason), of=self.programmed)
        (message,) = self.events(reason)
        assert message == self.programmed().removeprefix(f"{reason}: ")

    async def recovered(self, reason: str) -> None:
        """Wait until the objects exist. Without nodes, no proxy runs, so the Gateway can't be programmed."""
        await eventually(lambda: self.events(f"{reason}Resolved"), of=self.programmed)
        await eventually(lambda: not self.programmed().startswith(f"{reason}: "), of=self.programmed)
        await eventually(lambda: ("False", reason) not in self.listeners(), of=self.listeners)
        await eventually(self.service)
        assert len(self.events(reason)) == 1


async def quota(cluster: KubeApiServer) -> None:
    """Create a quota that allows no more Services; its controller, which does not run here, would write the status."""
    body = {"metadata": {"name": "small"}, "spec": {"hard": {"count/services": "1"}}}
    cluster.make(QUOTAS, body)
    patch = {"status": {"hard": {"count/services": "1"}, "used": {"count/services": "1"}}}
    status, answer = cluster.call("PATCH", f"{QUOTAS}/small/status", patch, content_type=MERGE)
    assert status == 200, answer
    await eventually(lambda: exceeds_quota(cluster))


async def remove_quota(cluster: KubeApiServer) -> None:
    """Delete the quota, and wait until Services are allowed again: the Gateway of the next test must not be rejected."""
    assert cluster.call("DELETE", f"{QUOTAS}/small")[0] == 200
    await eventually(lambda: not exceeds_quota(cluster))


def exceeds_quota(cluster: KubeApiServer) -> bool:
    """Return whether the API server rejects a new Service: it learns of quotas later than it stores them."""
    service = {"metadata": {"name": "probe"}, "spec": {"ports": [{"port": 80}]}}
    return "exceeded quota" in str(cluster.call("POST", f"{SYSTEM}/services?dryRun=All", service)[1])


async def test_a_quota_is_named_and_other_gateways_are_served(cluster: KubeApiServer, plane: RunningReplica) -> None:
    served = AppliedGateway(cluster, "served").write()
    await eventually(served.service)
    await quota(cluster)
    new = AppliedGateway(cluster, "new").write()
    await new.rejected(
        "NoResources", "exceeded quota: small", "count/services=1", "Raise the ResourceQuota in headgate-system"
    )
    served.write(80, 81)
    await eventually(lambda: len(served.service()["ports"]) == 2)
    assert new.service() is None
    await remove_quota(cluster)
    await new.recovered("NoResources")
    assert served.events("NoResources") == []


async def test_an_invalid_annotation_is_named_until_the_gateway_is_corrected(
    cluster: KubeApiServer, plane: RunningReplica
) -> None:
    new = AppliedGateway(cluster, "annotated").write(infrastructure={"annotations": {"not a name": "x"}})
    await new.rejected(
        "Invalid", 'metadata.annotations: Invalid value: "not a name"', "Correct the value in the Gateway"
    )
    new.write(infrastructure={"annotations": {"a-name": "x"}})
    await new.recovered("Invalid")
    assert len(new.events("InvalidResolved")) == 1


async def test_a_missing_permission_is_named_with_its_remedy(cluster: KubeApiServer, plane: RunningReplica) -> None:
    _, role = cluster.call("GET", ROLE)
    fewer = [rule for rule in role["rules"] if "poddisruptionbudgets" not in rule["resources"]]
    assert cluster.call("PUT", ROLE, {**role, "rules": fewer})[0] == 200
    new = AppliedGateway(cluster, "forbidden").write()
    await new.rejected(
        "ObjectRejected", "cannot patch resource", "poddisruptionbudgets", "Run `headgate install` again"
    )
    _, changed = cluster.call("GET", ROLE)
    assert cluster.call("PUT", ROLE, {**changed, "rules": role["rules"]})[0] == 200
    await new.recovered("ObjectRejected")


@pytest.mark.parametrize("answers", [True, False])
async def test_an_admission_webhook_is_named(cluster: KubeApiServer, plane: RunningReplica, answers: bool) -> None:
    """A webhook that denies the Service, and a webhook that is unreachable."""
    new = AppliedGateway(cluster, f"denied-{answers}".lower())
    with denying(cluster, serves=answers):
        new.write()
        denied = f'admission webhook "{WEBHOOK}" denied the request: {MESSAGE}'
        await new.rejected("ObjectRejected", denied if answers else f'failed calling webhook "{WEBHOOK}"')
    await new.recovered("ObjectRejected")


async def test_a_quota_for_pods_is_named_while_no_pod_is_available(
    cluster: KubeApiServer, plane: RunningReplica
) -> None:
    """The controller of Deployments, which does not run here, would write the status."""
    new = AppliedGateway(cluster, "podless").write()
    await eventually(new.service)
    await eventually(lambda: new.programmed() == "Pending: no proxy of the Gateway runs yet", of=new.programmed)
    path = f"/apis/apps/v1/namespaces/headgate-system/deployments/{proxy_name('shop', 'podless')}/status"
    message = 'pods "gateway-x" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1'
    for status, wait in (("True", new.rejected), ("False", new.recovered)):
        condition = {"type": "ReplicaFailure", "status": status, "reason": "FailedCreate", "message": message}
        patch = {"status": {"conditions": [condition]}}
        assert cluster.call("PATCH", path, patch, content_type=MERGE)[0] == 200
        await wait("NoResources")


async def test_an_address_that_the_cluster_does_not_assign_is_named(
    cluster: KubeApiServer, plane: RunningReplica
) -> None:
    """The address of another Service, and an address outside the range."""
    other = AppliedGateway(cluster, "first").write()
    await eventually(other.service)
    for name, address in (("used", other.service()["clusterIP"]), ("outside", "192.0.2.1")):
        new = AppliedGateway(cluster, name).write(addresses=[{"type": "IPAddress", "value": address}])
        await eventually(lambda new=new: new.programmed().startswith("AddressNotUsable: "), of=new.programmed)
        assert address in new.programmed()


async def test_a_rejected_gateway_is_written_only_when_its_state_changes(
    cluster: KubeApiServer, plane: RunningReplica
) -> None:
    """Its attempts continue, as the audit log of the API server shows."""
    await quota(cluster)
    new = AppliedGateway(cluster, "waiting").write()
    await new.rejected("NoResources", "exceeded quota")
    before = cluster.call("GET", f"{GATEWAYS}/waiting")[1]["metadata"]["resourceVersion"]
    name = proxy_name("shop", "waiting")

    def attempts() -> int:
        return cluster.audit_log.attempts("services", NAMESPACE, name, "patch")

    before_waiting = attempts()
    await eventually(lambda: attempts() >= before_waiting + 2)
    assert cluster.call("GET", f"{GATEWAYS}/waiting")[1]["metadata"]["resourceVersion"] == before
    new.delete()
    await remove_quota(cluster)
    deployment = f"/apis/apps/v1/namespaces/headgate-system/deployments/{name}"
    await eventually(lambda: cluster.call("GET", deployment)[0] == 404)


async def test_a_change_to_any_config_map_does_not_read_all_of_them(
    cluster: KubeApiServer, plane: RunningReplica
) -> None:
    """Clusters have many ConfigMaps, some of which change each second. Only those with parameters belong to Gateways."""
    path = "/api/v1/namespaces/shop/configmaps"
    reference = {"group": "", "kind": "ConfigMap", "name": "sized"}
    new = AppliedGateway(cluster, "sized").write(infrastructure={"parametersRef": reference})
    labels = {"headgate.dev/gateway-parameters": "true"}
    cluster.make(path, config_map("sized", {"serviceType": "NodePort"}, namespace="shop", labels=labels))
    await eventually(lambda: (new.service() or {}).get("type") == "NodePort", of=new.programmed)

    def lists_of_all() -> int:
        return sum(
            event["requestURI"].startswith("/api/v1/configmaps") and "Selector" not in event["requestURI"]
            for event in cluster.audit_log.events()
            if event["verb"] == "list" and event["stage"] == "ResponseComplete"
        )

    before = lists_of_all()
    cluster.make(path, config_map("color", {"color": "red"}, namespace="shop"))
    cluster.call("PATCH", f"{path}/sized", {"data": {"serviceType": "ClusterIP"}}, content_type=MERGE)
    await eventually(lambda: (new.service() or {}).get("type") == "ClusterIP", of=new.programmed)
    assert lists_of_all() == before
    new.delete()
    await eventually(lambda: new.service() is None)
