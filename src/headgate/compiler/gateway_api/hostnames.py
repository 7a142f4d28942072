"""Host names and wildcards as the Gateway API compares them: `*`, `*.example.com` or a full name, in lower case.

A wildcard stands for one label or more: `*.example.com` covers `a.b.example.com` and does not cover `example.com`.
"""

from collections.abc import Container, Iterator, Sequence

ANY_HOST = "*"


def covers(pattern: str, host: str) -> bool:
    """Say whether every name that `host` stands for is one that `pattern` stands for."""
    if pattern in {ANY_HOST, host}:
        return True
    return pattern.startswith("*.") and host.endswith(pattern[1:])


def intersection(first: str, second: str) -> str:
    """Return the names that both stand for, which is one of the two; empty when there are none."""
    if covers(first, second):
        return second
    return first if covers(second, first) else ""


def covering(host: str) -> Iterator[str]:
    """Yield everything that covers a host, the most specific first: itself, wildcards for it, `*`."""
    labels = host.split(".")
    yield host
    yield from (f"*.{'.'.join(labels[count:])}" for count in range(2 if labels[0] == "*" else 1, len(labels)))
    if host != ANY_HOST:
        yield ANY_HOST


def owner(patterns: Container[str], host: str) -> str:
    """Return the most specific pattern that covers a host: it takes the request alone (listener isolation).

    Empty when there is none.
    """
    return next((pattern for pattern in covering(host) if pattern in patterns), "")


def attached_hosts(listener: str, written: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts of a listener that a route is for; a route that names none is for all of them."""
    found = (intersection(listener, host.lower()) for host in written or (ANY_HOST,))
    return tuple(dict.fromkeys(host for host in found if host))
