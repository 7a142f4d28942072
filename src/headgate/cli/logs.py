"""`headgate logs`: print the logs of a pod, from the API."""

import asyncio
import contextlib
import sys
from typing import Annotated, Any

import typer

from headgate.cli.arguments import ApiOptions, parse_kind_and_name, with_api_options
from headgate.cli.common_options import Namespace
from headgate.cli.completion import pods_with_logs
from headgate.cli.connection import find_api
from headgate.cli.output import note, usage_error
from headgate.errors import NotFound
from headgate.kubernetes.client import Client, path_of
from headgate.resources.kind import Kind
from headgate.resources.meta import Object
from headgate.resources.pod_templates import TEMPLATED_KINDS
from headgate.resources.registry import POD, find

What = Annotated[
    str,
    typer.Argument(
        metavar="POD|KIND/NAME",
        help="The name of a pod; or KIND/NAME of a workload, such as deployment/web or job/sums, which selects a pod of it.",
        autocompletion=pods_with_logs,
    ),
]
Container = Annotated[
    str, typer.Option("-c", "--container", metavar="NAME", help="Print the logs of this container.", show_default=False)
]
Follow = Annotated[bool, typer.Option("--follow", help="Stream the logs until Ctrl-C.")]
Tail = Annotated[
    int, typer.Option("--tail", metavar="NUMBER", min=-1, help="Number of recent lines to show; -1 shows all.")
]
Previous = Annotated[
    bool, typer.Option("-p", "--previous", help="Print the logs of the previous run of the container.")
]

# A CronJob has no pods of its own: those of its Jobs have logs.
_KINDS = [POD, *(kind for name in TEMPLATED_KINDS if name.kind != "CronJob" and (kind := find(name.group, name.kind)))]


@with_api_options
def logs(
    what: What,
    *,
    namespace: Namespace = "",
    container: Container = "",
    follow: Follow = False,
    tail: Tail = -1,
    previous: Previous = False,
    api: ApiOptions,
) -> None:
    """Print the logs of a pod."""
    kind, name = parse_kind_and_name(what if "/" in what else f"pod/{what}", _KINDS)
    if kind not in _KINDS:
        raise usage_error(f"a {kind.kind} has no logs; write a pod, or KIND/NAME of a workload", option="POD")
    query = {
        "container": container,
        "follow": "true" if follow else "",
        "tailLines": str(tail) if tail >= 0 else "",
        "previous": "true" if previous else "",
    }
    client = find_api(api)
    asyncio.run(
        _logs(client, kind, (namespace or client.namespace, name), {key: text for key, text in query.items() if text})
    )


async def _logs(client: Client, kind: Kind, namespaced_name: tuple[str, str], query: dict[str, str]) -> None:
    namespace, name = namespaced_name
    pod = name if kind is POD else await _pod_of(client, kind, namespace, name)
    async with contextlib.aclosing(client.stream(path_of(POD, namespace, pod, "log"), **query)) as parts:
        async for part in parts:
            sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()


async def _pod_of(client: Client, kind: Kind, namespace: str, name: str) -> str:
    """Return the name of a workload's pod, preferably a ready one. Raises NotFound when it has none."""
    owner = await client.get(path_of(kind, namespace, name))
    chosen_by = (owner.get("spec") or {}).get("selector") or {}
    labels = chosen_by if kind.kind == "ReplicationController" else chosen_by.get("matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    pods, _ = await client.items(POD, namespace, labelSelector=selector)
    if not pods:
        raise NotFound(
            f"{kind.kind} {namespace}/{name} has no pod; see `kubectl describe {kind.kind.lower()} -n {namespace} {name}`"
        )
    chosen = str(min(pods, key=_rank)["metadata"]["name"])
    if len(pods) > 1:
        note(f"Found {len(pods)} pods, using pod/{chosen}")
    return chosen


def _rank(pod: Object) -> tuple[bool, str]:
    conditions: list[dict[str, Any]] = (pod.get("status") or {}).get("conditions") or []
    ready = any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
    return not ready, str(pod["metadata"]["name"])
