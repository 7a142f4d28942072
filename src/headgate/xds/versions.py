"""Versions that a proxy has, as a configuration that many proxies share and a few exceptions.

Most proxies hold exactly what most others hold. So what is kept for one is a pointer to the shared resources, and a
difference between two of them is computed once, whatever the number of proxies (ARCHITECTURE.md, rule 12).
"""

from collections.abc import Iterator, Mapping, MutableMapping
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from headgate.envoy import pb
from headgate.envoy.config import NO_RESOURCES, Encoded, Resources

LARGEST = 2**21  # bytes of resources in a response; gRPC clients refuse messages of 4 MiB
SMALL = 2**14  # bytes of a response to which a proxy's own resources are added; larger ones are shared as they are
REMEMBERED = 128  # results of each function below: enough for all types and kinds of proxies over several builds
V = TypeVar("V")
Content = TypeVar("Content", bound=Mapping[str, Encoded])
Pairs = tuple[tuple[str, Encoded], ...]


class Brought(NamedTuple):
    """A version that the proxy brought from an earlier stream, and that is not known: neither is what it needs."""

    digest: str
    needs: None = None


Held: TypeAlias = Encoded | Brought
"""A version that the proxy has accepted; its content may be gone."""


class Same(Generic[V]):
    """A value as a key by its identity: equal only to the same object, and quick to compare."""

    __slots__ = ("it",)

    def __init__(self, it: V) -> None:
        self.it = it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.it is self.it

    def __hash__(self) -> int:
        return id(self.it)


class Difference(NamedTuple, Generic[Content]):
    """What leads from some resources to others, the first response of it, and what a proxy has after that.

    `resources` are to be sent, and `batch` is a part of them that is not too large for a response. `gone` are names that
    the proxy has and should not. With the batch it has `then`; with the batch and without what is gone it has `done`.
    """

    resources: Mapping[str, Encoded]
    gone: frozenset[str]
    batch: Pairs
    then: Content
    done: Content

    def leads_to(self, resources: Pairs, removed: tuple[str, ...]) -> Content | None:
        """Return what a proxy has that was sent this; none if it is another response."""
        if resources is not self.batch:
            return None
        told = self.gone.intersection(removed)
        if not told:
            return self.then
        return self.done if len(told) == len(self.gone) else None


def difference(before: Resources, after: Resources) -> Difference[Resources]:
    """Return what leads from one to the other. What both have in common with other proxies is compared once for all."""
    if before is after:
        return Difference({}, frozenset(), (), after, after)
    common, own = _between(before.common, after.common), compared(before.own, after.own)
    if any(name in before.common for name in own.resources) or any(name in after.common for name in own.gone):
        whole = compared(before, after)  # a resource of its own became a shared one, or the other way round
        return Difference(whole.resources, whole.gone, whole.batch, _parted(whole.then), _parted(whole.done))
    # A proxy's own is added to what is shared if that is small, else it is sent as a response of its own.
    is_added = len(common.batch) == len(common.resources) and size(Same(common.batch)) <= SMALL
    then = Resources(common.then, own.then if is_added else before.own)
    done = Resources(common.done, own.done if is_added else _without(before.own, own.gone))
    return Difference(
        Resources(common.resources, own.resources),
        common.gone | own.gone,
        common.batch + own.batch if is_added else common.batch,
        after if then.has_same_parts_as(after) else then,
        after if done.has_same_parts_as(after) else done,
    )


def _parted(resources: Mapping[str, Encoded]) -> Resources:
    return resources if isinstance(resources, Resources) else Resources(resources, {})


def _without(resources: Mapping[str, Encoded], gone: frozenset[str]) -> Mapping[str, Encoded]:
    return {name: encoded for name, encoded in resources.items() if name not in gone} if gone else resources


@lru_cache(REMEMBERED)
def size(pairs: Same[Pairs]) -> int:
    """Return how many bytes some resources are."""
    return sum(len(encoded.body) for _, encoded in pairs.it)


def _between(before: Mapping[str, Encoded], after: Mapping[str, Encoded]) -> Difference[Mapping[str, Encoded]]:
    if before is after:
        return Difference({}, frozenset(), (), after, after)
    return _remembered(Same(before), Same(after))


