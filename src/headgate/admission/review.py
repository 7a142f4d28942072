"""The review of a written object, which is the same on one machine and on a cluster: what is rejected, completed and warned of.

On a cluster, webhooks call it after the API server's own checks. The embedded API calls it after those of `chain`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headgate.admission.injection import Sidecars, pod_namespace, sidecar_causes
from headgate.admission.useless_keys import useless_keys_of_pods
from headgate.errors import Cause, Invalid
from headgate.objects.ports import View
from headgate.resources.core.pod import pod_causes
from headgate.resources.core.pod_metadata import PROCESS, template_causes
from headgate.resources.foreign_meshes import foreign_keys
from headgate.resources.meta import Object, part
from headgate.resources.pod_templates import pod_of_template, template_path


class Review(NamedTuple):
    """A written object as it is stored, warnings for its writer, and the mistakes for which it is rejected."""

    object: Object
    warnings: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()

    def passed(self) -> "Review":
        """Return the review of an object without mistakes. Raises Invalid with all mistakes."""
        if self.causes:
            raise Invalid(*self.causes)
        return self


def review(new: Object, old: Object | None, view: View, sidecars: Sidecars) -> Review:
    """Review a written object.

    A created pod gets its sidecar. An update of a workload may keep the mistakes that it has: controllers update workloads
    too, and a workload may be older than headgate.
    """
    if template_path(new):
        had = set(_causes(new=old, view=view, sidecars=sidecars)) if old else set()
        causes = (cause for cause in _causes(new=new, view=view, sidecars=sidecars) if cause not in had)
        return Review(new, _warnings(new, view, sidecars), tuple(dict.fromkeys(causes)))
    kind = (new.get("apiVersion"), new.get("kind"))
    if kind != ("v1", "Pod"):
        return Review(new, tuple(map(str, foreign_keys(new))) if kind == ("v1", "Namespace") else ())
    if old:
        return Review(sidecars.keep(new, old), tuple(useless_keys_of_pods(new)))
    warnings = _warnings(new, view, sidecars)
    if sidecars.is_complete(new):
        return Review(new, warnings)
    if mistakes := tuple(dict.fromkeys(_causes(new=new, view=view, sidecars=sidecars))):
        return Review(new, warnings, mistakes)
    around = pod_namespace(view, new)
    return Review(sidecars.create(new, around, sidecars.decide(new, around).injected), warnings)


def _warnings(new: Object, view: View, sidecars: Sidecars) -> tuple[str, ...]:
    """Return the warnings about a new pod, or about the pod template of a workload: for the same pod, the same ones."""
    pod = pod_of_template(new) if template_path(new) else new
    around = pod_namespace(view, pod)
    injected = sidecars.decide(pod, around).injected
    of_sidecar = sidecars.warn(pod, around) if injected and not sidecars.is_complete(pod) else ()
    return (*map(str, foreign_keys(new, injected=injected)), *useless_keys_of_pods(new), *of_sidecar)


def _causes(*, new: Object, view: View, sidecars: Sidecars) -> Iterator[Cause]:
    """Yield the mistakes in a pod, or in the pod template of a workload that would make the review refuse its pods."""
    path = template_path(new)
    pod = pod_of_template(new) if path else new
    if mistakes := tuple(template_causes(new) if path else pod_causes(new)):
        yield from mistakes  # the embedded API, like an API server, refuses these before it requests a review
        return
    decision = sidecars.decide(pod, pod_namespace(view, pod))
    where = f"{path}." if path else ""
    if decision.injected:
        for cause in sidecar_causes(pod, sidecars.own_ports):
            yield Cause(f"{where}{cause.field}", cause.message)
    elif decision.by == "Option" and part(pod["metadata"], "annotations").get(PROCESS):
        message = f"needs a sidecar, and this headgate runs with --sidecars {decision.value}"
        yield Cause(f"{where}metadata.annotations.{PROCESS}", message)
