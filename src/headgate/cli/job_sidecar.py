"""End the sidecar of a Job's pod, or of another pod that ends by itself, after the application has ended.

Kubernetes before 1.29 has no native sidecars, and keeps a pod until all its containers have ended.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable

from headgate.cli.proxy_calls import Calls, report_last_requests
from headgate.errors import ProxyError
from headgate.formatting import printable

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 4.0, 6.0
"""The time between two calls. It is random, so that the sidecars of many pods do not call at the same moment."""


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
                message = f"headgate: can't find out whether the application has ended, trying again: {error}"
                sys.stderr.write(f"{printable(message)}\n")
        if has_ended:
            report_last_requests(calls)
            if os.getppid() == envoy:
                os.kill(envoy, signal.SIGTERM)


def pause_randomly() -> None:
    """Wait for a random time, from SHORTEST_PAUSE_S to LONGEST_PAUSE_S."""
    time.sleep(random.uniform(SHORTEST_PAUSE_S, LONGEST_PAUSE_S))  # noqa: S311 - it protects nothing
