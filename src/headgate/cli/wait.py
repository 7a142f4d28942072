"""`headgate wait`: returns when every proxy that must hold an object's current generation has acknowledged it."""

import asyncio
import contextlib
import enum
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Annotated, Any, NamedTuple

import typer
from rich.status import Status

from headgate import durations
from headgate.cli import completion
from headgate.cli.arguments import Kubeconfig, Namespace, Output, State, kind_and_name
from headgate.cli.connection import find_api
from headgate.cli.output import Format, TimedOut, answer, stderr, stdout, usage_error
from headgate.errors import Gone, HeadgateError
from headgate.kinds import ACCESS, GATEWAY, MESH, SPLIT
from headgate.kubernetes.client import Client
from headgate.resources.gateway import CONTROLLER
from headgate.resources.meta import Object
from headgate.resources.registry import Kind

LOOK_S = 10.0  # for the first answer, however short the wait is: what is told at its end has been seen
PAUSE_S = 0.2  # before a watch that the server ended is begun anew


def _offered(ctx: typer.Context, incomplete: str) -> list[str]:
    return completion.objects(ctx, incomplete, JUDGES)


What = Annotated[
    str,
    typer.Argument(
        metavar="KIND/NAME",
        help="trafficsplit/NAME, gateway/NAME, httproute/NAME, grpcroute/NAME, tcproute/NAME, tlsconfig/NAME, "
        "traffictarget/NAME or deployment/NAME.",
        autocompletion=_offered,
    ),
]
Timeout = Annotated[str, typer.Option("--timeout", help="How long to wait: 20s, 2m, 500ms.")]


class Step(enum.Enum):
    """How an object is doing."""

    DONE = "done"
    PENDING = "pending"
    FAILED = "failed"


class Progress(NamedTuple):
    """Where an object is, in a sentence."""

    step: Step
    message: str


ABSENT = Progress(Step.PENDING, "it does not exist")
UNKNOWN = Progress(Step.PENDING, "the API has not answered")


def wait(
    what: What,
    *,
    namespace: Namespace = "",
    timeout: Timeout = "20s",
    output: Output = Format.TABLE,
    kubeconfig: Kubeconfig = None,
    state: State = None,
) -> None:
    """Wait until every proxy that is to hold an object holds it, or until a Deployment is available.

    It waits for the generation that the object has now, and for an object that does not exist yet. An object that is
    refused ends it at once with exit code 1, and the timeout with 124; either names the proxies and their words.
    """
    kind, name = kind_and_name(what)
    judge = JUDGES.get((kind.group, kind.kind))
    if judge is None:
        raise usage_error(
            f"{kind.kind} has nothing to wait for; wait for a trafficsplit, a gateway, a route, a tlsconfig, "
            "a traffictarget or a deployment",
            option="KIND/NAME",
        )
    seconds = read_duration(timeout)
    client = find_api(kubeconfig, state)
    place = namespace or client.namespace
    obj, progress = asyncio.run(_wait(client, kind, (place, name), judge, seconds))
    if progress.step is Step.FAILED:
        raise HeadgateError(f"{kind.kind} {place}/{name} will not come into force: {progress.message}")
    text = f"{kind.kind.lower()}/{name}: {progress.message}"
    answer(document(obj, progress), output, lambda: stdout().print(text, soft_wrap=True))


def read_duration(text: str) -> float:
    """Return seconds."""
    try:
        return durations.seconds(f"{text}s" if text[-1:].isdecimal() else text)
    except ValueError:
        raise usage_error(f"{text!r} is not a duration; write 20s, 2m or 500ms", option="--timeout") from None


def document(obj: Object, progress: Progress) -> Mapping[str, Any]:
    """Return the answer for scripts."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    return {
        "kind": obj["kind"],
        "namespace": metadata.get("namespace", ""),
        "name": metadata["name"],
        "generation": metadata.get("generation", 0),
        "message": progress.message,
        "conditions": status.get("conditions") or [],
    }


def _observed(obj: Object) -> Progress:
    unseen = _status(obj).get("observedGeneration", 0) < _generation(obj)
    return _unseen(obj) if unseen else _gateway(obj)


def _gateway(obj: Object) -> Progress:
    return _programmed(_status(obj), _generation(obj))


def _route(obj: Object) -> Progress:
    """Return the state of the parent that is worst off; entries of other controllers don't count."""
    parents = [item for item in _status(obj).get("parents") or () if item.get("controllerName") == CONTROLLER]
    if not parents:
        return _unseen(obj)
    found = [(item["parentRef"], _programmed(item, _generation(obj))) for item in parents]
    reference, worst = min(found, key=lambda pair: _WORST_FIRST.index(pair[1].step))
    at = f"at {reference.get('kind')} {reference.get('name')}: " if len(found) > 1 else ""
    return Progress(worst.step, at + worst.message)


