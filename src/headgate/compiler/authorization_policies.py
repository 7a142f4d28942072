"""Apply XAuthorizationPolicies (GEP-3779) to pods: the same grants as those of TrafficTargets, selected by labels."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot, selected_pods
from headgate.compiler.workloads import expected
from headgate.model.access import ANY_CALLER, ConnectionRule, Grant, RequestRule
from headgate.model.identities import is_gateway, parse_id, spiffe_id
from headgate.model.requests import ANY
from headgate.model.routing import Workload
from headgate.resources.audit_mode import AUDIT, MODE
from headgate.resources.gateway_api.authorization_policy import (
    ALL_ACCOUNTS,
    AccountSource,
    AuthorizationPolicy,
    PolicyRule,
    PolicySource,
)
from headgate.resources.meta import SYSTEM_NAMESPACE, Key
from headgate.settings import Settings

TARGETS = "spec.targetRefs"


class AuthorizationPolicies:
    """All XAuthorizationPolicies. `pods` has the pods (`namespace/pod`) that each of them selects.

    A policy closes its pods to all callers that no policy and no TrafficTarget allows. The policies of a pod add up. An invalid policy
    allows nothing, and closes its pods if their selector can be read. A policy in audit mode closes nothing.
    """

    def __init__(self, snapshot: Snapshot, settings: Settings) -> None:
        self.pods: dict[Key, tuple[str, ...]] = {}
        self.findings: list[Finding] = []
        self._snapshot = snapshot
        self._settings = settings
        self._grants: dict[str, list[Grant]] = defaultdict(list)
        self._enforced: dict[str, Key] = {}  # a policy that closes the pod
        for key, policy in snapshot.of(AuthorizationPolicy):
            self.pods[key] = _selected(snapshot, key, policy)
            self._add(key, policy, self.pods[key])
        for key, left in snapshot.fail_closed.items():
            if isinstance(left, AuthorizationPolicy):
                self._add(key, left, _selected(snapshot, key, left))

    def grants(self, pod: str) -> Sequence[Grant]:
        """Return the grants of all policies that select a pod."""
        return self._grants.get(pod, ())

    def is_selected(self, pod: str) -> bool:
        """Return whether a policy selects the pod."""
        return pod in self._grants

    def closing(self, pod: str) -> Key | None:
        """Return a policy that closes the pod; None if there is none."""
        return self._enforced.get(pod)

    def _add(self, key: Key, policy: AuthorizationPolicy, pods: Sequence[str]) -> None:
        grants = [
            grant
            for index, rule in enumerate(policy.spec.rules)
            for grant in self._of_rule(key, f"rules[{index}]", rule)
        ]
        for pod in pods:
            self._grants[pod] += grants
            if policy.metadata.annotations.get(MODE) != AUDIT:
                self._enforced.setdefault(pod, key)

    def _of_rule(self, key: Key, name: str, rule: PolicyRule) -> Iterator[Grant]:
        """Yield a grant for each port of a rule; none if no caller fits its sources."""
        if rule.sources is None:
            message = "the rule has no sources, so it allows all callers, also those without a sidecar; to allow only some, name them in sources"
            self._add_finding(key, Reason.ALL_CALLERS_ALLOWED, f"spec.{name}.sources", message)
        sources = (
            [ANY_CALLER]
            if rule.sources is None
            else [
                identity
                for number, source in enumerate(rule.sources)
                for identity in self._identity(key, f"spec.{name}.sources[{number}]", source)
            ]
        )
        for port in sorted(set(_ports(rule) or (0,))) if sources else ():
            yield Grant(
                origin=key,
                sources=tuple(sorted(set(sources))),
                port=port,
                requests=(RequestRule(name=name, match=ANY),),
                connections=(ConnectionRule(name=name),),
            )

    def _identity(self, key: Key, field: str, source: PolicySource) -> Iterator[str]:
        """Yield the identity of a source, or the beginning of identities; none if no caller can have it."""
        if account := source.service_account:
            namespace = account.namespace or key.namespace
            if not self._has_pods(namespace, account.name):
                self._add_finding(key, Reason.NO_CALLERS, f"{field}.serviceAccount", _no_callers(namespace, account))
            yield spiffe_id(self._settings.trust_domain, namespace, account.name)
            return
        domain, identity = self._settings.trust_domain, source.spiffe or ""
        if identity.startswith(f"spiffe://{domain}/"):
            named = parse_id(identity)
            if named is None or not self._has_pods(named.namespace, named.name):
                message = f"no pod has the identity {identity}, so the source allows no caller yet; correct the ID, or wait for the pods"
                self._add_finding(key, Reason.NO_CALLERS, f"{field}.spiffe", message)
            yield identity
            return
        message = (
            f"{identity} is not in the trust domain {domain} of the mesh, whose pods accept no other identities, so the source "
            f"allows no caller; write an ID that begins with spiffe://{domain}/"
        )
        self._add_finding(key, Reason.RULE_NOT_APPLICABLE, f"{field}.spiffe", message)

    def _has_pods(self, namespace: str, name: str) -> bool:
        if name == ALL_ACCOUNTS:
            return namespace == SYSTEM_NAMESPACE or namespace in self._snapshot.pods_of_namespace
        return is_gateway(namespace, name) or f"{namespace}/{name}" in self._snapshot.pods_of_account

    def not_applicable(self, workloads: Mapping[Key, Sequence[Workload]]) -> Iterator[Finding]:
        """Yield a finding for each port of a rule that no selected pod has. `workloads` has the pods of each policy."""
        for key, policy in self._snapshot.of(AuthorizationPolicy):
            written = [
                (f"spec.rules[{index}].networkAttributes.ports[{number}]", port)
                for index, rule in enumerate(policy.spec.rules)
                for number, port in enumerate(_ports(rule))
            ]
            running = workloads.get(key, ()) if written else ()
            served = {port.port for workload in running for port in workload.ports}
            if not running or all(port in served for _, port in written):
                continue
            served |= {port.port for workload in running for port in expected(self._snapshot, workload.name)}
            names = ", ".join(map(str, sorted(served))) or "none"
            for field, port in written:
                if port not in served:
                    message = (
                        f"the pods have no port {port} that a Service leads to, so the rule allows nothing there; their ports: "
                        f"{names}. Write the port of the pods, not that of the Service"
                    )
                    yield Finding(key, Reason.RULE_NOT_APPLICABLE, field, message)

    def _add_finding(self, key: Key, reason: Reason, field: str, message: str) -> None:
        self.findings.append(Finding(key, reason, field, message))


def closing_policies(snapshot: Snapshot, pod: str) -> Iterator[Key]:
    """Yield the policies that close a pod (`namespace/pod`)."""
    for key, policy in (*snapshot.of(AuthorizationPolicy), *snapshot.fail_closed.items()):
        if (
            isinstance(policy, AuthorizationPolicy)
            and policy.metadata.annotations.get(MODE) != AUDIT
            and pod in _selected(snapshot, key, policy)
        ):
            yield key


def pods_of_policy(snapshot: Snapshot, key: Key) -> tuple[str, ...]:
    """Return the pods (`namespace/pod`) that a policy selects; an invalid one too, if its selector can be read."""
    policy = snapshot.fail_closed.get(key, snapshot.objects.get(key))
    return _selected(snapshot, key, policy) if isinstance(policy, AuthorizationPolicy) else ()


def _selected(snapshot: Snapshot, key: Key, policy: AuthorizationPolicy) -> tuple[str, ...]:
    selectors = [target.selector for target in policy.spec.target_refs]
    return tuple(
        dict.fromkeys(name for selector in selectors for name in selected_pods(snapshot, key.namespace, selector))
    )


def _ports(rule: PolicyRule) -> tuple[int, ...]:
    """Return the ports to which a rule is limited; none means all ports."""
    return (rule.network_attributes.ports or ()) if rule.network_attributes else ()


def _no_callers(namespace: str, account: AccountSource) -> str:
    if account.name == ALL_ACCOUNTS:
        return f"namespace {namespace} has no pod, so the source allows no caller yet; correct the namespace, or wait for the pods"
    named = f"ServiceAccount {namespace}/{account.name}"
    return f"no pod runs as {named}, so the source allows no caller yet; correct the name, or wait for the pods"
