"""`headgate wait`: wait until every proxy has acknowledged the current generation of an object."""

import asyncio
import contextlib
import enum
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Annotated, Any, NamedTuple

import typer
from rich.status import Status

from headgate.cli import completion
from headgate.cli.arguments import ApiOptions, parse_kind_and_name, with_api_options
from headgate.cli.common_options import Namespace, Output, duration
from headgate.cli.connection import find_api
from headgate.cli.output import Format, TimedOut, answer, note, stderr, stdout, usage_error
from headgate.errors import Gone, HeadgateError, NotFound
from headgate.kinds import GATEWAY
from headgate.kubernetes.client import Client
from headgate.resources.gateway_api.gateway import CONTROLLER, OWN_CLASS
from headgate.resources.gateway_api.routes import PROGRAMMED_AT_PARENT
from headgate.resources.kind import Kind, ReadyBy
from headgate.resources.meta import Object, generation_of, status_of
from headgate.resources.registry import CANARY, KINDS, TRAFFIC_SPLIT, find

FIRST_ANSWER_S = (
    10.0  # The first response may take this long even if the timeout is shorter: the message needs the status.
)
WATCH_RETRY_S = 0.2  # Seconds between a watch that the server has ended and the next watch.


_FURTHER = (("apps", "StatefulSet"), ("apps", "DaemonSet"), ("batch", "Job"))
WAITABLE = (*(kind for kind in KINDS if kind.ready_by), *filter(None, (find(*names) for names in _FURTHER)))
"""The kinds whose status says whether they are active, or have ended."""


_WORDS = ", ".join(kind.names.singular for kind in WAITABLE)
ObjectArgument = Annotated[
    str,
    typer.Argument(
        metavar="KIND/NAME",
        help=f"The kind and the name of the object; the kinds are {_WORDS}.",
        autocompletion=completion.of_kinds(WAITABLE),
    ),
]
Timeout = Annotated[
    str, typer.Option("--timeout", metavar="DURATION", help="The longest time to wait: 20s, 2m, 500ms.")
]


_ADVICE = {
    "Service": (
        "its status says nothing about proxies: wait for its pods (deployment/NAME) and for what routes its requests (trafficsplit/NAME,"
        " canary/NAME, httproute/NAME); `headgate explain http://{name}/` shows its ready endpoints"
    ),
    "Pod": "wait for the workload that owns it, such as deployment/NAME, or use `kubectl wait --for=condition=Ready pod/{name}`",
}
"""What to do instead, for kinds without a status of headgate for which users wait."""


class Readiness(enum.Enum):
    """Whether an object is ready, pending, or rejected."""

    READY = "done"
    PENDING = "pending"
    FAILED = "failed"


class WaitProgress(NamedTuple):
    """The readiness of an object, with a message."""

    readiness: Readiness
    message: str


NOT_FOUND = "it does not exist; create it, correct the name, or give its namespace with -n"
NO_ANSWER = WaitProgress(Readiness.PENDING, "the API has not responded")


@with_api_options
def wait(
    what: ObjectArgument,
    *,
    namespace: Namespace = "",
    timeout: Timeout = "20s",
    output: Output = Format.TABLE,
    api: ApiOptions,
) -> None:
    """Wait until every proxy has acknowledged an object, a workload is available, or a Job is complete.

    The command waits for the current generation of the object, and also for an object that does not exist yet. The exit
    code is 1 when the object is not accepted, and 124 after the timeout. The message names the proxies and their
    errors.
    """
    kind, name = parse_kind_and_name(what, WAITABLE)
    check = _READINESS[kind.ready_by] if kind.ready_by else _WORKLOADS.get(kind.kind)
    if check is None:
        advice = _ADVICE.get(kind.kind, f"the kinds are {_WORDS}").format(name=name)
        raise usage_error(f"`wait` does not support {kind.kind}; {advice}", option="KIND/NAME")
    seconds = duration(timeout, "--timeout")
    client = find_api(api)
    namespace = namespace or client.namespace
    obj, progress = asyncio.run(_wait(client, kind, (namespace, name), check, seconds))
    if progress.readiness is Readiness.FAILED:
        raise HeadgateError(f"{kind.kind} {namespace}/{name} failed: {progress.message}")
    if (kind.group, kind.kind) == (CANARY.group, CANARY.kind):
        progress = progress._replace(message=asyncio.run(_canary_message(client, obj, progress.message)))
    text = f"{kind.kind.lower()}/{name}: {progress.message}"
    answer(to_document(obj, progress), output, lambda: stdout().print(text, soft_wrap=True))


