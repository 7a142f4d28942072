"""One delta ADS stream: its messages, and a pure state machine: requests and configurations in, responses out.

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
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from google.protobuf.message import DecodeError

from headgate.envoy import pb
from headgate.envoy.config import (
    CLUSTER,
    ENDPOINTS,
    LISTENER,
    NO_RESOURCES,
    ORDER,
    ROUTES,
    SCOPES,
    Encoded,
    ProxyConfig,
    Resources,
    TypeUrl,
)
from headgate.errors import ProxyError
from headgate.xds.shelf import Due, Rejected, Response, Shelf
from headgate.xds.versions import LARGEST, Pairs, Reported, Same, absent, emptied, needed

WILDCARD = {CLUSTER, LISTENER, SCOPES}  # types that a proxy asks for as a whole
MOST_OVERDUE = 16  # unanswered responses that are remembered for a late answer
MANY = 16  # resources from which on a response's bytes are remembered, as it may be sent to other proxies too
REMEMBERED = 12  # responses of up to 2 MB
MOST_ALIKE = 128  # requests that are remembered as read: proxies that do the same say the same
LARGEST_ALIKE = 2**16  # bytes of such a request
IN_USE = "cannot bind"  # Envoy's words when a listener's address can't be had now


class Request(NamedTuple):
    """A DeltaDiscoveryRequest. `error` is Envoy's own text when it refuses the response with that nonce."""

    type_url: TypeUrl
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    initial: Mapping[str, str] = {}
    nonce: str = ""
    error: str | None = None


