"""Pods with sidecars and certificates for their proxies, shared by the benchmarks of sidecars."""

import time
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Literal

from benchmarks import build

from headgate.identity.authority import make_signer, new_root, sign
from headgate.identity.issuers import CertificateSpec
from headgate.model.identities import Credential
from headgate.model.routing import Workload
from headgate.resources.pods import APPLICATION_PORTS, SIDECAR

DOMAIN = "cluster.local"
PORT, APPLICATION_PORT = 8080, 20417
LIFETIME = timedelta(hours=1)
CREATED = "2026-01-01T00:00:00Z"
Capture = Literal["transparent", "explicit"]
Json = dict[str, Any]


class Authority:
    """A certificate authority that issues one certificate per workload."""

    def __init__(self) -> None:
        self._root = new_root(DOMAIN, time.time())
        self._known: dict[str, Credential] = {}

    def credential(self, workload: Workload) -> Credential:
        """Return the credential of a workload's proxy."""
        if workload.name not in self._known:
            wanted = CertificateSpec(identity=workload.identity, subjects=workload.subjects)
            leaf = sign(make_signer(self._root, "the benchmark"), wanted, time.time(), LIFETIME)
            self._known[workload.name] = Credential(chain=leaf.chain, key=leaf.key, roots=self._root.certificate)
        return self._known[workload.name]


def pod(name: str, address: str, ports: Mapping[int, int], capture: Capture | None = "explicit") -> Json:
    """Return a pod with its own ServiceAccount, without a sidecar if `capture` is None.

    `ports` maps the ports of the pod to the ports of its processes.
    """
    behind = ",".join(f"{port}={place}" for port, place in ports.items())
    annotations = {SIDECAR: capture, APPLICATION_PORTS: behind} if capture else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "creationTimestamp": CREATED,
            "labels": {"app": name},
            "annotations": annotations,
        },
        "spec": {"serviceAccountName": name, "containers": [{"name": "app"}]},
        "status": {"podIP": address, "phase": "Running"},
    }


def allowed(name: str, *sources: str) -> Iterator[Json]:
    """Yield the objects that allow only some ServiceAccounts to call a pod."""
    metadata = {"name": name, "namespace": "default", "creationTimestamp": CREATED}
    rules = {"matches": [{"name": "all", "methods": ["*"]}]}
    yield {"apiVersion": "specs.smi-spec.io/v1alpha4", "kind": "HTTPRouteGroup", "metadata": metadata, "spec": rules}
    spec = {
        "destination": {"kind": "ServiceAccount", "name": name},
        "sources": [{"kind": "ServiceAccount", "name": source} for source in sources],
        "rules": [{"kind": "HTTPRouteGroup", "name": name}],
    }
    yield {"apiVersion": "access.smi-spec.io/v1alpha3", "kind": "TrafficTarget", "metadata": metadata, "spec": spec}


def mesh(services: int, sidecars: int, capture: Capture = "explicit") -> Iterator[Json]:
    """Yield Services with one endpoint each, one in ten with a split. The first endpoints are pods with sidecars."""
    for item in build.objects(services):
        name = item["metadata"]["name"]
        if item["kind"] == "EndpointSlice" and int(name.removeprefix("service-")) < sidecars:
            (endpoint,) = item["endpoints"]
            endpoint["targetRef"] = {"kind": "Pod", "name": name}
            yield pod(name, endpoint["addresses"][0], {PORT: APPLICATION_PORT}, capture)
        yield item
