"""Versions of resources that a proxy has, as a configuration shared by many proxies plus the proxy's own overrides.

Most proxies have exactly what most other proxies have. So a session keeps a reference to the shared resources, and the
difference between two configurations is computed once for all proxies (ARCHITECTURE.md, rule 12).
"""

from collections.abc import Iterator, Mapping, MutableMapping
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from headgate.envoy import pb
from headgate.envoy.config import NO_RESOURCES, Encoded, Resources
from headgate.shared_map import replaced

MAX_RESPONSE_BYTES = 2**21  # limit for the resources in a response; gRPC clients reject messages of 4 MiB
# A proxy's own resources are sent together with shared resources of up to this size. Larger responses have only shared
# resources, so that all proxies can use the same bytes.
MAX_MIXED_BYTES = 2**14
CACHE_SIZE = 128  # results of each cached function: enough for all types and kinds of proxies over several builds
V = TypeVar("V")
Content = TypeVar("Content", bound=Mapping[str, Encoded])
Pairs: TypeAlias = tuple[tuple[str, Encoded], ...]
"""Resources of a response, as (name, resource)."""


class ReportedVersion(NamedTuple):
    """A version that a reconnecting proxy reported in `initial_resource_versions` and whose content is unknown.

    `needs`, the clusters that the resource names, is unknown too.
    """

    digest: str
    needs: None = None


AcknowledgedVersion: TypeAlias = Encoded | ReportedVersion
"""A version that the proxy has acknowledged. The body of an `Encoded` may be empty, to save memory."""


class ById(Generic[V]):
    """A cache key that compares its value by identity, which takes the same time for every value."""

    __slots__ = ("value",)

    def __init__(self, value: V) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ById) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


class Difference(NamedTuple, Generic[Content]):
    """The difference between two configurations, and the first response that reduces it.

    `resources` are to be sent; `batch` is as many of them as fit into a response. `removed` has names to remove.
    `after_batch` is the configuration of a proxy that has the batch; `after_all` is the same without `removed`.
    """

    resources: Mapping[str, Encoded]
    removed: frozenset[str]
    batch: Pairs
    after_batch: Content
    after_all: Content

    def result_of(self, resources: Pairs, removed: tuple[str, ...]) -> Content | None:
        """Return the configuration of a proxy after a response with these resources and removals.

        The result is None if the response is neither `batch` alone nor `batch` with all of `removed`.
        """
        if resources is not self.batch:
            return None
        count = len(self.removed.intersection(removed))
        if not count:
            return self.after_batch
        return self.after_all if count == len(self.removed) else None


def difference(before: Resources, after: Resources, *, is_whole: bool = False) -> Difference[Resources]:
    """Return the difference between two configurations. Their shared parts are compared once for all proxies.

    With `is_whole`, the batch has all resources, whatever their size.
    """
    if before is after:
        return Difference({}, frozenset(), (), after, after)
    common = _common_difference(before.common, after.common, is_whole=is_whole)
    own = compare(before.own, after.own, is_whole=is_whole)
    if any(name in before.common for name in own.resources) or any(name in after.common for name in own.removed):
        whole = compare(
            before, after, is_whole=is_whole
        )  # a name has moved between the proxy's own resources and the shared ones
        after_batch, after_all = _as_resources(whole.after_batch), _as_resources(whole.after_all)
        return Difference(whole.resources, whole.removed, whole.batch, after_batch, after_all)
    # The proxy's own resources join a small shared response; otherwise they are a response of their own.
    is_joined = len(common.batch) == len(common.resources) and total_size(ById(common.batch)) <= MAX_MIXED_BYTES
    after_batch = Resources(common.after_batch, own.after_batch if is_joined else before.own)
    after_all = Resources(common.after_all, own.after_all if is_joined else _without(before.own, own.removed))
    return Difference(
        Resources(common.resources, own.resources),
        common.removed | own.removed,
        common.batch + own.batch if is_joined else common.batch,
        after if after_batch.has_same_parts_as(after) else after_batch,
        after if after_all.has_same_parts_as(after) else after_all,
    )


def _as_resources(resources: Mapping[str, Encoded]) -> Resources:
    return resources if isinstance(resources, Resources) else Resources(resources, {})


def _without(resources: Mapping[str, Encoded], removed: frozenset[str]) -> Mapping[str, Encoded]:
    return {name: encoded for name, encoded in resources.items() if name not in removed} if removed else resources


@lru_cache(CACHE_SIZE)
def total_size(pairs: ById[Pairs]) -> int:
    """Return the size of some resources in bytes."""
    return sum(len(encoded.body) for _, encoded in pairs.value)


