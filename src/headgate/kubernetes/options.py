"""The options of `headgate control-plane`."""

from headgate.admission.injection import InjectionMode
from headgate.model.identities import SYSTEM_NAMESPACE
from headgate.resources.meta import Value
from headgate.settings import Settings

XDS_PORT, WEBHOOK_PORT, API_PORT = 15010, 15017, 15019


class Options(Value, frozen=True, kw_only=True):
    """The options of the control plane on a cluster.

    `pod` and `namespace` are those of this replica. `service` is the Service by which sidecars and the API server reach
    it, `image` the image of injected containers.
    """

    pod: str
    image: str
    namespace: str = SYSTEM_NAMESPACE
    service: str = "headgate"
    sidecars: InjectionMode = "labelled"
    settings: Settings = Settings()

    @property
    def names(self) -> tuple[str, ...]:
        """The DNS names of the control plane's servers."""
        services = (self.service, f"{self.service}-webhooks")
        return tuple(f"{name}.{self.namespace}.svc" for name in services)
