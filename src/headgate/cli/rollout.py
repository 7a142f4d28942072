"""`headgate rollout`: show the rollout of a Canary, pause, resume, promote, abort or restart it."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal, TypeAlias

import typer
from rich.status import Status

from headgate.cli import completion
from headgate.cli.arguments import ApiOptions, with_api_options
from headgate.cli.common_options import Namespace, Output, duration
from headgate.cli.connection import find_api
from headgate.cli.output import EXIT_FAILURE, Format, TimedOut, answer, print_whole, stderr, stdout, usage_error
from headgate.cli.rollout_status import INVALID, RolloutStatus, picture, rollout_status
from headgate.cli.rollout_watch import show
from headgate.cli.wait import Timeout, watch_object
from headgate.errors import HeadgateError, NotFound
from headgate.kubernetes.client import Client, path_of
from headgate.resources.mesh.canary.types import Action
from headgate.resources.meta import Key, Object, generation_of
from headgate.resources.registry import CANARY
from headgate.rollout.state import Pause, Phase, state_in

Change: TypeAlias = Literal["pause", "resume", "promote", "abort", "restart"]
Subcommand = Annotated[
    Literal["status", "watch", Change],
    typer.Argument(
        metavar="ACTION",
        help="status: show the step and the evidence. watch: show them until the rollout ends. "
        "pause, resume: keep the weights, or continue. promote: end the step as passed. abort: roll back. "
        "restart: begin with the first step again.",
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the Canary.", autocompletion=completion.canaries)]


@with_api_options
def rollout(
    action: Subcommand,
    name: Name,
    *,
    namespace: Namespace = "",
    timeout: Timeout = "20s",
    output: Output = Format.TABLE,
    api: ApiOptions,
) -> None:
    """Show the rollout of a Canary, or change it: status, watch, pause, resume, promote, abort or restart.

    A change returns when the control plane has obeyed, and exits with 124 after the timeout. `watch` ends with the
    rollout: exit code 0 means promoted, 1 rolled back.
    """
    seconds = duration(timeout, "--timeout")
    if action == "watch" and output is not Format.TABLE:
        hint = f"`rollout watch` has no -o {output}; use `kubectl get canary {name} --watch -o {output}`"
        raise usage_error(hint, option="-o")
    client = find_api(api, changes=action not in ("status", "watch"))
    key = CANARY.key(namespace or client.namespace, name)
    if action == "watch":
        last = asyncio.run(_watch(client, key))
        raise typer.Exit(0 if last.state == Phase.PROMOTED.value else EXIT_FAILURE)
    if action == "status":
        status = rollout_status(asyncio.run(_read(client, key)))
        answer(status, output, lambda: print_whole(stdout(), picture(status)))
        return
    status = asyncio.run(_change(client, key, action, seconds))
    text = f"canary/{name}: {status.message}"
    answer(status, output, lambda: stdout().print(text, soft_wrap=True))


async def _read(client: Client, key: Key) -> Object:
    """Return a Canary. Raises HeadgateError, with the names of the Canaries in the namespace, if it does not exist."""
    async with contextlib.aclosing(watch_object(client, CANARY, key.namespace, key.name)) as updates:
        obj = await anext(updates)
    if obj is None:
        items, _ = await client.items(CANARY, key.namespace)
        names = ", ".join(sorted(canary["metadata"]["name"] for canary in items))
        raise NotFound(f"{key} not found; the Canaries in namespace {key.namespace} are: {names or 'none'}")
    return obj


async def _watch(client: Client, key: Key) -> RolloutStatus:
    """Show a rollout until it ends. Raises HeadgateError if the Canary is deleted."""
    _check_analysis(key, await _read(client, key))

    async def statuses() -> AsyncGenerator[RolloutStatus]:
        async with contextlib.aclosing(watch_object(client, CANARY, key.namespace, key.name)) as updates:
            async for obj in updates:
                if obj is None:
                    raise HeadgateError(f"{key} was deleted")
                yield rollout_status(obj)

    async with contextlib.aclosing(statuses()) as updates:
        return await show(updates)


async def _change(client: Client, key: Key, change: Change, seconds: float) -> RolloutStatus:
    """Write a change, and return the status in which the control plane has obeyed. Raises TimedOut."""
    obj = await _read(client, key)
    check_change(key, obj, change)
    patch = patch_for(change, obj, secrets.token_hex(4))
    written = await client.merge(path_of(CANARY, key.namespace, key.name), patch)
    updates = watch_object(client, CANARY, key.namespace, key.name)
    with contextlib.suppress(TimeoutError), Status(f"waiting for {key}", console=stderr()):
        async with asyncio.timeout(seconds), contextlib.aclosing(updates):
            async for current in updates:
                if current and _obeyed(key, current, patch["spec"].get("request"), generation_of(written)):
                    return rollout_status(current)
    raise TimedOut(
        f"the change was written to {key}, but no control plane has obeyed it after {seconds:g} s; `headgate status` "
        "shows whether one runs, and it obeys when it starts"
    )


def _obeyed(key: Key, obj: Object, request: object, generation: int) -> bool:
    """Return whether the status is at least of a generation and of a request. Raises HeadgateError if it never will be."""
    status = rollout_status(obj)
    if generation_of(obj) < generation or not status.is_current:
        return False
    if request and obj["spec"].get("request") != request:
        raise HeadgateError(f"another request has replaced this one at {key}: {status.message}")
    return True


def patch_for(change: Change, obj: Object, request_id: str) -> dict[str, Any]:
    """Return the merge patch of a change. A rollout whose split was edited needs a request to resume, too."""
    spec: dict[str, Any] = {"paused": change == "pause"} if change in ("pause", "resume") else {}
    if change != "pause" and (change != "resume" or state_in(obj).pause is Pause.EDITED):
        spec["request"] = {"action": Action(change.title()).value, "id": request_id}
    return {"spec": spec}


def check_change(key: Key, obj: Object, change: Change) -> None:
    """Raise HeadgateError for a change without an effect, with the change that has the wanted effect."""
    _check_analysis(key, obj)
    status = rollout_status(obj)
    if status.state == INVALID:
        raise HeadgateError(f"{key} has no rollout: {status.message}")
    if status.is_over and change != "restart":
        again = f"`headgate rollout restart {key.name}` begins with the first step again"
        raise HeadgateError(f"the rollout of {key} is already {status.state} ({status.message}); {again}")
    if change == "resume" and state_in(obj).pause is Pause.GATE:
        raise HeadgateError(f"{key} has passed its step; `headgate rollout promote {key.name}` begins the next one")


def _check_analysis(key: Key, obj: Object) -> None:
    if not obj["spec"].get("analysis"):
        raise HeadgateError(
            f"{key} has no rollout, because it has no spec.analysis: change the weights of spec.backends"
        )
