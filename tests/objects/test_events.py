import asyncio

import pytest
from tests.make.objects import service

from headgate.objects.events import TTL_SECONDS, EventRecorder, EventsV1
from headgate.resources.kind_set import KindSet
from headgate.resources.meta import Key, Object
from headgate.resources.registry import EVENT
from headgate.standalone.store.memory import MemoryStore


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def recorder(store: MemoryStore, clock: Clock) -> EventRecorder:
    return EventRecorder(store, "headgate-test", clock=clock)


async def created(store: MemoryStore, name: str = "birds") -> Object:
    return await store.create(service(name))


async def events(store: MemoryStore) -> list[Object]:
    return list((await store.list("", "Event")).items)


async def test_an_event_names_its_object_so_that_kubectl_describe_finds_it(store, recorder):
    birds = await created(store)
    await recorder.record(birds, type="Warning", reason="PortMismatch", message="traffic will not be split")
    (event,) = await events(store)
    assert event["involvedObject"]["uid"] == birds["metadata"]["uid"]
    assert event["involvedObject"]["name"] == "birds"
    assert event["involvedObject"]["apiVersion"] == "v1"
    assert event["metadata"]["name"].startswith("birds.")
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "PortMismatch", 1)
    assert event["source"] == {"component": "headgate-test"}


async def test_a_repetition_increases_the_count_of_an_event_and_another_message_makes_a_new_event(
    store, recorder, clock
):
    birds = await created(store)
    await recorder.record(birds, type="Warning", reason="A", message="one")
    clock.now += 5
    await recorder.record(birds, type="Warning", reason="A", message="one")
    await recorder.record(birds, type="Warning", reason="A", message="two")
    counts = {event["message"]: event["count"] for event in await events(store)}
    assert counts == {"one": 2, "two": 1}
    one = next(event for event in await events(store) if event["message"] == "one")
    assert one["firstTimestamp"] < one["lastTimestamp"]


async def test_repetitions_at_the_same_moment_are_all_counted(
    store: MemoryStore, recorder: EventRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by two tasks of a pod, or by two replicas of the control plane. A conflict ended the task that had lost."""
    birds, read = await created(store), MemoryStore.get

    async def read_slowly(store: MemoryStore, key: Key) -> Object:
        obj = await read(store, key)
        await asyncio.sleep(0)
        return obj

    monkeypatch.setattr(MemoryStore, "get", read_slowly)
    repeated = [recorder.record(birds, type="Warning", reason="A", message="one") for _ in range(3)]
    await asyncio.gather(*repeated)
    (event,) = await events(store)
    assert event["count"] == 3


async def test_a_new_event_is_written_without_a_read_before(
    store: MemoryStore, recorder: EventRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most Events are new. On a cluster, the read would be a request to the API server."""
    birds = await created(store)
    monkeypatch.delattr(MemoryStore, "get")
    await recorder.record(birds, type="Warning", reason="A", message="one")
    assert len(await events(store)) == 1


async def test_an_event_can_be_recorded_about_the_key_of_an_object(store, recorder):
    birds = await created(store)
    await recorder.record(Key("", "Service", "default", "birds"), type="Normal", reason="A", message="one")
    (event,) = await events(store)
    assert event["involvedObject"]["uid"] == birds["metadata"]["uid"]


async def test_a_recreated_object_has_its_own_events(store, recorder):
    await recorder.record(await created(store), type="Normal", reason="A", message="one")
    await store.delete(Key("", "Service", "default", "birds"))
    await recorder.record(await created(store), type="Normal", reason="A", message="one")
    assert [event["count"] for event in await events(store)] == [1, 1]


async def test_no_event_is_written_to_a_deleted_namespace(store, recorder):
    await recorder.record(Key("", "Service", "nowhere", "birds"), type="Normal", reason="A", message="one")
    assert await events(store) == []


async def test_expired_events_are_deleted(store, recorder, clock):
    birds = await created(store)
    await recorder.record(birds, type="Normal", reason="A", message="old")
    clock.now += TTL_SECONDS + 1
    await recorder.record(birds, type="Normal", reason="A", message="new")
    assert [event["message"] for event in await events(store)] == ["new"]


async def test_a_clusters_api_server_deletes_expired_events_itself(store, clock):
    recorder = EventRecorder(store, "headgate-test", deletes_expired=False, clock=clock)
    birds = await created(store)
    await recorder.record(birds, type="Normal", reason="A", message="old")
    clock.now += TTL_SECONDS + 1
    await recorder.record(birds, type="Normal", reason="A", message="new")
    assert sorted(event["message"] for event in await events(store)) == ["new", "old"]


async def test_a_message_has_at_most_1024_bytes_and_no_broken_character(store, recorder):
    await recorder.record(await created(store), type="Normal", reason="A", message="a" + "ü" * 1024)
    (event,) = await events(store)
    assert event["message"] == "a" + "ü" * 511


async def test_a_long_name_of_an_object_does_not_make_the_name_of_the_event_invalid(store, recorder):
    name = "a" * 229 + ".b"
    await recorder.record(Key("", "Service", "default", name), type="Normal", reason="A", message="one")
    (event,) = await events(store)
    assert event["metadata"]["name"].startswith("a" * 229 + ".")
    assert ".." not in event["metadata"]["name"]


async def test_events_k8s_io_has_a_series_for_repetitions(store, clock):
    store.kinds = KindSet((*store.kinds.kinds, EVENT))  # as the API server of a cluster has both versions
    recorder = EventRecorder(store, "headgate-test", version=EventsV1("pod-1"), clock=clock)
    birds = await created(store)
    await recorder.record(birds, type="Warning", reason="A", message="one")
    (first,) = (await store.list("events.k8s.io", "Event")).items
    assert "series" not in first
    for _ in range(2):
        clock.now += 5
        await recorder.record(birds, type="Warning", reason="A", message="one")
    (event,) = (await store.list("events.k8s.io", "Event")).items
    assert event["series"] == {"count": 3, "lastObservedTime": "2023-11-14T22:13:30.000000Z"}
    assert event["eventTime"] == first["eventTime"] == "2023-11-14T22:13:20.000000Z"
    assert event["regarding"]["uid"] == birds["metadata"]["uid"]
    assert (event["reportingController"], event["reportingInstance"]) == ("headgate-test", "pod-1")
    assert (event["type"], event["reason"], event["note"]) == ("Warning", "A", "one")
