"""`headgate explain pod/NAME` against a served API."""

from collections.abc import Callable

import pytest
from tests.cli.conftest import ServedMesh
from tests.make.objects import Object, container, headgate_keys, pod
from tests.processes import Ran


def requesting_pod(**annotations: str) -> Object:
    """Return a pod that requests a sidecar, with annotations of headgate."""
    labels = {"headgate.dev/inject": "true"}
    return pod(
        "web-1", containers=[container(command=["true"])], labels=labels, annotations=headgate_keys(**annotations)
    )


async def test_a_pod_without_the_sidecar_that_it_requests_exits_with_1(served: ServedMesh) -> None:
    """R77. The served API has the injection mode `labelled`."""
    await served.store.create(requesting_pod())
    for argument in ("pod/web-1", "po/default/web-1"):
        ran = await served.run("explain", argument)
        assert ran.code == 1
        assert "Sidecar    none" in ran.out
        assert 'New pods   get one: the pod\'s label headgate.dev/inject is "true"' in ran.out
        assert "replace the pod: delete it, and create it again" in ran.out


async def test_explain_shows_the_generation_of_each_sidecar_object(served: ServedMesh) -> None:
    """R79."""
    await served.store.create(requesting_pod(sidecar_mode="transparent", sidecar_generations="agent@3"))
    ran = await served.run("explain", "pod/web-1", "-n", "default")
    assert ran.code == 1
    assert "headgate expects no proxy, because the pod has no address yet" in ran.out
    assert "Sidecars   agent: generation 3, which no longer exists or no longer selects the pod" in ran.out


async def test_the_error_for_a_missing_pod_names_the_pod(served: ServedMesh) -> None:
    ran = await served.run("explain", "pod/shop/none")
    assert (ran.code, ran.err) == (1, "error: Pod shop/none not found\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pod/",), "write pod/NAME or pod/NAMESPACE/NAME"),
        (("pod/a/b/c",), "write pod/NAME or pod/NAMESPACE/NAME"),
        (("pod/web-1", "--via", "gateway/edge"), "leave out -X, -H, --via, --from, --server-name, -f and --at"),
    ],
)
def test_wrong_usage_exits_with_2(run: Callable[..., Ran], arguments: tuple[str, ...], message: str) -> None:
    ran = run("explain", *arguments)
    assert ran.code == 2
    assert message in ran.err
