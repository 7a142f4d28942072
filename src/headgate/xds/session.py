"""One delta ADS stream as a pure state machine: requests and configurations in, responses and outcomes out.

The rules (docs in ARCHITECTURE.md, xDS):
- What the proxy holds in the wanted version is never sent again; what it refused, not until it changes.
- Make before break: a route is sent when the proxy holds every cluster that the route names, with endpoints; a cluster
  leaves when no route that the proxy may hold names it.
- A cluster that is sent again is followed by its endpoints: without them Envoy keeps it warming for 15 seconds.
- One response of a type is in flight at a time. `lapse` says that an answer is overdue: then nothing waits for it.
- A refused response with several resources is repeated one by one, so the bad one is known by its own refusal.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPES, Encoded, ProxyConfig, TypeUrl

ORDER = (CLUSTER, ENDPOINTS, LISTENER, ROUTES, SCOPES)
WILDCARD = {CLUSTER, LISTENER, SCOPES}  # types that a proxy asks for as a whole
MOST_OVERDUE = 16  # unanswered responses that are remembered for a late answer
LARGEST = 2**21  # bytes of resources in a response; gRPC clients refuse messages of 4 MiB


class Request(NamedTuple):
    """A DeltaDiscoveryRequest. `error` is Envoy's own text when it refuses the response with that nonce."""

    type_url: TypeUrl
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    initial: Mapping[str, str] = {}
    nonce: str = ""
    error: str | None = None


class Response(NamedTuple):
    """A DeltaDiscoveryResponse."""

    type_url: TypeUrl
    nonce: str
    resources: tuple[tuple[str, Encoded], ...]
    removed: tuple[str, ...] = ()


class Rejected(NamedTuple):
    """The proxy refused one resource, in Envoy's words; it goes on with the version that it had."""

    type_url: TypeUrl
    name: str
    digest: str
    message: str


class Held(NamedTuple):
    """A version that the proxy has accepted; `needs` is unknown for what it brought from an earlier stream."""

    digest: str
    needs: frozenset[str] | None


@dataclass
class Shelf:
    """What one proxy has of one type."""

    wildcard: bool = False
    owed: bool = False  # the first wildcard request gets an answer, if only an empty one
    subscribed: set[str] = field(default_factory=set)
    known: dict[str, str] = field(
        default_factory=dict
    )  # digest last sent, or brought along; "" is: told that there is none
    held: dict[str, Held] = field(default_factory=dict)
    lapsed: set[str] = field(default_factory=set)  # sent, and the answer is overdue
    rejected: dict[str, Rejected] = field(default_factory=dict)
    again: set[str] = field(default_factory=set)  # to be sent though unchanged
    alone: list[str] = field(default_factory=list)  # to be sent one by one
    flying: dict[str, Response] = field(default_factory=dict)  # by nonce
    overdue: set[str] = field(default_factory=set)  # nonces that nothing waits for any more

    @property
    def waits(self) -> bool:
        """Say whether an answer must come before the next response of the type."""
        return any(nonce not in self.overdue for nonce in self.flying)

    def wants(self, config: Mapping[str, Encoded]) -> Mapping[str, Encoded]:
        """Return the part of the configuration that the proxy asked for."""
        if self.wildcard:
            return config
        return {name: config[name] for name in sorted(self.subscribed) if name in config}

    def forget(self, name: str) -> None:
        """Drop what is remembered about a resource that the proxy no longer has."""
        for memory in (self.known, self.held, self.rejected):
            memory.pop(name, None)
        self.lapsed.discard(name)
        self.again.discard(name)


