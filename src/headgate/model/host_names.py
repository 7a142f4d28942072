"""Match host names and server names (SNI) with the patterns of listeners and routes: the most specific pattern wins."""

from collections.abc import Collection

from headgate.model.routing import GatewayPort, HostRoutes, RouteTable, ServerName
from headgate.shared_map import SharedMap


def by_host(*hosts: HostRoutes) -> SharedMap[str, HostRoutes]:
    """Return hosts as the `hosts` of a GatewayPort."""
    return SharedMap({host.host: host for host in hosts})


def best_name(patterns: Collection[str], host: str) -> str | None:
    """Return the most specific pattern that matches a host; None if there is none. Patterns are in lower case."""
    return next(iter(fitting_names(patterns, host)), None)


def fitting_names(patterns: Collection[str], host: str) -> list[str]:
    """Return the patterns that match a host, the most specific first: exact name, longest wildcard, `*`.

    `patterns` is a set or a mapping of patterns in lower case. The time does not depend on their number.
    """
    return [pattern for pattern in matching_patterns(host) if pattern in patterns]


def matching_patterns(host: str) -> list[str]:
    """Return all patterns in lower case that match a host, or all names of a wildcard, the most specific first."""
    host = host.lower()
    labels = host.split(".")
    wildcards = (f"*.{'.'.join(labels[index:])}" for index in range(1, len(labels)))
    return [pattern for pattern in dict.fromkeys((host, *wildcards, "*")) if host_fits(pattern, host)]


def host_fits(pattern: str, host: str) -> bool:
    """Return whether a pattern matches a host, or all names of a wildcard. Both are in lower case.

    `*.example.com` matches names with one or more additional labels, `*` matches all names.
    """
    if not pattern.startswith("*"):
        return pattern == host
    return len(host) >= len(pattern) and host.endswith(pattern[1:]) if pattern != "*" else True


def without_port(authority: str) -> str:
    """Return the host of an authority."""
    host, colon, port = authority.rpartition(":")
    return host if colon and (port.isdigit() or not port) else authority


def server_name_entry(port: GatewayPort | RouteTable, name: str) -> ServerName | None:
    """Return the entry of a TLS listener or Service port for a connection's server name.

    Return None if the connection belongs to an HTTPS listener, or to no listener; or if the Service port has no entries.
    """
    by_host = {entry.host: entry for entry in port.server_names}
    ended = (host for host, _ in port.tls) if isinstance(port, GatewayPort) else ()
    return by_host.get(best_name({*by_host, *ended}, name) or "")
