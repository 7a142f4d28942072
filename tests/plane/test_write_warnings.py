"""Warnings about a write: findings about the object, and what the write does to requests and access."""

import asyncio
import threading
from collections.abc import Sequence

import pytest
import yaml
from tests.make.objects import authorization_policy, manifest, service, split
from tests.plan.manifests import SERVICES, compiled, group, path_rule, split_of, target, website_route, workload
from tests.plane.live_states import live_state_of

from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot
from headgate.plane.live_state import LiveState
from headgate.plane.write_warnings import warnings_before_write

DEADLINE_S = 60
V1, V2 = "default/v1:8080", "default/v2:8080"


@pytest.fixture
def live_state() -> LiveState:
    """The live state of a control plane with an empty store."""
    return live_state_of(Snapshot())


async def test_warnings_before_a_write_come_from_the_snapshot_and_change_nothing(live_state: LiveState) -> None:
    """R22: a webhook warns about an object that the store does not have yet."""
    before = live_state.loop.compiled.get()
    shares = split("missing", {"one": 1}, name="canary")
    warnings = await warnings_before_write(live_state, None, shares, dry_run=False)
    assert any("Service default/missing not found" in text for text in warnings), warnings
    event = {**shares, "apiVersion": "v1", "kind": "Event"}
    assert not await warnings_before_write(live_state, None, event, dry_run=False)
    assert live_state.loop.compiled.get() is before


async def test_a_new_gateway_causes_no_warning_about_its_address(live_state: LiveState) -> None:
    """It gets the address after the write. Warnings about its listeners stay."""
    listeners = [{"name": "http", "port": 8080, "protocol": "HTTP"}, {"name": "ftp", "port": 8021, "protocol": "FTP"}]
    gateway = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"gatewayClassName": "headgate", "listeners": listeners},
    }
    (warning,) = await warnings_before_write(live_state, None, gateway, dry_run=False)
    assert warning.startswith("spec.listeners[1].protocol: headgate does not support the protocol of listener ftp")


