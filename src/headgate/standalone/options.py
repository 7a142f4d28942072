"""The options of `headgate up`."""

from pathlib import Path

from headgate.identity.pem import Files
from headgate.options import MeshOptions
from headgate.resources.meta import Value
from headgate.standalone.listeners import LOOPBACK
from headgate.standalone.network.choice import NetworkOption


class MachineOptions(Value, frozen=True, kw_only=True):
    """The options of `headgate up`. Addresses are `host:port`; port 0 selects the port of the last start or any free port.

    `authority` names the files of the mesh's CA; None selects headgate's embedded CA. With an empty `metrics_address`, no
    metrics are exposed. `localhost_port` is that of names below `.localhost` (`listeners.localhost_port`). `network` says whether pods
    share the machine's network or have networks of their own; `auto` gives them their own where the machine allows it. `network_fault`
    says why this user can't have them.
    """

    state: Path
    ephemeral: bool = False
    api_address: str = f"{LOOPBACK}:0"
    proxy_address: str = f"{LOOPBACK}:0"
    concurrency: int = 1
    mesh: MeshOptions = MeshOptions(sidecars="all")
    authority: Files | None = None
    metrics_address: str = ""
    localhost_port: int = 0
    network: NetworkOption = "host"
    network_fault: str = ""
