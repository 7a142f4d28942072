"""A session with a simulated proxy that acknowledges every response, without a network."""

from headgate.envoy.config import CHAIN, CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPES, SECRET, ProxyConfig
from headgate.xds.messages import DeltaRequest
from headgate.xds.session import Session
from headgate.xds.subscription import Response

FOLLOWS = {CLUSTER: (ENDPOINTS, SECRET), LISTENER: (CHAIN, ROUTES, SECRET), SCOPES: (ROUTES,)}
"""The types to which a proxy subscribes by name after it has received other types."""


class Stream:
    """A session with a simulated proxy that subscribes to dependent resources, as Envoy does."""

    def __init__(self) -> None:
        self.session = Session()
        for type_url in (CLUSTER, LISTENER, SCOPES):
            self.session.receive(DeltaRequest(type_url))

    def deliver(self, config: ProxyConfig) -> list[Response]:
        """Set a configuration; return all responses until nothing more is sent."""
        self.session.set_config(config)
        sent: list[Response] = []
        while responses := self.session.next_responses():
            sent += responses
            for response in responses:
                self.session.receive(DeltaRequest(response.type_url, nonce=response.nonce))
                self._ask(FOLLOWS.get(response.type_url, ()), config)
        return sent

    def _ask(self, types: tuple[str, ...], config: ProxyConfig) -> None:
        for type_url in types:
            if new := config[type_url].keys() - self.session.subscriptions[type_url].subscribed:
                self.session.receive(DeltaRequest(type_url, subscribe=tuple(sorted(new))))