class Session:
    """The state of one stream. Call `offer` and `receive` as things happen, then send what `advance` returns.

    `config` is the configuration that is wanted, `changes` counts what happened to what the proxy has.
    """

    def __init__(self) -> None:
        self.config: ProxyConfig = {}
        self.changes = 0
        self.shelves = {type_url: Shelf() for type_url in ORDER}
        self._wanted: dict[TypeUrl, Resources] = dict.fromkeys(ORDER, NO_RESOURCES)
        self._count = 0

    def offer(self, config: ProxyConfig) -> None:
        """Make a configuration the wanted one."""
        self.config = config
        self.changes += 1
        for type_url, shelf in self.shelves.items():
            resources, last = config.get(type_url, NO_RESOURCES), self._wanted[type_url]
            if resources is last or (last.common is resources and not last.own):
                continue
            if not isinstance(resources, Resources):
                resources = Resources(resources, {})
            self._wanted[type_url] = resources
            if shelf.brought:
                shelf.recognise(resources)

    def receive(self, request: Request) -> tuple[Rejected, ...]:
        """Take a request of the proxy: subscriptions, and its answer to an earlier response."""
        shelf = self.shelves.get(request.type_url)
        if shelf is None:
            return ()
        self.changes += 1
        shelf.touch()
        if request.subscribe or request.unsubscribe or request.initial or not shelf.spoken:
            self._subscribe(shelf, request)
        response = shelf.flying.pop(request.nonce, None)
        shelf.overdue.discard(request.nonce)
        if response is None:
            return ()
        if request.error is not None:
            return tuple(shelf.refuse(response, request.error))
        shelf.accept(response)
        if request.type_url == ENDPOINTS:  # of routes the answer may be about what came after it asked: they count
            for name in request.subscribe:
                shelf.held.discard(name)
        return ()

    def advance(self) -> list[Response]:
        """Return what may be sent now, in the order in which it must be sent."""
        responses = []
        for type_url, shelf in self.shelves.items():
            config = self._wanted[type_url]
            if shelf.finished is not config and not shelf.waits and (response := self._next(type_url, shelf, config)):
                responses.append(response)
        self.changes += len(responses)
        return responses

    def lapse(self, nonce: str) -> None:
        """Wait no longer for the answer to a response; a late one still counts."""
        self.changes += 1
        for shelf in self.shelves.values():
            if response := shelf.flying.get(nonce):
                shelf.touch()
                shelf.flying[nonce] = _without_bodies(response)
                shelf.overdue.add(nonce)
                shelf.lapsed.update(name for name, _ in response.resources)
                for name in shelf.doubtful.keys() & response.removed:
                    if name not in shelf.known:
                        del shelf.doubtful[name]
                if len(shelf.overdue) > MOST_OVERDUE:
                    oldest = next(nonce for nonce in shelf.flying if nonce in shelf.overdue)
                    shelf.doubt(shelf.flying.pop(oldest))
                    shelf.overdue.discard(oldest)

    @property
    def is_overgrown(self) -> bool:
        """Whether more is remembered than a proxy can have: one that never answers, or asks for names without end.

        It is best to end the stream: the proxy comes back and says what it has.
        """
        return any(shelf.overgrown(len(self._wanted[type_url])) for type_url, shelf in self.shelves.items())

    @property
    def is_waiting(self) -> bool:
        """Whether an answer is due."""
        return any(shelf.waits for shelf in self.shelves.values())

    def missing(self) -> Iterator[tuple[TypeUrl, str]]:
        """Yield what the proxy asked for and does not hold as it is wanted."""
        for type_url, shelf in self.shelves.items():
            for name in shelf.missing(self._wanted[type_url]):
                yield type_url, name

    def lacking(self, most: int) -> set[tuple[TypeUrl, str]]:
        """Return the resources in which what the proxy holds differs from what is wanted, and those that it refuses.

        It stops when these are more than `most`. The proxy will ask for the endpoints of all clusters, if it has not yet.
        """
        found: set[tuple[TypeUrl, str]] = set()
        for type_url, shelf in self.shelves.items():
            wanted, held = self._wanted[type_url], shelf.held
            if held.base is wanted and not held.exceptions and not shelf.rejected:
                continue
            names = shelf.lacking(wanted, untold=type_url == ENDPOINTS)
            found.update((type_url, name) for name in islice(names, most + 1 - len(found)))
            if len(found) > most:
                break
        return found

    def retry(self) -> bool:
        """Offer listeners again that were refused for want of their address; say whether there are any."""
        shelf = self.shelves[LISTENER]
        refused = {name: None for name, rejected in shelf.rejected.items() if IN_USE in rejected.message}
        if refused:
            self.changes += 1
            shelf.touch()
            shelf.alone |= refused
        return bool(refused)

    def _subscribe(self, shelf: Shelf, request: Request) -> None:
        first = not shelf.wildcard and not shelf.subscribed
        names = frozenset(request.subscribe)
        asks_for_all = "*" in names or (first and not names)
        if "*" in names:
            names -= {"*"}
        if asks_for_all and request.type_url in WILDCARD and not shelf.wildcard:
            shelf.wildcard = True
            shelf.owed = request.type_url == CLUSTER or not request.initial
        shelf.spoken = True
        if request.initial:
            shelf.bring(request.initial, names, self._wanted[request.type_url])
        elif names:
            shelf.subscribe(names)
        if request.unsubscribe:
            shelf.unsubscribe(request.unsubscribe)

    def _next(self, type_url: TypeUrl, shelf: Shelf, config: Resources) -> Response | None:
        if shelf.alone:
            shelf.let_go_alone(config)
        due = shelf.due(config)
        resources = self._sendable(shelf, config, due)
        removed = (*self._removable(type_url, due.gone), *shelf.never_told(config))
        if not resources and not removed and not shelf.owed:
            if not due.resources and not due.gone and not shelf.alone:
                shelf.settle(config)
                shelf.finished = config
            return None
        if resources:
            shelf.alone.pop(resources[0][0], None)
        shelf.owed = False
        self._count += 1
        response = Response(type_url, str(self._count), resources, removed)
        self._remember(shelf, response)
        shelf.send(response, config)
        return response

    def _remember(self, shelf: Shelf, response: Response) -> None:
        if response.type_url == CLUSTER:
            for name, _ in response.resources if not shelf.known.is_untouched else ():
                if name in shelf.known:
                    self._repeat_endpoints(name)
            for name in response.removed:
                self.shelves[ENDPOINTS].again.pop(name, None)

    def _repeat_endpoints(self, cluster: str) -> None:
        """Send the endpoints again: after a reconnect before the proxy has asked, after a removal the last ones."""
        if endpoints := self._wanted[ENDPOINTS].get(cluster):
            self.shelves[ENDPOINTS].again[cluster] = endpoints
            self.shelves[ENDPOINTS].touch()

    def _sendable(self, shelf: Shelf, config: Resources, due: Due) -> Pairs:
        """Return what may be sent now: the same object that other proxies get where possible."""
        if due.fits and self._may_all_follow(due.resources):
            return due.resources
        lacking = shelf.differing(config) if due.fits else due.resources  # what must wait holds up nothing after it
        return tuple(self._selected(shelf, config, lacking))

    def _selected(self, shelf: Shelf, config: Mapping[str, Encoded], due: Pairs) -> Iterator[tuple[str, Encoded]]:
        for name in shelf.alone:
            if self._may_follow(shelf, name, config[name]):
                yield name, config[name]
                return
        size = 0
        for name, encoded in due:
            if name in shelf.alone or not self._may_follow(shelf, name, encoded):
                continue
            size += len(encoded.body)
            if size > LARGEST and size > len(encoded.body):
                return
            yield name, encoded

    def _may_all_follow(self, due: Pairs) -> bool:
        """Say whether every cluster is there that any of the resources names."""
        clusters, endpoints = self.shelves[CLUSTER], self.shelves[ENDPOINTS]
        needs = needed(Same(due))
        if not needs:
            return True
        unserved = absent(Same(needs), Same(endpoints.held.base.common))
        doubtful = {name for name in unserved if name in self._wanted[ENDPOINTS]}
        for layer in (clusters.known, clusters.held):
            doubtful |= absent(Same(needs), Same(layer.base.common))
        for layer in (clusters.known, clusters.held, endpoints.held):
            doubtful |= needs & layer.exceptions.keys() if layer.exceptions else frozenset()
        return all(self._is_usable(name) for name in doubtful)

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
            shelf, wanted = self.shelves[type_url], self._wanted[type_url]
            rejected = shelf.rejected.get(cluster)
            if rejected and cluster not in shelf.held and cluster in wanted:
                return rejected.digest == wanted[cluster].digest
        return False

    def _is_usable(self, cluster: str) -> bool:
        """Say whether the proxy holds the cluster with endpoints, or keeps silent about it for too long."""
        clusters, endpoints = self.shelves[CLUSTER], self.shelves[ENDPOINTS]
        if not clusters.known.get(cluster) or not (cluster in clusters.held or cluster in clusters.lapsed):
            return False
        if cluster not in self._wanted[ENDPOINTS]:
            return True
        return cluster in endpoints.held or cluster in endpoints.lapsed

    def _removable(self, type_url: TypeUrl, gone: Sequence[str]) -> Sequence[str]:
        if type_url != CLUSTER or not gone:
            return gone
        clusters, listeners = self.shelves[CLUSTER], self.shelves[LISTENER]
        of_requests = {type_url: self.shelves[type_url] for type_url in (ROUTES, SCOPES)}
        silent = [type_url for type_url, shelf in of_requests.items() if not shelf.spoken]
        untold = not listeners.spoken or (
            any(self._wanted[type_url] for type_url in silent) and listeners.brought & listeners.held.keys()
        )
        users = (listeners, *of_requests.values())
        if (clusters.brought and silent and untold) or any(shelf.has_unknown for shelf in users):
            return ()
        return [name for name in gone if not any(shelf.names(name) for shelf in users)]


