"""`headgate ca`: show the certificate authority of the mesh, or rotate its root (docs/tasks/certificates.md)."""

import asyncio
import contextlib
import secrets
import sys
import time
from typing import Annotated, Literal, NamedTuple

import msgspec
import typer
from rich.status import Status

from headgate.cli.arguments import ApiOptions, with_api_options
from headgate.cli.common_options import Output, duration
from headgate.cli.connection import find_api
from headgate.cli.output import Format, TimedOut, answer, stderr, stdout, usage_error
from headgate.cli.wait import FIRST_ANSWER_S, watch_object
from headgate.errors import HeadgateError, NotFound
from headgate.formatting import pluralize
from headgate.kubernetes.client import Client, path_of
from headgate.resources import registry
from headgate.resources.authority_status import CONFIG_MAP, ROOTS, ROTATE, STATUS, CaStatus, RotationPhase
from headgate.resources.meta import Object, timestamp

STEPS = {
    RotationPhase.UNKNOWN: "not known until the keys can be read",
    RotationPhase.STABLE: "no rotation is in progress",
    RotationPhase.TRUST_NEW: "1 of 3: every proxy starts to trust the new root",
    RotationPhase.SIGN_NEW: "2 of 3: every proxy gets a certificate signed by the new root",
    RotationPhase.DROP_OLD: "3 of 3: the old root is removed from every proxy",
}

START_S = 20.0  # seconds to wait for the start of a rotation


class AuthorityState(NamedTuple):
    """The content of the ConfigMap that describes the certificate authority; `roots` has root certificates in PEM."""

    notice: CaStatus
    roots: str


Action = Annotated[
    Literal["status", "rotate", "roots"],
    typer.Argument(
        metavar="[status|rotate|roots]",
        help="status: show the root certificates and the rotation. rotate: start to replace the root. roots: print the roots as PEM.",
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="With rotate: wait until the old root is removed from every proxy.")]
Timeout = Annotated[
    str, typer.Option("--timeout", metavar="DURATION", help="With rotate --wait: the longest time to wait.")
]


@with_api_options
def ca(
    action: Action = "status",
    *,
    wait: Wait = False,
    timeout: Timeout = "5m",
    output: Output = Format.TABLE,
    api: ApiOptions,
) -> None:
    """Show the certificate authority of the mesh, or rotate its root. No request fails because of a rotation."""
    seconds = duration(timeout, "--timeout")
    if action == "roots" and output is not Format.TABLE:
        raise usage_error("`ca roots` prints PEM; for JSON or YAML use `ca status`", option="-o")
    client = find_api(api, changes=action == "rotate")
    work = _rotate(client, seconds if wait else 0.0) if action == "rotate" else _read_state(client)
    current = asyncio.run(work)
    if action == "roots":
        sys.stdout.write(current.roots)
    else:
        answer(current.notice, output, lambda: _print_status(current.notice))


async def _read_state(client: Client) -> AuthorityState:
    try:
        return authority_state(await client.get(path_of(registry.CONFIG_MAP, CONFIG_MAP.namespace, CONFIG_MAP.name)))
    except NotFound as error:
        raise HeadgateError(
            f"{CONFIG_MAP} does not exist: headgate is not installed, has no certificate authority, or has not started completely"
        ) from error


def authority_state(obj: Object) -> AuthorityState:
    """Return the authority's state from its ConfigMap. Raises HeadgateError when it can't be decoded."""
    data = obj.get("data") or {}
    try:
        return AuthorityState(msgspec.json.decode(data[STATUS], type=CaStatus), data[ROOTS])
    except (KeyError, TypeError, msgspec.DecodeError) as error:
        raise HeadgateError(
            f"{CONFIG_MAP} can't be decoded ({error}); delete it, and headgate creates the ConfigMap again"
        ) from error


async def _rotate(client: Client, seconds: float) -> AuthorityState:
    """Request a rotation; with `seconds`, wait until it ends. Raises HeadgateError, TimedOut."""
    before = await _read_state(client)
    if not before.notice.phase:
        raise HeadgateError(
            "headgate did not create this authority (--ca-cert): replace the root certificate where it was created, as docs/tasks/certificates.md describes"
        )
    request_id = f"{timestamp(time.time())} {secrets.token_hex(4)}"
    patch = {"metadata": {"annotations": {ROTATE: request_id}}}
    await client.merge(path_of(registry.CONFIG_MAP, CONFIG_MAP.namespace, CONFIG_MAP.name), patch)
    return await _wait_for_rotation(client, before.notice.answered, seconds)


async def _wait_for_rotation(client: Client, before: str, seconds: float) -> AuthorityState:
    """Watch the authority until the requested rotation has started; with `seconds`, until the rotation ends.

    `before` is the ID of the previous request that the authority answered. Raises TimedOut, with the progress so far.
    """
    progress, request, limit = "the control plane has not started the rotation", "", seconds or START_S
    end = asyncio.get_running_loop().time() + limit
    updates = watch_object(client, registry.CONFIG_MAP, CONFIG_MAP.namespace, CONFIG_MAP.name)
    with contextlib.suppress(TimeoutError), Status("rotating", console=stderr()) as status:
        async with asyncio.timeout(max(limit, FIRST_ANSWER_S)) as clock, contextlib.aclosing(updates):
            async for obj in updates:
                if obj is not None:
                    current = authority_state(obj)
                    if current.notice.phase != RotationPhase.UNKNOWN and current.notice.answered != before:
                        request = request or current.notice.answered
                        next_started = current.notice.answered != request
                        if current.notice.phase == RotationPhase.STABLE or next_started or not seconds:
                            return current
                    progress = "; ".join(_status_lines(current.notice))
                    status.update(progress)
                clock.reschedule(end)
    raise TimedOut(f"the rotation was requested and continues; its progress after {limit:g} s: {progress}")


def _print_status(notice: CaStatus) -> None:
    console = stdout()
    now = timestamp(time.time())
    for root in notice.roots:
        expired = " (expired)" if root.not_after < now else ""
        console.print(f"root {root.subject}{', signs certificates' if root.signs else ''}", soft_wrap=True)
        console.print(f"  SHA-256 {root.fingerprint}", soft_wrap=True)
        console.print(f"  valid from {root.not_before} until {root.not_after}{expired}", soft_wrap=True)
    for line in _status_lines(notice):
        console.print(line, soft_wrap=True)


def _status_lines(notice: CaStatus) -> list[str]:
    """Return the lines of the status: rotation, certificates and faults."""
    step = (
        STEPS[RotationPhase(notice.phase)]
        if notice.phase
        else "not available, because headgate did not create this authority (--ca-cert)"
    )
    lines = [
        f"rotation: {step}",
        f"certificates: {pluralize(notice.certificates, 'proxy has', 'proxies have')} a certificate",
    ]
    if notice.waits:
        more = notice.waits - len(notice.waiting)
        names = ", ".join(notice.waiting) + (f" and {more} more" if more else "")
        lines.append(f"waiting for {pluralize(notice.waits, 'proxy', 'proxies')}: {names}")
    if notice.distributing:
        lines.append("waiting for the API server and the volumes of pods to have the new root")
    if notice.fault:
        lines.append(f"error: {notice.fault}")
    lines += [f"{node}: {fault}" for node, fault in notice.faults.items()]
    if notice.faulty > len(notice.faults):
        lines.append(f"and {notice.faulty - len(notice.faults)} more proxies have no new certificate")
    return lines
