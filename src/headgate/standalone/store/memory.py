"""The embedded store: objects in memory with a Kubernetes API server's semantics, persisted by a `Journal`.

Every call is one transaction. It runs to its end without yielding to another task, so no task sees a part of it. Its changes
are rolled back when validation or the journal rejects them, and sent to watches after the journal has persisted them.
"""

from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from headgate.admission.chain import object_check
from headgate.admission.review import Review
from headgate.errors import AlreadyExists, Cause, Invalid, NotFound, TooLarge
from headgate.merge.managed_fields import Manager, Write, versions_of
from headgate.merge.server_side_apply import tracked_apply
from headgate.merge.structured_merge import MergeError
from headgate.objects import lifecycle
from headgate.objects.ports import Change, ChangeListener, Listing, View
from headgate.resources.custom.definition import definition_key
from headgate.resources.custom.kinds import defined_kind, with_definitions
from headgate.resources.decode import Check, Checked
from headgate.resources.kind import Kind
from headgate.resources.kind_set import KindSet
from headgate.resources.meta import Key, Object
from headgate.resources.registry import DEFINITION, key_of
from headgate.settings import DEFAULTS
from headgate.standalone.store import foreground
from headgate.standalone.store.history import RecentChanges
from headgate.standalone.store.journal import Journal
from headgate.standalone.store.object_index import ObjectIndex, known_owners, owners

SYSTEM_NAMESPACES = ("default", "kube-system")
LARGEST_OBJECT = 1536 * 1024  # the most bytes of an object as JSON: etcd's limit of a request
_NAME_ATTEMPTS = 20  # the most names to generate from `generateName` until one is free
_DEFAULT_CHECK = object_check(DEFAULTS)


Admission: TypeAlias = Callable[[Object, Object | None, View], Review]
"""A function of a written object, the old one (None on create) and a view of all objects. Raises Invalid."""
Warn: TypeAlias = Callable[[str], object]
"""A function that is called with each warning about a write."""


def _ignore(_text: str) -> None:
    """Ignore a warning: controllers read none."""


class _Step(NamedTuple):
    change: Change
    before: Object | None


