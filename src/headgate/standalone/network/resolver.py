"""The resolver of the pods: answers for names of Services, and forwards all other queries to the machine's resolvers."""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import cast

import dns.asyncquery
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.resolver
import dns.rrset
from dns.message import Message, QueryMessage

from headgate.errors import HeadgateError
from headgate.objects.ports import Relist, Store, follow
from headgate.resources.meta import Key, Object
from headgate.resources.registry import key_of
from headgate.standalone.network.records import Records, records_of

DNS_PORT = 53
_TTL_S = 5  # as kube-dns: programs see a new address soon
_FORWARD_S = 1.5  # seconds to wait for one of the machine's resolvers; programs send their query again after 5 s (resolv.conf(5))
_MOST_FORWARDS = 500  # each has a socket
_IDLE_S = 10.0  # seconds until a TCP connection without a query is closed
_MOST_STREAMS = 100
_UDP_BYTES = 512  # of an answer to a client that declares no size
_MOST_ALIASES = 8
_SERVICES, _SLICES = ("", "Service"), ("discovery.k8s.io", "EndpointSlice")

log = logging.getLogger(__name__)


def answer(query: Message, records: Records) -> Message | None:
    """Return the answer to a query about a name in the domain of the records; None for any other query.

    An alias that leads out of the domain is the last record of the answer.
    """
    question = query.question[0]
    name = question.name.to_text(omit_final_dot=True).lower()
    if question.rdclass != dns.rdataclass.IN or not records.covers(name):
        return None
    response = dns.message.make_response(query)
    response.flags |= dns.flags.AA | dns.flags.RA
    for _ in range(_MOST_ALIASES):
        if not (target := records.aliases.get(name)):
            break
        _add(response, name, "CNAME", (f"{target}.",))
        name = target
    if records.covers(name):
        _add(response, name, *_values(name, question.rdtype, records))
        if name not in records.names:
            response.set_rcode(dns.rcode.NXDOMAIN)
    return response


def _values(name: str, kind: int, records: Records) -> tuple[str, Collection[str]]:
    if kind == dns.rdatatype.A:
        return "A", records.addresses.get(name, ())
    if kind == dns.rdatatype.SRV:
        targets = records.services.get(name, ())
        return "SRV", [f"0 {100 // len(targets)} {target.port} {target.name}." for target in targets]
    return "A", ()  # a name without records of this type


def _add(response: Message, name: str, kind: str, values: Collection[str]) -> None:
    if values:
        response.answer.append(dns.rrset.from_text_list(f"{name}.", _TTL_S, "IN", kind, values))


def _failure(query: Message) -> Message:
    response = dns.message.make_response(query)
    response.flags |= dns.flags.RA
    response.set_rcode(dns.rcode.SERVFAIL)
    return response


def _ipv4(kind: socket.SocketKind) -> socket.socket:
    return socket.socket(socket.AF_INET, kind)


