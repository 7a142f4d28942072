"""The rollout controller: moves the weights of Canaries step by step, as far as the evidence allows (R108, R109, D19).

It looks at the counts of each rollout once a second. A decision is written to the Canary's status first, and then to its
split. The counts alone are written every few seconds: after a crash, those since the last write are missing, and no
request counts twice.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Any, Literal, TypeAlias

from msgspec import structs

from headgate.compiler.snapshot import Snapshot
from headgate.errors import Conflict, NotFound, StoreError
from headgate.latest import Latest, until
from headgate.objects.ports import Ports, Relist, follow
from headgate.plane.control_plane import ControlPlane
from headgate.resources.decode import check_stored
from headgate.resources.kind import Kind
from headgate.resources.mesh.canary.types import Canary
from headgate.resources.meta import Key, Object, Value, generation_of, part, service_name, status_of
from headgate.resources.registry import CANARY, ROUTE_GROUP, TRAFFIC_SPLIT, key_of
from headgate.rollout.criteria import RecentLatencies
from headgate.rollout.messages import message
from headgate.rollout.owned_split import (
    MANAGER,
    MATCH_SUFFIX,
    edit_of,
    has,
    has_more,
    is_applied,
    is_owned,
    replaced,
    wanted_objects,
)
from headgate.rollout.plan import RolloutPlan
from headgate.rollout.ready_endpoints import canary_is_ready, missing_services
from headgate.rollout.root_services import RootServices
from headgate.rollout.state import REPORT_S, Facts, Pause, State, state_in
from headgate.rollout.status import Problem, call_body, canary_status, refused_status, unreadable_status
from headgate.rollout.transitions import following
from headgate.rollout.webhooks import AGAIN_S, Webhooks, occasion_of, when_called
from headgate.telemetry.counters.counts import Counts, sum_of
from headgate.telemetry.increments import Increments

PAUSE_S = 0.1  # Seconds between two looks at least. It limits the writes while the known objects are stale.
LOOK_S = 1.0  # Seconds between two looks at the counts.
WRITE_S = 5.0  # Seconds between two writes of a status in which only counts differ.
MOST_WRITES_PER_S = 20.0  # Writes per second of statuses in which only counts differ. Many Canaries share them.
_StatusWith: TypeAlias = Callable[[Object, Problem, float], Mapping[str, Any]]
GIVE_UP_S = 3600.0  # Seconds after the end of a rollout in which webhooks are called until they answer.

log = logging.getLogger(__name__)


class Rollout(Value, frozen=True, kw_only=True):
    """What the controller remembers about a Canary between two looks.

    `uid` is that of the Canary. `root` is the `namespace/name` of the called Service, and `copying` that of the owned split,
    if the analysis begins with copies by it. `stored` is the last state in the object's status, and `written` the time of
    its last write. `latencies` has those of the reference's last requests. `is_calling` is True while
    webhooks do not know the end of the rollout yet. `has_root` is False while the root Service does not exist and can be
    created. `owns_root` is True if the Canary has created it.
    """

    uid: str
    root: str
    copying: str = ""
    state: State
    stored: State
    latencies: RecentLatencies = RecentLatencies()
    written: float = 0.0
    is_calling: bool = False
    has_root: bool = False
    owns_root: bool = False

    @property
    def is_waiting(self) -> bool:
        """Whether the next look may differ although no object changes."""
        return not (self.has_root and self.state.since) or self.state.is_counting or self.is_calling


class RolloutController:
    """Reconciles all Canaries.

    `increments` has the new requests since the last look, and `domain` is the DNS domain of Services. `clock` is in
    seconds since the epoch.
    """

    def __init__(
        self,
        ports: Ports,
        increments: Increments,
        snapshot: Latest[Snapshot | None],
        domain: str,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ports = ports
        self._increments = increments
        self._snapshot = snapshot
        self._domain = domain
        self._clock = clock
        self._canaries: dict[Key, Object] = {}
        self._owned: dict[Kind, dict[Key, Object]] = {TRAFFIC_SPLIT: {}, ROUTE_GROUP: {}}
        self._rollouts: dict[Key, Rollout] = {}
        self._plans: dict[Key, tuple[Object, RolloutPlan | None]] = {}
        self._touched: set[Key] = set()
        self._wake = asyncio.Event()
        self._webhooks = Webhooks(snapshot, clock)
        self._roots = RootServices(ports.objects, snapshot, domain)

    @classmethod
    def of(cls, ports: Ports, plane: ControlPlane) -> "RolloutController":
        """Return the rollout controller of a control plane."""
        live = plane.live_state
        return cls(ports, plane.traffic.increments, live.feed.snapshot, live.loop.settings.domain)

    async def run(self) -> None:
        """Reconcile after each change, and each running rollout once a second, until canceled. Wait until active."""
        await until(self._ports.active.get, self._ports.active)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(CANARY, self._canaries), name="Canaries")
            for kind, objects in self._owned.items():
                tasks.create_task(self._follow(kind, objects), name=f"{kind.kind} objects of Canaries")
            tasks.create_task(self._watch_roots(), name="root Services of Canaries")
            try:
                while True:
                    await self._look()
                    await asyncio.sleep(PAUSE_S)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_S if self._touched or any(self._waiting()) else None):
                            await self._wake.wait()
            finally:
                await self._webhooks.close()

    async def _look(self) -> None:
        """Reconcile the Canaries that have changed and those that are waiting."""
        self._wake.clear()
        touched, self._touched = self._touched, set()
        for key in touched - self._canaries.keys():
            self._forget(key)
        winners = self._winners()
        for key in sorted({*touched, *self._waiting()} & self._canaries.keys()):
            await self._attempt(key, winners)
            await asyncio.sleep(0)  # 1,000 Canaries take 0.1 s and more

    def _forget(self, key: Key) -> None:
        """Drop what is known about a Canary. Only looks do so, because a deletion may arrive while a look writes."""
        self._plans.pop(key, None)
        self._webhooks.forget(key)
        if gone := self._rollouts.pop(key, None):
            self._increments.drop(gone.root)
            self._increments.drop(gone.copying, copies=True)

    def _waiting(self) -> Iterator[Key]:
        return (key for key, rollout in self._rollouts.items() if rollout.is_waiting)

    async def _follow(self, kind: Kind, objects: dict[Key, Object]) -> None:
        async for step in follow(self._ports.objects, kind.group, kind.kind):
            if isinstance(step, Relist):
                listed = {key_of(obj): obj for obj in step.items}
                for key in {*objects, *listed}:
                    self._take(objects, key, listed.get(key))
            else:
                self._take(objects, step.key, None if step.type == "DELETED" else step.object)

    async def _watch_roots(self) -> None:
        """Touch each Canary whose own root Service was deleted. Users may replace theirs by deleting it first."""
        while True:
            changed = self._snapshot.next_change()
            rollouts = self._rollouts.items()
            if gone := {key for key, run in rollouts if run.owns_root and not self._roots.exists(key, run.root)}:
                self._touched |= gone
                self._wake.set()
            await changed.wait()

    def _take(self, objects: dict[Key, Object], key: Key, obj: Object | None) -> None:
        """Replace an object, or remove it if `obj` is None. A new, changed or deleted Canary touches all Canaries."""
        before = objects.pop(key, None)
        if obj is not None:
            objects[key] = obj
        own = CANARY.key(key.namespace, key.name)
        self._touched |= {own, CANARY.key(key.namespace, key.name.removesuffix(MATCH_SUFFIX))}
        if objects is self._canaries and (before is None or obj is None or generation_of(before) != generation_of(obj)):
            self._touched |= self._canaries.keys()
        self._wake.set()

    def _winners(self) -> Mapping[str, Key]:
        """Return the oldest Canary of each root Service."""
        winners: dict[str, Key] = {}
        for key, obj in sorted(
            self._canaries.items(), key=lambda entry: (str(entry[1]["metadata"].get("creationTimestamp", "")), entry[0])
        ):
            winners.setdefault(self._root(key, obj), key)
        return winners

    def _root(self, key: Key, obj: Object) -> str:
        """Return the `namespace/name` of the called Service; empty for an object without one, which is invalid."""
        return service_name(str(part(obj, "spec").get("service", "")), key.namespace, self._domain)

    async def _attempt(self, key: Key, winners: Mapping[str, Key]) -> None:
        """Reconcile a Canary. After a failure the next look tries again with the same state."""
        obj = self._canaries.get(key)
        if obj is None or self._root(key, obj) not in winners:
            self._touched.add(key)  # it has changed since the look began
            return
        try:
            plan = self._plan(key, obj)
            if obj["metadata"].get("deletionTimestamp"):
                return
            if plan is None:
                await self._report(
                    obj, unreadable_status, Problem("Invalid", "; ".join(map(str, check_stored(obj).causes)))
                )
            elif problem := self._problem(key, obj, winners):
                await self._refuse(key, obj, problem)
            else:
                await self._reconcile(key, obj, plan)
        except (Conflict, NotFound):
            self._touched.add(key)  # the object has changed, and the watch is behind
        except StoreError as error:
            log.warning("%s: the rollout can't be written, next attempt in %.0f s: %s", key, LOOK_S, error)
            self._touched.add(key)
        except Exception:  # an error about one Canary must not stop other Canaries
            log.exception("%s: can't reconcile the rollout", key)

    def _plan(self, key: Key, obj: Object) -> RolloutPlan | None:
        """Return the plan of a Canary; None if it is invalid. An object that has not changed keeps its plan."""
        cached = self._plans.get(key)
        if cached is None or cached[0] is not obj:
            canary = check_stored(obj).value
            cached = self._plans[key] = obj, RolloutPlan(canary) if isinstance(canary, Canary) else None
        return cached[1]

    def _problem(self, key: Key, obj: Object, winners: Mapping[str, Key]) -> Problem | None:
        """Return why a Canary may not have a split: another one has the root, or the split belongs to a user."""
        winner = winners[self._root(key, obj)]
        if winner != key:
            what = f"Service {obj['spec']['service']} already belongs to {winner}, which is older; delete one of both"
            return Problem("Conflicted", f"spec.service: {what}")
        has_match = bool((obj["spec"].get("analysis") or {}).get("matches"))
        for name, stored in self._stored(key).items():
            if not is_owned(stored, obj) and (has_match or name == _split_key(key)):
                what = f"{name} exists and does not belong to the Canary"
                return Problem("SplitExists", f"metadata.name: {what}; delete it, or give the Canary another name")
        return None

    def _stored(self, key: Key) -> Mapping[Key, Object]:
        """Return the stored objects with the names of those that a Canary may own."""
        match = f"{key.name}{MATCH_SUFFIX}"
        keys = (_split_key(key), TRAFFIC_SPLIT.key(key.namespace, match), ROUTE_GROUP.key(key.namespace, match))
        return {name: stored for objects in self._owned.values() for name in keys if (stored := objects.get(name))}

    async def _refuse(self, key: Key, obj: Object, problem: Problem) -> None:
        """Write why a Canary does nothing, and delete the objects that it owns."""
        await self._delete(obj, self._stored(key))
        self._forget(key)
        await self._report(obj, refused_status, problem)

    async def _report(self, obj: Object, status_with: _StatusWith, problem: Problem) -> None:
        """Write the status of a Canary with a problem, and an Event, unless it has this status."""
        status = status_with(obj, problem, self._clock())
        if status != obj.get("status"):
            await self._ports.objects.update({**obj, "status": status}, subresource="status")
            await self._ports.events.record(obj, type="Warning", reason=problem.reason, message=problem.message)

    async def _reconcile(self, key: Key, obj: Object, plan: RolloutPlan) -> None:
        rollout, stored = self._known(key, obj, plan), self._stored(key)
        facts = self._facts(key, obj, stored, plan, rollout)
        state = following(plan, rollout.state, facts)
        latency = facts.counts.get(plan.reference(state), Counts()).latency
        latencies = rollout.latencies.after(latency, plan.analysis)
        self._rollouts[key] = structs.replace(rollout, state=state, latencies=latencies)
        await self._write_status(key, obj, plan)
        if state.pause is not Pause.EDITED:
            await self._apply(obj, plan, state, stored)
        await self._create_root(key, obj, plan.canary)
        self._call_webhooks(key, plan)

    async def _apply(self, obj: Object, plan: RolloutPlan, state: State, stored: Mapping[Key, Object]) -> None:
        """Write the objects that a state wants, and delete those of an earlier step."""
        made = {key_of(new): new for new in wanted_objects(obj, plan.canary, plan.weights(state), plan.kind(state))}
        split = _split_key(key_of(obj))
        for key, content in made.items():
            current = stored.get(key)
            if current is not None and (has_more(current, content) or (key == split and edit_of(current))):
                # To apply would leave annotations, backends and matches that another writer has added.
                await self._ports.objects.update(replaced(current, content))
            elif not has(current, content):
                await self._ports.objects.apply(content, manager=MANAGER)
        await self._delete(obj, {key: content for key, content in stored.items() if key not in made})

    async def _delete(self, obj: Object, stored: Mapping[Key, Object]) -> None:
        """Delete those of the objects that a Canary owns."""
        for key, content in stored.items():
            if is_owned(content, obj):
                with contextlib.suppress(NotFound):
                    await self._ports.objects.delete(key, uid=content["metadata"]["uid"])

    def _known(self, key: Key, obj: Object, plan: RolloutPlan) -> Rollout:
        """Return what is known about a Canary; at first, the state in its status. Count the requests to its root."""
        root = self._root(key, obj)
        copying = f"{key.namespace}/{key.name}" if plan.analysis and plan.analysis.mirror else ""
        rollout, uid = self._rollouts.get(key), obj["metadata"]["uid"]
        if rollout is None or rollout.uid != uid:
            self._forget(key)
            stored = state_in(obj)
            rollout = Rollout(uid=uid, root=root, state=stored, stored=stored)
        elif (rollout.root, rollout.copying) != (root, copying):
            self._increments.drop(rollout.root)
            self._increments.drop(rollout.copying, copies=True)
        self._increments.follow(root)
        if copying:
            self._increments.follow(copying, copies=True)
        return structs.replace(rollout, root=root, copying=copying)

    def _facts(self, key: Key, obj: Object, stored: Mapping[Key, Object], plan: RolloutPlan, rollout: Rollout) -> Facts:
        split, now = stored.get(_split_key(key)), self._clock()
        taken, copies = self._increments.take(rollout.root), self._increments.take(rollout.copying, copies=True)
        if now < rollout.state.since + REPORT_S:
            taken = copies = {}
        services = [backend.service for backend in plan.spec.backends]
        written = {service_name(service, key.namespace, self._domain): service for service in services}
        made = wanted_objects(obj, plan.canary, plan.weights(rollout.state), plan.kind(rollout.state))
        return Facts(
            now=now,
            is_active=all(is_applied(stored.get(key_of(content)), content) for content in made),
            edit=edit_of(split) if split else None,
            command=plan.spec.command,
            counts={written[name]: counts for name, counts in taken.items() if name in written},
            copies=sum_of(copies.values()),
            latency=rollout.latencies.histogram,
            ready=canary_is_ready(plan, key.namespace, self._snapshot.get(), self._domain),
            missing=missing_services(plan, key.namespace, self._snapshot.get(), self._domain),
            answers=self._webhooks.answers(key, occasion_of(rollout.state)),
        )

    def _call_webhooks(self, key: Key, plan: RolloutPlan) -> None:
        """Call the webhooks that the state of a rollout needs, and remember whether some do not know its end yet."""
        rollout = self._rollouts[key]
        state, analysis = rollout.state, plan.analysis
        if analysis is None:
            return
        when, every_s = when_called(state), analysis.interval_seconds if state.is_counting else AGAIN_S
        is_late = state.phase.is_over and self._clock() > (state.since or inf) + GIVE_UP_S
        hooks = [
            hook for hook in analysis.webhooks if hook.when is when and hook.name not in state.informed and not is_late
        ]
        body = call_body(key, plan, state)
        for hook in hooks:
            self._webhooks.call(key, hook, occasion_of(state), body, every_s)
        is_calling = state.phase.is_over and bool(hooks)
        self._rollouts[key] = structs.replace(rollout, is_calling=is_calling)

    async def _write_status(self, key: Key, obj: Object, plan: RolloutPlan) -> None:
        """Write the status: at once after a transition, and every few seconds when only counts differ."""
        rollout, now = self._rollouts[key], self._clock()
        moved = rollout.state.has_moved(rollout.stored)
        is_stale = status_of(obj).get("observedGeneration") != generation_of(obj)
        due = rollout.written + max(WRITE_S, len(self._rollouts) / MOST_WRITES_PER_S)
        state = rollout.state
        is_other = state != rollout.stored or state.report_intervals(now) != state.report_intervals(rollout.written)
        if not (moved or is_stale or (is_other and now >= due)):
            return
        status = canary_status(obj, plan, rollout.state, now)
        await self._ports.objects.update({**obj, "status": status}, subresource="status")
        self._rollouts[key] = structs.replace(rollout, stored=rollout.state, written=now)
        if moved:
            await self._announce(obj, plan, rollout, now)

    async def _announce(self, obj: Object, plan: RolloutPlan, rollout: Rollout, now: float) -> None:
        """Record an Event about a transition that users wait for."""
        before, state = rollout.stored, rollout.state
        if before.milestone == state.milestone:
            return
        text = message(plan, state, now)
        kind: Literal["Normal", "Warning"] = "Warning" if state.needs_attention else "Normal"
        await self._ports.events.record(obj, type=kind, reason=state.phase.value, message=text)

    async def _create_root(self, key: Key, obj: Object, canary: Canary) -> None:
        rollout, roots = self._rollouts[key], self._roots
        exists, is_owned = roots.exists(key, rollout.root), roots.is_owned(obj, rollout.root)
        self._rollouts[key] = structs.replace(rollout, has_root=exists, owns_root=is_owned)
        await roots.create(key, obj, canary, rollout.root)


def _split_key(canary: Key) -> Key:
    return TRAFFIC_SPLIT.key(canary.namespace, canary.name)
