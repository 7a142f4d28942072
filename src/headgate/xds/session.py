"""One delta ADS stream as a pure state machine: requests and configurations in, responses and outcomes out.

The rules:
- What the proxy holds in the wanted version is never sent again; what it refused, not until it changes. The exception is
  a listener whose address was in use: the resource is right, so it is offered again from time to time (`retry`).
- Make before break: a route is sent when the proxy holds every cluster that the route names, with endpoints; a cluster
  leaves when no route that the proxy may hold names it. What it brings from an earlier stream counts as held, so nothing
  leaves before it has told its routes.
- A cluster that is sent again is followed by its endpoints: without them Envoy keeps it warming for 15 seconds.
- One response of a type is in flight at a time. `lapse` says that an answer is overdue: then nothing waits for it.
- A refused response with several resources is repeated one by one, so the bad one is known by its own refusal.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headgate.envoy.config import CLUSTER, ENDPOINTS, LISTENER, ORDER, ROUTES, SCOPES, Encoded, ProxyConfig, TypeUrl

WILDCARD = {CLUSTER, LISTENER, SCOPES}  # types that a proxy asks for as a whole
MOST_OVERDUE = 16  # unanswered responses that are remembered for a late answer
MOST_NAMES = 10_000  # of a type that a stream may have beyond those that are wanted and those that it began with
NOTHING: Mapping[str, Encoded] = {}
UNSURE = "?"  # the digest of what was removed in a response that was refused: it may be there or not
IN_USE = "cannot bind"  # Envoy's words when a listener's address can't be had now
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

    spoken: bool = False  # a request of the type came
    wildcard: bool = False
    owed: bool = False  # the first wildcard request gets an answer, if only an empty one (`Proxy.has_told`)
    subscribed: set[str] = field(default_factory=set)
    # The digest last sent, or brought along; "" is: told that there is none.
    known: dict[str, str] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    brought: set[str] = field(default_factory=set)  # names that it had when the stream began
    doubtful: dict[str, frozenset[str]] = field(default_factory=dict)  # clusters of versions that may be in force
    lapsed: set[str] = field(default_factory=set)  # sent, and the answer is overdue
    rejected: dict[str, Rejected] = field(default_factory=dict)
    again: dict[str, Encoded] = field(default_factory=dict)  # to be sent though unchanged, or even gone
    alone: dict[str, None] = field(default_factory=dict)  # to be sent one by one, in this order
    flying: dict[str, Response] = field(default_factory=dict)  # by nonce
    overdue: set[str] = field(default_factory=set)  # nonces that nothing waits for any more
    # Configurations that were looked through with no result; the same one needs no second look until `touch`.
    finished: Mapping[str, Encoded] | None = None  # nothing is left to send of it
    complete: Mapping[str, Encoded] | None = None  # the proxy holds it
    matching: Mapping[str, Encoded] | None = None  # the proxy holds it, and nothing else

    def touch(self) -> None:
        """Note that something happened to the type, so that its configuration is looked through once more."""
        self.finished = self.complete = self.matching = None

    @property
    def waits(self) -> bool:
        """Say whether an answer must come before the next response of the type."""
        return any(nonce not in self.overdue for nonce in self.flying)

    def asks_for(self, name: str) -> bool:
        """Say whether the proxy is subscribed to a resource."""
        return self.wildcard or name in self.subscribed

    def missing(self, config: Mapping[str, Encoded]) -> Sequence[str]:
        """Return the names that the proxy asked for and does not hold as they are wanted."""
        if self.complete is config:
            return ()
        held = self.held
        wanted = config if self.wildcard else self.subscribed & config.keys()
        found = [name for name in wanted if name not in held or held[name].digest != config[name].digest]
        self.complete = None if found else config
        return found

    def differing(self, config: Mapping[str, Encoded]) -> Sequence[tuple[str, Encoded]]:
        """Return what the proxy asked for and was not sent as it is wanted, or is to be sent again."""
        known, again = self.known, self.again
        wanted = config if self.wildcard else self.subscribed & config.keys()
        found = [(name, config[name]) for name in wanted if known.get(name) != config[name].digest or name in again]
        left = ((name, encoded) for name, encoded in again.items() if name not in config and self.asks_for(name))
        return (*(found if self.wildcard else sorted(found)), *left)

    def gone(self, config: Mapping[str, Encoded]) -> Sequence[str]:
        """Return what the proxy has and should not, as far as it takes it away by itself: what it asks for as a whole."""
        if not self.wildcard:
            return ()
        return sorted(name for name, digest in self.known.items() if digest and name not in config)

    def let_go_alone(self, config: Mapping[str, Encoded]) -> None:
        """Send nothing one by one that is not wanted now; whether the proxy took it is not known, should it come back."""
        for name in [name for name in self.alone if name not in config or not self.asks_for(name)]:
            del self.alone[name]
            if name in self.known:
                self.known[name] = UNSURE

    def forget(self, name: str) -> None:
        """Drop what is remembered about a resource that the proxy no longer has."""
        for memory in (self.known, self.held, self.rejected, self.doubtful):
            memory.pop(name, None)
        self.again.pop(name, None)
        self.lapsed.discard(name)

    def doubt(self, response: Response) -> None:
        """Remember that the proxy may have taken any of the resources, and won't say which.

        Not those that it was told later to remove: it does what it is told in order, if it does anything.
        """
        for name, encoded in response.resources:
            if encoded.needs and name in (self.known if self.wildcard else self.subscribed):
                self.doubtful[name] = self.doubtful.get(name, frozenset()) | encoded.needs

    def overgrown(self, wanted: int) -> bool:
        """Say whether it remembers far more names than a proxy can have that is to hold `wanted`."""
        most = MOST_NAMES + wanted + len(self.brought)
        memories = (self.subscribed, self.known, self.held, self.doubtful, self.lapsed, self.rejected, self.again)
        return any(len(memory) > most for memory in memories)

    def recognise(self, config: Mapping[str, Encoded]) -> None:
        """Fill in what is known by now about resources that the proxy brought along."""
        for name in self.brought & config.keys() & self.held.keys():
            if self.held[name] == (config[name].digest, None):
                self.held[name] = Held(config[name].digest, config[name].needs)


class Session:
    """The state of one stream. Call `offer` and `receive` as things happen, then send what `advance` returns."""

    def __init__(self) -> None:
        self.config: ProxyConfig = {}
        self.shelves = {type_url: Shelf() for type_url in ORDER}
        self._count = 0

    def offer(self, config: ProxyConfig) -> None:
        """Make a configuration the wanted one."""
        self.config = config
        for type_url, shelf in self.shelves.items():
            shelf.recognise(config.get(type_url, {}))

    def receive(self, request: Request) -> tuple[Rejected, ...]:
        """Take a request of the proxy: subscriptions, and its answer to an earlier response."""
        shelf = self.shelves.get(request.type_url)
        if shelf is None:
            return ()
        shelf.touch()
        self._subscribe(shelf, request)
        response = shelf.flying.pop(request.nonce, None)
        shelf.overdue.discard(request.nonce)
        if response is None:
            return ()
        if request.error is not None:
            return tuple(_refused(shelf, response, request.error))
        _accepted(shelf, response)
        if request.type_url == ENDPOINTS:  # of routes the answer may be about what came after it asked: they count
            for name in request.subscribe:
                shelf.held.pop(name, None)
        return ()

    def advance(self) -> list[Response]:
        """Return what may be sent now, in the order in which it must be sent."""
        return [response for type_url in ORDER for response in self._next(type_url)]

    def lapse(self, nonce: str) -> None:
        """Wait no longer for the answer to a response; a late one still counts."""
        for shelf in self.shelves.values():
            if response := shelf.flying.get(nonce):
                shelf.touch()
                shelf.flying[nonce] = _without_bodies(response)
                shelf.overdue.add(nonce)
                shelf.lapsed.update(name for name, _ in response.resources)
                if len(shelf.overdue) > MOST_OVERDUE:
                    oldest = next(nonce for nonce in shelf.flying if nonce in shelf.overdue)
                    shelf.doubt(shelf.flying.pop(oldest))
                    shelf.overdue.discard(oldest)

    @property
    def is_overgrown(self) -> bool:
        """Whether more is remembered than a proxy can have: one that never answers, or asks for names without end.

        It is best to end the stream: the proxy comes back and says what it has.
        """
        return any(shelf.overgrown(len(self.config.get(type_url, ()))) for type_url, shelf in self.shelves.items())

    def retry(self) -> None:
        """Offer listeners again that were refused for want of their address."""
        shelf = self.shelves[LISTENER]
        shelf.touch()
        shelf.alone |= {name: None for name, rejected in shelf.rejected.items() if IN_USE in rejected.message}

    def _subscribe(self, shelf: Shelf, request: Request) -> None:
        first = not shelf.wildcard and not shelf.subscribed
        names = set(request.subscribe) - {"*"}
        asks_for_all = "*" in request.subscribe or (first and not request.subscribe)
        if asks_for_all and request.type_url in WILDCARD and not shelf.wildcard:
            shelf.wildcard = True
            shelf.owed = request.type_url == CLUSTER or not request.initial
        shelf.spoken = True
        for name, digest in request.initial.items():
            shelf.known[name] = digest
            shelf.held[name] = Held(digest, None)
            shelf.brought.add(name)
        shelf.recognise(self.config.get(request.type_url, {}))
        for name in names - set(request.initial):  # it let go of them, and has nothing of them now
            shelf.known.pop(name, None)
            shelf.held.pop(name, None)
            shelf.lapsed.discard(name)
        shelf.subscribed |= names
        for name in request.unsubscribe:
            shelf.subscribed.discard(name)
            if not shelf.wildcard:
                shelf.forget(name)

    def _next(self, type_url: TypeUrl) -> Iterator[Response]:
        shelf, config = self.shelves[type_url], self.config.get(type_url, NOTHING)
        if shelf.waits or shelf.finished is config:
            return
        shelf.let_go_alone(config)
        differing, gone = shelf.differing(config), shelf.gone(config)
        resources = tuple(self._sendable(shelf, config, differing))
        removed = (*self._removable(type_url, gone), *_never_told(shelf, config))
        if not resources and not removed and not shelf.owed:
            if not differing and not gone and not shelf.alone:
                shelf.finished = config
            return
        if resources:
            shelf.alone.pop(resources[0][0], None)
        shelf.owed = False
        self._count += 1
        response = Response(type_url, str(self._count), resources, removed)
        self._remember(shelf, response)
        yield response

    def _remember(self, shelf: Shelf, response: Response) -> None:
        shelf.flying[response.nonce] = response
        for name, encoded in response.resources:
            if response.type_url == CLUSTER and name in shelf.known:
                self._repeat_endpoints(name)
            shelf.known[name] = encoded.digest
            shelf.again.pop(name, None)
            if name in shelf.rejected and shelf.rejected[name].digest != encoded.digest:
                del shelf.rejected[name]
        for name in response.removed:
            shelf.known.pop(name, None)
            shelf.lapsed.discard(name)
            shelf.rejected.pop(name, None)
            if name in shelf.subscribed:
                shelf.known[name] = ""
            if response.type_url == CLUSTER:
                self.shelves[ENDPOINTS].again.pop(name, None)

    def _repeat_endpoints(self, cluster: str) -> None:
        """Send the endpoints again: after a reconnect before the proxy has asked, after a removal the last ones."""
        if endpoints := self.config.get(ENDPOINTS, {}).get(cluster):
            self.shelves[ENDPOINTS].again[cluster] = endpoints
            self.shelves[ENDPOINTS].touch()

    def _sendable(
        self, shelf: Shelf, config: Mapping[str, Encoded], differing: Sequence[tuple[str, Encoded]]
    ) -> Iterator[tuple[str, Encoded]]:
        for name in shelf.alone:
            if self._may_follow(shelf, name, config[name]):
                yield name, config[name]
                return
        size = 0
        for name, encoded in differing:
            if name in shelf.alone or not self._may_follow(shelf, name, encoded):
                continue
            size += len(encoded.body)
            if size > LARGEST and size > len(encoded.body):
                return
            yield name, encoded

    def _may_follow(self, shelf: Shelf, name: str, encoded: Encoded) -> bool:
        """Say whether every cluster that the resource names is there, or can't come while the proxy has nothing."""
        for cluster in encoded.needs:
            if self._is_refused(cluster):
                if name in shelf.held and name in shelf.known:  # unless it let go of it and asked again meanwhile
                    return False
            elif not self._is_usable(cluster):
                return False
        return True

    def _is_refused(self, cluster: str) -> bool:
        """Say whether the proxy has no version of the cluster or its endpoints, and refused the one that is wanted."""
        for type_url in (CLUSTER, ENDPOINTS):
            shelf, wanted = self.shelves[type_url], self.config.get(type_url, {})
            rejected = shelf.rejected.get(cluster)
            if rejected and cluster not in shelf.held and cluster in wanted:
                return rejected.digest == wanted[cluster].digest
        return False

    def _is_usable(self, cluster: str) -> bool:
        """Say whether the proxy holds the cluster with endpoints, or keeps silent about it for too long."""
        clusters, endpoints = self.shelves[CLUSTER], self.shelves[ENDPOINTS]
        if not clusters.known.get(cluster) or not (cluster in clusters.held or cluster in clusters.lapsed):
            return False
        if cluster not in self.config.get(ENDPOINTS, {}):
            return True
        return cluster in endpoints.held or cluster in endpoints.lapsed

    def _removable(self, type_url: TypeUrl, gone: Sequence[str]) -> Sequence[str]:
        used = self._used() if gone and type_url == CLUSTER else frozenset[str]()
        return () if used is None else [name for name in gone if name not in used]

    def _used(self) -> frozenset[str] | None:
        """Return the clusters that a route or listener names which the proxy has or may have; none for: any cluster."""
        clusters, listeners, routes = (self.shelves[type_url] for type_url in (CLUSTER, LISTENER, ROUTES))
        untold = not routes.spoken and (listeners.brought & listeners.held.keys() or not listeners.spoken)
        if clusters.brought and untold:
            return None
        used: set[str] = set()
        for shelf in (listeners, routes):
            for held in shelf.held.values():
                if held.needs is None:
                    return None
                used |= held.needs
            for response in shelf.flying.values():
                used.update(cluster for _, encoded in response.resources for cluster in encoded.needs)
            used.update(cluster for needs in shelf.doubtful.values() for cluster in needs)
        return frozenset(used)


