"""API discovery: the served version of each kind, missing kinds, and native sidecars."""

from typing import Any

import pytest
from tests.decoding import completed

from headgate.admission.sidecar_containers import SidecarOptions, transparent_sidecars
from headgate.backoff import Backoff
from headgate.compiler.snapshot import Snapshot
from headgate.errors import NotFound
from headgate.kubernetes.served_versions import ServedVersions
from headgate.plane.snapshot_view import SnapshotView
from headgate.resources.registry import CLUSTER_KINDS


class FakeDiscovery:
    """The discovery responses of an API server: resource names by group and version. The first `starting` name one group."""

    def __init__(self, **resources: tuple[str, ...]) -> None:
        self.resources = {name.replace("__", "/").replace("_", "."): found for name, found in resources.items()}
        self.version = {"major": "1", "minor": "20"}
        self.starting = 0

    async def groups(self) -> Any:
        names = ["apps/v1", *(name for name in self.resources if "/" in name)]
        if self.starting:
            self.starting -= 1
            names = ["apiregistration.k8s.io/v1"]
        return {"kind": "APIGroupList", "groups": [{"versions": [{"groupVersion": name}]} for name in names]}

    async def get(self, path: str) -> Any:
        if path == "/version":
            return self.version
        name = path.split("/", 2)[2]
        if name not in self.resources:
            raise NotFound(path)
        return {"resources": [{"name": resource} for resource in self.resources[name]]}


def versions(server: FakeDiscovery) -> ServedVersions:
    return ServedVersions(server)  # type: ignore[arg-type]


async def test_each_kind_is_read_in_the_newest_known_version_that_is_served() -> None:
    server = FakeDiscovery(
        v1=("pods", "services"),
        discovery_k8s_io__v1beta1=("endpointslices",),
        split_smi_spec_io__v1alpha2=("trafficsplits",),
        split_smi_spec_io__v1alpha1=("trafficsplits",),
    )
    server.resources = {name.replace("smi.spec", "smi-spec"): found for name, found in server.resources.items()}
    found = versions(server)
    await found.refresh()
    served = {kind: item.version for (_, kind), item in found.current.get().items()}
    assert served == {"Pod": "v1", "Service": "v1", "EndpointSlice": "v1beta1", "TrafficSplit": "v1alpha2"}
    assert len(found.missing) == len(CLUSTER_KINDS) - 4


async def test_an_api_server_that_has_just_started_is_asked_until_it_knows_its_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the kinds would have no objects, and the proxies no configuration, until the next discovery."""
    monkeypatch.setattr(Backoff, "next_pause", lambda _backoff: 0.0)
    server = FakeDiscovery(v1=("pods",), apps__v1=("deployments",))
    found = versions(server)
    for starting in (0, 2):
        server.starting = starting
        await found.refresh()
        assert found.current.get().keys() == {("", "Pod"), ("apps", "Deployment")}


async def test_a_newer_server_answers_for_all_groups_at_once() -> None:
    """Aggregated discovery, Kubernetes 1.27 and newer. A group whose server is down is stale and has no resources."""

    def version(name: str, *resources: str, **other: Any) -> dict[str, Any]:
        return {
            "version": name,
            "resources": [{"resource": item} for item in resources],
            "freshness": "Current",
        } | other

    class Newer(FakeDiscovery):
        async def groups(self) -> Any:
            found = {
                "discovery.k8s.io": [version("v1", "endpointslices")],
                "split.smi-spec.io": [version("v1alpha3", "trafficsplits"), version("v1alpha1", "trafficsplits")],
                "apps": [{"version": "v1", "freshness": "Stale"}],
            }
            items = [{"metadata": {"name": name}, "versions": versions} for name, versions in found.items()]
            return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items}

    found = versions(Newer(v1=("pods",)))  # the core group has a path of its own
    await found.refresh()
    served = {kind: item.version for (_, kind), item in found.current.get().items()}
    assert served == {"Pod": "v1", "EndpointSlice": "v1", "TrafficSplit": "v1alpha3"}


async def test_a_group_whose_server_is_down_has_no_kinds() -> None:
    """The API server lists an aggregated group although the group's own server does not respond."""
    server = FakeDiscovery(v1=("pods",), apps__v1=("deployments",))
    get = server.get

    async def unreachable(path: str) -> Any:
        if path == "/apis/apps/v1":
            raise NotFound(path)
        return await get(path)

    server.get = unreachable  # type: ignore[method-assign]
    found = versions(server)
    await found.refresh()
    assert set(found.current.get()) == {("", "Pod")}


@pytest.mark.parametrize(
    ("minor", "expected"), [("20", False), ("28", False), ("29", True), ("29+", True), ("36", True), ("", False)]
)
async def test_native_sidecars_depend_on_the_version_of_the_server(minor: str, expected: bool) -> None:
    server = FakeDiscovery()
    server.version = {"major": "1", "minor": minor}
    assert await versions(server).native_sidecars() is expected


@pytest.mark.parametrize(
    ("minor", "git_version", "policy"),
    [("29", "v1.29.14", "Always"), ("31+", "v1.31.5-gke.1068000", "Always"), ("28", "v1.28.15", None)],
)
async def test_the_sidecar_of_a_job_restarts_on_servers_with_native_sidecars(
    minor: str, git_version: str, policy: str | None
) -> None:
    """The kubelet then starts it before the application, and ends it after the application, so that the Job completes."""
    server = FakeDiscovery()
    server.version = {"major": "1", "minor": minor, "gitVersion": git_version, "platform": "linux/amd64"}
    options = SidecarOptions(image="headgate:1", xds="x:1", native=await versions(server).native_sidecars())
    metadata = {"generateName": "count-", "namespace": "shop", "labels": {"headgate.dev/inject": "true"}}
    spec = {"containers": [{"name": "count"}], "restartPolicy": "Never"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    found = completed(transparent_sidecars("labelled", options))(pod, None, SnapshotView(Snapshot()))["spec"]
    sidecars = [item for item in found["initContainers"] if item["name"] == "headgate-sidecar"]
    assert [item.get("restartPolicy") for item in sidecars] == ([policy] if policy else [])
    assert len(found["containers"]) == (1 if policy else 2)
