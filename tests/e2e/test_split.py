"""Where requests go, by weights, ports and what exists (requirements 1.1, 1.2, 1.8)."""

from tests.e2e.manifests import external, split
from tests.e2e.world import World


def test_shares_are_exact(world: World, namespace: str) -> None:
    """R7: 1000/500 is one third, to the request."""
    v1, v2 = world.backend("v1"), world.backend("v2")
    world.apply(
        external("web"),
        external("web-v1", v1),
        external("web-v2", v2),
        split("web", "web", {"web-v1": 1000, "web-v2": 500}),
        namespace=namespace,
    )
    assert world.send(300, world.request("web", 8080, namespace=namespace)) == {"v1": 200, "v2": 100}
    assert (v1.take(), v2.take()) == (200, 100)
    assert world.send(300, world.request("web", 8080, namespace=namespace, via="proxy")) == {"v1": 200, "v2": 100}
