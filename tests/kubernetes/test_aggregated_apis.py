"""What the inspect API of a cluster says about its API server."""

from headgate.kinds import GATEWAY
from headgate.kubernetes.aggregated_apis import ClusterHost
from headgate.resources.registry import KINDS


class Versions:
    """The discovery of a cluster without the Gateway API's definitions and without EndpointSlices."""

    missing = tuple(kind for kind in KINDS if kind.group == GATEWAY or kind.kind == "EndpointSlice")


def test_kinds_without_a_definition_are_missing_and_built_in_kinds_are_not_named() -> None:
    """A user can install a definition, but not EndpointSlices."""
    found = ClusterHost(Versions()).missing_kinds()  # type: ignore[arg-type]
    assert "httproutes.gateway.networking.k8s.io" in found
    assert not [name for name in found if not name.endswith(f".{GATEWAY}")]
