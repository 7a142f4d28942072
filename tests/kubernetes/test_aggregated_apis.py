"""The state of a cluster, as the inspect API reports it."""

from collections.abc import Mapping
from typing import Any

from tests.make.objects import deployment, meshed_pod, pod

from headgate.errors import Unavailable
from headgate.kinds import GATEWAY
from headgate.kubernetes.aggregated_apis import ClusterHost, Sources
from headgate.kubernetes.permissions import MissingPermissions
from headgate.latest import Latest
from headgate.objects.ports import Listing
from headgate.resources.registry import KINDS, key_of
from headgate.standalone.store.memory import MemoryStore


class Versions:
    """The discovery of a cluster without the Gateway API's definitions and without EndpointSlices."""

    missing = tuple(kind for kind in KINDS if kind.group == GATEWAY or kind.kind == "EndpointSlice")


class Unreachable(MemoryStore):
    """A store whose API server does not answer."""

    async def list(self, *_: str) -> Listing:
        raise Unavailable("down")


class NoRevisions:
    """Revisions without problems."""

    problems: Latest[Mapping[str, str]] = Latest({})


def host(store: MemoryStore) -> ClusterHost:
    unused: Any = None
    versions: Any = Versions()
    revisions: Any = NoRevisions()
    return ClusterHost(Sources(unused, unused, store, store, versions, MissingPermissions(()), revisions))


async def test_kinds_without_a_definition_are_reported_as_missing_but_built_in_kinds_are_not() -> None:
    """A user can install a definition, but not EndpointSlices."""
    missing = (await host(MemoryStore()).state()).missing_kinds
    assert "httproutes.gateway.networking.k8s.io" in missing
    assert not [name for name in missing if not name.endswith(f".{GATEWAY}")]


async def test_the_pods_with_a_sidecar_are_counted_and_other_pods_are_not() -> None:
    store, web = MemoryStore(), meshed_pod("web", "10.0.0.1")
    for item in (web, pod("other"), deployment("outside")):
        await store.create(item)
    await store.update({**await store.get(key_of(web)), "status": web["status"]}, subresource="status")
    workloads = (await host(store).state()).workloads
    assert workloads is not None
    assert (workloads.wanted, workloads.ready) == (1, 1)


async def test_the_rest_of_the_state_is_reported_when_pods_cannot_be_read() -> None:
    state = await host(Unreachable()).state()
    assert state.workloads is None
    assert state.missing_kinds


async def test_events_that_cannot_be_read_take_only_their_detail_from_the_status() -> None:
    assert await host(Unreachable()).probe_events() == ()
