"""The objects that are queued after a change, and their order."""

import math
from collections.abc import Iterable

from tests.make.objects import Object, backed_service, gateway, meshed_pod, route, rule, split, tls_config
from tests.make.values import compiled
from tests.xds.client import XdsClient, outdate

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
from headgate.plane.status.work_queue import MAX_MEMBERSHIP_SECONDS, Observation, ReportIndex, StatusQueue
from headgate.resources.meta import Key
from headgate.xds.fleet import Fleet

CREDENTIAL = Credential(chain="chain", key=PrivateText("key"), roots="roots")
GATEWAY = Node(id="gateway", proxy_address="127.0.0.1", proxy_port=15001)
WEB, OTHER = Key(SPLIT, "TrafficSplit", "default", "web"), Key(SPLIT, "TrafficSplit", "default", "other")
STRICT = Key(MESH, "TLSConfig", "default", "strict")
CLIENT = "sidecar/default/client"


class QueueRig:
    """A queue, and the proxies of a mesh that tests build step by step."""

    def __init__(self) -> None:
        self.now = 0.0
        self.fleet = Fleet()
        self.queue = StatusQueue([(SPLIT, "TrafficSplit"), (MESH, "TLSConfig")], clock=lambda: self.now)
        self._cache, self._memo = AckStates(), Memo()
        self.build()
        self.clients = {node_id: XdsClient(proxy) for node_id, proxy in self.fleet.proxies.items()}
        for client in self.clients.values():
            client.take()
        self.queue.observe(self.observation())
        assert set(self.queued()) == {WEB, OTHER, STRICT}

    def build(self, *, v1: int = 90, more: Iterable[object] = ()) -> None:
        """Compile the objects, and configure every proxy; `v1` is a weight of the split `web`."""
        named = [item for name in ("web", "other", "v1", "v2") for item in backed_service(name, ("", "10.1.0.1"))]
        tls = tls_config("strict", {"app": "client"})
        client = meshed_pod("client", "10.1.0.9", account="client", labels={"app": "client"})
        found = compiled(
            *named,
            *(split(name, {"v1": part, "v2": 100 - part}) for name, part in (("web", v1), ("other", 50))),
            tls,
            client,
            *more,
        )
        self.reports = ReportIndex(found)
        self._memo.begin_build()
        for node in (GATEWAY, *map(sidecar, found.mesh.workloads)):
            config = encode(project(found.mesh, node, CREDENTIAL), self._memo)
            self.fleet.expect(node.id).config.set(config)

    def observation(self, *findings: Finding) -> Observation:
        receipts = Receipts(self.fleet.connected(), self._cache)
        return Observation(self.reports, receipts, {item.about: (item,) for item in findings})

    def begin_pass(self) -> None:
        """Begin a full pass that is due after some time without further connections."""
        self.now += MAX_MEMBERSHIP_SECONDS
        self.queue.begin_due_pass()

    def queued(self, *findings: Finding) -> list[Key]:
        """Observe the proxies and these findings; return the queued objects in order."""
        self.queue.observe(self.observation(*findings))
        return [key for key, _ in iter(self.queue.next, None)]


def test_no_object_is_queued_when_nothing_changed() -> None:
    rig = QueueRig()
    assert rig.queued() == []
    rig.build()
    assert rig.queued() == []


def test_an_object_with_a_changed_report_is_queued() -> None:
    rig = QueueRig()
    rig.build(v1=80)
    assert rig.queued() == [WEB]


def test_a_new_or_resolved_finding_queues_its_object() -> None:
    rig = QueueRig()
    finding = Finding(about=OTHER, reason=Reason.ENVOY_REJECTED, field="", message="bad")
    assert rig.queued(finding) == [OTHER]
    assert rig.queued(finding) == []
    assert rig.queued() == [OTHER]


def test_a_finding_before_the_first_observation_queues_its_object() -> None:
    """R75. If headgate starts with an unusable key, the first observation has findings about the pods."""
    rig, client = QueueRig(), Key("", "Pod", "default", "client")
    finding = Finding(client, Reason.IDENTITY_UNAVAILABLE, "", "the key can't be read")
    queue = StatusQueue([(SPLIT, "TrafficSplit")])
    queue.observe(rig.observation(finding))
    found = [item[0] for item in iter(queue.next, None)]
    assert client in found


def test_an_unacknowledged_route_queues_the_split_of_the_route() -> None:
    rig = QueueRig()
    outdate(rig.fleet.proxies[GATEWAY.id], ROUTES, "outbound/default/web/8080")
    assert rig.queued() == [WEB]
    XdsClient(rig.fleet.proxies[GATEWAY.id]).take()
    assert rig.queued() == [WEB]
    assert rig.queued() == []


