"""The HTTP protocol of the embedded API: status codes, lists, watches, patches and discovery."""

import json
from contextlib import aclosing
from typing import Any

import pytest
from tests.decoding import admit
from tests.embedded_api import TOKEN, AsgiClient
from tests.make.objects import split

from headgate.standalone.apiserver.app import create_app
from headgate.standalone.store.memory import MemoryStore

SPLITS = "/apis/split.smi-spec.io/v1alpha4/namespaces/default/trafficsplits"
MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
MERGE = "application/merge-patch+json"


def website(name: str = "website", *weights: Any) -> dict[str, Any]:
    """Return a split that leaves its apiVersion, kind and namespace to the path of the request."""
    backends = {f"website-v{number}": weight for number, weight in enumerate(weights or (90, 10), 1)}
    whole = split("website", backends, name=name, namespace="")
    return {key: whole[key] for key in ("metadata", "spec")}


def config(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "data": {"a": "b"}}


async def test_a_request_without_the_token_is_unauthorized(client: AsgiClient) -> None:
    assert (await client.call("GET", "/api")).code == 200
    for wrong in ("", "Bearer", f"Bearer {TOKEN}x", TOKEN):
        answer = await client.call("GET", "/api", authorization=wrong)
        assert (answer.code, answer.body["reason"]) == (401, "Unauthorized")
        assert TOKEN not in json.dumps(answer.body)
    assert (await client.call("GET", "/readyz", authorization="")).body == b"ok"


@pytest.mark.parametrize("host", ["evil.example", "10.0.0.1:80", "localhost.evil.example", ""])
async def test_a_host_header_that_is_not_loopback_is_forbidden(client: AsgiClient, host: str) -> None:
    answer = await client.call("GET", "/api", host=host)
    assert (answer.code, answer.body["reason"]) == (403, "Forbidden")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.9:6443", "[::1]:6443"])
async def test_a_loopback_host_header_is_accepted(client: AsgiClient, host: str) -> None:
    assert (await client.call("GET", "/api", host=host)).code == 200


