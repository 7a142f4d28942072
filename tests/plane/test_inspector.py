"""The proxies in the inspect API: state, resources, and the objects from which refused resources come."""

from collections.abc import Mapping, Sequence

import pytest
from tests.identity.fakes import FakeIssuer, Time
from tests.make.objects import backed_service, meshed_pod, split
from tests.make.values import compiled
from tests.xds.client import XdsClient, outdate

from headgate.admission.injection import InjectionDecision, PodNamespace, decide
from headgate.compiler.snapshot import Snapshot
from headgate.envoy.config import ENDPOINTS
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import Node, project, sidecar
from headgate.identity.authority import make_signer, new_root, sign
from headgate.identity.credentials import Credentials
from headgate.identity.issuers import LIFETIME, CertificateSpec
from headgate.latest import Latest
from headgate.model.identities import Credential, PrivateText
from headgate.plane.expected_proxies import HostProxies
from headgate.plane.feed import Feed, snapshot_of
from headgate.plane.inspector import ConfigQuery, Inspector
from headgate.plane.live_state import LiveState
from headgate.plane.loop import Loop
from headgate.plane.mesh_state import HostState
from headgate.resources.inspect import ObjectName, ProxyProcess, ProxyStatus
from headgate.resources.meta import Key, Object, timestamp
from headgate.settings import Settings
from headgate.standalone.store.memory import MemoryStore
from headgate.xds.fleet import Fleet

GATEWAY = Node(id="gateway", proxy_address="127.0.0.1", proxy_port=15001)
SERVER = ObjectName(namespace="default", name="server")
SERVER_POD = Key("", "Pod", "default", "server")
SPLIT = split("web", {"one": 1})
SHARES = "outbound/default/web/8080"
NOW = 1_800_000_000.0


class Host:
    """A host without proxy processes and pods."""

    def processes(self) -> Mapping[str, ProxyProcess]:
        return {}

    async def state(self) -> HostState:
        return HostState()

    async def pods(self, _namespace: str) -> Sequence[Object]:
        return ()

    async def probe_events(self) -> Sequence[Object]:
        return ()

    def decide(self, pod: Object, around: PodNamespace) -> InjectionDecision:
        return decide(pod, "labelled", around)


class InspectorRig:
    """A mesh with a gateway and a sidecar, both in sync."""

    def __init__(self) -> None:
        objects = [*backed_service("web", ("server", "10.1.0.1")), *backed_service("one", ("server", "10.1.0.1"))]
        result = compiled(*objects, meshed_pod("server", "10.1.0.1"), SPLIT)
        credential = Credential(chain="chain", key=PrivateText("key"), roots="roots")
        fleet, memo = Fleet(), Memo()
        self.clients: dict[str, XdsClient] = {}
        for node in (GATEWAY, *map(sidecar, result.mesh.workloads)):
            proxy = fleet.expect(node.id)
            proxy.config.set(encode(project(result.mesh, node, credential), memo))
            self.clients[node.id] = XdsClient(proxy)
            self.clients[node.id].take()
        store = MemoryStore()
        feed = Feed(store)
        credentials = Credentials(FakeIssuer(Time()), Time().schedule())
        loop = Loop(Latest(None), fleet, HostProxies([GATEWAY]), Settings(), credentials)
        feed.snapshot.set(Snapshot())
        loop.compiled.set(result)
        self.inspector = Inspector(LiveState(store, feed, loop, fleet), Host(), clock=lambda: NOW)

    def outdate(self, node_id: str) -> XdsClient:
        """Change the shares in a proxy's configuration, without an acknowledgment."""
        client = self.clients[node_id]
        outdate(client.proxy, ENDPOINTS, SHARES)
        return client

    def statuses(self) -> Mapping[str, ProxyStatus]:
        return {proxy.node: proxy.status for proxy in self.inspector.proxies()}


@pytest.fixture
def rig() -> InspectorRig:
    return InspectorRig()


def test_a_proxy_that_acknowledged_everything_is_in_sync(rig: InspectorRig) -> None:
    assert {node: status.state for node, status in rig.statuses().items()} == {
        "gateway": "InSync",
        "sidecar/default/server": "InSync",
    }


