"""Taps: streams of live requests for users.

`Taps` makes proxies log requests, limits the rate, and passes each tap the log records of its object.

Proxies log no requests while there is no tap (`envoy.tap`). If a proxy logs more than `PROXY_LIMIT` requests a second,
its share of logged requests is reduced. Each tap shows at most `limit` requests a second. Notices count the omitted
requests.
"""

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import NamedTuple

import grpc

from headgate.envoy.node_ids import pod_of
from headgate.envoy.tap import ALL_REQUESTS
from headgate.errors import TelemetryError
from headgate.model.routing import Workload
from headgate.plane.loop import Loop
from headgate.plane.object_graphs import ObjectGraphs
from headgate.plane.tap.events import event
from headgate.plane.tap.targets import TapProxies, TapTarget, target_of
from headgate.resources.inspect import TapEvent, TapNotice
from headgate.resources.pod_owners import Ref
from headgate.telemetry.reports.tap_records import TapRecord, read_records
from headgate.xds.authentication import StatusError
from headgate.xds.unary_methods import CheckNode

PROXY_LIMIT = 200
"""The number of logged requests per second above which a proxy logs a smaller share of its requests."""
MAX_QUEUED = 1000
"""The maximum number of log records that a tap queues for a slow client."""
TICK_S = 1.0  # seconds between two updates of a tap's target, its limit and the proxies' shares
LIMITED = "more requests than the tap's limit"
SAMPLED = "busy proxies record only a share of their requests"
Step = TapRecord | tuple[int, str]
"""A log record, or the number of omitted requests with the reason."""


class TapQuery(NamedTuple):
    """The object to tap. With `values`, events show values of headers and query parameters.

    `limit` is in events per second.
    """

    kind: str
    namespace: str
    name: str
    values: bool
    limit: int


