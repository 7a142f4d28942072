"""The admission of every write to a store: a check of the object, then the admission steps of its kind.

A step is a pure function of the new object, the old object and a view of the store.
"""

from collections.abc import Mapping

from headgate.admission.injection import InjectionMode, inject_sidecars
from headgate.admission.workloads import DEFAULTERS, check_workload
from headgate.errors import Cause
from headgate.objects.ports import AdmissionStep, View
from headgate.resources.canaries import Canary
from headgate.resources.checks.splits import SELF_REFERENCE, self_reference
from headgate.resources.decode import Check, Checked, check
from headgate.resources.meta import Object, namespace_of
from headgate.resources.smi import TrafficSplit
from headgate.settings import Settings


def object_check(settings: Settings) -> Check:
    """Return the check of every written object, which also fills in Kubernetes' default values.

    It finds structural mistakes, and TrafficSplits and Canaries with their own root as a backend (R18, D1).
    """

    def checked(obj: Object, *, request: bool = False) -> Checked:
        found = check(obj, request=request)
        if isinstance(found.value, TrafficSplit | Canary):
            index = self_reference(found.value, namespace_of(obj), settings.domain)
            if index is not None:
                message = SELF_REFERENCE.format(root=found.value.spec.service)
                return Checked((Cause(f"spec.backends[{index}].service", message),), unknown=found.unknown)
        complete = DEFAULTERS.get((found.hub["apiVersion"], found.hub["kind"])) if found.hub else None
        return found._replace(hub=complete(found.hub)) if complete and found.hub else found

    return checked


def admission_chain(sidecars: InjectionMode, host: Mapping[tuple[str, str], AdmissionStep]) -> AdmissionStep:
    """Return the admission step for all kinds.

    `host` contains additional steps of the embedding program by apiVersion and kind. They replace the built-in steps.
    """
    workload = chain(check_workload, inject_sidecars(sidecars))
    workloads = dict.fromkeys((("v1", "Pod"), ("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet")), workload)
    steps: Mapping[tuple[str, str], AdmissionStep] = {**workloads, **host}

    def admit(new: Object, old: Object | None, view: View) -> Object:
        step = steps.get((new["apiVersion"], new["kind"]))
        return step(new, old, view) if step else new

    return admit


def chain(*steps: AdmissionStep) -> AdmissionStep:
    """Return a step that runs the given steps in order, each on the result of the previous step."""

    def admit(new: Object, old: Object | None, view: View) -> Object:
        for step in steps:
            new = step(new, old, view)
        return new

    return admit