@lru_cache(REMEMBERED)
def _remembered(
    before: Same[Mapping[str, Encoded]], after: Same[Mapping[str, Encoded]]
) -> Difference[Mapping[str, Encoded]]:
    return compared(before.it, after.it)


def compared(before: Mapping[str, Encoded], after: Mapping[str, Encoded]) -> Difference[Mapping[str, Encoded]]:
    """Compare name by name."""
    resources = {
        name: encoded
        for name, encoded in after.items()
        if (old := before.get(name)) is not encoded and (old is None or old.digest != encoded.digest)
    }
    gone = frozenset(name for name in before if name not in after)
    batch = _batch(resources)
    is_last = len(batch) == len(resources)
    then = after if is_last and not gone else {**before, **dict(batch)}
    done = after if is_last else _without(then, gone)
    return Difference(resources, gone, batch, then, done)


def _batch(resources: Mapping[str, Encoded]) -> Pairs:
    """Return the first resources, as many as fit a response."""
    batch: list[tuple[str, Encoded]] = []
    size = 0
    for name, encoded in resources.items():
        size += len(encoded.body)
        if batch and size > LARGEST:
            break
        batch.append((name, encoded))
    return tuple(batch)


def restricted(resources: Resources, names: frozenset[str]) -> Resources:
    """Return the resources with some names, sorted; the same object when these are all."""
    if not names:
        return NO_RESOURCES
    common = _restricted(Same(resources.common), Same(names))
    own = resources.own
    if any(name not in names for name in own):
        own = {name: encoded for name, encoded in own.items() if name in names}
    return resources if common is resources.common and own is resources.own else Resources(common, own)


@lru_cache(REMEMBERED)
def _restricted(resources: Same[Mapping[str, Encoded]], names: Same[frozenset[str]]) -> Mapping[str, Encoded]:
    found = {name: encoded for name, encoded in sorted(resources.it.items()) if name in names.it}
    return resources.it if list(found) == list(resources.it) else found


@lru_cache(REMEMBERED)
def shared(names: frozenset[str]) -> frozenset[str]:
    """Return an equal set that other proxies have too: a thousand sets of a thousand names each take 100 MB."""
    return names


class Reported(Mapping[str, str]):
    """The versions that a request reports. Protobuf compares a thousand in 20 us; as Python objects they take 200 us."""

    def __init__(self, request: pb.DeltaDiscoveryRequest) -> None:
        """`request` becomes a part of it, without its other fields."""
        for field, _ in request.ListFields():
            if field.name != "initial_resource_versions":
                request.ClearField(field.name)
        self._request = request
        self._versions = request.initial_resource_versions

    def __getitem__(self, name: str) -> str:
        if name not in self._versions:  # protobuf's map adds what it is asked for
            raise KeyError(name)
        return self._versions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._versions)

    def __len__(self) -> int:
        return len(self._versions)

    def are_of(self, resources: Resources) -> bool:
        """Say whether they are the versions of all resources, no more and no fewer."""
        own = {name: encoded.digest for name, encoded in resources.own.items()}
        if len(self) != len(resources) or any(self.get(name) != digest for name, digest in own.items()):
            return False
        for name in own:
            del self._versions[name]
        is_same = self._request == _expected(Same(resources.common))
        self._versions.update(own)
        return is_same


def reported(versions: Mapping[str, str]) -> Reported:
    """Return versions as a request has them."""
    if isinstance(versions, Reported):
        return versions
    return Reported(pb.DeltaDiscoveryRequest(initial_resource_versions=versions))


@lru_cache(REMEMBERED)
def _expected(resources: Same[Mapping[str, Encoded]]) -> pb.DeltaDiscoveryRequest:
    versions = {name: encoded.digest for name, encoded in resources.it.items()}
    return pb.DeltaDiscoveryRequest(initial_resource_versions=versions)


@lru_cache(REMEMBERED)
def names_of(resources: Same[Mapping[str, Encoded]]) -> frozenset[str]:
    """Return the names of all resources."""
    return frozenset(resources.it)


@lru_cache(REMEMBERED)
def digests(pairs: Same[Pairs]) -> Mapping[str, str]:
    """Return the version of each resource of a response."""
    return {name: encoded.digest for name, encoded in pairs.it}


