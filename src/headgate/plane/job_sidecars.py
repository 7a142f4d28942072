"""Answers requests from the sidecars of pods that end by themselves, such as the pods of Jobs.

Such a sidecar must end after the application. It queries the control plane whether the application has ended, because it has no
permission to read its pod. Each proxy that ends first waits here until its last requests are reported.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import grpc
import msgspec

from headgate.admission.sidecar_containers import CONTAINER
from headgate.envoy.node_ids import SIDECAR
from headgate.errors import HeadgateError, NotFound
from headgate.objects.ports import Reader
from headgate.resources.meta import Key, Object
from headgate.xds.authentication import StatusError
from headgate.xds.proxy_requests import HAS_ENDED, WAIT_FOR_REPORT, Question, ReportRequest, SidecarAnswer
from headgate.xds.unary_methods import CheckNode, UnaryMethod

MAX_CONCURRENT_READS = 4  # limits the load on the API server when many sidecars query
MAX_REPORT_WAIT_S = 30.0  # much longer than the few seconds between two reports of a proxy
_NODE_PARTS = 3

T = TypeVar("T")


class JobSidecars:
    """Serves `methods`.

    `wait_for_report` waits until a proxy has reported its requests before a time (`Receiver.wait_for_report`).
    """

    def __init__(self, objects: Reader, wait_for_report: Callable[[str, float], Awaitable[None]]) -> None:
        self._objects = objects
        self._wait_for_report = wait_for_report
        self._turns = asyncio.Semaphore(MAX_CONCURRENT_READS)
        self.methods: Mapping[str, UnaryMethod] = {HAS_ENDED: self._has_ended, WAIT_FOR_REPORT: self._report}

    async def _has_ended(self, data: bytes, check_node: CheckNode) -> bytes:
        """Handle `HAS_ENDED`. Raises StatusError."""
        question = _decoded(data, Question)
        check_node(question.node)
        pod = _pod_of(question.node)
        try:
            async with self._turns:
                stored = await self._objects.get(pod)
        except NotFound as error:
            raise StatusError(grpc.StatusCode.NOT_FOUND, str(error)) from error
        except HeadgateError as error:
            raise StatusError(grpc.StatusCode.UNAVAILABLE, f"the pod can't be read: {error}") from error
        return msgspec.json.encode(SidecarAnswer(ended=has_application_ended(stored)))

    async def _report(self, data: bytes, check_node: CheckNode) -> bytes:
        """Handle `WAIT_FOR_REPORT`. Raises StatusError."""
        request = _decoded(data, ReportRequest)
        check_node(request.node)
        try:
            async with asyncio.timeout(MAX_REPORT_WAIT_S):
                await self._wait_for_report(request.node, request.since)
        except TimeoutError:
            message = f"no metrics report within {MAX_REPORT_WAIT_S:g} s"
            raise StatusError(grpc.StatusCode.DEADLINE_EXCEEDED, message) from None
        return b""


def has_application_ended(pod: Object) -> bool:
    """Return whether all containers of a pod except the sidecar have ended and will not restart."""
    policy = pod["spec"].get("restartPolicy")
    ended = {
        status["name"]
        for status in (pod.get("status") or {}).get("containerStatuses") or ()
        if _has_ended(status.get("state") or {}, policy)
    }
    return {container["name"] for container in pod["spec"]["containers"]} - {CONTAINER} <= ended


def _has_ended(state: Mapping[str, Any], policy: str | None) -> bool:
    terminated = state.get("terminated")
    if terminated is None:
        return False
    return policy == "Never" or (policy == "OnFailure" and terminated.get("exitCode") == 0)


def _decoded(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise StatusError(grpc.StatusCode.INVALID_ARGUMENT, f"the request is malformed: {error}") from error


def _pod_of(node_id: str) -> Key:
    """Return the pod of a sidecar. Raises StatusError if the node ID is not that of a sidecar."""
    parts = node_id.split("/")
    if len(parts) != _NODE_PARTS or parts[0] != SIDECAR:
        raise StatusError(grpc.StatusCode.INVALID_ARGUMENT, "the request needs a node ID sidecar/NAMESPACE/POD")
    return Key("", "Pod", parts[1], parts[2])
