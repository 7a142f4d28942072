"""The resource `trafficseries` of the inspect API over HTTP (R83 to R96): points, backends, weights and errors."""

from typing import Any

import pytest
from tests.api.inspect.inspect_fakes import FakeMesh
from tests.api.metrics.metrics_world import GATEWAY, SHOP, WEB1, WEB2, flow, requests, stored
from tests.embedded_api import TOKEN, AsgiClient
from tests.history.objects import contents
from tests.make.objects import split

from headgate.history.revisions import Log, RecordedChange, RecordedRevision, with_controllers
from headgate.latest import Latest
from headgate.plane.traffic_series import SeriesQuery, SeriesReader
from headgate.resources.meta import Key, timestamp
from headgate.resources.pod_owners import Ref
from headgate.resources.registry import TRAFFIC_SPLIT
from headgate.settings import DEFAULTS
from headgate.standalone.apiserver.app import ComputedGroups, create_app
from headgate.standalone.store.memory import MemoryStore
from headgate.telemetry.counters.blocks import UNCOUNTED
from headgate.telemetry.counters.counts import CONNECTIONS, DENIED_REQUESTS, UNREACHED, Counts, class_index
from headgate.telemetry.counters.flows import NO_PEER, Flow
from headgate.telemetry.windows import Windows

START = 1_800_000_000.0  # 2027-01-15T08:00:00Z
SERIES = "/apis/inspect.headgate.dev/v1beta1/namespaces/default/trafficseries"
V1, V2, COPIES = (
    flow(SHOP, WEB1, backend="default/web-v1"),
    flow(SHOP, WEB2, backend="default/web-v2"),
    flow(SHOP, WEB2, backend="default/web-v2", copy=True),
)


class Mesh(FakeMesh):
    """A mesh whose counts and clock the test sets, with a history in which a split of the Service `web` changed twice."""

    def __init__(self, objects: MemoryStore) -> None:
        super().__init__()
        self.objects = objects
        self.now = START
        self.windows = Windows(clock=lambda: self.now, wall=lambda: self.now)
        key = TRAFFIC_SPLIT.key("default", "canary")

        def revision(number: int, seconds: float, weight: int | None) -> RecordedRevision:
            changed = split("web", {"web-v1": 100 - (weight or 0), "web-v2": weight or 0}, name="canary")
            change = RecordedChange(key=key, content=contents(changed)[key] if weight else None)
            return RecordedRevision(number=number, time=timestamp(START + seconds), reason="Written", changes=(change,))

        other = split("shop", {"web-v1": 1}, name="other")
        log = Log(0, contents(other), (revision(1, -60, 10), revision(2, 15, 50), revision(3, 90, None)))
        self.history = Latest[Log | None](log)
        self.series = SeriesReader(self.windows, objects, self.history, DEFAULTS)

    def count(self, seconds: float, counted: dict[Flow, Counts]) -> None:
        self.now = START + seconds
        for key, counts in counted.items():
            self.windows.add(key, counts)


@pytest.fixture
async def mesh() -> Mesh:
    return Mesh(await stored())


@pytest.fixture
def client(mesh: Mesh) -> AsgiClient:
    app = create_app(mesh.objects, token=TOKEN, computed=ComputedGroups(inspector=mesh))
    return AsgiClient(app, mesh.objects)


async def get(client: AsgiClient, name: str) -> Any:
    answer = await client.call("GET", f"{SERIES}/{name}")
    return answer.body["status"] if answer.code == 200 else (answer.code, answer.body["message"])


