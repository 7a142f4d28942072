"""The gRPC server of ADS: moves bytes between streams and their sessions, and serves some unary methods."""

import asyncio
import logging
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import grpc
import grpc.aio

from headgate.envoy.config import LISTENER
from headgate.errors import ProxyError
from headgate.latest import Latest
from headgate.model.identities import Credential
from headgate.xds.authentication import (
    AuthenticatedStream,
    Authenticator,
    CachingVerifier,
    CallOrigin,
    StatusError,
    TokenVerifier,
)
from headgate.xds.fleet import EndReason, Fleet
from headgate.xds.messages import DeltaRequest, read_request, write_response
from headgate.xds.send_slots import SendSlot, SendSlots
from headgate.xds.session import Session
from headgate.xds.subscription import Response
from headgate.xds.unary_methods import UnaryMethod, UnaryService, first_request

METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
RETRY_SECONDS = 5.0  # pause between two attempts to add a listener whose address was in use
LONGEST_DRAIN_S = 60.0  # streams without a server to reconnect to are kept for at most this long
REMOVAL_DELAY_S = 11.0  # two attempts of a request take at most so long until the last is made (`envoy.clusters`)
ANSWER_SECONDS = 5.0  # time after which a response without ACK or NACK times out
REPORT_SECONDS = 0.2  # time after which a reconnected proxy should have requested all types; it does so at once
PRIVATE_MODE = 0o600
MAX_PENDING_STREAMS = 10_000  # streams whose first request is not read yet
# A proxy has one stream and a few calls. Further streams wait in the client, so that no client's streams delay another's.
MAX_STREAMS_OF_CONNECTION = 32
FIRST_REQUEST_SECONDS = 10.0  # time after which headgate ends a stream without a request
# Longest time between two checks of a token's expiry. A clock jumps when a laptop wakes up.
EXPIRY_CHECK_SECONDS = 60.0
OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.http2.bdp_probe", 0),  # a ping for each ACK would take a fifth of gRPC's processor time
    ("grpc.http2.lookahead_bytes", 2**16),  # what gRPC holds of a call's request until it is authenticated
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_concurrent_streams", MAX_STREAMS_OF_CONNECTION),
    ("grpc.server.max_pending_requests", MAX_PENDING_STREAMS),  # by default gRPC rejects streams beyond 1,000 at random
    ("grpc.server.max_pending_requests_hard_limit", 2 * MAX_PENDING_STREAMS),
    ("grpc.max_connection_idle_ms", 60_000),  # without a call: a proxy has a stream
    ("grpc.keepalive_time_ms", 60_000),  # detects a proxy whose machine is gone
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_ping_strikes", 0),  # Envoy pings an idle stream every 30 s; gRPC would count that as abuse
)

log = logging.getLogger(__name__)


class XdsServer:
    """Serves delta ADS, and some unary methods, to authenticated proxies on one address.

    Without a verifier it serves every process that can open its Unix socket.
    """

    def __init__(
        self,
        fleet: Fleet,
        verifier: TokenVerifier | None = None,
        *,
        unary_methods: Mapping[str, UnaryMethod] = MappingProxyType({}),
    ) -> None:
        self._authenticator = Authenticator(fleet, verifier)
        self._fleet = fleet
        caching = Authenticator(fleet, CachingVerifier(verifier) if verifier else None)
        self._unary_service = UnaryService(unary_methods, caching)
        self._slots = SendSlots()
        self._draining: asyncio.Future[None] | None = None
        self._verifies = verifier is not None
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str, certificate: Latest[Credential] | None = None) -> int:
        """Listen on `unix:/path`, or with TLS on `host:port`; return the port, which gRPC chooses when 0 is given.

        `certificate` may be renewed: the next handshake uses the new one. Its `roots` are ignored. Raises ProxyError when
        the server can't listen on the address.
        """
        is_private = address.startswith("unix:")
        if not is_private and not (certificate and self._verifies):
            raise ProxyError(f"{address} is reachable from other hosts: it needs a certificate and a token verifier")
        server = grpc.aio.server(options=OPTIONS)
        server.add_generic_rpc_handlers(
            (_AdsService(self._fleet, self._authenticator, self._slots), self._unary_service)
        )
        try:
            if is_private or not certificate:
                port = _listen_on_socket(server, address)
            else:
                port = server.add_secure_port(address, _ServerCertificate(certificate).credentials())
        except RuntimeError as error:
            await server.stop(grace=None)
            raise ProxyError(f"can't listen for proxies on {address}: {error}") from error
        await server.start()
        self._server = server
        return int(port)

    def drain(self) -> None:
        """Accept no connection, stream or call any more, until `stop`. Open streams stay, and calls in progress fail."""
        self._unary_service.drain()
        if self._server and not self._draining:
            self._draining = asyncio.ensure_future(self._server.stop(LONGEST_DRAIN_S))

    async def stop(self) -> None:
        """End all streams. Proxies keep their configuration and reconnect."""
        self._slots.close()
        if self._server:
            await self._server.stop(grace=None)
        if self._draining:
            await self._draining


