"""Meshes with one Service and up to three backends, and requests to it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.differential.backends import Member, Responder, ask
from tests.ports import free_port
from tests.wire import Address

from headgate.model.routing import (
    Endpoint,
    Endpoints,
    Frontend,
    Mesh,
    PortRef,
    Protocol,
    Route,
    RouteTable,
    Split,
    Target,
)

HOST = "web.shop"
BACKENDS = 3


class RenderedShop:
    """The Service `shop/web` with backends, each of which is one member."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.port = free_port()
        self.members = members
        self.refs = [PortRef(f"shop/web-{number}", self.port) for number in range(len(members))]

    def target(self, number: int, weight: int = 1, **more: Any) -> Target:
        return Target(ref=self.refs[number], weight=weight, **more)

    def mesh(self, *routes: Route, protocol: Protocol = Protocol.HTTP) -> Mesh:
        return Mesh(
            domain="cluster.local",
            frontends=(Frontend(service="shop/web", ports=(self.port,)),),
            tables=(RouteTable(ref=PortRef("shop/web", self.port), routes=routes, protocol=protocol),),
            endpoints=tuple(
                Endpoints(ref=ref, ready=(Endpoint(address="127.0.0.1", port=member.port),))
                for ref, member in zip(self.refs, self.members, strict=True)
            ),
        )

    def divided(self, *targets: Target, **more: Any) -> Mesh:
        """Return a mesh whose only route has a split."""
        return self.mesh(Route(split=Split(targets=targets, **more)))

    async def counted(self, count: int, *, clients: int = 1, head: bytes = b"", **options: Any) -> Counter[Responder]:
        """Send `count` requests from each of several clients at the same time; return the number by responder."""
        head = head or f"GET / HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode()
        where = Address("127.0.0.1", self.port)
        tallies = await asyncio.gather(*(ask(where, head, count, **options) for _ in range(clients)))
        return sum((tally.counted for tally in tallies), Counter[Responder]())


@asynccontextmanager
async def shop() -> AsyncIterator[RenderedShop]:
    """Run the backends of a RenderedShop."""
    members = [await Member(number).start() for number in range(BACKENDS)]
    try:
        yield RenderedShop(members)
    finally:
        for member in members:
            member.close()