@pytest.mark.parametrize(
    ("method", "url", "headers", "code", "reason"),
    [
        ("GET", "/apis/unknown.example/v1", {}, 404, "NotFound"),
        ("GET", "/apis/apps/v9", {}, 404, "NotFound"),
        ("GET", "/api/v1/componentstatuses", {}, 404, "NotFound"),
        ("GET", "/api/v1/namespaces/default/configmaps/none", {}, 404, "NotFound"),
        ("GET", "/api/v1/configmaps/none", {}, 404, "NotFound"),
        ("GET", "/favicon.ico", {}, 404, "NotFound"),
        ("PUT", MAPS, {}, 405, "MethodNotAllowed"),
        ("POST", f"{MAPS}/x", {}, 405, "MethodNotAllowed"),
        ("POST", "/api/v1/configmaps", {}, 405, "MethodNotAllowed"),
        ("DELETE", "/api/v1/namespaces", {}, 405, "MethodNotAllowed"),
        ("OPTIONS", MAPS, {}, 405, "MethodNotAllowed"),
        ("POST", "/version", {}, 405, "MethodNotAllowed"),
        ("GET", MAPS, {"accept": "text/html"}, 406, "NotAcceptable"),
        ("GET", MAPS, {"accept": "application/json;as=Table;v=v9;g=meta.k8s.io"}, 406, "NotAcceptable"),
        ("POST", MAPS, {"content_type": "text/plain"}, 415, "UnsupportedMediaType"),
        (
            "PATCH",
            f"{SPLITS}/x",
            {"content_type": "application/strategic-merge-patch+json"},
            415,
            "UnsupportedMediaType",
        ),
        ("GET", f"{MAPS}?limit=many", {}, 400, "BadRequest"),
        ("GET", f"{MAPS}?resourceVersion=1&resourceVersionMatch=Exact", {}, 410, "Expired"),
        ("GET", f"{MAPS}?resourceVersion=9999", {}, 504, "Timeout"),
        ("GET", f"{MAPS}?continue=x", {}, 400, "BadRequest"),
        ("GET", f"{MAPS}?labelSelector=a==b==c", {}, 400, "BadRequest"),
        ("GET", f"{MAPS}?fieldSelector=data.a=b", {}, 400, "BadRequest"),
        ("POST", f"{MAPS}?dryRun=Some", {}, 400, "BadRequest"),
        ("POST", f"{MAPS}?fieldValidation=Maybe", {}, 400, "BadRequest"),
        ("POST", f"{MAPS.removesuffix('configmaps')}pods/x/binding", {}, 501, "NotImplemented"),
    ],
)
async def test_an_invalid_request_gets_a_status_with_its_code(
    client: AsgiClient, method: str, url: str, headers: dict[str, str], *, code: int, reason: str
) -> None:
    answer = await client.call(method, url, {} if method != "GET" else None, **headers)
    assert (answer.code, answer.body["kind"], answer.body["reason"]) == (code, "Status", reason)
    assert answer.body["code"] == code
    assert answer.body["message"]


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff\x00", b'"text"', b'{"metadata": []}', b"[" * 100_000])
async def test_a_body_that_is_not_an_object_is_a_bad_request(client: AsgiClient, body: bytes) -> None:
    answer = await client.call("POST", MAPS, body)
    assert answer.code in (400, 422)
    assert answer.body["status"] == "Failure"


async def test_a_body_above_three_megabytes_is_too_large(client: AsgiClient) -> None:
    answer = await client.call("POST", MAPS, b" " * (3 * 1024 * 1024 + 1))
    assert (answer.code, answer.body["reason"]) == (413, "RequestEntityTooLarge")


async def test_each_invalid_field_is_a_cause_with_its_path(client: AsgiClient) -> None:
    """R6. Weights are integers; the error names the field."""
    answer = await client.call("POST", SPLITS, website("website", 10.5, -1))
    assert answer.code == 422
    causes = {cause["field"]: cause["message"] for cause in answer.body["details"]["causes"]}
    assert set(causes) == {"spec.backends[0].weight", "spec.backends[1].weight"}
    assert "whole number" in causes["spec.backends[0].weight"]
    assert answer.body["details"]["kind"] == "TrafficSplit"
    assert answer.body["details"]["name"] == "website"


async def test_core_kinds_are_validated_by_their_schema(client: AsgiClient) -> None:
    answer = await client.call("POST", MAPS, {"metadata": {"name": "x"}, "data": {"port": 80}})
    assert answer.code == 422
    assert answer.body["details"]["causes"][0]["field"] == "data.port"


async def test_field_validation_rejects_warns_about_or_ignores_unknown_fields(client: AsgiClient) -> None:
    obj = website()
    obj["spec"]["weights"] = []
    strict = await client.call("POST", f"{SPLITS}?fieldValidation=Strict", obj)
    assert strict.code == 400
    assert 'unknown field "spec.weights"' in strict.body["message"]
    warned = await client.call("POST", f"{SPLITS}?fieldValidation=Warn", obj)
    assert warned.code == 201
    assert warned.header("warning") == ['299 - "unknown field \\"spec.weights\\""']
    assert "weights" not in warned.body["spec"]
    ignored = await client.call("PUT", f"{SPLITS}/website?fieldValidation=Ignore", obj)
    assert (ignored.code, ignored.header("warning")) == (200, [])


async def test_an_update_with_an_old_resource_version_is_a_conflict(client: AsgiClient) -> None:
    first = (await client.call("POST", SPLITS, website())).body
    second = await client.call("PUT", f"{SPLITS}/website", {**first, "spec": website("x", 1, 2)["spec"]})
    assert second.code == 200
    assert second.body["metadata"]["generation"] == 2
    late = await client.call("PUT", f"{SPLITS}/website", first)
    assert (late.code, late.body["reason"]) == (409, "Conflict")
    stale = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}, "spec": {"service": "y"}}
    patched = await client.call("PATCH", f"{SPLITS}/website", stale, content_type=MERGE)
    assert patched.code == 409
    gone = await client.call("DELETE", f"{SPLITS}/website", {"preconditions": {"uid": "other"}})
    assert gone.code == 409


