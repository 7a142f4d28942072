"""Warnings about the labels and annotations by which other meshes inject sidecars. headgate reads only its own key."""

from collections.abc import Iterator

from headgate.resources.core.pod_metadata import INJECT, NOT_INJECTED
from headgate.resources.meta import Object, part
from headgate.resources.pod_templates import pod_template, template_path

_KEYS = (
    "istio-injection",
    "istio.io/rev",
    "linkerd.io/inject",
    "openservicemesh.io/sidecar-injection",
    "sidecar.istio.io/inject",
)


def foreign_keys(obj: Object, *, injected: bool = False) -> Iterator[str]:
    """Yield a warning for each injection key of another mesh on a Namespace, a Pod, or a workload's pod template.

    There are no warnings if headgate's own key is set there too, nor for a key that requests a sidecar at a pod that gets
    headgate's (`injected`).
    """
    path = template_path(obj)
    metadata, where = (
        (part(pod_template(obj), "metadata"), f"{path}.metadata") if path else (part(obj, "metadata"), "metadata")
    )
    if any(INJECT in part(metadata, field) for field in ("labels", "annotations")):
        return
    for field in ("labels", "annotations"):
        for key in _KEYS:
            value = part(metadata, field).get(key)
            if value and (value in NOT_INJECTED or not injected):
                wish = "keep headgate's sidecar away" if value in NOT_INJECTED else "add headgate's sidecar"
                own = "false" if value in NOT_INJECTED else "true"
                yield f'{where}.{field}.{key}: headgate does not read this key; to {wish}, write the label {INJECT}: "{own}"'
