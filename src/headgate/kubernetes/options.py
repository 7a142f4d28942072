"""The options of `headgate control-plane`."""

from headgate.admission.sidecar_containers import SidecarOptions
from headgate.kubernetes.names import XDS_ADDRESS
from headgate.options import PROXY_OPTIONS, MeshOptions
from headgate.resources.meta import Value
from headgate.settings import Settings

VOLUME_S = 100.0  # a kubelet syncs each pod after 60 to 90 seconds


class Options(Value, frozen=True, kw_only=True):
    """The options of a replica. `pod` is the name of its pod, `image` the image of injected containers.

    `volume_seconds` is the time in which kubelets write a changed ConfigMap into the volumes of running pods. `revision` is the name of
    a revision beside the default one, which is empty.
    """

    pod: str
    image: str
    mesh: MeshOptions = MeshOptions()
    volume_seconds: float = VOLUME_S
    revision: str = ""

    @property
    def settings(self) -> Settings:
        """The settings of the compiler."""
        return self.mesh.settings(gateway_pods=True)


OPTIONS_OF_SIDECARS = ("pull_secrets", "node_agent", "otlp_collector", *PROXY_OPTIONS)
"""The options of the mesh that `sidecar_options` reads, by their fields."""


def sidecar_options(image: str, mesh: MeshOptions, *, native: bool, revision: str = "") -> SidecarOptions:
    """Return the options of sidecars that a revision injects; `native` says that the cluster has native sidecars."""
    return SidecarOptions(
        image=image,
        xds=XDS_ADDRESS,
        pull_secrets=mesh.pull_secrets,
        native=native,
        collector=mesh.otlp_collector,
        proxy=mesh.proxy,
        node_agent=mesh.node_agent,
        revision=revision,
    )
