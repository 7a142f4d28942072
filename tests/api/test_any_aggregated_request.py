"""Any request that the API server forwards gets an answer that blames the client or none: no 5xx, no traceback in the log."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.api.aggregation import CONFIG, AggregationClient, FakeReviewer
from tests.api.metrics.metrics_world import FLOWS, FakeSource, stored
from tests.api.running_plane import RunningPlane
from tests.history.objects import TIME
from tests.make.hostile import HUGE, broken, encoded, logged_errors, values
from tests.make.objects import deployment, meshed_pod, split, traffic_target

from headgate.admission.injection import InjectionDecision, PodNamespace, decide
from headgate.api.aggregated_server import create_aggregated_app
from headgate.api.computed_groups import Handlers
from headgate.api.delegated_auth import DelegatedAuthorizer
from headgate.api.inspect.handlers import InspectApi
from headgate.api.inspect.registry import RESOURCES as INSPECT_RESOURCES
from headgate.api.metrics import custom
from headgate.api.metrics.groups import METRICS_GROUPS
from headgate.api.metrics.handlers import MetricsApi
from headgate.history.revisions import Log, RecordedRevision
from headgate.latest import Latest
from headgate.plane.inspector import Inspector, TrafficAnswers
from headgate.plane.mesh_state import HostState
from headgate.plane.traffic_graphs import TrafficGraphs
from headgate.plane.traffic_series import SeriesReader
from headgate.resources import inspect
from headgate.resources.meta import Object
from headgate.telemetry.windows import Windows

NAMES = ("default", "web", "shop-5d-b2b2b", "canary", "gateway", "mesh", "1", "*", "é", "..", HUGE)
METHODS = ("GET", "GET", "GET", "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD")
RESOURCES = {
    **{group: tuple(served.kinds) for group, served in METRICS_GROUPS.items()},
    custom.CUSTOM_METRICS: tuple(custom.RESOURCES),
    (inspect.GROUP, inspect.VERSION): tuple(INSPECT_RESOURCES),
}
SUBRESOURCES = ("", "", "edges", "config", "sidecar", "restoration", "metrics", "tap", "tapvalues", *custom.METRICS)
QUERIES: dict[str, tuple[str, ...]] = {
    "t": ("1s", "0s", "1h", "999999999h", "-1s", ".", "1e9s"),
    "by": ("namespace", "kind", "x"),
    "uncertainty": ("true", "0"),
    "watch": ("true", "x"),
    "labelSelector": ("app=web", "app in (web,)", "!app", "app>5", f"app>{HUGE}", f"app<-{HUGE}", "app in ((", "=", ","),
    "metricLabelSelector": ("backend=web-v1", "backend in (a, b)", f"backend>{HUGE}", "(", "!"),
    "fieldSelector": ("metadata.name=web", "metadata.name!=web", "x=y", "=", "\\", "metadata.name=a\\"),
    "includeObject": ("Object", "Metadata", "None", "x"),
    "type": ("clusters", "x"),
    "content": ("true",),
    "newest": ("1", "0", "٣", HUGE, "x"),
    "group": ("split.smi-spec.io", "x"),
    "kind": ("TrafficSplit", "x"),
    "name": ("web", "x"),
    "limit": ("1", "0", "1001", "٣", HUGE, "x"),
}  # fmt: skip
URLS = (
    "http://web:80/",
    "http://[::1",
    "http://web:99999/",
    f"http://web:{HUGE}/",
    "//",
    "ftp://web",
    "http://\x00/a?b#c",
)
HEADERS = (("a", "b"), ("", ""), ("\x00", "\x00"), ("host", "x:y:z"), ("content-length", "-1"))
ACCEPTS = (
    "application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;as=Table;v=x;g=y",
    "*/*;q=x",
    ";;=",
    "",
)
WORLD: tuple[Object, ...] = (
    meshed_pod("web", "10.1.0.1", namespace="default"),
    deployment("other", namespace="default"),
    split("web", {"web-v1": 1}, name="other", namespace="default"),
    traffic_target("web", "web", ["web"], namespace="default"),
)


class Call(NamedTuple):
    """One request of a user."""

    method: str
    url: str
    body: bytes
    accept: str


class Host:
    """A host without processes."""

    def processes(self) -> dict[str, Any]:
        return {}

    async def state(self) -> HostState:
        return HostState()

    async def pods(self, _namespace: str) -> Sequence[Object]:
        return ()

    async def probe_events(self) -> Sequence[Object]:
        return ()

    def decide(self, pod: Object, around: PodNamespace) -> InjectionDecision:
        return decide(pod, "labelled", around)


@st.composite
def paths(draw: st.DrawFn) -> str:
    """Draw the path of something served, or of nothing."""
    group, version = draw(st.sampled_from(tuple(RESOURCES)))
    name = st.sampled_from(NAMES)
    within = f"/namespaces/{draw(name)}" if draw(st.booleans()) else ""
    parts = [draw(st.sampled_from((*RESOURCES[group, version], "x")))]
    if draw(st.integers(0, 2)):
        parts += [draw(name), *filter(None, [draw(st.sampled_from(SUBRESOURCES))])]
    path = f"/apis/{group}/{version}{within}/{'/'.join(parts)}"
    return draw(
        st.sampled_from(
            (path,) * 9 + (f"/apis/{group}/{version}", f"/apis/{group}", "/apis", "/openapi/v2", f"{path}//")
        )
    )


def plans() -> st.SearchStrategy[Any]:
    """Return a strategy for the bodies of plans."""
    objects = st.lists(st.one_of(st.sampled_from(WORLD), st.sampled_from(WORLD).flatmap(broken), values), max_size=3)
    keys = st.lists(
        st.one_of(st.just({"group": "", "kind": "Pod", "namespace": "default", "name": "web"}), values), max_size=1
    )
    check = {"caller": "default/web", "callee": "default/web"}
    spec = {"objects": objects, "deleted": keys, "noNewAccess": st.booleans()}
    return asked(st.fixed_dictionaries({}, optional=spec | {"never": st.one_of(st.just(check), values)}))


def explanations() -> st.SearchStrategy[Any]:
    """Return a strategy for the bodies of explanations."""
    names = st.sampled_from((*NAMES, "\x00", ""))
    headers = st.sampled_from(HEADERS).map(lambda header: dict(zip(("name", "value"), header, strict=True)))
    spec = {
        "method": st.sampled_from(("GET", "get", "\x00", "")),
        "headers": st.lists(headers, max_size=2),
        "caller": st.fixed_dictionaries({"kind": st.sampled_from(("Pod", "Deployment", "x")), "name": names}),
        "gateway": names,
        "revision": st.sampled_from((0, 1, -1, 2**70)),
    }
    return asked(st.fixed_dictionaries({"url": st.sampled_from(URLS)}, optional=spec))


def asked(specs: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for objects with a spec, and for any other value."""
    objects = specs.map(lambda spec: {"spec": spec})
    return st.one_of(objects, objects.flatmap(broken), values)


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """Draw a request."""
    question = draw(st.sampled_from((None, None, None, None, "plans", "namespaces/default/explanations")))
    path = f"/apis/{inspect.API_VERSION}/{question}" if question else draw(paths())
    names = draw(st.lists(st.sampled_from(tuple(QUERIES)), max_size=3, unique=True))
    query = "&".join(f"{name}={quote(draw(st.sampled_from(QUERIES[name])))}" for name in names)
    bodies = plans() if question == "plans" else explanations()
    body = encoded(draw(bodies), with_numbers=draw(st.booleans())) if question else b""
    method = "POST" if question and draw(st.integers(0, 9)) else draw(st.sampled_from(METHODS))
    return Call(method, f"{path}?{query}", body, draw(st.sampled_from(ACCEPTS)))


