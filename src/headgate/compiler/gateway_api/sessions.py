"""Compile the sessionPersistence of rules (GEP-1619)."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Literal

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.durations import milliseconds
from headgate.errors import DecodeError
from headgate.model.sessions import PersistentSession
from headgate.resources.decode import read
from headgate.resources.gateway_api.route_checks import session_causes
from headgate.resources.meta import Input, Key

FIELD = "sessionPersistence"


class CookieConfig(Input, frozen=True, kw_only=True):
    """The lifetime of a cookie."""

    lifetime_type: Literal["Session", "Permanent"] = "Session"


class SessionPersistence(Input, frozen=True, kw_only=True):
    """The sessionPersistence of a rule without mistakes."""

    session_name: str = ""
    absolute_timeout: str = ""
    type: Literal["Cookie", "Header"] = "Cookie"
    cookie_config: CookieConfig = CookieConfig()

    @property
    def is_permanent(self) -> bool:
        """Whether the cookie and the session end after the timeout."""
        return self.cookie_config.lifetime_type == "Permanent"


def session_of(written: object, origin: Key, rule: str) -> PersistentSession | None:
    """Return the sessions of a rule; None without any, and if the field of a stored object has a mistake.

    Without a sessionName, sessions have a name that no other rule has.
    """
    persistence = _read(written)
    if persistence is None:
        return None
    digest = hashlib.sha256(f"{origin}/{rule}".encode()).hexdigest()[:8]
    name = persistence.session_name or f"headgate-session-{digest}"
    if persistence.type == "Header":
        return PersistentSession(kind="header", name=name)
    seconds = -(-milliseconds(persistence.absolute_timeout) // 1000) if persistence.is_permanent else 0
    return PersistentSession(kind="cookie", name=name, seconds=seconds)


def session_findings(written: object, origin: Key, where: str) -> Iterator[Finding]:
    """Yield a finding about a timeout that proxies don't enforce."""
    persistence = _read(written)
    if persistence and persistence.absolute_timeout and not persistence.is_permanent:
        message = (
            "a session ends only when its endpoint is gone, or when the client drops its token; for a timeout, use the type "
            "Cookie with cookieConfig.lifetimeType Permanent"
        )
        yield Finding(origin, Reason.FIELD_IGNORED, f"{where}.absoluteTimeout", message)


def _read(written: object) -> SessionPersistence | None:
    """Return the field as written; None if it is missing, or if that of a stored object has a mistake."""
    if not isinstance(written, Mapping) or any(session_causes(written, "")):
        return None
    try:
        return read(written, SessionPersistence)
    except DecodeError:
        return None
