"""Webhooks: injection as a JSON patch, validation with each mistake, warnings, and conversion between versions."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from starlette.applications import Starlette
from tests.api.reviews import call, review
from tests.make.objects import authorization_policy, namespace, service

from headgate.admission.chain import object_check
from headgate.admission.injection import INJECT_LABELED, OF_REVISIONS, PodNamespace
from headgate.admission.sidecar_containers import SidecarOptions, transparent_sidecars
from headgate.api.webhooks import Reviews, create_webhooks
from headgate.kubernetes.revisions import beside_revisions
from headgate.latest import Latest
from headgate.plane.feed import snapshot_of
from headgate.plane.snapshot_view import SnapshotView
from headgate.resources.core.pod_metadata import INJECT, REVISION
from headgate.resources.meta import Object
from headgate.resources.registry import key_of
from headgate.settings import DEFAULTS

SPLIT = {
    "apiVersion": "split.smi-spec.io/v1alpha4",
    "kind": "TrafficSplit",
    "metadata": {"name": "canary", "namespace": "shop"},
    "spec": {"service": "website", "backends": [{"service": "v1", "weight": 1}]},
}


class FakeView:
    """A view without objects."""

    def get(self, _key: object) -> None:
        return None

    def select(self, *_selection: object) -> Sequence[Object]:
        return ()


def label(pod: Object, _around: PodNamespace, _injected: bool) -> Object:
    """Return a pod with another label and a further container."""
    if pod["spec"].get("hostNetwork"):
        return pod
    metadata = {**pod["metadata"], "labels": {"injected": pod["metadata"]["namespace"]}}
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "containers": [*pod["spec"]["containers"], {}]}}


OPTIONS = SidecarOptions(image="headgate:1", xds="headgate:1")
SIDECARS = transparent_sidecars("labelled", OPTIONS)._replace(create=label)


async def warn(old: Object | None, new: Object | None, *, dry_run: bool, orphan: bool = False) -> Sequence[str]:
    if old or dry_run:
        weights = [obj and obj["spec"]["backends"][0]["weight"] for obj in (old, new)]
        parts = (", if it is not a dry run" if dry_run else "", ", without what it owns" if orphan else "")
        return [f"weight {weights[0]} -> {weights[1]}{''.join(parts)}"]
    if not new or new["kind"] != "TrafficSplit":
        return []
    return [f"spec.service: Service {new['metadata']['namespace']}/{new['spec']['service']} not found"]


@pytest.fixture
def app() -> Starlette:
    return create_webhooks(Reviews(SIDECARS, object_check(DEFAULTS), warn, FakeView), lambda: True)


async def test_injection_answers_with_a_patch_of_the_changed_fields(app: Starlette) -> None:
    """The API server sends the namespace of a new pod beside the pod, whose metadata may have only generateName."""
    pod = {"metadata": {"generateName": "web-"}, "spec": {"containers": [{"name": "app"}], "nodeName": "n"}}
    status, answer = await call(app, "/inject", review(pod))
    assert (status, answer["response"]["uid"], answer["response"]["allowed"]) == (200, "123", True)
    patch = json.loads(base64.b64decode(answer["response"]["patch"]))
    assert patch == [
        {"op": "add", "path": "/metadata/labels", "value": {"injected": "shop"}},
        {"op": "add", "path": "/spec/containers", "value": [{"name": "app"}, {}]},
    ]


async def test_the_first_pod_of_a_labeled_namespace_gets_a_sidecar_before_the_replica_knows_the_namespace() -> None:
    """The API server calls this webhook because of the label. A pod without its sidecar would send and accept plaintext."""
    reviews = Reviews(transparent_sidecars("labelled", OPTIONS), object_check(DEFAULTS), warn, FakeView)
    app = create_webhooks(reviews, lambda: True)
    pod = {"metadata": {"generateName": "web-"}, "spec": {"containers": [{"name": "app", "image": "app"}]}}
    _, answer = await call(app, INJECT_LABELED, review(pod))
    assert b"headgate-sidecar" in base64.b64decode(answer["response"]["patch"])
    _, answer = await call(app, "/inject", review(pod))
    assert "patch" not in answer["response"]
    opted_out = {**pod, "metadata": {"generateName": "web-", "labels": {INJECT: "false"}}}
    _, answer = await call(app, INJECT_LABELED, review(opted_out))
    assert "patch" not in answer["response"]


async def test_a_pod_gets_the_default_sidecar_before_the_replica_knows_that_the_label_of_a_revision_is_removed() -> (
    None
):
    """The API server does not call the webhook of the revision any more."""
    stored = namespace("shop", labels={INJECT: "true", REVISION: "canary"})
    sidecars = beside_revisions(transparent_sidecars("labelled", OPTIONS), Latest(frozenset({"canary"})))
    view = SnapshotView(snapshot_of({key_of(stored): stored}))
    app = create_webhooks(Reviews(sidecars, object_check(DEFAULTS), warn, lambda: view), lambda: True)
    labels = {INJECT: "true"}
    pod = {
        "metadata": {"generateName": "web-", "labels": labels},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    }
    for path in (INJECT_LABELED, "/inject"):
        _, answer = await call(app, path, review(pod))
        assert b"headgate-sidecar" in base64.b64decode(answer["response"]["patch"])
        _, answer = await call(app, f"{path}{OF_REVISIONS}", review(pod))
        assert "patch" not in answer["response"]


async def test_a_pod_that_gets_no_sidecar_is_allowed_without_a_patch(app: Starlette) -> None:
    _, answer = await call(app, "/inject", review({"metadata": {}, "spec": {"hostNetwork": True, "containers": []}}))
    assert answer["response"] == {"uid": "123", "allowed": True}


def workload(kind: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a workload whose pods have this metadata."""
    spec: dict[str, Any] = {"template": {"metadata": metadata, "spec": {"containers": [{"name": "app"}]}}}
    group = "batch" if kind.endswith("Job") else "apps"
    spec = {"jobTemplate": {"spec": spec}} if kind == "CronJob" else spec
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "web", "namespace": "shop"}, "spec": spec}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"])
async def test_the_error_for_an_invalid_annotation_in_a_pod_template_lists_the_valid_values(
    app: Starlette, kind: str
) -> None:
    """Without this error, only the Events of the workload would say why it has no pods."""
    wrong = workload(kind, {"annotations": {"headgate.dev/inject": "yes"}})
    _, answer = await call(app, "/validate", review(wrong))
    (cause,) = answer["response"]["status"]["details"]["causes"]
    path = "spec.jobTemplate.spec.template" if kind == "CronJob" else "spec.template"
    assert cause["field"] == f"{path}.metadata.annotations.headgate.dev/inject"
    assert 'must be "true", "enabled", "false" or "disabled"' in cause["message"]
    assert (await call(app, "/validate", review(workload(kind, {}))))[1]["response"] == {"uid": "123", "allowed": True}