async def test_points_have_the_exact_requests_of_an_object_and_of_each_backend(client: AsgiClient, mesh: Mesh) -> None:
    mesh.count(1, {V1: requests(9, 1), V2: requests(1, ms=250), flow(GATEWAY, WEB1): requests(3)})
    mesh.count(11, {V2: requests(4), COPIES: requests(0, 2)})
    mesh.count(20, {})
    series = await get(client, "service.web?start=2027-01-15T08:00:00Z&end=2027-01-15T08:00:20Z")
    first, second = series["points"]
    assert (first["startTime"], first["endTime"]) == ("2027-01-15T08:00:01.000Z", "2027-01-15T08:00:10.000Z")
    assert (first["requests"], first["failures"], second["requests"], second["failures"]) == (14, 1, 4, 0)
    assert first["responses"] == [
        {"responseClass": "2xx", "count": 13, "failure": False},
        {"responseClass": "5xx", "count": 1, "failure": True},
    ]
    assert 10_000 <= first["p50Microseconds"] <= 11_000
    assert 240_000 <= first["p99Microseconds"] <= 260_000
    assert (second["copies"], second["failedCopies"]) == (2, 2)
    by_backend = {
        backend["service"]: [point["requests"] for point in backend["points"]] for backend in series["backends"]
    }
    assert by_backend == {"default/web": [3, 0], "default/web-v1": [10, 0], "default/web-v2": [1, 4]}
    (both,) = (await get(client, "service.web?start=2027-01-15T08:00:00Z&end=2027-01-15T08:01:00Z&step=1m"))["points"]
    assert (both["requests"], both["startTime"], both["endTime"]) == (18, first["startTime"], second["endTime"])
    deployment = await get(client, "deployment.web?start=2027-01-15T08:00:00Z&end=2027-01-15T08:00:20Z")
    assert ([point["requests"] for point in deployment["points"]], deployment["backends"]) == ([14, 4], [])


async def test_points_have_denied_requests_client_errors_and_connections_apart(client: AsgiClient, mesh: Mesh) -> None:
    statuses = {class_index(404): 2, DENIED_REQUESTS: 3, CONNECTIONS: 5, class_index(200, "14"): 1, class_index(0): 1}
    mesh.count(
        1,
        {
            V1: Counts.of(statuses),
            Flow(source=SHOP, destination=NO_PEER, service="default/web"): Counts.of({UNREACHED: 4}),
        },
    )
    mesh.count(10, {})
    (point,) = (await get(client, "service.web?start=2027-01-15T08:00:00Z&end=2027-01-15T08:00:10Z"))["points"]
    assert {name: value for name, value in point.items() if value and isinstance(value, int)} == {
        "requests": 7,
        "failures": 2,
        "denied": 3,
        "clientErrors": 2,
        "connections": 5,
        "failedConnections": 4,
    }
    assert point["p50Microseconds"] is None
    assert [(response["responseClass"], response["failure"]) for response in point["responses"]] == [
        ("4xx", False),
        ("denied", False),
        ("grpc-14", True),
        ("none", True),
    ]


async def test_a_time_without_counts_has_no_point_and_one_without_requests_has_zeros(
    client: AsgiClient, mesh: Mesh
) -> None:
    mesh.count(0, {V1: requests(1)})
    mesh.count(10, {})
    mesh.count(600, {})
    mesh.windows.stored.advance(START + 600)
    mesh.count(610, {})
    series = await get(client, "service.web?start=2027-01-15T08:00:00Z&end=2027-01-15T08:10:10Z")
    assert [(point["startTime"][14:19], point["requests"]) for point in series["points"]] == [
        ("00:00", 1),
        ("10:00", 0),
    ]
    assert series["messages"] == [f"{UNCOUNTED}: 590"]


async def test_equal_queries_share_an_answer_until_the_next_window_ends(client: AsgiClient, mesh: Mesh) -> None:
    query = SeriesQuery(Ref("Service", "default", "web"), START, START + 60, 10)
    mesh.count(1, {V1: requests(1)})
    mesh.count(12, {V1: requests(1)})
    first = await mesh.series.read(query)
    mesh.count(19, {V1: requests(1)})
    assert await mesh.series.read(query) is first
    mesh.now = START + 20
    assert [point.requests for point in (await mesh.series.read(query)).status.points] == [1, 2]
    await mesh.objects.delete(TRAFFIC_SPLIT.key("default", "canary"))
    await mesh.objects.delete(Key("", "Service", "default", "web"))
    assert (await get(client, "service.web"))[0] == 404


