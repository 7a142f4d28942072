"""Apply TLSConfigs (mutual TLS, R72 to R78) and access policies (authorization, R68 to R70, D21) to workloads."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from headgate.compiler import unenforced
from headgate.compiler.authorization_policies import TARGETS, AuthorizationPolicies
from headgate.compiler.reasons import Reason
from headgate.compiler.references import named_matches
from headgate.compiler.report import Finding, SelectedPods, pod_list
from headgate.compiler.similar_pods import SimilarPods
from headgate.compiler.snapshot import Snapshot, account_of, selected_pods
from headgate.compiler.unenforced import EffectTexts
from headgate.compiler.workloads import PodPort, expected
from headgate.kinds import SPECS
from headgate.model.access import Access, ConnectionRule, Grant, RequestRule
from headgate.model.identities import spiffe_id
from headgate.model.mutual_tls import TlsMode
from headgate.model.routing import InboundPort, Workload
from headgate.resources.audit_mode import AUDIT, MODE
from headgate.resources.core.pod_metadata import INJECT
from headgate.resources.mesh.tls_config import TLSConfig
from headgate.resources.meta import Key
from headgate.resources.smi.port_routes import TCPRoute
from headgate.resources.smi.traffic_target import Rule, TrafficTarget
from headgate.settings import Settings

DESTINATION = "spec.destination.name"
AUDIT_FIELD = f"metadata.annotations.{MODE}"
_OPEN_MESSAGE = "in audit mode: denies nothing, and counts the calls that it would deny (kubectl traffic audit); to enforce it, change the mode to enforce"
SELECTOR = "spec.selector"
_REPLACE = (
    "Replace the pods (kubectl rollout restart): new pods that a TLSConfig selects get a sidecar, unless they have "
    f'the label {INJECT}: "false" or headgate runs with --sidecars none'
)
_TLS_MODES = {"off": TlsMode.PLAIN, "permissive": TlsMode.PERMISSIVE, "strict": TlsMode.STRICT}
Allowed = tuple[RequestRule | ConnectionRule, ...]


class TrafficTargets:
    """All TrafficTargets (003). `accounts` has their destinations (`namespace/name`).

    A TrafficTarget closes the pods of its destination to all callers except its sources. This holds even if a
    part of it is missing or invalid: such a part allows nothing. A TrafficTarget in audit mode closes nothing.
    """

    def __init__(self, snapshot: Snapshot, settings: Settings) -> None:
        self.accounts: dict[Key, str] = {}
        self.findings: list[Finding] = []
        self._snapshot = snapshot
        self._settings = settings
        self._grants: dict[str, list[Grant]] = defaultdict(list)
        self._enforced: dict[str, Key] = {}
        self._rules: dict[Key, list[tuple[int, Allowed]]] = {}
        for key, target in snapshot.of(TrafficTarget):
            self._add(key, target)
        for key, left in snapshot.fail_closed.items():
            if isinstance(left, TrafficTarget):
                self._grants[_account(key, left)] += ()
        for account, key in closing_targets(snapshot):
            self._enforced.setdefault(account, key)

    def grants(self, account: str) -> Sequence[Grant]:
        """Return the grants of all TrafficTargets for a ServiceAccount's pods (D21)."""
        return self._grants.get(account, ())

    def closing(self, account: str) -> Key | None:
        """Return a TrafficTarget that closes the pods of a ServiceAccount; None if there is none."""
        return self._enforced.get(account)

    def is_selected(self, account: str) -> bool:
        """Return whether a TrafficTarget has the ServiceAccount as its destination."""
        return account in self._grants

    def _add(self, key: Key, target: TrafficTarget) -> None:
        account = _account(key, target)
        self.accounts[key] = account
        rules = [
            (index, self._allowed(key, rule, f"spec.rules[{index}]")) for index, rule in enumerate(target.spec.rules)
        ]
        self._rules[key] = [(index, allowed) for index, allowed in rules if allowed]
        grants = self._grants[account]  # an entry without grants is a policy for the account too
        if grant := _grant(key, target, self._settings, [part for _, allowed in rules for part in allowed]):
            grants.append(grant)

    def _allowed(self, key: Key, rule: Rule, field: str) -> Allowed:
        """Return the access rules of a referenced route; none if the route is missing or invalid."""
        name = Key(SPECS, rule.kind, key.namespace, rule.name)
        if rule.kind == "UDPRoute":
            message = f"headgate does not proxy UDP, so {name} allows nothing; remove the rule"
            self._add_finding(key, Reason.RULE_NOT_APPLICABLE, f"{field}.kind", message)
            return ()
        if name not in self._snapshot.objects:
            invalid = name in self._snapshot.mistakes
            what, fix = ("is not valid", "correct it") if invalid else ("not found", "create it or correct the name")
            message = f"{name} {what}, so the rule allows nothing; {fix}"
            self._add_finding(key, Reason.RULE_NOT_FOUND, f"{field}.name", message)
            return ()
        route = self._snapshot.objects[name]
        if isinstance(route, TCPRoute):
            matches = route.spec.matches
            return (ConnectionRule(name=name.name, ports=tuple(sorted(set(matches.ports))) if matches else ()),)
        return tuple(self._requests(key, rule, name, field))

    def _requests(self, key: Key, rule: Rule, group: Key, field: str) -> Iterator[RequestRule]:
        matches = dict(named_matches(self._snapshot, group))
        selected = matches if rule.matches is None else [f"{group.name}/{name}" for name in rule.matches]
        for index, name in enumerate(selected):
            if name in matches:
                yield RequestRule(name=name, match=matches[name])
                continue
            defined = ", ".join(full_name.partition("/")[2] for full_name in matches) or "none"
            message = f"{group} has no match {name.partition('/')[2]}, so it allows nothing; its matches are: {defined}"
            self._add_finding(key, Reason.RULE_NOT_FOUND, f"{field}.matches[{index}]", message)

    def not_applicable(self, workloads: Mapping[Key, Sequence[Workload]]) -> Iterator[Finding]:
        """Yield a finding for each rule whose protocol no port of its destination has.

        `workloads` has the destination's workloads by TrafficTarget.
        """
        for key, rules in self._rules.items():
            running = [
                workload for workload in workloads.get(key, ()) if workload.ports or workload.capture == "transparent"
            ]
            target = self._snapshot.objects[key]
            if not running or not isinstance(target, TrafficTarget):
                continue
            only, ports = target.spec.destination.port, [port for workload in running for port in workload.ports]
            unspoken = [index for index, allowed in rules if not _apply(allowed, ports, only)]
            soon = (
                [port for workload in running for port in expected(self._snapshot, workload.name)] if unspoken else []
            )
            for index, allowed in rules:
                if index in unspoken and not _apply(allowed, soon, only):
                    message = _not_applicable_message(target.spec.rules[index], self.accounts[key], ports, only=only)
                    yield Finding(key, Reason.RULE_NOT_APPLICABLE, f"spec.rules[{index}]", message)

    def _add_finding(self, key: Key, reason: Reason, field: str, message: str) -> None:
        self.findings.append(Finding(key, reason, field, message))


