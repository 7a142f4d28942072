"""Any review or conversion gets an answer that blames the client or none: no 5xx, and no traceback in the log.

Clients of the webhooks are not authenticated, so their objects are not those that an API server has decoded.
"""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from tests.api.reviews import call, review
from tests.api.running_plane import RunningPlane
from tests.decoding import admit
from tests.make.hostile import DEPTHS, broken, encoded, logged_errors, nested, values
from tests.make.objects import (
    container,
    deployment,
    http_route_group,
    namespace,
    pod,
    service,
    sidecar,
    split,
    tls_config,
    traffic_target,
    with_spec,
)

from headgate.admission.chain import object_check
from headgate.admission.injection import INJECT_LABELED, OF_REVISIONS
from headgate.admission.sidecar_containers import SidecarOptions, transparent_sidecars
from headgate.api.webhooks import Reviews, create_webhooks
from headgate.compiler.snapshot import Snapshot
from headgate.plane.snapshot_view import SnapshotView
from headgate.plane.write_warnings import warnings_before_write
from headgate.resources.meta import Object
from headgate.settings import DEFAULTS
from headgate.standalone.store.memory import MemoryStore

PATHS = ("/inject", f"{INJECT_LABELED}{OF_REVISIONS}", "/validate", "/validate", "/convert")
CHECK = {"httpGet": {"path": "/", "port": 80, "httpHeaders": [{"name": "a", "value": "b"}]}, "periodSeconds": 1}
APP = container(
    "app",
    80,
    image="app",
    livenessProbe=CHECK,
    readinessProbe={"tcpSocket": {"port": "http"}},
    startupProbe={"grpc": {"port": 9}},
    lifecycle={"preStop": {"exec": {"command": ["sleep", "1"]}}},
    env=[{"name": "A", "value": "1"}],
    volumeMounts=[{"name": "data", "mountPath": "/data"}],
    resources={"limits": {"cpu": "1"}},
)
POD = pod(
    "web",
    labels={"app": "web", "headgate.dev/inject": "true"},
    annotations={"headgate.dev/excluded-inbound-ports": "9", "headgate.dev/proxy-cpu": "100m"},
    containers=[APP],
    account="web",
    namespace="shop",
)
POD["spec"] |= {
    "initContainers": [container("first", restartPolicy="Always", livenessProbe=CHECK)],
    "volumes": [{"name": "data", "emptyDir": {}}],
    "imagePullSecrets": [{"name": "own"}],
    "restartPolicy": "Always",
}


def workload(kind: str, version: str, spec: Object) -> Object:
    """Return an object of a kind that headgate only checks."""
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "web", "namespace": "shop"}, "spec": spec}


JOB = {"template": {"metadata": POD["metadata"], "spec": POD["spec"]}}
CANARY = {
    "service": "website",
    "versions": {"primary": "website", "canary": "website-v2"},
    "analysis": {"interval": "60s"},
}
OBJECTS: tuple[Object, ...] = (
    POD,
    POD,
    POD,
    deployment("web", APP, template={"annotations": {"headgate.dev/inject": "true"}}, namespace="shop"),
    workload("CronJob", "batch/v1", {"jobTemplate": {"spec": JOB}}),
    workload("StatefulSet", "apps/v1", JOB),
    split("website", {"v1": 1, "v2": 2}, matches=["all"], namespace="shop"),
    with_spec("Canary", "website", CANARY, {"namespace": "shop"}),
    http_route_group("all", {"all": {"pathRegex": "/.*", "methods": ["GET"]}}, namespace="shop"),
    traffic_target("web", "web", ["client"], namespace="shop"),
    tls_config("web", {"app": "web"}, "a", namespace="shop"),
    sidecar("logs", {"app": "web"}, containers=[container("logs")], namespace="shop"),
    service("website", {"port": 80}, namespace="shop"),
    namespace("shop", labels={"headgate.dev/inject": "true"}),
)
VERSIONS = ("v1alpha1", "v1alpha2", "v1alpha3", "v1alpha4", "v1beta1", "v1")


