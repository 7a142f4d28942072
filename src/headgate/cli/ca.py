"""`headgate ca`: the mesh's certificate authority, and the replacement of its root (docs/certificates.md)."""

import asyncio
import contextlib
import enum
import os
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Callable
from typing import Annotated, NamedTuple

import msgspec
import typer
from rich.status import Status

from headgate.cli.arguments import Kubeconfig, Output, State
from headgate.cli.kubeconfig import find_api
from headgate.cli.output import Format, TimedOut, print_document, stderr, stdout
from headgate.cli.wait import PAUSE_S, read_duration
from headgate.errors import Gone, HeadgateError, NotFound
from headgate.identity.notice import CONFIG_MAP, ROOTS, ROTATE, STATUS, Notice
from headgate.identity.rotation import Phase
from headgate.kubernetes.client import Client, path_of
from headgate.resources.meta import Object
from headgate.resources.registry import Kind, find
from headgate.resources.times import timestamp

STEPS = {
    Phase.STABLE: "no rotation is under way",
    Phase.TRUST_NEW: "1 of 3: every proxy learns to believe the new root",
    Phase.SIGN_NEW: "2 of 3: the new root signs; every proxy gets a certificate of it",
    Phase.DROP_OLD: "3 of 3: every proxy forgets the old root",
}

BEGIN_S = 20.0


class Action(enum.StrEnum):
    """What to do."""

    STATUS = "status"
    ROTATE = "rotate"
    ROOTS = "roots"


class Shown(NamedTuple):
    """The ConfigMap that tells of the authority."""

    notice: Notice
    roots: str


What = Annotated[
    Action,
    typer.Argument(
        metavar="status|rotate|roots",
        help="Show the roots and who waits for whom; begin to replace the root; or print the roots as PEM.",
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Of rotate: return when the old root is gone.")]
Timeout = Annotated[str, typer.Option("--timeout", help="Of rotate --wait: how long, as in 20s or 5m.")]


def ca(
    action: What = Action.STATUS,
    *,
    wait: Wait = False,
    timeout: Timeout = "5m",
    output: Output = Format.TABLE,
    kubeconfig: Kubeconfig = None,
    state: State = None,
) -> None:
    """Show the mesh's certificate authority, or replace its root without a lost call."""
    seconds = read_duration(timeout)
    client = find_api(kubeconfig, state, os.environ)
    if action is Action.ROTATE:
        shown = asyncio.run(_rotate(client, seconds if wait else 0.0))
    else:
        shown = asyncio.run(_get(client))
    if action is Action.ROOTS:
        sys.stdout.write(shown.roots)
    elif output is Format.TABLE:
        _print(shown.notice)
    else:
        print_document(shown.notice, output)


async def _get(client: Client) -> Shown:
    try:
        return read(await client.get(path_of(_kind(), CONFIG_MAP.namespace, CONFIG_MAP.name)))
    except NotFound as error:
        raise HeadgateError(
            f"{CONFIG_MAP} does not exist: this headgate has no certificate authority, or is only just starting"
        ) from error


def read(obj: Object) -> Shown:
    """Return what the ConfigMap tells. Raises HeadgateError."""
    data = obj.get("data") or {}
    try:
        return Shown(msgspec.json.decode(data[STATUS], type=Notice), data[ROOTS])
    except (KeyError, TypeError, msgspec.DecodeError) as error:
        raise HeadgateError(
            f"{CONFIG_MAP} does not say how the authority is ({error}); delete it, and headgate writes it anew"
        ) from error


async def _rotate(client: Client, seconds: float) -> Shown:
    """Ask for a rotation; with `seconds`, wait for its end."""
    before = await _get(client)
    if not before.notice.phase:
        raise HeadgateError(
            "the authority is not headgate's own: replace the root where it comes from (docs/certificates.md says in which order)"
        )
    asked = f"{timestamp(time.time())} {secrets.token_hex(4)}"
    patch = {"metadata": {"annotations": {ROTATE: asked}}}
    await client.merge(path_of(_kind(), CONFIG_MAP.namespace, CONFIG_MAP.name), patch)

    return await _until(client, _Asked(before.notice.answered, to_the_end=seconds > 0), seconds or BEGIN_S)


class _Asked:
    """Says when a request is answered: when another rotation begins than was there before it, or when that ends."""

    def __init__(self, before: str, *, to_the_end: bool) -> None:
        self._before = before
        self._to_the_end = to_the_end
        self._mine = ""

    def __call__(self, notice: Notice) -> bool:
        if notice.answered == self._before:
            return False
        self._mine = self._mine or notice.answered
        over = notice.phase == Phase.STABLE or notice.answered != self._mine  # the next one may have begun already
        return over or not self._to_the_end


async def _until(client: Client, test: Callable[[Notice], bool], seconds: float) -> Shown:
    """Watch until the notice says something. Raises TimedOut that says how far it was."""
    words = "the authority has not said anything"
    with contextlib.suppress(TimeoutError), Status("rotating", console=stderr()) as status:
        async with asyncio.timeout(seconds), contextlib.aclosing(_states(client)) as states:
            async for shown in states:
                if test(shown.notice):
                    return shown
                words = "; ".join(_words(shown.notice))
                status.update(words)
    raise TimedOut(f"the rotation is asked for, and goes on; after {seconds:g} s: {words}")


async def _states(client: Client) -> AsyncGenerator[Shown]:
    """Yield the ConfigMap as it is, then as it becomes. Never ends."""
    only = {"fieldSelector": f"metadata.name={CONFIG_MAP.name}"}
    while True:
        items, revision = await client.items(_kind(), CONFIG_MAP.namespace, **only)
        for item in items:
            yield read(item)
        with contextlib.suppress(Gone):
            watch = client.watch(_kind(), CONFIG_MAP.namespace, resourceVersion=revision, **only)
            async with contextlib.aclosing(watch) as steps:
                async for step in steps:
                    if step.type in {"ADDED", "MODIFIED"}:
                        yield read(step.object)
        await asyncio.sleep(PAUSE_S)


def _print(notice: Notice) -> None:
    console = stdout()
    now = timestamp(time.time())
    for root in notice.roots:
        expired = " (expired)" if root.not_after < now else ""
        console.print(f"root {root.subject}{', which signs' if root.signs else ''}", soft_wrap=True)
        console.print(f"  SHA-256 {root.fingerprint}", soft_wrap=True)
        console.print(f"  valid from {root.not_before} until {root.not_after}{expired}", soft_wrap=True)
    for line in _words(notice):
        console.print(line, soft_wrap=True)


def _words(notice: Notice) -> list[str]:
    """Return how the authority is, line by line."""
    step = STEPS[Phase(notice.phase)] if notice.phase else "the authority is not headgate's own"
    lines = [f"rotation: {step}", f"certificates: {notice.certificates} proxies have one"]
    if notice.waits:
        lines.append(f"waiting for {notice.waits} proxies: {_names(notice)}")
    if notice.fault:
        lines.append(f"fault: {notice.fault}")
    lines += [f"{node}: {fault}" for node, fault in notice.faults.items()]
    if notice.faulty > len(notice.faults):
        lines.append(f"and {notice.faulty - len(notice.faults)} proxies more have no new certificate")
    return lines


def _names(notice: Notice) -> str:
    more = notice.waits - len(notice.waiting)
    return ", ".join(notice.waiting) + (f" and {more} more" if more else "")


def _kind() -> Kind:
    kind = find(CONFIG_MAP.group, CONFIG_MAP.kind)
    if kind is None:
        raise AssertionError("the registry has no ConfigMap")
    return kind