def _common_difference(
    before: Mapping[str, Encoded], after: Mapping[str, Encoded], *, is_whole: bool
) -> Difference[Mapping[str, Encoded]]:
    if before is after:
        return Difference({}, frozenset(), (), after, after)
    return _cached_compare(ById(before), ById(after), is_whole=is_whole)


@lru_cache(CACHE_SIZE)
def _cached_compare(
    before: ById[Mapping[str, Encoded]], after: ById[Mapping[str, Encoded]], *, is_whole: bool
) -> Difference[Mapping[str, Encoded]]:
    return compare(before.value, after.value, is_whole=is_whole)


def compare(
    before: Mapping[str, Encoded], after: Mapping[str, Encoded], *, is_whole: bool
) -> Difference[Mapping[str, Encoded]]:
    """Return the difference between two mappings, compared name by name."""
    new, gone = replaced(before, after)
    changed = ((name, new[name]) for name in sorted(new))  # configurations are in an arbitrary order
    resources = {
        name: encoded for name, encoded in changed if name not in before or before[name].digest != encoded.digest
    }
    removed = frozenset(gone)
    batch = _batch(resources, is_whole=is_whole)
    is_last = len(batch) == len(resources)
    after_batch = after if is_last and not removed else {**before, **dict(batch)}
    after_all = after if is_last else _without(after_batch, removed)
    return Difference(resources, removed, batch, after_batch, after_all)


def _batch(resources: Mapping[str, Encoded], *, is_whole: bool) -> Pairs:
    """Return the first resources, as many as fit into a response."""
    batch: list[tuple[str, Encoded]] = []
    size = 0
    for name, encoded in resources.items():
        size += len(encoded.body)
        if batch and size > MAX_RESPONSE_BYTES and not is_whole:
            break
        batch.append((name, encoded))
    return tuple(batch)


def select(resources: Resources, names: frozenset[str]) -> Resources:
    """Return the resources with these names; the same object when all resources are selected."""
    if not names:
        return NO_RESOURCES
    common = _select_common(ById(resources.common), ById(names))
    own = resources.own
    if any(name not in names for name in own):
        own = {name: encoded for name, encoded in own.items() if name in names}
    return resources if common is resources.common and own is resources.own else Resources(common, own)


@lru_cache(CACHE_SIZE)
def _select_common(resources: ById[Mapping[str, Encoded]], names: ById[frozenset[str]]) -> Mapping[str, Encoded]:
    if resources.value.keys() <= names.value:
        return resources.value
    return {name: encoded for name, encoded in resources.value.items() if name in names.value}


@lru_cache(CACHE_SIZE)
def intern_names(names: frozenset[str]) -> frozenset[str]:
    """Return an equal set that other proxies use too: a thousand sets of a thousand names take 100 MB."""
    return names


class InitialVersions(Mapping[str, str]):
    """The `initial_resource_versions` of a request, by name.

    It stays a Protobuf map: comparing a thousand versions takes 20 us, as Python objects 200 us.
    """

    def __init__(self, request: pb.DeltaDiscoveryRequest) -> None:
        """Wrap the `initial_resource_versions` of a request; clear the other fields of the request."""
        for field, _ in request.ListFields():
            if field.name != "initial_resource_versions":
                request.ClearField(field.name)
        self._request = request
        self._versions = request.initial_resource_versions

    def __getitem__(self, name: str) -> str:
        if name not in self._versions:  # a Protobuf map inserts the names that are looked up
            raise KeyError(name)
        return self._versions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._versions)

    def __len__(self) -> int:
        return len(self._versions)

    def match(self, resources: Resources) -> bool:
        """Return whether these are the names and versions of exactly these resources."""
        own = {name: encoded.digest for name, encoded in resources.own.items()}
        if len(self) != len(resources) or any(self.get(name) != digest for name, digest in own.items()):
            return False
        for name in own:
            del self._versions[name]
        is_same = self._request == _request_with_versions(ById(resources.common))
        self._versions.update(own)
        return is_same


def initial_versions(versions: Mapping[str, str]) -> InitialVersions:
    """Return versions as `InitialVersions`."""
    if isinstance(versions, InitialVersions):
        return versions
    return InitialVersions(pb.DeltaDiscoveryRequest(initial_resource_versions=versions))


@lru_cache(CACHE_SIZE)
def _request_with_versions(resources: ById[Mapping[str, Encoded]]) -> pb.DeltaDiscoveryRequest:
    versions = {name: encoded.digest for name, encoded in resources.value.items()}
    return pb.DeltaDiscoveryRequest(initial_resource_versions=versions)


@lru_cache(CACHE_SIZE)
def names_of(resources: ById[Mapping[str, Encoded]]) -> frozenset[str]:
    """Return the names of the resources."""
    return frozenset(resources.value)