@lru_cache(REMEMBERED)
def emptied(pairs: Same[Pairs]) -> Pairs:
    """Return the resources of a response without their content."""
    return tuple((name, encoded._replace(body=b"")) for name, encoded in pairs.it)


@lru_cache(REMEMBERED)
def absent(names: Same[frozenset[str]], resources: Same[Mapping[str, Encoded]]) -> frozenset[str]:
    """Return the names that no resource has."""
    return names.it.difference(resources.it)


@lru_cache(REMEMBERED)
def needed(pairs: Same[Pairs]) -> frozenset[str]:
    """Return the clusters that any of the resources names."""
    return frozenset(cluster for _, encoded in pairs.it for cluster in encoded.needs)


@lru_cache(REMEMBERED)
def users(resources: Same[Mapping[str, Encoded]]) -> Mapping[str, tuple[str, ...]]:
    """Return the names of the resources that name each cluster."""
    found: dict[str, list[str]] = {}
    for name, encoded in resources.it.items():
        for cluster in encoded.needs:
            found.setdefault(cluster, []).append(name)
    return {cluster: tuple(names) for cluster, names in found.items()}


class Layers(MutableMapping[str, V]):
    """A mapping that is `base`, which other proxies share, but for `exceptions`; there None is: not in the mapping."""

    __slots__ = ("base", "exceptions")

    def __init__(self) -> None:
        self.base: Resources = NO_RESOURCES
        self.exceptions: dict[str, V | None] = {}

    @staticmethod
    def _of(encoded: Encoded) -> Any:
        """Return the value of a shared resource."""
        raise NotImplementedError

    @staticmethod
    def _is(value: Any, encoded: Encoded) -> bool:
        """Say whether a value is that of a shared resource."""
        raise NotImplementedError

    def __getitem__(self, name: str) -> V:
        found: V | None = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a name, or the default."""
        if name in self.exceptions:
            found = self.exceptions[name]
            return default if found is None else found
        encoded = self.base.get(name)
        return default if encoded is None else self._of(encoded)

    def __contains__(self, name: object) -> bool:
        return self.get(name) is not None  # type: ignore[arg-type]  # what is no name is not in there

    def __setitem__(self, name: str, value: V) -> None:
        self.exceptions[name] = value

    def __delitem__(self, name: str) -> None:
        if name in self.base:
            self.exceptions[name] = None
        else:
            del self.exceptions[name]

    def discard(self, name: str) -> None:
        """Take a name out, if it is in the mapping."""
        if name in self.base:
            self.exceptions[name] = None
        else:
            self.exceptions.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in self.base if name not in self.exceptions)
        yield from (name for name, value in self.exceptions.items() if value is not None)

    def __len__(self) -> int:
        hidden = sum(name in self.base for name in self.exceptions)
        return len(self.base) - hidden + sum(value is not None for value in self.exceptions.values())

    @property
    def is_untouched(self) -> bool:
        """Whether there is nothing in it, not even an exception."""
        return not self.exceptions and not self.base

    def rebase(self, target: Resources) -> None:
        """Express the same by another base."""
        if self.base is target and not self.exceptions:
            return
        changed = difference(self.base, target)
        found: dict[str, V | None] = {}
        for name in {*changed.resources, *changed.gone, *self.exceptions}:
            value, encoded = self.get(name), target.get(name)
            if (value is None) != (encoded is None) or (encoded and not self._is(value, encoded)):
                found[name] = value
        self.base, self.exceptions = target, found


class Sent(Layers[str]):
    """The digests last sent, or brought along; "" is: the proxy was told that there is no such resource."""

    __slots__ = ()

    @staticmethod
    def _of(encoded: Encoded) -> str:
        return encoded.digest

    @staticmethod
    def _is(value: str, encoded: Encoded) -> bool:
        return value == encoded.digest


class Accepted(Layers[Held]):
    """The versions that the proxy has accepted."""

    __slots__ = ()

    @staticmethod
    def _of(encoded: Encoded) -> Held:
        return encoded

    @staticmethod
    def _is(value: Held, encoded: Encoded) -> bool:
        return value.digest == encoded.digest and value.needs == encoded.needs  # its content may be gone
