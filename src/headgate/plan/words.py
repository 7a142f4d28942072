"""Describe requests, treatments and callers for users."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from msgspec import structs

from headgate import formatting
from headgate.compiler.explain import auth_words, filter_words, redirect_words
from headgate.matching.conditions import AUTHORITY, Conjunction, Literal, Setting
from headgate.model import cors, edge_tls, sessions
from headgate.model.access import source_includes
from headgate.model.identities import is_gateway, parse_id
from headgate.model.requests import Request, begun_pattern
from headgate.model.routing import PortRef, Sticky
from headgate.plan.access import ANY_IDENTITY, PLAINTEXT
from headgate.plan.traffic import NO_SUCH_PORT, Entry
from headgate.plan.treatment import MirrorShare, ReceivedShare, Treatment

ALL_REQUESTS, OTHER_REQUESTS, OTHER_NAMES = "all requests", "all other requests", "all other server names"
_SCHEMES = {False: "http", True: "https"}
_DEFAULT_PORTS = {False: 80, True: 443}


def requests_words(match: Conjunction) -> str:
    """Return the conditions of a request class: `GET, path prefix /api, header x-a: 1`."""
    conditions = {literal.dimension: "" for literal in match}
    order = sorted(conditions, key=lambda dimension: ("method", "path", "header", "query").index(dimension.part))
    words = [_condition(literal) for dimension in order for literal in match if literal.dimension == dimension]
    return ", ".join(words) or ALL_REQUESTS


def access_requests_words(match: Conjunction, other: Sequence[Conjunction]) -> str:
    """Return the requests of a changed permission: `requests other than GET, path /`, if it is for all but the `other` ones."""
    if match or not other:
        return requests_words(match)
    more = f" and {formatting.pluralize(len(other) - 1, 'more class', 'more classes')}" if len(other) > 1 else ""
    return f"requests other than {requests_words(other[0])}{more}"


def _condition(literal: Literal) -> str:
    (part, name), (kind, value), holds = literal
    title = "host" if name == AUTHORITY else f"{part} {name}".strip()
    begun = begun_pattern(value) if kind == "regex" else ""
    if whole := _WHOLE.fullmatch(begun):
        kind, value = "exact", whole[1]
    if kind == "one of":
        return value.replace(" ", " or ") if holds else f"no {value}"
    if kind == "exact":
        text = f"{title} {value}" if part == "path" or name == AUTHORITY else f"{title}: {value}"
    elif kind == "begins" and not value and part != "path":
        text = f"{title} present"
    elif begun:
        text = f"{title} begins with a match of {begun}"
    else:
        text = f"{title} {_KINDS[kind]} {value or '/'}"
    return text if holds else f"not {text}"


_WHOLE = re.compile(r"(/[\w/~@,;=%-]*)\$")
"""A `pathRegex` that ends with `$` and has no other operator."""
_KINDS = {"prefix": "prefix", "begins": "begins with", "regex": "matches"}


def example_command(entry: Entry, request: Request, caller: str = "", *, secure: bool = False) -> str:
    """Return the `headgate explain` command for an example; empty if no URL expresses the request."""
    namespace, name = entry.name.split("/")
    if not request.target.startswith("/") or request.version == "2" or entry.consumer:  # no client is known by its name
        return ""
    options = [f"-H {shlex.quote(f'{header}: {value}')}" for header, value in request.headers]
    authority = request.authority
    if entry.kind == "Service" and entry.host:  # a server name of a TLS port
        options.append(f"--server-name {shlex.quote(authority.partition(':')[0])}")
        authority, secure = f"{name}.{namespace}:{entry.port}", True
    if entry.kind == "Gateway":
        options += [f"--via gateway/{name}", f"-n {namespace}"]
    elif authority.partition(":")[0] != f"{name}.{namespace}":
        return ""
    elif (account := parse_id(caller)) and not is_gateway(account.namespace, account.name):
        options += [f"--from serviceaccount/{account.name}", f"-n {account.namespace}"]
    if entry.transport == "UDP":
        host, colon, _ = request.authority.partition(":")
        return " ".join([f"headgate explain udp://{host}{colon or ':'}{entry.port}", *options])
    if entry.kind == "Gateway" and ":" not in authority and entry.port != _DEFAULT_PORTS[secure]:
        authority = f"{authority}:{entry.port}"
    url = f"{_SCHEMES[secure]}://{authority}{request.target}"
    method = "" if request.method == "GET" else f"{request.method} "
    return " ".join([f"headgate explain {method}{shlex.quote(url)}", *options])


def sent_to(called: PortRef | None, request: Request) -> Request:
    """Return a request with the host of a Service, unless a condition on the host chose another one."""
    if called is None or request.authority not in Setting().authorities:
        return request
    namespace, name = called.service.split("/")
    return structs.replace(request, authority=f"{name}.{namespace}:{called.port}")


def service_command(called: PortRef, request: Request, caller: str) -> str:
    """Return the `headgate explain` command for a caller's request to a Service port; empty if it has none."""
    return example_command(Entry(kind="Service", name=called.service, port=called.port), request, caller)


