"""Requests the configurations of the proxies of installed revisions, after each build of the active control plane."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from headgate.backoff import until_done
from headgate.compiler.report import Compiled
from headgate.errors import HeadgateError, ProxyError
from headgate.latest import Latest, until
from headgate.model.mutual_tls import TlsMode
from headgate.plane.feed import COMPILED, Feed
from headgate.plane.loop import ALWAYS_ACTIVE, Loop, RenderedConfig, Renderings
from headgate.plane.renderings import (
    CONTRACT,
    EXPLAIN_PATH,
    RENDER_PATH,
    ExplainRequest,
    ObjectVersion,
    ReceivedSets,
    RenderRequest,
    RenderResponse,
    contract_of,
)
from headgate.resources.explanations import ExplanationStatus
from headgate.resources.meta import Key
from headgate.resources.request_spec import RequestSpec
from headgate.shared_map import SharedMap, replaced

CallRevision = Callable[[str, str, bytes], Awaitable[bytes]]
"""Sends a request (MessagePack) to a path of a revision, and returns its response. Raises HeadgateError."""
Versions = Mapping[tuple[str, str], SharedMap[Key, str]]


FALLBACK_S = 60.0
"""The time after which the loop renders for a revision that does not answer: its proxies would call endpoints that are gone."""


class OtherContract(ProxyError):
    """A revision has another `CONTRACT`, so its sidecars may not understand what this control plane renders."""


class RevisionFollower:
    """Publishes to the loop what each of the `installed` revisions renders. `problems` has why a revision does not, by its name.

    The loop renders for a revision that has not answered for `fallback_s` seconds, until it answers again. It never does so for one
    that has answered with another `CONTRACT` last.
    """

    def __init__(
        self,
        loop: Loop,
        feed: Feed,
        installed: Latest[frozenset[str]],
        call: CallRevision,
        *,
        fallback_s: float = FALLBACK_S,
    ) -> None:
        self.problems: Latest[Mapping[str, str]] = Latest({})
        self.fallback_s = fallback_s
        self.clock: Callable[[], float] = time.monotonic
        self._lapsed: set[str] = set()
        self._loop = loop
        self._feed = feed
        self._installed = installed
        self._call = call
        self._proxies: dict[str, Mapping[str, RenderedConfig]] = {}

    def begin(self) -> None:
        """Let installed revisions render the configurations of their proxies from now on. Call this before the first build."""
        self._publish()

    async def run(self, active: Latest[bool] = ALWAYS_ACTIVE) -> None:
        """Publish the installed revisions, and follow each of them once this control plane is `active`, until canceled."""
        tasks: dict[str, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            async for installed in self._installed.changes():
                for name in tasks.keys() - installed:
                    tasks.pop(name).cancel()
                    self._proxies.pop(name, None)
                    self._lapsed.discard(name)
                    self._report(name, "")
                self._publish()
                for name in installed - tasks.keys():
                    tasks[name] = group.create_task(self._follow(name, active), name=f"revision {name}")

    async def explain(self, name: str, sent: RequestSpec) -> ExplanationStatus:
        """Explain a request by the rules of a revision. Raises HeadgateError."""
        request = ExplainRequest(modes=_modes(self._loop.compiled.get()), sent=sent)
        answer = await self._call(name, EXPLAIN_PATH, msgspec.msgpack.encode(request))
        try:
            return msgspec.json.decode(answer, type=ExplanationStatus)
        except msgspec.DecodeError as error:
            raise ProxyError(f"its explanation is malformed: {error}") from error

    def _publish(self) -> None:
        proxies = {node_id: rendered for each in self._proxies.values() for node_id, rendered in each.items()}
        self._loop.renderings.replace(Renderings(self._installed.get() - self._lapsed, proxies))

    def _report(self, name: str, problem: str) -> None:
        remaining = {revision: text for revision, text in self.problems.get().items() if revision != name}
        self.problems.set({**remaining, name: problem} if problem else remaining)

    async def _follow(self, name: str, active: Latest[bool]) -> None:
        """Request the configurations of a revision after each build, until canceled."""
        await until(active.get, active)
        sets, last = ReceivedSets(), _NOTHING
        unanswered_since: float | None = None
        is_other = False  # the last answer had another contract

        async def attempt() -> _Request:
            nonlocal is_other, unanswered_since
            # The call itself may last as long as `fallback_s`.
            unanswered_since = self.clock() if unanswered_since is None else unanswered_since
            request = _Request(self._loop.compiled.get(), self._versions())
            answer = _decoded(
                await self._call(name, RENDER_PATH, msgspec.msgpack.encode(request.after(last, sets.held)))
            )
            is_other = False
            configs = sets.take(answer)
            self._lapsed.discard(name)
            self._proxies[name] = {
                node_id: RenderedConfig(config, request.compiled)
                for node_id, config in configs.items()
                if request.compiled
            }
            return request

        async def wait(error: Exception, pause: float) -> None:
            nonlocal is_other, unanswered_since
            if isinstance(error, OtherContract):
                is_other, unanswered_since = True, None
            self._report(name, str(error))
            is_due = (
                unanswered_since is not None and not is_other and self.clock() - unanswered_since >= self.fallback_s
            )
            if is_due != (name in self._lapsed):
                self._lapsed ^= {name}
                self._proxies.pop(name, None)
                self._publish()
            await asyncio.sleep(pause)

        async for compiled in self._loop.compiled.changes():
            if compiled is not None and compiled is not last.compiled:
                last = await until_done(attempt, wait, on=HeadgateError)
                unanswered_since = None
                self._report(name, "")
                self._publish()

    def _versions(self) -> Versions:
        return {(kind.group, kind.kind): self._feed.versions(kind.group, kind.kind) for kind in COMPILED}


class _Request(NamedTuple):
    """A build, and the versions of objects after it; without a build, nothing was requested."""

    compiled: Compiled | None
    versions: Versions

    def after(self, last: "_Request", held: tuple[str, ...]) -> RenderRequest:
        """Return the request to a revision that has answered `last`, and has sent the sets `held`."""
        return RenderRequest(
            contract=CONTRACT,
            changed=tuple(_changes(last.versions, self.versions)) if last.compiled else None,
            modes=_modes(self.compiled),
            held=held,
        )


_NOTHING = _Request(None, {})


def _modes(compiled: Compiled | None) -> Mapping[str, TlsMode]:
    workloads = compiled.mesh.workloads if compiled else ()
    return {workload.name: workload.tls_mode for workload in workloads}


def _decoded(data: bytes) -> RenderResponse:
    try:
        contract = contract_of(data)
        if contract == CONTRACT:
            return msgspec.msgpack.decode(data, type=RenderResponse)
    except msgspec.DecodeError as error:
        raise ProxyError(f"its response is malformed: {error}") from error
    raise OtherContract(
        f"it speaks version {contract} of the protocol between revisions, and this control plane version"
        f" {CONTRACT}: remove the revision, and upgrade headgate"
    )


def _changes(before: Versions, now: Versions) -> Iterator[ObjectVersion]:
    for kind, versions in now.items():
        changed, gone = replaced(before[kind], versions)
        yield from (ObjectVersion(key=key, version=version) for key, version in changed.items())
        yield from (ObjectVersion(key=key, version="") for key in gone)