async def test_a_certificate_shows_when_it_was_issued(rig: InspectorRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate is valid from five minutes before its issue."""
    spec = CertificateSpec(identity="spiffe://cluster.local/ns/default/sa/default")
    leaf = sign(make_signer(new_root("cluster.local", NOW), "test"), spec, NOW, LIFETIME)
    credential = Credential(chain=leaf.chain, key=leaf.key, roots="roots", issued=NOW)
    monkeypatch.setattr(Loop, "credential_of", lambda _loop, _node: credential)
    certificate = rig.statuses()["gateway"].certificate
    assert certificate is not None
    assert (certificate.issue_time, certificate.not_before_time) == (timestamp(NOW), timestamp(NOW - 300))
    assert (await rig.inspector.status()).status.certificates.oldest_issue_time == timestamp(NOW)


async def test_a_proxy_that_has_not_answered_is_lagging(rig: InspectorRig) -> None:
    rig.outdate("gateway").proxy.timestamps.record_sent("1", NOW - 7)
    status = rig.statuses()["gateway"]
    assert (status.state, status.message) == ("Lagging", "the proxy has not answered for 7 s")
    messages = [problem.message for problem in (await rig.inspector.status()).status.problems]
    assert f"gateway is lagging: {status.message}" in messages


def test_a_refused_resource_is_shown_with_envoys_message_and_its_object(rig: InspectorRig) -> None:
    rig.outdate("gateway").take(refuse={(ENDPOINTS, SHARES): "no such locality"})
    status = rig.statuses()["gateway"]
    assert (status.state, status.message) == ("Refused", f"{SHARES}: no such locality")
    assert [str(refusal.object) for refusal in status.refusals] == ["TrafficSplit default/web"]


async def test_a_disconnected_proxy_keeps_its_last_configuration(rig: InspectorRig) -> None:
    rig.clients["gateway"].leave()
    assert rig.statuses()["gateway"].state == "Disconnected"
    assert not (await rig.inspector.status()).status.healthy


async def test_a_disconnected_proxy_of_a_deleted_pod_is_no_problem(rig: InspectorRig) -> None:
    deleted = meshed_pod("server", "10.1.0.1")
    deleted["metadata"]["deletionTimestamp"] = timestamp(NOW)
    rig.inspector.live_state.feed.snapshot.set(snapshot_of({SERVER_POD: deleted}))
    rig.clients["sidecar/default/server"].leave()
    status = rig.statuses()["sidecar/default/server"]
    assert (status.state, status.serves, status.message) == ("Disconnected", False, "its pod is being deleted")
    assert (await rig.inspector.status()).status.healthy


async def test_a_disconnected_proxy_is_a_problem_if_its_pod_outlives_its_deletion(rig: InspectorRig) -> None:
    """The node of such a pod is cut off, and the proxy may still serve with old configuration."""
    deleted = meshed_pod("server", "10.1.0.1")
    deleted["metadata"]["deletionTimestamp"] = timestamp(NOW - 31)
    rig.inspector.live_state.feed.snapshot.set(snapshot_of({SERVER_POD: deleted}))
    rig.clients["sidecar/default/server"].leave()
    status = rig.statuses()["sidecar/default/server"]
    assert (status.serves, status.message) == (True, "the proxy has no xDS stream, and keeps its last configuration")
    assert not (await rig.inspector.status()).status.healthy


@pytest.mark.parametrize("holds", [True, False])
def test_a_proxy_has_the_wanted_versions_of_all_types_when_it_is_in_sync(rig: InspectorRig, *, holds: bool) -> None:
    if not holds:
        rig.outdate("sidecar/default/server")
    proxy = rig.inspector.proxy(SERVER)
    assert proxy
    assert all(one.version == one.held_version for one in proxy.status.types) is holds
    assert rig.inspector.proxy(ObjectName(namespace="default", name="other")) is None


async def test_a_configuration_has_the_state_and_the_object_of_each_resource(rig: InspectorRig) -> None:
    rig.outdate("sidecar/default/server")
    found = await rig.inspector.config(ConfigQuery(SERVER, "endpoints", content=True))
    assert found
    states = {resource.name: resource.state for resource in found.resources}
    assert states.pop(SHARES) == "Pending"
    assert set(states.values()) == {"Held"}
    shares = next(resource for resource in found.resources if resource.name == SHARES)
    assert str(shares.object) == "TrafficSplit default/web"
    assert shares.content
    assert await rig.inspector.config(ConfigQuery(ObjectName(namespace="default", name="other"))) is None
