"""Sidecars add containers, volumes and variables to new pods (R79, D18)."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.admission.stored_view import SHOP, shop_view
from tests.decoding import completed
from tests.make.objects import pod, sidecar

from headgate.admission.injection import explicit_sidecars
from headgate.admission.sidecar_containers import SidecarOptions, transparent_sidecars
from headgate.admission.sidecar_merge import with_sidecars
from headgate.options import InjectionMode
from headgate.resources.meta import Object

OPTIONS = SidecarOptions(image="headgate:1", xds="headgate.headgate-system.svc:15010")
AGENT = {"name": "agent", "image": "agent:3", "volumeMounts": [{"name": "spool", "mountPath": "/spool"}]}
SPOOL = {"name": "spool", "emptyDir": {}}
MODE = {"name": "MODE", "value": "monitored"}
LABELED = {"headgate.dev/inject": "true"}
ADDED, CONFLICTS = "headgate.dev/sidecar-generations", "headgate.dev/sidecar-conflicts"


def monitoring(
    name: str = "monitoring", labels: Mapping[str, str] = {}, generation: int = 3, **additions: Any
) -> Object:
    """Return a Sidecar that adds an agent, unless `additions` say what it adds."""
    added = additions or {"containers": [AGENT], "volumes": [SPOOL]}
    return sidecar(name, labels, namespace=SHOP, metadata={"generation": generation}, **added)


def web_pod(*, annotations: Mapping[str, str] | None = None, **spec: Any) -> Object:
    metadata = {"annotations": dict(annotations or {})}
    return pod("web", namespace=SHOP, labels={"app": "web"}, metadata=metadata, **spec)


def names(obj: Object, field: str) -> list[str]:
    return [item["name"] for item in obj["spec"].get(field, ())]


def said(obj: Object, annotation: str) -> str | None:
    found: str | None = obj["metadata"].get("annotations", {}).get(annotation)
    return found


def test_a_selected_pod_gets_every_addition_and_an_annotation_names_the_generation() -> None:
    added = monitoring(
        containers=[AGENT], initContainers=[{"name": "prepare", "image": "agent:3"}], volumes=[SPOOL], env=[MODE]
    )
    found = with_sidecars(web_pod(initContainers=[{"name": "setup"}]), [added])
    assert found["spec"] == {
        "containers": [{"name": "app", "env": [MODE]}, AGENT],
        "initContainers": [{"name": "setup"}, {"name": "prepare", "image": "agent:3"}],
        "volumes": [SPOOL],
    }
    assert said(found, ADDED) == "monitoring@3"
    assert said(found, CONFLICTS) is None


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, True),
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "other"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
    ],
)
def test_only_selected_pods_get_the_containers(selector: Any, expected: bool) -> None:
    found = with_sidecars(web_pod(), [monitoring(selector=selector, containers=[AGENT])])
    assert ("agent" in names(found, "containers")) is expected
    assert (said(found, ADDED) is not None) is expected


def test_the_items_of_the_pod_win_and_the_annotation_names_each_conflict() -> None:
    own = {"name": "app", "env": [{"name": "MODE", "value": "own"}]}
    before = web_pod(
        containers=[own, {"name": "worker"}],
        initContainers=[{"name": "agent"}],
        volumes=[{"name": "spool", "secret": {}}],
    )
    found = with_sidecars(before, [monitoring(containers=[AGENT], volumes=[SPOOL], env=[MODE])])
    assert found["spec"] == {**before["spec"], "containers": [own, {"name": "worker", "env": [MODE]}]}
    assert said(found, CONFLICTS) == "monitoring/env/app/MODE,monitoring/containers/agent,monitoring/volumes/spool"


def test_sidecars_apply_in_the_order_of_their_names() -> None:
    first, second = monitoring("a", containers=[{"name": "agent", "image": "a"}]), monitoring("b", generation=1)
    found = with_sidecars(web_pod(), [second, first])
    assert found["spec"]["containers"][1] == {"name": "agent", "image": "a"}
    assert said(found, ADDED) == "a@3,b@1"
    assert said(found, CONFLICTS) == "b/containers/agent"
    assert found == with_sidecars(web_pod(), [first, second])


def test_variables_are_for_the_containers_of_the_application_only() -> None:
    found = with_sidecars(web_pod(), [monitoring("a"), monitoring("b", env=[MODE])])
    assert [container.get("env") for container in found["spec"]["containers"]] == [[MODE], None]


def test_adding_the_same_sidecars_again_changes_nothing() -> None:
    once = with_sidecars(web_pod(), [monitoring()])
    assert with_sidecars(once, [monitoring()]) == once


def test_a_pod_with_a_native_sidecar_is_not_injected_again() -> None:
    inject = completed(
        transparent_sidecars("labelled", SidecarOptions(image="headgate:1", xds="headgate:1", native=True))
    )
    once = inject(web_pod(), None, shop_view(LABELED, monitoring()))
    assert inject(once, None, shop_view(LABELED, monitoring())) == once


def test_on_kubernetes_the_proxy_is_first_and_the_probes_of_added_containers_go_through_it() -> None:
    probed = {**AGENT, "livenessProbe": {"httpGet": {"path": "/live", "port": 9000}}}
    inject, view = (
        completed(transparent_sidecars("labelled", OPTIONS)),
        shop_view(LABELED, monitoring(containers=[probed])),
    )
    found = inject(web_pod(), None, view)
    assert names(found, "containers") == ["headgate-sidecar", "app", "agent"]
    assert found["spec"]["containers"][2]["livenessProbe"]["httpGet"]["path"] == "/agent/liveness"
    assert inject(found, None, view) == found


@pytest.mark.parametrize(
    ("mode", "labels", "annotations"),
    [
        ("none", {}, {}),
        ("all", {"headgate.dev/inject": "false"}, {}),
        ("all", {}, {"headgate.dev/process": "external"}),
    ],
)
def test_a_pod_without_a_proxy_and_a_pod_of_headgate_run_get_no_additions(
    mode: InjectionMode, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> None:
    new = web_pod(annotations={**annotations, "headgate.dev/process-id": "4711-88-boot"} if annotations else {})
    if mode == "none" or labels:
        new = {**new, "metadata": {**new["metadata"], "labels": {"app": "web", **labels}}}
    found = completed(explicit_sidecars(mode))(new, None, shop_view({}, monitoring()))
    assert names(found, "containers") == ["app"]
    assert said(found, ADDED) is None


def test_on_one_machine_a_pod_gets_the_containers_with_default_values() -> None:
    port = {"name": "agent", "ports": [{"containerPort": 9000}]}
    found = completed(explicit_sidecars("all"))(web_pod(), None, shop_view({}, monitoring(containers=[port])))
    assert found["spec"]["containers"][1]["ports"] == [{"protocol": "TCP", "containerPort": 9000}]


def test_an_update_of_a_pod_keeps_the_annotations() -> None:
    """`kubectl replace` sends the manifest of the user, which does not have them."""
    before = completed(explicit_sidecars("all"))(web_pod(), None, shop_view({}, monitoring()))
    after = {**before, "metadata": {**before["metadata"], "annotations": {}}}
    assert (
        said(completed(explicit_sidecars("all"))(after, before, shop_view({}, monitoring(generation=4))), ADDED)
        == "monitoring@3"
    )


def test_the_annotation_of_a_copied_pod_is_written_again() -> None:
    copied = web_pod(annotations={ADDED: "monitoring@1", CONFLICTS: "monitoring/containers/agent"})
    found = completed(explicit_sidecars("all"))(copied, None, shop_view({}))
    assert (said(found, ADDED), said(found, CONFLICTS)) == (None, None)
