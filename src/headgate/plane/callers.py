"""Finds the pod or identity of callers without a proxy, whose requests only the server's proxy counts (R96)."""

import ipaddress
from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from headgate.compiler.report import Compiled
from headgate.envoy.node_ids import SIDECAR
from headgate.latest import Latest
from headgate.model.identities import is_gateway, parse_id
from headgate.model.routing import Workload
from headgate.telemetry.counters.flows import GATEWAY, Peer


class _CallerIndex(NamedTuple):
    """The pods and workloads of the mesh in `compiled`, indexed to find a caller.

    `proxied` has the addresses of workloads with a proxy. `pods` maps the address of an endpoint to the name of its
    pod. `workloads` maps a pod's name to its workload. `identities` maps an identity to a pod's name, if only one pod
    has the identity.
    """

    compiled: Compiled | None = None
    proxied: frozenset[str] = frozenset()
    pods: Mapping[str, str] = {}
    workloads: Mapping[str, Workload] = {}
    identities: Mapping[str, str] = {}


class CallerFinder:
    """Finds the callers of reported requests in the current mesh, as a `telemetry.reports.series.FindCaller`."""

    def __init__(self, compiled: Latest[Compiled | None], gateways: Collection[str] = ()) -> None:
        self._compiled = compiled
        self._gateways = gateways
        self._index = _CallerIndex()

    def __call__(self, node_id: str, address: str, identity: str) -> Peer | None:
        """Return the caller of a request to the proxy `node_id`, by source address and `identity`.

        `identity` is the caller's SPIFFE ID, empty for plaintext. If several pods share the identity and the address
        belongs to none of them, the returned peer names the identity. Returns None if the caller's own proxy has
        counted the request.

        Sidecars with explicit capture call from a loopback address, like other programs on the machine, and pods with
        networks of their own are called from an address of `gateways`. While a pod accepts plaintext from such proxies, the
        result for these addresses is None, because a proxy counted most of these requests.
        """
        index = self._current_index()
        if identity:
            return self._identified(index, address, identity)
        if address in index.proxied:
            return None
        called = index.workloads.get(node_id.removeprefix(f"{SIDECAR}/"))
        from_proxy = address in self._gateways or (
            called is not None and called.capture == "explicit" and _is_loopback(address)
        )
        if called and not called.tls_mode.clients_use_tls and from_proxy:
            return None
        pod = index.pods.get(address, "")
        return Peer(pod=pod) if pod else Peer(outside=address)

    def _identified(self, index: _CallerIndex, address: str, identity: str) -> Peer:
        account = parse_id(identity)
        if account and is_gateway(account.namespace, account.name):
            return GATEWAY
        pod = index.pods.get(address, "")
        if pod not in index.workloads or index.workloads[pod].identity != identity:
            pod = index.identities.get(identity, "")
        return Peer(pod=pod) if pod else Peer(outside=identity)

    def _current_index(self) -> _CallerIndex:
        compiled = self._compiled.get()
        if compiled is not self._index.compiled and compiled:
            mesh = compiled.mesh
            shared = Counter(workload.identity for workload in mesh.workloads)
            self._index = _CallerIndex(
                compiled,
                frozenset(workload.address for workload in mesh.workloads),
                {
                    endpoint.address: endpoint.workload
                    for entry in mesh.endpoints
                    for endpoint in entry.ready
                    if endpoint.workload
                },
                {workload.name: workload for workload in mesh.workloads},
                {workload.identity: workload.name for workload in mesh.workloads if shared[workload.identity] == 1},
            )
        return self._index


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
