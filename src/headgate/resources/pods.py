"""The type of Pods for the compiler.

It omits fields that change while a pod runs, so that their changes cause no compilation.
"""

from collections.abc import Mapping

from msgspec import field
from msgspec.structs import force_setattr, replace

from headgate.resources.meta import Input, Metadata, Resource, Value
from headgate.resources.workloads import ContainerPort, Probe

INJECT = "headgate.dev/inject"
"""Label or annotation of a pod, or label of a namespace: a value of `INJECTED` or `NOT_INJECTED`."""
INJECTED, NOT_INJECTED = ("true", "enabled"), ("false", "disabled")
"""The values with which pods get a sidecar, and the values with which they get none. `enabled` and `disabled` are the
values of Istio and Linkerd."""
SIDECAR = "headgate.dev/sidecar"
"""Annotation of a pod, written by injection: the kind of its sidecar, `transparent` or `explicit`."""
SIDECARS = frozenset({"transparent", "explicit"})
APPLICATION_PORTS = "headgate.dev/application-ports"
"""Annotation of a pod with an explicit sidecar: the ports on which its process listens, `8080=20417,9090=20418`."""
EXCLUDED_PORTS = "headgate.dev/excluded-inbound-ports"
"""Annotation of a pod: ports that bypass its sidecar, `9090,9102`, for example for a Prometheus outside the mesh."""
PROXY_RESOURCES: Mapping[tuple[str, str], str] = {
    ("requests", "cpu"): "headgate.dev/proxy-cpu",
    ("requests", "memory"): "headgate.dev/proxy-memory",
    ("limits", "cpu"): "headgate.dev/proxy-cpu-limit",
    ("limits", "memory"): "headgate.dev/proxy-memory-limit",
}
"""Annotations of a pod on a cluster: the resource requests and limits of its sidecar, by field and resource."""
PROBES = "headgate.dev/probes"
"""Annotation of a pod, written by injection on Kubernetes: its HTTP probes as JSON, by `CONTAINER/FIELD`.

The probes in the pod's spec go to the sidecar, which forwards them to the paths and ports in this annotation.
"""
ADDED = "headgate.dev/sidecars"
"""Annotation of a pod, written by injection: the Sidecars that apply to it with their generations, `monitoring@3,proxy@1`."""
CONFLICTS = "headgate.dev/sidecar-conflicts"
"""Annotation of a pod, written by injection: what a Sidecar did not add because the pod already
uses the name, `monitoring/containers/agent`."""
PROCESS = "headgate.dev/process"
"""Annotation of a pod: `external` if `headgate run` starts its process instead of the local runtime."""
EXTERNAL = "external"
ENDED = ("Succeeded", "Failed")
"""The phases of pods whose containers have all ended."""
PROCESS_ID = "headgate.dev/process-id"
"""Annotation of a pod of `headgate run`: its process as `PID-START-BOOT` (`ProcessIdentity`).

The pod ends with the process.
"""


class Container(Input, frozen=True, kw_only=True):
    """A container: its ports and probes."""

    name: str = ""
    ports: tuple[ContainerPort, ...] | None = ()
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    startup_probe: Probe | None = None


class PodSpec(Input, frozen=True, kw_only=True):
    """The containers of a pod, its ServiceAccount, and whether it uses its node's network. Init containers that restart can have probes."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = ()
    service_account_name: str = "default"
    host_network: bool = False


class Running(Input, frozen=True, kw_only=True):
    """`running` of a container's state; headgate reads only whether it is there."""


class ContainerState(Input, frozen=True, kw_only=True):
    """The state of a container."""

    running: Running | None = None


class ContainerStatus(Input, frozen=True, kw_only=True):
    """The status of a container."""

    state: ContainerState = ContainerState()


class PodStatus(Input, frozen=True, kw_only=True):
    """The address and the phase of a pod, and the states of its containers, which only a deleted pod has."""

    pod_ip: str = field(name="podIP", default="")
    phase: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Resource, frozen=True, kw_only=True):
    """A Pod with the fields that decide a proxy's configuration."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        """Drop the states of containers if the pod is not being deleted, because they change while it runs."""
        status = self.status
        if (status.container_statuses or status.init_container_statuses) and not self.metadata.deletion_timestamp:
            force_setattr(self, "status", replace(status, container_statuses=(), init_container_statuses=()))

    @property
    def ended(self) -> bool:
        """Whether no container runs and none will start again.

        Before Kubernetes 1.27, the phase of a deleted pod stays `Running` after its containers ended, for seconds, or for
        more than a minute if the kubelet has lost the state of a container and says `waiting`. A native sidecar, which is an
        init container, runs longer than the application: it reports the last requests.
        """
        containers = self.status.container_statuses
        every = (*containers, *self.status.init_container_statuses)
        none_runs = bool(containers) and all(item.state.running is None for item in every)
        return none_runs or self.status.phase in ENDED


class ProcessIdentity(Value, frozen=True, kw_only=True):
    """A process. Its start (clock ticks since boot) and its boot ID distinguish it from later ones with the same pid."""

    pid: int
    started: int
    boot: str


def format_process_identity(identity: ProcessIdentity) -> str:
    """Return the value of the annotation `headgate.dev/process-id` for a process."""
    return f"{identity.pid}-{identity.started}-{identity.boot}"


def parse_process_identity(metadata: Metadata) -> ProcessIdentity | None:
    """Return the process in a pod's annotation; None if the annotation is missing or malformed."""
    pid, _, rest = metadata.annotations.get(PROCESS_ID, "").partition("-")
    started, _, boot = rest.partition("-")
    if not (pid.isdecimal() and started.isdecimal() and boot and int(pid)):
        return None
    return ProcessIdentity(pid=int(pid), started=int(started), boot=boot)