def closing_targets(snapshot: Snapshot) -> Iterator[tuple[str, Key]]:
    """Yield the ServiceAccounts (`namespace/name`) whose pods TrafficTargets close, each with the TrafficTarget."""
    for key, target in (*snapshot.of(TrafficTarget), *snapshot.fail_closed.items()):
        if isinstance(target, TrafficTarget) and target.metadata.annotations.get(MODE) != AUDIT:
            yield _account(key, target), key


def _account(key: Key, target: TrafficTarget) -> str:
    """Return the destination (`namespace/name`); its namespace is always that of the TrafficTarget (2.3)."""
    return f"{key.namespace}/{target.spec.destination.name}"


def _grant(
    key: Key, target: TrafficTarget, settings: Settings, allowed: Sequence[RequestRule | ConnectionRule]
) -> Grant | None:
    """Return the grant of a TrafficTarget; None if it has no usable source or rule."""
    sources = {
        spiffe_id(settings.trust_domain, source.namespace or key.namespace, source.name)
        for source in target.spec.sources
    }
    if not (sources and allowed):
        return None
    return Grant(
        origin=key,
        sources=tuple(sorted(sources)),
        port=target.spec.destination.port or 0,
        requests=tuple(part for part in allowed if isinstance(part, RequestRule)),
        connections=tuple(part for part in allowed if isinstance(part, ConnectionRule)),
    )


def _apply(allowed: Allowed, ports: Iterable[InboundPort], only: int | None) -> bool:
    """Return whether a rule applies to one of the ports; `only` limits the ports to this number."""
    meant = [port for port in ports if only in {None, port.port}]
    return any(_applies(part, port) for part in allowed for port in meant)


def _applies(part: RequestRule | ConnectionRule, port: InboundPort) -> bool:
    """Return whether a rule applies to the protocol of a port (R69)."""
    if isinstance(part, RequestRule):
        return any(port_protocol.protocol.is_http for port_protocol in port.protocols)
    return any(
        not part.ports or not {port.port, *(ref.port for ref in port_protocol.services)}.isdisjoint(part.ports)
        for port_protocol in port.protocols
        if not port_protocol.protocol.is_http
    )


