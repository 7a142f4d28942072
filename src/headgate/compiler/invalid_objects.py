"""Findings about invalid objects, and about labels and annotations without an effect."""

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot
from headgate.compiler.workloads import has_sidecar
from headgate.resources import mesh_keys
from headgate.resources.audit_mode import AUDIT, MODE
from headgate.resources.core.namespace import Namespace
from headgate.resources.core.pod import MeshPod
from headgate.resources.gateway_api.authorization_policy import AuthorizationPolicy
from headgate.resources.gateway_api.backend_tls_policy import BackendTLSPolicy
from headgate.resources.meta import Key, Resource
from headgate.resources.smi.traffic_target import TrafficTarget


def useless_keys(_shared: None, key: Key, resource: Resource) -> tuple[Finding, ...] | None:
    """Return a warning for each `headgate.dev/` label or annotation without effect on an object; None if there are none."""
    causes = mesh_keys.useless_keys(key.kind, resource.metadata)
    warnings = (Finding(key, Reason.FIELD_IGNORED, cause.field, cause.message) for cause in causes)
    return tuple(warnings) or None


def mistakes(snapshot: Snapshot) -> list[Finding]:
    """Return the findings about invalid objects, and about wrong labels and annotations of Namespaces.

    Stages of the Gateway API report the mistakes of other objects that are in effect.
    """
    return [
        Finding(key, Reason.FIELD_IGNORED, cause.field, f"{cause.message}; it has no effect")
        if key in snapshot.objects
        else Finding(key, Reason.INVALID, cause.field, f"{cause.message}{_remaining_effect(snapshot, key)}")
        for key, causes in snapshot.mistakes.items()
        if key not in snapshot.objects or isinstance(snapshot.objects[key], Namespace)
        for cause in causes
    ]


def _remaining_effect(snapshot: Snapshot, key: Key) -> str:
    """Return the effect that an invalid object still has, as the end of a message."""
    left = snapshot.fail_closed.get(key)
    if isinstance(left, TrafficTarget | AuthorizationPolicy) and left.metadata.annotations.get(MODE) == AUDIT:
        return "; until it is corrected, it audits its pods as if it allowed nothing, and closes none"
    if isinstance(left, TrafficTarget):
        return f"; until it is corrected, ServiceAccount {left.spec.destination.name} stays closed and this object allows nothing"
    if isinstance(left, AuthorizationPolicy):
        return "; until it is corrected, its pods stay closed and this object allows nothing"
    if isinstance(left, MeshPod):
        return "; until it is corrected, its sidecar has no excluded ports" if has_sidecar(left) else ""
    if isinstance(left, BackendTLSPolicy):
        return "; until it is corrected, its Services get no requests of Gateways"
    return "; until it is corrected, its pods use mutual TLS only, without its subject names" if left else ""
