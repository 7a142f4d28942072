"""What TLSConfigs and TrafficTargets say of the pods that they select and that have no sidecar (R73, R77)."""

from collections.abc import Iterator, Sequence

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding, Selected
from headgate.compiler.snapshot import Snapshot
from headgate.compiler.workloads import has_sidecar
from headgate.resources.meta import Key
from headgate.resources.pods import INJECT

LABEL = f'Give the pod template the label {INJECT}: "true" and replace the pods'
"""How pods get a sidecar."""
_NAMED = 3


def selected(snapshot: Snapshot, about: Key, pods: Sequence[str]) -> Selected:
    """Sort the pods of an object into those with a sidecar and those without."""
    return Selected(
        about=about,
        workloads=tuple(name for name in pods if has_sidecar(snapshot.pods[name])),
        without_sidecar=tuple(name for name in pods if not has_sidecar(snapshot.pods[name])),
    )


def findings(found: Selected, field: str, *, unselected: str, effect: str, remedy: str = LABEL) -> Iterator[Finding]:
    """Yield a finding when nothing is selected (`unselected`), and one when pods have no sidecar: its `effect` and `remedy`."""
    if not (found.workloads or found.without_sidecar):
        yield Finding(about=found.about, reason=Reason.NO_PODS, field=field, message=unselected)
    if found.without_sidecar:
        message = f"nothing enforces it at {listed(found.without_sidecar)}, for want of a sidecar: {effect}. {remedy}"
        yield Finding(about=found.about, reason=Reason.NOT_ENFORCED, field=field, message=message)


def listed(pods: Sequence[str]) -> str:
    """Name pods, a few at most: `pod default/a`, `pods default/a, default/b, default/c and 7 more`."""
    names = ", ".join(pods[:_NAMED])
    if len(pods) == 1:
        return f"pod {names}"
    return f"pods {names} and {len(pods) - _NAMED} more" if len(pods) > _NAMED else f"pods {names}"
