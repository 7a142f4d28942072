"""Programs in containers, with a server in the place of the API server. tests/pods runs them on a real one."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest
from aiohttp import web
from tests.kubernetes.http_server import serving

from headgate.errors import NotFound, Unavailable
from headgate.kubernetes.client import AccessDenied, Client, ErrorHints
from headgate.kubernetes.pod_programs import (
    LONGEST_ERROR,
    PROTOCOLS,
    RESULT,
    STDERR,
    STDOUT,
    PodContainer,
    ProgramFailed,
    run_program,
)

Program = Callable[[web.WebSocketResponse], Awaitable[None]]
CONTAINER = PodContainer("shop", "client-1", "app")
SUCCESS = msgspec.json.encode({"status": "Success"})
EXITED = msgspec.json.encode(
    {
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": "command terminated with exit code 3",
        "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
    }
)
FORBIDDEN = {
    "kind": "Status",
    "message": 'pods "client-1" is forbidden: User "dev" cannot get resource "pods/exec" in API group "" in the namespace "shop"',
    "details": {"name": "client-1", "kind": "pods"},
}


@contextlib.asynccontextmanager
async def running(program: Program) -> AsyncIterator[tuple[Client, list[web.Request]]]:
    """Serve a program by a websocket; yield a client, and the requests of the client."""
    requests = []

    async def answer(request: web.Request) -> web.StreamResponse:
        requests.append(request)
        websocket = web.WebSocketResponse(protocols=PROTOCOLS)
        await websocket.prepare(request)
        await program(websocket)
        return websocket

    async with serving(answer) as credentials:  # type: ignore[arg-type]
        yield Client(credentials), requests


async def output(client: Client, stdin: bytes = b"") -> bytes:
    return b"".join([part async for part in run_program(client, CONTAINER, ["cat", "-u"], stdin=stdin)])


async def test_a_program_gets_its_input_and_its_output_is_yielded() -> None:
    sent = b"line\n" * 20_000

    async def cat(websocket: web.WebSocketResponse) -> None:
        received = 0
        async for message in websocket:
            received += len(message.data) - 1
            await websocket.send_bytes(bytes([STDOUT]) + message.data[1:])
            if received == len(sent):
                break
        await websocket.send_bytes(bytes([RESULT]) + SUCCESS)

    async with running(cat) as (client, requests):
        assert await output(client, sent) == sent
    (request,) = requests
    assert request.path == "/api/v1/namespaces/shop/pods/client-1/exec"
    assert request.query.getall("command") == ["cat", "-u"]
    assert request.query["container"] == "app"


async def test_a_program_that_fails_is_an_error_with_the_end_of_its_standard_error() -> None:
    async def fail(websocket: web.WebSocketResponse) -> None:
        await websocket.send_bytes(bytes([STDERR]) + b"x" * LONGEST_ERROR)
        await websocket.send_bytes(bytes([STDERR]) + b"no such file\n")
        await websocket.send_bytes(bytes([RESULT]) + EXITED)

    async with running(fail) as (client, _):
        with pytest.raises(ProgramFailed, match=r"^x+no such file$") as error:
            await output(client)
    assert (error.value.code, len(str(error.value))) == (3, LONGEST_ERROR - 1)


async def test_a_connection_that_ends_before_the_program_is_an_error() -> None:
    async def end(websocket: web.WebSocketResponse) -> None:
        await websocket.close()

    async with running(end) as (client, _):
        with pytest.raises(Unavailable, match="the program in pod shop/client-1 has ended"):
            await output(client)


@pytest.mark.parametrize(
    ("status", "body", "expected", "words"),
    [
        (403, FORBIDDEN, AccessDenied, r"resources: \[pods/exec\], verbs: \[get\]"),
        (404, {"kind": "Status", "message": 'pods "client-1" not found'}, NotFound, 'pods "client-1" not found'),
    ],
)
async def test_a_refused_request_is_an_error_with_the_reason_of_the_server(
    status: int, body: object, expected: type[Exception], words: str
) -> None:
    async def answer(_request: web.Request) -> web.Response:
        return web.json_response(body, status=status)

    async with serving(answer) as credentials:
        with pytest.raises(expected, match=words):
            await output(Client(credentials, ErrorHints(names_rule=True)))
