"""Sessions of kubectl with a running container, over WebSockets: `kubectl exec`."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from headgate.api.responses import query_flag
from headgate.api.status import ApiError, from_error
from headgate.errors import HeadgateError, StoreError
from headgate.standalone.apiserver.channels import (
    PROTOCOLS,
    UNREAD_SECONDS,
    Channels,
    ProtocolError,
    StdinStalled,
)
from headgate.standalone.apiserver.local_pods import LocalPods
from headgate.standalone.apiserver.objects import Objects, PathTarget
from headgate.standalone.apiserver.request_parsing import container_name
from headgate.standalone.pods.exec import ContainerCommand, NotRunning, RunningCommand, check_running, start_command
from headgate.standalone.pods.runs import Run

MAX_SESSIONS = 100
"""The sessions at a time. Each buffers at most 1 MB, and has a process and a few file descriptors."""
SUBRESOURCES = frozenset({"exec"})
_WEBSOCKETS_ONLY = (
    "the embedded API serves exec over WebSockets only (v5.channel.k8s.io, v4.channel.k8s.io): "
    "use kubectl 1.31 or newer, without KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false"
)


class _Request(NamedTuple):
    run: Run
    command: ContainerCommand


class Sessions:
    """Runs commands in containers, each for one WebSocket. `closing` ends all sessions."""

    def __init__(
        self,
        objects: Objects,
        pods: LocalPods | None,
        closing: asyncio.Event,
        *,
        unread_seconds: float = UNREAD_SECONDS,
    ) -> None:
        self._objects = objects
        self._pods = pods
        self._closing = closing
        self._unread_seconds = unread_seconds
        self._count = 0

    async def refuse(self, request: Request, target: PathTarget, _: str) -> Response:
        """Answer a request that is no WebSocket: with what is wrong with it otherwise, or that it must be one. Raises ApiError.

        kubectl repeats a refused request in this form, with SPDY, and prints the answer.
        """
        await self._parse(target, request.query_params)
        self._check_count()
        raise ApiError(400, _WEBSOCKETS_ONLY)

    async def connect(self, websocket: WebSocket, target: PathTarget, subresource: str) -> None:
        """Run the command of a request. Raises ApiError before the WebSocket is accepted."""
        if target.served.kind.kind != "Pod" or subresource not in SUBRESOURCES:
            raise ApiError(400, f"WebSockets are for {', '.join(sorted(SUBRESOURCES))} of pods; send a plain request")
        given = await self._parse(target, websocket.query_params)
        offered: list[str] = websocket.scope["subprotocols"]
        protocol = next((protocol for protocol in PROTOCOLS if protocol in offered), None)
        if protocol is None:
            raise ApiError(400, f"Sec-WebSocket-Protocol: must offer one of {', '.join(PROTOCOLS)}, not {offered}")
        self._check_count()
        self._count += 1
        try:
            await websocket.accept(protocol)
            with contextlib.suppress(WebSocketDisconnect):
                await self._run(Channels(websocket, unread_seconds=self._unread_seconds), given)
        finally:
            self._count -= 1

    def _check_count(self) -> None:
        if self._count >= MAX_SESSIONS:
            raise ApiError(
                429, f"there are {MAX_SESSIONS} sessions with containers, which is the limit; end one of them"
            )

    async def _parse(self, target: PathTarget, query: QueryParams) -> _Request:
        pod = await self._objects.get(target)
        if self._pods is None:
            raise ApiError(501, "this server runs no pods; use `headgate up`")
        command = _command(query)
        name = container_name(query.get("container", ""), pod)
        try:
            run = self._pods.container(target.key, name)
            check_running(run)
        except StoreError as error:
            raise from_error(error, target.served, target.name) from error
        except NotRunning as error:
            raise ApiError(400, str(error)) from error
        return _Request(run, command)

    async def _run(self, channels: Channels, given: _Request) -> None:
        try:
            command = await start_command(given.run, given.command)
        except HeadgateError as error:
            await channels.finish(_failure(str(error)))
            return
        try:
            status = await self._converse(channels, command)
        except ProtocolError as error:
            await channels.reject(error)
            return
        finally:
            await command.end()
        if status:
            await channels.finish(status)

    async def _converse(self, channels: Channels, command: RunningCommand) -> Mapping[str, Any] | None:
        """Connect a command with its client until one of them ends; return the result, None if the client has gone.

        Raises ProtocolError.
        """
        async with _ending(
            receiving := asyncio.ensure_future(channels.receive(lambda size: command.resize(size.width, size.height))),
            closing := asyncio.ensure_future(self._closing.wait()),
            ended := asyncio.ensure_future(_copied(channels, command)),
            asyncio.ensure_future(_feed(channels, command)),
        ):
            await asyncio.wait((receiving, closing, ended), return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                return _result(ended.result())
            if closing.done():
                return _failure("headgate stops, which ends the command")
            try:
                receiving.result()
            except StdinStalled:
                return _failure(
                    f"the command has not read its stdin for {self._unread_seconds:g} seconds while more was sent; it was ended"
                )
        return None


@contextlib.asynccontextmanager
async def _ending(*tasks: asyncio.Task[Any]) -> AsyncIterator[None]:
    """Cancel tasks at the end of the context."""
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copied(channels: Channels, command: RunningCommand) -> int:
    """Send the output of a command until it ends; return its exit code."""
    async with asyncio.TaskGroup() as tasks:
        for stream in command.streams:
            tasks.create_task(_copy(channels, command, stream))
    return await command.exited()


async def _copy(channels: Channels, command: RunningCommand, stream: int) -> None:
    with contextlib.suppress(WebSocketDisconnect):  # `receive` ends too
        while data := await command.read(stream):
            await channels.send(stream, data)


async def _feed(channels: Channels, command: RunningCommand) -> None:
    while data := await channels.read_stdin():
        await command.write(data)
    await command.close_stdin()


def _command(query: QueryParams) -> ContainerCommand:
    """Parse the options of an exec (PodExecOptions). Raises ApiError 400."""
    words = tuple(query.getlist("command"))
    if not words or not words[0]:
        raise ApiError(400, "command: must name a program; add it after --")
    if any("\0" in word for word in words):
        raise ApiError(400, "command: must not contain null characters")
    stdin, stdout, stderr, tty = (query_flag(query, name) for name in ("stdin", "stdout", "stderr", "tty"))
    if not (stdin or stdout or stderr):
        raise ApiError(400, "must set one of stdin, stdout and stderr")
    return ContainerCommand(words, stdin=stdin, stdout=stdout, stderr=stderr, tty=tty)


def _result(code: int) -> dict[str, Any]:
    """Return the Status of a command that has ended, as a kubelet does."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit code {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def _failure(message: str) -> dict[str, Any]:
    return {"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500}
