"""An authorization server over gRPC for random worlds, which decides as members do over HTTP."""

import re
from concurrent.futures import ThreadPoolExecutor

import grpc
from tests.differential.backends import DECISIVE, PERMIT, REFUSED

JUDGE = "judge"
"""The Service of the server."""
JUDGE_PORT, JUDGES_PORT = 9100, "judges-port"
"""The port of the Service, and the placeholder of the server's own port."""
_VALUE = re.compile(rb"\x0a%c%b\x12(.)" % (len(DECISIVE), DECISIVE.encode()), re.DOTALL)
"""An entry of the request's headers in a CheckRequest: the name, and the length of a value with less than 128 bytes."""


class Judge(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Envoy's ext_authz over gRPC: it refuses requests whose header `DECISIVE` has `REFUSED`."""

    def __init__(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(2), handlers=(self,))
        self.port: int = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def service(self, _details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(self._check)

    def _check(self, request: bytes, _context: object) -> bytes:
        values = [request[entry.end() :][: entry[1][0]] for entry in _VALUE.finditer(request)]
        if any(REFUSED.encode() in value for value in values):
            return _field(1, b"\x08\x07")  # CheckResponse.status.code: PERMISSION_DENIED
        permit = _field(1, PERMIT.encode()) + _field(2, b"200")
        return _field(3, _field(2, _field(1, permit)))  # ok_response.headers[0].header

    def close(self) -> None:
        """Stop the server."""
        self._server.stop(None).wait()


def _field(number: int, content: bytes) -> bytes:
    """Return a field of a message with fewer than 128 bytes of content."""
    return bytes([number << 3 | 2, len(content)]) + content
