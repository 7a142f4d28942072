"""An admission webhook that denies new Services."""

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.cluster.api_server import READY_S, KubeApiServer

from headgate.api.certificate import self_signed

NAME = "policy.example.com"
MESSAGE = "no new objects today"
_PATH = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


class _Denial(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["content-length"])))
        response = {"uid": review["request"]["uid"], "allowed": False, "status": {"message": MESSAGE}}
        body = json.dumps({**review, "request": None, "response": response}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Write nothing to the output of the tests."""


@contextmanager
def denying(server: KubeApiServer, *, serves: bool = True) -> Iterator[None]:
    """Deny new Services until the `with` block ends. Without `serves`, no server answers."""
    certificate, key = self_signed()
    files = server.root / "webhook.crt", server.root / "webhook.key"
    for file, content in zip(files, (certificate, key), strict=True):
        file.write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Denial) as webhook:
        webhook.socket = context.wrap_socket(webhook.socket, server_side=True)
        thread = threading.Thread(target=webhook.serve_forever)
        thread.start()
        url = f"https://127.0.0.1:{webhook.server_address[1] if serves else 1}/"
        server.make(_PATH, _configuration(url, certificate))
        try:
            _wait_until_denied(server)
            yield
        finally:
            server.call("DELETE", f"{_PATH}/{NAME}")
            webhook.shutdown()
            thread.join()


def _wait_until_denied(server: KubeApiServer) -> None:
    """Create Services as a dry run until the API server has read the configuration of the webhook."""
    body = {"metadata": {"name": "probe"}, "spec": {"ports": [{"port": 80}]}}
    deadline = time.monotonic() + READY_S
    while NAME not in str(server.call("POST", "/api/v1/namespaces/default/services?dryRun=All", body)[1]):
        assert time.monotonic() < deadline, "the API server does not call the webhook"
        time.sleep(0.1)  # the API server has no event for this


def _configuration(url: str, certificate: bytes) -> Any:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["services"], "operations": ["CREATE"]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [
            {
                "name": NAME,
                "clientConfig": {"url": url, "caBundle": base64.b64encode(certificate).decode()},
                "rules": [rule],
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 30,  # a busy machine answers late
            }
        ],
    }