def request_text(request: Request, *, is_http: bool = True) -> str:
    """Return a request in one line: `GET website.default:8080/x -H 'x-a: 1'`, or `a connection to database.default:5000`."""
    if not is_http:
        return f"a connection to {request.authority}"
    headers = [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in request.headers]
    return " ".join([request.method, f"{request.authority}{request.target}", *headers])


def callers_words(sources: Sequence[str], excepted: Sequence[str] = ()) -> str:
    """Return callers in words: `ServiceAccount shop/web and the gateway`.

    `excepted` has named callers that don't belong to the sources: `every ServiceAccount except shop/web, and callers without a
    sidecar`.
    """
    identities = [source for source in sources if source != PLAINTEXT]
    words = [
        _caller(source, _widest(other for other in excepted if source_includes(source, other)))
        for source in sorted(identities, key=ANY_IDENTITY.__eq__)
        if not _is_part(source, identities, excepted)
    ]
    if PLAINTEXT in sources:
        words.append("callers without a sidecar")
    # The comma ends the list of exceptions.
    comma = "," * any(_EXCEPT in text for text in words)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])}{comma} and {words[-1]}"


_EXCEPT = " except "
_MOST_EXCEPTIONS = 3


def _is_part(source: str, sources: Sequence[str], excepted: Sequence[str]) -> bool:
    """Return whether a wider source includes a source, and no exception does."""
    wider = any(other != source and source_includes(other, source) for other in sources)
    return wider and not any(source_includes(other, source) for other in excepted)


def _widest(sources: Iterable[str]) -> list[str]:
    """Return the sources that no other one includes."""
    every = list(sources)
    return [source for source in every if not _is_part(source, every, ())]


def _caller(source: str, excepted: Sequence[str]) -> str:
    text = _name(source, "ServiceAccount ", "every ServiceAccount of namespace ")
    if source == ANY_IDENTITY:
        text = "every ServiceAccount"
    if not excepted:
        return text
    names = [_name(other, "", "those of namespace ") for other in excepted]
    more = len(names) - _MOST_EXCEPTIONS
    names = [*names[:_MOST_EXCEPTIONS], f"{more} more"] if more > 0 else names
    return text + _EXCEPT + " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _name(identity: str, account_title: str, every: str) -> str:
    account = parse_id(identity)
    if identity.endswith("/sa/*"):
        return f"{every}{identity.split('/')[-3]}"
    if account is None:
        return identity
    if is_gateway(account.namespace, account.name):
        return "the gateway"
    return f"{account_title}{account.namespace}/{account.name}"


def moves(before: Treatment, after: Treatment) -> list[tuple[Fraction, str, str]]:
    """Return the shares that move, each with the receiver that loses them and the receiver that gets them, largest first."""
    old, new = before.shares, after.shares
    change = {name: new.get(name, Fraction()) - old.get(name, Fraction()) for name in (*old, *new)}
    moved = []
    for loser in old:
        for winner in new:
            share = min(-change[loser], change[winner])
            if share > 0:
                moved.append((share, loser, winner))
                change[loser] += share
                change[winner] -= share
    return sorted(moved, key=lambda move: (-move[0], move[1:]))


def receivers_words(treatment: Treatment) -> str:
    """Return where requests go: `90% default/website-v1:8080, 10% default/website-v2:8080`."""
    shares = treatment.shares
    if len(shares) == 1:
        return next(iter(shares))
    return ", ".join(f"{formatting.share(share)} {name}" for name, share in shares.items())


def changes(before: Treatment, after: Treatment, new: str = "") -> Iterator[str]:
    """Yield one line for each difference of two treatments, the shares first.

    `new` says what did not exist before, such as `new Service`: then no requests move, and the lines name the receivers only.
    """
    yield from (new,) if new else ()
    for share, loser, winner in moves(before, after):
        source = "" if new else f" from {loser}"
        yield f"{'all' if share == 1 else formatting.share(share)} of them{source} to {winner}"
    if before.protocol != after.protocol and NO_SUCH_PORT not in (before, after):
        yield f"protocol: {before.protocol.value} -> {after.protocol.value}"
    yield from _policies(before, after)
    yield from _mirrors(before, after)
    for title, limit, later in (
        ("timeout of the request", before.timeouts.request, after.timeouts.request),
        ("timeout of each attempt", before.timeouts.backend, after.timeouts.backend),
    ):
        if limit != later:
            yield f"{title}: {_limit(limit)} -> {_limit(later)}"
    yield from (f"no longer {line}" for line in before.resilience if line not in after.resilience)
    yield from (f"now {line}" for line in after.resilience if line not in before.resilience)
    if (users := _sticky(before.sticky)) != _sticky(after.sticky):
        yield f"users: {users} -> {_sticky(after.sticky)}"
    elif before.sticky != after.sticky and before.shares == after.shares:
        yield "users: some move to other backends"
    yield from _filters(before, after)
    yield from _servers(before, after)


