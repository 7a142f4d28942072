"""Watches of the inspect API: the objects of a path are computed at most once a second while clients watch it.

All watchers of a path share its computation, and all paths share a tenth of a processor. A watcher gets what changed since the objects that it has, so a slow reader skips states.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from headgate.api.status import ApiError
from headgate.errors import HeadgateError
from headgate.latest import Latest

PERIOD_S = 1.0
"""The least number of seconds between two computations of a path."""
REST = 9  # a computation is followed by a pause of this multiple of its processor time, so that all take a tenth of a processor
MOST_PATHS = 100
"""The number of paths, with their queries, that are watched at the same time."""
MOST_OF_USER = 20
"""The number of these that one user watches, on a cluster."""
CHECK_S = 10.0
"""The time after which the permission of a watcher is checked again, as long as an allowed review is cached. Bookmarks follow."""
LONGEST_S = 3600.0
MOST_LISTED, LISTED_S = 8, 10.0
"""The number of lists that watches can continue, and for how long: clients list objects, then watch their changes."""
_END_OF_INITIAL = "k8s.io/initial-events-end"
_DIGEST_BYTES = 8
_ANY_VERSION = ("", "0")
_log = logging.getLogger(__name__)

Identity: TypeAlias = tuple[str | int, ...]
"""What distinguishes an object in the list of its resource; begins with its namespace and name."""
EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]
Authorize: TypeAlias = Callable[[], Awaitable[None]]
"""Checks a permission. Raises ApiError."""


class WatchedObjects:
    """The objects of a path at one time, and their encoding. `version` is a digest of all of them."""

    def __init__(self, several: Sequence[Any], identity: Callable[[Any], Identity]) -> None:
        self.objects: Mapping[Identity, Any] = {identity(obj): obj for obj in several}
        self.encoded: Mapping[Identity, bytes] = {key: msgspec.json.encode(obj) for key, obj in self.objects.items()}

    @cached_property
    def version(self) -> str:
        """The resource version of the list."""
        digest = blake2b(digest_size=_DIGEST_BYTES)
        for key in sorted(self.encoded):
            digest.update(self.encoded[key])
        return digest.hexdigest()

    def since(self, before: "WatchedObjects") -> Sequence[tuple[EventType, Identity]]:
        """Return the events that lead from `before` to these objects, sorted by object."""
        changed: list[tuple[Identity, EventType]] = [
            (key, "DELETED") for key in before.encoded.keys() - self.encoded.keys()
        ]
        for key, content in self.encoded.items():
            if (old := before.encoded.get(key)) != content:
                changed.append((key, "ADDED" if old is None else "MODIFIED"))
        return [(type, key) for key, type in sorted(changed)]


NOTHING = WatchedObjects((), lambda _: ())
Read: TypeAlias = Callable[[], Coroutine[Any, Any, WatchedObjects]]


class Form(NamedTuple):
    """The form in which a client accepts objects. Forms with the same `name` render alike; one without a name is plain JSON."""

    name: str
    render: Callable[[Any], Mapping[str, Any]]


class WatchRequest(NamedTuple):
    """What a client watches. It has the objects of a `version`; without one, all are sent first.

    Events are sent of objects that `selects` accepts. `kind` has the fields of bookmarks besides metadata. With `initial_end`, a
    bookmark follows the first objects; with `bookmarks`, one after `CHECK_S` again and again. `authorize` checks the permission of the client.
    `user` is its name, empty where there is one user.
    """

    form: Form
    kind: Mapping[str, str]
    selects: Callable[[Identity], bool] = lambda _: True
    version: str = ""
    bookmarks: bool = False
    initial_end: bool = False
    seconds: float = LONGEST_S
    authorize: Authorize | None = None
    user: str = ""


class _Turns:
    """The turns in which all paths are computed: one at a time, with a pause in proportion to its processor time after each."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._rested = 0.0

    async def take(self, read: Read) -> WatchedObjects:
        """Compute the objects of a path when it is its turn."""
        now = asyncio.get_running_loop().time
        async with self._lock:
            await asyncio.sleep(self._rested - now())
            began = (
                time.process_time()
            )  # it is all of the process, also of threads, but not the wait for another server
            try:
                return await read()
            finally:
                self._rested = now() + REST * (time.process_time() - began)


class _Poll:
    """The objects of a path while it is watched, and the lines that its watchers share."""

    def __init__(self, read: Read, turns: _Turns) -> None:
        self.watchers = 0
        self.objects: Latest[WatchedObjects] = Latest(NOTHING)
        self.failure: HeadgateError | None = None
        self._computed = asyncio.Event()
        self._read = read
        self._turns = turns
        self._lines: dict[tuple[str, str], Sequence[tuple[Identity, bytes]]] = {}
        self.task = asyncio.create_task(self._run(), name="a watched path of the inspect API")

    async def _run(self) -> None:
        """Compute the objects until canceled, or until that fails. Only later computations wait for their turn, as a get has none."""
        try:
            self.objects.set(await self._read())
            self._computed.set()
            while True:
                await asyncio.sleep(PERIOD_S)
                objects = await self._turns.take(self._read)
                if objects.version != self.objects.get().version:
                    self._lines.clear()
                    self.objects.set(objects)
        except HeadgateError as error:
            self._fail(error)
        except Exception:  # noqa: BLE001  a bug ends the watches of one path, not the server
            _log.exception("bug: a watched path of the inspect API failed")
            self._fail(ApiError(500, "Internal error occurred: this is a bug in headgate; its log has the details"))

    def _fail(self, error: HeadgateError) -> None:
        self.failure = error
        self._computed.set()
        self.objects.replace(self.objects.get())

    async def first(self) -> None:
        """Wait until the objects are computed. Raises HeadgateError."""
        await self._computed.wait()
        if self.failure:
            raise self.failure

    def events(self, before: WatchedObjects, request: WatchRequest) -> bytes:
        """Return the events that lead from `before` to the current objects, as lines of JSON."""
        form, now = request.form, self.objects.get()
        if before is now:
            return b""
        shared = before.version, form.name
        if shared not in self._lines:
            self._lines[shared] = [
                (key, _line(type, before if type == "DELETED" else now, key, form)) for type, key in now.since(before)
            ]
        return b"".join([line for key, line in self._lines[shared] if request.selects(key)])


