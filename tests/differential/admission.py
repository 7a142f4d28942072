"""What the specification says about a call of a pod with a sidecar, and whether what was counted agrees with it."""

from typing import NamedTuple

from msgspec import structs
from tests.differential.sidecar_lab import CALLERS, PLAINTEXT

from headgate.model.authorization import authorize, port_of, protocol_at
from headgate.model.requests import Request
from headgate.model.routing import PortRef

FORBIDDEN = 403


class Wanted(NamedTuple):
    """`arrives`: the application gets the request.

    `passes`: the application gets the bytes of a TLS that is not the mesh's.
    `http`: requests are seen one by one. `status` is how a request is refused, 0 when nothing is said about it. `rules`
    are those that allow a request, `named` the one that the model tells users of; none where nothing need allow it.
    """

    arrives: bool
    passes: bool = False
    http: bool = True
    status: int = 0
    rules: frozenset[str] = frozenset()
    named: str = ""


def wanted(workload, call):
    """Ask the model."""
    place = port_of(workload, call.port)
    tls_mode = workload.tls_mode
    by_tls = call.who != PLAINTEXT
    known = by_tls and tls_mode.accepts_tls
    if place is None:
        return Wanted(arrives=False)
    meant = PortRef(f"default/{call.service[0]}", call.service[1]) if call.service else PortRef("none/none", 0)
    protocol = protocol_at(place, meant, known=known)
    identity = CALLERS.get(call.who, "")
    request = sent(call)
    asked = {"protocol": protocol, "identity": identity if known else "", "request": request}
    admitted = authorize(workload, call.port, **asked)
    http = protocol.is_http
    if by_tls and (not known or (not http and not call.marked and tls_mode.accepts_plaintext)):
        # Nobody looks into this TLS: on ports that are not HTTP it is like plaintext, from nobody.
        nobody = authorize(workload, call.port, protocol=protocol)
        return Wanted(arrives=False, passes=nobody.allowed and not http, http=http)
    if known and not identity:
        return Wanted(arrives=False, http=http)
    if not http:
        return Wanted(arrives=admitted.allowed, http=False)
    if not admitted.allowed:
        reached = known or tls_mode.accepts_plaintext
        return Wanted(arrives=False, status=(admitted.status or FORBIDDEN) if reached else 0)
    rules = frozenset(name for name, only in single_rules(workload) if authorize(only, call.port, **asked).allowed)
    named = policy_name(admitted.origin, admitted.rule) if admitted.origin else ""
    return Wanted(arrives=True, rules=rules, named=named)


def sent(call):
    """Return the request of a call, with all headers that go over the wire."""
    target = f"http://{call.authority}{call.target}" if call.absolute else call.target
    headers = call.headers if call.version == "2" else (*call.headers, ("content-length", "0"))
    return Request(authority=call.authority, method=call.method, target=target, headers=headers, version=call.version)


def single_rules(workload):
    """Yield each rule of a closed workload by the name of its policy, and the workload with that rule alone."""
    for grant in workload.access.grants:
        for rule in grant.requests:
            alone = structs.replace(grant, requests=(rule,), connections=())
            access = structs.replace(workload.access, grants=(alone,))
            yield policy_name(grant.origin, rule.name), structs.replace(workload, access=access)


def policy_name(origin, rule):
    """Name a rule as the proxy's counters do."""
    return f"{origin.namespace}/{origin.name}/{rule}"


def disagreement(wanted, counted, *, is_http1):
    """Say what of a count can't be; empty when all is well."""
    if counted.requests != wanted.arrives:
        return f"the application got {counted.requests} requests"
    if counted.handshakes != wanted.passes:
        return f"the application got {counted.handshakes} handshakes of TLS"
    if not wanted.http and counted.connections != (wanted.arrives or wanted.passes):
        return f"the application got {counted.connections} connections"
    if wanted.status and is_http1 and counted.status != wanted.status:
        return f"the answer is {counted.status}"
    return _misnamed(wanted, counted) if counted.requests and (wanted.named or wanted.rules) else ""


def _misnamed(wanted, counted):
    """One rule is counted as what allowed the request, and it does, like the one that users are told."""
    if wanted.named not in wanted.rules:
        return f"the model names {wanted.named or 'no rule'}"
    if len(counted.policies) != 1 or counted.policies[0] not in wanted.rules:
        return f"the proxy counts {counted.policies or 'no rule'}"
    return ""
