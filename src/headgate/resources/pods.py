"""Pods as the compiler reads them: nothing in here changes while a pod only runs, so its statuses cause no build."""

from msgspec import field

from headgate.resources.meta import Input, Metadata, Resource, Value
from headgate.resources.workloads import ContainerPort, Probe

INJECT = "headgate.dev/inject"
"""Label or annotation of a pod, label of a namespace: `true` or `false`, whether pods get a sidecar."""
SIDECAR = "headgate.dev/sidecar"
"""Annotation of a pod: which kind of sidecar it has, `transparent` or `explicit`. Written when it is injected."""
SIDECARS = frozenset({"transparent", "explicit"})
APPLICATION_PORTS = "headgate.dev/application-ports"
"""Annotation of a pod with an explicit sidecar: where its process listens, `8080=20417,9090=20418`."""
EXCLUDED_PORTS = "headgate.dev/excluded-inbound-ports"
"""Annotation of a pod: ports that its sidecar leaves alone, `9090,9102`, for scrapes without an identity."""
PROCESS = "headgate.dev/process"
"""Annotation of a pod: `external` when its process is not the runtime's to start."""
EXTERNAL = "external"
PROCESS_ID = "headgate.dev/process-id"
"""Annotation of such a pod: the process whose end is the pod's, `PID-START-BOOT` (`ProcessIdentity`), as `headgate run` writes it."""


class Container(Input, frozen=True, kw_only=True):
    """One container."""

    name: str = ""
    ports: tuple[ContainerPort, ...] | None = ()
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    startup_probe: Probe | None = None


class PodSpec(Input, frozen=True, kw_only=True):
    """What runs, and as whom."""

    containers: tuple[Container, ...] = ()
    service_account_name: str = "default"


class PodStatus(Input, frozen=True, kw_only=True):
    """Where the pod is; `Succeeded` and `Failed` pods are no more."""

    pod_ip: str = field(name="podIP", default="")
    phase: str = ""


class Pod(Resource, frozen=True, kw_only=True):
    """A pod, as far as proxies care."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class ProcessIdentity(Value, frozen=True, kw_only=True):
    """Which process: a pid is used again, but not with the same start (clock ticks since boot) in the same boot."""

    pid: int
    started: int
    boot: str


def format_process_identity(identity: ProcessIdentity) -> str:
    """Return the annotation's text for a process."""
    return f"{identity.pid}-{identity.started}-{identity.boot}"


def parse_process_identity(metadata: Metadata) -> ProcessIdentity | None:
    """Return the process that a pod names; None when it names none."""
    pid, _, rest = metadata.annotations.get(PROCESS_ID, "").partition("-")
    started, _, boot = rest.partition("-")
    if not (pid.isdecimal() and started.isdecimal() and boot and int(pid)):
        return None
    return ProcessIdentity(pid=int(pid), started=int(started), boot=boot)
