"""The gRPC methods with one request and one response, beside the streams of ADS."""

from collections.abc import Awaitable, Callable, Mapping

import grpc
import grpc.aio

from headgate.xds.authentication import Authenticator, CallOrigin, StatusError

Authenticate = Callable[[str], Awaitable[float]]
"""Checks that the call comes from the proxy with this node ID; returns when its token expires. Raises StatusError."""
UnaryMethod = Callable[[bytes, Authenticate], Awaitable[bytes]]
"""Answers a request. It authenticates the node ID that the request names before it uses the request. May raise StatusError."""


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

        async def serve(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
            try:
                return await self._answer(method, request, CallOrigin.of(context))
            except StatusError as error:
                await context.abort(error.code, str(error))
                raise

        return grpc.unary_unary_rpc_method_handler(serve)

    async def _answer(self, method: UnaryMethod, request: bytes, origin: CallOrigin) -> bytes:
        """Answer a call. Raises StatusError."""
        answer = await method(request, lambda node_id: self._authenticator.authenticate(node_id, origin))
        if self._is_draining:
            raise StatusError(grpc.StatusCode.UNAVAILABLE, "this process ends: call again")
        return answer
