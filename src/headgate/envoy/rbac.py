"""Render the access rules of a workload: those for requests as Envoy RBAC policies, those for connections as
identities (003, R68 to R70).

A policy is named `<namespace>/<object>/<rule>`, and `rule_named` reads the name; Envoy counts the requests that a policy allows under it.
RBAC denies what no policy allows. A rule that RBAC cannot express gets no policy, so it allows nothing.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headgate.envoy import pb
from headgate.model.access import ANY_CALLER, Access, Grant
from headgate.model.ambiguous_paths import WHOLE_AMBIGUOUS_PATH
from headgate.model.requests import Header, Match, Path, Text
from headgate.model.routing import InboundPort
from headgate.resources.meta import Key
from headgate.resources.registry import AUTHORIZATION_POLICY, TRAFFIC_TARGET

OPEN_POLICY = "open"


class _Rule(NamedTuple):
    """The name, permission and sources of a policy."""

    name: str
    permission: pb.Permission
    sources: tuple[str, ...]


def request_rules(access: Access, port: InboundPort) -> pb.RBAC:
    """Return the RBAC rules for requests to a port; an open workload has one policy that allows all."""
    if not access.closed:
        return pb.RBAC(policies={OPEN_POLICY: pb.Policy(permissions=[_any()], principals=[pb.Principal(any=True)])})
    return _policies(
        _Rule(_name(grant, rule.name), permission, grant.sources)
        for grant in _grants(access, port)
        for rule in grant.requests
        if (permission := _request_permission(rule.match))
    )


def rule_named(policy: str) -> tuple[Key, str]:
    """Return the object and the name of the rule from which a policy is rendered.

    A rule of a TrafficTarget has the name of an HTTPRouteGroup and its match, with a slash. That of an XAuthorizationPolicy has none.
    """
    namespace, name, rule = policy.split("/", 2)
    kind = TRAFFIC_TARGET if "/" in rule else AUTHORIZATION_POLICY
    return kind.key(namespace, name), rule


def allowed_sources(access: Access, port: InboundPort) -> tuple[str, ...]:
    """Return the sources (`model.access.source_includes`) that may connect to a non-HTTP port of a closed workload."""
    numbers = _port_numbers(port)
    allowing = (
        grant
        for grant in _grants(access, port)
        if any(not rule.ports or numbers & set(rule.ports) for rule in grant.connections)
    )
    return tuple(sorted({source for grant in allowing for source in grant.sources}))


def _grants(access: Access, port: InboundPort) -> Iterator[Grant]:
    """Yield the grants that apply to a port: those for all ports, and those with its number in the pod (2.3)."""
    return (grant for grant in access.grants if grant.port in {0, port.port})


def _port_numbers(port: InboundPort) -> set[int]:
    """Return the port numbers by which a TCPRoute may name the port.

    These are the number in the pod and the ports of the TCP Services that lead to it. The ports of HTTP
    Services are left out, because a TCPRoute allows no HTTP requests (R69).
    """
    opaque = (spoken for spoken in port.protocols if not spoken.protocol.is_http)
    return {port.port, *(ref.port for spoken in opaque for ref in spoken.services)}


def _name(grant: Grant, rule: str) -> str:
    return f"{grant.origin.namespace}/{grant.origin.name}/{rule}"


def _policies(rules: Iterator[_Rule]) -> pb.RBAC:
    message = pb.RBAC(action=pb.RBAC.Action.ALLOW)
    for name, permission, sources in rules:
        if sources:
            message.policies[name].CopyFrom(
                pb.Policy(permissions=[permission], principals=[_principal(source) for source in sources])
            )
    return message


def _principal(source: str) -> pb.Principal:
    """Return the principal of a source: only the URI SAN of a verified certificate counts, not its DNS names."""
    if source == ANY_CALLER:
        return pb.Principal(any=True)
    matcher = pb.StringMatcher(prefix=source[:-1]) if source.endswith("*") else pb.StringMatcher(exact=source)
    name = pb.SubjectAltNameMatcher(san_type=pb.SubjectAltNameMatcher.SanType.URI, matcher=matcher)
    proven = pb.pack(pb.MtlsAuthenticated(san_matcher=name))
    return pb.Principal(
        custom=pb.TypedExtensionConfig(name="envoy.rbac.principals.mtls_authenticated", typed_config=proven)
    )


def _request_permission(match: Match) -> pb.Permission | None:
    """Return the permission of a match; None if it has query parameters, which RBAC cannot match."""
    if match.query:
        return None
    rules = [_header_matches(header) for header in match.headers]
    if match.methods:
        methods = Text(value="|".join(match.methods), regex=len(match.methods) > 1)
        rules.append(_header_matches(Header(name=":method", text=methods)))
    if match.path:
        ambiguous = _path_matches(pb.StringMatcher(safe_regex=pb.RegexMatcher(regex=WHOLE_AMBIGUOUS_PATH)))
        rules += [pb.Permission(not_rule=ambiguous), _path_permission(match.path)]
    return pb.Permission(and_rules=pb.Permission.Set(rules=rules)) if rules else _any()


def _any() -> pb.Permission:
    return pb.Permission(any=True)


def _path_permission(path: Path) -> pb.Permission:
    """Return the permission of a path condition; like routes, it ignores the query."""
    if path.kind == "regex":
        return _path_matches(_string(Text(value=path.value, regex=True)))
    if path.kind == "exact":
        return _path_matches(pb.StringMatcher(exact=path.value))
    segments = path.value.rstrip("/")
    deeper = _path_matches(pb.StringMatcher(prefix=f"{segments}/"))
    if not segments:
        return deeper
    return pb.Permission(or_rules=pb.Permission.Set(rules=[_path_matches(pb.StringMatcher(exact=segments)), deeper]))


def _path_matches(text: pb.StringMatcher) -> pb.Permission:
    return pb.Permission(url_path=pb.PathMatcher(path=text))


def _header_matches(header: Header) -> pb.Permission:
    return pb.Permission(header=pb.HeaderMatcher(name=header.name, string_match=_string(header.text)))


def _string(text: Text) -> pb.StringMatcher:
    """Return a string matcher. Envoy rejects an empty regular expression, so `(?:)` stands for it."""
    return pb.StringMatcher(safe_regex=pb.RegexMatcher(regex=text.value or "(?:)")) if text.regex else _exact(text)


def _exact(text: Text) -> pb.StringMatcher:
    return pb.StringMatcher(exact=text.value)
