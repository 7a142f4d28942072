"""Run `kubectl traffic` in this process, or with a real kubectl, against recorded API responses."""

import base64
import contextlib
import json
import os
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.processes import Ran
from typer.testing import CliRunner

from headgate.api.certificate import CertificateFiles, certificate_in
from headgate.cli.traffic.app import NAME, app
from headgate.cli.traffic.kubectl_proxy import ProxiedResponse

BIN = Path(sys.executable).parent


def answer(responses: Mapping[str, Any], target: str) -> tuple[int, bytes]:
    """Return the recorded status and body for a path. A plain-text body is sent as it is, other bodies as JSON."""
    found = responses.get(urlsplit(target).path, (404, "404 page not found"))
    status, body = found if isinstance(found, tuple) else (200, found)
    return status, body.encode() if isinstance(body, str) else json.dumps(body).encode()


class InProcessPlugin:
    """Runs the plugin in this process, with recorded responses by path instead of kubectl.

    `requests` has the requests that the plugin has sent.
    """

    def __init__(self) -> None:
        self.responses: dict[str, Any] = {}
        self.requests: list[str] = []
        self.warning = ""

    def namespace(self) -> str:
        return "default"

    @contextlib.contextmanager
    def proxy(self) -> Iterator["InProcessPlugin"]:
        yield self

    def get(self, target: str) -> ProxiedResponse:
        self.requests.append(target)
        return ProxiedResponse(*answer(self.responses, target), warnings=(self.warning,) if self.warning else ())

    def run(self, *arguments: str) -> Ran:
        result = CliRunner().invoke(app, list(arguments), prog_name=NAME, obj=self)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        return Ran(result.exit_code, result.stdout, result.stderr)

    def ok(self, *arguments: str) -> str:
        """Run a command that must succeed with an empty stderr; return its output."""
        ran = self.run(*arguments)
        assert (ran.code, ran.err) == (0, "")
        return ran.out


@pytest.fixture
def plugin() -> InProcessPlugin:
    return InProcessPlugin()


class RecordedApi:
    """An API server with recorded responses by path; `requests` has the paths with queries, in order."""

    def __init__(self, directory: Path, certificate: CertificateFiles) -> None:
        self.responses: dict[str, Any] = {}
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.warning = ""
        self.kubeconfig = directory / "kubeconfig"
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._answering())
        self._server.daemon_threads = True
        self._pem = certificate.pem
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.path, certificate.key_path)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"https://127.0.0.1:{self._server.server_port}"
        self.write_kubeconfig()

    def write_kubeconfig(self, **context: str) -> None:
        trusted = {"server": self.url, "certificate-authority-data": base64.b64encode(self._pem).decode()}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": "here", "cluster": trusted}],
            "users": [{"name": "me", "user": {"token": "a-token"}}],
            "contexts": [
                {"name": "here", "context": {"cluster": "here", "user": "me", **context}},
                {"name": "shop", "context": {"cluster": "here", "user": "me", "namespace": "shop"}},
            ],
        }
        self.kubeconfig.write_text(json.dumps(config))

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def command(self, *arguments: str) -> list[str]:
        return [str(BIN / "kubectl"), "traffic", *arguments]

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        return {**kept, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "KUBECONFIG": str(self.kubeconfig)}

    def run(self, *arguments: str) -> Ran:
        done = subprocess.run(
            self.command(*arguments), capture_output=True, text=True, env=self.environment(), check=False
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: str) -> str:
        """Run a command that must succeed with an empty stderr; return its output."""
        ran = self.run(*arguments)
        assert (ran.code, ran.err) == (0, "")
        return ran.out

    def _answering(recorded: "RecordedApi") -> type[BaseHTTPRequestHandler]:  # noqa: N805 - the handler class has its own self
        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                recorded.requests.append(self.path)
                recorded.headers.append({name.lower(): value for name, value in self.headers.items()})
                status, content = answer(recorded.responses, self.path)
                self.send_response(status)
                self.send_header("content-type", "application/json")
                if recorded.warning:
                    self.send_header("warning", f'299 - "{recorded.warning}"')
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                """Do not log requests."""

        return Answering


def refusal(code: int, message: str, reason: str) -> tuple[int, Any]:
    return code, {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return certificate_in(tmp_path_factory.mktemp("certificate"))


@pytest.fixture
def api(tmp_path: Path, certificate: CertificateFiles) -> Iterator[RecordedApi]:
    if not (BIN / "kubectl").exists() or not (BIN / "kubectl-traffic").exists():
        pytest.skip(
            "kubectl or kubectl-traffic is not in the directory of Python: install the package and its dev group"
        )
    recorded = RecordedApi(tmp_path, certificate)
    yield recorded
    recorded.close()


GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return a function that compares a text with a golden file, or writes the file with --update-golden."""

    def compare(name: str, text: str) -> None:
        if request.config.getoption("--update-golden"):
            (GOLDEN / name).write_text(text)
        assert text == (GOLDEN / name).read_text()

    return compare


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed on this machine")
    return found
