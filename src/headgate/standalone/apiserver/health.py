"""`/livez`, `/healthz` and `/readyz`: whether the API answers, and whether what is written would be kept."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from starlette.datastructures import QueryParams
from starlette.responses import PlainTextResponse

from headgate.api.media import flag
from headgate.api.status import no_such_path
from headgate.errors import Unavailable

Check: TypeAlias = Callable[[], Awaitable[None]]
"""Returns when all is well; raises Unavailable with the reason when not."""

ENDPOINTS = ("healthz", "livez", "readyz")


async def _alive() -> None:
    """Return: a server that is asked is alive."""


async def health(parts: Sequence[str], query: QueryParams, store: Check) -> PlainTextResponse:
    """Answer `/ENDPOINT[/CHECK][?verbose][&exclude=CHECK]` as a Kubernetes API server does. Raises ApiError 404.

    Only readiness asks the store: a full disk is no reason to end the server.
    """
    endpoint, *chosen = parts
    checks: dict[str, Check] = {"ping": _alive} | ({"store": store} if endpoint == "readyz" else {})
    if chosen:
        if len(chosen) > 1 or chosen[0] not in checks:
            raise no_such_path()
        checks = {chosen[0]: checks[chosen[0]]}
    excluded = set(query.getlist("exclude"))
    reasons = {name: await _reason(check) for name, check in checks.items() if name not in excluded}
    verbose = "verbose" in query and (query["verbose"] == "" or flag(query, "verbose"))
    return _answer("/".join(parts), reasons, verbose=verbose)


async def _reason(check: Check) -> str:
    """Return why a check fails, nothing when it does not."""
    try:
        await check()
    except Unavailable as error:
        return str(error)
    return ""


def _answer(name: str, reasons: Mapping[str, str], *, verbose: bool) -> PlainTextResponse:
    lines = [f"[-]{check} failed: {reason}" if reason else f"[+]{check} ok" for check, reason in reasons.items()]
    if any(reasons.values()):
        return PlainTextResponse("\n".join([*lines, f"{name} check failed", ""]), status_code=500)
    return PlainTextResponse("\n".join([*lines, f"{name} check passed", ""]) if verbose else "ok")