def test_a_changed_gateway_does_not_wait_for_the_statuses_of_its_routes() -> None:
    """Also when it is queued again after the delay of its number of attached routes."""
    queue, edge = QueueRig().queue, Key(GROUP, "Gateway", "default", "edge")
    routes = [Key(GROUP, "HTTPRoute", "default", f"route-{number}") for number in range(3)]
    queue.touch(routes)
    queue.touch([edge])
    assert [key for key, _ in iter(queue.next, None)] == [edge, *routes]


EDGE = gateway("edge", status={"addresses": [{"type": "IPAddress", "value": "10.1.0.8"}]})


def route_of_host(name: str, host: str, *backends: str) -> Object:
    return route(name, rule(dict.fromkeys(backends, 1)), parents=[{"name": "edge"}], hostnames=[host])


def test_a_split_is_active_when_the_hosts_of_routes_to_its_root_are_acknowledged_too() -> None:
    rig = QueueRig()
    rig.build(more=[EDGE, route_of_host("shop", "shop.example", "web"), route_of_host("mall", "mall.example", "other")])
    rig.clients[GATEWAY.id].take()
    assert WEB in rig.queued()
    outdate(rig.fleet.proxies[GATEWAY.id], SCOPES, "gateway/default/edge/80/shop.example")
    assert WEB in (found := rig.queued())
    assert OTHER not in found
    inputs = StatusInputs(rig.observation().receipts, "")
    web, other = (split_status({"metadata": {}}, rig.reports.report(key), inputs) for key in (WEB, OTHER))
    assert web["proxies"] == {"programmed": 0, "total": 1}
    assert other["proxies"] == {"programmed": 2, "total": 2}


def test_an_unacknowledged_host_queues_its_own_routes_and_those_of_wildcards() -> None:
    rig = QueueRig()
    rig.build(
        more=[EDGE, route_of_host("a", "a.example"), route_of_host("b", "b.example"), route_of_host("any", "*.example")]
    )
    rig.clients["gateway"].take()
    rig.queued()
    outdate(rig.fleet.proxies[GATEWAY.id], SCOPES, "gateway/default/edge/80/a.example")
    assert {key.name for key in rig.queued()} == {"a", "any", "edge"}


def test_an_unacknowledged_inbound_listener_queues_the_objects_that_select_the_pod() -> None:
    rig = QueueRig()
    outdate(rig.fleet.proxies[CLIENT], LISTENER, "inbound")
    assert rig.queued() == [STRICT]


def test_the_objects_that_changed_last_are_queued_first() -> None:
    rig = QueueRig()
    rig.queue.touch([OTHER])
    rig.build(v1=80)
    assert rig.queued() == [WEB, OTHER]


def test_a_disconnect_makes_a_full_pass_due_and_changed_objects_precede_the_pass() -> None:
    rig = QueueRig()
    assert not rig.queue.is_pass_due
    rig.fleet.proxies[CLIENT].session = None
    assert rig.queued() == []
    assert rig.queue.is_pass_due
    rig.begin_pass()
    rig.build(v1=80)
    assert rig.queued() == [WEB, STRICT, OTHER]
    assert not rig.queue.is_pass_due


def test_a_proxy_with_too_many_unacknowledged_resources_makes_a_full_pass_due() -> None:
    rig = QueueRig()
    many = [item for number in range(MAX_NAMED) for item in backed_service(f"more-{number}", ("", f"10.2.0.{number}"))]
    rig.build(more=many)
    rig.clients[GATEWAY.id].receive()
    assert rig.queued() == []
    assert rig.queue.is_pass_due


def test_a_full_pass_stays_due_even_if_the_proxy_acknowledges_all_resources_first() -> None:
    """Statuses that were computed in between count this proxy as lagging."""
    rig = QueueRig()
    many = [item for number in range(MAX_NAMED) for item in backed_service(f"more-{number}", ("", f"10.2.0.{number}"))]
    rig.build(more=many)
    rig.clients[GATEWAY.id].receive()
    rig.queued()
    rig.clients[GATEWAY.id].take()
    assert rig.queued() == []
    assert rig.queue.is_pass_due
    rig.begin_pass()
    assert set(rig.queued()) == {WEB, OTHER, STRICT}
    assert not rig.queue.is_pass_due


def test_an_object_that_is_added_for_later_follows_when_it_is_due() -> None:
    now = [0.0]
    queue = StatusQueue([(SPLIT, "TrafficSplit")], clock=lambda: now[0])
    queue.add(WEB, after=2.0)
    queue.add(WEB, after=5.0)  # the earlier time counts
    queue.add(OTHER, after=3.0)
    queue.take_due()
    assert (queue.is_empty, queue.next_due) == (True, 2.0)
    now[0] = 2.0
    queue.take_due()
    assert (queue.next(), queue.next(), queue.next_due) == ((WEB, False), None, 1.0)
    queue.touch([OTHER])  # the status is computed before it is due
    assert (queue.next(), queue.next_due) == ((OTHER, False), math.inf)
    queue.add(WEB, after=1.0)
    queue.forget(WEB)
    now[0] = 9.0
    queue.take_due()
    assert queue.next() is None
