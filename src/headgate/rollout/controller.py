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
from typing import Literal

from msgspec import structs

from headgate.compiler.snapshot import Snapshot
from headgate.errors import AlreadyExists, Conflict, NotFound, StoreError
from headgate.latest import Latest, until
from headgate.objects.ports import Ports, Relist, follow
from headgate.plane.control_plane import ControlPlane
from headgate.plane.status.conditions import status_of
from headgate.resources.canaries import ROLLOUT_COMMAND, Canary
from headgate.resources.decode import check_stored
from headgate.resources.meta import Key, Object, Value, service_name
from headgate.resources.registry import CANARY, TRAFFIC_SPLIT, Kind, key_of
from headgate.rollout.owned_split import MANAGER, edit_of, has, is_in_force, is_owned, root_service, wanted_split
from headgate.rollout.state import Facts, Pause, Phase, Plan, State, following
from headgate.rollout.status import Problem, call_body, canary_status, invalid_status, state_in
from headgate.rollout.webhooks import AGAIN_S, Occasion, Webhooks
from headgate.telemetry.counters.counts import Counts
from headgate.telemetry.counters.histogram import Buckets
from headgate.telemetry.increments import Increments

LOOK_S = 1.0  # Seconds between two looks at the counts.
WRITE_S = 5.0  # Seconds between two writes of a status in which only counts differ.
GIVE_UP_S = 3600.0  # Seconds after the end of a rollout in which webhooks are called until they answer.
_WARNINGS = frozenset({Phase.ROLLED_BACK, Phase.PAUSED})

log = logging.getLogger(__name__)


class Rollout(Value, frozen=True, kw_only=True):
    """What the controller remembers about a Canary between two looks.

    `root` is the `namespace/name` of the called Service, and `stored` the last state in the object's status. `latency` is
    the histogram of the reference since this process began. `written` is the time of the last write of the status, and
    `is_calling` is True while webhooks do not know the end of the rollout yet.
    """

    root: str
    state: State
    stored: State
    latency: Buckets = 0
    written: float = 0.0
    is_calling: bool = False

    @property
    def is_waiting(self) -> bool:
        """Whether the next look may differ although no object changes."""
        return not self.state.since or self.state.is_counting or self.is_calling