class MemoryStore:
    """Implements `objects.ports.Store` for one event loop. No call waits, so each call is atomic.

    `history` is how many changes to each kind watches can read.
    """

    def __init__(
        self,
        *,
        check: Check | None = None,
        admit: Admission | None = None,
        kept: Mapping[tuple[str, str], ChangeListener] | None = None,
        journal: Journal | None = None,
        history: int = 10_000,
    ) -> None:
        self._check = check
        self._admit = admit
        self._kept = kept or {}
        self._journal = journal
        self._index = ObjectIndex()
        revision, objects = journal.load() if journal else (0, ())
        for obj in objects:
            self._index.put(key_of(obj), obj)
        self.kinds = self._defined_kinds()
        self._history = RecentChanges(revision, history)
        self._steps: list[_Step] = []
        self._garbage_candidates: deque[Key] = deque()  # objects to check for deleted owners at the end of the call
        # A damaged Namespace is missing in the journal.
        for name in sorted({*SYSTEM_NAMESPACES, *(key_of(obj).namespace for obj in objects)} - {""}):
            if self._index.get(lifecycle.namespace_key(name)) is None:
                with self._transaction():
                    self._add(lifecycle.namespace(name), self._kind("", "Namespace"))

    @property
    def revision(self) -> int:
        """The revision of the newest change."""
        return self._history.revision

    async def check(self) -> None:
        """Check that a write would be persisted. Raises Unavailable with the reason."""
        if self._journal:
            self._journal.check()

    def failing_since(self) -> float:
        """Return the time of the first failed write since the last successful write, in seconds since the epoch; else 0."""
        return self._journal.failing_since if self._journal else 0.0

    async def get(self, key: Key) -> Object:
        """Return an object. Raises NotFound."""
        return self._existing(key)

    async def list(self, group: str, kind: str, namespace: str = "") -> Listing:
        """Return the objects of a kind, in one namespace or in all."""
        return Listing(self._index.select(group, kind, namespace), str(self.revision))

    def checked(self, obj: Object) -> Checked:
        """Validate a client's object of any version. The result's `hub` can then be stored with `sound=True`."""
        return (self._check or _DEFAULT_CHECK)(obj, request=True, kinds=self.kinds)

    async def create(self, obj: Object, *, dry_run: bool = False, sound: bool = False, warn: Warn = _ignore) -> Object:
        """Store a new object. Raises AlreadyExists, Invalid, TooLarge, NotFound (when its namespace does not exist).

        `sound` says that `checked` has validated the object and converted it to the hub version already. `warn` is called
        with the warnings of the review.
        """
        kind = lifecycle.kind_of(obj, self.kinds)
        new = self._named(lifecycle.with_namespace(obj, kind), kind)
        with self._transaction(dry_run=dry_run):
            self._check_namespace(new["metadata"].get("namespace"))
            new = self._admitted(new, None, sound=sound, warn=warn)
            key = key_of(new)
            if self._index.get(key) is not None:
                raise AlreadyExists(f'{lifecycle.qualified_name(kind)} "{key.name}" already exists')
            stored = self._add(new, kind)
            _check_size(stored)
            self._garbage_candidates.append(key)
        return lifecycle.with_metadata(stored, resourceVersion=None) if dry_run else stored

    async def update(
        self,
        obj: Object,
        *,
        subresource: Literal["", "status"] = "",
        dry_run: bool = False,
        sound: bool = False,
        warn: Warn = _ignore,
    ) -> Object:
        """Replace an object, or only its status. Equal content changes nothing. Raises Conflict, NotFound, Invalid, TooLarge."""
        kind = lifecycle.kind_of(obj, self.kinds)
        new = lifecycle.with_namespace(obj, kind)
        key, metadata = key_of(new), new["metadata"]
        old = self._existing(key)
        lifecycle.check_preconditions(
            old, kind, uid=metadata.get("uid") or "", resource_version=metadata.get("resourceVersion") or ""
        )
        if subresource:
            merged = lifecycle.prepare_status_update(new, old, kind)
        else:
            new = self._admitted(new, old, sound=sound, warn=warn)
            merged = lifecycle.prepare_update(new, old, kind)
        if merged == old:
            return old
        with self._transaction(dry_run=dry_run):
            stored = self._put("MODIFIED", key, merged)
            _check_size(stored)
            if "deletionTimestamp" in stored["metadata"] and not stored["metadata"].get("finalizers"):
                stored = self._finish(key)
            self._garbage_candidates.append(key)
            if kind is DEFINITION:
                self._store_as_defined(defined_kind(stored))
        return (
            lifecycle.with_metadata(stored, resourceVersion=old["metadata"]["resourceVersion"]) if dry_run else stored
        )

    async def apply(self, config: Object, *, manager: str, subresource: Literal["", "status"] = "") -> Object:
        """Apply a manager's configuration as a forced server-side apply does. Raises NotFound, Invalid."""
        kind = lifecycle.kind_of(config, self.kinds)
        config = lifecycle.with_namespace(config, kind)
        by = Manager(manager, "Apply", kind.hub, subresource)
        write = Write(by, lifecycle.now(), versions_of(kind), has_status=kind.status, force=True)
        key = key_of(config)
        old = self._existing(key) if subresource else self._index.get(key)
        try:
            new = tracked_apply(old, config, write)
        except MergeError as error:
            raise Invalid(Cause("", str(error))) from error
        return await (self.update(new, subresource=subresource) if old else self.create(new))

    async def delete(
        self, key: Key, *, uid: str = "", resource_version: str = "", orphan: bool = False, dry_run: bool = False
    ) -> Object:
        """Delete an object and its dependents; with `orphan`, keep the dependents.

        Raises NotFound, Conflict, and Invalid for a system namespace.
        """
        old = self._existing(key)
        lifecycle.check_preconditions(old, self._kind(key.group, key.kind), uid=uid, resource_version=resource_version)
        if key in map(lifecycle.namespace_key, SYSTEM_NAMESPACES):
            raise Invalid(Cause("metadata.name", f"namespace {key.name} is a system namespace and may not be deleted"))
        with self._transaction(dry_run=dry_run):
            return self._delete_or_mark(key, orphan=orphan)

    async def watch(self, group: str, kind: str, namespace: str = "", *, since: str) -> AsyncGenerator[Change]:
        """Yield every change of a kind after a resource version, without end. Raises Gone."""
        async for change in self._history.after(since, group, kind):
            if namespace in ("", change.key.namespace):
                yield change

    @contextmanager
    def _transaction(self, *, dry_run: bool = False) -> Iterator[None]:
        """Commit the changes in the `with` block. Roll them back on a dry run, or if the block or the journal fails."""
        kept = False
        try:
            yield
            while self._garbage_candidates:
                self._collect(self._garbage_candidates.popleft())
            if not dry_run:
                changes = [step.change for step in self._steps]
                if self._journal and changes:
                    self._journal.append(changes)
                for change in changes:
                    if kept_by := self._kept.get((change.key.group, change.key.kind)):
                        kept_by(change)
                self._history.append(changes)
                kept = True
                if any(change.key.kind == DEFINITION.kind for change in changes):
                    self.kinds = self._defined_kinds()
        finally:
            steps, self._steps = self._steps, []
            self._garbage_candidates.clear()
            if not kept:
                self._undo(steps)

    def _undo(self, steps: Sequence[_Step]) -> None:
        for change, before in reversed(steps):
            if before is None:
                self._index.remove(change.key)
            else:
                self._index.put(change.key, before)

    def _put(self, type: Literal["ADDED", "MODIFIED", "DELETED"], key: Key, obj: Object) -> Object:
        """Make one change and give it the next revision."""
        revision = self.revision + len(self._steps) + 1
        stored = lifecycle.with_metadata(obj, resourceVersion=str(revision))
        self._steps.append(_Step(Change(type, key, stored), self._index.get(key)))
        if type == "DELETED":
            self._index.remove(key)
        else:
            self._index.put(key, stored)
        return stored

    def _add(self, obj: Object, kind: Kind) -> Object:
        stored = self._put("ADDED", key_of(obj), lifecycle.prepare_create(obj, kind))
        if (kind.group, kind.kind) == ("", "Namespace"):
            self._add(lifecycle.service_account(stored["metadata"]["name"]), self._kind("", "ServiceAccount"))
        return stored

    def _admitted(self, new: Object, old: Object | None, *, sound: bool, warn: Warn) -> Object:
        if self._check and not sound:
            checked = self._check(new, kinds=self.kinds)
            if checked.hub is None:
                raise Invalid(*checked.causes)
            new = checked.hub
        if not self._admit:
            return new
        reviewed = self._admit(new, old, self._index).passed()
        for text in reviewed.warnings:
            warn(text)
        return reviewed.object

    def _existing(self, key: Key) -> Object:
        obj = self._index.get(key)
        if obj is None:
            raise NotFound(f'{lifecycle.qualified_name(self._kind(key.group, key.kind))} "{key.name}" not found')
        return obj

    def _named(self, obj: Object, kind: Kind) -> Object:
        for _ in range(_NAME_ATTEMPTS):
            # `with_namespace` validates the generated name
            named = lifecycle.with_namespace(lifecycle.with_generated_name(obj), kind)
            if named is obj or self._index.get(key_of(named)) is None:
                break
        return named

    def _check_namespace(self, name: str | None) -> None:
        if name is None:
            return
        obj = self._index.get(lifecycle.namespace_key(name))
        if obj is None:
            raise NotFound(f'namespaces "{name}" not found: create it first (kubectl create namespace {name})')
        if "deletionTimestamp" in obj["metadata"]:
            raise Invalid(
                Cause(
                    "metadata.namespace",
                    f"unable to create new content in namespace {name} because it is being terminated",
                )
            )

    def _delete_or_mark(self, key: Key, *, orphan: bool = False) -> Object:
        """Delete an object with its content. If it has finalizers, or if its content has, only set its deletionTimestamp."""
        obj = self._existing(key)
        if orphan:
            for dependent in self._index.owned_by(obj["metadata"]["uid"]):
                self._disown(dependent, obj)
        for content in self._index.content(key, self.kinds):
            self._delete_or_mark(content)
        if foreground.is_requested(obj):
            return self._delete_dependents(key, obj)
        if obj["metadata"].get("finalizers") or self._index.content(key, self.kinds):
            return self._mark(key, obj)
        return self._remove(key)

    def _delete_dependents(self, key: Key, obj: Object) -> Object:
        """Delete what an object alone owns, in the foreground. It follows at the end of the call if nothing blocks it."""
        marked = self._mark(key, obj)
        for dependent in foreground.undeleted(self._index, marked):
            child = self._existing(dependent)
            if owners(child) - self._missing_owners(child, dependent) - {obj["metadata"]["uid"]}:
                self._disown(dependent, obj)
                continue
            if foreground.undeleted(self._index, child):
                self._put("MODIFIED", dependent, foreground.requested(child))
            self._delete_or_mark(dependent)
        self._garbage_candidates.append(key)
        return marked

    def _mark(self, key: Key, obj: Object) -> Object:
        if "deletionTimestamp" in obj["metadata"]:
            return obj
        return self._put("MODIFIED", key, lifecycle.mark_deleted(obj))

    def _finish(self, key: Key) -> Object:
        """Remove an object that has no finalizers left, unless it is a namespace or a definition that still has objects."""
        if self._index.content(key, self.kinds):
            return self._existing(key)
        return self._remove(key)

    def _remove(self, key: Key) -> Object:
        gone = self._put("DELETED", key, self._existing(key))
        self._garbage_candidates.extend(self._index.owned_by(gone["metadata"]["uid"]))
        self._garbage_candidates.extend(filter(None, map(self._index.key_of, owners(gone))))
        kind = self._kind(key.group, key.kind)
        if key.namespace:
            self._end(lifecycle.namespace_key(key.namespace))
        if kind.definition:
            self._end(definition_key(kind.definition))
        return gone

    def _end(self, key: Key) -> None:
        """Remove a terminating namespace or definition when its last object is gone."""
        obj = self._index.get(key)
        if obj is None or "deletionTimestamp" not in obj["metadata"]:
            return
        if not obj["metadata"].get("finalizers") and not self._index.content(key, self.kinds):
            self._remove(key)

    def _missing_owners(self, obj: Object, key: Key) -> set[str]:
        """Return the UIDs of those owners of an object that do not exist.

        As in Kubernetes, an owner of an unknown kind counts as existing: another API server may store it.
        """
        return {uid for uid in known_owners(obj, self.kinds) if not self._index.can_own(uid, key.namespace)}

    def _collect(self, key: Key) -> None:
        """Delete an object whose owners are all deleted; else remove the references to deleted owners."""
        obj = self._index.get(key)
        if obj is None:
            return
        if foreground.is_requested(obj) and "deletionTimestamp" in obj["metadata"]:
            if not foreground.blocking(self._index, obj):
                self._put("MODIFIED", key, foreground.done(obj))
                self._delete_or_mark(key)
            return
        named = owners(obj)
        gone = self._missing_owners(obj, key)
        if gone and gone == named:
            self._delete_or_mark(key)
        elif gone:
            self._put("MODIFIED", key, lifecycle.without_owners(obj, gone))

    def _disown(self, key: Key, owner: Object) -> None:
        self._put("MODIFIED", key, lifecycle.without_owners(self._existing(key), {owner["metadata"]["uid"]}))

    def _kind(self, group: str, name: str) -> Kind:
        kind = self.kinds.find(group, name)
        if kind is None:
            raise NotFound(f'no matches for kind "{name}" in group "{group}"')
        return kind

    def _defined_kinds(self) -> KindSet:
        """Return the kinds that the store has: the built-in ones, and those of the stored CustomResourceDefinitions."""
        return with_definitions(self._index.select(DEFINITION.group, DEFINITION.kind, ""))

    def _store_as_defined(self, kind: Kind) -> None:
        """Store the objects of a kind in its hub version, which a change to its definition may have changed."""
        for obj in self._index.select(kind.group, kind.kind, ""):
            if obj["apiVersion"] != kind.hub:
                self._put("MODIFIED", key_of(obj), {**obj, "apiVersion": kind.hub})


def _check_size(obj: Object) -> None:
    """Limit the size of a written object, as etcd limits its requests. Raises TooLarge."""
    if (size := len(msgspec.json.encode(obj))) > LARGEST_OBJECT:
        raise TooLarge(f"Request entity too large: the object has {size} bytes; the limit is {LARGEST_OBJECT}")