def _listen_on_socket(server: grpc.aio.Server, address: str) -> int:
    """Listen on a Unix socket that only its owner can open."""
    port = int(server.add_insecure_port(address))
    Path(address.removeprefix("unix:")).chmod(PRIVATE_MODE)
    return port


class _ServerCertificate:
    """Gives gRPC the server's certificate, on one of gRPC's threads, for each handshake."""

    def __init__(self, certificate: Latest[Credential]) -> None:
        self._certificate = certificate
        self._last = certificate.get()

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(self._configuration(), self._renewed)

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the certificate if it has changed. gRPC continues with the old one if the new one is unusable."""
        if self._certificate.get() is self._last:
            return None
        self._last = self._certificate.get()
        return self._configuration()

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        pair = self._last.key.reveal().encode(), self._last.chain.encode()
        return grpc.ssl_server_certificate_configuration([pair])


class _AdsService(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc ships no types
    def __init__(self, fleet: Fleet, authenticator: Authenticator, slots: SendSlots) -> None:
        self._fleet = fleet
        self._authenticator = authenticator
        self._slots = slots

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return the handler of `METHOD`, None for other methods."""
        if call.method != METHOD:
            return None

        async def serve(requests: AsyncIterable[bytes], context: grpc.aio.ServicerContext) -> None:
            if status := await self._final_status(requests, context):
                # This waits for a proxy that does not read. The stream's state is already released.
                await context.abort(*status)

        return grpc.stream_stream_rpc_method_handler(serve)

    async def _final_status(
        self, requests: AsyncIterable[bytes], context: grpc.aio.ServicerContext
    ) -> tuple[grpc.StatusCode, str] | None:
        """Serve a stream until it ends; return a status when headgate ends it."""
        try:
            await self._serve(requests, context)
        except StatusError as ended:
            return ended.code, str(ended)
        return None

    async def _serve(self, messages: AsyncIterable[bytes], context: grpc.aio.ServicerContext) -> None:
        """Serve a stream until the proxy closes it. Raises StatusError when headgate ends it."""
        call = await self._authenticator.authenticate(CallOrigin.of(context))
        requests = aiter(messages)
        first = await first_request(requests, FIRST_REQUEST_SECONDS, needs="the first one must name the node")
        if first is None:
            return
        authenticated = self._authenticator.begin_stream(call, first)
        await _Stream(self._fleet, self._slots, authenticated, context).serve(requests)


