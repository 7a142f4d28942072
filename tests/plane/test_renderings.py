"""A revision renders the configurations of its proxies, and the active control plane serves them with what it knows about secrets."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec
import pytest
from tests.identity.fakes import FakeIssuer, Time
from tests.make.objects import endpoint_slice, meshed_pod, service, split
from tests.xds.client import XdsClient

from headgate.envoy.config import CLUSTER, ENDPOINTS, SCOPES, SECRET
from headgate.errors import ProxyError, Unavailable
from headgate.identity.credentials import Credentials
from headgate.latest import Latest, until
from headgate.model.routing import PortRef
from headgate.plan.planning import PlanSpec
from headgate.plane.expected_proxies import HostProxies
from headgate.plane.feed import Feed
from headgate.plane.inspector import Inspector
from headgate.plane.live_state import LiveState
from headgate.plane.loop import Loop
from headgate.plane.mesh_state import HostState
from headgate.plane.plans import planned
from headgate.plane.renderings import (
    CONTRACT,
    EXPLAIN_PATH,
    RENDERED,
    ConfigRenderer,
    ExplainRequest,
    ReceivedSets,
    RenderRequest,
    RenderResponse,
    contract_of,
)
from headgate.plane.revisions import RevisionFollower
from headgate.plane.status.receipts import Progress, Receipts, shared
from headgate.plane.write_warnings import warnings_before_write
from headgate.resources.core.pod_metadata import REVISION
from headgate.resources.explanations import ExplanationStatus
from headgate.resources.inspect import ProxyProcess
from headgate.resources.meta import Key, Object
from headgate.resources.request_spec import RequestSpec
from headgate.settings import Settings
from headgate.standalone.store.memory import MemoryStore
from headgate.xds.fleet import Fleet, FleetProxy

FIRST, SECOND, OTHER = (f"sidecar/default/{name}" for name in ("client-1", "client-2", "other"))
HOST = HostProxies()


class Rig:
    """An active control plane's loop, and a revision with a feed of its own, on one store."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.feed, self.revision_feed = Feed(self.store), Feed(self.store)
        self.fleet = Fleet()
        self.credentials = Credentials(FakeIssuer(Time()), Time().schedule())
        self.loop = Loop(self.feed.snapshot, self.fleet, HOST, Settings(), self.credentials)
        self.renderer = ConfigRenderer("next", self.revision_feed, HOST, Settings())
        self.installed = Latest(frozenset({"next"}))
        self.answers = True
        self.contract = CONTRACT
        self.follower = RevisionFollower(self.loop, self.feed, self.installed, self.call)
        self.failures, self.hangs_s = 0, 0.0
        self.follower.clock = lambda: self.failures * self.hangs_s

    async def call(self, revision: str, path: str, body: bytes) -> bytes:
        if revision != "next" or not self.answers:
            self.failures += 1
            raise Unavailable("connection refused")
        if path == EXPLAIN_PATH:
            explained = await self.renderer.explain(msgspec.msgpack.decode(body, type=ExplainRequest))
            return msgspec.json.encode(explained)
        if self.contract != CONTRACT:
            return msgspec.msgpack.encode({"contract": self.contract, "proxies": "of another form"})
        return msgspec.msgpack.encode(await self.renderer.render(body))

    @property
    def live_state(self) -> LiveState:
        """The state of the active control plane."""
        return LiveState(self.store, self.feed, self.loop, self.fleet)

    async def current(self, node_id: str) -> FleetProxy:
        """Wait until a proxy has a configuration for the newest objects; return the proxy."""
        await self.feed.wait_until_current()
        snapshot = self.feed.snapshot.get()
        assert snapshot

        def is_current() -> bool:
            compiled = self.loop.compiled.get()
            return compiled is not None and compiled.revision >= snapshot.revision and node_id in self.fleet.proxies

        await until(is_current, self.loop.compiled)
        proxy = self.fleet.proxies[node_id]
        await until(
            lambda: proxy.config.get() is not None and not proxy.is_behind, proxy.config, self.fleet.change_count
        )
        return proxy


