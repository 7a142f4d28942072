"""The objects that are queued after a change, and their order."""

from collections.abc import Iterable

from tests.compiler.pods import compiled, obj, pod, service
from tests.xds.client import Client, outdate

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.envoy.config import LISTENER, ROUTES, SCOPES
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import Node, project, sidecar
from headgate.kinds import GATEWAY as GROUP
from headgate.kinds import MESH, SPLIT
from headgate.model.identities import Credential, PrivateText
from headgate.plane.status.conditions import StatusInputs, split_status
from headgate.plane.status.receipts import MAX_NAMED, AckStates, Receipts
from headgate.plane.status.work_queue import Observation, ReportIndex, StatusQueue
from headgate.resources.meta import Key
from headgate.xds.fleet import Fleet

CREDENTIAL = Credential(chain="chain", key=PrivateText("key"), roots="roots")
GATEWAY = Node(id="gateway", proxy_address="127.0.0.1", proxy_port=15001)
WEB, OTHER = Key(SPLIT, "TrafficSplit", "default", "web"), Key(SPLIT, "TrafficSplit", "default", "other")
STRICT = Key(MESH, "TLSConfig", "default", "strict")
CLIENT = "sidecar/default/client"


def split(name: str, v1: int) -> object:
    backends = [{"service": "v1", "weight": v1}, {"service": "v2", "weight": 100 - v1}]
    return obj("TrafficSplit", name, spec={"service": name, "backends": backends})


class World:
    """A queue, and the proxies of a mesh that tests build step by step."""

    def __init__(self) -> None:
        self.fleet, self.queue = Fleet(), StatusQueue([(SPLIT, "TrafficSplit"), (MESH, "TLSConfig")])
        self._cache, self._memo = AckStates(), Memo()
        self.build()
        self.clients = {node_id: Client(proxy) for node_id, proxy in self.fleet.proxies.items()}
        for client in self.clients.values():
            client.take()
        self.queue.observe(self.observation())
        assert set(self.queued()) == {WEB, OTHER, STRICT}

    def build(self, *, v1: int = 90, more: Iterable[object] = ()) -> None:
        """Compile the objects, and configure every proxy; `v1` is a weight of the split `web`."""
        named = [item for name in ("web", "other", "v1", "v2") for item in service(name, ("", "10.1.0.1"))]
        tls = obj("TLSConfig", "strict", spec={"selector": {"matchLabels": {"app": "client"}}})
        client = pod("client", "10.1.0.9", account="client", labels={"app": "client"})
        found = compiled(*named, split("web", v1), split("other", 50), tls, client, *more)
        self.reports = ReportIndex(found)
        self._memo.begin_build()
        for node in (GATEWAY, *map(sidecar, found.mesh.workloads)):
            config = encode(project(found.mesh, node, CREDENTIAL), self._memo)
            self.fleet.expect(node.id).config.set(config)

    def observation(self, *findings: Finding) -> Observation:
        receipts = Receipts(self.fleet.connected(), self._cache)
        return Observation(self.reports, receipts, {item.about: (item,) for item in findings})

    def queued(self, *findings: Finding) -> list[Key]:
        """Observe the proxies and these findings; return the queued objects in order."""
        self.queue.observe(self.observation(*findings))
        return [key for key, _ in iter(self.queue.next, None)]


def test_no_object_is_queued_when_nothing_changed() -> None:
    world = World()
    assert world.queued() == []
    world.build()
    assert world.queued() == []


def test_an_object_with_a_changed_report_is_queued() -> None:
    world = World()
    world.build(v1=80)
    assert world.queued() == [WEB]


def test_a_new_or_resolved_finding_queues_its_object() -> None:
    world = World()
    finding = Finding(about=OTHER, reason=Reason.ENVOY_REJECTED, field="", message="bad")
    assert world.queued(finding) == [OTHER]
    assert world.queued(finding) == []
    assert world.queued() == [OTHER]


def test_a_finding_before_the_first_observation_queues_its_object() -> None:
    """R75. If headgate starts with an unusable key, the first observation has findings about the pods."""
    world, client = World(), Key("", "Pod", "default", "client")
    finding = Finding(client, Reason.IDENTITY_UNAVAILABLE, "", "the key can't be read")
    queue = StatusQueue([(SPLIT, "TrafficSplit")])
    queue.observe(world.observation(finding))
    found = [item[0] for item in iter(queue.next, None)]
    assert client in found


