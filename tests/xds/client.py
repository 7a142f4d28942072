"""A proxy without Envoy: it drives a session and subscribes to what Envoy would subscribe to."""

from collections.abc import Collection, Mapping
from typing import TypeAlias

from headgate.envoy import names
from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ROUTES, RUNTIME, SCOPES, SECRET, ProxyConfig, TypeUrl
from headgate.xds.fleet import FleetProxy
from headgate.xds.messages import DeltaRequest
from headgate.xds.session import Session
from headgate.xds.subscription import Response

WHOLE = (CLUSTER, LISTENER, SCOPES)
Resource: TypeAlias = tuple[TypeUrl, str]
NONE: Mapping[Resource, str] = {}
BY_NAME = (ENDPOINTS, SECRET, ROUTES, RUNTIME)


class XdsClient:
    """Connects a proxy to a session. Responses are only answered by `take` and `answer`."""

    def __init__(self, proxy: FleetProxy) -> None:
        self.proxy = proxy
        self.session = Session()
        self._subscribed: dict[TypeUrl, set[str]] = {type_url: set() for type_url in BY_NAME}
        for type_url in WHOLE:
            self.session.receive(DeltaRequest(type_url))
        proxy.attach(self.session, lambda _: None)

    def take(self, *, refuse: Mapping[Resource, str] = NONE, silent: Collection[Resource] = ()) -> list[Response]:
        """Answer responses until no more follow; return them.

        `refuse` has the error messages of resources to reject. A response with a `silent` resource is not answered.
        """
        sent = self.receive()
        for response in sent:
            found = {(response.type_url, name) for name, _ in response.resources}
            if found.isdisjoint(silent):
                self.answer(response, next((message for one, message in refuse.items() if one in found), None))
        return [*sent, *self.take(refuse=refuse, silent=silent)] if sent else []

    def receive(self) -> list[Response]:
        """Subscribe to the resources that the configuration names; return the responses without answering them."""
        config = self.proxy.config.get()
        if config is None:
            return []
        if config is not self.session.config:
            self.session.set_config(config)
        for type_url in BY_NAME:
            if new := _wanted(config, type_url) - self._subscribed[type_url]:
                self._subscribed[type_url] |= new
                self.session.receive(DeltaRequest(type_url, subscribe=tuple(sorted(new))))
        return self.session.next_responses()

    def answer(self, response: Response, error: str | None = None) -> None:
        """Send an ACK of a response, or a NACK with an error message."""
        self.session.receive(DeltaRequest(response.type_url, nonce=response.nonce, error=error))

    def leave(self) -> None:
        """Close the stream."""
        self.proxy.detach(self.session)


def outdate(proxy: FleetProxy, type_url: TypeUrl, *found: str) -> None:
    """Give a proxy new versions of some resources."""
    config = proxy.config.get()
    assert config
    changed = {name: config[type_url][name]._replace(digest=f"{config[type_url][name].digest}+") for name in found}
    proxy.config.set({**config, type_url: {**config[type_url], **changed}})


def _wanted(config: ProxyConfig, type_url: TypeUrl) -> set[str]:
    """Return the names that a proxy subscribes to. Routes are left out if their port has a TCP listener."""
    found = set(config.get(type_url, ()))
    listeners = config.get(LISTENER, {})
    if type_url != ROUTES or names.PROXY in listeners:
        return found
    for_requests = {names.parse(name) for name, encoded in listeners.items() if not encoded.needs}
    return {name for name in found if not name.startswith("outbound/") or names.parse(name) in for_requests}
