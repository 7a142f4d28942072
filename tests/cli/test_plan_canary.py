"""`headgate plan` of a Canary says the same of a running headgate as offline, and so does the warning of its write."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from tests.cli.conftest import ServedMesh
from tests.make import objects

from headgate.plane.write_warnings import ReviewedWrite, warnings_after_write
from headgate.resources.registry import TRAFFIC_SPLIT
from headgate.rollout.expected import expected_objects

SERVICES = [objects.service(name, 8080, selector={"app": name}) for name in ("website", "v1", "v2")]
SLICES = [
    objects.endpoint_slice(name, [f"127.9.9.{number}"], {"p8080": 8080})
    for number, name in enumerate(("website", "v1", "v2"), 1)
]
CANARY = objects.canary("website", {"v1": 90, "v2": 10})
OTHER = objects.canary("website", {"v1": 40, "v2": 60})


def write(path: Path, *written: Mapping[str, Any]) -> str:
    path.write_text(yaml.safe_dump_all(written, sort_keys=False))
    return str(path)


def requests_of(ended: Any) -> list[Any]:
    found = json.loads(ended.out)["status"]["differences"]["requests"]
    return [
        (
            item["entry"]["name"],
            item["changeMessages"],
            [f"{cause['object']['kind']} {cause['object']['name']}" for cause in item["causes"]],
        )
        for item in found
    ]


async def follow(served: ServedMesh, canary: Mapping[str, Any]) -> None:
    """Store what the controller makes of a stored Canary."""
    snapshot = await snapshot_of(served)
    for key, obj in expected_objects(dict(canary), {}, snapshot, "cluster.local").items():
        assert obj
        await served.store.apply(obj, manager="headgate-rollout")
        assert key.kind == TRAFFIC_SPLIT.kind


async def snapshot_of(served: ServedMesh) -> Any:
    await served.live_state.wait_compiled()
    return served.live_state.feed.snapshot.get()


async def test_each_change_of_a_canary_is_planned_live_as_offline(
    served: ServedMesh, tmp_path: Path, run: Callable[..., Any]
) -> None:
    base = write(tmp_path / "base.yaml", *SERVICES, *SLICES)
    with_canary = write(tmp_path / "with.yaml", *SERVICES, *SLICES, CANARY)
    new, changed = write(tmp_path / "new.yaml", CANARY), write(tmp_path / "changed.yaml", OTHER)
    for obj in (*SERVICES, *SLICES):
        await served.store.create(obj)

    live = await served.run("plan", "-f", new, "-o", "json")
    offline = await served.run("plan", "--base", base, "-f", new, "-o", "json")
    assert live.code == 1
    assert requests_of(live) == requests_of(offline)
    assert requests_of(live)[0] == (
        "default/website",
        [
            "90% of them from default/website:8080 to default/v1:8080",
            "10% of them from default/website:8080 to default/v2:8080",
        ],
        ["Canary website"],
    )
    (cause,) = json.loads(live.out)["status"]["differences"]["requests"][0]["causes"]
    assert (cause["file"], cause["line"]) == (
        new,
        yaml.safe_dump(CANARY, sort_keys=False).splitlines().index("spec:") + 1,
    )

    stored = await served.store.create(CANARY)
    await follow(served, stored)
    assert (await served.run("plan", "-f", new)).code == 0
    live = await served.run("plan", "-f", changed, "-o", "json")
    offline = await served.run("plan", "--base", with_canary, "-f", changed, "-o", "json")
    assert requests_of(live) == requests_of(offline)
    assert "50% of them from default/v1:8080 to default/v2:8080" in requests_of(live)[0][1]

    live = await served.run("plan", "--delete", "canary/website", "-o", "json")
    offline = await served.run("plan", "--base", with_canary, "--delete", "canary/website", "-o", "json")
    assert requests_of(live) == requests_of(offline)
    assert requests_of(live)[0][2] == ["Canary website"]


async def test_the_warning_of_a_write_has_the_effect_of_its_canary(served: ServedMesh) -> None:
    for obj in (*SERVICES, *SLICES):
        await served.store.create(obj)
    (created,) = await warnings_after_write(served.live_state, ReviewedWrite(None, CANARY, dry_run=True))
    assert created.startswith("effect on requests and access: Service default/website:8080: all requests: 90% of them")
    stored = await served.store.create(CANARY)
    await follow(served, stored)
    await snapshot_of(served)
    (changed,) = await warnings_after_write(
        served.live_state, ReviewedWrite(stored, {**stored, "spec": OTHER["spec"]}, dry_run=True)
    )
    assert "50% of them from default/v1:8080 to default/v2:8080" in changed
    (deleted,) = await warnings_after_write(served.live_state, ReviewedWrite(stored, None, dry_run=True))
    assert "to default/website:8080" in deleted
