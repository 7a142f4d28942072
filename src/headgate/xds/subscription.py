"""A proxy's subscription to one type of resource: what it subscribed to, and what was sent, acknowledged and rejected."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from headgate.envoy.config import Encoded, Resources, TypeUrl
from headgate.xds.versions import (
    Acknowledged,
    ById,
    Difference,
    Pairs,
    ReportedVersion,
    Sent,
    difference,
    digests,
    initial_versions,
    intern_names,
    missing_names,
    names_of,
    select,
    users_by_cluster,
)

# Names of one type that a stream may have in addition to the configuration and the names reported at its start.
MAX_NAMES = 10_000
UNCERTAIN = "?"  # digest after a rejected removal: the proxy may or may not have the resource


class Response(NamedTuple):
    """A DeltaDiscoveryResponse.

    If other proxies get the same response, `transition` is the shared configuration before and after it.
    """

    type_url: TypeUrl
    nonce: str
    resources: Pairs
    removed: tuple[str, ...] = ()
    transition: tuple[Resources, Resources] | None = None


class Pending(NamedTuple):
    """The resources to send and the names to remove. `is_batch`: the resources are a shared batch that fits a response."""

    resources: Pairs
    removed: Sequence[str]
    is_batch: bool = False


class Rejection(NamedTuple):
    """The proxy rejected a resource with this message (Envoy's own text); it keeps the version that it had."""

    type_url: TypeUrl
    name: str
    digest: str
    message: str


@dataclass(slots=True)
class Subscription:
    """A session's state of one resource type. `sent` and `acknowledged` share their base with other proxies (`versions`)."""

    has_requested: bool = False  # the proxy has sent a request of this type
    starts_whole: bool = False  # the first resources are sent in one response, whatever their size
    wildcard: bool = False
    must_respond: bool = (
        False  # the first wildcard request without reported versions gets a response, even an empty one
    )
    subscribed: frozenset[str] = frozenset()
    sent: Sent = field(default_factory=Sent)
    acknowledged: Acknowledged = field(default_factory=Acknowledged)
    # Names that the proxy reported in initial_resource_versions, possibly without those of its own resources.
    initial_names: frozenset[str] = frozenset()
    # Clusters named by versions that the proxy may or may not use, by resource; None: unknown clusters.
    uncertain: dict[str, frozenset[str] | None] = field(default_factory=dict)
    timed_out: set[str] = field(default_factory=set)  # names in responses that timed out
    rejected: dict[str, Rejection] = field(default_factory=dict)
    # Resources to send again although they are unchanged or not wanted.
    resend: dict[str, Encoded] = field(default_factory=dict)
    one_by_one: dict[str, None] = field(default_factory=dict)  # names to send in this order, one in each response
    in_flight: dict[str, Response] = field(default_factory=dict)  # unanswered responses by nonce
    timed_out_nonces: set[str] = field(default_factory=set)  # responses in flight that no longer block the next one
    # Configurations whose subscribed resources were all sent or acknowledged; None after each change (`mark_changed`).
    sent_config: Mapping[str, Encoded] | None = None
    acknowledged_config: Mapping[str, Encoded] | None = None
    # Memos of `target` (configuration, subscription, result) and of `difference` (from, to, result).
    _target: tuple[Resources, frozenset[str], Resources] | None = None
    _difference: tuple[Resources, Resources, Difference[Resources]] | None = None

    def mark_changed(self) -> None:
        """Reset `sent_config` and `acknowledged_config`. Call this after each change to the state."""
        self.sent_config = self.acknowledged_config = None

    @property
    def awaits_answer(self) -> bool:
        """Whether the next response must wait for an ACK or NACK."""
        return len(self.in_flight) > len(self.timed_out_nonces)

    @property
    def is_starting_whole(self) -> bool:
        """Whether the next response must have all resources."""
        return self.starts_whole and self.sent.is_unused

    def includes(self, name: str) -> bool:
        """Return whether the proxy is subscribed to a resource."""
        return self.wildcard or name in self.subscribed

    def includes_all(self, pairs: Pairs) -> bool:
        """Return whether the proxy is subscribed to all of these resources."""
        return self.wildcard or digests(ById(pairs)).keys() <= self.subscribed

    def target(self, config: Resources) -> Resources:
        """Return the part of a configuration that the proxy is subscribed to."""
        if self.wildcard:
            return config
        if self._target is None or self._target[0] is not config or self._target[1] is not self.subscribed:
            self._target = config, self.subscribed, select(config, self.subscribed)
        return self._target[2]

    def unacknowledged(self, config: Mapping[str, Encoded]) -> Sequence[str]:
        """Return the subscribed names whose wanted version the proxy has not acknowledged."""
        if self.acknowledged_config is config:
            return ()
        target = self.target(config if isinstance(config, Resources) else Resources(config, {}))
        acknowledged = self.acknowledged
        names = dict.fromkeys((*difference(acknowledged.base, target).resources, *acknowledged.overrides))
        unacknowledged = [
            name
            for name in names
            if (encoded := target.get(name))
            and ((has := acknowledged.get(name)) is None or has.digest != encoded.digest)
        ]
        self.acknowledged_config = None if unacknowledged else config
        return unacknowledged

    def out_of_sync(self, config: Resources, *, unsubscribed: bool) -> Iterator[str]:
        """Yield the names whose acknowledged version differs from the wanted one, and those rejected in the wanted version.

        With `unsubscribed`, names to which the proxy has not subscribed are included.
        """
        target = self.target(config)
        only_target = not unsubscribed or len(target) == len(config)
        acknowledged = self.acknowledged
        if acknowledged.base is target and only_target and not acknowledged.overrides and not self.rejected:
            return
        changed = difference(acknowledged.base, target)
        names = {*changed.resources, *changed.removed, *acknowledged.overrides, *self.rejected}
        outside = () if only_target else (name for name in config if name not in target and name not in names)
        wants = target if only_target else config
        for name in chain(names, outside):
            has, encoded, rejection = acknowledged.get(name), wants.get(name), self.rejected.get(name)
            if (
                (encoded and (has is None or has.digest != encoded.digest))
                or (has and name not in config)
                or (rejection and encoded and rejection.digest == encoded.digest)
            ):
                yield name

    def difference(self, target: Resources) -> Difference[Resources]:
        """Return the difference between the base of `sent` and a configuration; the overrides of `sent` are ignored."""
        base = self.sent.base
        if self._difference is None or self._difference[0] is not base or self._difference[1] is not target:
            self._difference = base, target, difference(base, target, is_whole=self.is_starting_whole)
        return self._difference[2]

    def pending(self, config: Resources) -> Pending:
        """Return what to send and to remove: a batch that other proxies get too, if possible, else everything."""
        target = self.target(config)
        changed = self.difference(target)
        if not self.resend and not self.one_by_one and not self.sent.overrides:
            return Pending(changed.batch, sorted(changed.removed) if self.wildcard else (), is_batch=True)
        return Pending(self._unsent(target, changed), self._removed(target, changed))

    def unsent(self, config: Resources) -> Pairs:
        """Return all subscribed resources that were not sent in the wanted version, or are to be sent again."""
        target = self.target(config)
        return self._unsent(target, self.difference(target))

    def _unsent(self, target: Resources, changed: Difference[Resources]) -> Pairs:
        sent, resend = self.sent, self.resend
        names = {*changed.resources, *sent.overrides, *resend}
        unsent = [
            (name, encoded)
            for name in sorted(names)
            if (encoded := target.get(name)) and (name in resend or sent.get(name) != encoded.digest)
        ]
        left = ((name, encoded) for name, encoded in resend.items() if name not in target and self.includes(name))
        return (*unsent, *left)

    def _removed(self, target: Resources, changed: Difference[Resources]) -> Sequence[str]:
        """Return the names to remove. Without a wildcard there are none: the proxy itself unsubscribes."""
        if not self.wildcard:
            return ()
        names = {*changed.removed, *self.sent.overrides}
        return sorted(name for name in names if name not in target and self.sent.get(name))

    def nonexistent(self, config: Resources) -> Sequence[str]:
        """Return the subscribed names that have no resource, and for which no removal was sent yet."""
        if not self.subscribed:
            return ()
        names = missing_names(ById(self.subscribed), ById(config.common))
        return sorted(name for name in names if name not in config.own and name not in self.sent)

    def rebase(self, config: Resources) -> None:
        """Make a configuration the base of `sent` and `acknowledged`; only what differs from it stays an override."""
        target = self.target(config)
        self.sent.rebase(target)
        self.acknowledged.rebase(target)
        self._difference = None

    def record_sent(self, response: Response, config: Resources) -> None:
        """Record that a response is in flight."""
        sent, before = self.sent, self.sent.base
        after = self.difference(self.target(config)).result_of(response.resources, response.removed)
        if after is None or sent.overrides:
            sent.overrides.update(digests(ById(response.resources)))
            self.in_flight[response.nonce] = response
        else:
            sent.base = after
            self.in_flight[response.nonce] = response._replace(transition=(before, after))
        for name, encoded in response.resources if self.resend or self.rejected else ():
            self.resend.pop(name, None)
            if name in self.rejected and self.rejected[name].digest != encoded.digest:
                del self.rejected[name]
        for name in response.removed:
            sent.discard(name)
            self.timed_out.discard(name)
            self.rejected.pop(name, None)
            if name in self.subscribed:
                sent[name] = ""

    def record_ack(self, response: Response) -> None:
        """Record that the proxy acknowledged a response."""
        acknowledged, transition = self.acknowledged, response.transition
        is_usual = not (acknowledged.overrides or self.timed_out or self.rejected or self.uncertain)
        if is_usual and transition and transition[0] is acknowledged.base and self.includes_all(response.resources):
            acknowledged.base = transition[1]
            return
        for name, encoded in response.resources:
            self.timed_out.discard(name)
            self.rejected.pop(name, None)
            self.uncertain.pop(name, None)
            if self.includes(name):  # the proxy may have unsubscribed meanwhile, or in the same request
                acknowledged[name] = encoded
        # Without a wildcard Envoy keeps a removed resource until it unsubscribes.
        for name in response.removed if self.wildcard else ():
            if not self.sent.get(name):
                acknowledged.discard(name)
                self.uncertain.pop(name, None)
                self.timed_out.discard(name)

    def record_nack(self, response: Response, message: str) -> Iterator[Rejection]:
        """Record that the proxy rejected a response; yield new rejections of single resources.

        If the response has several resources, they are sent again one by one.
        """
        if response.resources and self.wildcard:
            for name in response.removed:  # the proxy may not have removed the resource: the removal is sent again
                if acknowledged := self.acknowledged.get(name):
                    self._mark_uncertain(name, acknowledged.needs)
                self.acknowledged.discard(name)
                self.sent.setdefault(name, UNCERTAIN)
        self.timed_out.difference_update(name for name, _ in response.resources)
        if len(response.resources) > 1:
            self.one_by_one |= {name: None for name, _ in response.resources}
            self.mark_uncertain(response)
            return
        for name, encoded in response.resources:
            rejection = Rejection(response.type_url, name, encoded.digest, message)
            if self.rejected.get(name) != rejection:
                yield rejection
            if self.includes(name) and name in self.sent:  # its removal may have been sent meanwhile
                self.rejected[name] = rejection

    def subscribe(self, names: frozenset[str]) -> None:
        """Add names to the subscription, and forget which versions of them were sent, so that they are sent again."""
        if not (self.sent.is_unused and self.acknowledged.is_unused and not self.timed_out):
            for name in names:
                self.sent.discard(name)
                self.acknowledged.discard(name)
                self.timed_out.discard(name)
        self.subscribed = intern_names(self.subscribed | names)

    def unsubscribe(self, names: Sequence[str]) -> None:
        """Remove names from the subscription."""
        self.subscribed = intern_names(self.subscribed.difference(names))
        for name in names if not self.wildcard else ():
            self._forget(name)

    def record_initial_versions(self, initial: Mapping[str, str], names: frozenset[str], config: Resources) -> None:
        """Record the versions that the proxy reports at the start of a stream, and its subscription to `names`."""
        subscribed = self.subscribed
        self.subscribed = intern_names(subscribed | names)
        target = self.target(config)
        if self.sent.is_unused and self.acknowledged.is_unused and initial_versions(initial).match(target):
            self.sent.base = self.acknowledged.base = target
            self.initial_names = names_of(ById(target.common)) or frozenset(target.own)
            return
        initial = dict(initial)
        self.subscribed = intern_names(subscribed.union(names.intersection(initial)))
        self.initial_names = intern_names(self.initial_names.union(initial))
        self.sent.overrides.update(initial)
        self.acknowledged.overrides.update({name: ReportedVersion(digest) for name, digest in initial.items()})
        self.match_reported_versions(config)
        if new := names.difference(initial):
            self.subscribe(new)

    def match_reported_versions(self, config: Resources) -> None:
        """Replace reported versions by the resources of a configuration that have the same digest."""
        overrides = self.acknowledged.overrides
        reported = {name: version for name, version in overrides.items() if isinstance(version, ReportedVersion)}
        for name, version in reported.items():
            encoded = config.get(name)
            if encoded and encoded.digest == version.digest:
                overrides[name] = encoded

    def _forget(self, name: str) -> None:
        """Drop the state of a resource that the proxy has unsubscribed from."""
        self.sent.discard(name)
        self.acknowledged.discard(name)
        for memory in (self.rejected, self.uncertain, self.resend):
            memory.pop(name, None)
        self.timed_out.discard(name)

    def prune_one_by_one(self, config: Mapping[str, Encoded]) -> None:
        """Drop names that are no longer wanted from `one_by_one`; the version that the proxy has is then uncertain."""
        for name in [name for name in self.one_by_one if name not in config or not self.includes(name)]:
            del self.one_by_one[name]
            if name in self.sent:
                self.sent[name] = UNCERTAIN

    def mark_uncertain(self, response: Response) -> None:
        """Record that it is unknown which resources of a response the proxy uses.

        A resource whose removal was sent later is certain: Envoy handles responses in order.
        """
        for name, encoded in response.resources:
            if name in (self.sent if self.wildcard else self.subscribed):
                self._mark_uncertain(name, encoded.needs)

    def _mark_uncertain(self, name: str, needs: frozenset[str] | None) -> None:
        before = self.uncertain.get(name, frozenset())
        if needs or needs is None:
            self.uncertain[name] = None if needs is None or before is None else before | needs

    def may_use(self, cluster: str) -> bool:
        """Return whether a version that the proxy has, or may have, names a cluster."""
        acknowledged = self.acknowledged
        base, overrides = acknowledged.base, acknowledged.overrides
        return (
            any(name not in overrides for name in users_by_cluster(ById(base.common)).get(cluster, ()))
            or any(cluster in version.needs for name, version in base.own.items() if name not in overrides)
            or any(cluster in (version.needs or ()) for version in overrides.values() if version)
            or any(
                cluster in encoded.needs for response in self.in_flight.values() for _, encoded in response.resources
            )
            or any(cluster in (needs or ()) for needs in self.uncertain.values())
        )

    @property
    def may_use_unknown_clusters(self) -> bool:
        """Whether the proxy has, or may have, a version that names unknown clusters."""
        reported = any(isinstance(version, ReportedVersion) for version in self.acknowledged.overrides.values())
        return reported or None in self.uncertain.values()

    def exceeds_limits(self, resource_count: int) -> bool:
        """Return whether the subscription has far more names than a proxy with `resource_count` resources can have."""
        limit = MAX_NAMES + resource_count + len(self.initial_names)
        overrides = self.sent.overrides, self.acknowledged.overrides
        memories = (self.subscribed, *overrides, self.uncertain, self.timed_out, self.rejected, self.resend)
        return any(len(memory) > limit for memory in memories)
