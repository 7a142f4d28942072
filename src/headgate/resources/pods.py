"""Pods as the compiler reads them: nothing in here changes while a pod only runs, so its statuses cause no build."""

from msgspec import field

from headgate.resources.meta import Input, Resource

INJECT = "headgate.dev/inject"
"""Label or annotation of a pod, label of a namespace: `true` or `false`, whether pods get a sidecar."""
SIDECAR = "headgate.dev/sidecar"
"""Annotation of a pod: which kind of sidecar it has, `transparent` or `explicit`. Written when it is injected."""
SIDECARS = frozenset({"transparent", "explicit"})
APPLICATION_PORTS = "headgate.dev/application-ports"
"""Annotation of a pod with an explicit sidecar: where its process listens, `8080=20417,9090=20418`."""
EXCLUDED_PORTS = "headgate.dev/excluded-inbound-ports"
"""Annotation of a pod: ports that its sidecar leaves alone, `9090,9102`, for scrapes without an identity."""


class HttpGet(Input, frozen=True, kw_only=True):
    """An HTTP health check; a port's name is looked up in its container."""

    port: int | str = 0
    path: str = "/"
    scheme: str = "HTTP"


class Probe(Input, frozen=True, kw_only=True):
    """A health check; other kinds than HTTP have nothing that is read here."""

    http_get: HttpGet | None = None


class ContainerPort(Input, frozen=True, kw_only=True):
    """A port that a container listens on."""

    container_port: int
    name: str = ""
    protocol: str = "TCP"


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
