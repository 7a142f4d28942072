"""What a user of `headgate up` decides."""

from pathlib import Path
from typing import Literal

from headgate.admission.injection import InjectionMode
from headgate.envoy.collector_export import Collector
from headgate.identity.pem import Files
from headgate.resources.meta import Value
from headgate.settings import Settings
from headgate.standalone.listeners import LOOPBACK
from headgate.telemetry.counters.flows import Source

By = Literal["workload", "pod"]
"""Which labels name both ends of traffic in `/metrics`: the workload, or each pod."""


class Options(Value, frozen=True, kw_only=True):
    """What the user asked for. Addresses are `host:port`; port 0 is the one of the last start, or any free one.

    `sidecars` says which pods get one; `authority` is the mesh's authority when it is not headgate's own. Without a
    `metrics_address` nothing is exposed; `metrics_source` answers for traffic in the place of headgate's own counts. Proxies
    report to the `collector` besides.
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