@lru_cache(CACHE_SIZE)
def digests(pairs: ById[Pairs]) -> Mapping[str, str]:
    """Return the versions of a response's resources, by name."""
    return {name: encoded.digest for name, encoded in pairs.value}


@lru_cache(CACHE_SIZE)
def without_bodies(pairs: ById[Pairs]) -> Pairs:
    """Return the resources of a response with empty bodies."""
    return tuple((name, encoded._replace(body=b"")) for name, encoded in pairs.value)


@lru_cache(CACHE_SIZE)
def missing_names(names: ById[frozenset[str]], resources: ById[Mapping[str, Encoded]]) -> frozenset[str]:
    """Return the names that no resource has."""
    return names.value.difference(resources.value)


@lru_cache(CACHE_SIZE)
def needed_clusters(pairs: ById[Pairs]) -> frozenset[str]:
    """Return the clusters that the resources of a response name."""
    return frozenset(cluster for _, encoded in pairs.value for cluster in encoded.needs)


@lru_cache(CACHE_SIZE)
def users_by_cluster(resources: ById[Mapping[str, Encoded]]) -> Mapping[str, tuple[str, ...]]:
    """Return, for each cluster, the names of the resources that name it."""
    users: dict[str, list[str]] = {}
    for name, encoded in resources.value.items():
        for cluster in encoded.needs:
            users.setdefault(cluster, []).append(name)
    return {cluster: tuple(names) for cluster, names in users.items()}


class Overlay(MutableMapping[str, V]):
    """A mapping made of a shared `base` and the proxy's `overrides`. An override of None hides the name in the base."""

    __slots__ = ("base", "overrides")

    def __init__(self) -> None:
        self.base: Resources = NO_RESOURCES
        self.overrides: dict[str, V | None] = {}

    @staticmethod
    def _value(encoded: Encoded) -> Any:
        """Return the value of this mapping for a resource of the base, for example its digest."""
        raise NotImplementedError

    @staticmethod
    def _is_same(value: Any, encoded: Encoded) -> bool:
        """Return whether a value is the value for this resource, so that it needs no override."""
        raise NotImplementedError

    def __getitem__(self, name: str) -> V:
        value: V | None = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a name, or the default."""
        if name in self.overrides:
            override = self.overrides[name]
            return default if override is None else override
        encoded = self.base.get(name)
        return default if encoded is None else self._value(encoded)

    def __contains__(self, name: object) -> bool:
        return self.get(name) is not None  # type: ignore[arg-type]  # other types than str are never in it

    def __setitem__(self, name: str, value: V) -> None:
        self.overrides[name] = value

    def __delitem__(self, name: str) -> None:
        if name in self.base:
            self.overrides[name] = None
        else:
            del self.overrides[name]

    def discard(self, name: str) -> None:
        """Remove a name if it is present."""
        if name in self.base:
            self.overrides[name] = None
        else:
            self.overrides.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        yield from (name for name in self.base if name not in self.overrides)
        yield from (name for name, value in self.overrides.items() if value is not None)

    def __len__(self) -> int:
        hidden = sum(name in self.base for name in self.overrides)
        return len(self.base) - hidden + sum(value is not None for value in self.overrides.values())

    @property
    def is_unused(self) -> bool:
        """Whether there is no base and no override."""
        return not self.overrides and not self.base

    def rebase(self, target: Resources) -> None:
        """Replace the base and adapt the overrides, so that the content stays the same."""
        if self.base is target and not self.overrides:
            return
        changed = difference(self.base, target)
        overrides: dict[str, V | None] = {}
        for name in {*changed.resources, *changed.removed, *self.overrides}:
            value, encoded = self.get(name), target.get(name)
            if (value is None) != (encoded is None) or (encoded and not self._is_same(value, encoded)):
                overrides[name] = value
        self.base, self.overrides = target, overrides


class Sent(Overlay[str]):
    """The digest that was last sent, or reported by the proxy, by name. An empty digest: a removal was sent."""

    __slots__ = ()

    @staticmethod
    def _value(encoded: Encoded) -> str:
        return encoded.digest

    @staticmethod
    def _is_same(value: str, encoded: Encoded) -> bool:
        return value == encoded.digest


class Acknowledged(Overlay[AcknowledgedVersion]):
    """The versions that the proxy has acknowledged, or reported when it reconnected, by name."""

    __slots__ = ()

    @staticmethod
    def _value(encoded: Encoded) -> AcknowledgedVersion:
        return encoded

    @staticmethod
    def _is_same(value: AcknowledgedVersion, encoded: Encoded) -> bool:
        # The bodies are not compared: an acknowledged version may have an empty body.
        return value.digest == encoded.digest and value.needs == encoded.needs
