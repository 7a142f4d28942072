"""The loop of the autoscalers: measures the workloads of all HorizontalPodAutoscalers every few seconds, and scales them."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

from headgate.errors import Conflict, DecodeError, NotFound, expected_failure
from headgate.kinds import names_of
from headgate.objects.events import EventRecorder
from headgate.objects.ports import Store
from headgate.resources.apps.deployment import Deployment
from headgate.resources.apps.replica_set import ReplicaSet
from headgate.resources.apps.stateful_set import StatefulSet
from headgate.resources.autoscaling.horizontal_pod_autoscaler import HorizontalPodAutoscaler
from headgate.resources.core.pod_spec import Pod
from headgate.resources.core.replication_controller import ReplicationController
from headgate.resources.decode import read
from headgate.resources.kind import split_api_version
from headgate.resources.meta import Key, Object, part
from headgate.resources.selectors import LabelSelector, selects
from headgate.standalone.controllers.actions import (
    Action,
    TypedObject,
    apply_actions,
    recorded_once,
    without_repeated,
)
from headgate.standalone.controllers.autoscaler_metrics import AutoscalerMetrics, ScalingSubject, tolerance
from headgate.standalone.controllers.autoscalers import needs_metrics, plan_autoscaler, plan_unscaled
from headgate.standalone.controllers.replica_proposals import Scaled
from headgate.standalone.controllers.scaling_behavior import ScalingHistory

log = logging.getLogger(__name__)
_PERIOD_S = (
    5.0  # Between two decisions. Kubernetes' 15 s suit the scrapes of a metrics server; here a report takes 4 s.
)
_Autoscaler: TypeAlias = TypedObject[HorizontalPodAutoscaler]
_Scalable: TypeAlias = Deployment | StatefulSet | ReplicaSet | ReplicationController
_SHAPES: Mapping[tuple[str, str], type[_Scalable]] = {
    (names_of(shape.__name__).group, shape.__name__): shape
    for shape in (Deployment, StatefulSet, ReplicaSet, ReplicationController)
}


class _Target(NamedTuple):
    """The workload of an autoscaler, and its scale."""

    object: Object
    scaled: Scaled


class _NoScale(Exception):
    """A target that is missing or can't be scaled, with the reason for the user."""


