"""`headgate restart` and `headgate proxies --outdated` against a served API; the tests play the controllers."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.cli.conftest import ServedMesh
from tests.make.objects import deployment, namespace, owner_reference, pod

from headgate.cli.inspect_client import InspectClient
from headgate.errors import Unavailable
from headgate.resources.core.pod_metadata import SIDECAR
from headgate.resources.inspect import Proxy
from headgate.resources.meta import Key, Object

SHOP = "shop"
DONE = {"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
WHY = "has a sidecar, and a new pod gets none"


def owned(workload: Object, *, sidecar: bool, suffix: str = "old") -> Object:
    """Return a pod of a stored Deployment."""
    name = workload["metadata"]["name"]
    owners = [owner_reference(workload, controller=True)]
    annotations = {SIDECAR: "explicit"} if sidecar else {}
    return pod(f"{name}-{suffix}", namespace=SHOP, annotations=annotations, metadata={"ownerReferences": owners})


async def add_outdated(served: ServedMesh, workload: str, **spec: Any) -> None:
    """Store a Deployment whose pod has a sidecar, in a namespace without the label for it."""
    stored = await served.store.create(deployment(workload, namespace=SHOP, **spec))
    await served.store.create(owned(stored, sidecar=True))


async def add_shop(served: ServedMesh, *workloads: str, **spec: Any) -> None:
    await served.store.create(namespace(SHOP))
    for workload in workloads:
        await add_outdated(served, workload, **spec)
    await served.live_state.wait_compiled()


async def roll_out(served: ServedMesh, workload: str) -> None:
    """Replace the pod of a Deployment as its controller does, once its template has changed."""
    key = Key("apps", "Deployment", SHOP, workload)
    async for change in served.store.watch("apps", "Deployment", since=str(served.store.revision)):
        if change.key == key and "restartedAt" in json.dumps(change.object["spec"]):
            await served.store.delete(Key("", "Pod", SHOP, f"{workload}-old"))
            await served.store.create(owned(change.object, sidecar=False, suffix="new"))
            status = {**DONE, "observedGeneration": change.object["metadata"]["generation"]}
            await served.store.update({**change.object, "status": status}, subresource="status")
            return


async def test_outdated_workloads_are_listed_with_the_reason_and_the_exit_code_1(served: ServedMesh) -> None:
    assert await served.run("proxies", "--outdated") == (0, "", "no workload is outdated\n")
    await add_shop(served, "web")
    ran = await served.run("proxies", "--outdated")
    row = ran.out.splitlines()[1].split()
    assert (ran.code, row[:3], WHY in ran.out) == (1, [SHOP, "deployment/web", "1/1"], True)
    ran = await served.run("proxies", "--outdated", "-n", SHOP, "-o", "json")
    (due,) = json.loads(ran.out)["items"]
    assert (ran.code, due["kind"], due["name"], due["outdatedPods"]) == (1, "Deployment", "web", 1)
    assert (await served.run("proxies", "--outdated", "-n", "default")).code == 0


async def test_a_dry_run_prints_the_outdated_workloads_and_restarts_none(served: ServedMesh) -> None:
    await add_shop(served, "api", "web")
    ran = await served.run("restart", "--outdated", "-A", "--dry-run")
    assert ran == (0, "deployment/api in shop would restart\ndeployment/web in shop would restart\n", "")
    stored = await served.store.get(Key("apps", "Deployment", SHOP, "web"))
    assert "annotations" not in stored["spec"]["template"]["metadata"]


async def test_outdated_workloads_are_restarted_one_after_the_other(served: ServedMesh) -> None:
    await add_shop(served, "api", "web")
    controllers = [asyncio.create_task(roll_out(served, workload)) for workload in ("api", "web")]
    ran = await served.run("restart", "--outdated", "-n", SHOP, "--timeout", "20s")
    assert ran.code == 0, ran.err
    assert [line.partition(":")[0] for line in ran.out.splitlines()] == [
        "shop/deployment/api restarted",
        "shop/deployment/web restarted",
    ]
    await asyncio.gather(*controllers)
    assert (await served.run("proxies", "--outdated")).code == 0


async def test_a_restart_outlasts_a_control_plane_that_does_not_respond(
    served: ServedMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control plane may be one of the workloads that restart, and an API server may restart too."""
    await add_shop(served, "web")
    read, failures = InspectClient.proxies, iter([Unavailable("503 Service Unavailable")] * 2)

    async def unavailable_at_first(client: InspectClient, namespace: str = "") -> Sequence[Proxy]:
        for failure in failures:
            raise failure
        return await read(client, namespace)

    monkeypatch.setattr(InspectClient, "proxies", unavailable_at_first)
    controller = asyncio.create_task(roll_out(served, "web"))
    ran = await served.run("restart", "--outdated", "-n", SHOP, "--timeout", "20s")
    await controller
    assert (ran.code, ran.out.partition(":")[0]) == (0, "shop/deployment/web restarted"), ran.err
    assert next(failures, None) is None


