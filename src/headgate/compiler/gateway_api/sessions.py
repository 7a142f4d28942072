"""Compile the sessionPersistence of rules and of policies (GEP-1619)."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping

from msgspec import structs

from headgate.compiler.reasons import Reason
from headgate.compiler.references import service_key
from headgate.compiler.report import Finding
from headgate.compiler.service_sessions import callees, split_sessions
from headgate.durations import milliseconds
from headgate.errors import DecodeError
from headgate.model.routing import Split
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


def session_of_service(persistence: SessionPersistence, service: str) -> PersistentSession:
    """Return the sessions of a Service (`namespace/name`) by its policy, whose sessionPersistence has no mistake.

    Their name always ends in a digest of the Service: policies of several Services can have one sessionName, and a rule can
    lead to all of them.
    """
    name = f"{persistence.session_name or 'headgate-session'}-{_digest(service)}"
    return structs.replace(_session(persistence, name), service=service)


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


def policy_findings(
    splits: Iterable[Split], sessions: Mapping[str, PersistentSession], origin: Key, field: str
) -> Iterator[Finding]:
    """Yield the findings about policies of Services whose sessions a rule without sessions of its own does not keep.

    `splits` has those of the rule, and `field` is the path of its backends.
    """
    in_use = [split for split in splits if not split.sticky]
    for service in sorted({name for split in in_use for name in split_sessions(split, sessions).lost}):
        message = (
            f"Service {service} keeps no sessions by a header here, because the rule divides its backends by filters, or has "
            "backends besides them; use the type Cookie in its XBackendTrafficPolicy, or give it a rule without them"
        )
        yield Finding(origin, Reason.FIELD_IGNORED, field, message, (service_key(service),))
    for service, several in sorted({pair for split in in_use for pair in _ambiguous(split, sessions)}):
        first, *others = several
        message = (
            f"requests reach Service {service} by {' and '.join(several)}, each with an XBackendTrafficPolicy: all of them "
            f"have the sessions of {first}; give {' and '.join(others)} a rule of its own"
        )
        yield Finding(origin, Reason.FIELD_IGNORED, field, message, tuple(service_key(name) for name in several))


def _ambiguous(split: Split, sessions: Mapping[str, PersistentSession]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each backend that is called by several Services with sessions, and these Services."""
    for target in split.targets:
        several = tuple(name for name in callees(target) if name in sessions)
        if len(several) > 1:
            yield target.ref.service, several


def _read(written: object) -> SessionPersistence | None:
    """Return the field as written; None if it is missing, or if that of a stored object has a mistake."""
    if not isinstance(written, Mapping) or any(session_causes(written, "")):
        return None
    try:
        return read(written, SessionPersistence)
    except DecodeError:
        return None
