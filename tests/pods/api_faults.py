"""An HTTPS proxy in front of a cluster's API server, which rejects requests, cuts watches, or lets them expire."""

import asyncio
import random
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector, web
from tests.sockets import Sockets

_OWN_HEADERS = frozenset({"host", "connection", "transfer-encoding", "content-length"})
STATUSES = (429, 500)
GONE = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "code": 410,
    "reason": "Expired",
    "message": "too old resource version",
}


class _Listening(socket.socket):
    """A socket that adds each connection that it accepts to `accepted`."""

    def __init__(self, accepted: Sockets) -> None:
        super().__init__()
        self._accepted = accepted

    def accept(self) -> tuple[socket.socket, object]:
        accepted, address = super().accept()
        self._accepted.add(accepted)
        return accepted, address


class ApiFaults:
    """A proxy at `address` and `port` that injects faults.

    `seen` counts the requests that it has `cut`, `expired` and `forwarded`, and those that it has rejected by their status.
    """

    def __init__(self, upstream: str, address: str) -> None:
        self.address = address
        self.port = 0
        self.rejects = False
        """Whether half of the requests get a response with one of STATUSES."""
        self.expires = False
        """Whether watches end with the status 410, unless they follow a new list."""
        self.seen: Counter[str] = Counter()
        self._upstream = upstream
        self._watches: set[asyncio.Task[object]] = set()
        self._sockets = Sockets()
        self._loop = asyncio.new_event_loop()
        self._listed: set[str] = set()
        self._random = random.Random(1)

    @contextmanager
    def rejecting(self) -> Iterator[None]:
        """Answer half of all requests with one of STATUSES during the block."""
        self.rejects = True
        try:
            yield
        finally:
            self.rejects = False

    def cut_watches(self) -> None:
        """Close the connections of all watches."""
        self._loop.call_soon_threadsafe(lambda: [watch.cancel() for watch in self._watches])

    @contextmanager
    def running(self, pki: Path) -> Iterator["ApiFaults"]:
        """Run the proxy in a thread, with the API server's certificate and key of `pki`."""
        ready = threading.Event()
        thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(pki, ready),))
        thread.start()
        try:
            assert ready.wait(30)
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._ended.set)
            thread.join()
            self._loop.close()

    async def _run(self, pki: Path, ready: threading.Event) -> None:
        self._ended = asyncio.Event()
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(pki / "apiserver.crt", pki / "apiserver.key")
        trust = ssl.create_default_context(cafile=pki / "ca.crt")
        connector = TCPConnector(ssl=trust, limit=0, socket_factory=self._sockets.open)
        async with ClientSession(
            connector=connector, timeout=ClientTimeout(total=None), auto_decompress=False
        ) as self._session:
            application = web.Application(client_max_size=2**26)
            application.router.add_route("*", "/{path:.*}", self._serve)
            runner = web.AppRunner(application, shutdown_timeout=1, handler_cancellation=True)
            await runner.setup()
            listening = _Listening(self._sockets)
            listening.bind((self.address, 0))
            await web.SockSite(runner, listening, ssl_context=tls).start()
            self.port = listening.getsockname()[1]
            ready.set()
            await self._ended.wait()
            await runner.cleanup()
        await self._sockets.close()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        is_watch = "watch" in request.query
        if self.rejects and self._random.random() < 0.5:
            status = self._random.choice(STATUSES)
            self.seen[str(status)] += 1
            return web.Response(status=status, text="an injected fault", headers={"Retry-After": "1"})
        if not is_watch:
            self._listed.add(request.path)
        elif self.expires and request.path not in self._listed:
            self.seen["expired"] += 1
            return web.json_response(GONE, status=410)
        else:
            self._listed.discard(request.path)
        return await self._forward(request, is_watch=is_watch)

    async def _forward(self, request: web.Request, *, is_watch: bool) -> web.StreamResponse:
        self.seen["forwarded"] += 1
        headers = [(name, value) for name, value in request.headers.items() if name.lower() not in _OWN_HEADERS]
        task = asyncio.current_task()
        assert task
        if is_watch:
            self._watches.add(task)
        response = web.StreamResponse()
        try:
            url = self._upstream + request.raw_path
            async with self._session.request(request.method, url, headers=headers, data=await request.read()) as found:
                kept = {name: value for name, value in found.headers.items() if name.lower() not in _OWN_HEADERS}
                response = web.StreamResponse(status=found.status, headers=kept)
                await response.prepare(request)
                async for part in found.content.iter_any():
                    await response.write(part)
                await response.write_eof()
                return response
        except asyncio.CancelledError:
            self.seen["cut"] += 1
            raise
        except ClientError:
            if not response.prepared:
                return web.Response(status=502, text="the API server does not answer")
            if request.transport:
                request.transport.abort()  # a client that got a part of the response must not wait for the rest
            return response
        finally:
            self._watches.discard(task)