async def test_a_restart_stops_at_the_first_workload_that_is_not_ready_in_time(served: ServedMesh) -> None:
    await add_shop(served, "api", "db", "web")
    controller = asyncio.create_task(roll_out(served, "api"))
    ran = await served.run("restart", "--outdated", "-n", SHOP, "--timeout", "1s")
    await controller
    assert ran.code == 124
    assert (
        "shop/deployment/db: not ready after 1 s: the new generation is not processed yet; see `kubectl -n shop"
        in ran.err
    )
    assert ran.err.endswith("restarted before: shop/deployment/api; not restarted: shop/deployment/web\n")


async def test_a_workload_whose_new_pods_are_outdated_too_ends_the_restart(served: ServedMesh) -> None:
    await add_shop(served, "web")
    stored = await served.store.get(Key("apps", "Deployment", SHOP, "web"))
    await served.store.update({**stored, "status": {**DONE, "observedGeneration": 9}}, subresource="status")
    await served.store.delete(Key("", "Pod", SHOP, "web-old"))
    await served.store.create(owned(stored, sidecar=False))
    shop = await served.store.get(Key("", "Namespace", "", SHOP))
    labels = {**shop["metadata"].get("labels", {}), "headgate.dev/inject": "true"}
    await served.store.update({**shop, "metadata": {**shop["metadata"], "labels": labels}})
    await served.live_state.wait_compiled()
    ran = await served.run("restart", "deployment/web", "-n", SHOP, "--timeout", "20s")
    assert ran.code == 1
    assert "its new pods are outdated too: has no sidecar, and a new pod gets one" in ran.err


async def test_a_named_workload_that_can_not_be_restarted_ends_the_command_before_any_restart(
    served: ServedMesh,
) -> None:
    await add_shop(served, "web", paused=True)
    ran = await served.run("restart", "deployment/web", "-n", SHOP)
    assert (ran.code, "rollout resume deployment/web` first; nothing was restarted" in ran.err) == (1, True)
    ran = await served.run("restart", "pod/web", "-n", SHOP)
    assert (ran.code, "no controller creates it again" in ran.err) == (1, True)
    ran = await served.run("restart", "deployment/other", "-n", SHOP)
    assert (ran.code, "deployment/other in the namespace shop not found" in ran.err) == (1, True)


async def test_an_outdated_workload_that_can_not_be_restarted_is_named_and_the_next_one_is_restarted(
    served: ServedMesh,
) -> None:
    await add_shop(served, "api")
    await add_outdated(served, "web", paused=True)
    await served.live_state.wait_compiled()
    controller = asyncio.create_task(roll_out(served, "api"))
    ran = await served.run("restart", "--outdated", "-n", SHOP, "--timeout", "20s")
    await controller
    assert (ran.code, ran.out.partition(":")[0]) == (1, "shop/deployment/api restarted")
    assert "deployment/web is not restarted: its rollout is paused" in ran.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name workloads as KIND/NAME, or select all outdated ones with --outdated"),
        (("deployment/web", "-A"), "leave out -A"),
    ],
)
async def test_a_restart_without_a_clear_selection_is_a_wrong_usage(
    served: ServedMesh, words: tuple[str, ...], message: str
) -> None:
    ran = await served.run("restart", *words)
    assert (ran.code, message in " ".join(ran.err.split())) == (2, True)