def _never_told(shelf: Shelf, config: Mapping[str, Encoded]) -> Sequence[str]:
    """Return what the proxy asked for by name and has no answer about: there is none."""
    return sorted(name for name in shelf.subscribed - config.keys() if name not in shelf.known)


def _without_bodies(response: Response) -> Response:
    """Return what a late answer needs to know of a response."""
    return response._replace(resources=tuple((name, item._replace(body=b"")) for name, item in response.resources))


def _accepted(shelf: Shelf, response: Response) -> None:
    for name, encoded in response.resources:
        shelf.lapsed.discard(name)
        shelf.rejected.pop(name, None)
        shelf.doubtful.pop(name, None)
        if shelf.asks_for(name):  # it may have left while the answer was on its way, or with the answer
            shelf.held[name] = Held(encoded.digest, encoded.needs)
    for name in response.removed if shelf.wildcard else ():  # Envoy keeps routes and endpoints until it lets go of them
        if not shelf.known.get(name):
            shelf.held.pop(name, None)
            shelf.doubtful.pop(name, None)
            shelf.lapsed.discard(name)


def _refused(shelf: Shelf, response: Response, message: str) -> Iterator[Rejected]:
    if response.resources and shelf.wildcard:
        for name in response.removed:  # the proxy may have done it or not: it is told once more
            shelf.held.pop(name, None)
            shelf.known.setdefault(name, UNSURE)
    for name, _ in response.resources:
        shelf.lapsed.discard(name)
    if len(response.resources) > 1:
        shelf.alone |= {name: None for name, _ in response.resources}
        shelf.doubt(response)
        return
    for name, encoded in response.resources:
        rejected = Rejected(response.type_url, name, encoded.digest, message)
        if shelf.rejected.get(name) != rejected:
            yield rejected
        if shelf.asks_for(name) and name in shelf.known:  # it may have been told meanwhile that the resource is gone
            shelf.rejected[name] = rejected
