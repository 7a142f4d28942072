"""The options of `headgate control-plane`."""

from headgate.admission.injection import InjectionMode
from headgate.resources.meta import Value
from headgate.settings import Settings


class Options(Value, frozen=True, kw_only=True):
    """The options of a replica. `pod` is its name, `image` the image of the containers that injection adds."""

    pod: str
    image: str
    sidecars: InjectionMode = "labelled"
    settings: Settings = Settings()
