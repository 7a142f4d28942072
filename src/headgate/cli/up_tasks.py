"""The tasks of `headgate up`: apply the manifests, and report files, pods, changes and the gateway's Envoy."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headgate.cli.reporter import Reporter
from headgate.compiler.report import Compiled, Finding, differing
from headgate.latest import Latest, until, wait_for_change
from headgate.manifests import STANDARD_INPUT, without_effect
from headgate.manifests.apply import ApplyResult, apply, apply_objects
from headgate.manifests.drift import drift
from headgate.manifests.files import FileProblem, Manifest, Manifests, read, read_texts, watch
from headgate.model.authorities import DEFAULT_NAMESPACE
from headgate.objects.ports import follow_all
from headgate.plane.status.recoveries import missing_object, recovered
from headgate.plane.workload_readiness import ready_pods, unstartable
from headgate.resources.meta import Key, Object
from headgate.resources.pod_owners import controller, ref_of
from headgate.resources.pod_templates import REPLICATED_KINDS, available_pods, needed_pods
from headgate.resources.registry import POD
from headgate.standalone.app import Running
from headgate.standalone.gateway import exits
from headgate.standalone.pods.troubles import PodTroubles

READY_S = 30.0  # The longest wait for workloads at the start, in seconds.
QUIET_S = 3.0  # Seconds until the start prints which workloads it waits for.


class UpTasks:
    """Applies files and directories to a running headgate and reports changes.

    Call `apply_at_start` first. `report_ready` returns, and each other public method runs until canceled.
    """

    def __init__(self, paths: Sequence[Path], current: Running, reporter: Reporter) -> None:
        self._paths = [path for path in paths if path != STANDARD_INPUT]
        self._given, self._unreadable = read_texts([path for path in paths if path == STANDARD_INPUT])
        self._current = current
        self._live_state = current.live_state
        self._reporter = reporter
        self._troubles = PodTroubles(self._current.store, current.runtime.logs)
        self._reading = Manifests(())
        self._problems: Sequence[FileProblem] = ()
        self._rejected: Latest[tuple[Manifest, ...]] = Latest(())

    async def apply_at_start(self) -> None:
        """Apply the files."""
        store = self._current.store
        self._reading = await asyncio.to_thread(read, self._paths, DEFAULT_NAMESPACE, store.kinds, self._given)
        if differences := await drift(store, self._reading):
            self._reporter.drift(differences)
        applied = await apply(store, self._reading)
        self._problems = (*self._reading.problems, *applied.problems)
        self._rejected.set(applied.rejected)
        if self._problems:
            self._reporter.problems(self._problems)
        self._warn(Manifests(()))

    async def report_ready(self, dashboard_url: str) -> None:
        """Report that headgate is ready: the objects are active, and each workload is available or can't start.

        The wait for workloads ends after READY_S.
        """
        missing = await self._until_available()
        await self._live_state.wait_until_active()
        self._reporter.ready(self._current, missing, dashboard_url)

    async def _until_available(self) -> Sequence[str]:
        """Wait until no workload is starting; return a description of each unavailable one, after READY_S at the latest."""
        failures, workloads = self._current.runtime.failures, Latest(None)

        async def follow() -> None:
            async for _ in follow_all(self._current.store, (*REPLICATED_KINDS, (POD.group, POD.kind))):
                workloads.replace(None)

        following = asyncio.create_task(follow(), name="workloads of the start")
        try:
            await self._wait_for_workloads(failures, workloads)
        finally:
            following.cancel()
        return await self._unavailable()

    async def _wait_for_workloads(self, *changing: Latest[Any]) -> None:
        """Wait until no workload is starting, for READY_S at the longest; look again after each change to `changing`."""
        for seconds in (QUIET_S, READY_S - QUIET_S):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await until(self._current.runtime.corrected.get, self._current.runtime.corrected)
                    while await self._unavailable(only_startable=True):
                        await wait_for_change(*changing)
                    return
            if seconds == QUIET_S:
                self._reporter.waiting(await self._unavailable(only_startable=True))

    async def _unavailable(self, *, only_startable: bool = False) -> Sequence[str]:
        """Describe each workload that is not available, optionally only those whose pods can start."""
        workloads = [obj for kind in REPLICATED_KINDS for obj in (await self._current.store.list(*kind)).items]
        pods = (await self._current.store.list("", "Pod")).items
        stuck = unstartable(pods if only_startable else (), self._current.runtime.failures.get())
        ready = ready_pods(pods, workloads)
        return [
            text
            for workload in workloads
            if not controller(workload)
            and (text := _missing_replicas(workload, ready[ref_of(workload)]))
            and ref_of(workload) not in stuck
        ]

    async def watch_files(self) -> None:
        """Apply each edit of the files and directories."""
        if not self._paths:
            return
        async for current in watch(self._paths, lambda: self._current.store.kinds, self._given):
            if current == self._reading:
                continue
            before, self._reading = self._reading, current
            self._report(await apply(self._current.store, current))
            self._warn(before)

    async def retry_rejected(self) -> None:
        """Apply the rejected objects again after each change to the stored objects, which may have removed the reason."""
        seen = self._live_state.feed.seen
        while True:
            await until(lambda: bool(self._rejected.get()), self._rejected)
            await wait_for_change(seen, self._rejected)
            if rejected := self._rejected.get():
                applied = await apply_objects(self._current.store, rejected)
                if applied.problems != self._problems_of_objects():
                    self._report(applied)

    def _problems_of_objects(self) -> Sequence[FileProblem]:
        return tuple(self._problems[len(self._reading.problems) :])

    def _report(self, applied: ApplyResult) -> None:
        """Report the changed objects, and the current problems if there are or were any."""
        self._reporter.applied(applied)
        problems = (*self._reading.problems, *applied.problems)
        if problems or self._problems:
            self._reporter.problems(problems)
        self._problems = problems
        self._rejected.set(applied.rejected)

    def _warn(self, before: Manifests) -> None:
        """Report the current warnings about the files, and what is not carried out of them, unless they were so `before`."""
        if new := [warning for warning in self._reading.warnings if warning not in before.warnings]:
            self._reporter.warnings(new)
        own_networks = self._current.own_networks
        reported = set(without_effect.lines(before, own_networks=own_networks))
        current = without_effect.lines(self._reading, own_networks=own_networks)
        if lines := [line for line in current if line not in reported]:
            self._reporter.without_effect(lines)

    async def report_pods(self) -> None:
        """Report each pod that can't start, crashes or stays unready."""

        async def report() -> None:
            # Entries stay after a recovery, because a crashing pod without ports is ready for a moment after each restart.
            reported: set[tuple[Key, str, str]] = set()
            async for troubles in self._troubles.current.changes():
                current = {(trouble.pod, trouble.reason, trouble.message): trouble for trouble in troubles}
                self._reporter.pods([current[name] for name in current if name not in reported], current=troubles)
                reported.update(current)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._troubles.run(), name="troubles of pods")
            tasks.create_task(report(), name="reports of pods")

    async def report_envoy(self) -> None:
        """Report each exit of the gateway's Envoy, and that it runs again."""
        async for change in exits(self._current.envoy.state):
            report = self._reporter.envoy_restarted if change.runs else self._reporter.envoy_error
            report(change.message)

    async def report_changes(self) -> None:
        """Report new and resolved findings on objects and on certificates and programs of proxies, when each change is active."""
        live_state = self._live_state
        builds, faults = live_state.loop.compiled, live_state.loop.credentials.faults
        reported = live_state.findings_of()
        known_faults: Mapping[str, str] = faults.get()
        known_of_host = [cell.get() for cell in live_state.of_host]
        compiled: Compiled | None = None
        while True:
            of_host = zip(live_state.of_host, known_of_host, strict=True)
            await _wait_for_change((builds, compiled), (faults, known_faults), *of_host)
            before, compiled, known_faults = compiled, builds.get(), faults.get()
            known_of_host = [cell.get() for cell in live_state.of_host]
            if compiled is None:
                continue
            revision = self._current.store.revision
            await live_state.wait_until_active()
            now = live_state.findings_of()
            changed = differing(reported, now)
            if compiled is not before or changed:
                old, new = (
                    frozenset(finding for key in changed for finding in some.get(key, ())) for some in (reported, now)
                )
                resolved = [
                    (finding, _recovery(finding, new, before, compiled)) for finding in sorted(old - new, key=str)
                ]
                self._reporter.change(revision, new=sorted(new - old, key=str), resolved=resolved)
            reported = now


