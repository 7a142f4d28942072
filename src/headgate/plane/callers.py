"""Who calls a pod in plaintext: somebody without a proxy, whom nobody else has counted (R96)."""

import ipaddress
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from headgate.compiler.report import Compiled
from headgate.envoy.view import SIDECAR
from headgate.latest import Latest
from headgate.model.identities import is_gateway, parse_id
from headgate.model.workloads import Workload
from headgate.telemetry.counters.flows import GATEWAY, Peer


class _Known(NamedTuple):
    """The workloads with a proxy, and the pods without one, that have addresses now; pods by an identity of their own."""

    compiled: Compiled | None = None
    proxied: frozenset[str] = frozenset()
    pods: Mapping[str, str] = {}
    workloads: Mapping[str, Workload] = {}
    identities: Mapping[str, str] = {}


class Callers:
    """Tells callers apart by what is compiled now (`telemetry.series.Callers`)."""

    def __init__(self, compiled: Latest[Compiled | None]) -> None:
        self._compiled = compiled
        self._known = _Known()

    def __call__(self, node_id: str, address: str, identity: str) -> Peer | None:
        """Return who calls the pod of a proxy from an address; None when his own proxy has counted.

        A caller that proved its `identity` is the pod that has it alone, else the identity itself.

        A proxy that is not transparent calls from the machine's own address, as everybody there does. As long as it
        calls a pod in plaintext, it can't be told from others, and what comes like that is left out: most of it has been
        counted.
        """
        known = self._now()
        if identity:
            return self._identified(known, address, identity)
        if address in known.proxied:
            return None
        called = known.workloads.get(node_id.removeprefix(f"{SIDECAR}/"))
        if called and not called.stage.is_sent_tls and called.capture == "explicit" and _is_loopback(address):
            return None
        pod = known.pods.get(address, "")
        return Peer(pod=pod) if pod else Peer(outside=address)

    def _identified(self, known: _Known, address: str, identity: str) -> Peer:
        account = parse_id(identity)
        if account and is_gateway(account.namespace, account.name):
            return GATEWAY
        pod = known.pods.get(address, "")
        if pod not in known.workloads or known.workloads[pod].identity != identity:
            pod = known.identities.get(identity, "")
        return Peer(pod=pod) if pod else Peer(outside=identity)

    def _now(self) -> _Known:
        compiled = self._compiled.get()
        if compiled is not self._known.compiled and compiled:
            mesh = compiled.mesh
            shared = Counter(workload.identity for workload in mesh.workloads)
            self._known = _Known(
                compiled,
                frozenset(workload.address for workload in mesh.workloads),
                {place.address: place.workload for entry in mesh.endpoints for place in entry.ready if place.workload},
                {workload.name: workload for workload in mesh.workloads},
                {item.identity: item.name for item in mesh.workloads if shared[item.identity] == 1},
            )
        return self._known


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
