"""`headgate gateway nginx`: runs nginx as the gateway of a Service on Kubernetes.

The pod's image has headgate and nginx. The process gets the configuration from the control plane, runs nginx with it, and
reloads it after each change, which loses no request. Without a control plane, nginx continues with what it has.
"""

import asyncio
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headgate.api.http_server import Server, serve
from headgate.backoff import Backoff
from headgate.cli.output import note
from headgate.cli.proxy_calls import ANSWER_S, Calls
from headgate.cli.rendered_files import activation_note
from headgate.envoy.node_ids import PROBE_PORT
from headgate.envoy.proxy_container import DIRECTORY, READY_PATH
from headgate.errors import HeadgateError, ProxyError
from headgate.kubernetes.sockets import listen
from headgate.plane.rendered_gateways import LONGEST_WAIT_S, METHOD, Configuration, GatewayQuery
from headgate.proxy_programs.files import activate, write_files
from headgate.proxy_programs.nginx import PID_FILE, Nginx, has_started, stream_module
from headgate.proxy_programs.programs import find_program
from headgate.render.output import Rendered

START_POLL_S = 0.01


class _Ended(Exception):
    """The kubelet has sent SIGTERM."""


def run_nginx(calls: Calls) -> NoReturn:
    """Run nginx until SIGTERM; then let it complete its requests, and exit.

    Raises HeadgateError if the image has no nginx.
    """
    if not (program := find_program("nginx")):
        raise HeadgateError(
            "this image has no nginx: build one from headgate's image with nginx, and set --nginx-image"
        )
    nginx = _RunningNginx(program, Path(DIRECTORY) / "nginx")
    signal.signal(signal.SIGTERM, _end)
    module, version, backoff = stream_module(program), "", Backoff()
    try:
        while True:
            try:
                configuration = _configuration(calls, version, module)
                if configuration.version != version:
                    nginx.use(configuration)
                    version = configuration.version
                    backoff.reset()
            except ProxyError as error:
                pause = backoff.next_pause()
                note(f"next attempt in {pause:.1f} s: {error}")
                time.sleep(pause)
    except _Ended:
        nginx.quit()


def _configuration(calls: Calls, version: str, module: str) -> Configuration:
    """Return the configuration when its version differs from `version`, or after a few seconds. Raises ProxyError."""
    query = GatewayQuery(node=calls.node_id, known=version, stream_module=module)
    answer = calls.call(METHOD, query, LONGEST_WAIT_S + ANSWER_S)
    try:
        return msgspec.json.decode(answer, type=Configuration)
    except msgspec.DecodeError as error:
        raise ProxyError(f"the control plane's answer is malformed: {error}") from error


def _end(_number: int, _frame: FrameType | None) -> None:
    raise _Ended


class _RunningNginx:
    """nginx with the files of a directory. This process ends when nginx does."""

    def __init__(self, program: str, directory: Path) -> None:
        self._program = Nginx(program)
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._quits = False
        self._omissions: tuple[str, ...] = ()
        directory.mkdir(parents=True, exist_ok=True)

    def use(self, configuration: Configuration) -> None:
        """Run nginx with a configuration, from now on or for the first time. Raises ProxyError if nginx does not load it."""
        for omission in configuration.omissions:
            if omission not in self._omissions:
                note(omission)
        self._omissions = configuration.omissions
        rendered = Rendered(main=configuration.main, files=configuration.files)
        if self._process is None:
            self._start(rendered)
        elif failure := activate(rendered, self._directory, self._program):
            raise ProxyError(failure)
        note(activation_note(self._directory, len(configuration.omissions)))

    def quit(self) -> NoReturn:
        """Let nginx complete its requests; then this process ends with its exit code."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self._process is None:
            os._exit(0)
        self._quits = True
        self._process.send_signal(signal.SIGQUIT)
        while True:
            signal.pause()

    def _start(self, rendered: Rendered) -> None:
        """Start nginx; answer health checks once it listens."""
        (self._directory / PID_FILE).unlink(missing_ok=True)  # of an earlier container of the pod
        write_files(rendered, self._directory)
        command = self._program.command(self._directory, Path(rendered.main), "-g", "daemon off;")
        self._process = subprocess.Popen(command)  # noqa: S603 - the program of the image
        threading.Thread(target=self._watch, args=(self._process,), daemon=True).start()
        while not has_started(self._directory):
            time.sleep(START_POLL_S)
        serve_readiness(listen(PROBE_PORT))

    def _watch(self, process: "subprocess.Popen[bytes]") -> None:
        code = process.wait()
        os._exit(code if self._quits else code or 1)


def serve_readiness(listener: socket.socket) -> None:
    """Answer the kubelet's health checks in a thread: nginx listens. Every pod can reach the port, so the server is bounded."""
    threading.Thread(target=asyncio.run, args=(serve(Server(_readiness), listener),), daemon=True).start()


async def _readiness(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(status_code=200 if scope["path"] == READY_PATH else 404)(scope, receive, send)
