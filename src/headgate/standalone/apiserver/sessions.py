"""Sessions of kubectl with a running container, over WebSockets: `kubectl exec`, `cp` and `attach`."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from headgate.api.responses import query_flag
from headgate.api.status import ApiError, from_error
from headgate.errors import HeadgateError, StoreError
from headgate.resources.meta import Object
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
from headgate.standalone.pods.attach import STDIN_PIPE, ProcessAttachment
from headgate.standalone.pods.containers import ExternalRun
from headgate.standalone.pods.exec import ContainerCommand, NotRunning, check_running, start_command
from headgate.standalone.pods.logs import LogOptions
from headgate.standalone.pods.runs import Run

CLIENT_S = 0.2
"""The pause before the error of a program that does not start. kubectl discards what arrives before it has its streams, and then
prints `closed all streams`; no message of it says that it has them. A kubelet takes longer than this for the error."""
MAX_SESSIONS = 100
"""The sessions at a time. Each buffers at most 1 MB, and has a process and a few file descriptors."""
SUBRESOURCES = frozenset({"exec", "attach", "portforward"})
_WEBSOCKETS_ONLY = (
    "the embedded API serves exec and attach over WebSockets only (v5.channel.k8s.io, v4.channel.k8s.io): "
    "use kubectl 1.31 or newer, without KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false"
)


class Conversation(Protocol):
    """What a session connects with its client: a command, or the process of a container."""

    @property
    def streams(self) -> tuple[int, ...]:
        """The streams that `read` accepts."""

    async def exited(self) -> int:
        """Wait for the end; return the exit code."""

    async def read(self, stream: int, /) -> bytes:
        """Return the next output of a stream; empty at its end."""

    async def write(self, data: bytes) -> None:
        """Write to stdin."""

    async def close_stdin(self) -> None:
        """Note that the client sends no more."""

    def resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal, if there is one."""

    async def end(self) -> None:
        """End the conversation."""


_Start: TypeAlias = Callable[[], Awaitable[Conversation]]
"""A function that starts a conversation. Raises HeadgateError and OSError."""


class Sessions:
    """Runs commands in containers, each for one WebSocket. `closing` ends all sessions."""

    def __init__(
        self,
        objects: Objects,
        pods: LocalPods | None,
        closing: asyncio.Event,
    ) -> None:
        self._objects = objects
        self._pods = pods
        self._closing = closing
        self._count = 0

    async def refuse(self, request: Request, target: PathTarget, subresource: str) -> Response:
        """Answer a request that is no WebSocket: with what is wrong with it otherwise, or that it must be one. Raises ApiError.

        kubectl repeats a refused request in this form, with SPDY, and prints the answer.
        """
        await self._parse(target, subresource, request.query_params)
        self._check_count()
        raise ApiError(400, _WEBSOCKETS_ONLY)

    async def connect(self, websocket: WebSocket, target: PathTarget, subresource: str) -> None:
        """Run the command of a request. Raises ApiError before the WebSocket is accepted."""
        if target.served.kind.kind != "Pod" or subresource not in SUBRESOURCES:
            raise ApiError(400, f"WebSockets are for {', '.join(sorted(SUBRESOURCES))} of pods; send a plain request")
        start = await self._parse(target, subresource, websocket.query_params)
        offered: list[str] = websocket.scope["subprotocols"]
        protocol = next((protocol for protocol in PROTOCOLS if protocol in offered), None)
        if protocol is None:
            raise ApiError(400, f"Sec-WebSocket-Protocol: must offer one of {', '.join(PROTOCOLS)}, not {offered}")
        self._check_count()
        self._count += 1
        try:
            await websocket.accept(protocol)
            with contextlib.suppress(WebSocketDisconnect):
                await self._run(Channels(websocket), start)
        finally:
            self._count -= 1

    def _check_count(self) -> None:
        if self._count >= MAX_SESSIONS:
            raise ApiError(
                429, f"there are {MAX_SESSIONS} sessions with containers, which is the limit; end one of them"
            )

    async def _parse(self, target: PathTarget, subresource: str, query: QueryParams) -> _Start:
        """Parse a request; return how to start its conversation. Raises ApiError."""
        pod = await self._objects.get(target)
        if self._pods is None:
            raise ApiError(501, "this server runs no pods; use `headgate up`")
        if subresource == "portforward":
            raise _no_forwarding(pod, self._pods.published)
        streams = _streams(query)
        command = _command(query, streams) if subresource == "exec" else None
        name = container_name(query.get("container", ""), pod)
        try:
            run = self._pods.container(target.key, name)
            check_running(run)
        except StoreError as error:
            raise from_error(error, target.served, target.name) from error
        except NotRunning as error:
            raise ApiError(400, str(error)) from error
        if command:
            return partial(start_command, run, command)
        _check_attachable(run, streams)
        output = self._pods.logs(target.key, LogOptions(name, follow=True, tail_lines=0))
        return partial(_attach, output, run.settings.directory / STDIN_PIPE if streams.stdin else None)

    async def _run(self, channels: Channels, start: _Start) -> None:
        try:
            command = await start()
        except (HeadgateError, OSError) as error:
            await asyncio.sleep(CLIENT_S)
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

    async def _converse(self, channels: Channels, command: Conversation) -> Mapping[str, Any] | None:
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
                    f"the command has not read its stdin for {UNREAD_SECONDS:g} seconds while more was sent; it was ended"
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