async def test_warnings_are_computed_one_after_another(live_state: LiveState, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many threads would delay the renewal of the Lease."""
    begun: list[Snapshot] = []
    first_may_end, compiled_by = threading.Event(), live_state.loop.compile_each

    def waiting(*snapshots: Snapshot) -> Sequence[Compiled]:
        begun.append(snapshots[-1])
        assert first_may_end.wait(DEADLINE_S)
        return compiled_by(*snapshots)

    monkeypatch.setattr(live_state.loop, "compile_each", waiting)
    shares = split("missing", {"one": 1}, name="canary")
    asked = [asyncio.ensure_future(warnings_before_write(live_state, None, shares, dry_run=False)) for _ in range(3)]
    while not begun:
        await asyncio.sleep(0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(begun) == 1
    first_may_end.set()
    await asyncio.gather(*asked)
    assert len(begun) == 3


EFFECT = "effect on requests and access: "


def object_of(text):
    """Return the object of a manifest, as it is stored."""
    found = yaml.safe_load(text)
    return {**found, "metadata": {"namespace": "default", **found["metadata"]}}


def live_state_with(directory, *texts, **settings):
    """Return the live state of a control plane whose store has the objects of manifests."""
    return live_state_of(compiled(directory, *texts, **settings).snapshot)


async def effects(live_state, old, new, *, dry_run=False):
    """Return the warnings of a write about its effect."""
    written = (object_of(text) if text else None for text in (old, new))
    warnings = await warnings_before_write(live_state, *written, dry_run=dry_run)
    return [text.removeprefix(EFFECT) for text in warnings if text.startswith(EFFECT)]


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """Let each write wait for its findings and effect, also on a busy machine."""
    for limit in ("PREVIEW_S", "DELETION_S", "EFFECT_S"):
        monkeypatch.setattr(f"headgate.plane.write_warnings.{limit}", DEADLINE_S)


async def test_an_update_is_answered_with_what_it_does_to_requests(tmp_path):
    live_state = live_state_with(tmp_path, SERVICES, workload("web", app="website", version="v1"), split_of(90, 10))
    moves = f"Service default/website:8080: all requests: 30% of them from {V1} to {V2}"
    assert await effects(live_state, split_of(90, 10), split_of(60, 40)) == [moves]
    assert await effects(live_state, split_of(90, 10), split_of(60, 40), dry_run=True) == [moves]
    assert await effects(live_state, split_of(90, 10), split_of(45, 5)) == []
    assert await effects(live_state, split_of(90, 10), split_of(90, 10)) == []


async def test_a_rule_of_a_policy_that_allows_all_callers_is_answered_with_a_warning(tmp_path):
    """An API server removes `sources:` without a value, so a rule that should name callers allows all."""
    policy = object_of(manifest(authorization_policy("p", {"app": "shop"}, {})))
    warnings = await warnings_before_write(live_state_with(tmp_path, workload("shop")), None, policy, dry_run=False)
    assert any("it allows all callers, also those without a sidecar" in text for text in warnings)


async def test_the_first_rule_of_a_workload_is_answered_with_who_loses_and_who_does_not(tmp_path):
    shop, web, rules = workload("shop"), workload("web"), group("g", pathRegex="/items")
    text, further = await effects(live_state_with(tmp_path, shop, web, rules), None, target("buyers", "web"))
    lost = "every ServiceAccount except default/web, and callers without a sidecar, may no longer send all requests to"
    assert text.startswith(f"2 losses of access; first: {lost} ServiceAccount default/shop, port 8080")
    assert further.startswith(
        "second: ServiceAccount default/web may no longer send requests other than path begins with /items"
    )


async def test_several_effects_are_counted_and_the_first_is_named(tmp_path):
    """Access that callers lose comes first. The command after it shows all effects."""
    shop, rules = workload("shop"), group("g", pathRegex="/items")
    live_state = live_state_with(tmp_path, shop, rules, target("buyers", "web", "app"))
    change = target("buyers", "web", "app"), target("buyers", "other")
    text, further = await effects(live_state, *change)
    assert further.startswith("second: ServiceAccount default/other may send path begins with /items")
    assert text.startswith("1 loss of access, 1 gain of access; first: ServiceAccount default/app and ")
    assert "may no longer send path begins with /items to ServiceAccount default/shop, port 8080" in text
    assert text.endswith(" (headgate history shows all)")
    text, _ = await effects(live_state, *change, dry_run=True)
    assert text.endswith(" (headgate plan -f FILE shows all)")
    assert len(EFFECT + text) <= 256


async def test_a_new_object_is_answered_only_if_it_changes_requests_that_pods_serve(tmp_path):
    """The objects of an example arrive one by one, before its pods are ready, so their effects are not yet important."""
    snapshot = compiled(tmp_path / "1", SERVICES).snapshot
    idle = live_state_of(
        Snapshot(1, {key: item for key, item in snapshot.objects.items() if key.kind == "Service"}, {})
    )
    assert await effects(idle, None, split_of(90, 10)) == []
    assert await effects(idle, None, website_route(path_rule("/", v1=1))) == []
    assert await effects(idle, split_of(90, 10), None) == []
    assert await effects(idle, None, next(iter(SERVICES.split("---")))) == []
    pods = workload("web", app="website", version="v1"), workload("web2", app="website", version="v2")
    serving = live_state_with(tmp_path / "2", SERVICES, *pods)
    (created,) = await effects(serving, None, split_of(90, 10))
    assert f"from default/website:8080 to {V1}" in created


async def test_a_deletion_is_answered_with_what_it_does(tmp_path):
    pods = workload("web", app="website", version="v1"), workload("web2", app="website", version="v2")
    live_state = live_state_with(tmp_path / "1", SERVICES, *pods, split_of(0, 1))
    (text,) = await effects(live_state, split_of(0, 1), None)
    assert f"all of them from {V2} to default/website:8080" in text
    closed = live_state_with(tmp_path / "2", workload("shop"), group("g", pathRegex="/items"), target("buyers", "web"))
    text, *_ = await effects(closed, target("buyers", "web"), None)
    assert "may send all requests to ServiceAccount default/shop, port 8080" in text


async def test_the_search_for_the_effect_of_a_large_change_ends_early(tmp_path, monkeypatch):
    """It counts its steps, so a write is not delayed. The warning says that there are more differences."""
    before, after = (
        website_route(*(path_rule(f"/{number}", v1=number + v2, v2=99) for number in range(16))) for v2 in (1, 2)
    )
    live_state = live_state_with(tmp_path, SERVICES, before)
    monkeypatch.setattr("headgate.plan.quote.STEPS", 350)
    text, *further = await effects(live_state, before, after)
    assert [other.partition(":")[0] for other in further] == ["second", "third"]
    assert text.startswith("at least 9 changes to requests; first: Service default/website:8080: path prefix /")
    monkeypatch.setattr("headgate.plan.quote.STEPS", 100)
    assert await effects(live_state, before, after) == []


async def test_a_service_is_answered_with_its_mistakes_and_its_fields_without_effect(live_state: LiveState) -> None:
    written = service("web", 80, annotations={"headgate.dev/retry": "often"}, sessionAffinity="ClientIP")
    retry, affinity = await warnings_before_write(live_state, None, written, dry_run=False)
    assert retry.startswith(
        "metadata.annotations.headgate.dev/retry: 'often' must be NAME=VALUE with one of retries, on,"
    )
    assert affinity.startswith("spec.sessionAffinity: ClientIP has no effect")
