"""Compile the sessionPersistence of rules and of policies (GEP-1619)."""

import hashlib
from collections.abc import Iterator, Mapping

from msgspec import structs

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.durations import milliseconds
from headgate.errors import DecodeError
from headgate.model.sessions import PersistentSession
from headgate.resources.decode import read
from headgate.resources.gateway_api.route_checks import session_causes
from headgate.resources.gateway_api.routes import SessionPersistence
from headgate.resources.meta import Key

FIELD = "sessionPersistence"


def session_of(written: object, origin: Key, rule: str) -> PersistentSession | None:
    """Return the sessions of a rule; None without any, and if the field of a stored object has a mistake.

    Without a sessionName, sessions have a name that no other rule has.
    """
    persistence = _read(written)
    if persistence is None:
        return None
    return _session(persistence, persistence.session_name or f"headgate-session-{_digest(f'{origin}/{rule}')}")


def session_of_service(persistence: SessionPersistence, service: str, *, shared: bool) -> PersistentSession:
    """Return the sessions of a Service (`namespace/name`) by its policy, whose sessionPersistence has no mistake.

    Without a sessionName, sessions have a name that no other Service has; with one that several Services share, that name
    has an addition.
    """
    suffix = "" if persistence.session_name and not shared else f"-{_digest(service)}"
    session = _session(persistence, f"{persistence.session_name or 'headgate-session'}{suffix}")
    return structs.replace(session, all_paths=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _session(persistence: SessionPersistence, name: str) -> PersistentSession:
    if persistence.type == "Header":
        return PersistentSession(kind="header", name=name)
    seconds = -(-milliseconds(persistence.absolute_timeout) // 1000) if persistence.is_permanent else 0
    return PersistentSession(kind="cookie", name=name, seconds=seconds)


def session_findings(written: object, origin: Key, where: str) -> Iterator[Finding]:
    """Yield a finding about a timeout in a rule that proxies don't enforce."""
    if persistence := _read(written):
        yield from timeout_findings(persistence, origin, where)


def timeout_findings(persistence: SessionPersistence, origin: Key, where: str) -> Iterator[Finding]:
    """Yield a finding about a timeout that proxies don't enforce."""
    if persistence.absolute_timeout and not persistence.is_permanent:
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
