"""The loop of the controllers: reconciles a namespace whenever one of its objects changes."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from headgate.errors import DecodeError, Invalid, expected_failure
from headgate.objects.events import EventRecorder
from headgate.objects.ports import Relist, Store, follow
from headgate.resources.apps.daemon_set import DaemonSet
from headgate.resources.apps.deployment import Deployment
from headgate.resources.apps.replica_set import ReplicaSet
from headgate.resources.apps.stateful_set import StatefulSet
from headgate.resources.batch.cron_job import CronJob
from headgate.resources.batch.job import Job
from headgate.resources.core.pod_spec import Pod
from headgate.resources.core.replication_controller import ReplicationController
from headgate.resources.core.service import Service
from headgate.resources.decode import read
from headgate.resources.meta import Object
from headgate.resources.pod_templates import TEMPLATED_KINDS
from headgate.standalone.controllers.actions import (
    Action,
    Recheck,
    TypedObject,
    apply_actions,
    recorded_once,
    without_repeated,
)
from headgate.standalone.controllers.cron_jobs import plan_cron_job
from headgate.standalone.controllers.daemon_sets import plan_daemon_set
from headgate.standalone.controllers.deployment_status import settled
from headgate.standalone.controllers.deployments import plan_deployment
from headgate.standalone.controllers.endpoints import managed_slices, plan_slices
from headgate.standalone.controllers.jobs import plan_job, release_pods
from headgate.standalone.controllers.replicasets import plan_replicaset
from headgate.standalone.controllers.stateful_sets import SetObjects, plan_stateful_set

T = TypeVar("T")
log = logging.getLogger(__name__)
_SLICES = "discovery.k8s.io"
_KINDS = (
    *((templated.group, templated.kind) for templated in TEMPLATED_KINDS),
    ("", "Pod"),
    ("", "PersistentVolumeClaim"),
    ("", "Service"),
    (_SLICES, "EndpointSlice"),
)
_BATCH = 200  # The number of Services after which a reconciliation lets other tasks run.
_TIMER = 2.0  # Seconds between checks for elapsed minReadySeconds and progress deadlines.


class Controllers:
    """Reconciles workloads and EndpointSlices, one namespace at a time."""

    def __init__(self, store: Store, recorder: EventRecorder, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._recorder = recorder
        self._clock = clock
        self._changed: set[str] = set()
        self._wake = asyncio.Event()
        self._memo: dict[str, tuple[str, Any]] = {}
        self._errors: dict[str, str] = {}
        self._announced: dict[str, list[str]] = {}  # By the UID of an object: Events that are not repeated.
        # By the UID of an object: the time at which its namespace is reconciled again without a change, and the namespace.
        self._due: dict[str, tuple[float, str]] = {}
        self._rejected: set[str] = set()  # Namespaces to reconcile again, because the store rejected a write.
        # By the UID of a Service: the versions of the objects from which the Service's slices were computed.
        self._computed_from: dict[str, tuple[str, ...]] = {}

    async def run(self) -> None:
        """Reconcile each namespace in which an object changes, until canceled."""
        async with asyncio.TaskGroup() as tasks:
            for kind in _KINDS:
                tasks.create_task(self._watch(kind))
            tasks.create_task(self._watch_node())
            tasks.create_task(self._check_timed())
            tasks.create_task(self._work())

    async def reconcile(self, namespace: str) -> None:
        """Reconcile one namespace: plan the actions for each of its objects, and execute them."""
        now = self._clock()
        replicasets = await self._known("apps", "ReplicaSet", namespace, ReplicaSet)
        pods = await self._known("", "Pod", namespace, Pod)
        typed = [pod.typed for pod in pods]
        for deployment in await self._known("apps", "Deployment", namespace, Deployment):
            await self._decide(deployment.object, partial(plan_deployment, deployment, replicasets, typed, now=now))
        for replicaset in await self._known("apps", "ReplicaSet", namespace, ReplicaSet):
            await self._decide(replicaset.object, partial(plan_replicaset, replicaset, pods, now=now))
        for controller in await self._known("", "ReplicationController", namespace, ReplicationController):
            same = TypedObject(controller.object, controller.typed.as_replica_set)
            await self._decide(controller.object, partial(plan_replicaset, same, pods, now=now))
        await self._with_revisions(namespace, pods, now)
        await self._jobs(namespace, pods, now)
        await self._endpoints(namespace)

    async def _with_revisions(self, namespace: str, pods: Sequence[TypedObject[Pod]], now: float) -> None:
        """Reconcile the kinds whose templates are kept as ControllerRevisions."""
        sets = await self._known("apps", "StatefulSet", namespace, StatefulSet)
        daemon_sets = await self._known("apps", "DaemonSet", namespace, DaemonSet)
        if not sets and not daemon_sets:
            return
        revisions = (await self._store.list("apps", "ControllerRevision", namespace)).items
        claims = (await self._store.list("", "PersistentVolumeClaim", namespace)).items
        for stateful_set in sets:
            objects = SetObjects(pods, revisions, claims)
            await self._decide(stateful_set.object, partial(plan_stateful_set, stateful_set, objects, now=now))
        for node in (await self._store.list("", "Node")).items if daemon_sets else ():
            for daemon_set in daemon_sets:
                plan = partial(plan_daemon_set, daemon_set, pods, revisions, node=node, now=now)
                await self._decide(daemon_set.object, plan)

    async def _jobs(self, namespace: str, pods: Sequence[TypedObject[Pod]], now: float) -> None:
        jobs = await self._known("batch", "Job", namespace, Job)
        for cron_job in await self._known("batch", "CronJob", namespace, CronJob):
            await self._decide(cron_job.object, partial(plan_cron_job, cron_job, jobs, now=now))
        for job in jobs:
            await self._decide(job.object, partial(plan_job, job, pods, now=now))
        for release in release_pods([job.typed for job in jobs], pods):
            await self._decide(release.object, partial(list, [release]))

    async def _endpoints(self, namespace: str) -> None:
        slices = managed_slices((await self._store.list(_SLICES, "EndpointSlice", namespace)).items)
        pods = _by_label(await self._known("", "Pod", namespace, Pod))
        for count, service in enumerate(await self._known("", "Service", namespace, Service)):
            mine = slices.get(service.typed.metadata.name, [])
            near = pods.get(next(iter(service.typed.spec.selected.items()), ("", "")), [])
            seen = _versions([service.object, *(pod.object for pod in near), *mine])
            if self._computed_from.get(seen[0]) != seen:
                plan = partial(plan_slices, service, [pod.typed for pod in near], mine)
                if await self._decide(service.object, plan):
                    self._computed_from[seen[0]] = seen
            if count % _BATCH == 0:
                await asyncio.sleep(0)

    async def _decide(self, about: Object, plan: Callable[[], Sequence[Action]]) -> bool:
        """Plan and execute the actions for one object, and report its errors. Return False if the store rejected a write."""
        metadata = about["metadata"]
        try:
            actions = self._without_repeated(about, plan())
            self._schedule(about, actions)
            await apply_actions(self._store, self._recorder, actions)
            self._errors.pop(metadata["uid"], None)
        except (DecodeError, Invalid) as error:
            await self._report(about, str(error))
        except Exception as error:  # an error about one object must not stop other objects
            if reason := expected_failure(error):
                self._rejected.add(metadata["namespace"])
                if self._is_new(about, str(reason)):
                    log.warning("can't reconcile %s %s, retrying: %s", about["kind"], metadata["name"], reason)
                return False
            log.exception("can't reconcile %s %s", about["kind"], metadata["name"])
        return True

    def _schedule(self, about: Object, actions: Iterable[Action]) -> None:
        """Remember when an object must be decided again; the newest decision counts."""
        metadata = about["metadata"]
        times = [action.at for action in actions if isinstance(action, Recheck)]
        if times:
            self._due[metadata["uid"]] = min(times), metadata["namespace"]
        else:
            self._due.pop(metadata["uid"], None)

    def _without_repeated(self, about: Object, actions: Sequence[Action]) -> Sequence[Action]:
        """Return the actions without Events that are recorded once and that the last decision about the object had."""
        uid = about["metadata"]["uid"]
        before, self._announced[uid] = self._announced.get(uid, []), recorded_once(actions)
        return without_repeated(actions, before)

    async def _report(self, about: Object, message: str) -> None:
        if self._is_new(about, message):
            await self._recorder.record(about, type="Warning", reason="Invalid", message=message)

    def _is_new(self, about: Object, error: str) -> bool:
        """Return whether an error differs from the object's last error, so that a repeated error is reported once."""
        uid = about["metadata"]["uid"]
        before, self._errors[uid] = self._errors.get(uid), error
        return before != error

    async def _known(self, group: str, kind: str, namespace: str, shape: type[T]) -> list[TypedObject[T]]:
        objects = []
        for obj in (await self._store.list(group, kind, namespace)).items:
            try:
                objects.append(TypedObject(obj, self._typed(obj, shape)))
            except DecodeError as error:
                await self._report(obj, str(error))
        return objects

    def _typed(self, obj: Object, shape: type[T]) -> T:
        metadata = obj["metadata"]
        version, typed = self._memo.get(metadata["uid"], ("", None))
        if version != metadata["resourceVersion"] or not isinstance(typed, shape):
            typed = read(obj, shape)
            self._memo[metadata["uid"]] = (metadata["resourceVersion"], typed)
        return typed

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            changed, self._changed = self._changed, set()
            for namespace in sorted(changed):
                await self.reconcile(namespace)
            await asyncio.sleep(0)

    async def _watch(self, kind: tuple[str, str]) -> None:
        async for step in follow(self._store, *kind):
            if isinstance(step, Relist):
                self._mark(obj["metadata"]["namespace"] for obj in step.items)
            else:
                self._forget(step.type, step.object)
                self._mark([step.key.namespace])

    async def _watch_node(self) -> None:
        """Reconcile DaemonSets when the labels of the node change, which their node selectors name."""
        async for _ in follow(self._store, "", "Node"):
            self._mark(obj["metadata"]["namespace"] for obj in (await self._store.list("apps", "DaemonSet")).items)

    def _forget(self, type: str, obj: Object) -> None:
        if type == "DELETED":
            for held in (self._memo, self._errors, self._announced, self._due, self._computed_from):
                held.pop(obj["metadata"]["uid"], None)

    async def _check_timed(self) -> None:
        while True:
            await asyncio.sleep(_TIMER)
            rejected, self._rejected = self._rejected, set()
            self._mark(rejected)
            now = self._clock()
            self._mark(namespace for at, namespace in self._due.values() if at <= now)
            for deployment in await self._known("apps", "Deployment", "", Deployment):
                if not settled(deployment.typed):
                    self._mark([deployment.typed.metadata.namespace])

    def _mark(self, namespaces: Iterable[str]) -> None:
        self._changed.update(namespaces)
        if self._changed:
            self._wake.set()


def _by_label(pods: Iterable[TypedObject[Pod]]) -> dict[tuple[str, str], list[TypedObject[Pod]]]:
    """Return the pods by label (name, value). The first label of a selector then finds the pods that may match."""
    by_label: dict[tuple[str, str], list[TypedObject[Pod]]] = {}
    for pod in pods:
        for label in pod.typed.metadata.labels.items():
            by_label.setdefault(label, []).append(pod)
    return by_label


def _versions(objects: Sequence[Object]) -> tuple[str, ...]:
    """Return the UID of the first object, then `UID resourceVersion` of each object."""
    versions = (f"{obj['metadata']['uid']} {obj['metadata']['resourceVersion']}" for obj in objects)
    return (str(objects[0]["metadata"]["uid"]), *versions)
