"""What every write to a store passes, in order. Each step is a pure function of the object, the one before and a view."""

from headgate.admission import defaults
from headgate.admission.injection import Mode, admit_sidecars
from headgate.admission.workload_rules import admit_workloads
from headgate.objects.ports import Admit, View
from headgate.resources.meta import Object


def admission(sidecars: Mode, *host: Admit) -> Admit:
    """Return what completes and checks each sound object on its way in; `host` are the steps of the host, which come last."""
    return chain(defaults.admit, admit_workloads, admit_sidecars(sidecars), *host)


def chain(*steps: Admit) -> Admit:
    """Return several steps as one, in their order."""

    def admit(new: Object, old: Object | None, view: View) -> Object:
        for step in steps:
            new = step(new, old, view)
        return new

    return admit