def _recovery(gone: Finding, now: frozenset[Finding], before: Compiled | None, after: Compiled) -> str:
    seen = before.report.seen if before else {}
    if gone.about in seen and gone.about not in after.report.seen:
        return ""  # the object was deleted
    missing = missing_object(gone)
    return recovered(
        gone,
        now,
        edited=seen.get(gone.about) != after.report.seen.get(gone.about),
        still_missing=missing is not None and missing not in after.report.seen,
    )


def _missing_replicas(workload: Object, ready: int) -> str:
    """Return a text with the available and needed pods of a workload; empty when all are available.

    No more pods than the `ready` ones are available: the status may be that of an earlier run.
    """
    metadata, needed, available = workload["metadata"], needed_pods(workload), min(available_pods(workload), ready)
    observed = (workload.get("status") or {}).get("observedGeneration", 0) >= metadata["generation"]
    if observed and available >= needed:
        return ""
    return f"{workload['kind']} {metadata['namespace']}/{metadata['name']} ({available} of {needed} replicas available)"


async def _wait_for_change(*pairs: tuple[Latest[Any], object]) -> None:
    """Wait until the value of at least one `Latest` differs from the known value that is paired with it."""
    await until(lambda: any(latest.get() is not value for latest, value in pairs), *(latest for latest, _ in pairs))
