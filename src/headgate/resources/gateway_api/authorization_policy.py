"""AuthorizationPolicies of the Gateway API's GEP-3779: types, schema and checks of the kind.

The Gateway API has no CustomResourceDefinition of the kind yet. The group and the prefix X are those of its experimental kinds
(docs/internals/adr/0020-authorization-policies.md).
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from headgate.errors import Cause
from headgate.kinds import EXPERIMENTAL, names_of
from headgate.resources import cells
from headgate.resources.audit_mode import MODE, WOULD_REFUSE, RefusedCalls, mode_causes
from headgate.resources.columns import AGE, NAME, PROXIES, SELECTED, STATE, Column, summary_path, summary_schema
from headgate.resources.core.pod_fields import selector_causes
from headgate.resources.grammars import ACCOUNT_OR_ALL, SPIFFE_ID
from headgate.resources.kind import MESH_CATEGORY, Kind, ReadyBy
from headgate.resources.meta import Input, Object, Resource, part, rows
from headgate.resources.schema.builders import PORT_LIMITS, Schema, kind
from headgate.resources.schema.declared import Field, FieldRule, StatusPart, declared_schema, rule_causes
from headgate.resources.selectors import LabelSelector
from headgate.resources.status import (
    PROXY_PROGRESS,
    SELECTED_PODS,
    ObjectCondition,
    ObjectStatus,
    ProxyProgress,
    SelectedPodCounts,
    status_schema,
)

SERVICE_ACCOUNT, SPIFFE = "ServiceAccount", "SPIFFE"
ALL_ACCOUNTS = "*"
"""The name of a ServiceAccount source that stands for all ServiceAccounts of its namespace."""


class PolicyTarget(Input, frozen=True, kw_only=True):
    """The pods to which a policy applies; an empty selector selects all pods of the policy's namespace."""

    group: Annotated[
        str, Field("The group of the targets: empty, as Pods are in the core group.", pattern="^(core)?$")
    ] = ""
    kind: Annotated[str, Field("The kind of the targets: Pod.", choices=("Pod",))]
    selector: Annotated[
        LabelSelector, Field("The selector of pods in the policy's own namespace; an empty one selects all.")
    ]


class AccountSource(Input, frozen=True, kw_only=True):
    """A ServiceAccount whose pods may call; the name `*` means all of the namespace."""

    namespace: Annotated[
        str, Field("The ServiceAccount's namespace; the policy's own when absent.", grammar="label")
    ] = ""
    name: Annotated[
        str,
        Field(
            "The ServiceAccount's name; * allows all ServiceAccounts of the namespace.",
            pattern=ACCOUNT_OR_ALL,
        ),
    ]


def _matches(member: str, type_: str) -> FieldRule:
    """Return the rule that a member of the union is set exactly for its type."""
    return FieldRule(
        member,
        f"must be set if type is {type_}, and left out otherwise",
        cel=f"has(self.{member}) == (self.type == '{type_}')",
        broken=lambda source: (source.get(member) is not None) != (source.get("type") == type_),
    )


class PolicySource(Input, frozen=True, kw_only=True):
    """Callers: pods of a ServiceAccount, or the holder of a SPIFFE ID. `type` says which field is set."""

    __rules__ = (_matches("serviceAccount", SERVICE_ACCOUNT), _matches("spiffe", SPIFFE))

    type: Annotated[str, Field("The type of the source.", choices=(SERVICE_ACCOUNT, SPIFFE))]
    service_account: Annotated[AccountSource | None, Field("A ServiceAccount in the trust domain of the mesh.")] = None
    spiffe: Annotated[
        str | None,
        Field("A SPIFFE ID: spiffe://TRUST_DOMAIN/ns/NAMESPACE/sa/NAME.", pattern=SPIFFE_ID),
    ] = None


class NetworkAttributes(Input, frozen=True, kw_only=True):
    """Conditions on connections: the port of the pod."""

    ports: Annotated[
        tuple[int, ...] | None,
        Field(
            "The ports of the pods that may be called; all when absent.",
            item=Field("A port.", limits=PORT_LIMITS),
            limits={"minItems": 1, "maxItems": 64},
        ),
    ] = None


class PolicyRule(Input, frozen=True, kw_only=True):
    """Allowed traffic: from one of `sources`, to one of the ports."""

    sources: Annotated[
        tuple[PolicySource, ...] | None,
        Field(
            "The callers that are allowed: all when absent, in plaintext too; none when empty.",
            item=Field("A source of calls."),
            limits={"maxItems": 256},
        ),
    ] = None
    network_attributes: Annotated[NetworkAttributes | None, Field("Limits the rule to some ports of the pods.")] = None


class AuthorizationPolicySpec(Input, frozen=True, kw_only=True):
    """`spec` of an XAuthorizationPolicy: the pods of `targetRefs` allow only the traffic that a rule allows."""

    target_refs: Annotated[
        tuple[PolicyTarget, ...],
        Field(
            "The pods to which the policy applies.",
            item=Field("A selector of pods."),
            limits={"minItems": 1, "maxItems": 1},
            required=True,
        ),
    ]
    action: Annotated[str, Field("What the policy does with traffic that matches a rule: ALLOW.", choices=("ALLOW",))]
    rules: Annotated[
        tuple[PolicyRule, ...],
        Field(
            "The traffic that is allowed; none when empty. Traffic must match one of the rules.",
            item=Field("Allowed traffic: it must match the sources and the ports."),
            limits={"maxItems": 64},
        ),
    ] = ()


