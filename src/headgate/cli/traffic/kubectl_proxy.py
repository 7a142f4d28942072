"""Call the Kubernetes API through `kubectl proxy`, on a Unix socket that only this user can open.

kubectl supports every way to authenticate: certificates, tokens, exec plugins, proxies, impersonation. `kubectl proxy`
authenticates once for all queries. `kubectl get --raw` would authenticate for each query, and a client library would
differ from kubectl in details.
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
from headgate.formatting import printable

_SERVICE_ACCOUNT_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_RESPONSE_S = 60.0
_LOG_LINE = re.compile(
    rb"[EWI]\d{4} "
)  # prefix of kubectl's own log (klog), which is not printed: the response has the same error
_WARNING = re.compile(r'\d{3} \S+ "(.*)"(?: "[^"]*")?')
_WRITES = "^(POST|PUT|PATCH|DELETE)$"


class ProxiedResponse(NamedTuple):
    """Status code, body and warnings of an API response."""

    status: int
    body: bytes
    warnings: Sequence[str] = ()


class Kubectl(NamedTuple):
    """kubectl, with its options for the cluster and the user: `--context=...`."""

    options: Sequence[str] = ()

    def namespace(self) -> str:
        """Return the namespace of the context, else of the pod in which this program runs, else `default`."""
        ran = subprocess.run(  # noqa: S603 - kubectl with the options of the user
            self._command("config", "view", "--minify", "--output=jsonpath={..namespace}"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        return ran.stdout.decode().strip() or _namespace_of_pod() or "default"

    @contextlib.contextmanager
    def proxy(self) -> Iterator["KubectlProxy"]:
        """Run `kubectl proxy` while the `with` block runs. Raises HeadgateError with kubectl's message when it does not start."""
        with tempfile.TemporaryDirectory(prefix="kubectl-traffic-") as directory:
            path = Path(directory, "api")
            process = self._start(path)
            stderr = _StderrReader(process)
            try:
                if process.stdout is None or not process.stdout.readline():
                    raise HeadgateError(stderr.error() or "`kubectl proxy` exited before it was ready")
                yield KubectlProxy(path)
            finally:
                process.terminate()
                process.wait()
                stderr.error()
                if process.stdout is not None:
                    process.stdout.close()

    def _start(self, path: Path) -> "subprocess.Popen[bytes]":
        command = self._command("proxy", f"--unix-socket={path}", f"--reject-methods={_WRITES}")
        try:
            return subprocess.Popen(  # noqa: S603 - kubectl with the options of the user
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            reason = error.strerror or "unknown error"
            raise HeadgateError(f"kubectl can't be started ({reason}); install kubectl and put it on PATH") from error

    def _command(self, *arguments: str) -> list[str]:
        return ["kubectl", *arguments, *self.options]


class _StderrReader:
    """Reads the stderr of kubectl: stores the error, and prints other lines, such as login instructions, on stderr."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._error = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def error(self) -> str:
        """Wait until kubectl has exited; return its error, or an empty text."""
        self._reader.join()
        return self._error

    def _read(self) -> None:
        with self._process.stderr or contextlib.nullcontext(()) as lines:
            for line in lines:
                text = line.decode(errors="replace")
                if text.startswith("error: "):
                    self._error = text.removeprefix("error: ").strip()
                elif not _LOG_LINE.match(line):
                    sys.stderr.write(printable(text))


class KubectlProxy:
    """A client of a running `kubectl proxy`."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def get(self, target: str) -> ProxiedResponse:
        """Return the response for a path with query parameters. This method is thread-safe. Raises Unavailable."""
        with contextlib.closing(_UnixConnection(self._path)) as connection, _unavailable_on_error():
            connection.request("GET", target, headers={"accept": "application/json"})
            response = connection.getresponse()
            warnings = [_warning(text) for text in response.headers.get_all("warning", ())]
            return ProxiedResponse(response.status, response.read(), warnings)

    @contextlib.contextmanager
    def stream(self, target: str) -> Iterator[tuple[ProxiedResponse, Iterator[bytes]]]:
        """Yield the response and an iterator of its lines. An error response has its body and no lines. Raises Unavailable."""
        with contextlib.closing(_UnixConnection(self._path)) as connection:
            with _unavailable_on_error():
                connection.request("GET", target, headers={"accept": "application/json"})
                response = connection.getresponse()
                failed = response.status != http.client.OK
                answer = ProxiedResponse(response.status, response.read() if failed else b"")
            yield answer, iter(()) if failed else _lines(response)


def _lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while True:
        with _unavailable_on_error():
            line = response.readline()
        if not line:
            return
        yield line


@contextlib.contextmanager
def _unavailable_on_error() -> Iterator[None]:
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"`kubectl proxy` does not respond: {str(error) or type(error).__name__}") from error


class _UnixConnection(http.client.HTTPConnection):
    """An HTTP connection over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_RESPONSE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _warning(header: str) -> str:
    """Return the text of a Warning header such as `299 - "text"`."""
    match = _WARNING.fullmatch(header)
    return re.sub(r"\\(.)", r"\1", match[1]) if match else header


def _namespace_of_pod() -> str:
    with contextlib.suppress(OSError):
        return _SERVICE_ACCOUNT_NAMESPACE.read_text().strip()
    return ""