class RolloutController:
    """Reconciles all Canaries.

    `increments` are the new requests since the last look, and `domain` is the DNS domain of Services. `clock` is in
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
        self._splits: dict[Key, Object] = {}
        self._rollouts: dict[Key, Rollout] = {}
        self._touched: set[Key] = set()
        self._wake = asyncio.Event()
        self._webhooks = Webhooks(snapshot, clock)

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
            tasks.create_task(self._follow(TRAFFIC_SPLIT, self._splits), name="splits of Canaries")
            try:
                while True:
                    await self._look()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_S if any(self._waiting()) else None):
                            await self._wake.wait()
            finally:
                await self._webhooks.close()

    async def _look(self) -> None:
        """Reconcile the Canaries that have changed and those that are waiting."""
        self._wake.clear()
        touched, self._touched = self._touched, set()
        winners = self._winners()
        for key in sorted({*touched, *self._waiting()} & self._canaries.keys()):
            await self._attempt(key, winners)

    def _waiting(self) -> Iterator[Key]:
        return (key for key, rollout in self._rollouts.items() if rollout.is_waiting)

    async def _follow(self, kind: Kind, known: dict[Key, Object]) -> None:
        async for step in follow(self._ports.objects, kind.group, kind.kind):
            if isinstance(step, Relist):
                found = {key_of(obj): obj for obj in step.items}
                for key in {*known, *found}:
                    self._take(known, key, found.get(key))
            else:
                self._take(known, step.key, None if step.type == "DELETED" else step.object)

    def _take(self, known: dict[Key, Object], key: Key, obj: Object | None) -> None:
        """Replace an object, or remove it if `obj` is None. A new, changed or deleted Canary touches all Canaries."""
        before = known.pop(key, None)
        if obj is not None:
            known[key] = obj
        own = CANARY.key(key.namespace, key.name)
        self._touched.add(own)
        if known is self._canaries and (before is None or obj is None or _generation(before) != _generation(obj)):
            self._touched |= self._canaries.keys()
        if own not in self._canaries and (gone := self._rollouts.pop(own, None)):
            self._increments.drop(gone.root)
            self._webhooks.forget(own)
        self._wake.set()

    def _winners(self) -> Mapping[str, Key]:
        """Return the oldest Canary of each root Service."""
        found: dict[str, Key] = {}
        for key, obj in sorted(self._canaries.items(), key=lambda item: (_created(item[1]), item[0])):
            found.setdefault(self._root(key, obj), key)
        return found

    def _root(self, key: Key, obj: Object) -> str:
        return service_name(str(obj["spec"]["service"]), key.namespace, self._domain)

    async def _attempt(self, key: Key, winners: Mapping[str, Key]) -> None:
        """Reconcile a Canary. After a failure the next look tries again with the same state."""
        obj = self._canaries[key]
        canary = check_stored(obj).value
        if not isinstance(canary, Canary) or obj["metadata"].get("deletionTimestamp"):
            return  # admission names the mistakes of an invalid object
        try:
            if problem := self._problem(key, obj, winners):
                await self._refuse(key, obj, problem)
            else:
                await self._reconcile(key, obj, Plan(canary))
        except (Conflict, NotFound):
            self._touched.add(key)  # the object has changed, and the watch is behind
        except StoreError as error:
            log.warning("%s: the rollout can't be written, next attempt in %.0f s: %s", key, LOOK_S, error)
            self._touched.add(key)

    def _problem(self, key: Key, obj: Object, winners: Mapping[str, Key]) -> Problem | None:
        """Return why a Canary may not have a split: another one has the root, or the split belongs to a user."""
        winner = winners[self._root(key, obj)]
        if winner != key:
            what = f"Service {obj['spec']['service']} already belongs to {winner}, which is older; delete one of both"
            return Problem("Conflicted", f"spec.service: {what}")
        split = self._splits.get(_split_key(key))
        if split is not None and not is_owned(split, obj):
            what = f"TrafficSplit {key.namespace}/{key.name} exists and does not belong to the Canary"
            return Problem("SplitExists", f"metadata.name: {what}; delete it, or give the Canary another name")
        return None

    async def _refuse(self, key: Key, obj: Object, problem: Problem) -> None:
        """Write why a Canary does nothing, and delete a split that it owns."""
        split = self._splits.get(_split_key(key))
        if split is not None and is_owned(split, obj):
            await self._ports.objects.delete(_split_key(key), uid=split["metadata"]["uid"])
        if dropped := self._rollouts.pop(key, None):
            self._increments.drop(dropped.root)
        status = invalid_status(obj, problem, self._clock())
        if status != obj.get("status"):
            await self._ports.objects.update({**obj, "status": status}, subresource="status")
            await self._ports.events.record(obj, type="Warning", reason=problem.reason, message=problem.message)

    async def _reconcile(self, key: Key, obj: Object, plan: Plan) -> None:
        split, known = self._splits.get(_split_key(key)), self._known(key, obj)
        facts = self._facts(key, obj, plan, known)
        state = following(plan, known.state, facts)
        latency = known.latency + facts.counts.get(plan.reference, Counts()).latency
        self._rollouts[key] = structs.replace(known, state=state, latency=latency)
        await self._write_status(key, obj, plan)
        wanted = wanted_split(obj, plan.canary, plan.weights(state))
        if state.pause is not Pause.EDITED and not has(split, wanted):
            await self._ports.objects.apply(wanted, manager=MANAGER)
        await self._create_root(key, obj, plan.canary)
        self._call_webhooks(key, plan)

    def _known(self, key: Key, obj: Object) -> Rollout:
        """Return what is known about a Canary; at first, the state in its status. Count the requests to its root."""
        root = self._root(key, obj)
        known = self._rollouts.get(key)
        if known is None:
            stored = state_in(obj)
            known = Rollout(root=root, state=stored, stored=stored)
        elif known.root != root:
            self._increments.drop(known.root)
        self._increments.follow(root)
        return structs.replace(known, root=root)

    def _facts(self, key: Key, obj: Object, plan: Plan, known: Rollout) -> Facts:
        split, taken = self._splits.get(_split_key(key)), self._increments.take(known.root)
        written = {service_name(item.service, key.namespace, self._domain): item.service for item in plan.spec.backends}
        wanted = wanted_split(obj, plan.canary, plan.weights(known.state))
        return Facts(
            now=self._clock(),
            in_force=split is not None and has(split, wanted) and is_in_force(split),
            edit=edit_of(split) if split else "",
            command=(obj["metadata"].get("annotations") or {}).get(ROLLOUT_COMMAND, ""),
            counts={written[name]: counts for name, counts in taken.items() if name in written},
            latency=known.latency,
            answers=self._webhooks.answers(key, _occasion(known.state)),
        )

    def _call_webhooks(self, key: Key, plan: Plan) -> None:
        """Call the webhooks that the state of a rollout needs, and remember whether some do not know its end yet."""
        rollout = self._rollouts[key]
        state, analysis = rollout.state, plan.analysis
        if analysis is None:
            return
        when, every_s = _when(state), analysis.interval_seconds if state.is_counting else AGAIN_S
        is_late = state.phase.is_over and self._clock() > (state.since or inf) + GIVE_UP_S
        hooks = [hook for hook in analysis.hooks(when) if hook.name not in state.informed and not is_late]
        body = call_body(key, plan, state)
        for hook in hooks:
            self._webhooks.call(key, hook, _occasion(state), body, every_s)
        is_calling = state.phase.is_over and bool(hooks)
        self._rollouts[key] = structs.replace(rollout, is_calling=is_calling)

    async def _write_status(self, key: Key, obj: Object, plan: Plan) -> None:
        """Write the status: at once after a transition, and every few seconds when only counts differ."""
        rollout, now = self._rollouts[key], self._clock()
        moved = rollout.state.has_moved(rollout.stored)
        is_stale = status_of(obj).get("observedGeneration") != _generation(obj)
        if not (moved or is_stale or (rollout.state != rollout.stored and now >= rollout.written + WRITE_S)):
            return
        status = canary_status(obj, plan, rollout.state, now)
        await self._ports.objects.update({**obj, "status": status}, subresource="status")
        self._rollouts[key] = structs.replace(rollout, stored=rollout.state, written=now)
        if moved:
            await self._announce(obj, rollout, status["message"])

    async def _announce(self, obj: Object, rollout: Rollout, text: str) -> None:
        """Record an Event about a transition that users wait for."""
        before, state = rollout.stored, rollout.state
        if _milestone(before) == _milestone(state):
            return
        kind: Literal["Normal", "Warning"] = "Warning" if state.phase in _WARNINGS else "Normal"
        await self._ports.events.record(obj, type=kind, reason=state.phase.value, message=text)

    async def _create_root(self, key: Key, obj: Object, canary: Canary) -> None:
        """Create the root Service, if it does not exist, with the ports of the first backend that exists (R32)."""
        snapshot = self._snapshot.get()
        if snapshot is None or self._rollouts[key].root in snapshot.services:
            return
        names = (service_name(item.service, key.namespace, self._domain) for item in canary.spec.backends)
        found = next((snapshot.services[name][1] for name in names if name in snapshot.services), None)
        if found:
            with contextlib.suppress(AlreadyExists):
                await self._ports.objects.create(root_service(obj, canary, found))


def _occasion(state: State) -> Occasion:
    return Occasion(state.subject, state.step, state.phase.value if state.phase.is_over else _when(state))


def _when(state: State) -> str:
    """Return which webhooks a state calls: `before`, `during` or `after`; empty while it calls none."""
    if state.phase.is_over:
        return "after"
    return "before" if state.pause is Pause.BEFORE else "during" if state.is_counting else ""


def _milestone(state: State) -> tuple[object, ...]:
    return state.subject, state.phase, state.pause, state.step


def _split_key(canary: Key) -> Key:
    return TRAFFIC_SPLIT.key(canary.namespace, canary.name)


def _generation(obj: Object) -> int:
    return int(obj["metadata"].get("generation", 0))


def _created(obj: Object) -> str:
    return str(obj["metadata"].get("creationTimestamp", ""))
