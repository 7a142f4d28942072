"""TrafficTargets to grants (003; R68 to R70, D21): who may do what with the pods of a ServiceAccount.

A TrafficTarget closes the pods of its destination to everybody else, whether or not anything of it can be used: what is
missing or not valid allows nothing, and never opens what the user wanted closed.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from headgate.compiler.reasons import Reason
from headgate.compiler.references import named_matches
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot
from headgate.compiler.workloads import expected
from headgate.kinds import SPECS
from headgate.model.identities import spiffe_id
from headgate.model.routing import Access, Connections, Grant, InboundPort, Requests, Workload
from headgate.resources.meta import Key
from headgate.resources.smi import Rule, TCPRoute, TrafficTarget
from headgate.settings import Settings

DESTINATION = "spec.destination.name"
Allowed = tuple[Requests | Connections, ...]


class Targets:
    """All TrafficTargets. `accounts` are their destinations (`namespace/name`)."""

    def __init__(self, snapshot: Snapshot, settings: Settings) -> None:
        self.accounts: dict[Key, str] = {}
        self.findings: list[Finding] = []
        self._snapshot = snapshot
        self._settings = settings
        self._grants: dict[str, list[Grant]] = defaultdict(list)
        self._rules: dict[Key, list[tuple[int, Allowed]]] = {}
        for key, target in snapshot.of(TrafficTarget):
            self._add(key, target)
        for key, left in snapshot.remains.items():
            if isinstance(left, TrafficTarget):
                self._grants[_account(key, left)] += ()

    def access(self, account: str) -> Access:
        """Return who may call the pods of a ServiceAccount (D21)."""
        closed = account in self._grants or self._settings.access == "deny"
        return Access(closed=closed, grants=tuple(self._grants.get(account, ())))

    def is_selected(self, account: str) -> bool:
        """Say whether a TrafficTarget is about the pods of a ServiceAccount."""
        return account in self._grants

    def _add(self, key: Key, target: TrafficTarget) -> None:
        account = _account(key, target)
        self.accounts[key] = account
        rules = [
            (index, self._allowed(key, rule, f"spec.rules[{index}]")) for index, rule in enumerate(target.spec.rules)
        ]
        self._rules[key] = [(index, allowed) for index, allowed in rules if allowed]
        grants = self._grants[account]  # even if nothing goes in: the account is closed from now on
        if grant := _grant(key, target, self._settings, [part for _, allowed in rules for part in allowed]):
            grants.append(grant)

    def _allowed(self, key: Key, rule: Rule, field: str) -> Allowed:
        """Return what a rule allows: nothing of what does not exist."""
        name = Key(SPECS, rule.kind, key.namespace, rule.name)
        if rule.kind == "UDPRoute":
            message = f"UDP does not go through the proxies, so {name} allows nothing here; leave the rule out"
            self._tell(key, Reason.RULE_NOT_APPLICABLE, f"{field}.kind", message)
            return ()
        if name not in self._snapshot.objects:
            what = "is not valid" if name in self._snapshot.undecodable else "not found"
            message = f"{name} {what}, so the rule allows nothing; create it or correct the name"
            self._tell(key, Reason.RULE_NOT_FOUND, f"{field}.name", message)
            return ()
        route = self._snapshot.objects[name]
        if isinstance(route, TCPRoute):
            return (Connections(name=name.name, ports=tuple(sorted(set(route.spec.matches.ports)))),)
        return tuple(self._requests(key, rule, name, field))

    def _requests(self, key: Key, rule: Rule, group: Key, field: str) -> Iterator[Requests]:
        found = dict(named_matches(self._snapshot, group))
        wanted = found if rule.matches is None else [f"{group.name}/{name}" for name in rule.matches]
        for index, name in enumerate(wanted):
            if name in found:
                yield Requests(name=name, match=found[name])
                continue
            known = ", ".join(item.partition("/")[2] for item in found) or "none"
            message = f"{group} has no match {name.partition('/')[2]}, so it allows nothing; there is: {known}"
            self._tell(key, Reason.RULE_NOT_FOUND, f"{field}.matches[{index}]", message)

    def not_applicable(self, workloads: Mapping[Key, Sequence[Workload]]) -> Iterator[Finding]:
        """Tell about rules that no port of the destination speaks; `workloads` are those of each TrafficTarget."""
        for key, rules in self._rules.items():
            found = [item for item in workloads.get(key, ()) if item.ports or item.capture == "transparent"]
            target = self._snapshot.objects[key]
            if not found or not isinstance(target, TrafficTarget):
                continue
            only, ports = target.spec.destination.port, [port for item in found for port in item.ports]
            unspoken = [index for index, allowed in rules if not _apply(allowed, ports, only)]
            soon = [port for item in found for port in expected(self._snapshot, item.name)] if unspoken else []
            for index, allowed in rules:
                if index in unspoken and not _apply(allowed, soon, only):
                    message = _not_spoken(target.spec.rules[index], self.accounts[key], ports, only=only)
                    yield Finding(key, Reason.RULE_NOT_APPLICABLE, f"spec.rules[{index}]", message)

    def _tell(self, key: Key, reason: Reason, field: str, message: str) -> None:
        self.findings.append(Finding(key, reason, field, message))


def _account(key: Key, target: TrafficTarget) -> str:
    """Return the destination (`namespace/name`): its namespace is always the target's own (2.3)."""
    return f"{key.namespace}/{target.spec.destination.name}"


def _grant(
    key: Key, target: TrafficTarget, settings: Settings, allowed: Sequence[Requests | Connections]
) -> Grant | None:
    """Return what a TrafficTarget allows, if it allows anything to anybody."""
    sources = {
        spiffe_id(settings.trust_domain, item.namespace or key.namespace, item.name) for item in target.spec.sources
    }
    if not (sources and allowed):
        return None
    return Grant(
        origin=key,
        sources=tuple(sorted(sources)),
        port=target.spec.destination.port,
        requests=tuple(part for part in allowed if isinstance(part, Requests)),
        connections=tuple(part for part in allowed if isinstance(part, Connections)),
    )


def _apply(allowed: Allowed, ports: Iterable[InboundPort], only: int) -> bool:
    """Say whether a rule means something on one of the ports; `only` is the one that counts, 0 for all."""
    meant = [port for port in ports if only in {0, port.port}]
    return any(_applies(part, port) for part in allowed for port in meant)


def _applies(part: Requests | Connections, port: InboundPort) -> bool:
    """Say whether a port carries what a part of a rule is about (R69)."""
    if isinstance(part, Requests):
        return any(spoken.protocol.is_http for spoken in port.spoken)
    return any(
        not spoken.protocol.is_http and _names(part.ports, port, (ref.port for ref in spoken.services))
        for spoken in port.spoken
    )


def _names(ports: Sequence[int], port: InboundPort, services: Iterable[int]) -> bool:
    return not ports or port.port in ports or not set(ports).isdisjoint(services)


def _not_spoken(rule: Rule, account: str, ports: Iterable[InboundPort], *, only: int) -> str:
    spoken = {f"{port.port} ({item.protocol.value})" for port in ports for item in port.spoken}
    wanted = "HTTP" if rule.kind == "HTTPRouteGroup" else "anything but HTTP on the ports of the route"
    where = f"have no port {only} that speaks {wanted}" if only else f"have no port that speaks {wanted}"
    return (
        f"the pods of ServiceAccount {account} {where}, so {rule.kind} {rule.name} allows nothing; they have "
        f"{', '.join(sorted(spoken)) or 'no port'}. The appProtocol of their Services' ports decides"
    )
