"""Frontend sections: a port, the selection of a host and a route, and the turns of splits."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from headgate.model.routing import Protocol, Route
from headgate.model.sanitizing import RESERVED, RESERVED_AT_EDGE
from headgate.render.haproxy import conditions
from headgate.render.haproxy.backends import http2_name
from headgate.render.haproxy.certificates import bind_options
from headgate.render.haproxy.shares import Division
from headgate.render.haproxy.words import name_of, owner_name, port_name, word
from headgate.render.proxy_ports import ANY_HOST, PortHost, ProxyPort
from headgate.resources.meta import Value

TABLE = "splits"
_NAMES_OF_A_LINE = 16  # HAProxy reads at most 64 words of a line


class FrontendRoute(Value, frozen=True, kw_only=True):
    """A route that the frontend section selects; `name` is that of its section, `host` the name of its host."""

    name: str
    host: str
    route: Route
    division: Division


def host_name(port: ProxyPort, host: PortHost) -> str:
    """Return the name of a host: `default.website:8080`, or `default.edge:8000:_.example.com` of a Gateway."""
    return name_of(owner_name(port, host.owner), *([host.names[0].replace("*", "_")] if host.edge else []))


def http_frontend(port: ProxyPort, routes: Sequence[FrontendRoute]) -> Iterator[str]:
    """Yield the section of an HTTP port."""
    headers = conditions.variables(planned.route.match for planned in routes)
    has_one_host = len(port.hosts) == 1 and ANY_HOST in port.hosts[0].names
    yield from ("", f"frontend {port_name(port)}", f"    bind {port.bind}{bind_options(port)}")
    yield "    option idle-close-on-response"  # after a reload, a connection closes with the response to a request
    rules = [*_authority(), *_tls(port), *([] if has_one_host else _hosts(port)), *_sanitizing(port)]
    rules += _misdirected(port, has_one_host=has_one_host)
    rules += [*conditions.collect(headers), *_routes(routes, headers, has_one_host=has_one_host), *_turns(routes)]
    rules += [rule for planned in routes for rule in _use(planned)]
    yield from (f"    {rule}" for rule in rules)


def tcp_frontend(port: ProxyPort, division: Division, name: str) -> Iterator[str]:
    """Yield the section of a port that is not HTTP."""
    yield from ("", f"frontend {port_name(port)}", "    mode tcp", f"    bind {port.bind}{bind_options(port)}")
    *first, last = division.shares
    if first:
        yield f"    tcp-request content track-sc0 str({name}) table {TABLE}"
        yield f"    tcp-request content set-var(txn.turn) {_turn(division)}"
    for share in first:
        yield f"    use_backend {share.name} if {{ var(txn.turn) -m int lt {share.end} }}"
    yield f"    default_backend {last.name}"


def _authority() -> Iterator[str]:
    """Yield the rules that require a host, and keep it without its port and final dot."""
    yield "http-request return status 400 if !{ req.fhdr(host) -m found }"
    yield r"""http-request set-var(txn.host) 'req.fhdr(host),host_only,lower,regsub("\.$","")'"""


def _tls(port: ProxyPort) -> Iterator[str]:
    """Yield the rules that find the TLS listener of a connection, and refuse a host of another listener."""
    if not port.tls:
        return
    yield "http-request set-var(txn.server_name) ssl_fc_sni,lower"
    yield from _first_match(
        "txn.server_name", "txn.listener", [(name, name) for name in dict.fromkeys(name for name, _ in port.tls)]
    )
    yield "http-request reject if !{ var(txn.listener) -m found }"


def _misdirected(port: ProxyPort, *, has_one_host: bool) -> Iterator[str]:
    """Yield the rules that answer 421 to requests on a TLS connection to another listener."""
    for host in port.hosts if port.tls else ():
        entry = "" if has_one_host else f"{{ var(txn.entry) -m str -- {host_name(port, host)} }} "
        yield f"http-request return status 421 if {entry}!{{ var(txn.listener) -m str -- {word(host.listener)} }}"


def _hosts(port: ProxyPort) -> Iterator[str]:
    """Yield the rules that find the host of a request, the most specific first."""
    yield from _first_match(
        "txn.host", "txn.entry", [(name, host_name(port, host)) for host in port.hosts for name in host.names]
    )


def _first_match(sample: str, variable: str, patterns: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield rules that set a variable by the most specific pattern of host names that matches a sample.

    `patterns` has pairs of a pattern and the variable's value.
    """
    same: dict[tuple[tuple[int, int], str], list[str]] = {}
    for pattern, value in patterns:
        same.setdefault((_precedence(pattern), value), []).append(pattern)
    for (_, value), names in sorted(same.items()):
        for some in _lines(list(dict.fromkeys(names))):
            unset = f"!{{ var({variable}) -m found }}"
            yield f"http-request set-var({variable}) str({value}) if {unset}{_fits(sample, some)}"