@pytest.fixture(scope="module")
def client(runner: asyncio.Runner) -> Iterator[AggregationClient]:
    """A client of both APIs about a small mesh, whose control plane runs."""
    client, plane = runner.run(started())
    yield client
    plane.stop()


async def started() -> tuple[AggregationClient, RunningPlane]:
    """Start the control plane; return a client, and the control plane."""
    store = await stored()
    for obj in WORLD:
        await store.create(obj)
    plane = RunningPlane(store)
    await plane.live_state.wait_compiled()
    plane.live_state.history.set(Log(0, {}, (RecordedRevision(number=1, time=TIME, reason="RecordingStarted"),)))
    closing = asyncio.Event()
    closing.set()  # streams end at once
    live_state = plane.live_state
    traffic = TrafficAnswers(
        TrafficGraphs(live_state, store, FakeSource(FLOWS), Latest({})),
        SeriesReader(Windows(), store, live_state.history, live_state.loop.settings),
    )
    app = create_aggregated_app(
        Handlers(
            MetricsApi(store, FakeSource(FLOWS)),
            InspectApi(Inspector(plane.live_state, Host(), traffic=traffic), closing, lambda: ()),
        ),
        Latest(CONFIG),
        DelegatedAuthorizer(FakeReviewer()),
    )
    return AggregationClient(app, store), plane


async def answers(client: AggregationClient, drawn: list[Call]) -> list[tuple[int, Call]]:
    """Return the codes of the answers, one after another."""
    return [
        ((await client.call(call.method, call.url, call.body, accept=call.accept, x_remote_user="jane")).code, call)
        for call in drawn
    ]


@settings(max_examples=300)
@given(st.lists(calls(), min_size=1, max_size=4))
def test_no_request_makes_the_aggregated_apis_fail(
    runner: asyncio.Runner, client: AggregationClient, drawn: list[Call]
) -> None:
    with logged_errors() as errors:
        failed = [(code, call) for code, call in runner.run(answers(client, drawn)) if code >= 500]
    assert failed == []
    assert errors == []
