"""The admission of every write to a store: a check of the object, the admission steps of its kind, and the review.

A step is a pure function of the new object, the old object and a view of the store.
"""

from collections.abc import Callable, Mapping

from headgate.admission.injection import Sidecars
from headgate.admission.review import Review, review
from headgate.admission.workloads import CHECKS, DEFAULTERS, check_workload
from headgate.errors import Cause
from headgate.objects.ports import AdmissionStep, View
from headgate.resources.custom.definition import with_names
from headgate.resources.decode import Check, Checked, check
from headgate.resources.kind_set import KindSet
from headgate.resources.mesh.canary.types import Canary
from headgate.resources.meta import Object, namespace_of
from headgate.resources.registry import BUILT_IN, DEFINITION
from headgate.resources.schema.defaults import with_schema_defaults
from headgate.resources.smi.self_reference import self_reference, self_reference_message
from headgate.resources.smi.traffic_split import TrafficSplit
from headgate.settings import Settings


def object_check(settings: Settings) -> Check:
    """Return the check of every written object, which also fills in Kubernetes' default values.

    It finds structural mistakes, and TrafficSplits and Canaries with their own root as a backend (R18, D1).
    """

    def checked(obj: Object, *, request: bool = False, kinds: KindSet = BUILT_IN) -> Checked:
        result = check(obj, request=request, kinds=kinds)
        if isinstance(result.value, TrafficSplit | Canary):
            index = self_reference(result.value, namespace_of(obj), settings.domain)
            if index is not None:
                message = self_reference_message(result.value)
                return Checked((Cause(f"spec.backends[{index}].service", message),), unknown=result.unknown)
        if not result.hub:
            return result
        complete = DEFAULTERS.get((result.hub["apiVersion"], result.hub["kind"]), with_schema_defaults)
        return result._replace(hub=complete(result.hub))

    return checked


def admission(
    sidecars: Sidecars, host: Mapping[tuple[str, str], AdmissionStep]
) -> Callable[[Object, Object | None, View], Review]:
    """Return the admission of the embedded API: what Kubernetes itself checks and completes, then the review of every host.

    `host` contains additional steps of the embedding program by apiVersion and kind. They replace the built-in steps.
    """
    workloads = dict.fromkeys(CHECKS, check_workload)
    definitions = {(DEFINITION.hub, DEFINITION.kind): lambda new, _old, _view: with_names(new)}
    steps: Mapping[tuple[str, str], AdmissionStep] = {**workloads, **definitions, **host}

    def admit(new: Object, old: Object | None, view: View) -> Review:
        step = steps.get((new["apiVersion"], new["kind"]))
        return review(step(new, old, view) if step else new, old, view, sidecars)

    return admit
