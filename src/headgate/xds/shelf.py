"""What one proxy has of one type of resource: what it asked for, was sent, accepted and refused."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from headgate.envoy.config import Encoded, Resources, TypeUrl
from headgate.xds.versions import (
    Accepted,
    Brought,
    Difference,
    Pairs,
    Same,
    Sent,
    absent,
    difference,
    digests,
    names_of,
    reported,
    restricted,
    shared,
    users,
)

MOST_NAMES = 10_000  # of a type that a stream may have beyond those that are wanted and those that it began with
UNSURE = "?"  # the digest of what was removed in a response that was refused: it may be there or not


class Response(NamedTuple):
    """A DeltaDiscoveryResponse. `leads` from what a proxy has to what it has then, if other proxies are sent the same."""

    type_url: TypeUrl
    nonce: str
    resources: Pairs
    removed: tuple[str, ...] = ()
    leads: tuple[Resources, Resources] | None = None


class Due(NamedTuple):
    """What a proxy lacks, and what it has and should not. What `fits` is not too large for a response."""

    resources: Pairs
    gone: Sequence[str]
    fits: bool = False


class Rejected(NamedTuple):
    """The proxy refused one resource, in Envoy's words; it goes on with the version that it had."""

    type_url: TypeUrl
    name: str
    digest: str
    message: str