def _line(type: EventType, of: WatchedObjects, key: Identity, form: Form) -> bytes:
    content = msgspec.json.encode(form.render(of.objects[key])) if form.name else of.encoded[key]
    return b'{"type":"' + type.encode() + b'","object":' + content + b"}\n"


class Watches:
    """The watched paths. A path is computed from its first watcher on, until the last one leaves."""

    def __init__(self) -> None:
        self._polls: dict[Hashable, _Poll] = {}
        self._of_users: dict[str, Counter[Hashable]] = {}
        self._turns = _Turns()
        self._listed: dict[tuple[Hashable, str], WatchedObjects] = {}

    def listed(self, path: Hashable, objects: WatchedObjects) -> None:
        """Keep the objects of a list for a watch that continues it."""
        key = path, objects.version
        self._listed.pop(key, None)
        self._listed[key] = objects
        if len(self._listed) > MOST_LISTED:
            del self._listed[next(iter(self._listed))]
        asyncio.get_running_loop().call_later(LISTED_S, self._drop_listed, key, objects)

    def _drop_listed(self, key: tuple[Hashable, str], objects: WatchedObjects) -> None:
        if self._listed.get(key) is objects:
            del self._listed[key]

    async def watch(self, path: Hashable, read: Read, request: WatchRequest) -> AsyncGenerator[bytes]:
        """Return a stream of events as lines of JSON, once there are objects. Raises HeadgateError, ApiError 429."""
        stream = self._stream(path, read, request)
        await anext(stream)
        return stream

    async def _stream(self, path: Hashable, read: Read, request: WatchRequest) -> AsyncGenerator[bytes]:
        """Yield nothing once the objects are computed, then events. The path is taken before: its computation may last long."""
        poll = self._join(path, read, request.user)
        try:
            await poll.first()
            yield b""
            listed = NOTHING if request.version in _ANY_VERSION else self._listed.get((path, request.version))
            async with contextlib.aclosing(_events(poll, request, listed)) as events:
                async for piece in events:
                    if piece:
                        yield piece
        finally:
            self._leave(path, poll, request.user)

    def _join(self, path: Hashable, read: Read, user: str) -> _Poll:
        """Return the poll of a path, with one more watcher. Raises ApiError 429."""
        others = self._of_users.get(user, Counter()).keys() - {path}
        if user and len(others) >= MOST_OF_USER:
            raise ApiError(
                429, f"the user {user} watches {MOST_OF_USER} different paths of the inspect API; close other watches"
            )
        poll = self._polls.get(path)
        if poll is None or poll.failure:
            if poll is None and len(self._polls) >= MOST_PATHS:
                raise ApiError(429, f"{MOST_PATHS} different paths of the inspect API are watched; close other watches")
            poll = self._polls[path] = _Poll(read, self._turns)
        poll.watchers += 1
        self._of_users.setdefault(user, Counter())[path] += 1
        return poll

    def _leave(self, path: Hashable, poll: _Poll, user: str) -> None:
        of_user = self._of_users[user]
        of_user[path] -= 1
        if not of_user[path]:
            del of_user[path]
        if not of_user:
            del self._of_users[user]
        poll.watchers -= 1
        if not poll.watchers:
            poll.task.cancel()
        if self._polls.get(path) is poll and (poll.failure or not poll.watchers):
            del self._polls[path]


async def _events(poll: _Poll, request: WatchRequest, listed: WatchedObjects | None) -> AsyncGenerator[bytes]:
    """Yield the events of a watch whose client has `listed`, None if these objects are not known any more.

    After an ERROR, which a failure, a lost permission or an unknown version causes, there are no more.
    """
    now = asyncio.get_running_loop().time
    end, check = now() + request.seconds, now() + CHECK_S
    held = poll.objects.get()
    if held.version != request.version:
        if listed is None:
            text = f"the resourceVersion {request.version[:100]} is not known any more; list the objects again"
            yield _event("ERROR", ApiError(410, text).status())
            return
        yield poll.events(listed, request)
    if request.initial_end:
        yield _bookmark(request, held, annotations={_END_OF_INITIAL: "true"})
    try:
        while now() < end:
            changed = poll.objects.next_change()
            before, held = held, poll.objects.get()
            yield poll.events(before, request)
            if poll.failure:
                raise poll.failure
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(end, check) - now()):
                    await changed.wait()
            if now() >= check:
                check = now() + CHECK_S
                if request.authorize:
                    await request.authorize()
                if request.bookmarks:
                    yield _bookmark(request, held)
    except HeadgateError as error:
        yield _event("ERROR", (error if isinstance(error, ApiError) else ApiError(503, str(error))).status())


def _bookmark(request: WatchRequest, objects: WatchedObjects, **metadata: Any) -> bytes:
    return _event("BOOKMARK", {**request.kind, "metadata": {"resourceVersion": objects.version, **metadata}})


def _event(type: str, obj: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode({"type": type, "object": obj}) + b"\n"