async def test_an_update_may_keep_an_old_mistake_but_not_add_a_new_one(app: Starlette) -> None:
    """Controllers update workloads too, and a workload may be older than headgate."""
    old = workload("Deployment", {"labels": {"headgate.dev/inject": "on"}})
    new = {**old, "metadata": {**old["metadata"], "annotations": {"deployment.kubernetes.io/revision": "2"}}}
    _, answer = await call(app, "/validate", review(new, operation="UPDATE", oldObject=old))
    assert answer["response"]["allowed"]
    worse = workload("Deployment", {"labels": {"headgate.dev/inject": "off"}})
    _, answer = await call(app, "/validate", review(worse, operation="UPDATE", oldObject=old))
    assert not answer["response"]["allowed"]


@pytest.mark.parametrize(
    ("field", "key", "value", "own"),
    [
        ("labels", "sidecar.istio.io/inject", "true", "true"),
        ("annotations", "linkerd.io/inject", "ingress", "true"),
        ("annotations", "openservicemesh.io/sidecar-injection", "disabled", "false"),
        ("labels", "openservicemesh.io/monitored-by", "osm", "true"),
    ],
)
async def test_the_warning_about_another_meshs_injection_key_names_headgates_key(
    app: Starlette, field: str, key: str, value: str, own: str
) -> None:
    warning = f'write the label headgate.dev/inject: "{own}"'
    written = {field: {key: value}}
    pod = {"metadata": written, "spec": {"hostNetwork": True, "containers": []}}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", **written}}
    for path, obj, where in (
        ("/inject", pod, "metadata"),
        ("/validate", namespace, "metadata"),
        ("/validate", workload("Deployment", written), "spec.template.metadata"),
    ):
        _, answer = await call(app, path, review(obj))
        (found,) = answer["response"]["warnings"]
        assert found.startswith(f"{where}.{field}.{key}: ")
        assert found.endswith(warning)


