"""The options of `headgate control-plane`."""

from headgate.admission.injection import InjectionMode
from headgate.admission.sidecar_containers import SidecarOptions
from headgate.kubernetes.cert_manager import IssuerRef
from headgate.kubernetes.names import XDS_ADDRESS
from headgate.plane.metrics import By
from headgate.resources.meta import Value
from headgate.settings import Settings
from headgate.telemetry.counters.flows import Source

VOLUME_S = 100.0  # a kubelet syncs each pod after 60 to 90 seconds


class Options(Value, frozen=True, kw_only=True):
    """The options of a replica. `pod` is the name of its pod, `image` the image of injected containers.

    `pull_secrets` are names of Secrets with which nodes pull it. Without `issuer`, headgate has its own authority.
    With `custom_metrics`, the API server requests the metrics for HorizontalPodAutoscalers from headgate. `metrics_source`
    replaces headgate's own traffic counts. `collector` is the address of an OpenTelemetry collector, `HOST:PORT` or empty,
    to which proxies send their metrics, in addition to headgate.
    `nginx_image` is an image with headgate and nginx, for gateways of Services that ask for nginx; it may be empty.
    If `namespaces` is not empty, only they and the control plane's own belong to the mesh. `volume_seconds` is the time in
    which kubelets write a changed ConfigMap into the volumes of running pods.
    """

    pod: str
    image: str
    sidecars: InjectionMode = "labelled"
    pull_secrets: tuple[str, ...] = ()
    issuer: IssuerRef | None = None
    custom_metrics: bool = False
    metrics_by: By = "workload"
    metrics_source: Source | None = None
    collector: str = ""
    nginx_image: str = ""
    namespaces: tuple[str, ...] = ()
    settings: Settings = Settings(gateway_pods=True)
    volume_seconds: float = VOLUME_S

    def of_sidecars(self, *, native: bool) -> SidecarOptions:
        """Return the options of injected sidecars; `native` says that the cluster has native sidecars."""
        return SidecarOptions(
            image=self.image,
            xds=XDS_ADDRESS,
            pull_secrets=self.pull_secrets,
            native=native,
            collector=self.collector,
        )
