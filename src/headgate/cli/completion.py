"""What the shell offers for names of objects: asked of the mesh that the options so far lead to, and never an error.

An answer that takes more than a second comes too late for the key that was pressed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TypeAlias

import typer

from headgate.cli.connection import find_api
from headgate.cli.inspection import Inspection, shown
from headgate.errors import HeadgateError
from headgate.kinds import GATEWAY
from headgate.kubernetes.client import Client
from headgate.resources.inspect import TYPES
from headgate.resources.registry import find

PATIENCE_S = 1.0
_PRINTING = (("apps", "Deployment"), ("apps", "ReplicaSet"), ("", "Pod"))
_CALLING = (("apps", "Deployment"), ("", "ServiceAccount"), ("", "Pod"))

Ask: TypeAlias = Callable[[Client, str], Awaitable[Iterable[str]]]
"""Returns words, by the API and the namespace that the options so far name."""


def proxy_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a proxy: gateway, or NAMESPACE/POD."""

    async def ask(client: Client, _namespace: str) -> Iterable[str]:
        return [shown(item.node) for item in await Inspection(client).proxies()]

    return _offered(ctx, incomplete, ask)


def types(incomplete: str) -> list[str]:
    """Complete a type of Envoy's resources."""
    return [name for name in TYPES if name.startswith(incomplete)]


def printing(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a pod, or KIND/NAME of an object with pods."""
    if "/" in incomplete:
        return objects(ctx, incomplete, _PRINTING)

    async def ask(client: Client, namespace: str) -> Iterable[str]:
        return [*(f"{word}/" for word in _words(_PRINTING)), *await _names(client, "", "Pod", namespace)]

    return _offered(ctx, incomplete, ask)


def callers(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete KIND/NAME of a workload that calls."""
    return objects(ctx, incomplete, _CALLING)


def gateways(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete gateway/NAME."""
    return objects(ctx, incomplete, ((GATEWAY, "Gateway"),))


def objects(ctx: typer.Context, incomplete: str, kinds: Collection[tuple[str, str]]) -> list[str]:
    """Complete the kind first, then the names of that kind."""
    word, slash, _ = incomplete.partition("/")
    if not slash:
        return [f"{known}/" for known in _words(kinds) if known.startswith(incomplete)]

    async def ask(client: Client, namespace: str) -> Iterable[str]:
        chosen = [(group, kind) for group, kind in kinds if kind.lower() == word]
        return [f"{word}/{name}" for group, kind in chosen for name in await _names(client, group, kind, namespace)]

    return _offered(ctx, incomplete, ask)


def _words(kinds: Iterable[tuple[str, str]]) -> list[str]:
    return [kind.lower() for _, kind in kinds]


async def _names(client: Client, group: str, kind: str, namespace: str) -> list[str]:
    found = find(group, kind)
    items, _ = await client.items(found, namespace) if found else ([], "")
    return [item["metadata"]["name"] for item in items]


def _offered(ctx: typer.Context, incomplete: str, ask: Ask) -> list[str]:
    try:
        client = find_api(ctx.params.get("kubeconfig"), ctx.params.get("state"))
        words = asyncio.run(_in_time(ask(client, ctx.params.get("namespace") or client.namespace)))
    except (HeadgateError, TimeoutError):
        return []
    return [word for word in words if word.startswith(incomplete)]


async def _in_time(answer: Awaitable[Iterable[str]]) -> Iterable[str]:
    async with asyncio.timeout(PATIENCE_S):
        return await answer