class NoHost:
    """A host without proxy processes and pods."""

    def processes(self) -> Mapping[str, ProxyProcess]:
        return {}

    async def state(self) -> HostState:
        return HostState()

    async def pods(self, _namespace: str) -> Sequence[Object]:
        return ()

    async def probe_events(self) -> Sequence[Object]:
        return ()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    for obj in (
        service("web", clusterIP="10.96.0.1"),
        service("web-v1", clusterIP="10.96.0.2"),
        service("web-v2", clusterIP="10.96.0.3"),
        endpoint_slice("web-v1", ["10.1.0.8"], {"http": 8080}),
        endpoint_slice("web-v2", ["10.1.0.9"], {"http": 8080}),
        split("web", {"web-v1": 1, "web-v2": 1}),
        meshed_pod("client-1", "10.1.0.1", annotations={REVISION: "next"}),
        meshed_pod("client-2", "10.1.0.2", annotations={REVISION: "next"}),
        meshed_pod("other", "10.1.0.3"),
    ):
        stored = await rig.store.create(obj)
        if "status" in obj:
            await rig.store.update({**stored, "status": obj["status"]}, subresource="status")
    rig.follower.begin()
    work = (rig.feed.run(), rig.revision_feed.run(), rig.credentials.run(), rig.loop.run(), rig.follower.run())
    tasks = [asyncio.create_task(each) for each in work]
    yield rig
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_proxy_of_a_revision_gets_what_the_revision_renders_with_its_own_secrets(rig: Rig) -> None:
    """Equal versions render equal resources. Those that proxies share stay the same objects, so deltas are shared too."""
    first, second, other = [await rig.current(node) for node in (FIRST, SECOND, OTHER)]
    for type_url in (CLUSTER, ENDPOINTS, SCOPES):
        own, default = (shared(proxy.config.get() or {}, type_url) for proxy in (first, other))
        assert own == default != {}
        assert own is shared(second.config.get() or {}, type_url) is not default
    secrets = [(proxy.config.get() or {})[SECRET] for proxy in (first, other)]
    assert secrets[0].keys() == secrets[1].keys()
    assert secrets[0] != secrets[1]


async def test_a_change_is_programmed_when_the_revision_has_rendered_it(rig: Rig) -> None:
    """While the revision does not answer, its proxy keeps its configuration, counts as lagging, and delays no other proxy."""
    port = PortRef("default/web", 8080)
    proxies = [await rig.current(node) for node in (FIRST, SECOND, OTHER)]
    clients = [XdsClient(proxy) for proxy in proxies]
    for client in clients:
        client.take()
    assert Receipts(proxies).progress([port]) == Progress(holding=3)

    rig.answers = False
    before = proxies[0].config.get()
    changed = await rig.store.get(Key("split.smi-spec.io", "TrafficSplit", "default", "web"))
    await rig.store.update({**changed, "spec": split("web", {"web-v1": 3, "web-v2": 1})["spec"]})
    await rig.current(OTHER)
    clients[2].take()
    assert Receipts(proxies).progress([port]) == Progress(holding=1, lagging=(FIRST, SECOND))
    assert proxies[0].config.get() is before
    await until(lambda: "next" in rig.follower.problems.get(), rig.follower.problems)
    assert rig.follower.problems.get() == {"next": "connection refused"}

    rig.answers = True
    for node, client in ((FIRST, clients[0]), (SECOND, clients[1])):
        await rig.current(node)
        client.take()
    assert Receipts(proxies).progress([port]) == Progress(holding=3)
    assert shared(proxies[0].config.get() or {}, ENDPOINTS) == shared(proxies[2].config.get() or {}, ENDPOINTS)
    await until(lambda: not rig.follower.problems.get(), rig.follower.problems)


