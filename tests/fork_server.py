"""Fork a process for each start of headgate in tests: its imports take half of the processor time of a start.

usage: fork_server.py NAME [HOLD_MS]

The server has imported all of headgate. It listens on the abstract socket NAME, prints a line when it is ready, and ends
when its stdin is closed. For each connection it forks a headgate as `fork_client` requests it, responds with its process
ID, and later with its exit status as `subprocess` has it. A headgate whose client closes the connection is killed. With HOLD_MS,
each headgate holds its sockets, timers and threads back (`perturbation`).
"""

import atexit
import ctypes
import gc
import json
import os
import pkgutil
import select
import signal
import socket
import stat
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import headgate
from headgate.cli import main
from headgate.resources.schema import catalog

LATE = ("anyio._backends._asyncio", "pyroute2", "uvicorn.lifespan.off", "uvicorn.protocols.websockets.wsproto_impl")
"""Modules of libraries that headgate imports while it runs."""
WARNINGS_S = 20
"""How long a write waits for its warnings, which a busy machine would leave out."""
MESSAGE_BYTES = 200_000
LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE, PR_SET_DUMPABLE = 0x20000, 4096, 16384, 1 << 18, 4
Request = dict[str, Any]


def prepare(*hold_ms: str) -> None:
    """Import all of headgate, and link the schemas of all kinds."""
    modules = (module.name for module in pkgutil.walk_packages(headgate.__path__, "headgate."))
    for name in (*LATE, *(name for name in modules if not name.endswith("__main__"))):
        import_module(name)
    list(catalog.schemas().values())
    limits = import_module("headgate.plane.write_warnings")
    limits.WARNINGS_S = limits.EFFECT_S = WARNINGS_S  # type: ignore[attr-defined]
    if hold_ms:
        sys.path.append(str(Path(__file__).parent))
        import_module("perturbation").perturb(float(*hold_ms) / 1000)
    os.fsync = lambda _fd: None  # type: ignore[assignment]  # no test ends the machine; a start waits 0.4 s for the disk
    atexit.register(
        gc.collect
    )  # the interpreter's end would report failed tasks that nothing awaited; a command skips it
    gc.collect()
    gc.freeze()


class Server:
    """The socket, and the connection of each forked headgate by its process ID."""

    def __init__(self, name: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(f"\0{name}")
        self._listener.listen(100)
        self._clients: dict[int, socket.socket] = {}
        self._ended, self._wakeup = socket.socketpair()
        self._wakeup.setblocking(False)
        signal.set_wakeup_fd(self._wakeup.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> Request | None:
        """Serve until stdin is closed; then return None. In a forked process, return its request."""
        while True:
            polled = select.poll()
            for file in (sys.stdin.fileno(), self._listener.fileno(), self._ended.fileno()):
                polled.register(file, select.POLLIN)
            for client in self._clients.values():
                polled.register(client.fileno(), select.POLLIN)
            readable = {file for file, _ in polled.poll()}
            if sys.stdin.fileno() in readable:
                return None
            if self._ended.fileno() in readable:
                self._ended.recv(1000)
                self._reap()
            self._kill_abandoned(readable)
            if self._listener.fileno() in readable and (request := self._start()) is not None:
                return request

    def _start(self) -> Request | None:
        client, _ = self._listener.accept()
        message, files, _, _ = socket.recv_fds(client, MESSAGE_BYTES, 3)
        pid = os.fork()
        if pid == 0:
            self._leave(client)
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            return dict(json.loads(message))
        for file in files:
            os.close(file)
        client.send(str(pid).encode())
        self._clients[pid] = client
        return None

    def _leave(self, *more: socket.socket) -> None:
        """Close the server's sockets in a forked process."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in (self._listener, self._ended, self._wakeup, *self._clients.values(), *more):
            each.close()

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                client = self._clients.pop(ended[0])
                with suppress(ConnectionError):
                    client.send(str(os.waitstatus_to_exitcode(ended[1])).encode())
                client.close()

    def _kill_abandoned(self, readable: set[int]) -> None:
        for pid, client in self._clients.items():
            if client.fileno() in readable:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def become_user(user: int) -> None:
    """Become another user, and make this interpreter readable, which may be in a private directory of root."""
    interpreter = Path(sys.base_prefix)
    private = next((path for path in reversed(interpreter.parents) if not path.stat().st_mode & stat.S_IXOTH), None)
    if private:
        call("unshare", CLONE_NEWNS)
        call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
        opened = os.open(interpreter, os.O_PATH)
        call("mount", b"tmpfs", bytes(private), b"tmpfs", 0, b"mode=755")
        interpreter.mkdir(parents=True)
        call("mount", f"/proc/self/fd/{opened}".encode(), bytes(interpreter), None, MS_BIND | MS_REC, None)
        os.close(opened)
    os.setgroups(())
    os.setgid(user)
    os.setuid(user)
    call("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)  # as after the start of a program


def call(name: str, *arguments: object) -> None:
    """Call a function of the C library. Raises OSError."""
    if getattr(LIBC, name)(*arguments):
        raise OSError(ctypes.get_errno(), name)


def become(request: Request) -> None:
    """Take over the session, user, directory and environment of a request, and run headgate with its arguments."""
    os.setsid()
    if user := request["user"]:
        become_user(user)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.argv[:] = ["headgate", *request["words"]]
    main()


if __name__ == "__main__":
    _, name, *hold_ms = sys.argv
    prepare(*hold_ms)
    server = Server(name)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if request := server.serve():
        del server
        become(request)
