"""Types of pods and containers, with the fields that the local runtime reads."""

from typing import Any

from msgspec import field

from headgate.resources.meta import Input, Metadata, Resource, epoch_seconds


class KeyRef(Input, frozen=True, kw_only=True):
    """A reference to one key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class FieldRef(Input, frozen=True, kw_only=True):
    """A reference to a field of the pod itself."""

    field_path: str


class EnvSource(Input, frozen=True, kw_only=True):
    """The source of an environment variable's value; exactly one field is set."""

    field_ref: FieldRef | None = None
    config_map_key_ref: KeyRef | None = None
    secret_key_ref: KeyRef | None = None


class EnvVar(Input, frozen=True, kw_only=True):
    """An environment variable, with a value or the source of its value."""

    name: str
    value: str = ""
    value_from: EnvSource | None = None


class ReferencedName(Input, frozen=True, kw_only=True):
    """A reference to a ConfigMap or Secret of the pod's namespace."""

    name: str = ""
    optional: bool = False


class EnvFrom(Input, frozen=True, kw_only=True):
    """A ConfigMap or Secret; each of its keys becomes an environment variable."""

    prefix: str = ""
    config_map_ref: ReferencedName | None = None
    secret_ref: ReferencedName | None = None


class ContainerPort(Input, frozen=True, kw_only=True):
    """A port on which the container listens."""

    container_port: int
    name: str = ""
    protocol: str = "TCP"


class VolumeMount(Input, frozen=True, kw_only=True):
    """A volume and its path in the container."""

    name: str
    mount_path: str
    sub_path: str = ""


class HttpHeader(Input, frozen=True, kw_only=True):
    """A header of a probe's request."""

    name: str
    value: str = ""


class HttpGet(Input, frozen=True, kw_only=True):
    """A probe by HTTP request: status 200 to 399 is success."""

    port: int | str
    path: str = "/"
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[HttpHeader, ...] = ()


class TcpSocket(Input, frozen=True, kw_only=True):
    """A probe by TCP connection."""

    port: int | str
    host: str = ""


class GrpcCheck(Input, frozen=True, kw_only=True):
    """A probe by the gRPC health protocol: the status SERVING of a service is success."""

    port: int
    service: str | None = None


class Exec(Input, frozen=True, kw_only=True):
    """A probe by command: exit code 0 is success."""

    command: tuple[str, ...] = ()


class Probe(Input, frozen=True, kw_only=True):
    """A probe of a container. Times are in seconds, thresholds are numbers of consecutive results."""

    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None
    grpc: GrpcCheck | None = None
    exec: Exec | None = None
    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3


class Container(Input, frozen=True, kw_only=True):
    """A container of a pod. The local runtime runs `command` as a process and ignores the image."""

    name: str
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    working_dir: str = ""
    stdin: bool = False
    env: tuple[EnvVar, ...] | None = None
    env_from: tuple[EnvFrom, ...] | None = None
    ports: tuple[ContainerPort, ...] | None = None
    volume_mounts: tuple[VolumeMount, ...] | None = None
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    startup_probe: Probe | None = None


class KeyPath(Input, frozen=True, kw_only=True):
    """A key of a ConfigMap or Secret, and the file that contains its value."""

    key: str
    path: str


class ConfigMapVolume(Input, frozen=True, kw_only=True):
    """A volume with the keys of a ConfigMap as files."""

    name: str = ""
    optional: bool = False
    items: tuple[KeyPath, ...] | None = None
    default_mode: int = 0o644


class SecretVolume(Input, frozen=True, kw_only=True):
    """A volume with the keys of a Secret as files."""

    secret_name: str = ""
    optional: bool = False
    items: tuple[KeyPath, ...] | None = None
    default_mode: int = 0o644


class HostPathVolume(Input, frozen=True, kw_only=True):
    """A volume that is a directory or file of this machine."""

    path: str


class Volume(Input, frozen=True, kw_only=True):
    """A volume; exactly one source is set."""

    name: str
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    empty_dir: dict[str, Any] | None = None
    host_path: HostPathVolume | None = None


class PodSpec(Input, frozen=True, kw_only=True):
    """`spec` of a Pod; times are in seconds."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    restart_policy: str = "Always"
    node_name: str = ""
    hostname: str = ""
    subdomain: str = ""
    service_account_name: str = "default"
    termination_grace_period_seconds: int = 30


class Condition(Input, frozen=True, kw_only=True):
    """A status condition of an object."""

    type: str
    status: str = "Unknown"
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    last_update_time: str = ""


class ContainerStatus(Input, frozen=True, kw_only=True):
    """The status of a container."""

    name: str
    restart_count: int = 0
    ready: bool = False
    started: bool = False


class PodStatus(Input, frozen=True, kw_only=True):
    """`status` of a Pod."""

    phase: str = "Pending"
    pod_ip: str = field(name="podIP", default="")
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Resource, frozen=True, kw_only=True):
    """A Pod with its status, for the local runtime and its controllers."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ready_since(self) -> float | None:
        """The time at which the pod became ready, in seconds since the epoch; None if it is not ready."""
        for condition in self.status.conditions:
            if condition.type == "Ready" and condition.status == "True":
                return epoch_seconds(condition.last_transition_time)
        return None

    @property
    def active(self) -> bool:
        """Whether the pod has neither ended nor a deletionTimestamp, so that controllers count it as a replica."""
        return not self.metadata.deletion_timestamp and self.status.phase not in {"Succeeded", "Failed"}


def owner_uid(metadata: Metadata) -> str:
    """Return the uid of an object's controller; empty if it has none."""
    return next((owner.uid for owner in metadata.owner_references if owner.controller), "")
