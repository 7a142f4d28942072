"""The nginx of a Service: a configuration that it rejects, and the ends of the process (R32, D23)."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.ports import free_port
from tests.render.nginx.nginx_process import NGINX, needs_nginx
from tests.stream_server import stream_server

from headgate.latest import until
from headgate.render.output import Rendered
from headgate.standalone.proxies import nginx_process
from headgate.standalone.proxies.nginx_process import Listening, NginxProcess, NginxProgram
from headgate.standalone.supervisor import surviving

HOST = "127.0.0.1"


def listening(port: int, status: int, end: str = "}}") -> Listening:
    """Return a configuration that answers with a status."""
    server = f"server {{ listen {HOST}:{port}; return {status};"
    text = f"pid nginx.pid; worker_processes 1; events {{}} http {{ access_log off; {server} {end}"
    return Listening(Rendered(main="nginx.conf", files={"nginx.conf": text}), HOST, (port,))


async def status(port: int) -> int:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return int(answer.split()[1])


def forwarding(port: int, backend: int) -> Listening:
    """Return a configuration that forwards requests to a port of this machine."""
    made = listening(port, 200)
    text = made.rendered.files["nginx.conf"].replace(
        "return 200;", f"location / {{ proxy_pass http://{HOST}:{backend}; }}"
    )
    return made._replace(rendered=Rendered(main="nginx.conf", files={"nginx.conf": text}))


@contextlib.asynccontextmanager
async def running(process: NginxProcess) -> AsyncIterator[asyncio.Event]:
    """Follow what is wanted; yield an event that is set when nginx has left its addresses."""
    left = asyncio.Event()

    async def ended() -> None:
        left.set()

    task = asyncio.create_task(process.run(ended))
    try:
        yield left
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await process.end()


@needs_nginx
async def test_a_rejected_configuration_is_reported_until_it_is_corrected(tmp_path: Path) -> None:
    port = free_port()
    process = NginxProcess(tmp_path / "nginx", NginxProgram(NGINX))
    async with asyncio.timeout(60), running(process) as left:
        process.wanted.set(listening(port, 200, end=""))
        await until(lambda: "the configuration is not valid: " in process.failure.get(), process.failure)
        process.wanted.set(listening(port, 200))
        await until(lambda: not process.failure.get(), process.failure)
        assert await status(port) == 200
        process.wanted.set(listening(port, 204, end=""))
        await until(lambda: "stays unchanged: " in process.failure.get(), process.failure)
        assert await status(port) == 200
        process.wanted.set(None)
        await left.wait()
        with socket.create_server((HOST, port)):
            pass


@needs_nginx
async def test_an_nginx_without_processor_time_completes_its_requests_before_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stopped for longer than it may take for its requests when it runs. The addresses of an adopted nginx are not known."""
    monkeypatch.setattr(nginx_process, "QUIT_S", 1.0)
    received, answers, port = asyncio.Event(), asyncio.Event(), free_port()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        received.set()
        await answers.wait()
        writer.write(b"HTTP/1.0 202 Accepted\r\n\r\n")

    before = NginxProcess(tmp_path / "nginx", NginxProgram(NGINX))
    async with asyncio.timeout(60), stream_server(serve, (HOST, 0)) as backend:
        before.wanted.set(forwarding(port, backend.sockets[0].getsockname()[1]))
        task = asyncio.create_task(before.run(asyncio.Event().wait))
        await until(before.serves.get, before.serves)
        task.cancel()
        adopting = NginxProcess(tmp_path / "nginx", NginxProgram(NGINX))
        asked = asyncio.create_task(status(port))
        await received.wait()
        nginx = surviving(tmp_path / "nginx" / nginx_process.RECORD)
        assert nginx
        nginx.signal(signal.SIGSTOP)
        answers.set()
        async with running(adopting) as left:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(nginx.exited(), 3 * nginx_process.QUIT_S)
            nginx.signal(signal.SIGCONT)
            assert await asked == 202
            await left.wait()
            await nginx.exited()


async def test_a_program_that_ends_is_reported_with_the_last_line_of_its_log(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\necho "no memory" >&2\ncase "$*" in *daemon*) exit 1;; esac\n')
    program.chmod(0o700)
    process = NginxProcess(tmp_path / "nginx", NginxProgram(str(program)))
    async with asyncio.timeout(60), running(process):
        process.wanted.set(listening(free_port(), 200))
        await until(lambda: bool(process.failure.get()), process.failure)
        assert process.failure.get() == f"nginx did not start: no memory (its log is {tmp_path}/nginx/nginx.log)"