class Autoscaling:
    """Scales the targets of HorizontalPodAutoscalers."""

    def __init__(
        self,
        store: Store,
        recorder: EventRecorder,
        metrics: AutoscalerMetrics,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock
        # By the UID of an autoscaler.
        self._histories: dict[str, ScalingHistory] = {}
        self._announced: dict[str, Sequence[str]] = {}

    async def run(self) -> None:
        """Decide about all autoscalers every few seconds, until canceled."""
        while True:
            await asyncio.sleep(_PERIOD_S)
            with _logged("workloads"):
                await self.decide()

    async def decide(self) -> None:
        """Measure the target of each autoscaler, scale it, and write the status of the autoscaler."""
        by_namespace: dict[str, list[_Autoscaler]] = defaultdict(list)
        for obj in (await self._store.list("autoscaling", "HorizontalPodAutoscaler")).items:
            try:
                typed = read(obj, HorizontalPodAutoscaler)
            except DecodeError as error:
                with _logged(_name(obj)):
                    await self._recorder.record(obj, type="Warning", reason="Invalid", message=str(error))
                continue
            by_namespace[typed.metadata.namespace].append(TypedObject(obj, typed))
        present = {each.typed.metadata.uid for autoscalers in by_namespace.values() for each in autoscalers}
        for kept in (self._histories, self._announced):
            for uid in kept.keys() - present:
                kept.pop(uid)
        for namespace, autoscalers in by_namespace.items():
            with _logged(f"the workloads of namespace {namespace}"):
                await self._decide_namespace(namespace, autoscalers)

    async def _decide_namespace(self, namespace: str, autoscalers: Sequence[_Autoscaler]) -> None:
        pods = (await self._store.list("", "Pod", namespace)).items
        targets: dict[str, _Target] = {}
        for each in autoscalers:
            with _logged(_subject(each)):
                if target := await self._reported_target(each, pods):
                    targets[each.typed.metadata.uid] = target
        for each in autoscalers:
            if target := targets.get(each.typed.metadata.uid):
                with _logged(_subject(each)):
                    await self._decide(each, target, _rivals(autoscalers, targets, target))

    async def _reported_target(self, subject: _Autoscaler, pods: Collection[Object]) -> _Target | None:
        """Return the target of an autoscaler. Without one, write the reason to the autoscaler and return None."""
        try:
            return await self._target(subject.typed, pods)
        except _NoScale as error:
            message = f"the HPA controller was unable to get the target's current scale: {error}"
        actions = plan_unscaled(subject, "AbleToScale", "FailedGetScale", message, now=self._clock())
        await self._apply(subject, actions)
        return None

    async def _decide(self, subject: _Autoscaler, target: _Target, rivals: str) -> None:
        """Scale the target, unless it has several autoscalers, whose names are `rivals`."""
        if not rivals:
            await self._scale(subject, target)
            return
        message = f"pods of {_name(target.object)} are controlled by multiple HPAs: {rivals}; delete all but one"
        actions = plan_unscaled(subject, "ScalingActive", "AmbiguousSelector", message, now=self._clock())
        await self._apply(subject, actions)

    async def _target(self, autoscaler: HorizontalPodAutoscaler, pods: Collection[Object]) -> _Target:
        """Return the target of an autoscaler. Raises _NoScale."""
        reference = autoscaler.spec.scale_target_ref
        group, _ = split_api_version(reference.api_version)
        shape = _SHAPES.get((group, reference.kind))
        if shape is None:
            kinds = ", ".join(kind for _, kind in _SHAPES)
            raise _NoScale(f"{reference.kind} ({reference.api_version}) is none of the kinds {kinds}")
        try:
            obj = await self._store.get(Key(group, reference.kind, autoscaler.metadata.namespace, reference.name))
            typed = read(obj, shape)
            chosen = typed.spec.selector
            selector = chosen if isinstance(chosen, LabelSelector) else LabelSelector(match_labels=chosen)
            selected = [read(pod, Pod) for pod in pods if selects(selector, part(part(pod, "metadata"), "labels"))]
        except (NotFound, DecodeError) as error:
            raise _NoScale(str(error)) from error
        return _Target(obj, Scaled(typed.spec.replicas, typed.status.replicas, selected))

    async def _scale(self, subject: _Autoscaler, target: _Target) -> None:
        spec, metadata = subject.typed.spec, subject.typed.metadata
        measured = ScalingSubject(metadata.namespace, target.scaled, tolerance(spec), self._clock())
        metrics = spec.metrics if needs_metrics(spec, target.scaled.replicas) else ()
        outcomes = [await self._metrics.outcome(metric, measured) for metric in metrics]
        history = self._histories.get(metadata.uid, ScalingHistory())
        decision = plan_autoscaler(subject, target.scaled, outcomes, history, now=measured.now)
        if decision.replicas != target.scaled.replicas:
            workload = target.object
            try:
                await self._store.update({**workload, "spec": {**workload["spec"], "replicas": decision.replicas}})
            except (Conflict, NotFound):  # the workload has changed: the next decision is about its new state
                return
        self._histories[metadata.uid] = decision.history
        await self._apply(subject, decision.actions)

    async def _apply(self, subject: _Autoscaler, actions: Sequence[Action]) -> None:
        uid = subject.typed.metadata.uid
        before, self._announced[uid] = self._announced.get(uid, ()), recorded_once(actions)
        await apply_actions(self._store, self._recorder, without_repeated(actions, before))


def _rivals(autoscalers: Sequence[_Autoscaler], targets: Mapping[str, _Target], target: _Target) -> str:
    """Return the names of a target's autoscalers if there are several; else an empty text."""
    names = [
        each.typed.metadata.name
        for each in autoscalers
        if (other := targets.get(each.typed.metadata.uid)) and _overlap(other, target)
    ]
    return ", ".join(sorted(names)) if len(names) > 1 else ""


def _overlap(first: _Target, second: _Target) -> bool:
    """Return whether two targets are the same, or share pods."""
    uids = {pod.metadata.uid for pod in first.scaled.pods}
    same = first.object["metadata"]["uid"] == second.object["metadata"]["uid"]
    return same or any(pod.metadata.uid in uids for pod in second.scaled.pods)


def _name(obj: Object) -> str:
    return f"{obj['kind']} {obj['metadata']['name']}"


def _subject(subject: _Autoscaler) -> str:
    metadata = subject.typed.metadata
    return f"the target of HorizontalPodAutoscaler {metadata.namespace}/{metadata.name}"


@contextmanager
def _logged(what: str) -> Iterator[None]:
    """Log an error, which must stop neither the decisions about other workloads nor later ones."""
    try:
        yield
    except Exception as error:
        if reason := expected_failure(error):
            log.warning("can't scale %s, retrying: %s", what, reason)
        else:
            log.exception("can't scale %s", what)
