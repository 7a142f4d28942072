"""API discovery: the served version of each kind, missing kinds, and native sidecars."""

from typing import Any

import pytest

from headgate.errors import NotFound
from headgate.kubernetes.served_versions import ServedVersions
from headgate.resources.registry import KINDS


class FakeDiscovery:
    """The discovery responses of an API server: resource names by group and version."""

    def __init__(self, **resources: tuple[str, ...]) -> None:
        self.resources = {name.replace("__", "/").replace("_", "."): found for name, found in resources.items()}
        self.version = {"major": "1", "minor": "20"}

    async def get(self, path: str) -> Any:
        if path == "/version":
            return self.version
        if path == "/apis":
            names = [name for name in self.resources if "/" in name]
            return {"groups": [{"versions": [{"groupVersion": name}]} for name in names]}
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
    assert len(found.missing) == len(KINDS) - 4


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
