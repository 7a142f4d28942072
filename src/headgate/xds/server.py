"""The gRPC side of ADS: moves bytes between streams and their sessions, and nothing else."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType

# Read at import; without it each process that is started costs a warning, and each stranger's handshake a line.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import grpc
import grpc.aio

from headgate.envoy.config import LISTENER
from headgate.errors import ProxyError
from headgate.latest import Latest
from headgate.model.identities import Credential
from headgate.xds.fleet import Ending, Fleet, Turn, Turns
from headgate.xds.gate import Admitted, Gate, TurnedAway
from headgate.xds.proofs import Proofs, Remembered
from headgate.xds.session import Request, Session, read_request, write_response
from headgate.xds.shelf import Response

METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
RETRY_SECONDS = 5.0  # between two offers of a listener whose address was in use
ANSWER_SECONDS = 5.0  # after that nothing waits for a proxy's answer; the status says that it lags
PRIVATE_MODE = 0o600
MOST_PENDING = 10_000  # streams that have begun and whose first request is not read yet
FIRST_SECONDS = 10.0  # in which a stream must say who it is
CLOCK_SECONDS = 60.0  # between two looks at the clock, which jumps when a laptop wakes up
OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.http2.bdp_probe", 0),  # a ping for each acknowledgement: a fifth of gRPC's processor time
    ("grpc.http2.lookahead_bytes", 2**20),  # what a proxy holds of one type comes without waiting for a larger window
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.server.max_pending_requests", MOST_PENDING),  # gRPC refuses streams beyond 1,000 at random
    ("grpc.server.max_pending_requests_hard_limit", 2 * MOST_PENDING),
    ("grpc.keepalive_time_ms", 60_000),  # a proxy whose machine is gone is noticed
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_ping_strikes", 0),  # Envoy pings a quiet stream every 30 s, which gRPC takes for an attack
)

log = logging.getLogger(__name__)

Prove = Callable[[str], Awaitable[float]]
"""Returns until when (seconds since the epoch) the caller has proven to be the proxy of a node id. Raises TurnedAway."""
Answer = Callable[[bytes, Prove], Awaitable[bytes]]
"""Answers a request to a method; before it believes who sent it, it lets him prove it. May raise TurnedAway."""


class XdsServer:
    """Serves delta ADS on one address to proxies that prove who they are, and other methods (`beside`) with it.

    Without `proofs` it serves whoever can open its unix socket.
    """

    def __init__(
        self, fleet: Fleet, proofs: Proofs | None = None, *, beside: Mapping[str, Answer] = MappingProxyType({})
    ) -> None:
        self._gate = Gate(fleet, proofs)
        self._fleet = fleet
        self._beside = _Beside(beside, Gate(fleet, Remembered(proofs) if proofs else None))
        self._proven = proofs is not None
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str, certificate: Latest[Credential] | None = None) -> int:
        """Listen on `unix:/path`, or with TLS on `host:port`; return the port, which was chosen if 0 was given.

        The certificate (its `roots` don't matter) may be renewed: the next handshake shows the new one. Raises ProxyError
        when the address can't be had.
        """
        is_private = address.startswith("unix:")
        if not is_private and not (certificate and self._proven):
            raise ProxyError(f"{address} is open to others: it needs a certificate, and proofs of who comes")
        server = grpc.aio.server(options=OPTIONS)
        server.add_generic_rpc_handlers((_Ads(self._fleet, self._gate), self._beside))
        try:
            if is_private or not certificate:
                port = _add_private(server, address)
            else:
                port = server.add_secure_port(address, _Shown(certificate).credentials())
        except RuntimeError as error:
            await server.stop(grace=None)
            raise ProxyError(f"can't listen for proxies on {address}: {error}") from error
        await server.start()
        self._server = server
        return int(port)

    async def stop(self) -> None:
        """End all streams; the proxies keep what they have and come back."""
        if self._server:
            await self._server.stop(grace=None)


def _add_private(server: grpc.aio.Server, address: str) -> int:
    """Listen on a unix socket that nobody but its user can open."""
    port = int(server.add_insecure_port(address))
    Path(address.removeprefix("unix:")).chmod(PRIVATE_MODE)
    return port


class _Shown:
    """The server's certificate, as each handshake asks for it (in a thread of gRPC's)."""

    def __init__(self, certificate: Latest[Credential]) -> None:
        self._certificate = certificate
        self._last = certificate.get()

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(self._configuration(), self._renewed)

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the certificate if it is another one than before. One that can't be used leaves the old one in use."""
        if self._certificate.get() is self._last:
            return None
        self._last = self._certificate.get()
        return self._configuration()

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        pair = self._last.key.reveal().encode(), self._last.chain.encode()
        return grpc.ssl_server_certificate_configuration([pair])


