"""The options of `headgate up`."""

from pathlib import Path

from headgate.admission.injection import InjectionMode
from headgate.envoy.collector_export import Collector
from headgate.identity.pem import Files
from headgate.plane.metrics import By
from headgate.resources.meta import Value
from headgate.settings import Settings
from headgate.standalone.listeners import LOOPBACK
from headgate.telemetry.counters.flows import Source


class Options(Value, frozen=True, kw_only=True):
    """The options of `headgate up`. Addresses are `host:port`; port 0 selects the port of the last start or any free port.

    `sidecars` is the injection mode. `authority` names the files of the mesh's CA; None selects headgate's embedded CA. With
    an empty `metrics_address`, no metrics are exposed. `metrics_source` replaces headgate's own traffic counts. `collector`
    is an OpenTelemetry collector to which proxies send their metrics, in addition to headgate.
    """

    state: Path
    ephemeral: bool = False
    api_address: str = f"{LOOPBACK}:0"
    proxy_address: str = f"{LOOPBACK}:0"
    concurrency: int = 1
    sidecars: InjectionMode = "all"
    settings: Settings = Settings()
    authority: Files | None = None
    metrics_address: str = ""
    metrics_by: By = "workload"
    metrics_source: Source | None = None
    collector: Collector | None = None
