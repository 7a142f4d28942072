"""Ends a replica so that no proxy and no request of the API server is without a replica."""

import asyncio
import contextlib
import logging
from typing import Any

from headgate.backoff import until_done
from headgate.envoy.proxy_container import WITHDRAWAL_S
from headgate.errors import HeadgateError
from headgate.kubernetes.client import Client
from headgate.kubernetes.names import CONVERTS, NAMESPACE, XDS_ADDRESS
from headgate.latest import Latest, until

PROPAGATION_S: float = WITHDRAWAL_S
"""The time in which all nodes learn that a deleted pod is no endpoint of its Services any more; busy nodes need more than 2 s."""
LONGEST_S = 10.0
"""The longest wait for the next active replica."""
ATTEMPT_S, POLL_S = 1.0, 0.05
RESTORE_S = 30.0
"""The time between two writes of the label for conversions; the API server stores nothing if the pod has it."""

_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"

log = logging.getLogger(__name__)


async def hand_over(*, was_active: bool) -> None:
    """Wait until nodes send webhook requests to other replicas, and, if this one `was_active`, proxies to the next one."""
    async with asyncio.TaskGroup() as waits:
        waits.create_task(asyncio.sleep(PROPAGATION_S), name="propagation")
        if was_active:
            waits.create_task(_until_reachable(XDS_ADDRESS), name="next active replica")


async def keep_conversions(client: Client, pod: str, compiled: Latest[Any]) -> None:
    """Keep the pod of a replica whose webhooks respond in the Service of conversions, until canceled.

    The active replica removes pods that are not ready. A pod becomes ready once `compiled` is not None, and it returns then.
    """
    await begin_conversions(client, pod)
    await until(lambda: compiled.get() is not None, compiled)
    while True:
        await begin_conversions(client, pod)
        await asyncio.sleep(RESTORE_S)


async def begin_conversions(client: Client, pod: str) -> None:
    """Add a pod to the Service of conversions. Retry until this is done."""
    labels = {"metadata": {"labels": {CONVERTS: "true"}}}
    await until_done(
        lambda: client.merge(f"{_PODS}/{pod}", labels),
        f"the API server sends no conversions to pod {pod}",
        on=HeadgateError,
    )


async def end_conversions(client: Client, pod: str) -> None:
    """Remove a pod from the Service of conversions: its endpoints are also pods that are not ready, and pods that end."""
    labels = {"metadata": {"labels": {CONVERTS: None}}}
    try:
        async with asyncio.timeout(ATTEMPT_S):
            await client.merge(f"{_PODS}/{pod}", labels)
    except (TimeoutError, HeadgateError) as error:
        log.warning("the API server may still send conversions to pod %s: %s", pod, str(error) or "no answer in time")


async def _until_reachable(address: str) -> None:
    """Wait until the address, on which this replica has stopped listening, accepts connections; at most LONGEST_S."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LONGEST_S):
            while True:
                if await _accepts(address):
                    return
                await asyncio.sleep(POLL_S)


async def _accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(ATTEMPT_S):
            _, writer = await asyncio.open_connection(host, int(port))
    except OSError:
        return False
    writer.close()
    return True