def to_document(obj: Object, progress: WaitProgress) -> Mapping[str, Any]:
    """Return the document for `-o json`: the object's name, generation and conditions, and a message."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    return {
        "kind": obj["kind"],
        "namespace": metadata.get("namespace", ""),
        "name": metadata["name"],
        "generation": metadata.get("generation", 0),
        "message": progress.message,
        "conditions": status.get("conditions") or [],
    }


def _by_observed_generation(obj: Object) -> WaitProgress:
    outdated = status_of(obj).get("observedGeneration", 0) < generation_of(obj)
    return _not_processed(obj) if outdated else _by_conditions(obj)


def _by_conditions(obj: Object) -> WaitProgress:
    return _programmed_progress(status_of(obj), generation_of(obj))


def _by_parents(obj: Object) -> WaitProgress:
    return _by_references(obj, "parents", "parentRef") or _not_processed(obj)


def _by_ancestors(obj: Object) -> WaitProgress:
    missing = "no route of a Gateway leads to its Services"
    return _by_references(obj, "ancestors", "ancestorRef") or WaitProgress(Readiness.PENDING, missing)


def _by_references(obj: Object, field: str, name: str) -> WaitProgress | None:
    """Return the progress at the object that is least ready; entries of other controllers are ignored. None without an entry.

    `field` is the list in the status, and `name` the reference in each entry.
    """
    entries = [entry for entry in status_of(obj).get(field) or () if entry.get("controllerName") == CONTROLLER]
    if not entries:
        return None
    unready = [
        (entry[name], _programmed_progress(entry, generation_of(obj), PROGRAMMED_AT_PARENT)) for entry in entries
    ]
    reference, worst = min(unready, key=lambda pair: _WORST_FIRST.index(pair[1].readiness))
    at = f"at {reference.get('kind')} {reference.get('name')}: " if len(unready) > 1 else ""
    return WaitProgress(worst.readiness, at + worst.message)


def _programmed_progress(holder: Mapping[str, Any], generation: int, type: str = "Programmed") -> WaitProgress:
    """Return the progress, derived from the condition Accepted of this generation, and that of a type."""
    conditions = _conditions(holder)
    accepted, programmed = conditions.get("Accepted"), conditions.get(type)
    if accepted and accepted["status"] == "False" and accepted.get("observedGeneration", 0) >= generation:
        return WaitProgress(Readiness.FAILED, f"{accepted['reason']}: {accepted['message']}")
    if not programmed or programmed.get("observedGeneration", 0) < generation:
        return WaitProgress(Readiness.PENDING, "no proxy has received it yet")
    readiness = Readiness.READY if programmed["status"] == "True" else Readiness.PENDING
    return WaitProgress(
        readiness,
        f"{programmed['reason']}: {programmed['message']}" if readiness is Readiness.PENDING else programmed["message"],
    )


def _not_processed(obj: Object) -> WaitProgress:
    return WaitProgress(Readiness.PENDING, f"generation {generation_of(obj)} is not processed yet")


def deployment_progress(obj: Object) -> WaitProgress:
    """Return whether all pods of a Deployment have its current template and are available."""
    needed = (obj.get("spec") or {}).get("replicas", 1)
    status = status_of(obj)
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    message = f"{available} of {needed} pods are available, {updated} of them up to date"
    if status.get("observedGeneration", 0) < generation_of(obj):
        return WaitProgress(Readiness.PENDING, "the new generation is not processed yet")
    old = status.get("replicas", 0) - updated
    done = updated >= needed and available >= needed and old <= 0
    progressing = _conditions(status).get("Progressing", {})
    if not done and progressing.get("reason") == "ProgressDeadlineExceeded":
        return WaitProgress(Readiness.FAILED, str(progressing.get("message", message)))
    return WaitProgress(Readiness.READY if done else Readiness.PENDING, message)


def stateful_set_progress(obj: Object) -> WaitProgress:
    """Return whether all pods of a StatefulSet are ready, and those from its `partition` on have its current template."""
    status, spec = status_of(obj), obj.get("spec") or {}
    replicas = spec.get("replicas", 1)
    rolling = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
    updated = (
        replicas if status.get("updateRevision") == status.get("currentRevision") else status.get("updatedReplicas", 0)
    )
    due = max(replicas - rolling.get("partition", 0), 0)
    return _counted(obj, replicas, (updated, due), status.get("readyReplicas", 0))


def daemon_set_progress(obj: Object) -> WaitProgress:
    """Return whether all pods of a DaemonSet have its current template and are available."""
    status = status_of(obj)
    pods = status.get("desiredNumberScheduled", 0)
    return _counted(obj, pods, (status.get("updatedNumberScheduled", 0), pods), status.get("numberAvailable", 0))


def _counted(obj: Object, pods: int, updates: tuple[int, int], available: int) -> WaitProgress:
    """Return the progress by the pods that are available, and those that are updated, with how many of them must be.

    With the strategy OnDelete none must be: the user decides when the pods are replaced.
    """
    if status_of(obj).get("observedGeneration", 0) < generation_of(obj):
        return WaitProgress(Readiness.PENDING, "the new generation is not processed yet")
    updated, due = updates
    if ((obj.get("spec") or {}).get("updateStrategy") or {}).get("type") == "OnDelete":
        due = 0
    message = f"{available} of {pods} pods are available, {updated} of them up to date"
    return WaitProgress(Readiness.READY if updated >= due and available >= pods else Readiness.PENDING, message)


def job_progress(obj: Object) -> WaitProgress:
    """Return whether a Job is complete, or has failed."""
    spec, status = obj.get("spec") or {}, status_of(obj)
    conditions = _conditions(status)
    complete, failed = (conditions.get(name, {}) for name in ("Complete", "Failed"))
    if failed.get("status") == "True":
        return WaitProgress(Readiness.FAILED, f"{failed.get('reason')}: {failed.get('message')}")
    needed = spec.get("completions", spec.get("parallelism", 1))
    message = f"{status.get('succeeded', 0)} of {needed} pods have succeeded, {status.get('failed', 0)} have failed"
    if complete.get("status") == "True":
        return WaitProgress(Readiness.READY, message)
    return WaitProgress(Readiness.PENDING, f"{message}; the Job is suspended" if spec.get("suspend") else message)


def _conditions(holder: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    return {condition["type"]: condition for condition in holder.get("conditions") or ()}


ReadinessCheck = Callable[[Object], WaitProgress]
_READINESS: Mapping[ReadyBy, ReadinessCheck] = {
    ReadyBy.GENERATION: _by_observed_generation,
    ReadyBy.CONDITIONS: _by_conditions,
    ReadyBy.PARENTS: _by_parents,
    ReadyBy.ANCESTORS: _by_ancestors,
    ReadyBy.REPLICAS: deployment_progress,
}
_WORKLOADS: Mapping[str, ReadinessCheck] = {
    "StatefulSet": stateful_set_progress,
    "DaemonSet": daemon_set_progress,
    "Job": job_progress,
}
_GATEWAY_CLASS = next(kind for kind in KINDS if (kind.group, kind.kind) == (GATEWAY, "GatewayClass"))
_WORST_FIRST = (Readiness.FAILED, Readiness.PENDING, Readiness.READY)


async def _wait(
    client: Client, kind: Kind, namespaced_name: tuple[str, str], check: ReadinessCheck, seconds: float
) -> tuple[Object, WaitProgress]:
    """Watch an object until it is ready or has failed. Raises TimedOut, with the progress so far."""
    namespace, name = namespaced_name
    title = f"waiting for {kind.kind.lower()}/{name}"
    progress, noted, end = NO_ANSWER, "", asyncio.get_running_loop().time() + seconds
    with contextlib.suppress(TimeoutError), Status(title, console=stderr()) as spinner:
        async with (
            asyncio.timeout(max(seconds, FIRST_ANSWER_S)) as clock,
            contextlib.aclosing(watch_object(client, kind, namespace, name)) as updates,
        ):
            async for obj in updates:
                progress = check(obj) if obj else WaitProgress(Readiness.PENDING, NOT_FOUND)
                if obj and progress.readiness is not Readiness.PENDING:
                    return obj, progress
                if problem := await _class_problem(client, obj) if obj else NOT_FOUND:
                    if problem != noted:
                        note(f"{kind.kind} {namespace}/{name}: {problem}", spinner.console)
                    noted, progress = problem, WaitProgress(Readiness.PENDING, problem)
                spinner.update(f"{title}: {progress.message}")
                clock.reschedule(end)
    raise TimedOut(f"{kind.kind} {namespace}/{name} is not ready after {seconds:g} s: {progress.message}")


async def _canary_message(client: Client, obj: Object, message: str) -> str:
    """Return the step and share of a Canary, and how many proxies have its TrafficSplit, else `message`."""
    name, namespace, status = obj["metadata"]["name"], obj["metadata"]["namespace"], status_of(obj)
    try:
        splits, _ = await client.items(TRAFFIC_SPLIT, namespace, fieldSelector=f"metadata.name={name}")
    except HeadgateError:  # not every user may read TrafficSplits
        splits = []
    progress = _by_conditions(splits[0]) if splits else NO_ANSWER
    if progress.readiness is Readiness.READY:
        message = progress.message
    step, count, share = (status.get(field) for field in ("step", "stepCount", "canaryShare"))
    return f"step {step} of {count}, {share}: {message}" if step and count and share else message


async def _class_problem(client: Client, obj: Object) -> str:
    """Return why headgate does not implement the class of a Gateway; empty if it does, and for other objects."""
    name = (obj.get("spec") or {}).get("gatewayClassName", "") if obj["kind"] == "Gateway" else ""
    if name in ("", OWN_CLASS):
        return ""
    try:
        classes, _ = await client.items(_GATEWAY_CLASS, fieldSelector=f"metadata.name={name}")
    except HeadgateError:  # not every user may read GatewayClasses
        return ""
    if not classes:
        return f"GatewayClass {name} not found; create it, or set spec.gatewayClassName to {OWN_CLASS}"
    controller = classes[0]["spec"].get("controllerName")
    if controller == CONTROLLER:
        return ""
    return f"GatewayClass {name} is of {controller}, not of headgate; set spec.gatewayClassName to {OWN_CLASS}"


async def watch_object(client: Client, kind: Kind, namespace: str, name: str) -> AsyncGenerator[Object | None]:
    """Yield an object now and after each change; None while it does not exist. Never ends."""
    only = {"fieldSelector": f"metadata.name={name}"}
    while True:
        try:
            items, revision = await client.items(kind, namespace, **only)
        except NotFound:
            raise HeadgateError(
                f"the API server does not serve {kind.plural}.{kind.group}; install headgate, or the CustomResourceDefinition"
            ) from None
        yield items[0] if items else None
        try:
            async with contextlib.aclosing(client.watch(kind, namespace, resourceVersion=revision, **only)) as events:
                async for event in events:
                    if event.type in {"ADDED", "MODIFIED", "DELETED"} and event.object["metadata"]["name"] == name:
                        yield None if event.type == "DELETED" else event.object
        except Gone:
            continue  # the revision has expired: list again
        await asyncio.sleep(WATCH_RETRY_S)
