"""Several taps at the same time: the proxies that record, and the records that each tap shows."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

import grpc
import pytest
from tests.cli.conftest import plane
from tests.make.objects import meshed_pod, obj, owner_reference
from tests.make.values import compiled

from headgate.envoy import pb
from headgate.envoy.tap import _FIELDS, ALL_REQUESTS
from headgate.latest import until
from headgate.plane.live_state import LiveState
from headgate.plane.tap.taps import TapQuery
from headgate.resources.inspect import TapEvent, TapNotice
from headgate.standalone.store.memory import MemoryStore
from headgate.xds.authentication import StatusError

GATEWAY, WEB, BUYER = "gateway", "sidecar/default/web", "sidecar/default/buyer"
PODS = tuple(
    meshed_pod(name, f"10.1.0.{number}", account=name) for number, name in enumerate(("web", "buyer", "other"), 1)
)
Step = TapEvent | TapNotice


@pytest.fixture
async def live_state() -> LiveState:
    """A mesh of three pods with sidecars."""
    store = MemoryStore()
    for one in PODS:
        await store.create(one)
    found = LiveState(store, *plane(store))
    found.loop.compiled.set(compiled(*PODS))
    return found


def query(name: str) -> TapQuery:
    return TapQuery(kind="Pod", namespace="default", name=name, values=False, limit=10)


@asynccontextmanager
async def tapping(live_state: LiveState, name: str) -> AsyncIterator[AsyncGenerator[Step]]:
    """Tap a pod; yield the stream of events when the pod's sidecar must record requests."""
    events = await live_state.taps.tap(query(name))
    assert events is not None
    async with aclosing(events), asyncio.timeout(60):
        first = asyncio.ensure_future(anext(events))
        await until(lambda: f"sidecar/default/{name}" in live_state.loop.taps.get(), live_state.loop.taps)

        async def steps() -> AsyncGenerator[Step]:
            yield await first
            async for step in events:
                yield step

        try:
            yield steps()
        finally:
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)


def report(node: str, **fields: str) -> bytes:
    """Return a report of one request to a port of the proxy's pod."""
    values = {"side": "server", "port": "8080", "method": "GET", "code": "200-", **fields}
    text = "\n".join(values.get(name, "-") for name in _FIELDS["server"])
    message = pb.ExportLogsServiceRequest()
    part = message.resource_logs.add()
    part.resource.attributes.add(key="node_name").value.string_value = node
    part.scope_logs.add().log_records.add().body.string_value = text
    return message.SerializeToString()


def accept_all(_node: str) -> None:
    """Accept any proxy."""


async def test_proxies_of_the_target_and_then_of_its_callers_record_requests(live_state: LiveState) -> None:
    async with tapping(live_state, "web") as events:
        assert live_state.loop.taps.get() == {GATEWAY: ALL_REQUESTS, WEB: ALL_REQUESTS}
        peer = "spiffe://cluster.local/ns/default/sa/buyer"
        await live_state.taps.export(report(WEB, path="/books", peer=peer), accept_all)
        event = await anext(events)
        assert isinstance(event, TapEvent)
        assert (event.side, event.request.path, event.response.status) == ("Server", "/books", 200)
        assert event.source.identity == peer
        assert live_state.loop.taps.get() == dict.fromkeys((GATEWAY, WEB, BUYER), ALL_REQUESTS)
    assert live_state.loop.taps.get() == {}


async def test_two_taps_show_different_pods_and_end_independently(live_state: LiveState) -> None:
    async with tapping(live_state, "web") as events:
        async with tapping(live_state, "other") as other_events:
            await live_state.taps.export(report(WEB, path="/web"), accept_all)
            await live_state.taps.export(report("sidecar/default/other", path="/other"), accept_all)
            for one, path in ((events, "/web"), (other_events, "/other")):
                event = await anext(one)
                assert isinstance(event, TapEvent)
                assert event.request.path == path
        assert live_state.loop.taps.get() == {GATEWAY: ALL_REQUESTS, WEB: ALL_REQUESTS}


async def test_an_unreadable_or_unauthenticated_report_is_rejected(live_state: LiveState) -> None:
    def stranger(node: str) -> None:
        raise StatusError(grpc.StatusCode.PERMISSION_DENIED, f"the token is not for {node}")

    async with tapping(live_state, "web") as events:
        with pytest.raises(StatusError, match="not for sidecar/default/web"):
            await live_state.taps.export(report(WEB, path="/forged"), stranger)
        with pytest.raises(StatusError, match="not an ExportLogsServiceRequest") as refused:
            await live_state.taps.export(b"\xff", accept_all)
        assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT
        await live_state.taps.export(report(WEB, path="/true"), accept_all)
        event = await anext(events)
        assert isinstance(event, TapEvent)
        assert event.request.path == "/true"


async def test_a_tap_of_a_missing_object_does_not_start(live_state: LiveState) -> None:
    assert await live_state.taps.tap(query("missing")) is None
    assert live_state.loop.taps.get() == {}


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        ("StatefulSet", "apps/v1"),
        ("DaemonSet", "apps/v1"),
        ("Job", "batch/v1"),
        ("ReplicationController", "v1"),
        ("CronJob", "batch/v1"),
    ],
)
async def test_a_tap_of_a_workload_is_one_of_the_pods_that_it_owns(kind: str, version: str) -> None:
    """A CronJob owns pods through Jobs, whatever their names are."""
    store = MemoryStore()
    owner = await store.create(obj(kind, "work", version=version, spec={}))
    if kind == "CronJob":
        reference = owner_reference(owner, controller=True)
        owner = await store.create(obj("Job", "by-hand", version="batch/v1", metadata={"ownerReferences": [reference]}))
    of_owner = {"ownerReferences": [owner_reference(owner, controller=True)]}
    pods = [meshed_pod("worker", "10.1.0.1", metadata=of_owner), meshed_pod("other", "10.1.0.2")]
    for pod in pods:
        await store.create(pod)
    live_state = LiveState(store, *plane(store))
    live_state.loop.compiled.set(compiled(*pods))
    events = await live_state.taps.tap(TapQuery(kind=kind, namespace="default", name="work", values=False, limit=10))
    assert events is not None
    async with aclosing(events), asyncio.timeout(60):
        first = asyncio.ensure_future(anext(events))
        await until(lambda: bool(live_state.loop.taps.get()), live_state.loop.taps)
        recording = live_state.loop.taps.get().keys()
        first.cancel()
        await asyncio.wait({first})
    assert recording == {GATEWAY, "sidecar/default/worker"}
