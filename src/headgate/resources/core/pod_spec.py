"""Types of pods and containers, with the fields that the local runtime reads."""

from msgspec import field

from headgate.resources.core.pod_volumes import FieldRef, ResourceFieldRef, Volume
from headgate.resources.meta import Input, Metadata, Resource, epoch_seconds


class KeyRef(Input, frozen=True, kw_only=True):
    """A reference to one key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class EnvSource(Input, frozen=True, kw_only=True):
    """The source of an environment variable's value; exactly one field is set."""

    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
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
    sub_path_expr: str = ""
    read_only: bool = False


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
    termination_grace_period_seconds: int | None = None


class Sleep(Input, frozen=True, kw_only=True):
    """A hook that only waits."""

    seconds: int = 0


class LifecycleHandler(Input, frozen=True, kw_only=True):
    """A lifecycle hook; one field is set. The deprecated tcpSocket does nothing, as in Kubernetes."""

    exec: Exec | None = None
    http_get: HttpGet | None = None
    sleep: Sleep | None = None


class Lifecycle(Input, frozen=True, kw_only=True):
    """The hooks of a container: after its start, and before SIGTERM."""

    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None


class SecurityContext(Input, frozen=True, kw_only=True):
    """The user and group of a container."""

    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None


class PodSecurityContext(SecurityContext, frozen=True, kw_only=True):
    """The user and groups of a pod's containers, and the group of its volumes."""

    supplemental_groups: tuple[int, ...] | None = None
    fs_group: int | None = None


class ContainerResources(Input, frozen=True, kw_only=True):
    """The resource requests and limits of a container, which its variables can refer to."""

    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None


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
    resources: ContainerResources | None = None
    restart_policy: str | None = None
    lifecycle: Lifecycle | None = None
    security_context: SecurityContext | None = None
    readiness_probe: Probe | None = None
    liveness_probe: Probe | None = None
    startup_probe: Probe | None = None


def is_native_sidecar(init: Container) -> bool:
    """Return whether an init container keeps running beside the containers."""
    return init.restart_policy == "Always"


class HostAlias(Input, frozen=True, kw_only=True):
    """A line of /etc/hosts."""

    ip: str
    hostnames: tuple[str, ...] = ()


class DnsOption(Input, frozen=True, kw_only=True):
    """An option of resolv.conf(5), such as `ndots`."""

    name: str
    value: str | None = None


class DnsConfig(Input, frozen=True, kw_only=True):
    """What a pod adds to the resolv.conf of its `dnsPolicy`."""

    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[DnsOption, ...] = ()


class PodSpec(Input, frozen=True, kw_only=True):
    """`spec` of a Pod; times are in seconds."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] = ()
    restart_policy: str = "Always"
    node_name: str = ""
    hostname: str = ""
    subdomain: str = ""
    host_aliases: tuple[HostAlias, ...] = ()
    dns_policy: str = "ClusterFirst"
    dns_config: DnsConfig = DnsConfig()
    service_account_name: str = "default"
    termination_grace_period_seconds: int = 30
    active_deadline_seconds: int | None = None
    security_context: PodSecurityContext | None = None
    enable_service_links: bool = True


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
    start_time: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


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
