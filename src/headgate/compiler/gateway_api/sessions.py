"""Compile the sessionPersistence of rules (GEP-1619)."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.durations import milliseconds
from headgate.model.sessions import PersistentSession
from headgate.resources.gateway_api.route_checks import session_causes
from headgate.resources.meta import Key

FIELD = "sessionPersistence"


def session_of(written: object, origin: Key, rule: str) -> PersistentSession | None:
    """Return the sessions of a rule; None without any, and if the field of a stored object has a mistake.

    Without a sessionName, sessions have a name that no other rule has.
    """
    if not isinstance(written, Mapping) or any(session_causes(written, "")):
        return None
    digest = hashlib.sha256(f"{origin}/{rule}".encode()).hexdigest()[:8]
    name = str(written.get("sessionName") or f"headgate-session-{digest}")
    if written.get("type") == "Header":
        return PersistentSession(kind="header", name=name)
    return PersistentSession(kind="cookie", name=name, seconds=_seconds(written) if _is_permanent(written) else 0)


def session_findings(written: object, origin: Key, where: str) -> Iterator[Finding]:
    """Yield a finding about a timeout that proxies don't enforce."""
    if isinstance(written, Mapping) and written.get("absoluteTimeout") and not _is_permanent(written):
        message = (
            "a session ends only when its endpoint is gone, or when the client drops its token; for a timeout, use the type "
            "Cookie with cookieConfig.lifetimeType Permanent"
        )
        yield Finding(origin, Reason.FIELD_IGNORED, f"{where}.absoluteTimeout", message)


def _is_permanent(written: Mapping[str, Any]) -> bool:
    return (written.get("cookieConfig") or {}).get("lifetimeType") == "Permanent"


def _seconds(written: Mapping[str, Any]) -> int:
    return -(-milliseconds(written["absoluteTimeout"]) // 1000)
