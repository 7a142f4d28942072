"""`headgate ca`: the mesh's certificate authority, and the replacement of its root (docs/certificates.md)."""

import asyncio
import contextlib
import secrets
import sys
import time
from typing import Annotated, Literal, NamedTuple

import msgspec
import typer
from rich.status import Status

from headgate.cli.arguments import Kubeconfig, Output, State
from headgate.cli.connection import find_api
from headgate.cli.output import Format, TimedOut, answer, stderr, stdout
from headgate.cli.wait import read_duration, states
from headgate.errors import HeadgateError, NotFound
from headgate.figures import counted
from headgate.identity.notice import CONFIG_MAP, ROOTS, ROTATE, STATUS, Notice
from headgate.identity.rotation import Phase
from headgate.kubernetes.client import Client, path_of
from headgate.resources import registry
from headgate.resources.meta import Object, timestamp

STEPS = {
    Phase.STABLE: "no rotation is under way",
    Phase.TRUST_NEW: "1 of 3: every proxy learns to believe the new root",
    Phase.SIGN_NEW: "2 of 3: the new root signs; every proxy gets a certificate of it",
    Phase.DROP_OLD: "3 of 3: every proxy forgets the old root",
}

BEGIN_S = 20.0


class Shown(NamedTuple):
    """The ConfigMap that tells of the authority."""

    notice: Notice
    roots: str


What = Annotated[
    Literal["status", "rotate", "roots"],
    typer.Argument(
        metavar="status|rotate|roots",
        help="Show the roots and what a rotation waits for; begin to replace the root; or print the roots as PEM.",
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Of rotate: return when the old root is gone.")]
Timeout = Annotated[str, typer.Option("--timeout", help="Of rotate --wait: how long, as in 20s or 5m.")]


def ca(
    action: What = "status",
    *,
    wait: Wait = False,
    timeout: Timeout = "5m",
    output: Output = Format.TABLE,
    kubeconfig: Kubeconfig = None,
    state: State = None,
) -> None:
    """Show the mesh's certificate authority, or replace its root without a lost call."""
    seconds = read_duration(timeout)
    client = find_api(kubeconfig, state)
    asked = _rotate(client, seconds if wait else 0.0) if action == "rotate" else _get(client)
    shown = asyncio.run(asked)
    if action == "roots":
        sys.stdout.write(shown.roots)
    else:
        answer(shown.notice, output, lambda: _print(shown.notice))


async def _get(client: Client) -> Shown:
    try:
        return read(await client.get(path_of(registry.CONFIG_MAP, CONFIG_MAP.namespace, CONFIG_MAP.name)))
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
            f"{CONFIG_MAP} does not say how the authority is ({error}); delete it, and headgate writes it again"
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
    await client.merge(path_of(registry.CONFIG_MAP, CONFIG_MAP.namespace, CONFIG_MAP.name), patch)
    return await _answered(client, before.notice.answered, seconds)


async def _answered(client: Client, before: str, seconds: float) -> Shown:
    """Watch until another rotation than `before` has begun; with `seconds`, until it ends.

    Raises TimedOut that says how far it was.
    """
    words, mine, limit = "the authority has not said anything", "", seconds or BEGIN_S
    following = states(client, registry.CONFIG_MAP, CONFIG_MAP.namespace, CONFIG_MAP.name)
    with contextlib.suppress(TimeoutError), Status("rotating", console=stderr()) as status:
        async with asyncio.timeout(limit), contextlib.aclosing(following):
            async for obj in following:
                if obj is None:
                    continue
                shown = read(obj)
                if shown.notice.answered != before:
                    mine = mine or shown.notice.answered
                    over = shown.notice.phase == Phase.STABLE or shown.notice.answered != mine  # the next one has begun
                    if over or not seconds:
                        return shown
                words = "; ".join(_words(shown.notice))
                status.update(words)
    raise TimedOut(f"the rotation is asked for, and goes on; after {limit:g} s: {words}")


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
    lines = [f"rotation: {step}", f"certificates: {counted(notice.certificates, 'proxy has one', 'proxies have one')}"]
    if notice.waits:
        more = notice.waits - len(notice.waiting)
        names = ", ".join(notice.waiting) + (f" and {more} more" if more else "")
        lines.append(f"waiting for {counted(notice.waits, 'proxy', 'proxies')}: {names}")
    if notice.fault:
        lines.append(f"fault: {notice.fault}")
    lines += [f"{node}: {fault}" for node, fault in notice.faults.items()]
    if notice.faulty > len(notice.faults):
        lines.append(f"and {notice.faulty - len(notice.faults)} proxies more have no new certificate")
    return lines