@dataclass(slots=True)
class Shelf:
    """What one proxy has of one type. Of a proxy that holds what most others hold, that is a pointer (`versions`)."""

    spoken: bool = False  # a request of the type came
    wildcard: bool = False
    owed: bool = False  # the first wildcard request gets an answer, if only an empty one (`Proxy.has_told`)
    subscribed: frozenset[str] = frozenset()
    known: Sent = field(default_factory=Sent)  # what was sent last, or brought along
    held: Accepted = field(default_factory=Accepted)
    brought: frozenset[str] = frozenset()  # names that it had when the stream began, without its own among many
    # Clusters of versions that may be in force, by resource; None where it is not known which they are.
    doubtful: dict[str, frozenset[str] | None] = field(default_factory=dict)
    lapsed: set[str] = field(default_factory=set)  # sent, and the answer is overdue
    rejected: dict[str, Rejected] = field(default_factory=dict)
    again: dict[str, Encoded] = field(default_factory=dict)  # to be sent though unchanged, or even gone
    alone: dict[str, None] = field(default_factory=dict)  # to be sent one by one, in this order
    flying: dict[str, Response] = field(default_factory=dict)  # by nonce
    overdue: set[str] = field(default_factory=set)  # nonces that nothing waits for any more
    # Configurations that were looked through with no result; the same one needs no second look until `touch`.
    finished: Mapping[str, Encoded] | None = None  # nothing is left to send of it
    complete: Mapping[str, Encoded] | None = None  # the proxy holds it
    _aimed: tuple[Resources, frozenset[str], Resources] | None = None  # configuration, subscription, and the part of it
    _compared: tuple[Resources, Resources, Difference[Resources]] | None = None  # from, to, and the difference

    def touch(self) -> None:
        """Note that something happened to the type, so that its configuration is looked through once more."""
        self.finished = self.complete = None

    @property
    def waits(self) -> bool:
        """Say whether an answer must come before the next response of the type."""
        return len(self.flying) > len(self.overdue)

    def asks_for(self, name: str) -> bool:
        """Say whether the proxy is subscribed to a resource."""
        return self.wildcard or name in self.subscribed

    def asks_for_all(self, pairs: Pairs) -> bool:
        """Say whether the proxy is subscribed to all of some resources."""
        return self.wildcard or digests(Same(pairs)).keys() <= self.subscribed

    def target(self, config: Resources) -> Resources:
        """Return the part of a configuration that the proxy asked for."""
        if self.wildcard:
            return config
        if self._aimed is None or self._aimed[0] is not config or self._aimed[1] is not self.subscribed:
            self._aimed = config, self.subscribed, restricted(config, self.subscribed)
        return self._aimed[2]

    def missing(self, config: Mapping[str, Encoded]) -> Sequence[str]:
        """Return the names that the proxy asked for and does not hold as they are wanted."""
        if self.complete is config:
            return ()
        target = self.target(config if isinstance(config, Resources) else Resources(config, {}))
        held = self.held
        names = dict.fromkeys((*difference(held.base, target).resources, *held.exceptions))
        found = [
            name
            for name in names
            if (wanted := target.get(name)) and ((has := held.get(name)) is None or has.digest != wanted.digest)
        ]
        self.complete = None if found else config
        return found

    def lacking(self, config: Resources, *, untold: bool) -> Iterator[str]:
        """Yield the names in which what the proxy holds differs from what it asked for, and those that it refuses.

        With `untold`, those too that it did not ask for.
        """
        target = self.target(config)
        all_told = not untold or len(target) == len(config)
        if self.held.base is target and all_told and not self.held.exceptions and not self.rejected:
            return
        changed = difference(self.held.base, target)
        names = {*changed.resources, *changed.gone, *self.held.exceptions, *self.rejected}
        others = () if all_told else (name for name in config if name not in target and name not in names)
        wants = target if all_told else config
        for name in chain(names, others):
            held, wanted, rejected = self.held.get(name), wants.get(name), self.rejected.get(name)
            if (
                (wanted and (held is None or held.digest != wanted.digest))
                or (held and name not in config)
                or (rejected and wanted and rejected.digest == wanted.digest)
            ):
                yield name

    def difference(self, target: Resources) -> Difference[Resources]:
        """Return what leads to a configuration from the one that the proxy was sent, but for exceptions."""
        base = self.known.base
        if self._compared is None or self._compared[0] is not base or self._compared[1] is not target:
            self._compared = base, target, difference(base, target)
        return self._compared[2]

    def due(self, config: Resources) -> Due:
        """Return what is to be sent, or a part of it that other proxies get too, and what is gone."""
        target = self.target(config)
        changed = self.difference(target)
        if not self.again and not self.alone and not self.known.exceptions:
            return Due(changed.batch, sorted(changed.gone) if self.wildcard else (), fits=True)
        return Due(self._differing(target, changed), self._gone(target, changed))

    def differing(self, config: Resources) -> Pairs:
        """Return everything that is to be sent, however large."""
        target = self.target(config)
        return self._differing(target, self.difference(target))

    def _differing(self, target: Resources, changed: Difference[Resources]) -> Pairs:
        """Return what the proxy asked for and was not sent as it is wanted, or is to be sent again."""
        known, again = self.known, self.again
        names = {*changed.resources, *known.exceptions, *again}
        found = [
            (name, wanted)
            for name in sorted(names)
            if (wanted := target.get(name)) and (name in again or known.get(name) != wanted.digest)
        ]
        left = ((name, encoded) for name, encoded in again.items() if name not in target and self.asks_for(name))
        return (*found, *left)

    def _gone(self, target: Resources, changed: Difference[Resources]) -> Sequence[str]:
        """Return what the proxy has and should not, as far as it takes it away by itself: what it asks for as a whole."""
        if not self.wildcard:
            return ()
        names = {*changed.gone, *self.known.exceptions}
        return sorted(name for name in names if name not in target and self.known.get(name))

    def never_told(self, config: Resources) -> Sequence[str]:
        """Return what the proxy asked for by name and has no answer about: there is none."""
        if not self.subscribed:
            return ()
        names = absent(Same(self.subscribed), Same(config.common))
        return sorted(name for name in names if name not in config.own and name not in self.known)

    def settle(self, config: Resources) -> None:
        """Keep what the proxy has as a pointer to a configuration, and what is different."""
        target = self.target(config)
        self.known.rebase(target)
        self.held.rebase(target)
        self._compared = None

    def send(self, response: Response, config: Resources) -> None:
        """Note that a response is on its way."""
        known, before = self.known, self.known.base
        after = self.difference(self.target(config)).leads_to(response.resources, response.removed)
        if after is None or known.exceptions:
            known.exceptions.update(digests(Same(response.resources)))
            self.flying[response.nonce] = response
        else:
            known.base = after
            self.flying[response.nonce] = response._replace(leads=(before, after))
        for name, encoded in response.resources if self.again or self.rejected else ():
            self.again.pop(name, None)
            if name in self.rejected and self.rejected[name].digest != encoded.digest:
                del self.rejected[name]
        for name in response.removed:
            known.discard(name)
            self.lapsed.discard(name)
            self.rejected.pop(name, None)
            if name in self.subscribed:
                known[name] = ""

    def accept(self, response: Response) -> None:
        """Take an acknowledgement."""
        held = self.held
        is_usual = not (held.exceptions or self.lapsed or self.rejected or self.doubtful)
        if is_usual and response.leads and response.leads[0] is held.base and self.asks_for_all(response.resources):
            held.base = response.leads[1]
            return
        for name, encoded in response.resources:
            self.lapsed.discard(name)
            self.rejected.pop(name, None)
            self.doubtful.pop(name, None)
            if self.asks_for(name):  # it may have left while the answer was on its way, or with the answer
                held[name] = encoded
        for name in (
            response.removed if self.wildcard else ()
        ):  # Envoy keeps routes and endpoints until it lets go of them
            if not self.known.get(name):
                held.discard(name)
                self.doubtful.pop(name, None)
                self.lapsed.discard(name)

    def refuse(self, response: Response, message: str) -> Iterator[Rejected]:
        """Take a refusal; yield what is news of it. Several resources are to be repeated one by one."""
        if response.resources and self.wildcard:
            for name in response.removed:  # the proxy may have removed it or not: the removal is sent again
                if held := self.held.get(name):
                    self._doubt(name, held.needs)
                self.held.discard(name)
                self.known.setdefault(name, UNSURE)
        self.lapsed.difference_update(name for name, _ in response.resources)
        if len(response.resources) > 1:
            self.alone |= {name: None for name, _ in response.resources}
            self.doubt(response)
            return
        for name, encoded in response.resources:
            rejected = Rejected(response.type_url, name, encoded.digest, message)
            if self.rejected.get(name) != rejected:
                yield rejected
            if self.asks_for(name) and name in self.known:  # it may have been told meanwhile that the resource is gone
                self.rejected[name] = rejected

    def subscribe(self, names: frozenset[str]) -> None:
        """Add names that the proxy asks for; it has nothing of them now, even if it had before."""
        if not (self.known.is_untouched and self.held.is_untouched and not self.lapsed):
            for name in names:
                self.known.discard(name)
                self.held.discard(name)
                self.lapsed.discard(name)
        self.subscribed = shared(self.subscribed | names)

    def unsubscribe(self, names: Sequence[str]) -> None:
        """Take names out of what the proxy asks for."""
        self.subscribed = shared(self.subscribed.difference(names))
        for name in names if not self.wildcard else ():
            self._forget(name)

    def bring(self, initial: Mapping[str, str], names: frozenset[str], config: Resources) -> None:
        """Note what the proxy has at the beginning of a stream, and asks for with `names`."""
        subscribed = self.subscribed
        self.subscribed = shared(subscribed | names)
        target = self.target(config)
        if self.known.is_untouched and self.held.is_untouched and reported(initial).are_of(target):
            self.known.base = self.held.base = target
            self.brought = names_of(Same(target.common)) or frozenset(target.own)
            return
        initial = dict(initial)
        self.subscribed = shared(subscribed.union(names.intersection(initial)))
        self.brought = shared(self.brought.union(initial))
        self.known.exceptions.update(initial)
        self.held.exceptions.update({name: Brought(digest) for name, digest in initial.items()})
        self.recognise(config)
        if new := names.difference(initial):
            self.subscribe(new)

    def recognise(self, config: Resources) -> None:
        """Fill in what is known by now about resources that the proxy brought along."""
        unknown = {name: held for name, held in self.held.exceptions.items() if isinstance(held, Brought)}
        for name, held in unknown.items():
            encoded = config.get(name)
            if encoded and encoded.digest == held.digest:
                self.held.exceptions[name] = encoded

    def _forget(self, name: str) -> None:
        """Drop what is remembered about a resource that the proxy no longer has."""
        self.known.discard(name)
        self.held.discard(name)
        for memory in (self.rejected, self.doubtful, self.again):
            memory.pop(name, None)
        self.lapsed.discard(name)

    def let_go_alone(self, config: Mapping[str, Encoded]) -> None:
        """Send nothing one by one that is not wanted now; whether the proxy took it is not known, should it come back."""
        for name in [name for name in self.alone if name not in config or not self.asks_for(name)]:
            del self.alone[name]
            if name in self.known:
                self.known[name] = UNSURE

    def doubt(self, response: Response) -> None:
        """Remember that the proxy may have taken any of the resources, and won't say which.

        Not those that it was told later to remove: it does what it is told in order, if it does anything.
        """
        for name, encoded in response.resources:
            if name in (self.known if self.wildcard else self.subscribed):
                self._doubt(name, encoded.needs)

    def _doubt(self, name: str, needs: frozenset[str] | None) -> None:
        before = self.doubtful.get(name, frozenset())
        if needs or needs is None:
            self.doubtful[name] = None if needs is None or before is None else before | needs

    def names(self, cluster: str) -> bool:
        """Say whether a resource names a cluster that the proxy has or may have."""
        held = self.held
        return (
            any(name not in held.exceptions for name in users(Same(held.base.common)).get(cluster, ()))
            or any(cluster in one.needs for name, one in held.base.own.items() if name not in held.exceptions)
            or any(cluster in (one.needs or ()) for one in held.exceptions.values() if one)
            or any(cluster in one.needs for response in self.flying.values() for _, one in response.resources)
            or any(cluster in (needs or ()) for needs in self.doubtful.values())
        )

    @property
    def has_unknown(self) -> bool:
        """Whether the proxy brought something of which it is not known what it needs."""
        brought = any(isinstance(held, Brought) for held in self.held.exceptions.values())
        return brought or None in self.doubtful.values()

    def overgrown(self, wanted: int) -> bool:
        """Say whether it remembers far more names than a proxy can have that is to hold `wanted`."""
        most = MOST_NAMES + wanted + len(self.brought)
        exceptions = self.known.exceptions, self.held.exceptions
        memories = (self.subscribed, *exceptions, self.doubtful, self.lapsed, self.rejected, self.again)
        return any(len(memory) > most for memory in memories)