async def test_an_object_whose_name_differs_from_the_path_is_a_bad_request(client: AsgiClient) -> None:
    await client.call("POST", SPLITS, website())
    for body in (website("other"), {**website(), "kind": "Service"}, {**website(), "apiVersion": "v1"}):
        assert (await client.call("PUT", f"{SPLITS}/website", body)).code == 400
    elsewhere = website()
    elsewhere["metadata"]["namespace"] = "kube-system"
    assert (await client.call("POST", SPLITS, elsewhere)).code == 400
    assert (await client.call("POST", SPLITS, website())).body["reason"] == "AlreadyExists"


async def test_a_dry_run_stores_nothing(client: AsgiClient) -> None:
    assert (await client.call("POST", f"{SPLITS}?dryRun=All", website())).code == 201
    assert (await client.call("GET", f"{SPLITS}/website")).code == 404
    await client.call("POST", SPLITS, website())
    assert (await client.call("DELETE", f"{SPLITS}/website?dryRun=All")).code == 200
    assert (await client.call("DELETE", f"{SPLITS}/website", {"dryRun": ["All"]})).code == 200
    assert (await client.call("GET", f"{SPLITS}/website")).code == 200


async def test_the_status_subresource_reads_and_writes_the_status(client: AsgiClient) -> None:
    created = (await client.call("POST", SPLITS, {**website(), "status": {"proxies": {"total": 9}}})).body
    assert "status" not in created
    answer = await client.call("PUT", f"{SPLITS}/website/status", {**website(), "status": {"proxies": {"total": 2}}})
    assert answer.body["status"] == {"proxies": {"total": 2}}
    patched = await client.call(
        "PATCH", f"{SPLITS}/website/status", {"status": {"proxies": {"programmed": 1}}}, content_type=MERGE
    )
    assert patched.body["status"]["proxies"] == {"total": 2, "programmed": 1}
    assert patched.body["metadata"]["generation"] == 1
    assert (await client.call("DELETE", f"{SPLITS}/website/status")).code == 405
    assert (await client.call("GET", f"{MAPS}/x/status")).code == 404


async def test_a_write_to_the_main_resource_ignores_an_invalid_status(client: AsgiClient) -> None:
    """Go clients send null for empty required fields of a status, such as `status.parents` of an HTTPRoute."""
    created = await client.call("POST", SPLITS, {**website(), "status": {"conditions": None, "proxies": "none"}})
    assert created.code == 201
    changed = await client.call("PUT", f"{SPLITS}/website", {**website(), "status": {"proxies": "none"}})
    assert (changed.code, "status" in changed.body) == (200, False)
    assert (await client.call("PUT", f"{SPLITS}/website/status", {**website(), "status": 1})).code in {400, 422}


async def test_a_write_keeps_a_status_that_an_earlier_version_wrote(client: AsgiClient) -> None:
    """No user can correct a status, so its fields of earlier versions must not prevent writes until it is written again."""
    await client.call("POST", SPLITS, website())
    stored = (await client.store.list("split.smi-spec.io", "TrafficSplit")).items[0]
    old = {"ports": [{"port": "http"}], "phase": "Ready"}
    await client.store.update({**stored, "status": old}, subresource="status")
    url = f"{SPLITS}/website"
    labeled = await client.call("PATCH", url, {"metadata": {"labels": {"a": "b"}}}, **{"content-type": MERGE})
    assert (labeled.code, labeled.body["metadata"]["labels"], labeled.body["status"]) == (200, {"a": "b"}, old)
    body = {"apiVersion": "split.smi-spec.io/v1alpha4", "kind": "TrafficSplit", **website()}
    applied = await client.call(
        "PATCH", f"{url}?fieldManager=me&force=true", body, **{"content-type": "application/apply-patch+yaml"}
    )
    assert (applied.code, applied.body["status"]) == (200, old)
    refused = await client.call("PATCH", f"{url}/status", {"status": {"ports": "none"}}, **{"content-type": MERGE})
    assert refused.code == 422


