"""Calls of the webhooks, as an API server sends them."""

import json
from typing import Any

from starlette.applications import Starlette

from headgate.resources.meta import Object


async def call(app: Starlette, path: str, body: Any, method: str = "POST") -> tuple[int, Any]:
    """Call the application; return the status and the decoded body."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": content}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
    await app(scope, receive, send)
    answer = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], json.loads(answer) if answer.startswith(b"{") else answer.decode()


def review(obj: Object, **more: Any) -> Any:
    request = {"uid": "123", "operation": "CREATE", "namespace": "shop", "object": obj, **more}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