def test_an_unacknowledged_route_queues_the_split_of_the_route() -> None:
    world = World()
    outdate(world.fleet.proxies[GATEWAY.id], ROUTES, "outbound/default/web/8080")
    assert world.queued() == [WEB]
    Client(world.fleet.proxies[GATEWAY.id]).take()
    assert world.queued() == [WEB]
    assert world.queued() == []


def test_a_changed_gateway_does_not_wait_for_the_statuses_of_its_routes() -> None:
    """Also when it is queued again after the delay of its number of attached routes."""
    queue, edge = World().queue, Key(GROUP, "Gateway", "default", "edge")
    routes = [Key(GROUP, "HTTPRoute", "default", f"route-{number}") for number in range(3)]
    queue.touch(routes)
    queue.touch([edge])
    assert [key for key, _ in iter(queue.next, None)] == [edge, *routes]


EDGE = obj(
    "Gateway",
    "edge",
    spec={"gatewayClassName": "headgate", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]},
    status={"addresses": [{"type": "IPAddress", "value": "10.1.0.8"}]},
)


def route(name: str, host: str, *backends: str) -> object:
    rule = {"backendRefs": [{"name": backend, "port": 8080} for backend in backends]}
    return obj("HTTPRoute", name, spec={"parentRefs": [{"name": "edge"}], "hostnames": [host], "rules": [rule]})


def test_a_split_is_in_force_when_the_hosts_of_routes_to_its_root_are_acknowledged_too() -> None:
    world = World()
    world.build(more=[EDGE, route("shop", "shop.example", "web"), route("mall", "mall.example", "other")])
    world.clients[GATEWAY.id].take()
    assert WEB in world.queued()
    outdate(world.fleet.proxies[GATEWAY.id], SCOPES, "gateway/default/edge/80/shop.example")
    assert WEB in (found := world.queued())
    assert OTHER not in found
    inputs = StatusInputs(world.observation().receipts, "")
    web, other = (split_status({"metadata": {}}, world.reports.report(key), inputs) for key in (WEB, OTHER))
    assert web["proxies"] == {"programmed": 0, "total": 1}
    assert other["proxies"] == {"programmed": 2, "total": 2}


def test_an_unacknowledged_host_queues_its_own_routes_and_those_of_wildcards() -> None:
    world = World()
    world.build(more=[EDGE, route("a", "a.example"), route("b", "b.example"), route("any", "*.example")])
    world.clients["gateway"].take()
    world.queued()
    outdate(world.fleet.proxies[GATEWAY.id], SCOPES, "gateway/default/edge/80/a.example")
    assert {key.name for key in world.queued()} == {"a", "any", "edge"}


def test_an_unacknowledged_inbound_listener_queues_the_objects_that_select_the_pod() -> None:
    world = World()
    outdate(world.fleet.proxies[CLIENT], LISTENER, "inbound")
    assert world.queued() == [STRICT]


def test_the_objects_that_changed_last_are_queued_first() -> None:
    world = World()
    world.queue.touch([OTHER])
    world.build(v1=80)
    assert world.queued() == [WEB, OTHER]


def test_a_disconnect_makes_a_full_pass_due_and_changed_objects_precede_the_pass() -> None:
    world = World()
    assert not world.queue.is_pass_due
    world.fleet.proxies[CLIENT].session = None
    assert world.queued() == []
    assert world.queue.is_pass_due
    world.queue.begin_pass()
    world.build(v1=80)
    assert world.queued() == [WEB, STRICT, OTHER]
    assert not world.queue.is_pass_due


def test_a_proxy_with_too_many_unacknowledged_resources_makes_a_full_pass_due() -> None:
    world = World()
    many = [item for number in range(MAX_NAMED) for item in service(f"more-{number}", ("", f"10.2.0.{number}"))]
    world.build(more=many)
    world.clients[GATEWAY.id].receive()
    assert world.queued() == []
    assert world.queue.is_pass_due


def test_a_full_pass_stays_due_even_if_the_proxy_acknowledges_all_resources_first() -> None:
    """Statuses that were computed in between count this proxy as lagging."""
    world = World()
    many = [item for number in range(MAX_NAMED) for item in service(f"more-{number}", ("", f"10.2.0.{number}"))]
    world.build(more=many)
    world.clients[GATEWAY.id].receive()
    world.queued()
    world.clients[GATEWAY.id].take()
    assert world.queued() == []
    assert world.queue.is_pass_due
    world.queue.begin_pass()
    assert set(world.queued()) == {WEB, OTHER, STRICT}
    assert not world.queue.is_pass_due
