"""One machine as the host of a mesh: what it knows of the proxies' processes and of its pods (`plane.questions.Host`)."""

from collections.abc import Mapping
from pathlib import Path

from headgate.resources.inspect import PodCounts, ProxyProcess
from headgate.standalone.gateway import GATEWAY
from headgate.standalone.instance import Instance
from headgate.standalone.pods.runtime import LocalRuntime
from headgate.standalone.pods.sidecars import probe_socket
from headgate.standalone.proxies.envoy import EnvoyProcess, EnvoyState


class LocalHost:
    """The gateway's Envoy, and the pods with their sidecars."""

    def __init__(self, envoy: EnvoyProcess, runtime: LocalRuntime, instance: Instance) -> None:
        self._envoy = envoy
        self._runtime = runtime
        self._probe = Path(instance.probe)

    def processes(self) -> Mapping[str, ProxyProcess]:
        """Return the Envoy processes by node id."""
        sidecars = {
            node_id: _process(state, probe_socket(self._probe.parent, node_id))
            for node_id, state in self._runtime.sidecars().items()
        }
        return {GATEWAY: _process(self._envoy.state.get(), self._probe), **sidecars}

    def pods(self) -> PodCounts:
        """Return how many pods run, and in how many a process of an earlier headgate goes on."""
        adopted = self._runtime.pods()
        return PodCounts(total=len(adopted), adopted=sum(adopted.values()))


def _process(state: EnvoyState, probe: Path) -> ProxyProcess:
    return ProxyProcess(
        pid=state.pid, adopted=state.adopted, restarts=state.restarts, failure=state.failure, probe=str(probe)
    )
