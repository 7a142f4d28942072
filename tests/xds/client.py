"""A proxy in this process: its stream is a real session, and it asks for what Envoy asks for."""

from collections.abc import Collection, Mapping
from typing import TypeAlias

from headgate.envoy import names
from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ROUTES, RUNTIME, SCOPES, SECRET, ProxyConfig, TypeUrl
from headgate.xds.fleet import Proxy
from headgate.xds.session import Request, Session
from headgate.xds.shelf import Response

WHOLE = (CLUSTER, LISTENER, SCOPES)
Resource: TypeAlias = tuple[TypeUrl, str]
NONE: Mapping[Resource, str] = {}
BY_NAME = (ENDPOINTS, SECRET, ROUTES, RUNTIME)


class Client:
    """Connects a proxy; `take` answers what the control plane sends. Without a call nothing is answered."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.session = Session()
        self._asked: dict[TypeUrl, set[str]] = {type_url: set() for type_url in BY_NAME}
        for type_url in WHOLE:
            self.session.receive(Request(type_url))
        proxy.attach(self.session, lambda _: None)

    def take(self, *, refuse: Mapping[Resource, str] = NONE, silent: Collection[Resource] = ()) -> list[Response]:
        """Take what is sent until nothing more is; return it.

        `refuse` has the words for resources that are refused. A response with a `silent` one is not answered.
        """
        sent = self.receive()
        for response in sent:
            found = {(response.type_url, name) for name, _ in response.resources}
            if found.isdisjoint(silent):
                self.answer(response, next((words for one, words in refuse.items() if one in found), None))
        return [*sent, *self.take(refuse=refuse, silent=silent)] if sent else []

    def receive(self) -> list[Response]:
        """Subscribe to what the configuration leads to; return what is sent, without an answer."""
        config = self.proxy.config.get()
        if config is None:
            return []
        if config is not self.session.config:
            self.session.offer(config)
        for type_url in BY_NAME:
            if new := _wanted(config, type_url) - self._asked[type_url]:
                self._asked[type_url] |= new
                self.session.receive(Request(type_url, subscribe=tuple(sorted(new))))
        return self.session.advance()

    def answer(self, response: Response, error: str | None = None) -> None:
        """Acknowledge a response, or refuse it in these words."""
        self.session.receive(Request(response.type_url, nonce=response.nonce, error=error))

    def leave(self) -> None:
        """Close the stream."""
        self.proxy.detach(self.session)


def outdate(proxy: Proxy, type_url: TypeUrl, *found: str) -> None:
    """Give a proxy new versions of some resources."""
    config = proxy.config.get()
    assert config
    changed = {name: config[type_url][name]._replace(digest=f"{config[type_url][name].digest}+") for name in found}
    proxy.config.set({**config, type_url: {**config[type_url], **changed}})


def _wanted(config: ProxyConfig, type_url: TypeUrl) -> set[str]:
    """Return what a proxy asks for by name: all but the routes of connections, which no listener leads to."""
    found = set(config.get(type_url, ()))
    listeners = config.get(LISTENER, {})
    if type_url != ROUTES or names.PROXY in listeners:
        return found
    for_requests = {names.parse(name) for name, encoded in listeners.items() if not encoded.needs}
    return {name for name in found if not name.startswith("outbound/") or names.parse(name) in for_requests}
