"""Shell completion of object names, from the API that the options on the command line select.

If the API does not respond within a second, completion offers no names and prints no error.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TypeAlias

import typer

from headgate.cli.arguments import ApiOptions
from headgate.cli.connection import find_api
from headgate.cli.inspect_client import InspectClient, display_name
from headgate.errors import HeadgateError
from headgate.kinds import GATEWAY, MESH, names_of
from headgate.kubernetes.client import Client
from headgate.resources.inspect import TYPES
from headgate.resources.kind import Kind
from headgate.resources.pod_templates import TEMPLATED_KINDS
from headgate.resources.registry import find
from headgate.resources.request_spec import CALLER_KINDS

TIMEOUT_S = 1.0
_KINDS_WITH_LOGS = (*((kind.group, kind.kind) for kind in TEMPLATED_KINDS if kind.kind != "CronJob"), ("", "Pod"))
_CALLER_KINDS = tuple((names_of(kind).group, kind) for kind in CALLER_KINDS)

Query: TypeAlias = Callable[[Client, str], Awaitable[Iterable[str]]]
"""A function that returns the candidates, with an API client and a namespace as arguments."""
Completion: TypeAlias = Callable[[typer.Context, str], list[str]]
"""A function that returns the candidates for an incomplete word."""


def proxy_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a proxy: gateway, or NAMESPACE/POD."""

    async def query(client: Client, _namespace: str) -> Iterable[str]:
        return [display_name(proxy.node) for proxy in await InspectClient(client).proxies()]

    return _complete(ctx, incomplete, query)


def types(incomplete: str) -> list[str]:
    """Complete a type of Envoy resources."""
    return [name for name in TYPES if name.startswith(incomplete)]


def pods_with_logs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a pod, or KIND/NAME of an object that has pods."""
    if "/" in incomplete:
        return objects(ctx, incomplete, _KINDS_WITH_LOGS)

    async def query(client: Client, namespace: str) -> Iterable[str]:
        return [*(f"{word}/" for word in _kind_names(_KINDS_WITH_LOGS)), *await _names(client, "", "Pod", namespace)]

    return _complete(ctx, incomplete, query)


def callers(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete KIND/NAME of a caller: a Deployment, a ServiceAccount or a pod."""
    return objects(ctx, incomplete, _CALLER_KINDS)


def pod_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete pod/NAME."""
    return objects(ctx, incomplete, (("", "Pod"),))


def gateways(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete gateway/NAME."""
    return objects(ctx, incomplete, ((GATEWAY, "Gateway"),))


def canaries(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a Canary."""

    async def query(client: Client, namespace: str) -> Iterable[str]:
        return await _names(client, MESH, "Canary", namespace)

    return _complete(ctx, incomplete, query)


def of_kinds(kinds: Iterable[Kind]) -> Completion:
    """Return a completion of KIND/NAME."""
    names = [(kind.group, kind.kind) for kind in kinds]
    return lambda ctx, incomplete: objects(ctx, incomplete, names)


def objects(ctx: typer.Context, incomplete: str, kinds: Collection[tuple[str, str]]) -> list[str]:
    """Complete KIND/NAME: first the kind, then the name."""
    word, slash, _ = incomplete.partition("/")
    if not slash:
        return [f"{word_of_kind}/" for word_of_kind in _kind_names(kinds) if word_of_kind.startswith(incomplete)]

    async def query(client: Client, namespace: str) -> Iterable[str]:
        chosen = [(group, kind) for group, kind in kinds if kind.lower() == word]
        return [f"{word}/{name}" for group, kind in chosen for name in await _names(client, group, kind, namespace)]

    return _complete(ctx, incomplete, query)


def _kind_names(kinds: Iterable[tuple[str, str]]) -> list[str]:
    return [kind.lower() for _, kind in kinds]


async def _names(client: Client, group: str, kind: str, namespace: str) -> list[str]:
    stored_kind = find(group, kind)
    items, _ = await client.items(stored_kind, namespace) if stored_kind else ([], "")
    return [obj["metadata"]["name"] for obj in items]


def _complete(ctx: typer.Context, incomplete: str, query: Query) -> list[str]:
    try:
        given = {name: value for name, value in ctx.params.items() if name in ApiOptions._fields and value}
        client = find_api(ApiOptions(**given))
        words = asyncio.run(_with_timeout(query(client, ctx.params.get("namespace") or client.namespace)))
    except (HeadgateError, TimeoutError):
        return []
    return [word for word in words if word.startswith(incomplete)]


async def _with_timeout(answer: Awaitable[Iterable[str]]) -> Iterable[str]:
    async with asyncio.timeout(TIMEOUT_S):
        return await answer
