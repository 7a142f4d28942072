"""What other meshes read and headgate does not: their kinds, and the keys of their sidecars."""

from collections.abc import Iterator
from typing import NamedTuple

from headgate.errors import Cause
from headgate.resources.core.pod_metadata import EXCLUDED_PORTS, INJECT, NOT_INJECTED
from headgate.resources.meta import Object, part
from headgate.resources.pod_templates import pod_template, template_path

_KEYS = (
    "istio-injection",
    "istio.io/rev",
    "linkerd.io/inject",
    "openservicemesh.io/monitored-by",
    "openservicemesh.io/sidecar-injection",
    "sidecar.istio.io/inject",
)


_OUTBOUND = (
    "no annotation replaces it: connections to addresses outside the mesh pass as the application sends them, except with "
    "--outbound refuse"
)
_SETTINGS = {
    "openservicemesh.io/inbound-port-exclusion-list": f"write the annotation {EXCLUDED_PORTS} of the pods",
    "openservicemesh.io/outbound-port-exclusion-list": _OUTBOUND,
    "openservicemesh.io/outbound-ip-range-exclusion-list": _OUTBOUND,
    "openservicemesh.io/metrics": "all proxies report metrics without it (docs/tasks/prometheus.md)",
}
"""Annotations with settings of another mesh's sidecars, with what replaces each."""


class _Mesh(NamedTuple):
    name: str
    section: str  # of docs/tasks/migration.md


_ISTIO, _LINKERD = _Mesh("Istio", "istio"), _Mesh("Linkerd", "linkerd")
_OSM = _Mesh("Open Service Mesh", "open-service-mesh")
_DENIALS = "requests that it denies may be allowed"
_ROUTING = "routes, retries and limits that it sets do not apply"
_GROUPS = {
    "config.openservicemesh.io": (_OSM, f"{_DENIALS}, and other settings of the mesh do not apply"),
    "policy.openservicemesh.io": (
        _OSM,
        "callers, destinations and connections that it restricts are not restricted, and its retries do not happen",
    ),
    "security.istio.io": (_ISTIO, f"{_DENIALS}, and mutual TLS that it requires is not enforced"),
    "networking.istio.io": (_ISTIO, f"{_ROUTING}, nor does TLS"),
    "extensions.istio.io": (_ISTIO, "filters that it adds do not run, and requests that those deny may be allowed"),
    "telemetry.istio.io": (_ISTIO, "traces, metrics and logs that it sets do not apply"),
    "policy.linkerd.io": (_LINKERD, f"{_DENIALS}, and {_ROUTING}"),
    "linkerd.io": (_LINKERD, _ROUTING),
}


def foreign_hint(group: str) -> str:
    """Return what is lost when headgate does not read the objects of another mesh's group; empty for other groups."""
    if group not in _GROUPS:
        return ""
    mesh, loss = _GROUPS[group]
    return f"only {mesh.name} reads this kind: {loss}; docs/tasks/migration.md#{mesh.section} says what replaces it"


def foreign_keys(obj: Object, *, injected: bool = False) -> Iterator[Cause]:
    """Yield a warning for each key of another mesh's sidecars on a Namespace, a Pod, or a workload's pod template.

    There are no warnings about injection if headgate's own key is set there too, nor for a key that requests a sidecar at a pod
    that gets headgate's (`injected`).
    """
    path = template_path(obj)
    metadata, where = (
        (part(pod_template(obj), "metadata"), f"{path}.metadata") if path else (part(obj, "metadata"), "metadata")
    )
    annotations = part(metadata, "annotations")
    for key, advice in _SETTINGS.items():
        if key in annotations and not (EXCLUDED_PORTS in advice and EXCLUDED_PORTS in annotations):
            yield Cause(f"{where}.annotations.{key}", f"headgate does not read this key; {advice}")
    if any(INJECT in part(metadata, field) for field in ("labels", "annotations")):
        return
    for field in ("labels", "annotations"):
        for key in _KEYS:
            value = part(metadata, field).get(key)
            if value and (value in NOT_INJECTED or not injected):
                wish = "keep headgate's sidecar away" if value in NOT_INJECTED else "add headgate's sidecar"
                own = "false" if value in NOT_INJECTED else "true"
                advice = f'headgate does not read this key; to {wish}, write the label {INJECT}: "{own}"'
                yield Cause(f"{where}.{field}.{key}", advice)
