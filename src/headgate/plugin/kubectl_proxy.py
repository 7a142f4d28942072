"""How the API is called: through `kubectl proxy`, on a socket that only this user can open.

This is kubectl's plugin, so kubectl is there, and it knows every way to log in: certificates, tokens, programs that get
tokens, proxies, impersonation. Its proxy does that once, however many queries follow; `kubectl get --raw` would do it for
each, and a client library would do it nearly as kubectl does.
"""

import contextlib
import http.client
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from headgate.errors import HeadgateError, Unavailable

_SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_ANSWER_S = 60.0
_LOG_LINE = re.compile(rb"[EWI]\d{4} ")  # kubectl's own log: what went wrong is in the answer, too
_WARNING = re.compile(r'\d{3} \S+ "(.*)"(?: "[^"]*")?')
_CHANGES = "^(POST|PUT|PATCH|DELETE)$"


class Response(NamedTuple):
    """A status code and a body, with what the API warns of."""

    status: int
    body: bytes
    warnings: Sequence[str] = ()


class Kubectl(NamedTuple):
    """kubectl with the options that name the cluster and the user: `--context=...`."""

    options: Sequence[str] = ()

    def namespace(self) -> str:
        """Return the namespace that the context names, or else that of the pod that this runs in."""
        ran = subprocess.run(  # noqa: S603 - kubectl, with the options that its user gave
            self._command("config", "view", "--minify", "--output=jsonpath={..namespace}"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        return ran.stdout.decode().strip() or _namespace_of_pod() or "default"

    @contextlib.contextmanager
    def proxy(self) -> Iterator["KubectlProxy"]:
        """Run `kubectl proxy`, and end it. Raises HeadgateError in kubectl's words."""
        with tempfile.TemporaryDirectory(prefix="kubectl-traffic-") as directory:
            path = Path(directory, "api")
            process = self._start(path)
            words = _StderrReader(process)
            try:
                if process.stdout is None or not process.stdout.readline():
                    raise HeadgateError(words.last() or "kubectl proxy ended before it served")
                yield KubectlProxy(path)
            finally:
                process.terminate()
                process.wait()
                words.last()
                if process.stdout is not None:
                    process.stdout.close()

    def _start(self, path: Path) -> "subprocess.Popen[bytes]":
        command = self._command("proxy", f"--unix-socket={path}", f"--reject-methods={_CHANGES}")
        try:
            return subprocess.Popen(  # noqa: S603 - same
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            reason = error.strerror or "it can't be started"
            raise HeadgateError(f"kubectl can't be run ({reason}): install kubectl, or put it on PATH") from error

    def _command(self, *arguments: str) -> list[str]:
        return ["kubectl", *arguments, *self.options]


class _StderrReader:
    """What kubectl prints on stderr: its error is kept, what it tells the user (how to log in) goes on to them."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._error = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def last(self) -> str:
        """Return the error that kubectl ended with; empty when it named none."""
        self._reader.join()
        return self._error

    def _read(self) -> None:
        with self._process.stderr or contextlib.nullcontext(()) as lines:
            for line in lines:
                text = line.decode(errors="replace")
                if text.startswith("error: "):
                    self._error = text.removeprefix("error: ").strip()
                elif not _LOG_LINE.match(line):
                    sys.stderr.write(text)


class KubectlProxy:
    """A `kubectl proxy` that listens on a socket."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def get(self, target: str) -> Response:
        """Return the answer for a path with its query. Several threads may ask at a time. Raises Unavailable."""
        with contextlib.closing(_UnixConnection(self._path)) as connection, _answering():
            connection.request("GET", target, headers={"accept": "application/json"})
            response = connection.getresponse()
            warnings = [_warning(text) for text in response.headers.get_all("warning", ())]
            return Response(response.status, response.read(), warnings)

    @contextlib.contextmanager
    def stream(self, target: str) -> Iterator[tuple[Response, Iterator[bytes]]]:
        """Give the lines of an answer as they come; of an error, the whole answer and no lines. Raises Unavailable."""
        with contextlib.closing(_UnixConnection(self._path)) as connection:
            with _answering():
                connection.request("GET", target, headers={"accept": "application/json"})
                response = connection.getresponse()
                failed = response.status != http.client.OK
                answer = Response(response.status, response.read() if failed else b"")
            yield answer, iter(()) if failed else _lines(response)


def _lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while True:
        with _answering():
            line = response.readline()
        if not line:
            return
        yield line


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"kubectl's proxy does not answer: {str(error) or type(error).__name__}") from error


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_ANSWER_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _warning(header: str) -> str:
    """Return the text of a Warning header: `299 - "text"`."""
    found = _WARNING.fullmatch(header)
    return re.sub(r"\\(.)", r"\1", found[1]) if found else header


def _namespace_of_pod() -> str:
    with contextlib.suppress(OSError):
        return _SERVICE_ACCOUNT_NAMESPACE.read_text().strip()
    return ""
