"""End the sidecar of a Job's pod, or of another pod that ends by itself, after the application has ended.

Kubernetes before 1.29 has no native sidecars, and keeps a pod until all its containers have ended.
"""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import msgspec
import typer

from headgate.errors import ProxyError
from headgate.plane.job_sidecars import HAS_ENDED, WAIT_FOR_REPORT, Answer, Question, ReportRequest

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 4.0, 6.0
"""The time between two calls. It is random, so that the sidecars of many pods do not call at the same moment."""
ANSWER_S = 10.0
REPORT_S = 15.0
"""The longest wait for the last metrics report. Envoy reports every five seconds."""
SETTLE_S = 0.1  # the time in seconds that Envoy needs to count a request after its end


class Calls:
    """Calls the control plane with the proxy's token. A failed call raises ProxyError, and the next call reconnects.

    `address` is the `host:port` of the xDS server. The files `token` and `roots` may be renewed.
    """

    def __init__(self, address: str, node_id: str, *, token: Path, roots: Path) -> None:
        self._address = address
        self._node_id = node_id
        self._token = token
        self._roots = roots
        self._channel: grpc.Channel | None = None

    def has_application_ended(self) -> bool:
        """Return whether all other containers of the pod have ended and will not restart."""
        answer = self._call(HAS_ENDED, Question(node=self._node_id), ANSWER_S)
        try:
            return msgspec.json.decode(answer, type=Answer).ended
        except msgspec.DecodeError as error:
            raise ProxyError(f"the control plane's answer is malformed: {error}") from error

    def wait_for_report(self) -> None:
        """Wait until the control plane has a metrics report with all requests until now."""
        since = time.time() + SETTLE_S
        self._call(WAIT_FOR_REPORT, ReportRequest(node=self._node_id, since=since), REPORT_S)

    def _call(self, method: str, request: Question | ReportRequest, timeout_s: float) -> bytes:
        try:
            channel = self._channel = self._channel or self._open()
            token = self._token.read_text().strip()
            answer: bytes = channel.unary_unary(method)(
                msgspec.json.encode(request), timeout=timeout_s, metadata=[("authorization", f"Bearer {token}")]
            )
        except grpc.RpcError as error:
            self._close()
            raise ProxyError(f"{error.code().name}: {error.details()}") from error
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


def end_with_application(calls: Calls, envoy: int, pause: Callable[[], None]) -> None:
    """End Envoy, the parent process, after the application; return when Envoy has ended.

    Envoy reports its last requests before it ends. While the control plane can't be reached, Envoy continues.
    `pause` waits before each call of the control plane.
    """
    reported = ""
    while os.getppid() == envoy:
        pause()
        try:
            has_ended = calls.has_application_ended()
            reported = ""
        except ProxyError as error:
            has_ended = False
            if str(error) != reported:
                reported = str(error)
                typer.echo(
                    f"headgate: can't find out whether the application has ended, trying again: {error}", err=True
                )
        if has_ended:
            report_last_requests(calls)
            if os.getppid() == envoy:
                os.kill(envoy, signal.SIGTERM)


def report_last_requests(calls: Calls) -> None:
    """Wait until Envoy has reported its last requests, because it sends no report when it ends. Print any failure."""
    try:
        calls.wait_for_report()
    except ProxyError as error:
        typer.echo(f"headgate: the last requests of the sidecar may not be counted: {error}", err=True)


def pause_randomly() -> None:
    """Wait for a random time, from SHORTEST_PAUSE_S to LONGEST_PAUSE_S."""
    time.sleep(random.uniform(SHORTEST_PAUSE_S, LONGEST_PAUSE_S))  # noqa: S311 - it protects nothing
