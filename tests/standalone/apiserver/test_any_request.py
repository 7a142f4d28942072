"""Any request to the embedded API gets an answer that blames the client or none: no 500, and no traceback in the log."""

import asyncio
import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decoding import admit
from tests.embedded_api import TOKEN, AsgiClient
from tests.make.hostile import DEPTHS, HUGE, NAMES, broken, encoded, logged_errors, nested, scalars, values
from tests.make.objects import (
    config_map,
    container,
    deployment,
    http_route_group,
    meshed_pod,
    namespace,
    pod,
    service,
    split,
    traffic_target,
)

from headgate.api.request_body import DEEPEST
from headgate.resources.kind import split_api_version
from headgate.resources.meta import Object
from headgate.resources.registry import BUILT_IN, find
from headgate.standalone.apiserver.app import create_app
from headgate.standalone.store.memory import MemoryStore

UNSUPPORTED, TIMEOUT = 501, 504  # a subresource, and a resource version of the future
PATCHES = (
    *(f"application/{kind}+json" for kind in ("json-patch", "merge-patch", "strategic-merge-patch")),
    "application/apply-patch+yaml",
)
METHODS = ("GET", "POST", "PUT", "PATCH", "PATCH", "PATCH", "DELETE", "DELETE")
SUBRESOURCES = {
    "Pod": ("/eviction", "/log", "/status"),
    "Deployment": ("/scale", "/status"),
    "TrafficSplit": ("/status",),
}
OTHER_PATHS = ("/", "/readyz", "/apis", "/openapi/v3/x", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
OPTIONS = ("preconditions", "propagationPolicy", "dryRun", "orphanDependents", "gracePeriodSeconds", "kind")
MEDIA_TYPES = (
    "application/json",
    "application/json",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    *PATCHES,
)
QUERIES = (
    *("limit", "continue", "resourceVersion", "resourceVersionMatch", "labelSelector", "fieldSelector", "dryRun"),
    *("fieldManager", "fieldValidation", "force", "propagationPolicy", "timeoutSeconds", "includeObject", "tailLines"),
    *("verbose", "exclude", "window", "t"),
)


class Call(NamedTuple):
    """One request."""

    method: str
    url: str
    body: bytes
    media_type: str
    accept: str


pointers = st.sampled_from(
    ("", "/", "/metadata", "/metadata/name", "/spec", "/spec/ports/0", "/spec/ports/-", "/data/a")
)
operations = st.fixed_dictionaries(
    {"op": st.sampled_from(("add", "replace", "remove", "copy", "move", "test", "x"))},
    optional={name: st.one_of(pointers, scalars) for name in ("path", "from")} | {"value": values},
)


def bodies(obj: Object, method: str, subresource: str, media_type: str) -> st.SearchStrategy[Any]:
    """Return a strategy for the bodies of a request about an object."""
    options = st.dictionaries(st.sampled_from(OPTIONS), values, min_size=1, max_size=2)
    if method == "DELETE":
        return st.one_of(options, values)
    if subresource == "/eviction":
        return st.builds(lambda value: {"deleteOptions": value}, st.one_of(options, values))
    if media_type == PATCHES[0]:
        return st.lists(operations, max_size=3)
    return st.one_of(broken(obj), broken(obj), broken(obj), values)


@st.composite
def paths(draw: st.DrawFn) -> str:
    """Draw the path of a collection, an object or a subresource of a kind, or another path."""
    group, version = draw(st.sampled_from(VERSIONS))
    plural = draw(st.sampled_from(PLURALS[group, version]))
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    within = draw(st.sampled_from(("/namespaces/default", "/namespaces/none", "")))
    name = draw(st.sampled_from(("", *(f"/{name}" for name in NAMES))))
    subresources = ("", "", "/status", "/scale", "/eviction", "/log", "/exec", "/pods/x")
    return f"{root}{within}/{plural}{name}{draw(st.sampled_from(subresources)) if name else ''}"


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """Draw a request, in most cases one about a stored object."""
    obj = draw(st.sampled_from(OBJECTS))
    subresource = draw(st.sampled_from(("", "", *SUBRESOURCES.get(obj["kind"], ()))))
    method = "POST" if subresource == "/eviction" else draw(st.sampled_from(METHODS))
    path = path_of(obj, method, subresource)
    if not draw(st.integers(0, 9)):
        path = draw(st.one_of(paths(), st.sampled_from(OTHER_PATHS)))
    texts = st.sampled_from(("", "1", "-1", "All", "Strict", "a=b", "%00", "e30=", HUGE))
    query = draw(st.dictionaries(st.sampled_from(QUERIES), texts, max_size=1))
    media_type = draw(st.sampled_from(PATCHES if method == "PATCH" else MEDIA_TYPES))
    if method != "PATCH" and draw(st.integers(0, 4)):
        media_type = "application/json"
    if media_type == "application/apply-patch+yaml" and draw(st.booleans()):
        query = {"fieldManager": "a", "force": "true"}
    url = f"{path}?{'&'.join(f'{name}={value}' for name, value in query.items())}"
    body = (
        encoded(draw(bodies(obj, method, subresource, media_type)), with_numbers=draw(st.booleans()))
        if draw(st.integers(0, 19))
        else draw(st.binary(max_size=8))
    )
    accept = draw(st.sampled_from(("application/json", "application/json;as=Table;v=v1;g=meta.k8s.io", "*/*;q=x")))
    return Call(method, url, body, media_type, accept)


def path_of(obj: Object, method: str, subresource: str) -> str:
    """Return the path of an object, or of its collection for a creation."""
    group, version = split_api_version(obj["apiVersion"])
    kind = find(group, obj["kind"])
    assert kind
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    within = f"/namespaces/{obj['metadata']['namespace']}" if kind.namespaced else ""
    collection = f"{root}{within}/{kind.plural}"
    if method == "POST" and subresource != "/eviction":
        return collection
    return f"{collection}/{obj['metadata']['name']}{subresource}"


OBJECTS: tuple[Object, ...] = (
    config_map("website", {"a": "b"}, namespace="default"),
    service("website", namespace="default"),
    deployment("website", container(), namespace="default"),
    pod("website", "127.0.0.9", namespace="default"),
    meshed_pod("meshed", "127.0.0.8", namespace="default"),
    http_route_group("website", {"all": {"pathRegex": "/.*", "methods": ["GET"]}}, namespace="default"),
    traffic_target("website", "website", ["website"], namespace="default"),
    split("website", {"website-v1": 1}, name="website", namespace="default"),
    namespace("website"),
)
VERSIONS = [(group, version) for group, versions in BUILT_IN.groups.items() for version in versions]
PLURALS = {
    (group, version): [served.plural for served in kinds]
    for group, versions in BUILT_IN.groups.items()
    for version, kinds in versions.items()
}


async def answers(drawn: list[Call]) -> list[tuple[int, Call]]:
    """Return the codes of the API's answers, one after another, on a store that has an object of some kinds."""
    client = await client_of_objects()
    return [
        (
            (
                await client.call(
                    call.method, call.url, call.body, content_type=call.media_type, accept=call.accept, user_agent="any"
                )
            ).code,
            call,
        )
        for call in drawn
    ]


@settings(max_examples=250)
@given(st.lists(calls(), min_size=1, max_size=4))
def test_no_request_makes_the_api_fail(drawn: list[Call]) -> None:
    with logged_errors() as errors:
        failed = [(code, call) for code, call in asyncio.run(answers(drawn)) if code >= 500]
    assert [(code, call) for code, call in failed if code not in (UNSUPPORTED, TIMEOUT)] == []
    assert errors == []


@pytest.mark.parametrize(
    ("method", "media_type"),
    [
        *((method, f"application/{form}") for method in ("POST", "PUT") for form in ("json", "yaml")),
        *(("PATCH", media_type) for media_type in PATCHES),
    ],
)
async def test_values_that_are_nested_too_deeply_are_bad_requests(method: str, media_type: str) -> None:
    """Python's functions recurse about 1,000 times."""
    client = await client_of_objects()
    for obj in OBJECTS:
        for depth in DEPTHS:
            body: Any = {**obj, "x": nested(depth)}
            if media_type == PATCHES[0]:
                body = [{"op": "add", "path": "/metadata/x", "value": nested(depth)}]
            url = f"{path_of(obj, method, '')}?fieldManager=a&force=true"
            answer = await client.call(method, url, encoded(body), content_type=media_type)
            assert answer.code in ((400, 415) if depth > DEEPEST else (200, 400, 409, 415, 422)), (obj, depth, answer)


async def test_a_json_patch_can_not_nest_an_object_too_deeply_step_by_step() -> None:
    client = await client_of_objects()
    path, operations = "/data", []
    for _ in range(10):
        operations.append({"op": "add", "path": f"{path}/x", "value": json.loads('{"x":' * 150 + "{}" + "}" * 150)})
        path += "/x" * 151
    for last in ([], [{"op": "copy", "from": "/data", "path": "/y"}], [{"op": "test", "path": "/data", "value": {}}]):
        body = json.dumps([*operations, *last]).encode()
        url = "/api/v1/namespaces/default/configmaps/website"
        answer = await client.call("PATCH", url, body, content_type=PATCHES[0])
        assert answer.code in (400, 422), answer


async def client_of_objects() -> AsgiClient:
    store = MemoryStore(admit=admit)
    for obj in OBJECTS:
        await store.create(obj)
    return AsgiClient(create_app(store, token=TOKEN), store)


@pytest.mark.parametrize(
    ("method", "path", "body", "content_type", "code"),
    [
        ("GET", f"/configmaps?limit={HUGE}", None, "application/json", 400),
        ("GET", f"/configmaps?resourceVersion={HUGE}", None, "application/json", 400),
        ("DELETE", "/configmaps/website", {"preconditions": 1}, "application/json", 400),
        ("DELETE", "/configmaps/website", {"preconditions": {"uid": [1]}}, "application/json", 400),
        ("POST", "/pods/website/eviction", {"deleteOptions": [1]}, "application/json", 400),
        ("PATCH", "/services/website", {"spec": {"ports": [1, {"$patch": "replace"}]}}, PATCHES[2], 400),
        (
            "POST",
            "/configmaps",
            f'{{"metadata": {{"name": "a", "generation": {HUGE}}}}}'.encode(),
            "application/json",
            400,
        ),
    ],
)
async def test_what_was_a_failure_is_a_bad_request(
    method: str, path: str, body: Any, content_type: str, code: int
) -> None:
    client = await client_of_objects()
    answer = await client.call(method, f"/api/v1/namespaces/default{path}", body, content_type=content_type)
    assert (answer.code, answer.body["kind"]) == (code, "Status")
