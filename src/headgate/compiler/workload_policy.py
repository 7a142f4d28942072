"""Workloads with what is wanted of them: mutual TLS (R72 to R78), and who may call them (R68 to R70, D21)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from headgate.compiler import unenforced
from headgate.compiler.reasons import Reason
from headgate.compiler.references import named_matches
from headgate.compiler.report import Finding, SelectedPods, pod_list
from headgate.compiler.snapshot import Snapshot, account_of
from headgate.compiler.unenforced import Words
from headgate.compiler.workloads import PodPort, expected
from headgate.kinds import SPECS
from headgate.model.identities import spiffe_id
from headgate.model.routing import Access, ConnectionRule, Grant, InboundPort, RequestRule, TlsMode, Workload
from headgate.resources.meta import Key
from headgate.resources.pods import INJECT
from headgate.resources.smi import Rule, TCPRoute, TLSConfig, TrafficTarget
from headgate.settings import Settings

DESTINATION = "spec.destination.name"
SELECTOR = "spec.selector"
_REPLACE = (
    "Replace the pods (kubectl rollout restart): new pods that a TLSConfig selects get a sidecar, unless they say "
    f'{INJECT}: "false" or headgate runs with --sidecars none'
)
_TLS_MODES = {"off": TlsMode.PLAIN, "permissive": TlsMode.PERMISSIVE, "strict": TlsMode.STRICT}
Allowed = tuple[RequestRule | ConnectionRule, ...]


class TrafficTargets:
    """All TrafficTargets (003). `accounts` are their destinations (`namespace/name`).

    A TrafficTarget closes the pods of its destination to everybody else, whether or not anything of it can be used: what is
    missing or not valid allows nothing, and never opens what the user wanted closed.
    """

    def __init__(self, snapshot: Snapshot, settings: Settings) -> None:
        self.accounts: dict[Key, str] = {}
        self.findings: list[Finding] = []
        self._snapshot = snapshot
        self._settings = settings
        self._grants: dict[str, list[Grant]] = defaultdict(list)
        self._rules: dict[Key, list[tuple[int, Allowed]]] = {}
        for key, target in snapshot.of(TrafficTarget):
            self._add(key, target)
        for key, left in snapshot.fail_closed.items():
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
            what = "is not valid" if name in self._snapshot.mistakes else "not found"
            message = f"{name} {what}, so the rule allows nothing; create it or correct the name"
            self._tell(key, Reason.RULE_NOT_FOUND, f"{field}.name", message)
            return ()
        route = self._snapshot.objects[name]
        if isinstance(route, TCPRoute):
            return (ConnectionRule(name=name.name, ports=tuple(sorted(set(route.spec.matches.ports)))),)
        return tuple(self._requests(key, rule, name, field))

    def _requests(self, key: Key, rule: Rule, group: Key, field: str) -> Iterator[RequestRule]:
        found = dict(named_matches(self._snapshot, group))
        wanted = found if rule.matches is None else [f"{group.name}/{name}" for name in rule.matches]
        for index, name in enumerate(wanted):
            if name in found:
                yield RequestRule(name=name, match=found[name])
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
    key: Key, target: TrafficTarget, settings: Settings, allowed: Sequence[RequestRule | ConnectionRule]
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
        requests=tuple(part for part in allowed if isinstance(part, RequestRule)),
        connections=tuple(part for part in allowed if isinstance(part, ConnectionRule)),
    )


def _apply(allowed: Allowed, ports: Iterable[InboundPort], only: int) -> bool:
    """Say whether a rule means something on one of the ports; `only` is the one that counts, 0 for all."""
    meant = [port for port in ports if only in {0, port.port}]
    return any(_applies(part, port) for part in allowed for port in meant)


def _applies(part: RequestRule | ConnectionRule, port: InboundPort) -> bool:
    """Say whether a port carries what a part of a rule is about (R69)."""
    if isinstance(part, RequestRule):
        return any(spoken.protocol.is_http for spoken in port.protocols)
    return any(
        not part.ports or not {port.port, *(ref.port for ref in spoken.services)}.isdisjoint(part.ports)
        for spoken in port.protocols
        if not spoken.protocol.is_http
    )


def _not_spoken(rule: Rule, account: str, ports: Iterable[InboundPort], *, only: int) -> str:
    spoken = {f"{port.port} ({item.protocol.value})" for port in ports for item in port.protocols}
    wanted = "HTTP" if rule.kind == "HTTPRouteGroup" else "anything but HTTP on the ports of the route"
    where = f"have no port {only} that speaks {wanted}" if only else f"have no port that speaks {wanted}"
    return (
        f"the pods of ServiceAccount {account} {where}, so {rule.kind} {rule.name} allows nothing; they have "
        f"{', '.join(sorted(spoken)) or 'no port'}. The appProtocol of their Services' ports decides"
    )


class TlsConfigs:
    """All TLSConfigs (004; R73, R75, R78, D17). `pods` are those that each selects (`namespace/pod`), with a sidecar or without."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._configs: Mapping[Key, TLSConfig] = dict(snapshot.of(TLSConfig))
        self.pods = {
            key: snapshot.selected(key.namespace, item.spec.selector.match_labels)
            for key, item in self._configs.items()
        }
        left = [(key, item) for key, item in snapshot.fail_closed.items() if isinstance(item, TLSConfig)]
        self._strict = {
            name for key, item in left for name in snapshot.selected(key.namespace, item.spec.selector.match_labels)
        }
        self._of_pod: dict[str, list[Key]] = defaultdict(list)
        for key, names in self.pods.items():
            for name in names:
                self._of_pod[name].append(key)

    def is_selected(self, pod: str) -> bool:
        """Say whether a pod is to talk through mutual TLS only (R73, R74)."""
        return pod in self._of_pod or pod in self._strict

    def subjects(self, pod: str) -> tuple[str, ...]:
        """Return the names that the certificate of a pod carries: those of all TLSConfigs that select it (R78)."""
        return tuple(
            sorted({name for key in self._of_pod.get(pod, ()) for name in self._configs[key].spec.subject_names})
        )

    def merged(self, workloads: Iterable[str]) -> Iterator[Finding]:
        """Tell TLSConfigs about names of others in the certificates of the pods that they select."""
        more: dict[Key, dict[Key, list[str]]] = defaultdict(lambda: defaultdict(list))
        for pod in workloads:
            for key in (selecting := self._of_pod.get(pod, ())):
                own = set(self._configs[key].spec.subject_names)
                for other in selecting:
                    if not own.issuperset(self._configs[other].spec.subject_names):
                        more[key][other].append(pod)
        for key, others in more.items():
            for other, pods in others.items():
                yield self._merged(key, other, pods)

    def _merged(self, key: Key, other: Key, pods: list[str]) -> Finding:
        own = self._configs[key].spec.subject_names
        names = ", ".join(name for name in self._configs[other].spec.subject_names if name not in own)
        message = (
            f"{other} selects {pod_list(pods)} too, so the certificate there carries its names as well: {names}. Make one of "
            "the selectors narrower if that is not meant"
        )
        return Finding(key, Reason.SUBJECTS_MERGED, "spec.subjectNames", message, related=(other,))