class AuthorizationPolicy(Resource, frozen=True, kw_only=True):
    """An XAuthorizationPolicy: the pods that it selects allow only callers that a policy or a TrafficTarget allows (GEP-3779)."""

    spec: AuthorizationPolicySpec


def authorization_policy_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in an XAuthorizationPolicy that its schema can't express."""
    yield from mode_causes(obj)
    spec = part(obj, "spec")
    yield from rule_causes(AuthorizationPolicySpec, spec, "spec")
    for index, target in rows(spec.get("targetRefs")):
        yield from selector_causes(part(target, "selector"), f"spec.targetRefs[{index}].selector")
    for index, rule in rows(spec.get("rules")):
        yield from _null_causes(rule, f"spec.rules[{index}]")


def _null_causes(rule: Mapping[str, Any], field: str) -> Iterator[Cause]:
    """Yield the lists of a rule that are null, which would allow all callers or ports although the rule names the field."""
    written = (("sources", rule, "callers"), ("networkAttributes.ports", part(rule, "networkAttributes"), "ports"))
    for path, parent, all_of in written:
        name = path.rpartition(".")[2]
        if name in parent and parent[name] is None:
            yield Cause(f"{field}.{path}", f"must be a list, not null; leave it out to allow all {all_of}")


def _rules(obj: Object) -> cells.Cell:
    """Return the callers and ports of each rule: `default/client:8080,shop/*`."""
    rules = part(obj, "spec").get("rules") or ()
    return ",".join(f"{_callers(rule)}{_ports(rule)}" for rule in rules) or cells.NONE


def _callers(rule: Mapping[str, Any]) -> str:
    sources = rule.get("sources")
    return "*" if sources is None else "+".join(map(_caller, sources)) or "none"


def _caller(source: Mapping[str, Any]) -> str:
    account = part(source, "serviceAccount")
    named = "/".join(str(account[name]) for name in ("namespace", "name") if account.get(name))
    return named or str(source.get("spiffe"))


def _ports(rule: Mapping[str, Any]) -> str:
    ports = part(rule, "networkAttributes").get("ports")
    return f":{'+'.join(map(str, ports))}" if ports else ""


def _pods(obj: Object) -> cells.Cell:
    """Return the selector of the pods."""
    return cells.selector("selector")(next(iter(part(obj, "spec").get("targetRefs") or ()), {}))


_COLUMNS = (
    NAME,
    Column("Pods", summary_path("pods"), "The selector of the pods.", cell=_pods),
    Column("Allowed", summary_path("allowed"), "The callers and ports that the rules allow.", cell=_rules),
    *STATE,
    AGE,
    *SELECTED,
    *PROXIES,
)


class AncestorReference(StatusPart, frozen=True, kw_only=True):
    """The object for which a policy has a status: the namespace of its pods, as GEP-3779 names none for selected pods."""

    group: Annotated[str, Field("The group of the object.")]
    kind: Annotated[str, Field("The kind of the object.", required=True)]
    name: Annotated[str, Field("The name of the object.", required=True)]


class PolicyAncestor(StatusPart, frozen=True, kw_only=True):
    """The state of a policy for one object, as GEP-713 has it."""

    ancestor_ref: Annotated[AncestorReference, Field("The namespace of the policy's pods.", required=True)]
    controller_name: Annotated[str, Field("The controller that writes the entry.", required=True)]
    conditions: Annotated[
        tuple[ObjectCondition, ...],
        Field("The conditions of the policy, as in the status itself.", key="type", item=Field("A condition.")),
    ]


class AuthorizationPolicyStatus(ObjectStatus, frozen=True, kw_only=True):
    """`status` of an XAuthorizationPolicy. The status writer adds the `summary`."""

    ancestors: Annotated[
        tuple[PolicyAncestor, ...],
        Field(
            "The policy's states in the Gateway API's form of policies.",
            item=Field("The state for one object."),
        ),
    ]
    pods: Annotated[SelectedPodCounts, SELECTED_PODS]
    proxies: Annotated[ProxyProgress, PROXY_PROGRESS]
    summary: Annotated[Mapping[str, str], Field(schema=summary_schema(_COLUMNS))] = {}
    would_refuse: Annotated[RefusedCalls | None, WOULD_REFUSE] = None


def authorization_policy() -> Schema:
    """Return the schema of an XAuthorizationPolicy."""
    return kind(
        "Allows some callers to call the selected pods, which deny all other callers.",
        spec=declared_schema(AuthorizationPolicySpec, "The selected pods and the traffic that they allow."),
        status=status_schema(AuthorizationPolicyStatus, "policy"),
    )


KIND = Kind(
    names_of("XAuthorizationPolicy", EXPERIMENTAL),
    versions=("v1alpha1",),
    status=True,
    shape=AuthorizationPolicy,
    schema=lambda _group, _version: authorization_policy(),
    checks=authorization_policy_causes,
    columns=_COLUMNS,
    annotations=frozenset({MODE}),
    recorded=True,
    categories=(MESH_CATEGORY,),
    ready_by=ReadyBy.GENERATION,
    loss="Calls that it refused are allowed until then.",
)
