"""The gRPC side of ADS: moves bytes between streams and their sessions, and nothing else."""

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator

# Read at import; without it each process that is started costs a warning.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc
import grpc.aio

from headgate.errors import ProxyError
from headgate.xds.fleet import Fleet, Proxy
from headgate.xds.session import Response, Session
from headgate.xds.wire import read_request, write_response

METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
RETRY_SECONDS = 5.0  # between two offers of a listener whose address was in use
ANSWER_SECONDS = 5.0  # after that nothing waits for a proxy's answer; the status says that it lags

log = logging.getLogger(__name__)


class XdsServer:
    """Serves delta ADS on one address: `unix:/path` or `host:port`."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str) -> None:
        """Listen. Raises ProxyError when the address can't be had."""
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers((_Ads(self._fleet),))
        try:
            server.add_insecure_port(address)
        except RuntimeError as error:
            raise ProxyError(f"can't listen for proxies on {address}: {error}") from error
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """End all streams; the proxies keep what they have and come back."""
        if self._server:
            await self._server.stop(grace=None)


class _Ads(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc ships no types
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return the handler of the one method that is served."""
        if call.method != METHOD:
            return None

        async def serve(requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
            # grpc looks for an async generator function here, so this can't just return the stream's own generator.
            async for data in _Stream(self._fleet).serve(requests, context):
                yield data

        return grpc.stream_stream_rpc_method_handler(serve)


class _Stream:
    """One proxy's stream: whatever happens wakes it, and it sends what the session then has to send."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._session = Session()
        self._wake = asyncio.Event()
        self._sent: dict[str, float] = {}  # nonce -> when the answer is overdue
        self._retry = time.monotonic() + RETRY_SECONDS
        self._closed = False
        self._fault = ""  # why what the proxy sends can't be read

    async def serve(self, requests: AsyncIterator[bytes], context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
        """Yield serialised responses until the proxy hangs up."""
        first = await anext(aiter(requests), None)
        if first is None:
            return
        try:
            node_id, request = read_request(first)
        except ProxyError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            return
        proxy = self._fleet.proxies.get(node_id)
        if proxy is None:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, f"headgate does not know the proxy {node_id!r}")
            return
        self._session.receive(request)
        tasks = [
            asyncio.create_task(self._read(requests, proxy), name=f"xds read {node_id}"),
            asyncio.create_task(self._follow(proxy), name=f"xds follow {node_id}"),
        ]
        proxy.session = self._session
        self._fleet.bump()
        log.info("proxy %s connected", node_id)
        try:
            while not self._closed:
                for response in self._due(proxy):
                    yield write_response(response)
                await self._pause()
            if self._fault:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, self._fault)
        finally:
            for task in tasks:
                task.cancel()
            if proxy.session is self._session:
                proxy.session = None
                self._fleet.bump()
            log.info("proxy %s disconnected", node_id)

    def _due(self, proxy: Proxy) -> list[Response]:
        now = time.monotonic()
        for nonce in [nonce for nonce, due in self._sent.items() if due <= now]:
            log.warning("proxy %s has not answered in %.0f s", proxy.id, ANSWER_SECONDS)
            self._session.lapse(nonce)
            del self._sent[nonce]
        if now >= self._retry:
            self._session.retry()
            self._retry = now + RETRY_SECONDS
        responses = self._session.advance() if proxy.config.get() is not None else []
        self._sent |= {response.nonce: now + ANSWER_SECONDS for response in responses}
        return responses

    async def _pause(self) -> None:
        """Wait until something happens, the next answer is overdue, or it is time to look for refused listeners."""
        timeout = min([self._retry, *self._sent.values()]) - time.monotonic()
        try:
            await asyncio.wait_for(self._wake.wait(), timeout)
        except TimeoutError:
            return
        self._wake.clear()

    async def _read(self, requests: AsyncIterator[bytes], proxy: Proxy) -> None:
        try:
            async for data in requests:
                _, request = read_request(data)
                for rejected in self._session.receive(request):
                    log.warning("proxy %s refused %s: %s", proxy.id, rejected.name, rejected.message)
                self._sent.pop(request.nonce, None)
                self._wake.set()
                self._fleet.bump()
        except ProxyError as error:
            self._fault = str(error)
        finally:
            self._closed = True
            self._wake.set()

    async def _follow(self, proxy: Proxy) -> None:
        async for config in proxy.config.changes():
            if config is not None:
                self._session.offer(config)
                self._wake.set()
                self._fleet.bump()
