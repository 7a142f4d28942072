"""The model's expected outcome of a call to a pod with a sidecar, and its comparison with the counted outcome."""

from collections.abc import Iterator
from typing import NamedTuple, TypedDict

from msgspec import structs
from tests.differential.access_worlds import Call
from tests.differential.sidecar_lab import CALLERS, PLAINTEXT, Counted

from headgate.model.authorization import Authorization, authorize, port_of, protocol_at, would_refuse
from headgate.model.requests import Request
from headgate.model.routing import PortRef, Protocol, Workload
from headgate.resources.meta import Key

FORBIDDEN = 403


class ExpectedCall(NamedTuple):
    """The expected outcome of a call; `arrives`: the application receives the request.

    `passes`: the application receives the client's own TLS, which is not mTLS. `http`: the proxy sees requests, not
    connections. `status` is that of a denial, 0 if undefined. `rules` names all rules that allow the request;
    `named` is the rule that the model reports. Both are empty if no rule is needed. `audited`: the proxy marks the response.
    """

    arrives: bool
    passes: bool = False
    http: bool = True
    status: int = 0
    rules: frozenset[str] = frozenset()
    named: str = ""
    audited: bool = False


class Asked(TypedDict):
    """Arguments of `authorize`."""

    protocol: Protocol
    identity: str
    request: Request


def expected(workload: Workload, call: Call) -> ExpectedCall:
    """Return the outcome that the model expects."""
    place = port_of(workload, call.port)
    tls_mode = workload.tls_mode
    by_tls = call.caller != PLAINTEXT
    known = by_tls and tls_mode.accepts_tls
    if place is None:
        return ExpectedCall(arrives=False)
    meant = PortRef(f"default/{call.service[0]}", call.service[1]) if call.service else PortRef("none/none", 0)
    protocol = protocol_at(place, meant, has_identity=known)
    identity = CALLERS.get(call.caller, "")
    request = sent(call)
    asked = Asked(protocol=protocol, identity=identity if known else "", request=request)
    admitted = authorize(workload, call.port, **asked)
    http = protocol.is_http
    if by_tls and (not known or (not http and not call.mesh_alpn and tls_mode.accepts_plaintext)):
        # The sidecar does not terminate this TLS: on ports that are not HTTP it is like plaintext without an identity.
        anonymous = authorize(workload, call.port, protocol=protocol)
        return ExpectedCall(arrives=False, passes=anonymous.allowed and not http, http=http)
    if known and not identity:
        return ExpectedCall(arrives=False, http=http)
    if not http:
        return ExpectedCall(arrives=admitted.allowed, http=False)
    if not admitted.allowed:
        reached = known or tls_mode.accepts_plaintext
        return ExpectedCall(arrives=False, status=(admitted.status or FORBIDDEN) if reached else 0)
    return _arriving(workload, call, admitted, asked)


def _arriving(workload: Workload, call: Call, admitted: Authorization, asked: Asked) -> ExpectedCall:
    """Return the expected outcome of an allowed request, which the model decided by the arguments `asked`."""
    if workload.access.audited:
        return ExpectedCall(arrives=True, audited=would_refuse(workload, call.port, **asked))
    rules = frozenset(name for name, only in single_rules(workload) if authorize(only, call.port, **asked).allowed)
    named = policy_name(admitted.origin, admitted.rule) if admitted.origin else ""
    return ExpectedCall(arrives=True, rules=rules, named=named)


def sent(call: Call) -> Request:
    """Return the request of a call, with all headers that the client sends."""
    target = f"http://{call.authority}{call.target}" if call.absolute else call.target
    headers = call.headers if call.version == "2" else (*call.headers, ("content-length", "0"))
    return Request(authority=call.authority, method=call.method, target=target, headers=headers, version=call.version)


def single_rules(workload: Workload) -> Iterator[tuple[str, Workload]]:
    """Yield the policy name of each rule of a closed workload, and the workload with that rule alone."""
    for grant in workload.access.grants:
        for rule in grant.requests:
            alone = structs.replace(grant, requests=(rule,), connections=())
            access = structs.replace(workload.access, grants=(alone,))
            yield policy_name(grant.origin, rule.name), structs.replace(workload, access=access)


def policy_name(origin: Key, rule: str) -> str:
    """Return the name that the proxy's counters have for a rule."""
    return f"{origin.namespace}/{origin.name}/{rule}"


def disagreement(expected: ExpectedCall, counted: Counted, *, is_http1: bool) -> str:
    """Return how the counts differ from the expectation; empty if they agree."""
    if counted.requests != expected.arrives:
        return f"the application got {counted.requests} requests"
    if counted.handshakes != expected.passes:
        return f"the application got {counted.handshakes} TLS handshakes"
    if not expected.http and counted.connections != (expected.arrives or expected.passes):
        return f"the application got {counted.connections} connections"
    if is_http1 and counted.audited != expected.audited:
        return f"the response is {'' if counted.audited else 'not '}marked by an audit"
    if expected.status and is_http1 and counted.status != expected.status:
        return f"the answer is {counted.status}"
    return _misnamed(expected, counted) if counted.requests and (expected.named or expected.rules) else ""


def _misnamed(expected: ExpectedCall, counted: Counted) -> str:
    """Return an error unless the model and the proxy each name one rule that allows the request."""
    if expected.named not in expected.rules:
        return f"the model names {expected.named or 'no rule'}"
    if len(counted.policies) != 1 or counted.policies[0] not in expected.rules:
        return f"the proxy's counters name {counted.policies or 'no rule'}"
    return ""