def _programmed(holder: Mapping[str, Any], generation: int) -> Progress:
    """Return what conditions say; ones of an older generation are no answer."""
    conditions = _conditions(holder)
    accepted, programmed = conditions.get("Accepted"), conditions.get("Programmed")
    if accepted and accepted["status"] == "False" and accepted.get("observedGeneration", 0) >= generation:
        return Progress(Step.FAILED, f"{accepted['reason']}: {accepted['message']}")
    if not programmed or programmed.get("observedGeneration", 0) < generation:
        return Progress(Step.PENDING, "no proxy has been told yet")
    step = Step.DONE if programmed["status"] == "True" else Step.PENDING
    return Progress(
        step, f"{programmed['reason']}: {programmed['message']}" if step is Step.PENDING else programmed["message"]
    )


def _unseen(obj: Object) -> Progress:
    return Progress(Step.PENDING, f"generation {_generation(obj)} is not looked at yet")


def _deployment(obj: Object) -> Progress:
    wanted = (obj.get("spec") or {}).get("replicas", 1)
    status = _status(obj)
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    message = f"{available} of {wanted} pods are available, {updated} of them up to date"
    if status.get("observedGeneration", 0) < _generation(obj):
        return Progress(Step.PENDING, "the new generation is not looked at yet")
    old = status.get("replicas", 0) - updated
    done = updated >= wanted and available >= wanted and old <= 0
    trouble = _conditions(status).get("Progressing", {})
    if not done and trouble.get("reason") == "ProgressDeadlineExceeded":
        return Progress(Step.FAILED, str(trouble.get("message", message)))
    return Progress(Step.DONE if done else Step.PENDING, message)


def _status(obj: Object) -> Mapping[str, Any]:
    return obj.get("status") or {}


def _generation(obj: Object) -> int:
    return int(obj["metadata"].get("generation", 0))


def _conditions(holder: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    return {item["type"]: item for item in holder.get("conditions") or ()}


Judge = Callable[[Object], Progress]
JUDGES: Mapping[tuple[str, str], Judge] = {
    (SPLIT, "TrafficSplit"): _observed,
    (GATEWAY, "Gateway"): _gateway,
    (GATEWAY, "HTTPRoute"): _route,
    (GATEWAY, "GRPCRoute"): _route,
    (GATEWAY, "TCPRoute"): _route,
    (MESH, "TLSConfig"): _observed,
    (ACCESS, "TrafficTarget"): _observed,
    ("apps", "Deployment"): _deployment,
}
_WORST_FIRST = (Step.FAILED, Step.PENDING, Step.DONE)


async def _wait(
    client: Client, kind: Kind, place: tuple[str, str], judge: Judge, seconds: float
) -> tuple[Object, Progress]:
    """Watch until the object is done or refused; look once at least. Raises TimedOut that says how far it was."""
    namespace, name = place
    title = f"waiting for {kind.kind.lower()}/{name}"
    progress, end = UNKNOWN, asyncio.get_running_loop().time() + seconds
    with contextlib.suppress(TimeoutError), Status(title, console=stderr()) as shown:
        async with (
            asyncio.timeout(max(seconds, LOOK_S)) as clock,
            contextlib.aclosing(states(client, kind, namespace, name)) as following,
        ):
            async for obj in following:
                clock.reschedule(end)
                progress = judge(obj) if obj else ABSENT
                if obj and progress.step is not Step.PENDING:
                    return obj, progress
                shown.update(f"{title}: {progress.message}")
    raise TimedOut(f"{kind.kind} {namespace}/{name} is not ready after {seconds:g} s: {progress.message}")


async def states(client: Client, kind: Kind, namespace: str, name: str) -> AsyncGenerator[Object | None]:
    """Yield the object as it is, then as it becomes; None while it does not exist. Never ends."""
    only = {"fieldSelector": f"metadata.name={name}"}
    while True:
        items, revision = await client.items(kind, namespace, **only)
        yield items[0] if items else None
        try:
            async with contextlib.aclosing(client.watch(kind, namespace, resourceVersion=revision, **only)) as steps:
                async for step in steps:
                    if step.type in {"ADDED", "MODIFIED", "DELETED"} and step.object["metadata"]["name"] == name:
                        yield None if step.type == "DELETED" else step.object
        except Gone:
            continue  # too far behind: list again
        await asyncio.sleep(PAUSE_S)
