"""`headgate logs`: what a pod prints, from the API."""

import asyncio
import contextlib
import sys
from typing import Annotated, Any

import typer

from headgate.cli.arguments import Kubeconfig, Namespace, State, parse_kind_and_name
from headgate.cli.completion import pods_with_logs
from headgate.cli.connection import find_api
from headgate.cli.output import note, usage_error
from headgate.errors import NotFound
from headgate.kubernetes.client import Client, path_of
from headgate.resources.meta import Object
from headgate.resources.registry import POD, Kind

What = Annotated[
    str,
    typer.Argument(
        metavar="POD|KIND/NAME", help="A pod, or deployment/NAME for one of its pods.", autocompletion=pods_with_logs
    ),
]
Container = Annotated[str, typer.Option("-c", "--container", help="Which of the pod's containers.", show_default=False)]
Follow = Annotated[bool, typer.Option("-f", "--follow", help="Go on as more is printed, until Ctrl-C.")]
Tail = Annotated[int, typer.Option("--tail", min=-1, help="Only the last lines; -1 for all.")]
Previous = Annotated[bool, typer.Option("-p", "--previous", help="Of the run before the last restart.")]


def logs(
    what: What,
    *,
    namespace: Namespace = "",
    container: Container = "",
    follow: Follow = False,
    tail: Tail = -1,
    previous: Previous = False,
    kubeconfig: Kubeconfig = None,
    state: State = None,
) -> None:
    """Show what a pod prints."""
    kind, name = parse_kind_and_name(what if "/" in what else f"pod/{what}")
    if kind.kind not in {"Pod", "Deployment", "ReplicaSet"}:
        raise usage_error(f"a {kind.kind} prints nothing; name a pod, a deployment or a replicaset", option="POD")
    query = {
        "container": container,
        "follow": "true" if follow else "",
        "tailLines": str(tail) if tail >= 0 else "",
        "previous": "true" if previous else "",
    }
    client = find_api(kubeconfig, state)
    asyncio.run(
        _logs(client, kind, (namespace or client.namespace, name), {key: text for key, text in query.items() if text})
    )


async def _logs(client: Client, kind: Kind, place: tuple[str, str], query: dict[str, str]) -> None:
    namespace, name = place
    pod = name if kind is POD else await _pod_of(client, kind, namespace, name)
    async with contextlib.aclosing(client.stream(path_of(POD, namespace, pod, "log"), **query)) as parts:
        async for part in parts:
            sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()


async def _pod_of(client: Client, kind: Kind, namespace: str, name: str) -> str:
    """Return a pod of a deployment or replicaset: a ready one where there is one. Raises NotFound."""
    owner = await client.get(path_of(kind, namespace, name))
    labels = ((owner.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    pods, _ = await client.items(POD, namespace, labelSelector=selector)
    if not pods:
        raise NotFound(
            f"{kind.kind} {namespace}/{name} has no pod now; `kubectl describe {kind.kind.lower()} {name}` may say why"
        )
    chosen = str(min(pods, key=_rank)["metadata"]["name"])
    if len(pods) > 1:
        note(f"found {len(pods)} pods, showing {chosen}")
    return chosen


def _rank(pod: Object) -> tuple[bool, str]:
    conditions: list[dict[str, Any]] = (pod.get("status") or {}).get("conditions") or []
    ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
    return not ready, str(pod["metadata"]["name"])