class Session:
    """The state of one stream. Call `offer` and `receive` as things happen, then send what `advance` returns."""

    def __init__(self) -> None:
        self.config: ProxyConfig = {}
        self.shelves = {type_url: Shelf() for type_url in ORDER}
        self._count = 0

    def offer(self, config: ProxyConfig) -> None:
        """Make a configuration the wanted one."""
        self.config = config

    def receive(self, request: Request) -> tuple[Rejected, ...]:
        """Take a request of the proxy: subscriptions, and its answer to an earlier response."""
        shelf = self.shelves.get(request.type_url)
        if shelf is None:
            return ()
        self._subscribe(shelf, request)
        response = shelf.flying.pop(request.nonce, None)
        shelf.overdue.discard(request.nonce)
        if response is None:
            return ()
        if request.error is not None:
            return tuple(_refused(shelf, response, request.error))
        _accepted(shelf, response)
        return ()

    def advance(self) -> list[Response]:
        """Return what may be sent now, in the order in which it must be sent."""
        return [response for type_url in ORDER for response in self._next(type_url)]

    def lapse(self, nonce: str) -> None:
        """Wait no longer for the answer to a response; a late one still counts."""
        for shelf in self.shelves.values():
            if response := shelf.flying.get(nonce):
                shelf.overdue.add(nonce)
                shelf.lapsed.update(name for name, _ in response.resources)
                if len(shelf.overdue) > MOST_OVERDUE:
                    oldest = next(nonce for nonce in shelf.flying if nonce in shelf.overdue)
                    del shelf.flying[oldest]
                    shelf.overdue.discard(oldest)

    def _subscribe(self, shelf: Shelf, request: Request) -> None:
        first = not shelf.wildcard and not shelf.subscribed
        names = set(request.subscribe) - {"*"}
        asks_for_all = "*" in request.subscribe or (first and not request.subscribe)
        if asks_for_all and request.type_url in WILDCARD and not shelf.wildcard:
            shelf.wildcard = True
            shelf.owed = not request.initial
        wanted = self.config.get(request.type_url, {})
        for name, digest in request.initial.items():
            same = name in wanted and wanted[name].digest == digest
            shelf.known[name] = digest
            shelf.held[name] = Held(digest, wanted[name].needs if same else None)
        for name in names - set(request.initial):
            shelf.known.pop(name, None)
        shelf.subscribed |= names
        for name in request.unsubscribe:
            shelf.subscribed.discard(name)
            if not shelf.wildcard:
                shelf.forget(name)

    def _next(self, type_url: TypeUrl) -> Iterator[Response]:
        shelf = self.shelves[type_url]
        if shelf.waits:
            return
        wants = shelf.wants(self.config.get(type_url, {}))
        resources = tuple(self._changed(shelf, wants))
        removed = () if shelf.alone else tuple(self._gone(type_url, shelf, wants))
        if not resources and not removed and not shelf.owed:
            return
        if shelf.alone and resources:
            shelf.alone.remove(resources[0][0])
        shelf.owed = False
        self._count += 1
        response = Response(type_url, str(self._count), resources, removed)
        self._remember(shelf, response)
        yield response

    def _remember(self, shelf: Shelf, response: Response) -> None:
        shelf.flying[response.nonce] = response
        for name, encoded in response.resources:
            if response.type_url == CLUSTER and name in shelf.known and name in self.shelves[ENDPOINTS].subscribed:
                self.shelves[ENDPOINTS].again.add(name)
            shelf.known[name] = encoded.digest
            shelf.again.discard(name)
            shelf.rejected.pop(name, None)
        for name in response.removed:
            shelf.known.pop(name, None)
            if not shelf.wildcard:
                shelf.known[name] = ""

    def _changed(self, shelf: Shelf, wants: Mapping[str, Encoded]) -> Iterator[tuple[str, Encoded]]:
        shelf.alone = [name for name in shelf.alone if name in wants and self._may_follow(shelf, name, wants[name])]
        for name in shelf.alone:
            yield name, wants[name]
            return
        size = 0
        for name, encoded in wants.items():
            same = shelf.known.get(name) == encoded.digest and name not in shelf.again
            if same or not self._may_follow(shelf, name, encoded):
                continue
            size += len(encoded.body)
            if size > LARGEST and size > len(encoded.body):
                return
            yield name, encoded

    def _may_follow(self, shelf: Shelf, name: str, encoded: Encoded) -> bool:
        """Say whether every cluster that the resource names is there, or can't come while the proxy has nothing."""
        clusters, endpoints = self.shelves[CLUSTER], self.shelves[ENDPOINTS]
        wanted_endpoints = self.config.get(ENDPOINTS, {})
        for cluster in encoded.needs:
            if cluster in clusters.rejected and cluster not in clusters.held:
                if name in shelf.held:
                    return False
                continue
            if cluster not in clusters.known or cluster not in clusters.held.keys() | clusters.lapsed:
                return False
            if cluster in wanted_endpoints and cluster not in endpoints.held.keys() | endpoints.lapsed:
                return False
        return True

    def _gone(self, type_url: TypeUrl, shelf: Shelf, wants: Mapping[str, Encoded]) -> Iterator[str]:
        if shelf.wildcard:
            for name in sorted(set(shelf.known) - set(wants)):
                if type_url != CLUSTER or not self._may_be_used(name):
                    yield name
        for name in sorted(shelf.subscribed - set(wants)):
            if name not in shelf.known:
                yield name

    def _may_be_used(self, cluster: str) -> bool:
        """Say whether a route or listener that the proxy has, or is being sent, names the cluster."""
        for type_url in (LISTENER, ROUTES):
            shelf = self.shelves[type_url]
            for held in shelf.held.values():
                if held.needs is None or cluster in held.needs:
                    return True
            for response in shelf.flying.values():
                if any(cluster in encoded.needs for _, encoded in response.resources):
                    return True
        return False


def _accepted(shelf: Shelf, response: Response) -> None:
    for name, encoded in response.resources:
        shelf.held[name] = Held(encoded.digest, encoded.needs)
        shelf.lapsed.discard(name)
        shelf.rejected.pop(name, None)
    for name in response.removed:
        if not shelf.known.get(name):
            shelf.held.pop(name, None)
            shelf.lapsed.discard(name)


def _refused(shelf: Shelf, response: Response, message: str) -> Iterator[Rejected]:
    if len(response.resources) > 1:
        shelf.alone += [name for name, _ in response.resources if name not in shelf.alone]
        return
    for name, encoded in response.resources:
        rejected = Rejected(response.type_url, name, encoded.digest, message)
        shelf.rejected[name] = rejected
        shelf.lapsed.discard(name)
        yield rejected
