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
from headgate.cli.wait import parse_duration, watch_object
from headgate.errors import HeadgateError, NotFound
from headgate.formatting import pluralize
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

START_S = 20.0


class AuthorityState(NamedTuple):
    """The ConfigMap that tells of the authority."""

    notice: Notice
    roots: str


Action = Annotated[
    Literal["status", "rotate", "roots"],
    typer.Argument(
        metavar="status|rotate|roots",
        help="Show the roots and what a rotation waits for; begin to replace the root; or print the roots as PEM.",
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Of rotate: return when the old root is gone.")]
Timeout = Annotated[str, typer.Option("--timeout", help="Of rotate --wait: how long, as in 20s or 5m.")]


def ca(
    action: Action = "status",
    *,
    wait: Wait = False,
    timeout: Timeout = "5m",
    output: Output = Format.TABLE,
    kubeconfig: Kubeconfig = None,
    state: State = None,
) -> None:
    """Show the mesh's certificate authority, or replace its root without a lost call."""
    seconds = parse_duration(timeout)
    client = find_api(kubeconfig, state)
    request_id = _rotate(client, seconds if wait else 0.0) if action == "rotate" else _read_state(client)
    current = asyncio.run(request_id)
    if action == "roots":
        sys.stdout.write(current.roots)
    else:
        answer(current.notice, output, lambda: _print_status(current.notice))


async def _read_state(client: Client) -> AuthorityState:
    try:
        return authority_state(await client.get(path_of(registry.CONFIG_MAP, CONFIG_MAP.namespace, CONFIG_MAP.name)))
    except NotFound as error:
        raise HeadgateError(
            f"{CONFIG_MAP} does not exist: this headgate has no certificate authority, or is only just starting"
        ) from error


def authority_state(obj: Object) -> AuthorityState:
    """Return what the ConfigMap tells. Raises HeadgateError."""
    data = obj.get("data") or {}
    try:
        return AuthorityState(msgspec.json.decode(data[STATUS], type=Notice), data[ROOTS])
    except (KeyError, TypeError, msgspec.DecodeError) as error:
        raise HeadgateError(
            f"{CONFIG_MAP} does not say how the authority is ({error}); delete it, and headgate writes it again"
        ) from error


async def _rotate(client: Client, seconds: float) -> AuthorityState:
    """Ask for a rotation; with `seconds`, wait for its end."""
    before = await _read_state(client)
    if not before.notice.phase:
        raise HeadgateError(
            "the authority is not headgate's own: replace the root where it comes from (docs/certificates.md says in which order)"
        )
    request_id = f"{timestamp(time.time())} {secrets.token_hex(4)}"
    patch = {"metadata": {"annotations": {ROTATE: request_id}}}
    await client.merge(path_of(registry.CONFIG_MAP, CONFIG_MAP.namespace, CONFIG_MAP.name), patch)
    return await _wait_for_rotation(client, before.notice.answered, seconds)


async def _wait_for_rotation(client: Client, before: str, seconds: float) -> AuthorityState:
    """Watch until another rotation than `before` has begun; with `seconds`, until it ends.

    Raises TimedOut that says how far it was.
    """
    progress, mine, limit = "the authority has not said anything", "", seconds or START_S
    updates = watch_object(client, registry.CONFIG_MAP, CONFIG_MAP.namespace, CONFIG_MAP.name)
    with contextlib.suppress(TimeoutError), Status("rotating", console=stderr()) as status:
        async with asyncio.timeout(limit), contextlib.aclosing(updates):
            async for obj in updates:
                if obj is None:
                    continue
                current = authority_state(obj)
                if current.notice.answered != before:
                    mine = mine or current.notice.answered
                    over = (
                        current.notice.phase == Phase.STABLE or current.notice.answered != mine
                    )  # the next one has begun
                    if over or not seconds:
                        return current
                progress = "; ".join(_status_lines(current.notice))
                status.update(progress)
    raise TimedOut(f"the rotation is asked for, and goes on; after {limit:g} s: {progress}")


def _print_status(notice: Notice) -> None:
    console = stdout()
    now = timestamp(time.time())
    for root in notice.roots:
        expired = " (expired)" if root.not_after < now else ""
        console.print(f"root {root.subject}{', which signs' if root.signs else ''}", soft_wrap=True)
        console.print(f"  SHA-256 {root.fingerprint}", soft_wrap=True)
        console.print(f"  valid from {root.not_before} until {root.not_after}{expired}", soft_wrap=True)
    for line in _status_lines(notice):
        console.print(line, soft_wrap=True)


def _status_lines(notice: Notice) -> list[str]:
    """Return how the authority is, line by line."""
    step = STEPS[Phase(notice.phase)] if notice.phase else "the authority is not headgate's own"
    lines = [
        f"rotation: {step}",
        f"certificates: {pluralize(notice.certificates, 'proxy has one', 'proxies have one')}",
    ]
    if notice.waits:
        more = notice.waits - len(notice.waiting)
        names = ", ".join(notice.waiting) + (f" and {more} more" if more else "")
        lines.append(f"waiting for {pluralize(notice.waits, 'proxy', 'proxies')}: {names}")
    if notice.fault:
        lines.append(f"fault: {notice.fault}")
    lines += [f"{node}: {fault}" for node, fault in notice.faults.items()]
    if notice.faulty > len(notice.faults):
        lines.append(f"and {notice.faulty - len(notice.faults)} proxies more have no new certificate")
    return lines
