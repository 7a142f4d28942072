"""`headgate status` against a served API."""

import json
from typing import Any

import pytest
from tests.cli.conftest import ServedMesh
from tests.make import objects

from headgate.kinds import EXPERIMENTAL, GATEWAY
from headgate.plane.mesh_state import HostState
from headgate.resources.mesh_status import StoreState, UnreadyWorkload, WorkloadCounts
from headgate.resources.meta import Key
from headgate.resources.registry import KINDS
from headgate.telemetry.counters.counts import UNSENT, Counts, class_index
from headgate.telemetry.counters.flows import NO_PEER, Flow, Peer, Reading


@pytest.mark.parametrize(
    ("objects", "findings"),
    [
        ([], "none"),
        ([objects.service("website", 8080), objects.split("website", {"gone": 1})], "1 warning (headgate check)"),
        (
            [objects.service("website", 8080), objects.split("website", {"gone": 1, "lost": 1})],
            "2 warnings (headgate check)",
        ),
    ],
)
async def test_status_counts_findings_by_severity(served: ServedMesh, objects: list[Any], findings: str) -> None:
    for item in objects:
        await served.store.create(item)
    await served.run("check")  # waits until the objects are compiled
    ended = await served.run("status")
    assert f"findings      {findings}\n" in ended.out


def unready() -> HostState:
    """Return the state of a machine with a Deployment that is down and a store on a full disk."""
    down = Key("apps", "Deployment", "default", "website")
    row = UnreadyWorkload(object=down, ready=0, wanted=2, message="CommandNotFound: no such file: x")
    store = StoreState(
        writable=False, message="can't write the store x: full", failing_since_time="2026-01-01T00:00:00Z"
    )
    return HostState(workloads=WorkloadCounts(ready=3, wanted=5, unready=(row,)), store=store)


async def test_status_fails_for_pods_that_do_not_run_and_a_store_that_cannot_write(served: ServedMesh) -> None:
    served.host.observed = unready()
    ended = await served.run("status")
    assert ended.code == 1
    assert "pods          3 of 5 ready\nstore         can't be written\n" in ended.out
    assert ended.out.splitlines()[-2:] == [
        "can't write the store x: full; no write has succeeded since 2026-01-01T00:00:00Z",
        "Deployment default/website: 0 of 2 pods ready: CommandNotFound: no such file: x",
    ]


async def test_damaged_objects_are_problems_until_their_files_are_deleted(served: ServedMesh) -> None:
    served.host.observed = HostState(store=StoreState(writable=True, damaged=("state/damaged-objects/x.json",)))
    message = "an object was damaged in the store: write it again, with the help of state/damaged-objects/x.json, then delete that file"
    ended = await served.run("status")
    assert ended.code == 1
    assert "store         writable, 1 damaged object\n" in ended.out
    assert ended.out.splitlines()[-1] == message
    ended = await served.run("check")
    assert (ended.code, ended.out) == (1, f"error ObjectDamaged {message}\n")


async def test_check_fails_for_pods_that_do_not_run_and_a_store_that_cannot_write(served: ServedMesh) -> None:
    served.host.observed = unready()
    ended = await served.run("check")
    assert ended.code == 1
    assert ended.out.splitlines() == [
        "error StoreNotWritable can't write the store x: full; no write has succeeded since 2026-01-01T00:00:00Z",
        "error PodsNotReady Deployment default/website: 0 of 2 pods ready: CommandNotFound: no such file: x",
    ]


GATEWAY_API = tuple(f"{kind.plural}.{kind.group}" for kind in KINDS if kind.group in {GATEWAY, EXPERIMENTAL})
OTHER = "canaries.headgate.dev"


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        (GATEWAY_API, "the Gateway API is not installed"),
        (
            (OTHER, *GATEWAY_API),
            f"the Gateway API is not installed; {OTHER}; install their CustomResourceDefinitions to use them",
        ),
        (GATEWAY_API[-1:], f"{GATEWAY_API[-1]}; install their CustomResourceDefinitions to use them"),
    ],
)
async def test_a_cluster_without_the_gateway_api_is_said_in_few_words(
    served: ServedMesh, missing: tuple[str, ...], text: str
) -> None:
    served.host.observed = HostState(missing_kinds=missing)
    assert f"missing kinds {text}\n" in (await served.run("status")).out


async def test_status_shows_failing_traffic_with_the_command_that_explains_it_and_exits_with_0(
    served: ServedMesh,
) -> None:
    """The exit code is about the mesh: an application that fails does not change it."""
    assert "failing now   none\n" in (await served.run("status")).out
    client = Peer(pod="default/client")
    for number in range(6):
        called = Flow(source=client, destination=NO_PEER, service=f"default/web-{number}", port=8080)
        served.flows[called] = Counts.of({class_index(503): 3, class_index(200): number, UNSENT: 3})
    ended = await served.run("status")
    assert ended.code == 0
    assert (
        "failing now   Pod default/client to default/web-0:8080: 100% failed of 3 in the last 30 s: no server got them, the caller's proxy responded\n"
        "              headgate explain http://web-0.default:8080/ --from pod/client -n default\n"
    ) in ended.out
    assert "web-1:8080: 75% failed of 4" in ended.out
    assert "              and 1 more; -o json shows all\n" in ended.out
    shown = json.loads((await served.run("status", "-o", "json")).out)["status"]
    assert (shown["healthy"], len(shown["failing"]), shown["failing"][0]["failed"]) == (True, 6, 3)


async def test_traffic_that_succeeds_again_does_not_fail_now(
    served: ServedMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failures of a Service's start are in the counts for 30 s."""
    called = Flow(source=Peer(pod="default/client"), destination=NO_PEER, service="default/web", port=8080)

    async def read(seconds: float) -> Reading:
        counts = {class_index(200): 12} | ({class_index(503): 4} if seconds > 10 else {})
        return Reading(end=0.0, window=seconds, flows={called: Counts.of(counts)})

    monkeypatch.setattr(served, "read", read)
    assert (
        "failing now   none\n"
        "recovered     Pod default/client to default/web:8080: 25% failed of 16 in the last 30 s: responses 5xx; none of 12 in the last 10 s\n"
    ) in (await served.run("status")).out


async def test_status_says_how_many_rows_of_failing_traffic_it_leaves_out(served: ServedMesh) -> None:
    """Each watcher of the MeshStatus gets all rows again with each change."""
    for number in range(103):
        called = Flow(
            source=Peer(pod="default/client"), destination=NO_PEER, service=f"default/web-{number}", port=8080
        )
        served.flows[called] = Counts.of({class_index(503): 3})
    assert "              and 98 more; -o json shows the first 100\n" in (await served.run("status")).out
    shown = json.loads((await served.run("status", "-o", "json")).out)["status"]
    assert (len(shown["failing"]), shown["failingLeftOut"]) == (100, 3)


async def test_a_bug_in_the_search_for_failing_traffic_does_not_hide_the_other_parts_of_the_status(
    served: ServedMesh, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def read(_: float) -> Reading:
        raise ZeroDivisionError

    monkeypatch.setattr(served, "read", read)
    ended = await served.run("status")
    assert ended.code == 0
    assert "findings" in ended.out
    assert "failing now" not in ended.out
    assert "bug: the status lacks the traffic that fails" in caplog.text