def _without_bodies(response: Response) -> Response:
    """Return what a late answer needs to know of a response."""
    return response._replace(resources=emptied(Same(response.resources)), leads=None)


_VERSION, _RESOURCE, _TYPE_URL, _NONCE, _REMOVED = 1, 2, 4, 5, 6  # fields of DeltaDiscoveryResponse


def read_request(data: bytes) -> tuple[str, Request]:
    """Return the node's id, where the message has it (the first of a stream), and the request. Raises ProxyError."""
    if found := _alike.get(data):
        return "", found
    try:
        message = pb.DeltaDiscoveryRequest.FromString(data)
    except DecodeError as error:
        raise ProxyError("this is no DeltaDiscoveryRequest; send Envoy's delta xDS v3") from error
    node_id = message.node.id
    request = Request(
        type_url=message.type_url,
        subscribe=tuple(message.resource_names_subscribe),
        unsubscribe=tuple(message.resource_names_unsubscribe),
        nonce=message.response_nonce,
        error=message.error_detail.message if message.HasField("error_detail") else None,
    )
    if message.initial_resource_versions:
        request = request._replace(initial=Reported(message))
    elif not node_id and len(data) <= LARGEST_ALIKE:
        _alike[data] = request
        if len(_alike) > MOST_ALIKE:
            del _alike[next(iter(_alike))]
    return node_id, request


_alike: dict[bytes, Request] = {}


def write_response(response: Response) -> bytes:
    """Return the DeltaDiscoveryResponse; the same bytes for all proxies that are sent the same at the same time."""
    if len(response.resources) < MANY:
        return _written(response)
    return _shared(Same(response.resources), response.type_url, response.nonce, response.removed)


@lru_cache(REMEMBERED)
def _shared(resources: Same[Pairs], type_url: TypeUrl, nonce: str, removed: tuple[str, ...]) -> bytes:
    return _written(Response(type_url, nonce, resources.it, removed))


def _written(response: Response) -> bytes:
    parts = [_field(_VERSION, response.nonce.encode())]
    parts += [_field(_RESOURCE, encoded.body) for _, encoded in response.resources]
    parts += [_field(_TYPE_URL, response.type_url.encode()), _field(_NONCE, response.nonce.encode())]
    parts += [_field(_REMOVED, name.encode()) for name in response.removed]
    return b"".join(parts)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:  # seven bits a byte, as protobuf has it
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