class Resolver:
    """Serves DNS on an address, from the Services of a store. `forwarders` returns the addresses of the machine's resolvers."""

    def __init__(self, store: Store, domain: str, forwarders: Callable[[], Collection[str]]) -> None:
        self._store = store
        self._domain = domain
        self._forwarders = forwarders
        self._objects: dict[tuple[str, str], dict[Key, Object]] = {_SERVICES: {}, _SLICES: {}}
        self._records: Records | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._forwards = self._streams = 0
        self._has_failed = False

    async def follow(self) -> None:
        """Use each change to Services and EndpointSlices, until canceled."""
        async with asyncio.TaskGroup() as tasks:
            for kind in self._objects:
                tasks.create_task(self._follow(kind))

    @contextlib.asynccontextmanager
    async def serving(
        self, address: str, port: int = DNS_PORT, *, create_socket: Callable[[socket.SocketKind], socket.socket] = _ipv4
    ) -> AsyncIterator[None]:
        """Serve UDP and TCP during the context, by sockets of `create_socket`. Raises HeadgateError."""
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as stack:
            try:
                datagrams = stack.enter_context(create_socket(socket.SOCK_DGRAM))
                streams = stack.enter_context(create_socket(socket.SOCK_STREAM))
                streams.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                for opened in (datagrams, streams):
                    opened.settimeout(0)
                    opened.bind((address, port))
                transport, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self), sock=datagrams)
                stack.callback(transport.close)
                await stack.enter_async_context(await asyncio.start_server(self._serve_stream, sock=streams))
            except OSError as error:
                raise HeadgateError(
                    f"the resolver of the pods can't listen on {address}, port {port}: {os.strerror(error.errno or 0)}; stop the "
                    f"program that listens on the port (`ss -lnp 'sport = :{port}'`), or use --network host"
                ) from error
            yield

    async def resolve(self, wire: bytes) -> Message | None:
        """Return the answer to a query; None if it is malformed. An error is an answer too, so that no object stops all names."""
        try:
            query = dns.message.from_wire(wire)
        except dns.exception.DNSException:
            return None
        if not isinstance(query, QueryMessage) or len(query.question) != 1 or query.flags & dns.flags.QR:
            return None
        try:
            response = answer(query, self._current())
            return await (self._forward(query) if response is None else self._completed(response, query))
        except Exception:
            if not self._has_failed:
                log.exception("a name can't be resolved; further such errors are not logged")
            self._has_failed = True
            return _failure(query)

    def start(self, work: "asyncio.Task[None]") -> None:
        """Keep a task until it is done."""
        self._tasks.add(work)
        work.add_done_callback(self._tasks.discard)

    async def _follow(self, kind: tuple[str, str]) -> None:
        objects = self._objects[kind]
        async for step in follow(self._store, *kind):
            if isinstance(step, Relist):
                objects.clear()
                objects.update({key_of(obj): obj for obj in step.items})
            elif step.type == "DELETED":
                objects.pop(step.key, None)
            else:
                objects[step.key] = step.object
            self._records = None

    def _current(self) -> Records:
        if self._records is None:
            services, slices = (self._objects[kind].values() for kind in (_SERVICES, _SLICES))
            self._records = records_of(services, slices, self._domain)
        return self._records

    async def _completed(self, response: Message, query: Message) -> Message:
        """Resolve an alias that leads out of the domain."""
        last = response.answer[-1] if response.answer else None
        if last is None or last.rdtype != dns.rdatatype.CNAME or query.question[0].rdtype == dns.rdatatype.CNAME:
            return response
        target: dns.name.Name = last[0].target
        if self._current().covers(target.to_text(omit_final_dot=True).lower()):
            return response
        outside = await self._forward(dns.message.make_query(target, query.question[0].rdtype))
        response.answer += outside.answer
        response.set_rcode(outside.rcode())
        return response

    async def _forward(self, query: Message) -> Message:
        if self._forwards >= _MOST_FORWARDS:
            return _failure(query)
        self._forwards += 1
        try:
            for forwarder in self._forwarders():
                try:
                    response, _ = await dns.asyncquery.udp_with_fallback(query, forwarder, timeout=_FORWARD_S)
                except (dns.exception.DNSException, OSError, ValueError) as error:  # ValueError: it is no address
                    log.info("the resolver %s does not answer: %s", forwarder, error)
                else:
                    return response
        finally:
            self._forwards -= 1
        return _failure(query)

    async def _serve_stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._streams += 1
        try:
            with contextlib.closing(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while self._streams <= _MOST_STREAMS and await self._answer_stream(reader, writer):
                    pass
        finally:
            self._streams -= 1

    async def _answer_stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer the next query of a TCP connection; return whether it was a query. Raises TimeoutError if none comes."""
        async with asyncio.timeout(_IDLE_S):
            length = int.from_bytes(await reader.readexactly(2), "big")
            query = await reader.readexactly(length)
        response = await self.resolve(query)
        if response is None:
            return False
        wire = response.to_wire(prefer_truncation=True)
        async with asyncio.timeout(_IDLE_S):
            writer.write(len(wire).to_bytes(2, "big") + wire)
            await writer.drain()
        return True


class _Datagrams(asyncio.DatagramProtocol):
    """Answers queries over UDP."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._transport: asyncio.DatagramTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for the answers."""
        self._transport = cast("asyncio.DatagramTransport", transport)  # uvloop's own type

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        """Answer a query."""
        self._resolver.start(asyncio.create_task(self._answer(data, address), name="DNS"))

    async def _answer(self, data: bytes, address: tuple[str, int]) -> None:
        if response := await self._resolver.resolve(data):
            size = max(dns.message.from_wire(data).payload, _UDP_BYTES)
            self._transport.sendto(response.to_wire(max_size=size, prefer_truncation=True), address)


def machine_resolvers(path: Path = Path("/etc/resolv.conf")) -> list[str]:
    """Return the addresses of the machine's resolvers, read again at each call, because a machine changes its network."""
    words = (line.split() for line in path.read_text(errors="replace").splitlines()) if path.exists() else ()
    return [line[1] for line in words if len(line) > 1 and line[0] == "nameserver"]
