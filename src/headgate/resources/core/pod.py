"""Pods, with the fields that the compiler reads.

The type omits fields that change while a pod runs, so that their changes cause no compilation.
"""

from collections.abc import Iterator

from msgspec import field
from msgspec.structs import force_setattr, replace

from headgate.errors import Cause
from headgate.kinds import names_of
from headgate.resources import cells
from headgate.resources.columns import AGE, NAME, Column
from headgate.resources.core.pod_metadata import PROCESS_ID, pod_metadata_causes
from headgate.resources.core.pod_spec import ContainerPort, Probe
from headgate.resources.kind import Kind
from headgate.resources.meta import Input, Metadata, Object, Resource, Value

ENDED = ("Succeeded", "Failed")
"""The phases of pods whose containers have all ended."""


class MeshContainer(Input, frozen=True, kw_only=True):
    """A container: its ports and probes."""

    name: str = ""
    ports: tuple[ContainerPort, ...] | None = ()
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    startup_probe: Probe | None = None


class MeshPodSpec(Input, frozen=True, kw_only=True):
    """The containers of a pod, its ServiceAccount, and whether it uses its node's network. Init containers that restart can have probes."""

    containers: tuple[MeshContainer, ...] = ()
    init_containers: tuple[MeshContainer, ...] | None = ()
    service_account_name: str = "default"
    host_network: bool = False


class RunningState(Input, frozen=True, kw_only=True):
    """`running` of a container's state; headgate reads only whether it is there."""


class MeshContainerState(Input, frozen=True, kw_only=True):
    """The state of a container."""

    running: RunningState | None = None


class MeshContainerStatus(Input, frozen=True, kw_only=True):
    """The status of a container."""

    state: MeshContainerState = MeshContainerState()


class MeshPodStatus(Input, frozen=True, kw_only=True):
    """The address and the phase of a pod, and the states of its containers, which only a deleted pod has."""

    pod_ip: str = field(name="podIP", default="")
    phase: str = ""
    container_statuses: tuple[MeshContainerStatus, ...] = ()
    init_container_statuses: tuple[MeshContainerStatus, ...] = ()


class MeshPod(Resource, frozen=True, kw_only=True):
    """A Pod with the fields that decide a proxy's configuration."""

    spec: MeshPodSpec = MeshPodSpec()
    status: MeshPodStatus = MeshPodStatus()

    def __post_init__(self) -> None:
        """Drop the states of containers if the pod is not being deleted, because they change while it runs."""
        status = self.status
        if (status.container_statuses or status.init_container_statuses) and not self.metadata.deletion_timestamp:
            force_setattr(self, "status", replace(status, container_statuses=(), init_container_statuses=()))

    @property
    def ended(self) -> bool:
        """Whether no container runs and none will start again.

        Before Kubernetes 1.27, the phase of a deleted pod stays `RunningState` after its containers ended, for seconds, or for
        more than a minute if the kubelet has lost the state of a container and says `waiting`. A native sidecar, which is an
        init container, runs longer than the application: it reports the last requests.
        """
        containers = self.status.container_statuses
        every = (*containers, *self.status.init_container_statuses)
        none_runs = bool(containers) and all(container.state.running is None for container in every)
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


def pod_causes(obj: Object) -> Iterator[Cause]:
    """Yield mistakes in the labels, annotations and ServiceAccount of a Pod."""
    yield from pod_metadata_causes(obj, "")


KIND = Kind(
    names_of("Pod", ""),
    status=True,
    shape=MeshPod,
    checks=pod_causes,
    columns=(
        NAME,
        Column("Ready", "", "The ready containers, out of all containers.", cell=cells.pod_ready),
        Column("Status", cell=cells.pod_status),
        Column("Restarts", cell=cells.restarts, type="integer"),
        AGE,
        Column("IP", cell=cells.at("status.podIP"), wide=True),
        Column("Node", cell=cells.at("spec.nodeName"), wide=True),
    ),
    subresources=("log", "eviction", "exec", "attach", "portforward"),
    categories=("all",),
    unserved=frozenset({"proxy", "binding", "ephemeralcontainers", "resize"}),
    selectable=frozenset({"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"})
    | {"status.phase", "status.podIP", "status.nominatedNodeName"},
    always_present=("spec", "status"),
)
