"""Who may do what with a workload (003, R68 to R70, D21): plain values; the workload's own proxy enforces them."""

from headgate.model.matching import Match
from headgate.resources.meta import Key, Value

AMBIGUOUS_PATH = r"//|/\.\.?(?:[/;]|%3[bB]|$)|\\|%(?:2[eEfF]|5[cC])"
"""Finds (RE2, anywhere) what makes an application read a path as another one than it looks like: an empty segment, `.`
and `..` (with parameters behind a semicolon too), a backslash, and these escaped. A rule about paths never allows such a path."""


class Requests(Value, frozen=True, kw_only=True):
    """Requests on HTTP ports that a rule allows; `name` is `group/match` of its HTTPRouteGroup."""

    name: str
    match: Match


class Connections(Value, frozen=True, kw_only=True):
    """Connections on ports that are not HTTP; `name` is the TCPRoute. No ports are all ports.

    A port is one of the workload's own, or a port of a Service that leads there.
    """

    name: str
    ports: tuple[int, ...] = ()


class Grant(Value, frozen=True, kw_only=True):
    """What some identities may do. `origin` is the TrafficTarget; `port` limits it to one port of the workload."""

    origin: Key
    sources: tuple[str, ...]
    port: int = 0
    requests: tuple[Requests, ...] = ()
    connections: tuple[Connections, ...] = ()


class Access(Value, frozen=True, kw_only=True):
    """Who may call a workload: everybody, or, when it is `closed`, only those whom a grant allows it."""

    closed: bool = False
    grants: tuple[Grant, ...] = ()


OPEN = Access()
