"""Watches of the inspect API over HTTP: first the objects, then only changes, from one computation for all clients (R110)."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from typing import Any

import pytest
from tests.api.inspect.inspect_fakes import FakeMesh, proxy
from tests.embedded_api import TOKEN, AsgiClient

from headgate.api.inspect import watches
from headgate.api.inspect.traffic_graphs import TRAFFIC_GRAPHS
from headgate.api.status import ApiError
from headgate.errors import HeadgateError
from headgate.standalone.apiserver.app import ComputedGroups, create_app
from headgate.standalone.store.memory import MemoryStore

GROUP = "/apis/inspect.headgate.dev/v1beta1"
PROXIES = f"{GROUP}/proxies?watch=true"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


class WatchedMesh:
    """An embedded API whose fake mesh a test changes. Watched paths are computed every millisecond."""

    def __init__(self) -> None:
        self.mesh = FakeMesh()
        self.store = MemoryStore()
        self.app = create_app(self.store, token=TOKEN, computed=ComputedGroups(inspector=self.mesh))
        self.client = AsgiClient(self.app, self.store)

    async def computed(self) -> None:
        """Wait until a computation that begins from now on has ended."""
        before = self.mesh.reads
        async with asyncio.timeout(60):
            while self.mesh.reads < before + 2:
                await asyncio.sleep(0)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> WatchedMesh:
    monkeypatch.setattr(watches, "PERIOD_S", 0.001)
    return WatchedMesh()


def shown(event: Any) -> tuple[str, str, str]:
    metadata = event["object"]["metadata"]
    return event["type"], f"{metadata['namespace']}/{metadata['name']}", event["object"]["status"]["state"]


@contextlib.asynccontextmanager
async def lines(client: AsgiClient, path: str, **headers: str) -> AsyncIterator[AsyncGenerator[Any]]:
    """Watch a path; the generator yields the events one by one, also those that come together."""

    async def each() -> AsyncGenerator[Any]:
        async with contextlib.aclosing(client.stream("GET", path, **headers)) as parts:
            async for part in parts:
                if isinstance(part, bytes):
                    for line in part.splitlines():
                        yield json.loads(line)

    async with contextlib.aclosing(each()) as events:
        yield events


async def take(events: AsyncGenerator[Any], number: int) -> list[Any]:
    async with asyncio.timeout(60):
        return [await anext(events) for _ in range(number)]


async def test_a_watch_begins_with_the_objects_and_continues_with_what_changed(watched: WatchedMesh) -> None:
    rows = watched.mesh.rows
    async with lines(watched.client, PROXIES) as events:
        first = await take(events, 3)
        assert [shown(event) for event in first] == [
            ("ADDED", "a/one", "InSync"),
            ("ADDED", "b/one", "InSync"),
            ("ADDED", "b/two", "Lagging"),
        ]
        watched.mesh.rows = [rows[0], proxy("b", "two"), proxy("c", "new")]
        assert [shown(event) for event in await take(events, 3)] == [
            ("DELETED", "b/one", "InSync"),
            ("MODIFIED", "b/two", "InSync"),
            ("ADDED", "c/new", "InSync"),
        ]
        await watched.computed()  # without a change
        watched.mesh.rows = [rows[0], proxy("b", "two")]
        assert [shown(event) for event in await take(events, 1)] == [("DELETED", "c/new", "InSync")]


@pytest.mark.parametrize(
    "path",
    [
        f"{GROUP}/namespaces/b/proxies/two?watch=true",
        f"{GROUP}/namespaces/b/proxies?watch=true&fieldSelector=metadata.name%3Dtwo",
        f"{PROXIES}&fieldSelector=metadata.name%3Dtwo,metadata.namespace%3Db",
    ],
)
async def test_one_object_is_watched_by_its_path_and_by_a_field_selector(watched: WatchedMesh, path: str) -> None:
    watched.mesh.rows, before = [proxy("a", "two")], watched.mesh.rows
    async with lines(watched.client, path) as events:
        pending = asyncio.ensure_future(anext(events))  # it does not exist yet
        await asyncio.sleep(0)
        watched.mesh.rows = before
        assert shown(await pending) == ("ADDED", "b/two", "Lagging")
        watched.mesh.rows = [proxy("b", "two"), proxy("b", "three")]
        assert shown(await anext(events)) == ("MODIFIED", "b/two", "InSync")
        watched.mesh.rows = []
        assert shown(await anext(events)) == ("DELETED", "b/two", "InSync")


async def test_a_list_with_a_field_selector_has_the_selected_objects(watched: WatchedMesh) -> None:
    path = f"{GROUP}/namespaces/b/proxies?fieldSelector=metadata.name%3Dtwo"
    listed = (await watched.client.call("GET", path)).body
    assert [item["metadata"]["name"] for item in listed["items"]] == ["two"]


async def test_a_client_that_has_listed_the_objects_gets_only_later_changes(watched: WatchedMesh) -> None:
    listed = (await watched.client.call("GET", f"{GROUP}/proxies")).body
    table = (await watched.client.call("GET", f"{GROUP}/proxies", accept=TABLE)).body
    version = listed["metadata"]["resourceVersion"]
    assert (table["metadata"]["resourceVersion"], bool(version)) == (version, True)
    async with lines(watched.client, f"{PROXIES}&resourceVersion={version}") as events:
        pending = asyncio.ensure_future(anext(events))
        await watched.computed()
        watched.mesh.rows = watched.mesh.rows[:2]
        assert shown(await pending) == ("DELETED", "b/two", "Lagging")
    async with lines(watched.client, f"{PROXIES}&resourceVersion={version}") as events:
        assert [shown(event) for event in await take(events, 1)] == [("DELETED", "b/two", "Lagging")]
    async with lines(watched.client, f"{PROXIES}&resourceVersion=0") as events:
        assert [event["type"] for event in await take(events, 2)] == ["ADDED", "ADDED"]


@pytest.mark.parametrize(("limit", "value"), [("MOST_LISTED", 0), ("LISTED_S", 0.0)])
async def test_a_client_lists_again_if_its_objects_are_not_known_any_more(
    watched: WatchedMesh, monkeypatch: pytest.MonkeyPatch, limit: str, value: float
) -> None:
    """It would not learn which of its objects are gone."""
    monkeypatch.setattr(watches, limit, value)
    version = (await watched.client.call("GET", f"{GROUP}/proxies")).body["metadata"]["resourceVersion"]
    watched.mesh.rows = watched.mesh.rows[:2]
    async with lines(watched.client, f"{PROXIES}&resourceVersion={version}") as events:
        (error,) = [event async for event in events]
    assert (error["type"], error["object"]["code"], error["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_bookmarks_end_the_first_objects_and_come_again(
    watched: WatchedMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "CHECK_S", 0.001)
    path = f"{PROXIES}&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    version = (await watched.client.call("GET", f"{GROUP}/proxies")).body["metadata"]["resourceVersion"]
    async with lines(watched.client, path) as events:
        *_, first, second = await take(events, 5)
    assert first == {
        "type": "BOOKMARK",
        "object": {
            "kind": "Proxy",
            "apiVersion": "inspect.headgate.dev/v1beta1",
            "metadata": {"resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}},
        },
    }
    assert second["object"]["metadata"] == {"resourceVersion": version}


async def test_a_table_has_one_row_in_each_event(watched: WatchedMesh) -> None:
    async with lines(watched.client, PROXIES, accept=TABLE) as events:
        *_, last = await take(events, 3)
    assert (last["object"]["kind"], [row["cells"][:2] for row in last["object"]["rows"]]) == (
        "Table",
        [["two", "Lagging"]],
    )


async def test_watchers_of_a_path_share_its_computations_which_end_with_the_last_watcher(
    watched: WatchedMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "PERIOD_S", 3600.0)
    async with contextlib.AsyncExitStack() as stack:
        for number in range(50):
            path = f"{PROXIES}&timeoutSeconds={100 + number}&fieldSelector=metadata.namespace%3Db"
            events = await stack.enter_async_context(lines(watched.client, path))
            assert len(await take(events, 2)) == 2
        assert watched.mesh.reads == 1
    computing = [task for task in asyncio.all_tasks() if task.get_name() == "a watched path of the inspect API"]
    async with asyncio.timeout(60):
        await asyncio.gather(*computing, return_exceptions=True)


async def test_a_slow_reader_skips_states(watched: WatchedMesh) -> None:
    async def read() -> watches.WatchedObjects:
        return watches.WatchedObjects(watched.mesh.proxies(), lambda row: (row.metadata.namespace, row.metadata.name))

    options = watches.WatchRequest(watches.Form("", lambda obj: obj), {})
    async with contextlib.aclosing(await watches.Watches().watch("proxies", read, options)) as pieces:
        assert (await anext(pieces)).count(b"\n") == 3
        for held in (1, 2, 3):
            watched.mesh.rows = [proxy("b", "two", held=held)]
            await watched.computed()
        events = [json.loads(line) for line in (await anext(pieces)).splitlines()]
    assert [shown(event) for event in events] == [
        ("DELETED", "a/one", "InSync"),
        ("DELETED", "b/one", "InSync"),
        ("MODIFIED", "b/two", "InSync"),
    ]


@pytest.mark.parametrize(
    ("failure", "code"), [(HeadgateError("the objects are not compiled"), 503), (ZeroDivisionError(), 500)]
)
async def test_a_failure_ends_the_watch_and_the_next_one_begins_again(
    watched: WatchedMesh, failure: Exception, code: int
) -> None:
    async with lines(watched.client, PROXIES) as events:
        await take(events, 3)
        watched.mesh.failure = failure
        last = [event async for event in events]
    assert [(event["type"], event["object"]["kind"], event["object"]["code"]) for event in last] == [
        ("ERROR", "Status", code)
    ]
    assert (await watched.client.call("GET", PROXIES)).code == code
    watched.mesh.failure = None
    async with lines(watched.client, PROXIES) as events:
        assert len(await take(events, 3)) == 3


async def test_watches_end_when_the_server_closes(watched: WatchedMesh) -> None:
    async with lines(watched.client, PROXIES) as events:
        await take(events, 3)
        watched.app.state.closing.set()
        assert [event async for event in events] == []


async def test_unknown_parameters_and_other_spellings_of_a_parameter_are_the_same_path(
    watched: WatchedMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "MOST_PATHS", 1)
    async with lines(watched.client, PROXIES) as events, lines(watched.client, f"{PROXIES}&any=1&window=5s") as more:
        assert await take(events, 3) == await take(more, 3)
    assert TRAFFIC_GRAPHS.parameters["window"]("") == TRAFFIC_GRAPHS.parameters["window"]("0.5m")


async def test_watches_that_begin_together_share_the_first_computation_and_the_limit_counts_it(
    watched: WatchedMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "PERIOD_S", 3600.0)
    monkeypatch.setattr(watches, "MOST_PATHS", 2)
    begun, computable = Counter[str](), asyncio.Event()

    async def watch(path: str) -> AsyncGenerator[bytes]:
        async def read() -> watches.WatchedObjects:
            begun[path] += 1
            await computable.wait()
            return watches.WatchedObjects(watched.mesh.proxies(), lambda row: (row.metadata.namespace,))

        return await every.watch(path, read, watches.WatchRequest(watches.Form("", lambda obj: obj), {}))

    every = watches.Watches()
    tasks = [asyncio.create_task(watch(path)) for path in "abc" for _ in range(10)]
    async with asyncio.timeout(60):
        refused = await asyncio.gather(*tasks[20:], return_exceptions=True)
        computable.set()
        streams = await asyncio.gather(*tasks[:20])
    assert {getattr(error, "code", 0) for error in refused} == {429}
    assert begun == {"a": 1, "b": 1}
    for stream in streams:
        await stream.aclose()
    await (await watch("c")).aclose()


async def test_a_user_watches_a_limited_number_of_paths_and_other_users_more(
    watched: WatchedMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "MOST_OF_USER", 1)

    async def read() -> watches.WatchedObjects:
        return watches.WatchedObjects(watched.mesh.proxies(), lambda row: (row.metadata.namespace,))

    def watch(path: str, user: str) -> Awaitable[AsyncGenerator[bytes]]:
        return every.watch(path, read, watches.WatchRequest(watches.Form("", lambda obj: obj), {}, user=user))

    every = watches.Watches()
    first = [
        await watch("a", "jane"),
        await watch("a", "jane"),
        await watch("b", "joe"),
        await watch("c", ""),
        await watch("d", ""),
    ]
    with pytest.raises(ApiError, match="the user jane watches 1 different paths") as error:
        await watch("b", "jane")
    assert error.value.code == 429
    for stream in first:
        await stream.aclose()
    await (await watch("b", "jane")).aclose()


async def test_all_paths_are_computed_one_at_a_time(watched: WatchedMesh) -> None:
    running, most, repeated = Counter[str](), [0], asyncio.Event()

    async def watch(path: str) -> AsyncGenerator[bytes]:
        async def read() -> watches.WatchedObjects:
            running[path] += 1
            if running[path] > 1:  # the first one does not wait
                most.append(most[-1] + 1)
                await asyncio.sleep(0)
                most.append(most[-1] - 1)
            if min(running[each] for each in "abc") > 3:
                repeated.set()
            return watches.WatchedObjects(watched.mesh.proxies(), lambda row: (row.metadata.namespace,))

        return await every.watch(path, read, watches.WatchRequest(watches.Form("", lambda obj: obj), {}))

    every = watches.Watches()
    streams = [await watch(path) for path in "abc"]
    async with asyncio.timeout(60):
        await repeated.wait()
    assert max(most) == 1
    for stream in streams:
        await stream.aclose()


async def test_the_number_of_watched_paths_is_limited(watched: WatchedMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "MOST_PATHS", 1)
    async with lines(watched.client, PROXIES) as events:
        await take(events, 1)
        async with lines(watched.client, PROXIES) as more:
            await take(more, 1)
        answer = await watched.client.call("GET", f"{GROUP}/findings?watch=true")
        assert (answer.code, answer.body["reason"]) == (429, "TooManyRequests")
