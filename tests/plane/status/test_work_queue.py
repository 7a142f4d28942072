"""Which objects are judged next, and which are left alone."""

from collections.abc import Iterable

from tests.compiler.pods import compiled, obj, pod, service
from tests.xds.client import Client, outdate

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.envoy.config import LISTENER, ROUTES
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import Node, project, sidecar
from headgate.kinds import MESH, SPLIT
from headgate.model.identities import Credential, PrivateText
from headgate.plane.status.receipts import MOST, AckStates, Receipts
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
    """An agenda, and the proxies of a mesh that is built by hand."""

    def __init__(self) -> None:
        self.fleet, self.agenda = Fleet(), StatusQueue([(SPLIT, "TrafficSplit"), (MESH, "TLSConfig")])
        self._standings, self._memo = AckStates(), Memo()
        self.build()
        self.clients = {node_id: Client(proxy) for node_id, proxy in self.fleet.proxies.items()}
        for client in self.clients.values():
            client.take()
        self.agenda.take(self.look())
        assert set(self.judged()) == {WEB, OTHER, STRICT}

    def build(self, *, v1: int = 90, more: Iterable[object] = ()) -> None:
        """Compile, and give every proxy its part; `v1` is a weight of the split `web`."""
        named = [item for name in ("web", "other", "v1", "v2") for item in service(name, ("", "10.1.0.1"))]
        tls = obj("TLSConfig", "strict", spec={"selector": {"matchLabels": {"app": "client"}}})
        client = pod("client", "10.1.0.9", account="client", labels={"app": "client"})
        found = compiled(*named, split("web", v1), split("other", 50), tls, client, *more)
        self.reported = ReportIndex(found)
        self._memo.begin_build()
        for node in (GATEWAY, *map(sidecar, found.mesh.workloads)):
            config = encode(project(found.mesh, node, CREDENTIAL), self._memo)
            self.fleet.expect(node.id).config.set(config)

    def look(self, *findings: Finding) -> Observation:
        receipts = Receipts(self.fleet.connected(), self._standings)
        return Observation(self.reported, receipts, {item.about: (item,) for item in findings})

    def judged(self, *findings: Finding) -> list[Key]:
        """Take a look; return what is judged, in order."""
        self.agenda.take(self.look(*findings))
        return [key for key, _ in iter(self.agenda.next, None)]


def test_nothing_is_judged_when_nothing_changed() -> None:
    world = World()
    assert world.judged() == []
    world.build()
    assert world.judged() == []


def test_what_a_build_says_otherwise_is_judged() -> None:
    world = World()
    world.build(v1=80)
    assert world.judged() == [WEB]


def test_a_finding_that_comes_or_goes_is_about_its_object() -> None:
    world = World()
    finding = Finding(about=OTHER, reason=Reason.ENVOY_REJECTED, field="", message="bad")
    assert world.judged(finding) == [OTHER]
    assert world.judged(finding) == []
    assert world.judged() == [OTHER]


def test_a_finding_that_is_there_before_the_first_look_is_about_its_object_too() -> None:
    """R75: a headgate that starts with a key it can't use says so on the pods."""
    world, client = World(), Key("", "Pod", "default", "client")
    finding = Finding(client, Reason.IDENTITY_UNAVAILABLE, "", "the key can't be read")
    agenda = StatusQueue([(SPLIT, "TrafficSplit")])
    agenda.take(world.look(finding))
    found = [item[0] for item in iter(agenda.next, None)]
    assert client in found


def test_what_a_proxy_lags_with_leads_to_the_objects_that_decide_for_it() -> None:
    world = World()
    outdate(world.fleet.proxies[GATEWAY.id], ROUTES, "outbound/default/web/8080")
    assert world.judged() == [WEB]
    Client(world.fleet.proxies[GATEWAY.id]).take()
    assert world.judged() == [WEB]
    assert world.judged() == []


def test_what_pods_take_leads_to_what_selects_them() -> None:
    world = World()
    outdate(world.fleet.proxies[CLIENT], LISTENER, "inbound")
    assert world.judged() == [STRICT]


def test_what_was_touched_last_comes_first() -> None:
    world = World()
    world.agenda.touch([OTHER])
    world.build(v1=80)
    assert world.judged() == [WEB, OTHER]


def test_proxies_that_come_and_go_make_a_round_over_all_due_and_changes_overtake_it() -> None:
    world = World()
    assert not world.agenda.is_round_due
    world.fleet.proxies[CLIENT].session = None
    assert world.judged() == []
    assert world.agenda.is_round_due
    world.agenda.begin_round()
    world.build(v1=80)
    assert world.judged() == [WEB, OTHER, STRICT]
    assert not world.agenda.is_round_due


def test_one_that_lags_with_far_too_much_to_name_makes_a_round_due_too() -> None:
    world = World()
    many = [item for number in range(MOST) for item in service(f"more-{number}", ("", f"10.2.0.{number}"))]
    world.build(more=many)
    world.clients[GATEWAY.id].receive()
    assert world.judged() == []
    assert world.agenda.is_round_due
