"""The options of `headgate control-plane`."""

from headgate.admission.injection import InjectionMode
from headgate.resources.meta import Value
from headgate.settings import Settings


class Options(Value, frozen=True, kw_only=True):
    """The options of a replica. `pod` is the name of its pod, `image` the image of injected containers."""

    pod: str
    image: str
    sidecars: InjectionMode = "labelled"
    settings: Settings = Settings()
