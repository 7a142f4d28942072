"""Events about findings: which are written, and which wait for pods that are starting."""

from typing import Any

import pytest

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.kinds import SPLIT
from headgate.objects.events import EventRecorder
from headgate.plane.status.finding_events import LONGEST_START_S, SOON_S, FindingEvents
from headgate.resources.meta import Key
from headgate.standalone.store.memory import MemoryStore

ABOUT = Key(SPLIT, "TrafficSplit", "default", "website")
EMPTY = Finding(about=ABOUT, reason=Reason.NO_READY_ENDPOINTS, field="spec.backends[1].service", message="no endpoint")


class Setting:
    """FindingEvents over a store, at a time that a test sets."""

    def __init__(self) -> None:
        self.time = 0.0
        self.store = MemoryStore()
        self.announcements = FindingEvents(self.store, EventRecorder(self.store, "headgate"), clock=lambda: self.time)

    async def held(self, *backends: str) -> bool:
        return EMPTY in await self.announcements.held(ABOUT, split(*backends), [EMPTY])

    async def events(self) -> list[tuple[str, str]]:
        return [(item["type"], item["reason"]) for item in (await self.store.list("", "Event")).items]


def split(*backends: str, generation: int = 1) -> dict[str, Any]:
    return {
        "apiVersion": "split.smi-spec.io/v1alpha4",
        "kind": "TrafficSplit",
        "metadata": {"name": "website", "namespace": "default", "uid": "1", "generation": generation},
        "spec": {"service": "website", "backends": [{"service": name} for name in backends]},
    }


def pod(**status: Any) -> dict[str, Any]:
    metadata = {"name": "v2", "namespace": "default", "labels": {"app": "v2"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}, "status": status}


@pytest.fixture
async def setting() -> Setting:
    found = Setting()
    spec = {"selector": {"app": "v2"}, "ports": [{"port": 80}]}
    metadata = {"name": "v2", "namespace": "default"}
    await found.store.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    return found


async def test_a_service_whose_pods_are_starting_is_not_warned_about(setting: Setting) -> None:
    await setting.store.create(pod(phase="Pending"))
    for setting.time in (0, SOON_S + 1, LONGEST_START_S - 1):
        assert await setting.held("v1", "v2")
    setting.time = LONGEST_START_S + 1
    assert not await setting.held("v1", "v2")


async def test_a_service_without_pods_is_warned_about_once_a_deployment_had_time(setting: Setting) -> None:
    assert await setting.held("v1", "v2")
    setting.time = SOON_S + 1
    assert not await setting.held("v1", "v2")


async def test_a_service_that_selects_no_pods_is_warned_about_at_once(setting: Setting) -> None:
    assert not await setting.held("v1", "missing")


async def test_a_backend_that_an_edit_has_removed_meanwhile_is_not_looked_up(setting: Setting) -> None:
    assert not await setting.held("v1")


async def test_a_finding_is_an_event_and_its_end_another(setting: Setting) -> None:
    for findings in ([EMPTY], [EMPTY], []):
        await setting.announcements.announce(ABOUT, split("v1", "v2"), findings, fresh=True)
    assert await setting.events() == [("Warning", "NoReadyEndpoints"), ("Normal", "NoReadyEndpointsResolved")]


async def test_what_an_earlier_headgate_has_said_is_not_repeated(setting: Setting) -> None:
    await setting.announcements.announce(ABOUT, split("v1", "v2"), [EMPTY], fresh=False)
    assert await setting.events() == []
