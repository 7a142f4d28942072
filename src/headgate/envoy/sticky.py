"""How a proxy knows a user again: what it hashes to a slot (requirements 2.8; the slots are those of the model)."""

from collections.abc import Iterator

from headgate.envoy import pb
from headgate.model.filters import Sticky

COOKIE_DAYS = 30  # longer than a rollout takes; a browser that is closed in between stays on its side
_DAY = 24 * 60 * 60


def hash_policies(sticky: Sticky | None) -> Iterator[pb.RouteAction.HashPolicy]:
    """Yield what to hash of a request; nothing when users need not stay. Without a key, a request is drawn at random."""
    policy = pb.RouteAction.HashPolicy
    if sticky is None:
        return
    if sticky.kind == "header":
        yield policy(header=policy.Header(header_name=sticky.name))
    elif sticky.kind == "source":
        yield policy(connection_properties=policy.ConnectionProperties(source_ip=True))
    else:
        lifetime = pb.Duration(seconds=COOKIE_DAYS * _DAY)
        yield policy(cookie=policy.Cookie(name=sticky.name, ttl=lifetime, path="/"))