def _fits(sample: str, patterns: Sequence[str]) -> str:
    """Return the condition for patterns of the same precedence."""
    if ANY_HOST in patterns:
        return ""
    kind, texts = "str", patterns
    if patterns[0].startswith(ANY_HOST):
        kind, texts = "reg", [_host_expression(pattern) for pattern in patterns]
    return f" {{ var({sample}) -m {kind} -- {' '.join(map(word, texts))} }}"


def _precedence(pattern: str) -> tuple[int, int]:
    if not pattern.startswith("*"):
        return 0, 0
    return (2, 0) if pattern == ANY_HOST else (1, -len(pattern))


def _host_expression(pattern: str) -> str:
    return rf"^.+{pattern[1:].replace('.', '[.]')}$"


def _sanitizing(port: ProxyPort) -> Iterator[str]:
    """Yield the rules for headers that only proxies set, and for upgrades."""
    yield f"http-request del-header {word(f'^({RESERVED})$')} -m reg"
    edges = [host_name(port, host) for host in port.hosts if host.edge]
    outside = "" if len(edges) == len(port.hosts) else " if edge"
    if edges and outside:
        yield from (f"acl edge var(txn.entry) -m str -- {' '.join(some)}" for some in _lines(edges))
    if edges:
        yield f"http-request del-header {word(f'^({RESERVED_AT_EDGE})$')} -m reg{outside}"
        yield f"http-request add-header x-forwarded-for %[src]{outside}"
    yield f"http-request set-header x-forwarded-proto {port.scheme} if !{{ req.fhdr(x-forwarded-proto) -m reg . }}"
    yield "acl websocket req.hdr(upgrade) -i -m str -- websocket"
    yield "http-request del-header upgrade if !websocket"
    yield "http-request set-header upgrade websocket if websocket !{ req.fhdr(upgrade) -i -m str -- websocket }"


def _lines(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), _NAMES_OF_A_LINE):
        yield names[start : start + _NAMES_OF_A_LINE]


def _routes(routes: Sequence[FrontendRoute], headers: Mapping[str, str], *, has_one_host: bool) -> Iterator[str]:
    """Yield the rules that find the first route that a request matches; without one, the answer is 404."""
    yield "http-request return status 404 if !{ path -m beg / }"
    yield "acl routed var(txn.route) -m found"
    for planned in routes:
        pairs = list(conditions.acls(planned.name, planned.route.match, headers))
        yield from (f"acl {name} {condition}" for name, condition in pairs)
        entry = [] if has_one_host else [f"{{ var(txn.entry) -m str -- {planned.host} }}"]
        needed = " ".join(("!routed", *entry, *dict.fromkeys(name for name, _ in pairs)))
        yield f"http-request set-var(txn.route) str({planned.name}) if {needed}"
    yield "http-request return status 404 if !routed"


def _turns(routes: Sequence[FrontendRoute]) -> Iterator[str]:
    """Yield the rules that count the requests of the splits with turns."""
    counted = [planned for planned in routes if planned.division.total > 1]
    if not counted:
        return
    for some in _lines([planned.name for planned in counted]):
        yield f"acl counted var(txn.route) -m str -- {' '.join(some)}"
    yield f"http-request track-sc0 var(txn.route) table {TABLE} if counted"
    for planned in counted:
        yield f"http-request set-var(txn.turn) {_turn(planned.division)} if {_is(planned)}"


def _turn(division: Division) -> str:
    count = f"sc_inc_gpc0(0,{TABLE}),sub(1),mod({division.total})"
    return f"{count},mul({division.step}),mod({division.total})"


def _is(planned: FrontendRoute) -> str:
    return f"{{ var(txn.route) -m str -- {planned.name} }}"


def _use(planned: FrontendRoute) -> Iterator[str]:
    last = planned.division.shares[-1]
    for share in planned.division.shares:
        below = f" {{ var(txn.turn) -m int lt {share.end} }}" if share is not last else ""
        if share.protocol is Protocol.HTTP_ANY and share.servers:
            yield f"use_backend {http2_name(share.name)} if {_is(planned)}{below} {{ req.ver 2.0 }}"
        yield f"use_backend {share.name} if {_is(planned)}{below}"