async def _copied(channels: Channels, command: Conversation) -> int:
    """Send the output of a command until it ends; return its exit code."""
    async with asyncio.TaskGroup() as tasks:
        for stream in command.streams:
            tasks.create_task(_copy(channels, command, stream))
    return await command.exited()


async def _copy(channels: Channels, command: Conversation, stream: int) -> None:
    with contextlib.suppress(WebSocketDisconnect):  # `receive` ends too
        while data := await command.read(stream):
            await channels.send(stream, data)
            # Neither call suspends while the command and the client are fast, and nothing else would run.
            await asyncio.sleep(0)


async def _feed(channels: Channels, command: Conversation) -> None:
    while data := await channels.read_stdin():
        await command.write(data)
    await command.close_stdin()


def _no_forwarding(pod: Object, published: Callable[[str, int], str]) -> ApiError:
    """Return the error for `kubectl port-forward`, whose protocol is SPDY in a WebSocket: the addresses to use instead."""
    address = (pod.get("status") or {}).get("podIP", "")
    ports = [port["containerPort"] for each in pod["spec"]["containers"] for port in each.get("ports") or ()]
    places = " or ".join(f"{published(address, port) or address}:{port}" for port in ports) or f"the address {address}"
    advice = f"connect to {places} on this machine" if address else "its pod has no address yet"
    return ApiError(501, f"the embedded API does not forward ports; {advice}")


async def _attach(output: AsyncGenerator[bytes], stdin: Path | None) -> Conversation:
    return ProcessAttachment(output, stdin)


class _Streams(NamedTuple):
    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool


def _streams(query: QueryParams) -> _Streams:
    """Parse which streams a client connects. Raises ApiError 400."""
    streams = _Streams(*(query_flag(query, name) for name in _Streams._fields))
    if not any(streams[:3]):
        raise ApiError(400, "must set one of stdin, stdout and stderr")
    return streams


def _check_attachable(run: Run, streams: _Streams) -> None:
    """Check that a container has the streams that a client wants to attach to. Raises ApiError 400."""
    name = run.settings.container.name
    if streams.tty:
        raise ApiError(400, f"container {name} has no terminal: omit -t, or use kubectl exec -it")
    if streams.stdin and not run.settings.container.stdin:
        raise ApiError(400, f"container {name} has no stdin: set stdin: true, omit -i, or use kubectl exec -i")
    if isinstance(run, ExternalRun):
        raise ApiError(400, f"container {name} is a process of headgate run: its output is where that command runs")


def _command(query: QueryParams, streams: _Streams) -> ContainerCommand:
    """Parse the command of an exec (PodExecOptions). Raises ApiError 400."""
    words = tuple(query.getlist("command"))
    if not words or not words[0]:
        raise ApiError(400, "command: must name a program; add it after --")
    if any("\0" in word for word in words):
        raise ApiError(400, "command: must not contain null characters")
    return ContainerCommand(words, **streams._asdict())


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