async def test_a_request_is_explained_by_the_revision_of_its_proxy(rig: Rig) -> None:
    """While the revision does not answer, the default one explains it and says so."""
    await rig.current(FIRST)
    inspector = Inspector(rig.live_state, NoHost(), explain_by_revision=rig.follower.explain)

    async def explanation(**caller: str) -> ExplanationStatus:
        return await inspector.explain(RequestSpec(url="http://web:8080/", **caller))

    own, default = [await explanation(caller=f"pod/{name}") for name in ("client-1", "other")]
    assert (own.revision, own.revision_message) == ("next", "")
    assert (default.revision, default.revision_message) == ("", "")
    assert own.backends == default.backends
    assert (await explanation()).revision == ""  # the gateway's request

    rig.answers = False
    fallback = await explanation(caller="pod/client-2")
    assert fallback.revision == ""
    assert fallback.revision_message == (
        "by the default revision, because next, which configures the caller's proxy, does not: connection refused"
    )
    assert fallback.backends == own.backends


async def test_plans_and_warnings_say_that_other_proxies_have_other_rules(rig: Rig) -> None:
    await rig.current(FIRST)
    plan = await planned(rig.live_state, PlanSpec())
    assert plan.revision_message == (
        "by the rules of the default revision; the revision next configures proxies in default"
    )
    old = await rig.store.get(Key("split.smi-spec.io", "TrafficSplit", "default", "web"))
    new = {**old, "spec": split("web", {"web-v1": 3, "web-v2": 1})["spec"]}
    *_, effect = await warnings_before_write(rig.live_state, old, new, dry_run=False)
    assert effect.startswith("effect on requests and access, by the default revision's rules: ")
    rig.installed.set(frozenset())
    await until(lambda: not rig.loop.renderings.get().revisions, rig.loop.renderings)
    assert (await planned(rig.live_state, PlanSpec())).revision_message == ""


async def test_the_default_revision_configures_the_proxies_of_a_revision_that_does_not_answer_for_long(
    rig: Rig,
) -> None:
    """Otherwise they would call endpoints that are gone. The problem is named all the time, and the revision returns."""
    before = await rig.current(FIRST)
    rendered = shared(before.config.get() or {}, CLUSTER)
    rig.answers = False
    rig.follower.fallback_s = 0.0
    await rig.store.create(service("later", clusterIP="10.96.0.4"))
    await until(lambda: not rig.loop.renderings.get().revisions, rig.loop.renderings)
    proxy, other = [await rig.current(node) for node in (FIRST, OTHER)]
    await until(
        lambda: shared(proxy.config.get() or {}, CLUSTER) is shared(other.config.get() or {}, CLUSTER), proxy.config
    )
    assert rig.follower.problems.get() == {"next": "connection refused"}
    rig.answers = True
    await until(lambda: rig.loop.renderings.get().revisions == {"next"}, rig.loop.renderings)
    await until(lambda: shared(proxy.config.get() or {}, CLUSTER).keys() > rendered.keys(), proxy.config)
    await until(
        lambda: shared(proxy.config.get() or {}, CLUSTER) is not shared(other.config.get() or {}, CLUSTER), proxy.config
    )
    await until(lambda: not rig.follower.problems.get(), rig.follower.problems)


async def test_the_time_in_which_a_revision_hangs_counts_from_the_request(rig: Rig) -> None:
    """A request fails when the revision has hung for a minute: its proxies wait no second one."""
    await rig.current(FIRST)
    rig.hangs_s = rig.follower.fallback_s
    rig.answers = False
    await rig.store.create(service("later", clusterIP="10.96.0.4"))
    await until(lambda: not rig.loop.renderings.get().revisions, rig.loop.renderings)
    assert rig.failures == 1


async def test_a_revision_of_another_contract_is_never_replaced(rig: Rig) -> None:
    """Its sidecars may not understand what the default revision renders, even while it does not answer at all."""
    await rig.current(FIRST)
    rig.follower.fallback_s = 0.0
    rig.contract = CONTRACT + 1
    await rig.store.create(service("later", clusterIP="10.96.0.4"))
    await until(lambda: "next" in rig.follower.problems.get(), rig.follower.problems)
    assert rig.follower.problems.get()["next"].startswith(f"it speaks version {CONTRACT + 1} of the protocol")
    assert rig.loop.renderings.get().revisions == {"next"}
    rig.answers = False
    await until(lambda: rig.follower.problems.get()["next"] == "connection refused", rig.follower.problems)
    assert rig.loop.renderings.get().revisions == {"next"}


