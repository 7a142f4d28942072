"""The gRPC methods with one request and one response, beside the streams of ADS."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping

import grpc
import grpc.aio

from headgate.xds.authentication import Authenticator, CallOrigin, StatusError

REQUEST_SECONDS = 10.0  # the time for the request of a call
CheckNode = Callable[[str], None]
"""Checks that the call comes from the proxy with this node ID. Raises StatusError."""
UnaryMethod = Callable[[bytes, CheckNode], Awaitable[bytes]]
"""Answers a request of an authenticated proxy. It checks the node ID in the request before it uses the request. May raise StatusError."""


async def first_request(requests: AsyncIterator[bytes], seconds: float, *, needs: str) -> bytes | None:
    """Return the first request of a call; None if the client ends the call before. Raises StatusError if it is late."""
    try:
        async with asyncio.timeout(seconds):
            return await anext(requests, None)
    except TimeoutError:
        message = f"no request in {seconds:.0f} s: {needs}"
        raise StatusError(grpc.StatusCode.DEADLINE_EXCEEDED, message) from None


class UnaryService(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc ships no types
    """Serves methods with one request and one response, such as metric reports, to authenticated proxies."""

    def __init__(self, methods: Mapping[str, UnaryMethod], authenticator: Authenticator) -> None:
        self._methods = methods
        self._authenticator = authenticator
        self._is_draining = False

    def drain(self) -> None:
        """Let calls in progress fail: the process that serves next must get what they report."""
        self._is_draining = True

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return the handler of a unary method, None for other methods."""
        method = self._methods.get(call.method)
        if method is None:
            return None

        # gRPC reads the request of a unary method before it calls the handler: 4 MB for each call of an unknown client.
        async def serve(requests: AsyncIterable[bytes], context: grpc.aio.ServicerContext) -> bytes:
            try:
                return await self._answer(method, requests, CallOrigin.of(context))
            except StatusError as error:
                await context.abort(error.code, str(error))
                raise

        return grpc.stream_unary_rpc_method_handler(serve)

    async def _answer(self, method: UnaryMethod, requests: AsyncIterable[bytes], origin: CallOrigin) -> bytes:
        """Authenticate and answer a call. Raises StatusError."""
        call = await self._authenticator.authenticate(origin)
        request = await first_request(aiter(requests), REQUEST_SECONDS, needs="the call has one")
        if request is None:
            raise StatusError(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request")
        answer = await method(request, lambda node_id: self._authenticator.check_node(call, node_id))
        if self._is_draining:
            raise StatusError(grpc.StatusCode.UNAVAILABLE, "this process ends: call again")
        return answer