async def test_weights_are_those_at_the_start_and_each_change_until_the_end(client: AsgiClient, mesh: Mesh) -> None:
    mesh.count(0, {V1: requests(1)})
    mesh.count(60, {})
    for end, expected in (
        ("08:00:10", [("07:59:00", 1, [90, 10])]),
        ("08:01:00", [("07:59:00", 1, [90, 10]), ("08:00:15", 2, [50, 50])]),
        ("08:02:00", [("07:59:00", 1, [90, 10]), ("08:00:15", 2, [50, 50]), ("08:01:30", 3, [])]),
    ):
        series = await get(client, f"service.web?start=2027-01-15T08:00:00Z&end=2027-01-15T{end}Z")
        changes = [
            (change["recordTime"][11:19], change["revision"], [backend["weight"] for backend in change["backends"]])
            for change in series["weights"]
        ]
        assert changes == expected
    assert series["weights"][0]["backends"][1] == {"service": "default/web-v2", "weight": 10}
    assert (await get(client, "service.web-v1?start=2027-01-15T08:00:00Z&end=2027-01-15T08:02:00Z"))["weights"] == []


async def test_each_step_of_a_combined_revision_has_its_own_time(client: AsgiClient, mesh: Mesh) -> None:
    """The steps of a Canary are one revision; a plot of its weights needs the time of each."""
    mesh.count(0, {V1: requests(1)})
    mesh.count(60, {})
    key = TRAFFIC_SPLIT.key("default", "canary")
    revision = RecordedRevision(number=1, time=timestamp(START - 60), reason="ControllerWrote")
    for seconds, weight in ((-60, 10), (15, 25), (45, 50)):
        changed = contents(split("web", {"web-v1": 100 - weight, "web-v2": weight}, name="canary"))[key]
        change = RecordedChange(key=key, content=changed, time=timestamp(START + seconds))
        revision = with_controllers(revision, [change], timestamp(START + seconds))
    mesh.history.set(Log(0, {}, (revision,)))
    series = await get(client, "service.web?start=2027-01-15T08:00:00Z&end=2027-01-15T08:01:00Z")
    weights = [(change["recordTime"][11:19], change["backends"][1]["weight"]) for change in series["weights"]]
    assert weights == [("07:59:00", 10), ("08:00:15", 25), ("08:00:45", 50)]


async def test_a_series_can_start_with_the_epoch(client: AsgiClient, mesh: Mesh) -> None:
    mesh.count(0, {V1: requests(1)})
    mesh.count(3600, {})
    series = await get(client, "service.web?start=1970-01-01T00:00:00Z")
    assert [(point["startTime"], point["requests"]) for point in series["points"]] == [("2027-01-15T08:00:00.000Z", 1)]


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("service.web", 404, "no window is stored yet"),
        ("service.missing", 404, "Service default/missing not found"),
        ("web", 404, "a series has a name like service.website"),
        ("gateway.web", 404, "a series has a name like service.website"),
        ("service.web?step=5s", 400, "must be a multiple of 10s"),
        ("service.web?step=soon", 400, "step: Invalid value: 'soon' is not a duration"),
        ("service.web?end=soon", 400, "end: Invalid value"),
        ("service.web?start=0001-01-01T00:00:00%2B01:00", 400, "start: Invalid value"),
        ("service.web?end=9999-12-31T23:59:59-01:00", 400, "end: Invalid value"),
        ("service.web?end=1970-01-01T00:00:00Z&start=1970-01-01T00:01:00Z", 400, "must be before the end"),
        ("service.web?start=2027-01-15T09:00:00Z&end=2027-01-15T08:00:00Z", 400, "must be before the end"),
    ],
)
async def test_a_wrong_query_is_an_error(client: AsgiClient, name: str, code: int, message: str) -> None:
    answer = await get(client, name)
    assert (answer[0], message in answer[1]) == (code, True)


async def test_a_server_without_proxies_has_no_series() -> None:
    mesh = FakeMesh()
    store = await stored()
    client = AsgiClient(create_app(store, token=TOKEN, computed=ComputedGroups(inspector=mesh)), store)
    assert (await get(client, "service.web"))[0] == 501
