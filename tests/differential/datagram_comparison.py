"""Compare the backends that datagrams to a UDP port of the Gateway reach with those that the model expects."""

import asyncio
from collections import Counter
from urllib.parse import quote

from tests.differential.backends import CLOSED, Responder
from tests.differential.envoy_lab import SETTLED_S
from tests.differential.gateway_lab import GatewayLab
from tests.differential.routing_expectation import disagreement, expected
from tests.differential.worlds import Sent
from tests.wire import Address

from headgate.model.routing import GatewayPort, Mesh

CLIENTS, SIGMAS = 24, 6
"""The number of clients, each with a session, and the allowed deviation. A proxy has a limit of sessions."""


class _Client(asyncio.DatagramProtocol):
    """A client that counts the responses by the member in them."""

    def __init__(self, counted: Counter[Responder]) -> None:
        self._counted = counted

    def datagram_received(self, data: bytes, _addr: tuple[str, int]) -> None:
        self._counted[data.decode()] += 1


def misdirected(lab: GatewayLab, mesh: Mesh, port: GatewayPort, sent: Sent) -> str:
    """Send a datagram from each of some clients; return how the responders differ from the model."""
    wanted = expected(mesh, sent, name_of=lab.member, draws=lab.draws)
    counted = lab.network.run(_counted(lab, Address(port.address, port.port)))
    return disagreement(wanted, counted, sigmas=SIGMAS)


async def _counted(lab: GatewayLab, where: Address) -> Counter[Responder]:
    """Return how many clients each member answered; CLOSED stands for the proxy, which drops their datagrams."""
    loop, counted, before = asyncio.get_running_loop(), Counter[Responder](), await _dropped(lab)
    opened = [await loop.create_datagram_endpoint(lambda: _Client(counted), remote_addr=where) for _ in range(CLIENTS)]
    try:
        for transport, _ in opened:
            transport.sendto(b"ask")
        async with asyncio.timeout(SETTLED_S):
            while counted.total() + (dropped := await _dropped(lab) - before) < CLIENTS:
                await asyncio.sleep(0.005)  # poll until each datagram is answered or dropped
    finally:
        for transport, _ in opened:
            transport.close()
    return counted + Counter({CLOSED: dropped})


async def _dropped(lab: GatewayLab) -> int:
    page = await lab.envoy.admin.get_json(f"/stats?format=json&filter={quote(r'^udp.*downstream_sess_no_route$')}")
    return sum(int(counter["value"]) for counter in page["stats"] if "name" in counter)
