"""`headgate explain pod/NAME` against a served API."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.cli.conftest import Ran, World


def pod(**annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-1",
            "namespace": "default",
            "labels": {"headgate.dev/inject": "true"},
            "annotations": {f"headgate.dev/{name}": value for name, value in annotations.items()},
        },
        "spec": {"containers": [{"name": "app", "command": ["true"]}]},
    }


async def test_a_pod_without_the_sidecar_that_it_requests_exits_with_1(world: World) -> None:
    """R77. The served API has the injection mode `labelled`."""
    await world.store.create(pod())
    for argument in ("pod/web-1", "po/default/web-1"):
        ran = await world.run("explain", argument)
        assert ran.code == 1
        assert "Sidecar    none" in ran.out
        assert 'New pods   get one: the pod\'s label headgate.dev/inject is "true"' in ran.out
        assert "replace the pod: delete it, and create it again" in ran.out


async def test_explain_shows_the_generation_of_each_sidecar_object(world: World) -> None:
    """R79."""
    await world.store.create(pod(sidecar="transparent", sidecars="agent@3"))
    ran = await world.run("explain", "pod/web-1", "-n", "default")
    assert ran.code == 1
    assert "headgate expects no proxy, because the pod has no address yet" in ran.out
    assert "Sidecars   agent: generation 3, which no longer exists or no longer selects the pod" in ran.out


async def test_the_error_for_a_missing_pod_names_the_pod(world: World) -> None:
    ran = await world.run("explain", "pod/shop/none")
    assert (ran.code, ran.err) == (1, "error: Pod shop/none not found\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pod/",), "write pod/NAME or pod/NAMESPACE/NAME"),
        (("pod/a/b/c",), "write pod/NAME or pod/NAMESPACE/NAME"),
        (("pod/web-1", "--via", "gateway/edge"), "leave out -H, --via, --from, -f and --at"),
    ],
)
def test_wrong_usage_exits_with_2(run: Callable[..., Ran], arguments: tuple[str, ...], message: str) -> None:
    ran = run("explain", *arguments)
    assert ran.code == 2
    assert message in ran.err
