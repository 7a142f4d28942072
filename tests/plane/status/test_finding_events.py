"""Events about findings, which headgate writes at once or delays while pods start."""

import pytest
from tests.make.objects import Object, pod, service, split

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.errors import StoreError
from headgate.kinds import GATEWAY, SPLIT
from headgate.objects.events import EventRecorder
from headgate.plane.status.finding_events import ADDRESS_S, MAX_START_S, SOON_S, FindingEvents
from headgate.resources.meta import Key
from headgate.standalone.store.memory import MemoryStore

ABOUT = Key(SPLIT, "TrafficSplit", "default", "website")
EMPTY = Finding(about=ABOUT, reason=Reason.NO_READY_ENDPOINTS, field="spec.backends[1].service", message="no endpoint")


class Setting:
    """FindingEvents over a store, with a clock that tests set. With `is_current` the newest objects cause each finding."""

    def __init__(self) -> None:
        self.time = 0.0
        self.is_current = True
        self.store = MemoryStore()
        events = EventRecorder(self.store, "headgate")
        self.finding_events = FindingEvents(self.store, events, lambda _: self.is_current, clock=lambda: self.time)

    async def delayed(self, *backends: str) -> bool:
        return EMPTY in await self.finding_events.delayed(ABOUT, written_split(*backends), [EMPTY])

    async def events(self) -> list[tuple[str, str]]:
        return [(item["type"], item["reason"]) for item in (await self.store.list("", "Event")).items]


def written_split(*backends: str) -> Object:
    return split("website", dict.fromkeys(backends, 1), metadata={"uid": "1", "generation": 1})


@pytest.fixture
async def setting() -> Setting:
    found = Setting()
    spec = {"selector": {"app": "v2"}, "ports": [{"port": 80}]}
    metadata = {"name": "v2", "namespace": "default"}
    await found.store.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    return found


async def test_an_event_about_a_service_is_delayed_while_its_pods_start(setting: Setting) -> None:
    await setting.store.create(pod("v2", labels={"app": "v2"}, status={"phase": "Pending"}))
    for setting.time in (0, SOON_S + 1, MAX_START_S - 1):
        assert await setting.delayed("v1", "v2")
    setting.time = MAX_START_S + 1
    assert not await setting.delayed("v1", "v2")


async def test_an_event_about_a_service_without_pods_is_delayed_until_a_deployment_could_create_pods(
    setting: Setting,
) -> None:
    assert await setting.delayed("v1", "v2")
    setting.time = SOON_S + 1
    assert not await setting.delayed("v1", "v2")


async def test_an_event_is_delayed_while_the_endpoint_of_a_ready_pod_is_not_observed(setting: Setting) -> None:
    """A busy control plane compiles and observes it seconds later."""
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    website = pod("v2", labels={"app": "v2"}, status={"phase": "Running", "conditions": [ready]})
    await setting.store.create(website)
    await setting.store.update(website, subresource="status")
    setting.is_current = False
    for setting.time in (0, SOON_S + 1, MAX_START_S - 1):
        assert await setting.delayed("v1", "v2")
    setting.is_current = True
    assert not await setting.delayed("v1", "v2")


async def test_an_event_waits_while_the_api_refuses_to_list_pods(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused question must not end the update of the status, which is not about pods."""

    async def refuse(*_question: object) -> None:
        raise StoreError("pods is forbidden")

    monkeypatch.setattr(setting.store, "list", refuse)
    for setting.time in (0, SOON_S + 1, MAX_START_S - 1):
        assert await setting.delayed("v1", "v2")
    setting.time = MAX_START_S + 1
    assert not await setting.delayed("v1", "v2")


async def test_an_event_about_a_missing_service_is_not_delayed(setting: Setting) -> None:
    assert not await setting.delayed("v1", "missing")


async def test_a_finding_about_a_backend_that_an_edit_removed_is_not_delayed(setting: Setting) -> None:
    assert not await setting.delayed("v1")


async def test_a_new_gateway_causes_no_event_before_it_should_have_an_address(setting: Setting) -> None:
    about = Key(GATEWAY, "Gateway", "default", "edge")
    gateway = {"kind": "Gateway", "metadata": {"name": "edge", "namespace": "default"}, "spec": {}}
    missing = Finding(about, Reason.ADDRESS_NOT_ASSIGNED, "status.addresses", "no address yet")
    for setting.time in (0, ADDRESS_S - 1):
        assert await setting.finding_events.delayed(about, gateway, [missing]) == {missing}
    setting.time = ADDRESS_S + 1
    assert not await setting.finding_events.delayed(about, gateway, [missing])


async def test_a_finding_and_its_recovery_each_cause_one_event(setting: Setting) -> None:
    for findings in ([EMPTY], [EMPTY], []):
        await setting.finding_events.announce(ABOUT, written_split("v1", "v2"), findings, fresh=True)
    assert await setting.events() == [("Warning", "NoReadyEndpoints"), ("Normal", "NoReadyEndpointsResolved")]


async def test_a_finding_about_an_object_that_is_still_missing_ends_without_an_event(setting: Setting) -> None:
    missing = Finding(
        ABOUT, Reason.BACKEND_NOT_FOUND, "spec.backends[0].service", "m", (Key("", "Service", "default", "gone"),)
    )
    for findings in ([missing], []):
        await setting.finding_events.announce(ABOUT, written_split("gone"), findings, fresh=True)
    assert await setting.events() == [("Warning", "BackendNotFound")]
    await setting.store.create(service("gone", 80))
    for findings in ([missing], []):
        await setting.finding_events.announce(ABOUT, written_split("gone"), findings, fresh=True)
    assert ("Normal", "BackendNotFoundResolved") in await setting.events()


async def test_the_event_about_an_ignored_annotation_names_it(setting: Setting) -> None:
    field = "metadata.annotations.headgate.dev/gateway"
    ignored = Finding(ABOUT, Reason.FIELD_IGNORED, field, "must be envoy or nginx, not 'envoi'")
    await setting.finding_events.announce(ABOUT, written_split(), [ignored], fresh=True)
    (event,) = (await setting.store.list("", "Event")).items
    assert event["message"] == f"{field}: must be envoy or nginx, not 'envoi'"


async def test_events_of_an_earlier_headgate_are_not_repeated(setting: Setting) -> None:
    await setting.finding_events.announce(ABOUT, written_split("v1", "v2"), [EMPTY], fresh=False)
    assert await setting.events() == []
