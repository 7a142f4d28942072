"""The stream of a proxy that takes whatever it is sent, without a proxy and without a stream."""

from headgate.envoy.config import CHAIN, CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPES, SECRET, ProxyConfig
from headgate.xds.session import Request, Session
from headgate.xds.subscription import Response

FOLLOWS = {CLUSTER: (ENDPOINTS, SECRET), LISTENER: (CHAIN, ROUTES, SECRET), SCOPES: (ROUTES,)}
"""What a proxy asks for by name when it has taken others."""


class Stream:
    """A session with a proxy that asks for what follows from what it is sent, as Envoy does."""

    def __init__(self) -> None:
        self.session = Session()
        for type_url in (CLUSTER, LISTENER, SCOPES):
            self.session.receive(Request(type_url))

    def deliver(self, config: ProxyConfig) -> list[Response]:
        """Make a configuration the wanted one; return all that was sent when nothing more is."""
        self.session.set_config(config)
        sent: list[Response] = []
        while responses := self.session.next_responses():
            sent += responses
            for response in responses:
                self.session.receive(Request(response.type_url, nonce=response.nonce))
                self._ask(FOLLOWS.get(response.type_url, ()), config)
        return sent

    def _ask(self, types: tuple[str, ...], config: ProxyConfig) -> None:
        for type_url in types:
            if new := config[type_url].keys() - self.session.subscriptions[type_url].subscribed:
                self.session.receive(Request(type_url, subscribe=tuple(sorted(new))))