class Call(NamedTuple):
    """One request to a webhook."""

    path: str
    body: bytes


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """Draw a request, in most cases one about an object with one arbitrary part."""
    path = draw(st.sampled_from(PATHS))
    objects = st.sampled_from(OBJECTS)
    if path == "/convert":
        group = draw(st.sampled_from(("split.smi-spec.io", "specs.smi-spec.io", "x", "")))
        version = draw(st.sampled_from(VERSIONS))
        written = [draw(st.one_of(objects, objects.flatmap(broken), values)) for _ in range(draw(st.integers(0, 2)))]
        body = conversion([with_version(obj, draw) for obj in written], f"{group}/{version}")
    else:
        new = draw(st.one_of(objects.flatmap(broken), objects.flatmap(broken), objects, values))
        old = draw(st.one_of(st.none(), objects, objects.flatmap(broken)))
        operation = draw(st.sampled_from(("CREATE", "CREATE", "UPDATE", "DELETE", "CONNECT")))
        body = review(new, oldObject=old, operation=operation, dryRun=draw(st.booleans()))
    if not draw(st.integers(0, 9)):
        body = draw(broken(body))
    return Call(path, encoded(body, with_numbers=draw(st.booleans())))


def with_version(obj: Any, draw: st.DrawFn) -> Any:
    """Return an object in any version."""
    if not isinstance(obj, dict) or not str(obj.get("apiVersion", "")).startswith("split"):
        return obj
    return {**obj, "apiVersion": f"split.smi-spec.io/{draw(st.sampled_from(VERSIONS))}"}


def conversion(objects: Sequence[Any], version: str) -> Any:
    """Return a ConversionReview."""
    request = {"uid": "1", "desiredAPIVersion": version, "objects": objects}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}


@pytest.fixture(scope="module")
def app(runner: asyncio.Runner) -> Iterator[Starlette]:
    """The webhooks of a control plane with a small mesh, which runs."""
    app, plane = runner.run(started())
    yield app
    plane.stop()


async def started() -> tuple[Starlette, RunningPlane]:
    """Start the control plane; return its webhooks, and the control plane."""
    store = MemoryStore(admit=admit)
    for stored in (namespace("shop"), service("website", {"port": 80}, namespace="shop"), *OBJECTS[-4:-2]):
        await store.create(stored)
    plane = RunningPlane(store)
    await plane.live_state.wait_compiled()
    reviews = Reviews(
        transparent_sidecars("all", SidecarOptions(image="headgate", xds="xds:15010")),
        object_check(DEFAULTS),
        partial(warnings_before_write, plane.live_state),
        lambda: SnapshotView(plane.feed.snapshot.get() or Snapshot()),
    )
    return create_webhooks(reviews, lambda: True), plane


async def answers(app: Starlette, drawn: Sequence[Call]) -> list[tuple[int, Call]]:
    """Return the statuses of the answers that blame the webhook."""
    statuses = [((await call(app, one.path, one.body))[0], one) for one in drawn]
    return [(status, one) for status, one in statuses if status >= 500]


@settings(max_examples=500)
@given(st.lists(calls(), min_size=1, max_size=4))
def test_no_review_makes_a_webhook_fail(runner: asyncio.Runner, app: Starlette, drawn: list[Call]) -> None:
    with logged_errors() as errors:
        assert runner.run(answers(app, drawn)) == []
    assert errors == []


@pytest.mark.parametrize(
    ("path", "new", "answer"),
    [
        ("/inject", {**POD, "metadata": 1}, "metadata: must be an object, not a whole number"),
        ("/inject", {**POD, "spec": None}, "spec.containers: is missing"),
        ("/inject", {**POD, "spec": {"containers": [None]}}, "spec.containers[0]: must be an object, not null"),
        ("/inject", {**POD, "spec": {"containers": [{"image": "app"}]}}, "spec.containers[0].name: is missing"),
        ("/validate", workload("StatefulSet", "apps/v1", {"template": 1}), "spec.template.spec.containers: is missing"),
        ("/validate", {**OBJECTS[6], "metadata": 1}, "metadata: must be an object"),
    ],
)
def test_an_object_of_the_wrong_form_is_denied_with_the_field(
    runner: asyncio.Runner, app: Starlette, path: str, new: Object, answer: str
) -> None:
    status, body = runner.run(call(app, path, review(new)))
    assert (status, body["response"]["allowed"]) == (200, False)
    assert answer in body["response"]["status"]["message"]


@pytest.mark.parametrize("path", ["/inject", "/validate", "/convert"])
@pytest.mark.parametrize("depth", DEPTHS[1:])
def test_values_that_are_nested_too_deeply_are_bad_requests(
    runner: asyncio.Runner, app: Starlette, path: str, depth: int
) -> None:
    for obj in (*OBJECTS, {"x": 1}):
        deep = {**obj, "x": nested(depth)}
        body = conversion([deep], "split.smi-spec.io/v1alpha2") if path == "/convert" else review(deep)
        status, answer = runner.run(call(app, path, encoded(body)))
        assert (status, str(answer).startswith("the body ")) == (400, True)
