"""A revision beside the default one, on a real API server: its webhook injects, its compiler configures, the default one serves."""

import base64
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from tests.cluster import replica
from tests.cluster.api_server import MERGE, KubeApiServer
from tests.cluster.control_planes import RunningReplica, eventually, running
from tests.cluster.installation import SYSTEM, revision_on_this_machine
from tests.make.objects import service
from tests.ports import free_port
from tests.xds.proxies import Proxy

from headgate.kubernetes import app
from headgate.kubernetes.install.installer import Installer
from headgate.kubernetes.revisions import RevisionCalls

PLACE = "revised"
INSPECT = "/apis/inspect.headgate.dev/v1beta1"
DEPLOYMENT = "/apis/apps/v1/namespaces/headgate-system/deployments/headgate-rev-next"


@pytest.fixture
async def port(cluster: KubeApiServer) -> AsyncIterator[int]:
    """The port of an installed revision `next`, of which no replica runs yet."""
    number = free_port()
    objects = tuple(revision_on_this_machine("next", number))
    async with cluster.client() as client:
        async for _ in Installer(client).apply(objects):
            pass
        yield number
        async for _ in Installer(client).delete(objects):
            pass


def pod_that_requests_a_sidecar(server: KubeApiServer, name: str, address: str) -> Any:
    """Create a running pod that requests a sidecar; return it as the API server has stored it."""
    metadata = {"name": name, "annotations": {"headgate.dev/inject": "true"}}
    spec = {"serviceAccountName": "web", "containers": [{"name": "web", "image": "web"}]}
    made = server.make(f"/api/v1/namespaces/{PLACE}/pods", {"metadata": metadata, "spec": spec})
    status = {"phase": "Running", "podIP": address, "conditions": [{"type": "Ready", "status": "True"}]}
    path = f"/api/v1/namespaces/{PLACE}/pods/{name}/status"
    assert server.call("PATCH", path, {"status": status}, content_type=MERGE)[0] == 200
    return made


async def proxy_of(plane: RunningReplica, name: str) -> Any:
    """Return a proxy as the inspect API shows it."""
    return await plane.get(f"{INSPECT}/namespaces/{PLACE}/proxies/{name}")


async def test_a_revision_injects_and_configures_the_pods_of_its_namespaces(
    cluster: KubeApiServer, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it does not answer, `headgate status` says so, and its proxies lag; without it, the default one serves them."""
    monkeypatch.setattr(app, "RevisionCalls", partial(RevisionCalls, address=lambda _: f"127.0.0.1:{port}"))
    cluster.namespace(PLACE)
    labels = {"metadata": {"labels": {"headgate.dev/rev": "next"}}}
    assert cluster.call("PATCH", f"/api/v1/namespaces/{PLACE}", labels, content_type=MERGE)[0] == 200
    cluster.make(f"/api/v1/namespaces/{PLACE}/services", service("website", namespace=PLACE))
    async with running(cluster, monkeypatch) as plane:
        with replica.revision(cluster, "next", port):
            pod = pod_that_requests_a_sidecar(cluster, "web-1", "10.1.0.1")
            assert pod["metadata"]["annotations"]["headgate.dev/rev"] == "next"
            images = {container["name"]: container["image"] for container in pod["spec"]["containers"]}
            assert images["headgate-sidecar"] == "headgate:next"
            secret = cluster.call("GET", f"{SYSTEM}/secrets/headgate-ca")[1]["data"]["ca.crt"]
            address, token = f"localhost:{plane.ports['XDS_PORT']}", cluster.token(PLACE, "web-1")
            roots = base64.b64decode(secret).decode()
            node = f"sidecar/{PLACE}/web-1"

            async def has_proxy() -> bool:
                return bool((await proxy_of(plane, "web-1"))["revision"] == "next")

            await eventually(has_proxy)
            async with Proxy(address, node, token, roots=roots) as proxy:
                await proxy.request()
                names = {resource.name for resource in (await proxy.receive()).resources}
                assert any("revised/website/8080" in name for name in names)
            assert [problem for problem in await plane.problems() if "revision" in problem] == []

        cluster.make(f"/api/v1/namespaces/{PLACE}/services", service("later", namespace=PLACE))
        unavailable = (
            "the revision next renders no configuration, so its proxies keep theirs: revision next can't be reached"
        )

        async def is_named() -> bool:
            return any(problem.startswith(unavailable) for problem in await plane.problems())

        await eventually(is_named)
        async with Proxy(address, node, token, roots=roots) as proxy:
            await proxy.request()
            assert not any("revised/later/" in resource.name for resource in (await proxy.receive()).resources)

            assert cluster.call("DELETE", DEPLOYMENT)[0] == 200
            while not any("revised/later/" in resource.name for resource in (await proxy.receive()).resources):
                pass  # the default revision configures the proxy now
        assert (await proxy_of(plane, "web-1")).get("revision", "") == ""
        findings = (await plane.get(f"{INSPECT}/findings"))["items"]
        (finding,) = [each for each in findings if each["reason"] == "RevisionNotFound"]
        assert finding["object"]["name"] == PLACE
