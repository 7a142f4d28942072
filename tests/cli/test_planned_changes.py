"""What `headgate plan` says before a change, live and offline, is what `headgate history` says after it: for all kinds."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
import yaml
from tests.authority import WEB, Authority
from tests.cli.living_mesh import LivingMesh, living
from tests.cli.planned_changes import MESH, PlannedChange, changes, read, shop, target
from tests.make import objects
from tests.wire import DEADLINE_S

from headgate.api.certificate import CertificateFiles
from headgate.history.records import is_recorded
from headgate.latest import until
from headgate.merge.server_side_apply import LAST_APPLIED
from headgate.plan.lines import counted, lines, summary
from headgate.plan.plan import Differences
from headgate.plan.world import Origin
from headgate.plane.write_warnings import ReviewedWrite, warnings_after_write
from headgate.resources.audit_mode import MODE
from headgate.resources.core.pod_metadata import INJECT
from headgate.resources.meta import Key, Object
from headgate.resources.registry import KINDS, find_written
from headgate.settings import Settings

NAMES = tuple(changes((("", ""), ("", ""))))


@pytest.fixture
async def mesh(tmp_path: Path, certificate: CertificateFiles) -> AsyncIterator[LivingMesh]:
    async with living(tmp_path / ".headgate", certificate, Settings()) as running:
        yield running


@pytest.fixture(scope="module")
def change_of() -> Mapping[str, PlannedChange]:
    issued = [Authority().issue(WEB, "shop.example") for _ in range(2)]
    first, second = ((item.chain, item.key.reveal()) for item in issued)
    return changes((first, second))


def test_each_registered_kind_has_a_change() -> None:
    assert {f"{kind.hub} {kind.kind}" for kind in KINDS} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
async def test_a_plan_says_what_the_history_says_later(
    mesh: LivingMesh, tmp_path: Path, change_of: Mapping[str, PlannedChange], name: str
) -> None:
    change = change_of[name]
    key = key_of_written(change.new)
    for obj in change.base:
        await mesh.put(obj)
    await mesh.settled()
    stable = [obj for obj in change.base if key_of_written(obj) != key]
    versions: list[Object | None] = [next((obj for obj in change.base if key_of_written(obj) == key), None)]
    versions += [change.new, change.changed, None]
    for before, after, has_effect in zip(versions, versions[1:], change.effects, strict=False):
        live, offline = await plans(mesh, tmp_path, [*stable, *([before] if before else [])], key, after)
        planned = sorted(lines(live))
        assert named_by_workload(planned) == named_by_workload(sorted(lines(offline)))
        assert named_by_workload(departed(live)) == named_by_workload(departed(offline))
        assert bool(planned) == has_effect
        assert all((cause.file, cause.line > 0) == ("change.yaml", True) for cause in causes(live)) or not after
        if before and after and is_recorded(key):
            effect = await effect_of_write(mesh, key, after)
            said, is_cut = effect.split(" ... (headgate plan")[0], " ... (headgate plan" in effect
            whole = planned[0] if len(planned) == 1 else f"{counted(live)}; first" if planned else ""
            assert whole.startswith(said) if is_cut else effect == whole
        compiled, objects, number = mesh.compiled, mesh.objects, mesh.log.last
        await (mesh.put(after) if after else mesh.store.delete(key))
        await mesh.settled()
        if change.on_new_pods:
            await mesh.replace_pods()
            await mesh.settled()
        assert sorted(summary(compiled, mesh.compiled, (objects, mesh.objects))) == planned
        if is_recorded(key) and not change.on_new_pods:
            await recorded(mesh, number, planned)


async def test_a_namespace_that_opts_out_is_planned_live_as_offline(mesh: LivingMesh, tmp_path: Path) -> None:
    """Its pods lose their sidecars when they are created again: no requests change before, and no history says so."""
    base = [*shop(), *MESH]
    for obj in base:
        await mesh.put(obj)
    await mesh.settled()
    key, opted_out = key_of_written(base[0]), {**base[0], "metadata": {"name": "shop", "labels": {INJECT: "false"}}}
    opted_in = {**base[0], "metadata": {"name": "shop", "labels": {INJECT: "true"}}}
    for before, after in ((base[0], opted_out), (opted_out, opted_in)):
        live, offline = await plans(mesh, tmp_path, [before, *base[1:]], key, after)
        assert named_by_workload(departed(live)) == named_by_workload(departed(offline))
        assert bool(live.departures) == (after is opted_out)
        assert not [*lines(live), *lines(offline)]
        ended = await mesh.run("plan", "-f", "change.yaml")
        (pod,) = [name for name in mesh.objects.pods if name.startswith("shop/")]
        assert f"pod {pod} gets its change only when created again" in ended.err
        await mesh.put(after)
        await mesh.replace_pods()
        await mesh.settled()


async def test_a_plan_keeps_the_audit_mode_that_an_apply_keeps(mesh: LivingMesh, tmp_path: Path) -> None:
    """kubectl keeps annotations that another client wrote, so a manifest without the annotation does not end audit mode."""
    rule = target("client", rule=objects.http_rule("read"))
    metadata = {**rule["metadata"], "annotations": {}}
    applied = {LAST_APPLIED: json.dumps({**rule, "metadata": metadata}), MODE: "audit"}
    for obj in (*MESH, read("/"), {**rule, "metadata": {**metadata, "annotations": applied}}):
        await mesh.put(obj)
    await mesh.settled()
    (tmp_path / "rule.yaml").write_text(yaml.safe_dump(rule))
    ended = await mesh.run("plan", "-f", "rule.yaml")
    assert (ended.code, ended.out) == (0, "")
    assert "TrafficTarget default/client stays in audit mode" in ended.err
    assert f"kubectl annotate traffictarget client -n default {MODE}-" in ended.err
    enforced = {**rule, "metadata": {**metadata, "annotations": {MODE: "enforce"}}}
    (tmp_path / "rule.yaml").write_text(yaml.safe_dump(enforced))
    ended = await mesh.run("plan", "-f", "rule.yaml")
    assert (ended.code, "Access lost" in ended.out) == (1, True), ended
    assert "stays in audit mode" not in ended.err


async def test_a_plan_drops_an_annotation_that_server_side_apply_wrote(mesh: LivingMesh, tmp_path: Path) -> None:
    """Server-side apply removes what its manager wrote, and the manifest omits."""
    rule = target("client", rule=objects.http_rule("read"))
    fields: Object = {"f:metadata": {"f:annotations": {f"f:{MODE}": {}}}}
    owner = {"manager": "kubectl", "operation": "Apply", "apiVersion": rule["apiVersion"], "fieldsV1": fields}
    managed = {"managedFields": [{**owner, "fieldsType": "FieldsV1"}], "annotations": {MODE: "audit"}}
    for obj in (*MESH, read("/"), {**rule, "metadata": {**rule["metadata"], **managed}}):
        await mesh.put(obj)
    await mesh.settled()
    (tmp_path / "rule.yaml").write_text(yaml.safe_dump(rule))
    ended = await mesh.run("plan", "-f", "rule.yaml")
    assert (ended.code, "Access lost" in ended.out) == (1, True), ended


async def plans(
    mesh: LivingMesh, directory: Path, base: Sequence[Object], key: Key, after: Object | None
) -> tuple[Differences, Differences]:
    """Return the plans of a change, of the running mesh and of files."""
    (directory / "base.yaml").write_text(yaml.safe_dump_all(base, sort_keys=False))
    (directory / "change.yaml").write_text(yaml.safe_dump(after, sort_keys=False) if after else "")
    namespace = ("-n", key.namespace) if key.namespace else ()
    change = (
        ("-f", "change.yaml")
        if after
        else ("--delete", f"{key.kind.lower()}.{key.group}/{key.name}".replace("./", "/"), *namespace)
    )
    found = []
    for options in ((), ("--base", "base.yaml")):
        ended = await mesh.run("plan", *options, *change, "-o", "json")
        if ended.code == 2:
            assert "change no requests by themselves" in ended.err
            found.append(Differences())
            continue
        assert ended.code in (0, 1), ended
        assert ended.out, ended
        found.append(msgspec.convert(json.loads(ended.out)["status"]["differences"], Differences))
    return found[0], found[1]


async def effect_of_write(mesh: LivingMesh, key: Key, after: Object) -> str:
    """Return what the warning about a dry run of an update says: the effect, or the numbers of several."""
    stored = await mesh.store.get(key)
    written = {**stored, **after, "metadata": {**stored["metadata"], **after["metadata"]}}
    warnings = await warnings_after_write(mesh.live_state, ReviewedWrite(stored, written, dry_run=True))
    effect = next((text for text in warnings if text.startswith("effect on requests and access")), "")
    shown = effect.partition(": ")[2]
    return shown.partition(":")[0] if "; first: " in shown else shown


def departed(plan: Differences) -> Sequence[str]:
    return [item.message for item in plan.departures]


def causes(plan: Differences) -> Iterator[Origin]:
    for item in (*plan.unreachable, *plan.lost, *plan.gained, *plan.requests, *plan.tls, *plan.gateways):
        yield from item.causes


def named_by_workload(texts: Sequence[str]) -> Sequence[str]:
    """Return texts in which a Deployment or ReplicaSet stands for its pod, as in a plan of files."""
    return [re.sub(r"(pod [^ ]+?)(-[a-z0-9]{10})?-[a-z0-9]{5}(?=[ :,])", r"\1", text) for text in texts]


async def recorded(mesh: LivingMesh, number: int, expected: Sequence[str]) -> None:
    """Wait until the revisions since a number have the expected lines, each once."""

    def effects() -> list[str]:
        return sorted(line for item in mesh.log.revisions if item.number > number for line in item.effect)

    try:
        async with asyncio.timeout(DEADLINE_S):
            await until(lambda: effects() == expected, mesh.live_state.history)
    except TimeoutError:
        assert effects() == expected


def key_of_written(obj: Object) -> Key:
    """Return the key of an object that a user wrote."""
    kind = find_written(obj["apiVersion"], obj["kind"])
    assert kind
    return kind.key(obj["metadata"].get("namespace", "default"), obj["metadata"]["name"])
