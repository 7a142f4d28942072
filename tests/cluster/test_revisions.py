"""A revision beside the default one, on a real API server: its webhook injects, its compiler configures, the default one serves."""

import base64
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from tests.cluster import replica
from tests.cluster.api_server import MERGE, KubeApiServer
from tests.cluster.control_planes import RunningReplica, eventually, running
from tests.cluster.installation import SYSTEM, injected_image, revision_on_this_machine, sidecar_image
from tests.make.objects import service
from tests.ports import free_port
from tests.xds.proxies import Proxy

from headgate.kubernetes import app
from headgate.kubernetes.install.installer import Installer
from headgate.kubernetes.revisions import RevisionCalls
from headgate.plane.revisions import RevisionFollower

PLACE = "revised"
INSPECT = "/apis/inspect.headgate.dev/v1beta1"
DEPLOYMENT = "/apis/apps/v1/namespaces/headgate-system/deployments/headgate-rev-next"


@pytest.fixture
async def port(cluster: KubeApiServer) -> AsyncIterator[int]:
    """The port of an installed revision `next`, of which no replica runs yet. Beside it, `dead` is installed at another port."""
    number = free_port()
    objects = (*revision_on_this_machine("next", number), *revision_on_this_machine("dead", free_port()))
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


async def explained(plane: RunningReplica) -> Any:
    """Return the explanation of a request of the pod."""
    spec = {"url": "http://website:8080/", "caller": {"kind": "Pod", "name": "web-1"}}
    explanation = await plane.post(f"{INSPECT}/namespaces/{PLACE}/explanations", {"spec": spec})
    return explanation["status"]


async def receive_until_named(proxy: Proxy, service_name: str) -> None:
    """Subscribe to clusters, and receive responses until one has those of a Service."""
    await proxy.request()
    while not any(f"{PLACE}/{service_name}/8080" in each.name for each in (await proxy.receive()).resources):
        pass


async def test_a_revision_injects_and_configures_the_pods_of_its_namespaces(
    cluster: KubeApiServer, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it does not answer, `headgate status` says so, and its proxies lag, until the default revision serves them.

    A second revision, of which no replica ever runs, disturbs nothing. Another replica takes over while both are dead.
    """
    addresses = {"next": f"127.0.0.1:{port}", "dead": f"127.0.0.1:{free_port()}"}
    monkeypatch.setattr(app, "RevisionCalls", partial(RevisionCalls, address=addresses.__getitem__))
    cluster.namespace(PLACE)
    labels = {"metadata": {"labels": {"headgate.dev/rev": "next"}}}
    assert cluster.call("PATCH", f"/api/v1/namespaces/{PLACE}", labels, content_type=MERGE)[0] == 200
    cluster.make(f"/api/v1/namespaces/{PLACE}/services", service("website", namespace=PLACE))
    unavailable = "the revision {} renders no configuration, so its proxies keep theirs: revision {} can't be reached"
    node = f"sidecar/{PLACE}/web-1"

    async def are_named(*names: str) -> bool:
        problems = [text for text in await plane.problems() if "revision" in text]
        starts = [unavailable.format(name, name) for name in names]
        return len(problems) == len(names) and all(map(str.startswith, problems, starts))

    async with running(cluster, monkeypatch) as plane:
        with replica.revision(cluster, "next", port):
            await eventually(lambda: injected_image(cluster, PLACE) == "headgate:next")
            pod = pod_that_requests_a_sidecar(cluster, "web-1", "10.1.0.1")
            assert pod["metadata"]["annotations"]["headgate.dev/rev"] == "next"
            assert sidecar_image(pod) == "headgate:next"
            secret = cluster.call("GET", f"{SYSTEM}/secrets/headgate-ca")[1]["data"]["ca.crt"]
            token, roots = cluster.token(PLACE, "web-1"), base64.b64decode(secret).decode()

            async def has_proxy() -> bool:
                return bool((await proxy_of(plane, "web-1"))["revision"] == "next")

            await eventually(has_proxy)
            async with Proxy(f"localhost:{plane.ports['XDS_PORT']}", node, token, roots=roots) as proxy:
                await receive_until_named(proxy, "website")
            await eventually(lambda: are_named("dead"))
            assert (await explained(plane))["revision"] == "next"

        cluster.make(f"/api/v1/namespaces/{PLACE}/services", service("later", namespace=PLACE))
        await eventually(lambda: are_named("dead", "next"))
        async with Proxy(f"localhost:{plane.ports['XDS_PORT']}", node, token, roots=roots) as proxy:
            await proxy.request()
            assert not any("revised/later/" in resource.name for resource in (await proxy.receive()).resources)
        message = (await explained(plane))["revisionMessage"]
        assert message.startswith("by the default revision, because next, which configures")

    monkeypatch.setattr(app, "RevisionFollower", partial(RevisionFollower, fallback_s=0.0))
    async with running(cluster, monkeypatch) as plane:
        await eventually(plane.served)
        async with Proxy(f"localhost:{plane.ports['XDS_PORT']}", node, token, roots=roots) as proxy:
            await receive_until_named(proxy, "later")  # the default revision configures the proxy now
        await eventually(lambda: are_named("dead", "next"))
        assert (await proxy_of(plane, "web-1")).get("revision", "") == ""

        assert cluster.call("DELETE", DEPLOYMENT)[0] == 200
        await eventually(lambda: are_named("dead"))
        findings = (await plane.get(f"{INSPECT}/findings"))["items"]
        (finding,) = [each for each in findings if each["reason"] == "RevisionNotFound"]
        assert finding["object"]["name"] == PLACE