class PolicyResult(NamedTuple):
    """The workloads, and what is told about the objects that are about them."""

    workloads: tuple[Workload, ...]
    findings: tuple[Finding, ...]
    selected: tuple[SelectedPods, ...]


def apply_policies(
    snapshot: Snapshot,
    led: Iterable[Iterable[PodPort]],
    settings: Settings,
    workloads: tuple[Workload, ...],
    tls_modes: Mapping[str, TlsMode],
) -> PolicyResult:
    """Return the workloads with their TLS mode and access; `tls_modes` has those whose mTLS migration is not finished.

    `led` is what each Service leads to.
    """
    configs, targets = TlsConfigs(snapshot), TrafficTargets(snapshot, settings)
    done = {}
    for item in workloads:
        account = account_of(item.name, snapshot.pods[item.name])
        target = _target(item.name, account, configs, targets=targets, settings=settings)
        done[item.name] = structs.replace(
            item,
            target_tls_mode=target,
            tls_mode=tls_modes.get(item.name, target),
            subjects=configs.subjects(item.name),
            access=targets.access(account),
        )
    pods = {key: snapshot.pods_of_account.get(account, ()) for key, account in targets.accounts.items()}
    about_targets = [unenforced.selected(snapshot, key, names) for key, names in pods.items()]
    about_configs = [unenforced.selected(snapshot, key, names) for key, names in configs.pods.items()]
    found = {key: [done[name] for name in names if name in done] for key, names in pods.items()}
    selecting = {name for item in (*about_targets, *about_configs) for name in item.workloads}
    past = unenforced.bypasses(snapshot, led, [item for name, item in done.items() if name in selecting], settings)
    findings = [*targets.findings, *targets.not_applicable(found), *configs.merged(done)]
    for chosen in about_targets:
        findings += unenforced.findings(chosen, DESTINATION, past, _of_target(targets.accounts[chosen.about]))
    for chosen in about_configs:
        findings += unenforced.findings(chosen, SELECTOR, past, _of_config(chosen.about.namespace))
    selected = sorted([*about_targets, *about_configs], key=lambda item: item.about)
    return PolicyResult(tuple(done.values()), tuple(findings), tuple(selected))


def _of_target(account: str) -> Words:
    return Words(
        f"no pod runs as ServiceAccount {account}; set serviceAccountName in the pod template, or correct the name",
        unguarded="every client may do everything",
        past="every client may do everything",
    )


def _of_config(namespace: str) -> Words:
    return Words(
        f"no pod of the namespace {namespace} has all of these labels",
        unguarded="these pods take plaintext and send plaintext",
        past="every client may send plaintext",
        remedy=_REPLACE,
    )


def _target(pod: str, account: str, configs: TlsConfigs, *, targets: TrafficTargets, settings: Settings) -> TlsMode:
    """Return what is wanted of a workload: who calls is known by certificate only, so a TrafficTarget needs TLS."""
    if configs.is_selected(pod):
        return TlsMode.STRICT
    default = _TLS_MODES[settings.mtls]
    return TlsMode.PERMISSIVE if default is TlsMode.PLAIN and targets.is_selected(account) else default
