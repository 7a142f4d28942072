"""Keep the restrictive part of an invalid access policy, TLSConfig or Pod, so that a mistake permits no traffic.

A TrafficTarget or XAuthorizationPolicy whose pods are readable keeps them closed and allows nothing; in audit mode it
closes none. A TLSConfig with a readable selector keeps its pods strict and adds no subject names. Without a readable
destination or selector, the object is ignored. A pod keeps its sidecar but loses its excluded ports, because callers would send plaintext to a pod without a
sidecar. A BackendTLSPolicy with readable targets trusts no server, so that Gateways send nothing in plaintext.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from msgspec import structs

from headgate.errors import DecodeError
from headgate.resources.audit_mode import AUDIT, MODE
from headgate.resources.core.pod import MeshPod
from headgate.resources.core.pod_metadata import APPLICATION_PORTS, SIDECAR
from headgate.resources.decode import read, without_nulls
from headgate.resources.gateway_api import backend_tls_policy
from headgate.resources.gateway_api.authorization_policy import (
    AuthorizationPolicy,
    AuthorizationPolicySpec,
    PolicyTarget,
)
from headgate.resources.gateway_api.backend_tls_policy import BackendTLSPolicy
from headgate.resources.mesh.tls_config import PodSelector, TLSConfig, TLSConfigSpec
from headgate.resources.meta import Metadata, Object, Resource, part, rows
from headgate.resources.registry import find_written
from headgate.resources.selectors import LabelSelector
from headgate.resources.smi.traffic_target import Destination, TrafficTarget, TrafficTargetSpec

ACCOUNT, POD, ALLOW = "ServiceAccount", "Pod", "ALLOW"
S = TypeVar("S", bound=LabelSelector)
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
KEPT = (SIDECAR, APPLICATION_PORTS)  # annotations that headgate writes


def restrictive_part(obj: Object) -> Resource | None:
    """Return the restrictive part of an object that can't be decoded; None for all other kinds."""
    kind = find_written(str(obj.get("apiVersion")), str(obj.get("kind")))
    namespace = part(obj, "metadata").get("namespace") or "default"
    metadata = Metadata(namespace=str(namespace), name=str(part(obj, "metadata").get("name")))
    if kind is None or kind.shape not in {TrafficTarget, AuthorizationPolicy, TLSConfig, MeshPod, BackendTLSPolicy}:
        return None
    if kind.shape is BackendTLSPolicy:
        return _backend_policy(obj, metadata)
    if kind.shape is MeshPod:
        return _pod(obj)
    if kind.shape is AuthorizationPolicy:
        return _policy(obj, metadata)
    return _target(obj, metadata) if kind.shape is TrafficTarget else _config(obj, metadata)


def _target(obj: Object, metadata: Metadata) -> TrafficTarget | None:
    destination = part(obj.get("spec"), "destination") or part(obj, "destination")  # v1alpha1 has no spec
    name, namespace = destination.get("name"), destination.get("namespace") or metadata.namespace
    if not isinstance(name, str) or not name or namespace != metadata.namespace:
        return None
    spec = TrafficTargetSpec(destination=Destination(kind=ACCOUNT, name=name))
    return TrafficTarget(metadata=_with_mode(metadata, obj), spec=spec)


def _with_mode(metadata: Metadata, obj: Object) -> Metadata:
    """Return metadata with the audit mode of an object: a mistake in an object that closes no pod must close none."""
    mode = part(part(obj, "metadata"), "annotations").get(MODE)
    return structs.replace(metadata, annotations={MODE: AUDIT}) if mode == AUDIT else metadata


def _policy(obj: Object, metadata: Metadata) -> AuthorizationPolicy | None:
    """Return the policy with those of its selectors that are readable, and without rules."""
    targets = [target for _, target in rows(part(obj, "spec").get("targetRefs"))]
    selectors = [_selector(target.get("selector"), LabelSelector) for target in targets if target.get("kind") == POD]
    readable = tuple(PolicyTarget(kind=POD, selector=selector) for selector in selectors if selector)
    if not readable:
        return None
    spec = AuthorizationPolicySpec(target_refs=readable, action=ALLOW)
    return AuthorizationPolicy(metadata=_with_mode(metadata, obj), spec=spec)


def _config(obj: Object, metadata: Metadata) -> TLSConfig | None:
    written = part(obj.get("spec"), "selector")
    readable = _selector(written, PodSelector) if written else None
    return TLSConfig(metadata=metadata, spec=TLSConfigSpec(selector=readable)) if readable else None


def _selector(written: object, shape: type[S]) -> S | None:
    """Return a selector; None if it is not readable.

    A requirement `In` without values, which no pod satisfies, is left out; None if no other requirement remains.
    """
    if not isinstance(written, Mapping) or not written.keys() <= {"matchLabels", "matchExpressions"}:
        return None
    try:
        readable = msgspec.convert(written, shape)
    except msgspec.ValidationError:
        return None
    if any(requirement.operator not in _OPERATORS for requirement in readable.match_expressions):
        return None
    complete = tuple(each for each in readable.match_expressions if each.operator != "In" or each.values)
    if readable.match_expressions and not complete and not readable.match_labels:
        return None
    return structs.replace(readable, match_expressions=complete)


def _pod(obj: Object) -> MeshPod | None:
    metadata = part(obj, "metadata")
    written = part(metadata, "annotations")
    kept = {name: text for name in KEPT if isinstance(text := written.get(name), str)}
    try:
        return read({**obj, "metadata": {**metadata, "annotations": kept}}, MeshPod)
    except DecodeError:
        return None


def _backend_policy(obj: Object, metadata: Metadata) -> BackendTLSPolicy | None:
    """Return the policy with those of its targets that are readable. Its age decides between policies, as that of a valid one."""
    written = (without_nulls(target) for _, target in rows(part(obj, "spec").get("targetRefs")))
    targets = tuple(target for target in map(_tls_target, written) if target)
    if not targets:
        return None
    created = part(obj, "metadata").get("creationTimestamp")
    metadata = structs.replace(metadata, creation_timestamp=created if isinstance(created, str) else "")
    validation = backend_tls_policy.BackendTLSValidation(hostname="")
    spec = backend_tls_policy.BackendTLSPolicySpec(target_refs=targets, validation=validation)
    return BackendTLSPolicy(metadata=metadata, spec=spec)


def _tls_target(written: Object) -> backend_tls_policy.TLSPolicyTarget | None:
    try:
        return msgspec.convert(written, backend_tls_policy.TLSPolicyTarget)
    except msgspec.ValidationError:
        return None
