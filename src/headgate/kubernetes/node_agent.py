"""The node agent: redirects connections for the pods on its node whose init container waits for it.

It runs the program of the privileged init container in the network namespace of the pod, so both add the same rules.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
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
from headgate.redirection.exclusions import LARGEST_USER, parse_exclusions
from headgate.redirection.iptables import RedirectionError
from headgate.redirection.network_namespaces import PROC, pod_namespace
from headgate.resources.core.pod_metadata import EXCLUDED_PORTS
from headgate.resources.meta import Key, Object
from headgate.resources.registry import POD, key_of

MOST_PROGRAMS = 4  # at the same time: each takes 0.3 s of processor time
LONGEST_S = 30  # of a program: a pod that may change its rules decides how long iptables reads
LONGEST_PORTS = 1000  # characters, about 200 ports: each one is a rule that a program checks, for each IP family
LONGEST_USER = len(str(LARGEST_USER))
Redirect = Callable[[RequestedRedirection], Awaitable[None]]

log = logging.getLogger(__name__)


async def run(node: str, credentials: CredentialSource) -> None:
    """Run the agent of a node until canceled. Raises HeadgateError."""
    ready = Path(NODE_AGENT_READY)
    await asyncio.to_thread(ready.unlink, missing_ok=True)  # its volume outlives a container that ended
    hints = ErrorHints(refused=f"the ServiceAccount {NODE_AGENT} needs the ClusterRole {NODE_AGENT}")
    async with Client(credentials, hints) as client:
        versions = ServedVersions(client, (POD,))
        await versions.refresh()
        selectors = {(POD.group, POD.kind): {"fieldSelector": f"spec.nodeName={node}"}}
        store = ClusterStore(client, versions, selectors=selectors)
        await NodeAgent(redirect_in_namespace).run(store, ready.touch)


class NodeAgent:
    """Calls `redirect` for each init container that waits: once, and again after errors."""

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
            task = tasks.create_task(self._redirect_in_turn(requested), name=f"redirection of {requested.pod}")
            self._served[key] = requested, task

    async def _redirect_in_turn(self, requested: RequestedRedirection) -> None:
        """Redirect the connections of a pod; repeat failed attempts with growing pauses. Log a repeated failure once."""
        logged, pod = "", requested.pod

        async def redirect() -> None:
            async with self._programs:
                await self._redirect(requested)

        async def wait_after(error: Exception, seconds: float) -> None:
            nonlocal logged
            failure = str(error) if isinstance(error, HeadgateError) else repr(error)
            if failure != logged:
                log.warning("the connections of the pod %s can't be redirected; it is tried again: %s", pod, failure)
                logged = failure
            await asyncio.sleep(seconds)

        # The agent serves the other pods, whatever fails for this one.
        await until_done(redirect, wait_after, on=Exception)
        log.info("the connections of the pod %s are redirected", pod)


def _changes(step: Relist | Change, served: Iterable[Key]) -> Mapping[Key, Object | None]:
    """Return the pods of a step; None for those that do not exist any more."""
    if isinstance(step, Relist):
        return {**dict.fromkeys(served), **{key_of(pod): pod for pod in step.items}}
    return {step.key: None if step.type == "DELETED" else step.object}


def program_variables(requested: RequestedRedirection) -> Mapping[str, str]:
    """Return the variables of the program that redirects the connections of a pod. Raises HeadgateError.

    The pod's author writes their values. Texts that are no lists of ports can be longer than the kernel allows for a
    variable, or contain null characters, which would fail when the program is started.
    """
    if len(requested.excluded_ports) > LONGEST_PORTS:
        raise RedirectionError(
            f"the annotation {EXCLUDED_PORTS} has {len(requested.excluded_ports)} characters, more than {LONGEST_PORTS}:"
            " exclude fewer ports"
        )
    user, exclusions = requested.user, parse_exclusions(inbound_ports=requested.excluded_ports)
    if not (user.isascii() and user.isdigit() and len(user) <= LONGEST_USER and int(user) <= LARGEST_USER):
        raise RedirectionError(f"the init container has no user ID in {PROXY_USER}: create the pod again")
    return {PROXY_USER: user, EXCLUDED_INBOUND_PORTS: ",".join(map(str, exclusions.excluded_inbound_ports))}


async def redirect_in_namespace(requested: RequestedRedirection, proc: Path = PROC) -> None:
    """Run the init container's program in the network namespace of a pod. Raises HeadgateError."""
    variables = program_variables(requested)
    with pod_namespace(requested.uid, proc) as namespace:
        program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headgate", "sidecar", "redirect"),
            env={**os.environ, **variables, NETWORK_NAMESPACE: str(namespace)},
            pass_fds=[namespace],
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(LONGEST_S):
                _, message = await program.communicate()
        except TimeoutError as error:
            raise RedirectionError(
                f"the program has not ended after {LONGEST_S} s; a pod's own rules may be too many to read"
            ) from error
        finally:  # the pod can have ended
            if program.returncode is None:
                os.killpg(program.pid, signal.SIGKILL)  # the programs of iptables too
                await program.wait()
    if program.returncode:
        raise RedirectionError(message.decode(errors="replace").strip().removeprefix("error: "))