def _not_applicable_message(rule: Rule, account: str, ports: Iterable[InboundPort], *, only: int | None) -> str:
    protocols = {f"{port.port} ({port_protocol.protocol.value})" for port in ports for port_protocol in port.protocols}
    number = f" {only}" if only else ""
    no_port = (
        f"HTTP port{number}" if rule.kind == "HTTPRouteGroup" else f"non-HTTP port{number} that the TCPRoute selects"
    )
    return (
        f"the pods of ServiceAccount {account} have no {no_port}, so {rule.kind} {rule.name} allows nothing; their ports: "
        f"{', '.join(sorted(protocols)) or 'none'}. The appProtocol of their Services' ports decides the protocol"
    )


class TlsConfigs:
    """All TLSConfigs (004; R73, R75, R78, D17). `pods` has the pods (`namespace/pod`) that each TLSConfig selects."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._configs: Mapping[Key, TLSConfig] = dict(snapshot.of(TLSConfig))
        self.pods = {
            key: selected_pods(snapshot, key.namespace, config.spec.selector) for key, config in self._configs.items()
        }
        left = [(key, config) for key, config in snapshot.fail_closed.items() if isinstance(config, TLSConfig)]
        self._strict = {
            name for key, config in left for name in selected_pods(snapshot, key.namespace, config.spec.selector)
        }
        self._of_pod: dict[str, list[Key]] = defaultdict(list)
        for key, names in self.pods.items():
            for name in names:
                self._of_pod[name].append(key)

    def is_selected(self, pod: str) -> bool:
        """Return whether a TLSConfig selects the pod, so that it uses mutual TLS only (R73, R74)."""
        return pod in self._of_pod or pod in self._strict

    def subjects(self, pod: str) -> tuple[str, ...]:
        """Return the subject names in the certificate of a pod: those of all TLSConfigs that select it (R78)."""
        return tuple(
            sorted({name for key in self._of_pod.get(pod, ()) for name in self._configs[key].spec.subject_names})
        )

    def merged(self, workloads: Iterable[str]) -> Iterator[Finding]:
        """Yield a finding for each TLSConfig whose pods get subject names of another TLSConfig too."""
        more: dict[Key, dict[Key, list[str]]] = defaultdict(lambda: defaultdict(list))
        for pod in workloads:
            for key in (selecting := self._of_pod.get(pod, ())):
                own = set(self._configs[key].spec.subject_names)
                for other in selecting:
                    if not own.issuperset(self._configs[other].spec.subject_names):
                        more[key][other].append(pod)
        for key, merged_configs in more.items():
            for other, pods in merged_configs.items():
                yield self._merged(key, other, pods)

    def _merged(self, key: Key, other: Key, pods: list[str]) -> Finding:
        own = self._configs[key].spec.subject_names
        names = ", ".join(name for name in self._configs[other].spec.subject_names if name not in own)
        message = (
            f"{other} also selects {pod_list(pods)}, so the certificate there has its names too: {names}. If you do not want "
            "this, make one of the selectors narrower"
        )
        return Finding(key, Reason.SUBJECTS_MERGED, "spec.subjectNames", message, related=(other,))


class Policies(NamedTuple):
    """All access policies: the TrafficTargets of ServiceAccounts, and the XAuthorizationPolicies that select pods by labels."""

    snapshot: Snapshot
    settings: Settings
    targets: TrafficTargets
    by_labels: AuthorizationPolicies

    @classmethod
    def of(cls, snapshot: Snapshot, settings: Settings) -> "Policies":
        """Return the access policies of a snapshot."""
        return cls(snapshot, settings, TrafficTargets(snapshot, settings), AuthorizationPolicies(snapshot, settings))

    def is_selected(self, pod: str, account: str) -> bool:
        """Return whether an access policy selects a pod."""
        return self.targets.is_selected(account) or self.by_labels.is_selected(pod)

    def access(self, pod: str, account: str) -> Access:
        """Return the authorization of a pod: the sum of all grants. One enforced policy is enough to close the pod (D21)."""
        closed = bool(self._closing(pod, account)) or self.settings.access == "deny"
        grants = (*self.targets.grants(account), *self.by_labels.grants(pod))
        return Access(closed=closed, grants=grants, audited=self.is_selected(pod, account) and not closed)

    def pods(self) -> Mapping[Key, tuple[str, ...]]:
        """Return the pods (`namespace/pod`) that each access policy selects."""
        accounts = self.targets.accounts.items()
        return {key: self.snapshot.pods_of_account.get(account, ()) for key, account in accounts} | self.by_labels.pods

    def audits(self, pods: Mapping[Key, tuple[str, ...]]) -> Iterator[Finding]:
        """Yield a finding for each policy in audit mode: that it denies nothing, or that its pods are closed nevertheless."""
        for key, names in pods.items():
            if self.snapshot.objects[key].metadata.annotations.get(MODE) != AUDIT:
                continue
            own = self.targets.accounts.get(key, "")
            places = [("", own), *((name, account_of(name, self.snapshot.pods[name])) for name in names)]
            other = next(filter(None, (self._closing(*place) for place in places)), None)
            if other or self.settings.access == "deny":
                yield Finding(key, Reason.AUDIT_WITHOUT_EFFECT, AUDIT_FIELD, _closed_message(other))
            else:
                yield Finding(key, Reason.AUDIT_MODE, AUDIT_FIELD, _OPEN_MESSAGE)

    def texts(self, key: Key) -> tuple[str, EffectTexts]:
        """Return the field that selects the pods of a policy, and the texts of the messages about them."""
        account = self.targets.accounts.get(key)
        unselected = (
            f"no pod runs as ServiceAccount {account}; set serviceAccountName in the pod template, or correct the name"
            if account
            else f"no pod in namespace {key.namespace} has these labels; correct the selector, or wait for the pods"
        )
        return DESTINATION if account else TARGETS, EffectTexts(
            unselected,
            without_sidecar="every client may send any request",
            bypassed="every client may send any request to this port",
        )

    def _closing(self, pod: str, account: str) -> Key | None:
        return self.targets.closing(account) or self.by_labels.closing(pod)


def _closed_message(other: Key | None) -> str:
    cause = f"{other} is enforced for the same pods" if other else "headgate runs with --access deny"
    fix = f"annotate {other} with {MODE}: {AUDIT} too" if other else "run it with --access selected"
    return f"{cause}, so requests that no policy allows are refused, and this one audits nothing; to audit, {fix}"


class PolicyResult(NamedTuple):
    """The workloads with their policies, findings about the policies, and the pods that each policy selects."""

    workloads: tuple[Workload, ...]
    findings: tuple[Finding, ...]
    selected: tuple[SelectedPods, ...]


def apply_policies(
    snapshot: Snapshot,
    pod_ports: Iterable[Iterable[PodPort]],
    settings: Settings,
    workloads: tuple[Workload, ...],
    tls_modes: Mapping[str, TlsMode],
) -> PolicyResult:
    """Return the workloads with their TLS mode and access.

    `pod_ports` has the pod ports of each Service; `tls_modes` has the active mode of each workload whose mTLS
    migration is not finished.
    """
    configs, policies = TlsConfigs(snapshot), Policies.of(snapshot, settings)
    targets = policies.targets
    applied = {}
    for workload in workloads:
        account = account_of(workload.name, snapshot.pods[workload.name])
        is_selected = policies.is_selected(workload.name, account)
        target = _target(configs.is_selected(workload.name), settings, is_selected=is_selected)
        applied[workload.name] = structs.replace(
            workload,
            target_tls_mode=target,
            tls_mode=tls_modes.get(workload.name, target),
            subjects=configs.subjects(workload.name),
            access=policies.access(workload.name, account),
        )
    pods = policies.pods()
    about_policies = [unenforced.selected(snapshot, key, names) for key, names in pods.items()]
    about_configs = [unenforced.selected(snapshot, key, names) for key, names in configs.pods.items()]
    by_policy = {key: [applied[name] for name in names if name in applied] for key, names in pods.items()}
    selecting = {name for chosen in (*about_policies, *about_configs) for name in chosen.workloads}
    bypasses = unenforced.bypasses(
        snapshot, pod_ports, [workload for name, workload in applied.items() if name in selecting], settings
    )
    findings = [
        *targets.findings,
        *policies.by_labels.findings,
        *policies.audits(pods),
        *targets.not_applicable(by_policy),
        *policies.by_labels.not_applicable(by_policy),
        *configs.merged(applied),
    ]
    similar = SimilarPods(snapshot)
    for chosen in about_policies:
        field, texts = policies.texts(chosen.about)
        findings += unenforced.findings(chosen, field, bypasses, texts, similar)
    for chosen in about_configs:
        findings += unenforced.findings(chosen, SELECTOR, bypasses, _config_texts(chosen.about.namespace))
    selected = sorted([*about_policies, *about_configs], key=lambda chosen: chosen.about)
    return PolicyResult(tuple(applied.values()), tuple(findings), tuple(selected))


def _config_texts(namespace: str) -> EffectTexts:
    return EffectTexts(
        f"no pod in namespace {namespace} has all of these labels; correct the labels, or wait for the pods",
        without_sidecar="these pods send and accept plaintext",
        bypassed="every client may send plaintext to this port",
        remedy=_REPLACE,
    )


def _target(has_config: bool, settings: Settings, *, is_selected: bool) -> TlsMode:  # noqa: FBT001
    """Return the TLS mode that a workload should reach, by whether a TLSConfig or an access policy selects it.

    An access policy needs mutual TLS, because only a certificate identifies a caller.
    """
    if has_config:
        return TlsMode.STRICT
    default = _TLS_MODES[settings.mtls]
    return TlsMode.PERMISSIVE if default is TlsMode.PLAIN and is_selected else default
