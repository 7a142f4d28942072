"""Pods and what makes them, as far as the local runtime reads them."""

from collections.abc import Mapping
from typing import Any

from msgspec import field

from headgate.resources.meta import Input, Metadata, Resource, epoch_seconds


class Requirement(Input, frozen=True, kw_only=True):
    """One `matchExpressions` entry."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Input, frozen=True, kw_only=True):
    """Labels that an object must have; every part must hold."""

    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: tuple[Requirement, ...] = ()


class KeyRef(Input, frozen=True, kw_only=True):
    """One key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class FieldRef(Input, frozen=True, kw_only=True):
    """A field of the pod itself."""

    field_path: str


class EnvSource(Input, frozen=True, kw_only=True):
    """Where an environment variable takes its value from; one is set."""

    field_ref: FieldRef | None = None
    config_map_key_ref: KeyRef | None = None
    secret_key_ref: KeyRef | None = None


class EnvVar(Input, frozen=True, kw_only=True):
    """One environment variable."""

    name: str
    value: str = ""
    value_from: EnvSource | None = None


class ObjectName(Input, frozen=True, kw_only=True):
    """A ConfigMap or Secret of the pod's namespace, whole."""

    name: str = ""
    optional: bool = False


class EnvFrom(Input, frozen=True, kw_only=True):
    """Every key of a ConfigMap or Secret as an environment variable."""

    prefix: str = ""
    config_map_ref: ObjectName | None = None
    secret_ref: ObjectName | None = None


class ContainerPort(Input, frozen=True, kw_only=True):
    """A port that the container listens on."""

    container_port: int
    name: str = ""
    protocol: str = "TCP"


class VolumeMount(Input, frozen=True, kw_only=True):
    """Where a container sees a volume."""

    name: str
    mount_path: str
    sub_path: str = ""


class HttpHeader(Input, frozen=True, kw_only=True):
    """A header of a probe's request."""

    name: str
    value: str = ""


class HttpGet(Input, frozen=True, kw_only=True):
    """A probe by request: 200 to 399 is well."""

    port: int | str
    path: str = "/"
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[HttpHeader, ...] = ()


class TcpSocket(Input, frozen=True, kw_only=True):
    """A probe by connection."""

    port: int | str
    host: str = ""


class Exec(Input, frozen=True, kw_only=True):
    """A probe by command: exit code 0 is well."""

    command: tuple[str, ...] = ()


class Probe(Input, frozen=True, kw_only=True):
    """How to ask a container whether it is well; times in seconds, thresholds in results on end."""

    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None
    exec: Exec | None = None
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3


class Container(Input, frozen=True, kw_only=True):
    """One program of a pod. On one machine the image is ignored and `command` is what runs."""

    name: str
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    working_dir: str = ""
    env: tuple[EnvVar, ...] | None = None
    env_from: tuple[EnvFrom, ...] | None = None
    ports: tuple[ContainerPort, ...] | None = None
    volume_mounts: tuple[VolumeMount, ...] | None = None
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    startup_probe: Probe | None = None


class KeyPath(Input, frozen=True, kw_only=True):
    """Which key of a ConfigMap or Secret becomes which file."""

    key: str
    path: str


class ConfigMapVolume(Input, frozen=True, kw_only=True):
    """A ConfigMap as files."""

    name: str = ""
    optional: bool = False
    items: tuple[KeyPath, ...] | None = None
    default_mode: int = 0o644


class SecretVolume(Input, frozen=True, kw_only=True):
    """A Secret as files."""

    secret_name: str = ""
    optional: bool = False
    items: tuple[KeyPath, ...] | None = None
    default_mode: int = 0o644


class HostPathVolume(Input, frozen=True, kw_only=True):
    """A directory or file of this machine."""

    path: str


class Volume(Input, frozen=True, kw_only=True):
    """Files for containers; one source is set."""

    name: str
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    empty_dir: dict[str, Any] | None = None
    host_path: HostPathVolume | None = None


class PodSpec(Input, frozen=True, kw_only=True):
    """What a pod runs; times in seconds."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    restart_policy: str = "Always"
    node_name: str = ""
    service_account_name: str = "default"
    termination_grace_period_seconds: int = 30


class Condition(Input, frozen=True, kw_only=True):
    """One fact about an object and since when it holds."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    last_update_time: str = ""


class ContainerStatus(Input, frozen=True, kw_only=True):
    """What became of a container, as far as a controller asks."""

    name: str
    restart_count: int = 0
    ready: bool = False
    started: bool = False


class PodStatus(Input, frozen=True, kw_only=True):
    """What a pod does now."""

    phase: str = "Pending"
    pod_ip: str = field(name="podIP", default="")
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Resource, frozen=True, kw_only=True):
    """Processes that live and die together behind one address."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ready_since(self) -> float | None:
        """Seconds since the epoch at which the pod became ready; None while it is not."""
        for condition in self.status.conditions:
            if condition.type == "Ready" and condition.status == "True":
                return epoch_seconds(condition.last_transition_time)
        return None

    @property
    def active(self) -> bool:
        """Whether it still counts: neither finished nor on its way out."""
        return not self.metadata.deletion_timestamp and self.status.phase not in {"Succeeded", "Failed"}


class ReplicaSetSpec(Input, frozen=True, kw_only=True):
    """How many pods of which form."""

    selector: LabelSelector = LabelSelector()
    template: dict[str, Any] = field(default_factory=dict)
    replicas: int = 1
    min_ready_seconds: int = 0


class ReplicaSetStatus(Input, frozen=True, kw_only=True):
    """How many there are."""

    replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0


class ReplicaSet(Resource, frozen=True, kw_only=True):
    """A number of equal pods."""

    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


class RollingUpdate(Input, frozen=True, kw_only=True):
    """How far a rollout may go beyond and below the wanted number: pods or `25%`."""

    max_surge: int | str = "25%"
    max_unavailable: int | str = "25%"


class Strategy(Input, frozen=True, kw_only=True):
    """How old pods give way to new ones."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(Input, frozen=True, kw_only=True):
    """What a Deployment keeps running; times in seconds."""

    selector: LabelSelector = LabelSelector()
    template: dict[str, Any] = field(default_factory=dict)
    replicas: int = 1
    strategy: Strategy = Strategy()
    min_ready_seconds: int = 0
    revision_history_limit: int = 10
    progress_deadline_seconds: int = 600
    paused: bool = False


class DeploymentStatus(Input, frozen=True, kw_only=True):
    """How far it is."""

    conditions: tuple[Condition, ...] = ()
    updated_replicas: int = 0
    replicas: int = 0
    available_replicas: int = 0


class Deployment(Resource, frozen=True, kw_only=True):
    """A ReplicaSet that is replaced step by step when the template changes."""

    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy a selector; an empty selector takes all."""
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        holds(requirement, labels) for requirement in selector.match_expressions
    )


def holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy one condition; `Lt` and `Gt` compare whole numbers."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Lt" | "Gt" as operator if value is not None and value.lstrip("-").isdecimal():
            limit = int(requirement.values[0])
            return int(value) > limit if operator == "Gt" else int(value) < limit
        case _:
            return False


def owner_uid(metadata: Metadata) -> str:
    """Return the uid of the controller that owns an object; empty when none does."""
    return next((owner.uid for owner in metadata.owner_references if owner.controller), "")