async def test_a_split_with_its_status_can_be_read_and_written_back(client: AsgiClient) -> None:
    """The schema has every field that the control plane writes, so the output of `-o yaml` can be applied."""
    condition = {"type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": 1}
    share = {"service": "website-v1", "weight": 0, "percent": "0%", "endpoints": 0, "reason": "PortMismatch"}
    status = {
        "observedGeneration": 1,
        "conditions": [{**condition, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "proxies": {"programmed": 1, "total": 1},
        "ports": [{"port": 8080, "backends": [share]}],
    }
    await client.call("POST", SPLITS, website())
    whole = await client.call("PUT", f"{SPLITS}/website/status?fieldValidation=Strict", {**website(), "status": status})
    assert whole.body["status"] == status
    assert (await client.call("PUT", f"{SPLITS}/website?fieldValidation=Strict", whole.body)).code == 200


async def test_a_split_can_be_read_and_written_in_every_version(client: AsgiClient) -> None:
    """R9, D24. The oldest version shows a weight as a quantity, the newest version shows it as an integer."""
    old = "/apis/split.smi-spec.io/v1alpha1/namespaces/default/trafficsplits"
    bare = "/api/v1beta1/namespaces/default/trafficsplits"
    written = await client.call("POST", bare, website("website", "500m", 1))
    assert (written.code, written.body["apiVersion"]) == (201, "v1beta1")
    newest = (await client.call("GET", f"{SPLITS}/website")).body
    assert [backend["weight"] for backend in newest["spec"]["backends"]] == [1, 2]
    oldest = (await client.call("GET", f"{old}/website")).body
    assert [backend["weight"] for backend in oldest["spec"]["backends"]] == ["500m", 1]
    listed = (await client.call("GET", old)).body
    assert listed["items"] == [oldest]


async def test_pages_of_a_list_contain_every_object_once(client: AsgiClient) -> None:
    for index in range(7):
        await client.call("POST", MAPS, config(f"c{index}"))
    names, url, revisions = [], f"{MAPS}?limit=3", set()
    while url:
        page = (await client.call("GET", url)).body
        names += [item["metadata"]["name"] for item in page["items"]]
        revisions.add(page["metadata"]["resourceVersion"])
        await client.call("POST", MAPS, config(f"a{len(names)}"))  # the new object sorts before the next page
        token = page["metadata"].get("continue")
        url = f"{MAPS}?limit=3&continue={token}" if token else ""
    assert names == [f"c{index}" for index in range(7)]
    assert len(revisions) == 1  # all pages have the revision of the first page


async def test_the_accept_header_selects_a_table_or_metadata_only(client: AsgiClient) -> None:
    await client.call("POST", SPLITS, website())
    table = (await client.call("GET", SPLITS, accept=f"{TABLE},application/json")).body
    assert [column["name"] for column in table["columnDefinitions"]][:3] == ["Name", "Service", "Backends"]
    assert table["rows"][0]["cells"][:3] == ["website", "website", "website-v1:90,website-v2:10"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    form = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    metadata = (await client.call("GET", SPLITS, accept=form)).body
    assert metadata["kind"] == "PartialObjectMetadataList"
    assert set(metadata["items"][0]) == {"kind", "apiVersion", "metadata"}


async def test_a_watch_sends_each_change_after_its_revision(client: AsgiClient) -> None:
    await client.call("POST", MAPS, config("before"))
    start = (await client.call("GET", MAPS)).body["metadata"]["resourceVersion"]
    async with aclosing(client.watch(f"{MAPS}?watch=true&resourceVersion={start}")) as events:
        await client.call("POST", MAPS, config("one"))
        await client.call("POST", SPLITS, website())
        await client.call("PATCH", f"{MAPS}/one", {"data": {"a": "c"}}, content_type=MERGE)
        await client.call("DELETE", f"{MAPS}/one")
        seen = [await anext(events) for _ in range(3)]
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in seen] == [
        ("ADDED", "one"),
        ("MODIFIED", "one"),
        ("DELETED", "one"),
    ]


async def test_an_object_that_starts_or_stops_matching_a_selector_is_sent_as_added_or_deleted(
    client: AsgiClient,
) -> None:
    await client.call("POST", MAPS, config("blue", color="blue"))
    await client.call("POST", MAPS, config("red", color="red"))
    async with aclosing(client.watch(f"{MAPS}?watch=1&labelSelector=color=red")) as events:
        seen = [await anext(events)]
        for name, color in (("blue", "green"), ("blue", "red"), ("red", "blue"), ("red", "green"), ("blue", "black")):
            labels = {"metadata": {"labels": {"color": color}}}
            await client.call("PATCH", f"{MAPS}/{name}", labels, content_type=MERGE)
        seen += [await anext(events) for _ in range(3)]
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in seen] == [
        ("ADDED", "red"),
        ("ADDED", "blue"),
        ("DELETED", "red"),
        ("DELETED", "blue"),
    ]


async def test_a_watch_of_one_object_sends_no_event_of_another_object(client: AsgiClient) -> None:
    """A change to another object between list and watch is not sent as DELETED."""
    await client.call("POST", MAPS, config("one"))
    await client.call("POST", MAPS, config("two"))
    start = (await client.call("GET", MAPS)).body["metadata"]["resourceVersion"]
    await client.call("PUT", f"{MAPS}/two", config("two", color="red"))
    await client.call("PUT", f"{MAPS}/one", config("one", color="red"))
    async with aclosing(
        client.watch(f"{MAPS}?watch=true&resourceVersion={start}&fieldSelector=metadata.name%3Done")
    ) as events:
        event = await anext(events)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("MODIFIED", "one")


async def test_a_watch_without_a_revision_begins_with_the_existing_objects(client: AsgiClient) -> None:
    await client.call("POST", MAPS, config("one"))
    async with aclosing(client.watch(f"{MAPS}?watch=true&fieldSelector=metadata.name=one")) as events:
        assert (await anext(events))["type"] == "ADDED"


async def test_initial_events_end_with_a_bookmark(client: AsgiClient) -> None:
    await client.call("POST", MAPS, config("one"))
    url = f"{MAPS}?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
    async with aclosing(client.watch(url)) as events:
        assert (await anext(events))["type"] == "ADDED"
        mark = await anext(events)
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["kind"] == "ConfigMap"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(mark["object"]["metadata"]["resourceVersion"]) == client.store.revision


async def test_a_bookmark_has_a_revision_that_includes_changes_to_other_kinds(
    client: AsgiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.standalone.apiserver.watches.BOOKMARK_SECONDS", 0.01)
    start = client.store.revision
    url = f"{MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={start}"
    await client.call("POST", SPLITS, website())
    async with aclosing(client.watch(url)) as events:
        async for event in events:
            assert event["type"] == "BOOKMARK"
            if event["object"]["metadata"]["resourceVersion"] == str(client.store.revision):
                break


async def test_a_watch_from_a_discarded_revision_ends_with_410() -> None:
    store = MemoryStore(admit=admit, history=4)
    client = AsgiClient(create_app(store, token=TOKEN), store)
    start = store.revision
    for index in range(6):
        await client.call("POST", MAPS, config(f"c{index}"))
    events = [event async for event in client.watch(f"{MAPS}?watch=true&resourceVersion={start - 1}")]
    assert [event["type"] for event in events] == ["ERROR"]
    assert (events[0]["object"]["code"], events[0]["object"]["reason"]) == (410, "Expired")


async def test_a_watch_ends_at_its_timeout_and_when_the_server_closes(client: AsgiClient) -> None:
    url = f"{MAPS}?watch=true&resourceVersion={client.store.revision}"
    client.app.state.closing.set()
    assert [event async for event in client.watch(url)] == []


async def test_only_the_first_table_of_a_watch_has_column_definitions(client: AsgiClient) -> None:
    for name in ("one", "two"):
        await client.call("POST", MAPS, config(name))
    async with aclosing(client.watch(f"{MAPS}?watch=true", accept=TABLE)) as events:
        tables = [(await anext(events))["object"] for _ in range(2)]
    assert tables[0]["columnDefinitions"]
    assert tables[1]["columnDefinitions"] is None


async def test_an_object_with_finalizers_stays_after_a_delete_request(client: AsgiClient) -> None:
    held = config("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await client.call("POST", MAPS, held)
    deleted = await client.call("DELETE", f"{MAPS}/held")
    assert deleted.body["metadata"]["deletionTimestamp"]
    await client.call("PATCH", f"{MAPS}/held", {"metadata": {"finalizers": None}}, content_type=MERGE)
    assert (await client.call("GET", f"{MAPS}/held")).code == 404


@pytest.mark.parametrize(
    "body",
    [
        b"a: [",
        b"- a",
        b"",
        b"\xff",
        b"a: 1\n---\nb: 2\n",
        b"a: !!python/object:os.system x",
        b"a: &a [0]\n" + b"".join(b"%c: &%c [%s]\n" % (i + 1, i + 1, b",".join([b"*%c" % i] * 9)) for i in b"abcdefg"),
    ],
)
async def test_yaml_that_is_not_one_plain_object_is_a_bad_request(client: AsgiClient, body: bytes) -> None:
    url = f"{MAPS}/x?fieldManager=me"
    answer = await client.call("PATCH", url, body, content_type="application/apply-patch+yaml")
    assert (answer.code, answer.body["reason"]) == (400, "BadRequest")


async def test_secrets_and_workloads_get_their_defaults(client: AsgiClient) -> None:
    secret = {"metadata": {"name": "s"}, "stringData": {"a": "b"}}
    stored = (await client.call("POST", "/api/v1/namespaces/default/secrets", secret)).body
    assert (stored["type"], stored["data"]) == ("Opaque", {"a": "Yg=="})
    assert "stringData" not in stored
    pods = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": pods}
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    web = (await client.call("POST", deployments, {"metadata": {"name": "web"}, "spec": spec})).body
    assert web["spec"]["replicas"] == 1
    assert web["spec"]["strategy"]["type"] == "RollingUpdate"
    assert web["spec"]["template"]["spec"]["restartPolicy"] == "Always"


async def test_the_scale_subresource_reads_and_writes_the_replicas(client: AsgiClient) -> None:
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    pods = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": pods}
    await client.call("POST", deployments, {"metadata": {"name": "web"}, "spec": spec})
    scale = (await client.call("GET", f"{deployments}/web/scale")).body
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == ("Scale", {"replicas": 1}, "a=b")
    scaled = await client.call("PUT", f"{deployments}/web/scale", {**scale, "spec": {"replicas": 3}})
    assert scaled.body["spec"] == {"replicas": 3}
    stale = await client.call("PUT", f"{deployments}/web/scale", {**scale, "spec": {"replicas": 4}})
    assert stale.code == 409
    bad = await client.call("PATCH", f"{deployments}/web/scale", {"spec": {"replicas": -1}}, content_type=MERGE)
    assert bad.body["details"]["causes"][0]["field"] == "spec.replicas"


async def test_a_list_returns_five_thousand_objects(client: AsgiClient) -> None:
    for index in range(5000):
        await client.store.create({"apiVersion": "v1", "kind": "ConfigMap", **config(f"c{index}")})
    assert len((await client.call("GET", MAPS)).body["items"]) == 5000


async def test_aggregated_and_plain_discovery_are_served(client: AsgiClient) -> None:
    form = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    whole = await client.call("GET", "/apis", accept=form)
    assert whole.header("content-type") == ["application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"]
    groups = {group["metadata"]["name"]: group["versions"] for group in whole.body["items"]}
    versions = [version["version"] for version in groups["split.smi-spec.io"]]
    assert versions == ["v1alpha4", "v1alpha3", "v1alpha2", "v1alpha1"]
    split_resource = groups["split.smi-spec.io"][0]["resources"][0]
    assert split_resource["resource"] == "trafficsplits"
    assert [part["subresource"] for part in split_resource["subresources"]] == ["status"]
    for group in groups:
        listed = (await client.call("GET", f"/apis/{group}")).body
        for version in listed["versions"]:
            assert (await client.call("GET", f"/apis/{version['groupVersion']}")).body["resources"]
    assert (await client.call("GET", "/api")).body["versions"] == ["v1", "v1beta1"]
    assert (await client.call("GET", "/apis/v1beta1")).body["groupVersion"] == "v1beta1"
