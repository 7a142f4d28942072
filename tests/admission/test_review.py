"""Both hosts refuse the same objects with the same words, and warn of the same: one machine's API, and a cluster's webhooks."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import pytest
from tests.admission.stored_view import shop_view
from tests.admission.web_pod import OPTIONS
from tests.cli.conftest import plane
from tests.embedded_api import TOKEN, ApiResponse, AsgiClient
from tests.make import objects
from tests.make.sound_objects import path

from headgate.admission.chain import admission, object_check
from headgate.admission.injection import explicit_sidecars
from headgate.admission.review import review
from headgate.admission.sidecar_containers import transparent_sidecars
from headgate.api.webhooks import Reviews, create_webhooks
from headgate.compiler.snapshot import Snapshot
from headgate.envoy.node_ids import OUTBOUND_PORT
from headgate.options import InjectionMode
from headgate.plane import write_warnings
from headgate.plane.live_state import LiveState
from headgate.plane.snapshot_view import SnapshotView
from headgate.plane.write_warnings import prepare_warnings, warnings_before_write
from headgate.resources.meta import Object
from headgate.resources.registry import find_written, key_of
from headgate.settings import DEFAULTS
from headgate.standalone.apiserver.app import create_app
from headgate.standalone.store.memory import MemoryStore


class Answer(NamedTuple):
    """The answer to a write: its warnings, and the message with the causes if it is refused."""

    warnings: tuple[str, ...]
    refusal: str = ""
    causes: tuple[tuple[str, str], ...] = ()


class TwoHosts:
    """The API of one machine and the webhooks of a cluster, over the same objects."""

    def __init__(self) -> None:
        sidecars = explicit_sidecars("labelled")
        self.store = MemoryStore(check=object_check(DEFAULTS), admit=admission(sidecars, {}))
        self.live_state = LiveState(self.store, *plane(self.store))
        machine = create_app(self.store, token=TOKEN, prepare_warnings=partial(prepare_warnings, self.live_state))
        self._machine = AsgiClient(machine, self.store)
        reviews = Reviews(
            transparent_sidecars("labelled", OPTIONS),
            object_check(DEFAULTS),
            partial(warnings_before_write, self.live_state),
            lambda: SnapshotView(self.live_state.feed.snapshot.get() or Snapshot()),
        )
        self._cluster = AsgiClient(create_webhooks(reviews, lambda: True), self.store)

    async def write(self, obj: Object, old: Object | None = None) -> tuple[Answer, Answer]:
        """Send a write to the webhooks of the cluster, then to the API of the machine; return the answers of both."""
        return await self._reviewed(obj, old), await self._written(obj, old)

    async def delete(self, stored: Object, policy: str) -> tuple[Answer, Answer]:
        """Send a deletion of a stored object to the webhooks, then to the API of the machine; return the answers of both."""
        options = {"propagationPolicy": policy}
        request = {"uid": "1", "operation": "DELETE", "object": None, "oldObject": stored, "options": options}
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        response = (await self._cluster.call("POST", "/validate", body)).body["response"]
        kind = find_written(stored["apiVersion"], stored["kind"])
        assert kind
        deleted = await self._machine.call("DELETE", f"{path(kind)}/{stored['metadata']['name']}", options)
        return _answer(response.get("warnings", ()), response.get("status")), _with_warnings_of(deleted)

    async def _reviewed(self, obj: Object, old: Object | None) -> Answer:
        request = {"uid": "1", "operation": "UPDATE" if old else "CREATE", "object": obj, "oldObject": old}
        request |= {"namespace": obj["metadata"].get("namespace", "")}
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        called = "/inject" if obj["kind"] == "Pod" else "/validate"
        response = (await self._cluster.call("POST", called, body)).body["response"]
        return _answer(response.get("warnings", ()), response.get("status"))

    async def _written(self, obj: Object, old: Object | None) -> Answer:
        kind = find_written(obj["apiVersion"], obj["kind"])
        assert kind
        url = path(kind)
        if old:
            found = await self._machine.call("PUT", f"{url}/{obj['metadata']['name']}", obj)
        else:
            found = await self._machine.call("POST", url, obj)
        return _with_warnings_of(found)


def _with_warnings_of(response: ApiResponse) -> Answer:
    texts = [re.sub(r'^299 - "(.*)"$', r"\1", text).replace('\\"', '"') for text in response.header("warning")]
    return _answer(texts, response.body if response.code >= 400 else None)


def _answer(warnings: Any, status: Any) -> Answer:
    if not status:
        return Answer(tuple(warnings))
    causes = tuple((item["field"], item["message"]) for item in status["details"]["causes"])
    return Answer(tuple(warnings), status["message"], causes)


@pytest.fixture
async def hosts(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[TwoHosts]:
    for limit in ("WARNINGS_S", "PREVIEW_S", "EFFECT_S"):  # a busy machine leaves out late warnings
        monkeypatch.setattr(write_warnings, limit, 60.0)
    found = TwoHosts()
    parts = [asyncio.create_task(part.run()) for part in (found.live_state.feed, found.live_state.loop)]
    await found.live_state.wait_compiled()
    yield found
    for part in parts:
        part.cancel()
    await asyncio.gather(*parts, return_exceptions=True)


INJECTED = {"headgate.dev/inject": "true"}
APP = objects.container("app", 8080, image="app")
OWN_PORT = objects.container("app", OUTBOUND_PORT, image="app")


def web_deployment(*containers: Object, **template: Any) -> Object:
    labels = {"app": "web", **template.pop("labels", {})}
    return objects.deployment(
        "web", *(containers or (APP,)), labels={"app": "web"}, template={"labels": labels, **template}
    )


def web_pod_of(*containers: Object, **metadata: Any) -> Object:
    return objects.pod("web", containers=containers or (APP,), **metadata)


OBJECTS: Mapping[str, tuple[Object, str]] = {
    "another mesh's key on a pod": (
        web_pod_of(labels={"sidecar.istio.io/inject": "true"}),
        "headgate does not read this key",
    ),
    "another mesh's key on an injected pod": (
        web_pod_of(labels={"sidecar.istio.io/inject": "true", **INJECTED}),
        "",
    ),
    "another mesh's key in a template": (
        web_deployment(annotations={"linkerd.io/inject": "enabled"}),
        "spec.template.metadata.annotations.linkerd.io/inject: headgate does not read this key",
    ),
    "another mesh's key on a namespace": (
        objects.namespace("istio", labels={"istio-injection": "disabled"}),
        'write the label headgate.dev/inject: "false"',
    ),
    "another mesh's key elsewhere": (objects.service("web", labels={"istio.io/rev": "1"}), ""),
    "a misspelled key of a pod": (web_pod_of(annotations={"headgate.dev/proxy-cpus": "1"}), "headgate.dev/proxy-cpu?"),
    "a misspelled key in a template": (
        web_deployment(labels={"headgate.dev/injects": "true"}),
        "spec.template.metadata.labels.headgate.dev/injects: headgate.dev/injects has no effect",
    ),
    "a misspelled key of a split": (
        objects.split("web", {"v1": 1}, annotations={"headgate.dev/sticki": "cookie"}),
        "headgate.dev/sticky?",
    ),
    "a missing Service": (objects.split("web", {"v1": 1}), "Service default/web not found"),
    "a wrong value on a pod": (web_pod_of(labels={"headgate.dev/inject": "on"}), 'must be "true", "enabled"'),
    "a wrong value in a template": (web_deployment(labels={"headgate.dev/inject": "on"}), 'must be "true", "enabled"'),
    "a key beside the template": (
        {**web_deployment(), "metadata": {**web_deployment()["metadata"], "labels": INJECTED}},
        "has no effect here",
    ),
    "the sidecar's port on a pod": (web_pod_of(OWN_PORT, labels=INJECTED), "is the sidecar's own port"),
    "the sidecar's port in a template": (web_deployment(OWN_PORT, labels=INJECTED), "is the sidecar's own port"),
    "two mistakes of a template": (
        web_deployment(OWN_PORT, labels=INJECTED, annotations={"headgate.dev/excluded-inbound-ports": "x"}),
        "must be ports separated by commas",
    ),
    "a split of itself": (objects.split("web", {"web": 1}), "spec.backends[0].service"),
    "a namespace with an annotation": (
        objects.namespace("shop", annotations={"headgate.dev/inject": "true"}),
        "write it in metadata.labels",
    ),
}


FOREIGN = (
    ("labels", "istio-injection"),
    ("labels", "istio.io/rev"),
    ("annotations", "linkerd.io/inject"),
    ("annotations", "openservicemesh.io/sidecar-injection"),
    ("labels", "sidecar.istio.io/inject"),
    ("annotations", "sidecar.istio.io/inject"),
)
METADATA: tuple[Mapping[str, Mapping[str, str]], ...] = (
    *({field: {key: value}} for field, key in FOREIGN for value in ("true", "enabled", "false", "disabled", "1-2")),
    {"labels": {"sidecar.istio.io/inject": "false", "headgate.dev/inject": "true"}},
    {"annotations": {"openservicemesh.io/inbound-port-exclusion-list": "9090"}},
    {"labels": {"headgate.dev/injects": "true"}, "annotations": {"linkerd.io/inject": "disabled"}},
    {"annotations": {"headgate.dev/proxy-cpus": "1", "headgate.dev/inject": "true"}},
    {},
)


@pytest.mark.parametrize("capture", ["explicit", "transparent"])
@pytest.mark.parametrize("mode", ["all", "labelled", "none"])
@pytest.mark.parametrize("label", ["", "true", "false"])
def test_a_pod_and_a_template_have_the_same_warnings(capture: str, mode: InjectionMode, label: str) -> None:
    """The review of a workload warns its writer of what the review of its pods warns, which only a controller reads."""
    sidecars = explicit_sidecars(mode) if capture == "explicit" else transparent_sidecars(mode, OPTIONS)
    view = shop_view({"headgate.dev/inject": label} if label else {}, name="default")
    count = 0
    for metadata in METADATA:
        fields = {field: {"app": "web", **named} if field == "labels" else named for field, named in metadata.items()}
        template = review(web_deployment(**metadata), None, view, sidecars).warnings
        pod = review(web_pod_of(**{"labels": {"app": "web"}, **fields}), None, view, sidecars).warnings
        assert [text.replace("spec.template.", "") for text in template] == list(pod)
        count += len(pod)
    assert count


@pytest.mark.parametrize(
    ("value", "mode", "warned"),
    [
        ("false", "all", True),
        ("false", "none", True),
        ("true", "all", False),
        ("true", "none", True),
    ],
)
def test_another_meshs_key_is_warned_of_unless_it_asks_for_a_sidecar_that_the_pod_gets(
    value: str, mode: InjectionMode, warned: bool
) -> None:
    view = shop_view({}, name="default")
    for obj in (
        web_pod_of(labels={"sidecar.istio.io/inject": value}),
        web_deployment(labels={"sidecar.istio.io/inject": value}),
    ):
        assert bool(review(obj, None, view, explicit_sidecars(mode)).warnings) is warned


@pytest.mark.parametrize("name", OBJECTS)
async def test_both_hosts_give_the_same_answer_to_a_new_object(hosts: TwoHosts, name: str) -> None:
    obj, said = OBJECTS[name]
    cluster, machine = await hosts.write(obj)
    assert machine == cluster
    assert said in " ".join((*machine.warnings, machine.refusal))
    assert bool(machine.warnings or machine.refusal) == bool(said)


async def test_both_hosts_warn_of_an_update_of_a_workload(hosts: TwoHosts) -> None:
    await hosts.write(web_deployment())
    old = await hosts.store.get(key_of(web_deployment()))
    for new in (
        web_deployment(annotations={"linkerd.io/inject": "enabled", "headgate.dev/proxy-cpus": "1"}),
        web_deployment(OWN_PORT, labels=INJECTED),
    ):
        cluster, machine = await hosts.write(new, old)
        assert machine == cluster
        assert machine.warnings or machine.refusal


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
async def test_the_warning_of_a_deletion_is_about_what_goes_with_it(hosts: TwoHosts, policy: str) -> None:
    """With `--cascade=orphan` the TrafficSplit of a Canary stays, so its weights do not change."""
    for number, name in enumerate(("website", "v1"), 1):
        await hosts.store.create(objects.service(name, 8080, selector={"app": name}))
        await hosts.store.create(objects.endpoint_slice(name, [f"127.9.9.{number}"], {"p8080": 8080}))
    canary = await hosts.store.create(objects.canary("website", {"v1": 1}))
    owner = {name: canary[name] for name in ("apiVersion", "kind")}
    owner |= {name: canary["metadata"][name] for name in ("name", "uid")}
    split = objects.split("website", {"v1": 1})
    split["metadata"]["ownerReferences"] = [owner]
    await hosts.live_state.wait_compiled(await hosts.store.create(split))
    cluster, machine = await hosts.delete(canary, policy)
    effect = (
        "effect on requests and access: Service default/website:8080: all requests: all of them from default/v1:8080"
        " to default/website:8080"
    )
    assert machine == cluster == Answer(() if policy == "Orphan" else (effect,))
