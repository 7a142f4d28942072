"""What stands for a cluster's API server in front of the aggregated APIs: its reviews, and its client certificate."""

from collections.abc import AsyncGenerator, Callable
from typing import Any

from tests.embedded_api import AsgiClient

from headgate.api.delegated_auth import RequestHeaderConfig
from headgate.errors import ProxyError

CONFIG = RequestHeaderConfig(authority="", names=("config-proxy",))


class FakeReviewer:
    """An API server that answers SubjectAccessReviews by a rule and records them."""

    def __init__(self, rule: Callable[[dict[str, Any]], bool] = lambda _: True) -> None:
        self.rule = rule
        self.requests: list[Any] = []
        self.fails = False

    async def create(self, path: str, body: Any) -> dict[str, Any]:
        assert path == "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        if self.fails:
            raise ProxyError("the API server does not answer")
        self.requests.append(body["spec"])
        return {"status": {"allowed": self.rule(body["spec"])}}

    async def read(self, path: str) -> dict[str, Any]:
        raise NotImplementedError


class AggregationClient(AsgiClient):
    """A client with a certificate for the common name `client_name`; None sends no certificate."""

    client_name: str | None = "config-proxy"

    async def stream(self, method: str, url: str, body: Any = None, **headers: str) -> AsyncGenerator[Any]:
        inner = self.app

        async def app(scope: Any, receive: Any, send: Any) -> None:
            tls = {} if self.client_name is None else {"client_cert_name": self.client_name}
            await inner({**scope, "extensions": {"tls": tls}}, receive, send)

        self.app = app  # type: ignore[assignment]
        try:
            async for chunk in super().stream(method, url, body, **headers):
                yield chunk
        finally:
            self.app = inner
