"""`headgate restart`: replace the pods of workloads, one workload after the other, so that they get new sidecars."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Annotated, NamedTuple

import typer
from rich.status import Status

from headgate.cli import completion
from headgate.cli.arguments import ApiOptions, parse_kind_and_name, with_api_options
from headgate.cli.common_options import AllNamespaces, duration
from headgate.cli.history import InNamespace, chosen_namespace, display_name
from headgate.cli.inspect_client import InspectClient
from headgate.cli.output import EXIT_FAILURE, TimedOut, note, stderr, stdout, usage_error
from headgate.cli.restart_plan import (
    due_workload,
    interruption,
    is_restartable,
    lagging,
    obstacle,
    restart_patch,
    rollout_progress,
    unsynchronized,
)
from headgate.cli.wait import Readiness, Timeout
from headgate.errors import HeadgateError, NotFound, Unavailable
from headgate.formatting import pluralize
from headgate.kubernetes.client import AccessDenied, Client, path_of
from headgate.resources.inspect import Proxy
from headgate.resources.kind import Kind
from headgate.resources.meta import Key, Object, precise_timestamp
from headgate.resources.registry import KINDS, find
from headgate.resources.workload_sidecars import WorkloadSidecars

POLL_S = 0.5  # Seconds between two looks at a workload that restarts.
_RESTARTABLE = tuple(kind for kind in KINDS if is_restartable(kind.key("", "")))

Workloads = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KIND/NAME...]",
        help="Restart these: deployment/NAME, statefulset/NAME or daemonset/NAME.",
        show_default=False,
        autocompletion=completion.of_kinds(_RESTARTABLE),
    ),
]
Outdated = Annotated[
    bool, typer.Option("--outdated", help="Restart the workloads that `headgate proxies --outdated` lists.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the workloads in their order; restart none.")]


class Restart(NamedTuple):
    """A workload to restart, as it is stored, or why it can't be restarted."""

    key: Key
    stored: Object | None
    obstacle: str = ""


@with_api_options
def restart(
    workloads: Workloads = None,
    *,
    outdated: Outdated = False,
    dry_run: DryRun = False,
    timeout: Timeout = "5m",
    namespace: InNamespace = "",
    all_namespaces: AllNamespaces = False,
    api: ApiOptions,
) -> None:
    """Restart workloads one after the other, as `kubectl rollout restart` does, so that their pods get new sidecars.

    After each workload, the command waits until its new pods are available and all proxies know them. --timeout is for each
    workload. The command stops at the first workload that is not ready in time; the exit code is then 124. It is 1 if
    outdated pods remain that a restart can't replace.
    """
    if not (workloads or outdated):
        raise usage_error(
            "name workloads as KIND/NAME, or select all outdated ones with --outdated", option="KIND/NAME"
        )
    if workloads and all_namespaces:
        raise usage_error("KIND/NAME is in one namespace; leave out -A", option="-A")
    named = [parse_kind_and_name(text, _RESTARTABLE) for text in workloads or ()]
    seconds = duration(timeout, "--timeout")
    inspect_client = InspectClient.of(api, changes=not dry_run)
    place = chosen_namespace(inspect_client, namespace, all_namespaces=all_namespaces)
    keys = [kind.key(place, name) for kind, name in named]
    choice = _Choice(place, keys, outdated)
    remaining = asyncio.run(_run(inspect_client, choice, seconds, dry_run=dry_run))
    for left in remaining:
        note(f"{_name(left.key, choice)} is not restarted: {left.obstacle}")
    if remaining:
        raise typer.Exit(EXIT_FAILURE)


class _Choice(NamedTuple):
    """The workloads that a user selects: those of `keys`, if there are any, and with `outdated` only outdated ones."""

    namespace: str
    keys: Sequence[Key]
    outdated: bool


async def _run(inspect_client: InspectClient, choice: _Choice, seconds: float, *, dry_run: bool) -> Sequence[Restart]:
    """Restart the chosen workloads, and return those that can't be restarted."""
    async with inspect_client.client as client:
        restarts = await chosen(inspect_client, choice.namespace, choice.keys, outdated=choice.outdated)
        blocked = [restart for restart in restarts if restart.obstacle]
        free = [restart for restart in restarts if not restart.obstacle]
        if choice.keys and blocked:
            first = blocked[0]
            raise HeadgateError(
                f"{display_name(first.key)} can't be restarted: {first.obstacle}; nothing was restarted"
            )
        if not restarts:
            note("no workload is outdated")
        for restart in free if dry_run else ():
            stdout().print(f"{_name(restart.key, choice)} would restart", soft_wrap=True)
        async for line in restarted(inspect_client, client, free if not dry_run else (), seconds):
            stdout().print(line, soft_wrap=True)
    return blocked


def _name(key: Key, choice: _Choice) -> str:
    return display_name(key, across=not choice.namespace)