class _Stream:
    """One stream of a proxy. Each event calls `_wake`, which sends the responses that the session returns.

    gRPC's own task reads requests. Another task sends responses and ends when there is nothing left to send.
    """

    def __init__(
        self, fleet: Fleet, slots: SendSlots, authenticated: AuthenticatedStream, context: grpc.aio.ServicerContext
    ) -> None:
        self._fleet = fleet
        self._slot = SendSlot(slots, self._follow)
        self._proxy, request, self._expires = authenticated
        self._context = context
        self._session = Session(REMOVAL_DELAY_S, time.monotonic)
        self._session.receive(request)
        self._seen = 0  # the session's `change_count` when `next_responses` was last called
        self._loop = asyncio.get_running_loop()
        self._deadlines: dict[str, float] = {}  # nonce -> when the response times out
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._sending: asyncio.Task[None] | None = None
        self._reading = asyncio.current_task()
        self._status: StatusError | None = None

    async def serve(self, requests: AsyncIterator[bytes]) -> None:
        """Serve until the proxy closes the stream. Raises StatusError when headgate ends it."""
        self._proxy.attach(self._session, self._disconnect, self._follow)
        self._proxy.timestamps.connected = time.time()
        self._fleet.counts["streams"] += 1
        self._fleet.notify()
        log.info("proxy %s connected", self._proxy.id)
        self._check_expiry()
        self._set_timer("report", REPORT_SECONDS, self._confirm_report)
        self._wake()
        try:
            async for data in requests:
                self._receive(data)
        except asyncio.CancelledError:
            if not self._status or self._is_canceled_from_outside():
                raise
        finally:
            for timer in self._timers.values():
                timer.cancel()
            sending = self._sending
            if sending and not self._status:
                sending.cancel()
            self._slot.finish()
            self._proxy.detach(self._session)
            self._fleet.notify()
            log.info("proxy %s disconnected", self._proxy.id)
        if self._status:
            if sending:  # during a write, or after a canceled one, gRPC can't end the stream
                await asyncio.wait((sending,), timeout=ANSWER_SECONDS)
                sending.cancel()
            raise self._status

    def _is_canceled_from_outside(self) -> bool:
        return self._reading is not None and self._reading.uncancel() > 0

    def _follow(self) -> None:
        """Send a new configuration in the stream's own task, so that an error there does not reach the publisher."""
        if self._sending is None:
            self._send([])

    def _wake(self) -> None:
        """Send what is due, unless the sending task already runs."""
        if self._sending is None and (responses := self._next_responses()):
            self._send(responses)

    def _send(self, responses: list[Response]) -> None:
        self._sending = self._loop.create_task(self._write(responses), name=f"xds send {self._proxy.id}")

    async def _write(self, responses: list[Response]) -> None:
        """Write responses, then the next responses of the session, until there are none."""
        try:
            while responses := responses or self._next_responses():
                for response in responses:
                    await self._context.write(write_response(response))
                    if self._status:
                        return
                responses = []
        except grpc.aio.BaseError as error:  # gRPC cancels the reading task
            log.debug("can't write to proxy %s: %s", self._proxy.id, error)
        except Exception:
            log.exception("a bug in headgate ends the stream of proxy %s", self._proxy.id)
            self._end(grpc.StatusCode.INTERNAL, "internal error: see the log of headgate")
        finally:
            self._sending = None

    def _next_responses(self) -> list[Response]:
        session = self._session
        if self._status or not self._has_config() or session.change_count == self._seen or not self._slot.acquire():
            return []
        responses = session.next_responses()
        self._seen = session.change_count
        if not responses and self._slot.is_needed and not session.awaits_answer:
            is_done = session.subscriptions[LISTENER].has_requested and self._proxy.settled()
            (self._slot.finish if is_done else self._slot.release)()
        if responses:
            deadline, now = time.monotonic() + ANSWER_SECONDS, time.time()
            for response in responses:
                self._deadlines[response.nonce] = deadline
                self._proxy.timestamps.record_sent(response.nonce, now)
            self._set_timer("answers", ANSWER_SECONDS, self._check_deadlines)
        if (removal := session.next_removal) is not None:
            self._set_timer("removals", removal - time.monotonic(), self._check_removals)
        return responses

    def _has_config(self) -> bool:
        """Give the session the latest configuration; return False if there is none before the first build.

        A session with an empty configuration would remove everything that a reconnecting proxy holds.
        """
        config = self._proxy.config.get()
        if config is not None and config is not self._session.config:
            self._session.set_config(config)
            self._fleet.notify()
        return config is not None

    def _set_timer(self, name: str, seconds: float, work: Callable[[], None]) -> None:
        """Call `work` after a pause, unless a timer of this name already runs."""

        def run() -> None:
            del self._timers[name]
            work()

        if name not in self._timers:
            self._timers[name] = self._loop.call_later(max(0.0, seconds), run)

    def _check_deadlines(self) -> None:
        """Time out responses that the proxy has not answered, so that the next ones can be sent."""
        now = time.monotonic()
        overdue = [nonce for nonce, deadline in self._deadlines.items() if deadline <= now]
        for nonce in overdue:
            log.warning("proxy %s has not answered a response for %.0f s", self._proxy.id, ANSWER_SECONDS)
            self._session.time_out(nonce)
            self._fleet.counts["overdue"] += 1
            del self._deadlines[nonce]
        if self._deadlines:
            self._set_timer("answers", min(self._deadlines.values()) - now, self._check_deadlines)
        if overdue:
            self._check_limits()
            self._fleet.notify()
            self._wake()

    def _retry_listeners(self) -> None:
        if self._session.retry_listeners():
            self._wake()
            self._set_timer("retry", RETRY_SECONDS, self._retry_listeners)

    def _check_removals(self) -> None:
        self._session.check_removals()
        self._wake()

    def _confirm_report(self) -> None:
        if self._session.confirm_report():
            self._wake()

    def _receive(self, data: bytes) -> None:
        try:
            _, request = read_request(data)
        except ProxyError as error:
            self._end(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            return
        for rejection in self._session.receive(request):
            log.warning("proxy %s rejected %s: %s", self._proxy.id, rejection.name, rejection.message)
            self._proxy.timestamps.rejected = rejection, time.time()
        self._deadlines.pop(request.nonce, None)
        if request.nonce:
            self._record_answer(request)
        if request.subscribe or request.initial:
            self._check_limits()
        self._wake()
        self._fleet.notify()

    def _record_answer(self, request: DeltaRequest) -> None:
        self._proxy.timestamps.sent.pop(request.nonce, None)
        self._fleet.counts["acks" if request.error is None else "nacks"] += 1
        if request.error is None:
            self._proxy.timestamps.acknowledged[request.type_url] = time.time()
        else:
            self._set_timer("retry", RETRY_SECONDS, self._retry_listeners)

    def _check_limits(self) -> None:
        if self._session.exceeds_limits:
            message = "the stream names more resources than a proxy can have: reconnect and report what the proxy holds"
            self._end(grpc.StatusCode.RESOURCE_EXHAUSTED, message)

    def _end(self, code: grpc.StatusCode, message: str) -> None:
        """End the stream with a status."""
        if self._status is None:
            self._status = StatusError(code, message)
            if self._reading:
                self._reading.cancel()

    def _disconnect(self, reason: EndReason) -> None:
        removed = reason is EndReason.REMOVED
        self._end(grpc.StatusCode.NOT_FOUND if removed else grpc.StatusCode.ABORTED, reason.value)

    def _check_expiry(self) -> None:
        """End the stream when its token expires."""
        left = self._expires - time.time()
        if left > 0:
            self._set_timer("expiry", min(left, EXPIRY_CHECK_SECONDS), self._check_expiry)
        else:
            self._end(grpc.StatusCode.UNAUTHENTICATED, "the token of this stream has expired: reconnect with a new one")
