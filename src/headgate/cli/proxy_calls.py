"""Calls from the container of a proxy to the control plane."""

import sys
import time
from pathlib import Path

import grpc
import msgspec

from headgate.backoff import Backoff
from headgate.errors import ProxyError
from headgate.formatting import printable
from headgate.resources.meta import Value
from headgate.xds.proxy_requests import HAS_ENDED, WAIT_FOR_REPORT, Question, ReportRequest, SidecarAnswer

ANSWER_S = 10.0
REPORT_S = 15.0
"""The longest wait for a metrics report in one call. Envoy reports every five seconds."""
LONGEST_WAIT_S = 60.0
"""The longest wait for a control plane that accepts the last metrics report. After a crash, the next replica needs 30 s."""
RETRY_S = 1.5  # the longest pause between two calls
SETTLE_S = 0.1  # the time in seconds that Envoy needs to count a request after its end
_TRANSIENT = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


class NoAnswer(ProxyError):
    """No control plane has answered a call. A later call may succeed."""


class Calls:
    """Calls the control plane with the proxy's token. A failed call raises ProxyError, and the next call reconnects.

    `address` is the `host:port` of the xDS server. The files `token` and `roots` may be renewed.
    """

    def __init__(self, address: str, node_id: str, *, token: Path, roots: Path) -> None:
        self.node_id = node_id
        self._address = address
        self._token = token
        self._roots = roots
        self._channel: grpc.Channel | None = None

    def has_application_ended(self) -> bool:
        """Return whether all other containers of the pod have ended and will not restart."""
        answer = self.call(HAS_ENDED, Question(node=self.node_id), ANSWER_S)
        try:
            return msgspec.json.decode(answer, type=SidecarAnswer).ended
        except msgspec.DecodeError as error:
            raise ProxyError(f"the control plane's answer is malformed: {error}") from error

    def wait_for_report(self, since: float) -> None:
        """Wait until the control plane has a metrics report with all requests until `since`, in epoch seconds."""
        self.call(WAIT_FOR_REPORT, ReportRequest(node=self.node_id, since=since), REPORT_S)

    def call(self, method: str, request: Value, timeout_s: float) -> bytes:
        """Return the response of a method. Raises ProxyError."""
        try:
            channel = self._channel = self._channel or self._open()
            token = self._token.read_text().strip()
            answer: bytes = channel.unary_unary(method)(
                msgspec.json.encode(request), timeout=timeout_s, metadata=[("authorization", f"Bearer {token}")]
            )
        except grpc.RpcError as error:
            self._close()
            kind = NoAnswer if error.code() in _TRANSIENT else ProxyError
            raise kind(f"{error.code().name}: {error.details()}") from error
        except OSError as error:
            raise ProxyError(str(error)) from error
        return answer

    def _open(self) -> grpc.Channel:
        """Open a channel that trusts the current roots. Raises OSError if they can't be read."""
        credentials = grpc.ssl_channel_credentials(self._roots.read_bytes())
        return grpc.secure_channel(self._address, credentials, [("grpc.enable_http_proxy", 0)])

    def _close(self) -> None:
        if self._channel:
            self._channel.close()
            self._channel = None


def report_last_requests(calls: Calls) -> None:
    """Wait until Envoy has reported its last requests, because it sends no report when it ends. Print any failure.

    Without an active replica of the control plane, wait for the next one, at most LONGEST_WAIT_S.
    """
    since, end = time.time() + SETTLE_S, time.monotonic() + LONGEST_WAIT_S
    backoff = Backoff(first_s=RETRY_S, longest_s=RETRY_S)
    while True:
        try:
            calls.wait_for_report(since)
        except ProxyError as error:
            if isinstance(error, NoAnswer) and time.monotonic() < end:
                time.sleep(backoff.next_pause())
                continue
            message = f"headgate: the last requests of the proxy may not be counted: {error}"
            sys.stderr.write(f"{printable(message)}\n")
        return
