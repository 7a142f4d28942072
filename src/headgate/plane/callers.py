"""Finds the caller of a request that only the called pod's proxy counted, because the caller has no proxy (R96)."""

import ipaddress
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from headgate.compiler.report import Compiled
from headgate.envoy.view import SIDECAR
from headgate.latest import Latest
from headgate.model.identities import is_gateway, parse_id
from headgate.model.routing import Workload
from headgate.telemetry.counters.flows import GATEWAY, Peer


class _Known(NamedTuple):
    """The compiled mesh by address and identity. `identities` are those that just one pod has."""

    compiled: Compiled | None = None
    proxied: frozenset[str] = frozenset()
    pods: Mapping[str, str] = {}
    workloads: Mapping[str, Workload] = {}
    identities: Mapping[str, str] = {}


class CallerFinder:
    """Finds callers in the compiled mesh of now (`telemetry.reports.series.FindCaller`)."""

    def __init__(self, compiled: Latest[Compiled | None]) -> None:
        self._compiled = compiled
        self._known = _Known()

    def __call__(self, node_id: str, address: str, identity: str) -> Peer | None:
        """Return the caller of a proxy's pod from an address; None if the caller's own proxy has counted the request.

        A caller with an `identity` is the pod that has it alone, else the identity itself.

        An explicit sidecar calls from the machine's own address, like every program there. While it may call a pod in
        plaintext, such requests are left out: most of them were counted by a sidecar.
        """
        known = self._now()
        if identity:
            return self._identified(known, address, identity)
        if address in known.proxied:
            return None
        called = known.workloads.get(node_id.removeprefix(f"{SIDECAR}/"))
        if called and not called.tls_mode.clients_use_tls and called.capture == "explicit" and _is_loopback(address):
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
