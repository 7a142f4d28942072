"""Send a request to the admin interface of an Envoy on its unix socket; fast to import, as hooks of containers use it."""

import http.client
import socket
from pathlib import Path

from headgate.errors import ProxyError

_ANSWER_S = 10.0


def post(path: Path, target: str, *, limit_s: float | None = _ANSWER_S) -> None:
    """Send a POST request. Raises ProxyError without a response in time, or for another status than 200."""
    connection = http.client.HTTPConnection("localhost")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection.sock:
            connection.sock.settimeout(limit_s)
            connection.sock.connect(str(path))
            connection.request("POST", target)
            response = connection.getresponse()
            text = response.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        raise ProxyError(f"Envoy's admin interface at {path} does not answer: {error}") from error
    if response.status != 200:
        raise ProxyError(f"Envoy's admin interface answers {target} with status {response.status}: {text}")
