"""Proxies that misbehave, for example never answer or send invalid requests, do not affect other proxies."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Self

import grpc
import grpc.aio
import pytest

from headgate.envoy import pb
from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ROUTES
from headgate.envoy.encode import Memo, encode
from headgate.envoy.view import Node, project
from headgate.latest import until
from headgate.model.routing import Endpoint, Endpoints, Frontend, Mesh, PortRef, Route, RouteTable, Split, Target
from headgate.plane.status.receipts import Receipts
from headgate.xds import server
from headgate.xds.fleet import Fleet
from headgate.xds.server import METHOD, XdsServer

REF = PortRef("default/website", 8080)
NAME = "outbound/default/website/8080"
CHANGES = 100
DEADLINE_S = 60


def mesh(weight: int, services: int = 1) -> Mesh:
    """Return a mesh with Services: one with a split (`weight` and 1), and unsplit Services that never change."""
    backends = [PortRef("default/website-v1", 8080), PortRef("default/website-v2", 8080)]
    other_refs = [PortRef(f"default/other-{number}", 8080) for number in range(services - 1)]
    split = Split(targets=(Target(ref=backends[0], weight=weight), Target(ref=backends[1], weight=1)))
    places = {ref: (Endpoint(address=f"127.0.1.{index + 1}", port=80),) for index, ref in enumerate(backends)}
    plain = [
        RouteTable(ref=ref, routes=(Route(split=Split(targets=(Target(ref=ref, weight=1),))),)) for ref in other_refs
    ]
    return Mesh(
        domain="cluster.local",
        frontends=tuple(
            Frontend(service=ref.service, address="127.0.2.1", ports=(ref.port,)) for ref in (REF, *other_refs)
        ),
        tables=(RouteTable(ref=REF, routes=(Route(split=split),)), *plain),
        endpoints=tuple(Endpoints(ref=ref, ready=places.get(ref, ())) for ref in (*backends, *other_refs)),
    )


class ServedFleet:
    """A server and its fleet; all proxies get the same mesh."""

    def __init__(self, address: str) -> None:
        self.fleet = Fleet()
        self.address = address
        self._memo = Memo()

    def apply(self, wanted: Mesh) -> None:
        self._memo.begin_build()
        config = encode(project(wanted, Node(id="any")), self._memo)
        for proxy in self.fleet.proxies.values():
            proxy.config.set(config)

    async def settled(self, node: str) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await until(self.fleet.proxies[node].settled, self.fleet.change_count)

    async def sent(self, node: str) -> None:
        """Wait until a proxy is connected and has a response in flight."""
        proxy = self.fleet.proxies[node]
        async with asyncio.timeout(DEADLINE_S):
            await until(
                lambda: proxy.session is not None and bool(proxy.session.subscriptions[CLUSTER].in_flight),
                self.fleet.change_count,
            )


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServedFleet]:
    found = ServedFleet(f"unix:{tmp_path}/xds.sock")
    xds = XdsServer(found.fleet)
    await xds.start(found.address)
    yield found
    await xds.stop()


class AdsClient:
    """A client of delta ADS over gRPC; with `mute` it never answers a response."""

    def __init__(self, node: str, *, mute: bool = False) -> None:
        self.node = node
        self.received: list[pb.DeltaDiscoveryResponse] = []
        self.versions: dict[tuple[str, str], str] = {}
        self._mute = mute
        self._reading: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()  # gRPC allows one write at a time

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reading:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._call.cancel()
            await self._channel.close()

    async def connect(self, address: str, *, initial: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """Open the stream as Envoy does; `initial` has the versions that the proxy reports, by type and name."""
        self._channel = grpc.aio.insecure_channel(address)
        self._call = self._channel.stream_stream(METHOD)()
        for type_url in (CLUSTER, LISTENER):
            await self.request(type_url, initial=(initial or {}).get(type_url, {}))
        self._reading = asyncio.create_task(self._read())

    async def request(self, type_url: str, *names: str, initial: Mapping[str, str] | None = None) -> None:
        """Subscribe to names of a type, or to all of its resources."""
        await self._send(
            pb.DeltaDiscoveryRequest(
                type_url=type_url, resource_names_subscribe=names, initial_resource_versions=initial or {}
            )
        )

    async def send(self, data: bytes) -> None:
        """Send a message."""
        async with self._writing:
            await self._call.write(data)

    async def ended(self) -> grpc.StatusCode:
        """Wait for the end of the stream."""
        async with asyncio.timeout(DEADLINE_S):
            found: grpc.StatusCode = await self._call.code()
        return found

    async def _send(self, request: pb.DeltaDiscoveryRequest) -> None:
        request.node.id = self.node
        await self.send(request.SerializeToString())

    async def _read(self) -> None:
        async for data in self._call:
            response = pb.DeltaDiscoveryResponse.FromString(data)
            self.received.append(response)
            names = [resource.name for resource in response.resources]
            self.versions |= {(response.type_url, resource.name): resource.version for resource in response.resources}
            if not self._mute:
                await self._send(pb.DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce))
                if follows := {CLUSTER: ENDPOINTS, LISTENER: ROUTES}.get(response.type_url):
                    await self.request(follows, *names)


async def test_a_proxy_that_never_answers_does_not_delay_other_proxies(
    served: ServedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.01)
    slow, good = served.fleet.expect("slow"), served.fleet.expect("good")
    served.apply(mesh(1))
    async with AdsClient("slow", mute=True) as mute, AdsClient("good") as other:
        await mute.connect(served.address)
        await mute.request(ENDPOINTS, NAME)
        await mute.request(ROUTES, NAME)
        await other.connect(served.address)
        await served.sent("slow")
        for weight in range(2, CHANGES):
            served.apply(mesh(weight))
            await served.settled("good")
        progress = Receipts(served.fleet.connected()).progress([REF])
        assert progress.holding == 1
        assert progress.lagging == ("slow",)
        assert not slow.settled()
        assert slow.session
        assert all(
            len(subscription.in_flight) <= 17 for subscription in slow.session.subscriptions.values()
        )  # unanswered responses do not accumulate
        assert good.settled()


async def test_responses_for_a_proxy_that_does_not_read_use_limited_memory(
    served: ServedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.01)
    slow = served.fleet.expect("slow")
    served.apply(mesh(1, services=1000))
    channel = grpc.aio.insecure_channel(served.address)
    call = channel.stream_stream(METHOD)()
    try:
        for type_url in (CLUSTER, LISTENER):
            await call.write(pb.DeltaDiscoveryRequest(node=pb.Node(id="slow"), type_url=type_url).SerializeToString())
        await served.sent("slow")
        for weight in range(2, 12):
            served.apply(mesh(weight, services=1000))
            await asyncio.sleep(0)
        async with asyncio.timeout(DEADLINE_S):
            # One of clusters, two of listeners. Then gRPC accepts no more data for this client.
            await until(lambda: served.fleet.counts["overdue"] >= 3, served.fleet.change_count)
        assert slow.session
        in_flight = [
            response
            for subscription in slow.session.subscriptions.values()
            for response in subscription.in_flight.values()
        ]
        # Responses that timed out have no bodies.
        assert sum(any(item.body for _, item in response.resources) for response in in_flight) <= 2
        assert not slow.settled()
    finally:
        call.cancel()
        await channel.close()


async def test_a_proxy_that_reports_old_versions_gets_new_resources_and_removals(
    served: ServedFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REMOVAL_DELAY_S", 0.1)
    served.fleet.expect("old")
    served.apply(mesh(1))
    async with AdsClient("old") as proxy:
        old = {CLUSTER: {NAME: "of-another-release", "outbound/default/gone/80": "1"}, LISTENER: {}}
        await proxy.connect(served.address, initial=old)
        await proxy.request(ENDPOINTS, NAME, initial={NAME: "of-another-release"})
        await proxy.request(ROUTES, NAME)
        await served.settled("old")
        assert {type_url for type_url, _ in proxy.versions} == {CLUSTER, ENDPOINTS, LISTENER, ROUTES}

        def removed() -> list[str]:
            clusters = [response for response in proxy.received if response.type_url == CLUSTER]
            return [name for response in clusters for name in response.removed_resources]

        await until(removed, served.fleet.change_count)
        assert removed() == ["outbound/default/gone/80"]


async def test_a_request_for_an_unknown_type_gets_no_response(served: ServedFleet) -> None:
    served.fleet.expect("new")
    served.apply(mesh(1))
    async with AdsClient("new") as proxy:
        await proxy.connect(served.address)
        await proxy.request("type.googleapis.com/envoy.config.future.v9.Resource", "x", initial={"x": "1"})
        await served.settled("new")
        assert {response.type_url for response in proxy.received} == {CLUSTER, ENDPOINTS, LISTENER, ROUTES}


async def test_an_invalid_request_ends_only_its_own_stream(served: ServedFleet) -> None:
    served.fleet.expect("bad")
    served.fleet.expect("good")
    served.apply(mesh(1))
    async with AdsClient("bad") as bad, AdsClient("good") as good:
        await bad.connect(served.address)
        await good.connect(served.address)
        await served.settled("bad")
        await bad.send(b"\xff\xff\xff no protobuf")
        assert await bad.ended() == grpc.StatusCode.INVALID_ARGUMENT
        served.apply(mesh(2))
        await served.settled("good")


async def test_a_stream_that_begins_with_an_invalid_request_ends_with_invalid_argument(served: ServedFleet) -> None:
    async with grpc.aio.insecure_channel(served.address) as channel:
        call = channel.stream_stream(METHOD)()
        await call.write(b"\xff\xff\xff no protobuf")
        assert await call.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "DeltaDiscoveryRequest" in await call.details()