class _Ads(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc ships no types
    def __init__(self, fleet: Fleet, gate: Gate) -> None:
        self._fleet = fleet
        self._gate = gate
        self._turns = Turns()

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return the handler of the one method that is served."""
        if call.method != METHOD:
            return None

        async def serve(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> None:
            if status := await self._ended(aiter(requests), context):
                await context.abort(*status)  # a proxy that reads nothing can hold this up: by now it costs nothing

        return grpc.stream_stream_rpc_method_handler(serve)

    async def _ended(
        self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext
    ) -> tuple[grpc.StatusCode, str] | None:
        """Serve a stream to its end; return the status when it is headgate that ends it."""
        try:
            await self._serve(requests, context)
        except TurnedAway as turned:
            return turned.code, str(turned)
        return None

    async def _serve(self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> None:
        """Serve a stream until its proxy hangs up. Raises TurnedAway with the status when headgate ends it."""
        try:
            async with asyncio.timeout(FIRST_SECONDS):
                first = await anext(requests, None)
        except TimeoutError:
            raise TurnedAway(grpc.StatusCode.DEADLINE_EXCEEDED, "the stream does not say whose it is") from None
        if first is None:
            return
        admitted = await self._gate.admit(first, _authorization(context))
        await _Stream(self._fleet, self._turns, admitted, context).serve(requests)


class _Beside(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc ships no types
    """Methods with one request and one answer."""

    def __init__(self, answers: Mapping[str, Answer], gate: Gate) -> None:
        self._answers = answers
        self._gate = gate

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return the handler of a method that is served."""
        answer = self._answers.get(call.method)
        if answer is None:
            return None

        async def serve(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
            try:
                return await answer(request, lambda node_id: self._gate.prove(node_id, _authorization(context)))
            except TurnedAway as turned:
                await context.abort(turned.code, str(turned))
                raise

        return grpc.unary_unary_rpc_method_handler(serve)


def _authorization(context: grpc.aio.ServicerContext) -> list[str]:
    return [str(value) for key, value in context.invocation_metadata() or () if key == "authorization"]


class _Stream:
    """One proxy's stream. Whatever happens to it calls `_wake`, and what the session then has to send is sent.

    The task that reads is gRPC's own; one that sends lives as long as there is something to send.
    """

    def __init__(self, fleet: Fleet, turns: Turns, admitted: Admitted, context: grpc.aio.ServicerContext) -> None:
        self._fleet = fleet
        self._turn = Turn(turns, self._follow)
        self._proxy, request, self._ends = admitted
        self._context = context
        self._session = Session()
        self._session.receive(request)
        self._seen = 0  # the session's count of changes when it last said what to send
        self._loop = asyncio.get_running_loop()
        self._sent: dict[str, float] = {}  # nonce -> when the answer is overdue
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._sending: asyncio.Task[None] | None = None
        self._reading = asyncio.current_task()
        self._status: TurnedAway | None = None

    async def serve(self, requests: AsyncIterator[bytes]) -> None:
        """Send until the proxy hangs up. Raises TurnedAway when the stream is ended."""
        self._proxy.attach(self._session, self._drop, self._follow)
        self._proxy.answers.connected = time.time()
        self._fleet.counts["streams"] += 1
        self._fleet.bump()
        log.info("proxy %s connected", self._proxy.id)
        self._look_at_clock()
        self._wake()
        try:
            async for data in requests:
                self._take(data)
        except asyncio.CancelledError:
            if not self._status or self._is_cancelled_by_others():
                raise
        finally:
            for timer in self._timers.values():
                timer.cancel()
            if self._sending:
                self._sending.cancel()
            self._turn.dispense()
            self._proxy.detach(self._session)
            self._fleet.bump()
            log.info("proxy %s disconnected", self._proxy.id)
        if self._status:
            raise self._status

    def _is_cancelled_by_others(self) -> bool:
        return self._reading is not None and self._reading.uncancel() > 0

    def _follow(self) -> None:
        """Send what another configuration takes; not now, so that a bug here does not stop the one who publishes."""
        if self._sending is None:
            self._send([])

    def _wake(self) -> None:
        """Send what there is to send, if nothing is being sent already."""
        if self._sending is None and (responses := self._due()):
            self._send(responses)

    def _send(self, responses: list[Response]) -> None:
        self._sending = self._loop.create_task(self._write(responses), name=f"xds send {self._proxy.id}")

    async def _write(self, responses: list[Response]) -> None:
        """Send responses, and what there is to send after them."""
        try:
            while responses := responses or self._due():
                for response in responses:
                    await self._context.write(write_response(response))
                responses = []
        except grpc.aio.BaseError as error:  # gRPC ends the task that reads
            log.debug("proxy %s can't be written to: %s", self._proxy.id, error)
        except Exception:
            log.exception("the stream of proxy %s ends by a bug", self._proxy.id)
            self._end(grpc.StatusCode.INTERNAL, "headgate has a bug; its log says more")
        finally:
            self._sending = None

    def _due(self) -> list[Response]:
        session = self._session
        if self._status or not self._offered() or session.changes == self._seen or not self._turn.take():
            return []
        responses = session.advance()
        self._seen = session.changes
        if not responses and self._turn.is_needed and not session.is_waiting:
            is_done = session.shelves[LISTENER].spoken and self._proxy.settled()
            (self._turn.dispense if is_done else self._turn.rest)()
        if responses:
            due, now = time.monotonic() + ANSWER_SECONDS, time.time()
            for response in responses:
                self._sent[response.nonce] = due
                self._proxy.answers.send(response.nonce, now)
            self._set_timer("answers", ANSWER_SECONDS, self._look_at_answers)
        return responses

    def _offered(self) -> bool:
        """Offer the session what the proxy is to hold; say whether there is anything yet.

        A session that was offered nothing would take away all that its proxy has.
        """
        config = self._proxy.config.get()
        if config is not None and config is not self._session.config:
            self._session.offer(config)
            self._fleet.bump()
        return config is not None

    def _set_timer(self, name: str, seconds: float, work: Callable[[], None]) -> None:
        """Do something after a while, unless that is to be done already."""

        def run() -> None:
            del self._timers[name]
            work()

        if name not in self._timers:
            self._timers[name] = self._loop.call_later(max(0.0, seconds), run)

    def _look_at_answers(self) -> None:
        """Wait no longer for answers that are overdue."""
        now = time.monotonic()
        overdue = [nonce for nonce, due in self._sent.items() if due <= now]
        for nonce in overdue:
            log.warning("proxy %s has not answered in %.0f s", self._proxy.id, ANSWER_SECONDS)
            self._session.lapse(nonce)
            self._fleet.counts["overdue"] += 1
            del self._sent[nonce]
        if self._sent:
            self._set_timer("answers", min(self._sent.values()) - now, self._look_at_answers)
        if overdue:
            self._check_size()
            self._fleet.bump()
            self._wake()

    def _retry(self) -> None:
        """Offer refused listeners again."""
        if self._session.retry():
            self._wake()
            self._set_timer("retry", RETRY_SECONDS, self._retry)

    def _take(self, data: bytes) -> None:
        try:
            _, request = read_request(data)
        except ProxyError as error:
            self._end(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            return
        for rejected in self._session.receive(request):
            log.warning("proxy %s refused %s: %s", self._proxy.id, rejected.name, rejected.message)
            self._proxy.answers.rejected = rejected, time.time()
        self._sent.pop(request.nonce, None)
        if request.nonce:
            self._note_answer(request)
        if request.subscribe or request.initial:
            self._check_size()
        self._wake()
        self._fleet.bump()

    def _note_answer(self, request: Request) -> None:
        self._proxy.answers.sent.pop(request.nonce, None)
        self._fleet.counts["acks" if request.error is None else "nacks"] += 1
        if request.error is None:
            self._proxy.answers.acknowledged[request.type_url] = time.time()
        else:
            self._set_timer("retry", RETRY_SECONDS, self._retry)

    def _check_size(self) -> None:
        if self._session.is_overgrown:
            message = "this stream is about more names than a proxy has: come back and say what is held and wanted"
            self._end(grpc.StatusCode.RESOURCE_EXHAUSTED, message)

    def _end(self, code: grpc.StatusCode, message: str) -> None:
        """End the stream with a status."""
        if self._status is None:
            self._status = TurnedAway(code, message)
            if self._reading:
                self._reading.cancel()

    def _drop(self, ending: Ending) -> None:
        forgotten = ending is Ending.FORGOTTEN
        self._end(grpc.StatusCode.NOT_FOUND if forgotten else grpc.StatusCode.ABORTED, ending.value)

    def _look_at_clock(self) -> None:
        """End the stream with the proof."""
        left = self._ends - time.time()
        if left > 0:
            self._set_timer("clock", min(left, CLOCK_SECONDS), self._look_at_clock)
        else:
            self._end(grpc.StatusCode.UNAUTHENTICATED, "the token of this stream has ended: come back with a new one")