class Tap:
    """A tap of one user. `steps` yields log records and notices of omitted requests until the stream is closed."""

    def __init__(self, find: Callable[[], Awaitable[TapTarget]], target: TapTarget, limit: int) -> None:
        self.target = target
        self.callers: frozenset[str] = frozenset()
        self._find = find
        self._limit = limit
        self._left = limit
        self._waiting: deque[TapRecord] = deque()
        self._dropped: Counter[str] = Counter()
        self._is_counted = False
        self._woken = asyncio.Event()

    def offer(self, record: TapRecord) -> None:
        """Queue a log record if its request belongs to the target. Above the limit, count the request as omitted."""
        if not self.target.matches(record):
            return
        if record.peer:
            self.callers |= {record.peer}
        if self._left <= 0 or len(self._waiting) >= MAX_QUEUED:
            self._dropped[LIMITED] += 1
            return
        self._left -= 1
        self._waiting.append(record)
        self._woken.set()

    def note_sampled(self, missed: int) -> None:
        """Add `missed` to the number of requests that proxies did not log; the next notice shows this number."""
        self._dropped[SAMPLED] += missed

    async def refresh(self) -> None:
        """Update the target from the current objects, and end the second: its omitted requests are counted."""
        self.target = await self._find()
        self._left, self._is_counted = self._limit, True
        self._woken.set()

    async def steps(self) -> AsyncGenerator[Step]:
        """Yield log records as they arrive, and after each second the number of omitted requests for each reason."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._waiting:
                yield self._waiting.popleft()
            if self._is_counted:
                self._is_counted, dropped, self._dropped = False, self._dropped, Counter()
                for reason, count in dropped.items():
                    yield count, reason


class Taps:
    """All open taps. Selects the proxies that log requests, and passes the log records to the taps."""

    def __init__(self, loop: Loop, object_graphs: ObjectGraphs) -> None:
        self._loop = loop
        self._object_graphs = object_graphs
        self._open: set[Tap] = set()
        self._seen: Counter[str] = Counter()
        self._begun = time.monotonic()

    async def export(self, data: bytes, check_node: CheckNode) -> bytes:
        """Handle a proxy's message with log records (`tap_records.METHOD`).

        Raises StatusError if the message is malformed or its node ID is not authenticated.
        """
        try:
            node, records = read_records(data)
        except TelemetryError as error:
            raise StatusError(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from error
        check_node(node)
        self._seen[node] += len(records)
        for tap in self._open:
            callers = tap.callers
            for record in records:
                tap.offer(record)
            if tap.callers != callers:
                self._record()
        return b""

    async def tap(self, query: TapQuery) -> AsyncGenerator[TapEvent | TapNotice] | None:
        """Return a stream of events about an object; None if the object does not exist."""
        ref = Ref(query.kind, query.namespace, query.name)

        async def find() -> TapTarget:
            return target_of(ref, await self._object_graphs.graph(ref.kind))

        return self._events(find, query) if await self._exists(ref) else None

    async def _exists(self, ref: Ref) -> bool:
        compiled = self._loop.compiled.get()
        seen = compiled.report.seen if compiled else {}
        if any((key.kind, key.namespace, key.name) == (ref.kind, ref.namespace, ref.name) for key in seen):
            return True
        return (await self._object_graphs.graph(ref.kind)).find(ref) is not None

    async def _events(
        self, find: Callable[[], Awaitable[TapTarget]], query: TapQuery
    ) -> AsyncGenerator[TapEvent | TapNotice]:
        async with self._tapping(find, query.limit) as tap, contextlib.aclosing(tap.steps()) as steps:
            async for step in steps:
                if isinstance(step, TapRecord):
                    yield event(step, values=query.values, workload=self._workload(step))
                else:
                    yield TapNotice(dropped=step[0], message=step[1])

    def _workload(self, record: TapRecord) -> Workload | None:
        """Return the workload of the proxy that recorded a request which no access rule allows; else None."""
        compiled = self._loop.compiled.get() if record.denied or record.would_deny else None
        name = pod_of(record.node)
        return (
            next((workload for workload in compiled.mesh.workloads if workload.name == name), None)
            if compiled
            else None
        )

    @contextlib.asynccontextmanager
    async def _tapping(self, find: Callable[[], Awaitable[TapTarget]], limit: int) -> AsyncGenerator[Tap]:
        """Open a tap for the duration of the context; `find` returns the current target."""
        tap = Tap(find, await find(), limit)
        self._open.add(tap)
        self._record()
        ticking = asyncio.create_task(self._tick(tap), name="tap")
        try:
            yield tap
        finally:
            ticking.cancel()
            self._open.discard(tap)
            self._record()
            await asyncio.gather(ticking, return_exceptions=True)

    async def _tick(self, tap: Tap) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            await tap.refresh()
            self._adjust()
            self._record()

    def _adjust(self) -> None:
        """Set the share of requests that each proxy logs, based on the proxy's log records in the last second.

        Each tap calls this every second, but only the first call in a second has an effect.
        """
        now = time.monotonic()
        if now < self._begun + TICK_S * 0.9:
            return
        seen, self._seen, self._begun = self._seen, Counter(), now
        shares = dict(self._loop.taps.get())
        for node, share in shares.items():
            shares[node] = next_share(share, seen[node])
            if missed := missed_requests(share, seen[node]):
                for tap in self._open:
                    tap.note_sampled(missed)
        self._loop.taps.set(shares)

    def _record(self) -> None:
        """Update the set of proxies that log requests: the proxies that an open tap needs."""
        before = self._loop.taps.get()
        logged = {node: before.get(node, ALL_REQUESTS) for node in self._wanted()}
        if logged != before:
            self._loop.taps.set(logged)

    def _wanted(self) -> Iterator[str]:
        compiled = self._loop.compiled.get()
        if compiled is None:
            return
        for tap in self._open:
            yield from tap.target.proxies(TapProxies(compiled.mesh, self._loop.gateways, tap.callers))


def next_share(share: int, seen: int) -> int:
    """Return the share of requests (millionths) that a proxy logs next, after `seen` log records in the last second."""
    if seen > PROXY_LIMIT:
        return max(share * PROXY_LIMIT // seen, 1)
    return min(share * 2, ALL_REQUESTS) if seen < PROXY_LIMIT // 2 else share


def missed_requests(share: int, seen: int) -> int:
    """Estimate how many requests a proxy did not log, from the number of log records and its share (millionths)."""
    return seen * (ALL_REQUESTS - share) // share if share else 0
