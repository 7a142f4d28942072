"""A DNS server and its clients, as UDP traffic of tests."""

import asyncio
from typing import Self

import dns.message
import dns.rdatatype
from tests.protocols import FREE_PORT
from tests.wire import DEADLINE_S, Address, Network

TEXT_BYTES = 255  # of one string in a TXT record
LARGEST = 65_535  # bytes of a message


class DnsServer(asyncio.DatagramProtocol):
    """A DNS server in the test's process: it answers every query with its name, in a TXT record, and counts the queries.

    `padding` is a number of strings of 255 bytes in front of the name.
    """

    def __init__(self, network: Network, name: str, at: Address = FREE_PORT) -> None:
        self.name, self.queries, self.padding = name, 0, 0
        self._network = network
        self._transport = network.run(self._listen(at))
        self.address = Address(*self._transport.get_extra_info("sockname"))

    async def _listen(self, at: Address) -> asyncio.DatagramTransport:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=at)
        self._network.opened.add(transport)
        return transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.queries += 1
        query = dns.message.from_wire(data)
        texts = " ".join([f'"{"x" * TEXT_BYTES}"'] * self.padding + [f'"{self.name}"'])
        response = dns.message.make_response(query)
        response.answer = [dns.rrset.from_text(query.question[0].name, 60, "IN", "TXT", texts)]
        self._transport.sendto(response.to_wire(max_size=LARGEST), addr)


class DnsClient(asyncio.DatagramProtocol):
    """A client with one UDP port, so that its queries belong to one session of a proxy."""

    def __init__(self, network: Network, server: Address) -> None:
        self._network = network
        self._responses: asyncio.Queue[bytes] = asyncio.Queue()
        self._transport = network.run(self._open(server))

    async def _open(self, server: Address) -> asyncio.DatagramTransport:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: self, remote_addr=server)
        self._network.opened.add(transport)
        return transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:  # noqa: ARG002  # the client has one server
        self._responses.put_nowait(data)

    def send(self, *, padding: int = 0) -> None:
        """Send a query without waiting for the response; `padding` is a number of bytes in it."""
        query = dns.message.make_query("shop.example", dns.rdatatype.TXT, use_edns=0, pad=padding)
        self._network.loop.call_soon_threadsafe(self._transport.sendto, query.to_wire(max_size=LARGEST))

    def ask(self, *, padding: int = 0) -> str:
        """Send a query; return the name of the server that answered it."""
        self.send(padding=padding)
        return self._network.run(self._response())

    async def _response(self) -> str:
        async with asyncio.timeout(DEADLINE_S):
            message = dns.message.from_wire(await self._responses.get())
        (record,) = message.answer[0]
        return bytes(record.strings[-1]).decode()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the port."""
        self._network.loop.call_soon_threadsafe(self._transport.close)