async def test_another_meshs_injection_key_beside_headgates_key_gives_no_warning(app: Starlette) -> None:
    metadata = {"name": "shop", "labels": {"istio-injection": "enabled", "headgate.dev/inject": "enabled"}}
    _, answer = await call(app, "/validate", review({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
    assert answer["response"] == {"uid": "123", "allowed": True}


async def test_a_misspelled_annotation_of_pods_gives_a_warning(app: Starlette) -> None:
    wrong = {"annotations": {"headgate.dev/proxy-cpus": "1"}}
    expected = "metadata.annotations.headgate.dev/proxy-cpus: headgate.dev/proxy-cpus has no effect"
    _, answer = await call(app, "/inject", review({"metadata": wrong, "spec": {"containers": []}}))
    (found,) = answer["response"]["warnings"]
    assert found.startswith(expected)
    assert answer["response"]["patch"]
    _, answer = await call(app, "/validate", review(workload("Deployment", wrong)))
    (found,) = answer["response"]["warnings"]
    assert found.startswith(f"spec.template.{expected}")


async def test_the_injection_annotation_on_a_namespace_is_denied_because_only_the_label_applies(app: Starlette) -> None:
    metadata = {"name": "shop", "annotations": {"headgate.dev/inject": "enabled"}}
    _, answer = await call(app, "/validate", review({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
    assert "write it in metadata.labels" in answer["response"]["status"]["message"]


async def test_a_valid_object_is_allowed_with_warnings(app: Starlette) -> None:
    """R22."""
    _, answer = await call(app, "/validate", review(SPLIT))
    assert answer["response"] == {
        "uid": "123",
        "allowed": True,
        "warnings": ["spec.service: Service shop/website not found"],
    }


@pytest.mark.parametrize(("length", "expected"), [(300, 300), (3000, 256)])
async def test_a_warning_is_shortened_only_if_the_api_server_would_drop_warnings(length: int, expected: int) -> None:
    """It drops the last ones when all have more than 4,096 characters; `...` says that the end is missing."""

    async def long(*_write: object, dry_run: bool) -> Sequence[str]:
        return ["a" * length, "b" * length]

    reviews = Reviews(SIDECARS, object_check(DEFAULTS), long, FakeView)
    _, answer = await call(create_webhooks(reviews, lambda: True), "/validate", review(SPLIT))
    warnings = answer["response"]["warnings"]
    assert [len(text) for text in warnings] == [expected] * 2
    assert warnings[0].endswith("a" if length == expected else "a ...")


async def test_an_invalid_object_is_denied_with_each_field(app: Starlette) -> None:
    """R18, D1. kubectl prints the kind and the name: one command often writes several objects."""
    spec = {"service": "website", "backends": [{"service": "website", "weight": 1}]}
    _, answer = await call(app, "/validate", review({**SPLIT, "spec": spec}))
    assert not answer["response"]["allowed"]
    status = answer["response"]["status"]
    assert (status["code"], status["details"]["kind"], status["details"]["name"]) == (422, "TrafficSplit", "canary")
    assert status["message"].startswith('TrafficSplit.split.smi-spec.io "canary" is invalid: spec.backends[0].service:')
    (cause,) = status["details"]["causes"]
    assert cause["field"] == "spec.backends[0].service"


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("gateway.networking.x-k8s.io/v1alpha1", "XLaterPolicy"),
        ("gateway.networking.x-k8s.io/v1alpha1", "XListenerSet"),
        ("gateway.networking.k8s.io/v1alpha1", "LaterRoute"),
        ("gateway.networking.k8s.io/v9", "HTTPRoute"),
    ],
)
async def test_a_kind_of_the_gateway_api_that_only_other_controllers_know_is_allowed(
    app: Starlette, version: str, kind: str
) -> None:
    obj = {"apiVersion": version, "kind": kind, "metadata": {"name": "a", "namespace": "shop"}, "spec": {"x": 1}}
    for reviewed in (review(obj), review(None, operation="DELETE", oldObject=obj)):
        _, answer = await call(app, "/validate", reviewed)
        assert answer["response"] == {"uid": "123", "allowed": True}


async def test_an_invalid_authorization_policy_is_denied(app: Starlette) -> None:
    policy = authorization_policy("web", {"app": "web"})
    spec = {**policy["spec"], "action": "DENY"}
    _, answer = await call(app, "/validate", review({**policy, "spec": spec}))
    assert [cause["field"] for cause in answer["response"]["status"]["details"]["causes"]] == ["spec.action"]


async def test_a_status_that_an_earlier_version_wrote_denies_no_update(app: Starlette) -> None:
    """The API server sends the stored status with each write, and no user can correct it."""
    old = {**SPLIT, "status": {"ports": [{"port": "http"}]}}
    labeled = {**old, "metadata": {**SPLIT["metadata"], "labels": {"a": "b"}}}
    _, answer = await call(app, "/validate", review(labeled, operation="UPDATE", oldObject=old))
    assert answer["response"]["allowed"]
    _, answer = await call(app, "/validate", review(labeled, operation="UPDATE", oldObject=SPLIT))
    assert not answer["response"]["allowed"]


async def test_a_body_that_is_not_a_review_is_a_bad_request(app: Starlette) -> None:
    for path in ("/inject", "/validate", "/convert"):
        for body in (b"", b"[]", b'{"request": 1}'):
            status, answer = await call(app, path, body)
            assert status == 400
            assert "the body is not" in answer


async def test_weights_survive_the_conversion_to_another_version_and_back(app: Starlette) -> None:
    """R9, R10."""
    old = {**SPLIT, "apiVersion": "split.smi-spec.io/v1alpha1"}
    old["spec"] = {
        "service": "website",
        "backends": [{"service": "v1", "weight": "1500m"}, {"service": "v2", "weight": "1"}],
    }
    new = await converted(app, "split.smi-spec.io/v1alpha4", old)
    assert [backend["weight"] for backend in new["spec"]["backends"]] == [3, 2]
    assert await converted(app, "split.smi-spec.io/v1alpha1", new) == old


async def converted(app: Starlette, version: str, obj: Object) -> Any:
    request = {"uid": "9", "desiredAPIVersion": version, "objects": [obj]}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    _, answer = await call(app, "/convert", body)
    assert answer["response"]["result"] == {"status": "Success"}
    (found,) = answer["response"]["convertedObjects"]
    return found


async def test_the_error_about_a_failed_conversion_names_the_invalid_field(app: Starlette) -> None:
    old = {**SPLIT, "apiVersion": "split.smi-spec.io/v1alpha1", "spec": {"service": "website", "backends": "none"}}
    request = {"uid": "9", "desiredAPIVersion": "split.smi-spec.io/v1alpha4", "objects": [old]}
    _, answer = await call(app, "/convert", {"apiVersion": "v1", "kind": "ConversionReview", "request": request})
    assert answer["response"]["result"]["status"] == "Failure"
    assert answer["response"]["result"]["message"].startswith("spec.backends: must be a list")


async def test_a_stored_object_with_a_mistake_does_not_hide_the_remaining_objects(app: Starlette) -> None:
    """Another mesh has accepted it. The API server asks for all objects of a kind at a time."""
    heavy = {"service": "website", "backends": [{"service": "v1", "weight": "heavy"}]}
    metadata = {**SPLIT["metadata"], "uid": "5e3c"}
    old = {**SPLIT, "apiVersion": "split.smi-spec.io/v1alpha1", "metadata": metadata, "spec": heavy}
    assert await converted(app, "split.smi-spec.io/v1alpha4", old) == {**old, "apiVersion": SPLIT["apiVersion"]}


async def test_objects_are_converted_before_the_replica_is_ready() -> None:
    """The replica becomes ready after it has listed objects, which the API server converts with this webhook."""

    def no_view() -> FakeView:
        raise AssertionError("conversion needs no objects")

    app = create_webhooks(Reviews(SIDECARS, object_check(DEFAULTS), warn, no_view), lambda: False)
    assert (await call(app, "/readyz", b"", "GET"))[0] == 503
    old = {**SPLIT, "apiVersion": "split.smi-spec.io/v1alpha2"}
    assert await converted(app, "split.smi-spec.io/v1alpha4", old) == SPLIT


async def test_a_replica_is_ready_once_it_has_compiled_the_objects() -> None:
    for is_ready, status in ((False, 503), (True, 200)):
        app = create_webhooks(
            Reviews(SIDECARS, object_check(DEFAULTS), warn, FakeView), lambda is_ready=is_ready: is_ready
        )
        assert (await call(app, "/readyz", b"", "GET"))[0] == status
        assert (await call(app, "/healthz", b"", "GET"))[0] == 200


async def test_a_review_of_an_update_or_a_deletion_compares_with_the_stored_object(app: Starlette) -> None:
    heavier = {**SPLIT, "spec": {**SPLIT["spec"], "backends": [{"service": "v1", "weight": 2}]}}
    _, updated = await call(app, "/validate", review(heavier, operation="UPDATE", oldObject=SPLIT))
    assert updated["response"]["warnings"] == ["weight 1 -> 2"]
    deletion = {"operation": "DELETE", "object": None, "oldObject": SPLIT}
    _, deleted = await call(app, "/validate", review(SPLIT, **deletion, dryRun=True))
    assert deleted["response"]["warnings"] == ["weight 1 -> None, if it is not a dry run"]
    for options, kept in (
        ({"propagationPolicy": "Orphan"}, True),
        ({"orphanDependents": True}, True),
        ({"propagationPolicy": "Background", "orphanDependents": None}, False),
        ({"propagationPolicy": None}, False),
        (None, False),
    ):
        _, deleted = await call(app, "/validate", review(SPLIT, **deletion, options=options))
        assert deleted["response"]["warnings"] == [f"weight 1 -> None{', without what it owns' if kept else ''}"]
    _, unreadable = await call(app, "/validate", review(SPLIT, **{**deletion, "oldObject": {"kind": "TrafficSplit"}}))
    assert unreadable["response"] == {"uid": "123", "allowed": True}
    collector = {"username": "system:serviceaccount:kube-system:namespace-controller"}
    _, collected = await call(app, "/validate", review(SPLIT, **deletion, userInfo=collector))
    assert collected["response"] == {"uid": "123", "allowed": True}


async def test_a_service_gets_warnings_and_is_never_denied() -> None:
    """Kubernetes validates Services; headgate reports what has no effect."""

    async def about(_old: Object | None, new: Object | None, *, dry_run: bool, orphan: bool = False) -> Sequence[str]:
        assert new
        assert not dry_run
        return [f"about {new['metadata']['name']}"]

    app = create_webhooks(Reviews(SIDECARS, object_check(DEFAULTS), about, FakeView), lambda: True)
    _, answer = await call(app, "/validate", review(service("web", 80, namespace="shop")))
    assert (answer["response"]["allowed"], answer["response"]["warnings"]) == (True, ["about web"])
    _, answer = await call(app, "/validate", review(service("web", 80, namespace="shop", type="Invented")))
    assert (answer["response"]["allowed"], answer["response"].get("warnings")) == (True, None)