async def chosen(
    inspect_client: InspectClient, namespace: str, keys: Sequence[Key], *, outdated: bool
) -> Sequence[Restart]:
    """Return the workloads of `keys`, or the outdated ones of a namespace. Raises NotFound for a missing workload that was named."""
    listed = {workload.object: workload for workload in await inspect_client.workload_sidecars(namespace)}
    stored = await stored_workloads(inspect_client.client, keys or [key for key in listed if listed[key].outdated])
    restarts = []
    for key, obj in stored.items():
        due = due_workload(listed[key], obj) if key in listed else None
        if keys and is_restartable(key) and obj is None:
            raise NotFound(
                f"{display_name(key)} in the namespace {namespace} not found; correct the name, or give its namespace with -n"
            )
        if due or not outdated:
            restarts.append(Restart(key, obj, due.advice_message if due else obstacle(key, obj)))
    return restarts


async def stored_workloads(client: Client, keys: Sequence[Key]) -> Mapping[Key, Object | None]:
    """Return the stored objects of workloads; None for kinds that are not restarted, and for objects that do not exist."""

    async def read(key: Key) -> Object | None:
        kind = _kind(key)
        try:
            return await client.get(path_of(kind, key.namespace, key.name)) if kind else None
        except NotFound:
            return None

    return {key: await read(key) for key in keys}


def _kind(key: Key) -> Kind | None:
    return find(key.group, key.kind) if is_restartable(key) else None


async def restarted(
    inspect_client: InspectClient, client: Client, restarts: Sequence[Restart], seconds: float
) -> AsyncIterator[str]:
    """Restart workloads one after the other, and yield a line for each. Raises HeadgateError that names those before and after."""
    done = list[str]()
    for number, restart in enumerate(restarts):
        name = f"{restart.key.namespace}/{display_name(restart.key)}"
        if restart.stored and (reason := interruption(restart.stored)):
            note(f"{name}: requests may fail, because {reason}")
        try:
            message = await _restart_one(inspect_client, client, restart.key, seconds)
        except HeadgateError as error:
            left = ", ".join(f"{later.key.namespace}/{display_name(later.key)}" for later in restarts[number + 1 :])
            text = f"{name}: {error}; restarted before: {', '.join(done) or 'none'}; not restarted: {left or 'none'}"
            raise (type(error) if isinstance(error, TimedOut | Unavailable) else HeadgateError)(text) from error
        done.append(name)
        yield f"{name} restarted: {message}"


async def _restart_one(inspect_client: InspectClient, client: Client, key: Key, seconds: float) -> str:
    """Restart a workload, and wait until it is ready. Raises TimedOut, HeadgateError with what to do."""
    kind = _kind(key)
    if kind is None:
        raise AssertionError("unreachable: other kinds have an obstacle")
    path = path_of(kind, key.namespace, key.name)
    title, message = f"restarting {display_name(key)}", "the API has not responded"
    await client.merge(path, restart_patch(precise_timestamp(time.time())))
    end, behind = asyncio.get_running_loop().time() + seconds, None
    with Status(title, console=stderr()) as spinner:
        while True:
            try:
                progress = rollout_progress({"kind": key.kind, **await client.get(path)})
                message = progress.message
                if progress.readiness is Readiness.FAILED:
                    raise HeadgateError(f"{message}; {_remedy(key)}")
                if progress.readiness is Readiness.READY:
                    late = lagging(await _proxies(inspect_client, key.namespace))
                    behind = late if behind is None else behind & late
                    workload = await _workload(inspect_client, key)
                    message = unsynchronized(workload, behind)
                    if not message:
                        return _checked(progress.message, workload)
            except Unavailable as error:  # a server may restart meanwhile, and the workload restarts without it
                message = str(error)
            spinner.update(f"{title}: {message}")
            if asyncio.get_running_loop().time() > end:
                raise TimedOut(f"not ready after {seconds:g} s: {message}; {_remedy(key)}")
            await asyncio.sleep(POLL_S)


def _checked(message: str, workload: WorkloadSidecars | None) -> str:
    """Return the message of a restarted workload. Raises HeadgateError if its new pods are outdated too."""
    if workload and workload.outdated:
        raise HeadgateError(
            f"its new pods are outdated too: {'; '.join(workload.messages)}; another admission webhook may change the sidecar,"
            " or an older replica of headgate injected the pods: see `headgate status`"
        )
    pods = [pod for pod in workload.pods if pod.sidecar] if workload else []
    return f"{message}, {pluralize(len(pods), 'sidecar')} in sync"


def _remedy(key: Key) -> str:
    place, name = f"kubectl -n {key.namespace}", f"{key.kind.lower()}/{key.name}"
    return f"see `{place} describe {name}` and its pods, or undo it: `{place} rollout undo {name}`"


async def _workload(inspect_client: InspectClient, key: Key) -> WorkloadSidecars | None:
    every = await inspect_client.workload_sidecars(key.namespace)
    return next((workload for workload in every if workload.object == key), None)


async def _proxies(inspect_client: InspectClient, namespace: str) -> Sequence[Proxy]:
    """Return all proxies, or those of the namespace if the user may not list all of them."""
    try:
        return await inspect_client.proxies()
    except AccessDenied:
        return await inspect_client.proxies(namespace)