def _calls(treatment: Treatment) -> Mapping[str, MirrorShare | ReceivedShare]:
    """Return how each backend is called that gets requests or copies."""
    copied: dict[str, MirrorShare | ReceivedShare] = {str(mirror.ref): mirror for mirror in treatment.mirrors}
    return copied | {str(receiver.ref): receiver for receiver in treatment.receivers if receiver.ref}


def _servers(before: Treatment, after: Treatment) -> Iterator[str]:
    """Yield a line for each backend with another DNS name, or that is called over another protocol or with other TLS."""
    old, new = map(_calls, (before, after))
    for name in sorted(old.keys() & new.keys()):
        was, now = old[name], new[name]
        if was.address != now.address:
            yield f"{name}: {_dns_names(was.address, now.address)}"
        if was.protocol != now.protocol:
            texts = (share.protocol.value if share.protocol else "that of the port" for share in (was, now))
            yield f"{name}: protocol {' -> '.join(texts)}"
        if was.tls != now.tls:
            texts = (edge_tls.backend_words(share.tls) if share.tls else "no TLS by a policy" for share in (was, now))
            yield f"{name}: {' -> '.join(texts)}"


def _dns_names(before: str, after: str) -> str:
    return f"DNS name {before or 'none'} -> {after or 'none'}"


def _policies(before: Treatment, after: Treatment) -> Iterator[str]:
    if before.redirect != after.redirect:
        yield f"redirect: {_redirect(before)} -> {_redirect(after)}"
    if before.cors != after.cors:
        yield f"CORS: {_cors(before)} -> {_cors(after)}"
    if before.external_auth != after.external_auth:
        yield f"external authorization: {_auth(before)} -> {_auth(after)}"
    elif before.auth_address != after.auth_address:
        yield f"external authorization: {_dns_names(before.auth_address, after.auth_address)}"
    if _sessions(before) != _sessions(after):
        yield f"sessions: {_sessions(before)} -> {_sessions(after)}"


def _redirect(treatment: Treatment) -> str:
    return redirect_words(treatment.redirect) if treatment.redirect else "none"


def _cors(treatment: Treatment) -> str:
    return cors.words(treatment.cors) if treatment.cors else "none"


def _auth(treatment: Treatment) -> str:
    return auth_words(treatment.external_auth) if treatment.external_auth else "none"


def _sessions(treatment: Treatment) -> str:
    if treatment.session:
        return sessions.words(treatment.session)
    return ", ".join(f"{sessions.words(session)} at {ref}" for ref, session in treatment.sessions) or "none"


def _limit(milliseconds: int) -> str:
    return f"{milliseconds} ms" if milliseconds else "none"


def _sticky(sticky: Sticky | None) -> str:
    if sticky is None:
        return "not sticky"
    name = f" {sticky.name}" if sticky.name else ""
    return f"sticky by {sticky.kind}{name}"


def _mirrors(before: Treatment, after: Treatment) -> Iterator[str]:
    old, new = ({str(mirror.ref): mirror.share for mirror in treatment.mirrors} for treatment in (before, after))
    for name in sorted(old.keys() | new.keys()):
        shares = old.get(name, Fraction()), new.get(name, Fraction())
        if shares[0] != shares[1]:
            yield f"copies to {name}: {formatting.share(shares[0])} -> {formatting.share(shares[1])}"


def _filters(before: Treatment, after: Treatment) -> Iterator[str]:
    old, new = (list(_all_filters(treatment)) for treatment in (before, after))
    yield from (f"filter removed: {text}" for text in old if text not in new)
    yield from (f"filter added: {text}" for text in new if text not in old)
    if old == new and old and before.matched_prefix != after.matched_prefix:
        yield f"matched prefix: {before.matched_prefix or 'none'} -> {after.matched_prefix or 'none'}"


def _all_filters(treatment: Treatment) -> Iterable[str]:
    yield from filter_words(treatment.filters)
    for receiver in treatment.receivers:
        yield from (f"{receiver.name}: {text}" for text in filter_words(receiver.filters))
        if receiver.redirect:
            yield f"{receiver.name}: {redirect_words(receiver.redirect)}"
