"""`headgate gateway nginx`: runs nginx as the gateway of a Service on Kubernetes.

The pod's image has headgate and nginx. The process gets the configuration from the control plane, runs nginx with it, and
reloads it after each change, which loses no request. Without a control plane, nginx continues with what it has.
"""

import http.server
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec

from headgate.admission.sidecar_containers import DIRECTORY
from headgate.cli.output import note
from headgate.cli.proxy_calls import ANSWER_S, RETRY_S, Calls
from headgate.cli.rendered_files import in_force
from headgate.envoy.probes import READY_PATH
from headgate.envoy.view import PROBE_PORT
from headgate.errors import HeadgateError, ProxyError
from headgate.plane.rendered_gateways import LONGEST_WAIT_S, METHOD, Configuration, Query
from headgate.proxy_programs.files import put_in_force, write_files
from headgate.proxy_programs.nginx import Nginx, find_nginx, stream_module
from headgate.render.output import Rendered


class _Ended(Exception):
    """The kubelet has sent SIGTERM."""


def run_nginx(calls: Calls) -> NoReturn:
    """Run nginx until SIGTERM; then let it complete its requests, and exit.

    Raises HeadgateError if the image has no nginx.
    """
    if not (program := find_nginx()):
        raise HeadgateError(
            "this image has no nginx: build one from headgate's image with nginx, and set --nginx-image"
        )
    directory = Path(DIRECTORY) / "nginx"
    directory.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, _end)
    module, known, process = stream_module(program), "", None
    try:
        while True:
            try:
                found = _configuration(calls, known, module)
            except ProxyError as error:
                note(f"no configuration, next attempt in {RETRY_S:g} s: {error}")
                time.sleep(RETRY_S)
                continue
            if found.version == known:
                continue
            known = found.version
            if process:
                rendered = _rendered(found)
                note(put_in_force(rendered, directory, Nginx(program)) or in_force(rendered, directory))
            else:
                process = _start(program, found, directory)
    except _Ended:
        code = _quit(process) if process else 0
    os._exit(code)  # a thread waits for nginx


def _configuration(calls: Calls, known: str, module: str) -> Configuration:
    """Return the configuration when it differs from the version `known`, or after some seconds. Raises ProxyError."""
    query = Query(node=calls.node_id, known=known, stream_module=module)
    answer = calls.call(METHOD, query, LONGEST_WAIT_S + ANSWER_S)
    try:
        return msgspec.json.decode(answer, type=Configuration)
    except msgspec.DecodeError as error:
        raise ProxyError(f"the control plane's answer is malformed: {error}") from error


def _end(_number: int, _frame: FrameType | None) -> None:
    raise _Ended


def _rendered(found: Configuration) -> Rendered:
    return Rendered(main=found.main, files=found.files)


def _start(program: str, found: Configuration, directory: Path) -> "subprocess.Popen[bytes]":
    """Start nginx with its first configuration; end this process when nginx ends by itself."""
    for omission in found.omissions:
        note(omission)
    write_files(_rendered(found), directory)
    command = [program, "-p", str(directory), "-e", "stderr", "-c", found.main, "-g", "daemon off;"]
    process = subprocess.Popen(command)  # noqa: S603 - the program of the image

    def watch() -> None:
        os._exit(process.wait() or 1)

    threading.Thread(target=watch, daemon=True).start()
    server = http.server.ThreadingHTTPServer(("", PROBE_PORT), _Readiness)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return process


def _quit(process: "subprocess.Popen[bytes]") -> int:
    """Let nginx complete its requests."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    process.send_signal(signal.SIGQUIT)
    return process.wait()


class _Readiness(http.server.BaseHTTPRequestHandler):
    """Answers the kubelet's health checks: nginx runs with a configuration."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == READY_PATH else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *words: object) -> None:
        """Log nothing."""
