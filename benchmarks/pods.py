"""Pods with sidecars and certificates for their proxies, shared by the benchmarks of sidecars."""

from collections.abc import Iterator, Mapping
from typing import Literal

from benchmarks import build
from tests.authority import Authority
from tests.make import objects
from tests.make.objects import Object

from headgate.model.identities import Credential
from headgate.model.routing import Workload
from headgate.resources.core.pod_metadata import APPLICATION_PORTS, SIDECAR

PORT, APPLICATION_PORT = 8080, 20417
Capture = Literal["transparent", "explicit"]


class WorkloadAuthority(Authority):
    """A certificate authority that issues one certificate per workload."""

    def __init__(self) -> None:
        super().__init__()
        self._issued: dict[str, Credential] = {}

    def credential(self, workload: Workload) -> Credential:
        """Return the credential of a workload's proxy."""
        if workload.name not in self._issued:
            self._issued[workload.name] = self.issue(workload.identity, *workload.subjects)
        return self._issued[workload.name]


def meshed(name: str, address: str, ports: Mapping[int, int], capture: Capture = "explicit") -> Object:
    """Return a pod with a sidecar and its own ServiceAccount; `ports` maps its ports to those of its processes."""
    behind = ",".join(f"{port}={place}" for port, place in ports.items())
    annotations = {SIDECAR: capture, APPLICATION_PORTS: behind}
    return objects.pod(name, address, account=name, labels={"app": name}, annotations=annotations)


def allowed(name: str, *sources: str) -> Iterator[Object]:
    """Yield the objects that allow only some ServiceAccounts to call a pod."""
    yield objects.http_route_group(name, {"all": {"methods": ["*"]}})
    yield objects.traffic_target(name, name, sources, [objects.http_rule(name)])


def mesh(services: int, sidecars: int, capture: Capture = "explicit") -> Iterator[Object]:
    """Yield Services with one endpoint each, one in ten with a split. The first endpoints are pods with sidecars."""
    for item in build.services(services):
        name = item["metadata"]["name"]
        if item["kind"] == "EndpointSlice" and int(name.removeprefix("service-")) < sidecars:
            (endpoint,) = item["endpoints"]
            endpoint["targetRef"] = {"kind": "Pod", "name": name}
            yield meshed(name, endpoint["addresses"][0], {PORT: APPLICATION_PORT}, capture)
        yield item
