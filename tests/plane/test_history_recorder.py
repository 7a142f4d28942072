"""The recorder of revisions: what it records, and what a restart continues with."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import plane
from tests.decoding import admit
from tests.history.objects import website_split
from tests.make.objects import canary, endpoint_slice, manifest, port, service, split

from headgate.errors import HeadgateError, NotFound, Unavailable
from headgate.history import segments
from headgate.history.revisions import Log, RecordedRevision
from headgate.latest import Latest, until
from headgate.manifests.apply import apply
from headgate.manifests.files import read
from headgate.objects.events import EventRecorder
from headgate.objects.lifecycle import now
from headgate.objects.ports import Ports
from headgate.plane import history
from headgate.plane.history import RevisionQuery
from headgate.plane.history_recorder import HistoryRecorder
from headgate.plane.live_state import LiveState
from headgate.resources.meta import Object, controller_reference
from headgate.resources.registry import CANARY, SERVICE, TRAFFIC_SPLIT
from headgate.resources.request_spec import RequestSpec
from headgate.resources.revisions import ChangeOwner
from headgate.standalone.store.memory import MemoryStore

KEY = TRAFFIC_SPLIT.key("default", "website")
REQUEST = RequestSpec(url="http://website:8080/")


class Storage:
    """A state storage in memory. It fails while `fails` is set."""

    interval_s = 0.0

    def __init__(self) -> None:
        self.states: dict[str, bytes] = {}
        self.fails = False
        self.saves: Latest[int] = Latest(0)

    async def load(self, name: str) -> bytes | None:
        return self.states.get(name)

    async def save(self, name: str, state: bytes) -> None:
        if self.fails:
            raise Unavailable("the disk is full")
        self.states[name] = state
        self.saves.set(self.saves.get() + 1)


class HeldStorage(Storage):
    """A state storage that sets `is_loading`, and then loads nothing until `may_load` is set."""

    def __init__(self, states: dict[str, bytes]) -> None:
        super().__init__()
        self.states = states
        self.is_loading, self.may_load = asyncio.Event(), asyncio.Event()

    async def load(self, name: str) -> bytes | None:
        self.is_loading.set()
        await self.may_load.wait()
        return await super().load(name)


class Mesh:
    """A mesh with a recorder, and the store that both use."""

    def __init__(self, store: MemoryStore, storage: Storage | None, *, active: bool) -> None:
        self.store = store
        self.live_state = LiveState(store, *plane(store))
        self.active = Latest(active)
        self.recorder = HistoryRecorder(
            Ports(store, EventRecorder(store, "test"), self.active, storage), self.live_state
        )

    @property
    def log(self) -> Log:
        return self.live_state.history.get() or Log()

    async def write(self, *objects: Any) -> None:
        """Create or replace objects, and wait until the revision with the last one exists."""
        for obj in objects:
            await self.put(obj)
        await self.recorded()

    async def put(self, obj: Any) -> Object:
        try:
            return await self.store.update({**obj, "metadata": {**obj["metadata"], "resourceVersion": None}})
        except NotFound:
            return await self.store.create(obj)

    async def recorded(self) -> Sequence[RecordedRevision]:
        """Wait until the objects at the last revision are those of the store; return the revisions."""

        async def current() -> bool:
            await self.live_state.feed.wait_until_current()
            return self.is_current

        async with asyncio.timeout(60):
            await current()
            await until(lambda: self.is_current, self.live_state.history)
        return self.log.revisions

    @property
    def is_current(self) -> bool:
        records = self.live_state.feed.records
        return bool(self.log.revisions) and self.log.at(self.log.last) == {
            key: record.content for key, record in records.items()
        }


@contextlib.asynccontextmanager
async def running(store: MemoryStore, storage: Storage | None, *, active: bool = True) -> AsyncIterator[Mesh]:
    mesh = Mesh(store, storage, active=active)
    parts = (mesh.live_state.feed, mesh.live_state.loop, mesh.recorder)
    tasks = [asyncio.create_task(part.run()) for part in parts]
    try:
        if active:
            await mesh.recorded()
        yield mesh
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(error, asyncio.CancelledError) for error in ended), ended


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(admit=admit)


@pytest.fixture
def storage() -> Storage:
    return Storage()


async def fill(store: MemoryStore) -> None:
    for name in ("website", "website-v1", "website-v2"):
        await store.create(service(name))
    await store.create(website_split())


def written(log: Log) -> list[tuple[str, list[str]]]:
    """Return the reason and the changed objects of each revision."""
    return [(item.reason, [change.key.name for change in item.changes]) for item in log.revisions]


async def test_a_change_becomes_a_revision_with_its_writer_and_effect(store: MemoryStore) -> None:
    await fill(store)
    async with running(store, None) as mesh:
        await mesh.write(website_split(weight=50, by="kubectl-edit", time=now()))
        first, second = mesh.log.revisions
        assert (first.number, first.reason, second.number, second.reason) == (1, "RecordingStarted", 2, "Written")
        (change,) = second.changes
        assert (change.key, change.by) == (KEY, "kubectl-edit")
        answer = history.revision(mesh.live_state, 2, "")
        assert [(item.path, item.before, item.after) for item in answer.changes[0].fields] == [
            ("spec.backends[website-v1].weight", 90, 50),
            ("spec.backends[website-v2].weight", 10, 50),
        ]


async def test_the_effect_is_in_the_words_of_a_plan(store: MemoryStore) -> None:
    await fill(store)
    async with running(store, None) as mesh:
        await mesh.store.delete(KEY)
        await mesh.recorded()
        assert mesh.log.revisions[-1].changes[0].content is None
        assert any("website" in line for line in mesh.log.revisions[-1].effect)


async def test_what_controllers_do_later_belongs_to_the_effect_of_a_write(store: MemoryStore) -> None:
    """The endpoints of a Service come after it, and no revision has them."""
    async with running(store, None) as mesh:
        await mesh.write(service("late", port(8080, "main")))
        effect = "Service default/late:8080: all requests: new Service; all of them to "
        assert mesh.log.revisions[-1].effect == (f"{effect}503 (default/late:8080: NoReadyEndpoints)",)
        await store.create(endpoint_slice("late", ["127.9.9.9"], {"main": 8080}))
        await until(lambda: mesh.log.revisions[-1].effect == (f"{effect}default/late:8080",), mesh.live_state.history)
        assert len(mesh.log.revisions) == 2


async def test_an_effect_of_another_object_is_not_that_of_the_last_write(store: MemoryStore) -> None:
    await store.create(service("other", port(8080, "main")))
    async with running(store, None) as mesh:
        await mesh.write(service("late", port(8080, "main")))
        known = mesh.log.revisions[-1].effect
        await store.create(endpoint_slice("other", ["127.9.9.8"], {"main": 8080}))
        await mesh.live_state.wait_compiled()
        await mesh.write(service("third", port(8080, "main")))
        assert mesh.log.revisions[-2].effect == known
        assert not any("other" in line for item in mesh.log.revisions for line in item.effect)


async def test_a_change_from_a_file_has_its_file_and_line(store: MemoryStore, tmp_path: Path) -> None:
    """Also that of a controller, because of an object from a file."""
    file = tmp_path / "mesh.yaml"
    file.write_text(f"# shop\n{manifest(*(service(name) for name in ('website', 'v1')), canary('website', {'v1': 1}))}")
    async with running(store, None) as mesh:
        await apply(store, read([file]))
        stored = await store.get(CANARY.key("default", "website"))
        await store.create(split("website", {"v1": 1}, metadata={"ownerReferences": [controller_reference(stored)]}))
        await mesh.recorded()
        await mesh.write(service("v1", 9090))
        answers = history.revisions(mesh.live_state, RevisionQuery()).items
        causes = {(item.object.kind, item.owner, item.file, item.line) for answer in answers for item in answer.changes}
        assert causes == {
            ("Service", None, str(file), 2),
            ("Service", None, str(file), 4),
            ("Service", None, "", 0),
            ("Canary", None, str(file), 6),
            ("TrafficSplit", ChangeOwner(kind="Canary", name="website"), str(file), 6),
        }


async def test_an_effect_is_listed_once_if_a_controller_writes_at_the_same_time(store: MemoryStore) -> None:
    await fill(store)
    async with running(store, None) as mesh:
        owners = [controller_reference(await store.get(SERVICE.key("default", "website-v1")))]
        owned = website_split("owned", 100, by="headgate-rollout", time=now(), ownerReferences=owners)
        await store.create(service("other"))  # both changes are in one batch of the feed
        await store.create(owned)
        await mesh.recorded()
        by_clients, by_controllers = mesh.log.revisions[1:]
        assert (by_clients.reason, by_controllers.reason) == ("Written", "ControllerWrote")
        assert any("default/other" in line for line in by_clients.effect)
        assert not by_controllers.effect


async def test_a_status_makes_no_revision(store: MemoryStore) -> None:
    await fill(store)
    async with running(store, None) as mesh:
        await store.update({**await store.get(KEY), "status": {"observedGeneration": 1}}, subresource="status")
        await mesh.write(service("other"))
        assert written(mesh.log)[1:] == [("Written", ["other"])]


async def test_the_steps_of_a_rollout_share_a_revision_until_a_user_writes(store: MemoryStore) -> None:
    await fill(store)
    async with running(store, None) as mesh:
        owner = await store.get(SERVICE.key("default", "website-v1"))
        owners = [controller_reference(owner)]
        times = [f"2026-01-31T12:00:{second}Z" for second in (10, 20, 30)]
        for weight, time in zip((100, 90, 50), times, strict=True):
            await mesh.write(website_split("owned", weight, by="headgate-rollout", time=time, ownerReferences=owners))
        await mesh.write(website_split(weight=1))
        await mesh.write(website_split("owned", 0, by="headgate-rollout", time=now(), ownerReferences=owners))
        reasons = [reason for reason, _ in written(mesh.log)]
        assert reasons == ["RecordingStarted", "ControllerWrote", "Written", "ControllerWrote"]
        (change,) = history.revision(mesh.live_state, 2, "default").changes
        assert (change.action, change.writes, change.first_write_time) == ("Created", 3, times[0])
        assert [step.write_time for step in change.steps] == times
        weights = [field for step in change.steps[1:] for field in step.fields if "website-v1" in field.path]
        assert [(field.before, field.after) for field in weights] == [(100, 90), (90, 50)]


async def test_a_restart_continues_the_history(store: MemoryStore, storage: Storage) -> None:
    await fill(store)
    async with running(store, storage) as mesh:
        await mesh.write(website_split(weight=50))
        before = mesh.log
    async with running(store, storage) as mesh:
        assert mesh.log == before
        await mesh.write(website_split(weight=40))
        assert [item.number for item in mesh.log.revisions] == [1, 2, 3]


async def test_changes_while_nothing_recorded_become_a_revision(store: MemoryStore, storage: Storage) -> None:
    await fill(store)
    async with running(store, storage):
        pass
    await store.update(
        {**website_split(weight=50, by="helm", time=now()), "metadata": {**website_split(by="helm")["metadata"]}}
    )
    await store.delete(SERVICE.key("default", "website-v2"))
    async with running(store, storage) as mesh:
        assert written(mesh.log)[1:] == [("NotRecorded", ["website-v2", "website"])]
        assert mesh.log.revisions[-1].changes[1].by == "helm"
        assert mesh.log.revisions[-1].effect, "the world before is compiled again"


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_change_while_the_history_is_loaded_is_recorded_with_its_writer(
    store: MemoryStore, storage: Storage, *, is_first: bool
) -> None:
    await fill(store)
    if not is_first:
        async with running(store, storage):
            pass
    held = HeldStorage(storage.states)
    async with running(store, held, active=False) as mesh:
        mesh.active.set(value=True)
        await held.is_loading.wait()
        await mesh.put(website_split(weight=50, by="helm", time=now()))
        await mesh.live_state.feed.wait_until_current()
        held.may_load.set()
        await mesh.recorded()
        assert written(mesh.log) == [("RecordingStarted", []), ("Written", ["website"])]
        assert mesh.log.revisions[-1].changes[0].by == "helm"


async def test_a_standby_records_from_the_moment_when_it_becomes_active(store: MemoryStore, storage: Storage) -> None:
    await fill(store)
    async with running(store, storage, active=False) as standby:
        async with running(store, storage) as active:
            await active.write(website_split(weight=50))
            with pytest.raises(HeadgateError, match="not loaded"):
                history.revisions(standby.live_state, RevisionQuery())
        standby.active.set(value=True)
        await until(lambda: bool(standby.log.revisions), standby.live_state.history)
        assert [item.reason for item in standby.log.revisions] == ["RecordingStarted", "Written"]


async def test_a_failed_save_is_repeated(
    store: MemoryStore, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(store)
    async with running(store, storage) as mesh:
        await until(lambda: bool(storage.states), storage.saves)
        storage.fails = True
        await mesh.write(website_split(weight=50))
        while not caplog.records:
            await asyncio.sleep(0)
        storage.fails = False
        saves = storage.saves.get()
        await until(lambda: storage.saves.get() > saves, storage.saves)
    assert len(caplog.records) == 1
    async with running(store, storage) as mesh:
        assert mesh.log.last == 2


async def test_a_damaged_history_begins_again(
    store: MemoryStore, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(store, storage) as mesh:
        await mesh.write(service("one"))
    storage.states["history-0"] = b"damaged"
    async with running(store, storage) as mesh:
        assert written(mesh.log) == [("RecordingStarted", [])]
        await mesh.write(service("two"))
    assert "begins again" in caplog.text
    async with running(store, storage) as mesh:
        assert written(mesh.log) == [("RecordingStarted", []), ("Written", ["two"])]


async def test_the_log_in_memory_has_the_limits_of_the_storage(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 300)
    monkeypatch.setattr(segments, "TOTAL_BYTES", 900)
    async with running(store, None) as mesh:
        for weight in range(40):
            await mesh.write(service(f"service-{weight}"))
        await until(lambda: mesh.log.base_number > 0, mesh.live_state.history)
        with pytest.raises(NotFound, match="the history has revisions"):
            history.revision(mesh.live_state, 1, "")
        assert await mesh.recorded()


async def test_a_request_is_explained_with_the_objects_of_a_revision(store: MemoryStore) -> None:
    await fill(store)
    async with running(store, None) as mesh:
        await mesh.write(website_split(weight=50))
        await store.delete(KEY)
        await mesh.recorded()
        routes = [(await history.explain_at(mesh.live_state, REQUEST, number)).route for number in (1, 2, 3)]
        assert [route.words if route else "" for route in routes] == [
            "TrafficSplit default/website",
            "TrafficSplit default/website",
            "the Service itself (no route)",
        ]
        with pytest.raises(NotFound, match="revision 9 not found; the history has revisions 1 to 3"):
            await history.explain_at(mesh.live_state, REQUEST, 9)


async def test_lists_and_restorations_are_of_a_namespace(store: MemoryStore) -> None:
    shop = service("web", namespace="shop")
    await store.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    async with running(store, None) as mesh:
        await mesh.write(shop)
        await mesh.write(service("web"))
        lists = [
            history.revisions(mesh.live_state, query).items
            for query in (
                RevisionQuery(),
                RevisionQuery("shop"),
                RevisionQuery("default", "", "Service", "web"),
                RevisionQuery(newest=1),
            )
        ]
        assert [[item.revision for item in items] for items in lists] == [[1, 2, 3], [1, 2], [3], [3]]
        assert history.revisions(mesh.live_state, RevisionQuery(newest=1)).older == 2
        steps = [history.restoration(mesh.live_state, 1, namespace).steps for namespace in ("", "shop")]
        assert [[(step.verb, step.object.namespace) for step in found] for found in steps] == [
            [("delete", "default"), ("delete", "shop")],
            [("delete", "shop")],
        ]
        with pytest.raises(NotFound, match="changed no object in namespace shop"):
            history.revision(mesh.live_state, 3, "shop")
