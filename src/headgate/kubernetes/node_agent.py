"""The node agent: redirects the connections of the pods of its node whose init container waits for it.

It runs the program of the privileged init container in the network namespace of the pod, so both add the same rules.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path

from headgate.admission.redirection_container import RequestedRedirection, requested_redirection
from headgate.backoff import until_done
from headgate.envoy.proxy_container import EXCLUDED_INBOUND_PORTS, NETWORK_NAMESPACE, PROXY_USER
from headgate.errors import HeadgateError
from headgate.kubernetes.client import Client, ErrorHints
from headgate.kubernetes.connection import CredentialSource
from headgate.kubernetes.names import NODE_AGENT, NODE_AGENT_READY
from headgate.kubernetes.served_versions import ServedVersions
from headgate.kubernetes.store import ClusterStore
from headgate.objects.ports import Change, Reader, Relist, follow
from headgate.redirection.iptables import RedirectionError
from headgate.redirection.network_namespaces import PROC, pod_namespace
from headgate.resources.meta import Key, Object
from headgate.resources.registry import POD, key_of

MOST_PROGRAMS = 4  # at the same time: each takes 0.3 s of processor time
Redirect = Callable[[RequestedRedirection], Awaitable[None]]

log = logging.getLogger(__name__)


async def run(node: str, credentials: CredentialSource) -> None:
    """Run the agent of a node until canceled. Raises HeadgateError."""
    hints = ErrorHints(refused=f"the ServiceAccount {NODE_AGENT} needs the ClusterRole {NODE_AGENT}")
    async with Client(credentials, hints) as client:
        versions = ServedVersions(client, (POD,))
        await versions.refresh()
        selectors = {(POD.group, POD.kind): {"fieldSelector": f"spec.nodeName={node}"}}
        store = ClusterStore(client, versions, selectors=selectors)
        await NodeAgent(redirect_in_namespace).run(store, Path(NODE_AGENT_READY).touch)


class NodeAgent:
    """Calls `redirect` for each init container that waits: once, and again after HeadgateErrors."""

    def __init__(self, redirect: Redirect) -> None:
        self._redirect = redirect
        self._programs = asyncio.Semaphore(MOST_PROGRAMS)
        self._served: dict[Key, tuple[RequestedRedirection, asyncio.Task[None]]] = {}

    async def run(self, reader: Reader, listed: Callable[[], None]) -> None:
        """Serve the pods of `reader` until canceled. Call `listed` after each list."""
        async with asyncio.TaskGroup() as tasks, aclosing(follow(reader, POD.group, POD.kind)) as steps:
            async for step in steps:
                for key, pod in _changes(step, self._served).items():
                    self._serve(key, requested_redirection(pod) if pod else None, tasks)
                if isinstance(step, Relist):
                    listed()

    def _serve(self, key: Key, requested: RequestedRedirection | None, tasks: asyncio.TaskGroup) -> None:
        """Begin the redirection of a pod, unless it has begun. End it when the init container does not wait any more."""
        served, task = self._served.get(key, (None, None))
        if served == requested:
            return
        if task:
            task.cancel()
            del self._served[key]
        if requested:
            attempt = partial(self._redirect_in_turn, requested)
            failure = f"the connections of the pod {requested.pod} can't be redirected"
            task = tasks.create_task(
                until_done(attempt, failure, on=HeadgateError), name=f"redirection of {requested.pod}"
            )
            self._served[key] = requested, task

    async def _redirect_in_turn(self, requested: RequestedRedirection) -> None:
        async with self._programs:
            await self._redirect(requested)
        log.info("the connections of the pod %s are redirected", requested.pod)


def _changes(step: Relist | Change, served: Iterable[Key]) -> Mapping[Key, Object | None]:
    """Return the pods of a step; None for those that do not exist any more."""
    if isinstance(step, Relist):
        return {**dict.fromkeys(served), **{key_of(pod): pod for pod in step.items}}
    return {step.key: None if step.type == "DELETED" else step.object}


async def redirect_in_namespace(requested: RequestedRedirection, proc: Path = PROC) -> None:
    """Run the init container's program in the network namespace of a pod. Raises HeadgateError."""
    with pod_namespace(requested.uid, proc) as namespace:
        variables = {
            NETWORK_NAMESPACE: str(namespace),
            PROXY_USER: requested.user,
            EXCLUDED_INBOUND_PORTS: requested.excluded_ports,
        }
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headgate", "sidecar", "redirect"),
            env={**os.environ, **variables},
            pass_fds=[namespace],
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            _, message = await program.communicate()
        except asyncio.CancelledError:
            program.kill()  # the pod has ended
            await program.wait()
            raise
    if program.returncode:
        raise RedirectionError(message.decode(errors="replace").strip().removeprefix("error: "))