async def test_the_default_revision_ends_its_service_for_a_revision_that_returns_with_another_contract(
    rig: Rig,
) -> None:
    """As after an upgrade of the revision that took longer than the fallback."""
    await rig.current(FIRST)
    rig.follower.fallback_s = 0.0
    rig.answers = False
    await rig.store.create(service("later", clusterIP="10.96.0.4"))
    await until(lambda: not rig.loop.renderings.get().revisions, rig.loop.renderings)
    rig.answers, rig.contract = True, CONTRACT + 1
    await until(lambda: rig.loop.renderings.get().revisions == {"next"}, rig.loop.renderings)
    rig.contract = CONTRACT
    await until(lambda: not rig.follower.problems.get(), rig.follower.problems)
    proxy = await rig.current(FIRST)
    assert any("later" in name for name in (proxy.config.get() or {})[CLUSTER])


def test_messages_name_their_contract_before_the_rest_is_read() -> None:
    """A default would be omitted, so each version would take another one's message for its own."""
    for message in (RenderRequest(contract=CONTRACT), RenderResponse(contract=CONTRACT)):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(message)) == {"contract": CONTRACT}
    assert contract_of(msgspec.msgpack.encode({"contract": 7, "proxies": 1, "later": None})) == 7


async def test_a_revision_answers_a_client_of_another_contract_with_its_own(rig: Rig) -> None:
    """The request may be of another form."""
    answer = await rig.renderer.render(msgspec.msgpack.encode({"contract": CONTRACT + 1, "changed": "all"}))
    assert answer == RenderResponse(contract=CONTRACT)


async def test_a_revision_that_does_not_answer_delays_no_other_one(rig: Rig) -> None:
    dead = meshed_pod("dead-1", "10.1.0.4", annotations={REVISION: "dead"})
    stored = await rig.store.create(dead)
    await rig.store.update({**stored, "status": dead["status"]}, subresource="status")
    rig.installed.set(frozenset({"next", "dead"}))
    await until(lambda: rig.follower.problems.get() == {"dead": "connection refused"}, rig.follower.problems)
    await rig.store.create(service("later", clusterIP="10.96.0.4"))
    proxy = await rig.current(FIRST)
    assert any("later" in name for name in (proxy.config.get() or {})[CLUSTER])
    await until(lambda: "sidecar/default/dead-1" in rig.fleet.proxies, rig.loop.compiled)
    assert rig.fleet.proxies["sidecar/default/dead-1"].config.get() is None


async def test_proxies_of_a_removed_revision_get_the_configuration_of_the_default_one(rig: Rig) -> None:
    await rig.current(FIRST)
    rig.installed.set(frozenset())
    proxy, other = [await rig.current(node) for node in (FIRST, OTHER)]
    await until(
        lambda: shared(proxy.config.get() or {}, CLUSTER) is shared(other.config.get() or {}, CLUSTER), proxy.config
    )


def test_a_response_that_lacks_its_resources_is_refused() -> None:
    """Also from a revision that lies: the active control plane serves all other proxies."""
    pairs = dict.fromkeys(RENDERED, ("shared", "own"))
    with pytest.raises(ProxyError, match="lacks 2 of 2 sets"):
        ReceivedSets().take(RenderResponse(contract=CONTRACT, proxies={FIRST: pairs}))


async def test_a_revision_with_another_protocol_renders_nothing(rig: Rig) -> None:
    rig.contract = CONTRACT + 1
    await until(lambda: "next" in rig.follower.problems.get(), rig.follower.problems)
    assert rig.follower.problems.get()["next"].startswith(f"it speaks version {CONTRACT + 1} of the protocol")
    await rig.current(OTHER)
    assert rig.fleet.proxies[FIRST].config.get() is None
