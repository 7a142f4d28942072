"""One machine as the host of a mesh: what it knows of the proxies' processes and of its pods (`questions.Host`)."""

from collections.abc import Mapping

from headgate.control.gateway import GATEWAY
from headgate.local.envoy import EnvoyProcess, EnvoyState
from headgate.local.runtime import LocalRuntime
from headgate.resources.inspect import PodCounts, ProxyProcess


class LocalHost:
    """The gateway's Envoy, and the pods with their sidecars."""

    def __init__(self, envoy: EnvoyProcess, runtime: LocalRuntime) -> None:
        self._envoy = envoy
        self._runtime = runtime

    def processes(self) -> Mapping[str, ProxyProcess]:
        """Return the Envoy processes by node id."""
        states = {GATEWAY: self._envoy.state.get(), **self._runtime.sidecars()}
        return {node_id: _process(state) for node_id, state in states.items()}

    def pods(self) -> PodCounts:
        """Return how many pods run, and in how many a process of an earlier headgate goes on."""
        adopted = self._runtime.pods()
        return PodCounts(total=len(adopted), adopted=sum(adopted.values()))


def _process(state: EnvoyState) -> ProxyProcess:
    return ProxyProcess(pid=state.pid, adopted=state.adopted, restarts=state.restarts, failure=state.failure)
