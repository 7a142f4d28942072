"""The kinds that the inspect API of a cluster reports as missing."""

from headgate.kinds import GATEWAY
from headgate.kubernetes.aggregated_apis import ClusterHost
from headgate.kubernetes.options import Options
from headgate.kubernetes.permissions import MissingPermissions
from headgate.resources.registry import KINDS


class Versions:
    """The discovery of a cluster without the Gateway API's definitions and without EndpointSlices."""

    missing = tuple(kind for kind in KINDS if kind.group == GATEWAY or kind.kind == "EndpointSlice")


def test_kinds_without_a_definition_are_reported_as_missing_but_built_in_kinds_are_not() -> None:
    """A user can install a definition, but not EndpointSlices."""
    found = ClusterHost(Versions(), MissingPermissions(()), Options(pod="p", image="i")).missing_kinds()  # type: ignore[arg-type]
    assert "httproutes.gateway.networking.k8s.io" in found
    assert not [name for name in found if not name.endswith(f".{GATEWAY}")]
