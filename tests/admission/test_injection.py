"""Sidecar injection is decided once, when a pod is created (R77)."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.admission.stored_view import SHOP, shop_view
from tests.decoding import completed
from tests.make.objects import config_map, container, obj, pod, tls_config

from headgate.admission.injection import explicit_sidecars
from headgate.errors import Invalid
from headgate.options import InjectionMode
from headgate.resources.core.pod_metadata import APPLICATION_PORTS, EXCLUDED_PORTS, INJECT, PROCESS, PROCESS_ID, SIDECAR
from headgate.resources.meta import Object

IDENTITY = "4711-88-7f6c-boot"


def app_pod(
    *, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None, port: int = 8080
) -> Object:
    app = container(ports=[{"name": "http", "containerPort": port, "protocol": "TCP"}])
    return pod(
        "web", containers=[app], namespace=SHOP, labels=labels, metadata={"annotations": dict(annotations or {})}
    )


def templated(template: Any) -> Object:
    """Return a Deployment with a pod template."""
    return obj("Deployment", "web", namespace=SHOP, spec={"template": template})


def strict(labels: Mapping[str, str], where: str = SHOP) -> Object:
    return tls_config("strict", labels, namespace=where)


def admitted(
    new: Object,
    old: Object | None = None,
    *,
    mode: InjectionMode = "all",
    around: Mapping[str, str] = {},
    configs: Sequence[Object] = (),
) -> Object:
    """Return the pod after admission, if the namespace `shop` has the labels `around` and these TLSConfigs."""
    return completed(explicit_sidecars(mode))(new, old, shop_view(around, *configs))


def said(obj: Object, name: str = SIDECAR) -> str | None:
    return obj["metadata"].get("annotations", {}).get(name)


@pytest.mark.parametrize(
    ("mode", "own", "annotated", "around", "expected"),
    [
        ("all", "", "", "", "explicit"),
        ("labelled", "", "", "", None),
        ("none", "true", "true", "true", None),
        ("all", "false", "", "", None),
        ("all", "", "false", "", None),
        ("all", "", "", "false", None),
        ("labelled", "true", "", "", "explicit"),
        ("labelled", "", "true", "", "explicit"),
        ("labelled", "", "", "true", "explicit"),
        ("all", "true", "false", "false", "explicit"),
        ("labelled", "false", "true", "true", None),
        ("labelled", "", "false", "true", None),
    ],
)
def test_the_pods_label_precedes_its_annotation_the_namespaces_label_and_the_option(
    mode, own, annotated, around, expected
):
    labels, annotations, outer = ({INJECT: word} if word else {} for word in (own, annotated, around))
    assert said(admitted(app_pod(labels=labels, annotations=annotations), mode=mode, around=outer)) == expected


@pytest.mark.parametrize(
    ("mode", "own", "annotated", "around", "expected"),
    [
        ("all", "", "", "", "explicit"),
        ("labelled", "", "", "", "explicit"),
        ("labelled", "", "", "false", "explicit"),
        ("labelled", "false", "", "", None),
        ("all", "", "false", "", None),
        ("none", "", "", "", None),
        ("none", "true", "", "", None),
    ],
)
def test_a_tls_config_gives_the_pods_that_it_selects_a_sidecar(mode, own, annotated, around, expected):
    """R77. The pod can opt out, and `--sidecars none` disables all sidecars."""
    labels, annotations, outer = ({INJECT: word} if word else {} for word in (own, annotated, around))
    made = app_pod(labels={"app": "web", "stage": "production", **labels}, annotations=annotations)
    for selector in ({"app": "web"}, {"app": "web", "stage": "production"}, {}):
        assert said(admitted(made, mode=mode, around=outer, configs=[strict(selector)])) == expected


def test_a_tls_config_selects_pods_of_its_namespace_with_all_of_its_labels():
    made = app_pod(labels={"app": "web"})
    assert said(admitted(made, mode="labelled", configs=[strict({"app": "web", "stage": "production"})])) is None
    assert said(admitted(made, mode="labelled", configs=[strict({"app": "web"}, "default")])) is None


def test_a_template_selected_by_a_tls_config_is_checked_like_a_pod_with_a_sidecar():
    spec = app_pod(port=15001)["spec"]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec}
    assert admitted(templated(template), mode="labelled")
    with pytest.raises(Invalid, match="15001"):
        admitted(templated(template), mode="labelled", configs=[strict({"app": "web"})])


def test_injection_makes_a_new_decision_for_a_copy_of_a_running_pod():
    copied = app_pod(annotations={SIDECAR: "transparent", APPLICATION_PORTS: "8080=20000", "team": "blue"})
    assert admitted(copied)["metadata"]["annotations"] == {SIDECAR: "explicit", "team": "blue"}
    assert admitted(copied, mode="none")["metadata"]["annotations"] == {"team": "blue"}


def test_an_edit_of_a_pod_neither_adds_nor_removes_its_sidecar():
    old = app_pod(annotations={SIDECAR: "explicit", APPLICATION_PORTS: "8080=20000"})
    replaced = admitted(app_pod(labels={INJECT: "false"}), old)
    assert replaced["metadata"]["annotations"] == old["metadata"]["annotations"]
    without = app_pod(annotations={"team": "blue"})
    assert admitted(without, app_pod()) == without


@pytest.mark.parametrize("name", [SIDECAR, APPLICATION_PORTS, EXCLUDED_PORTS, PROCESS, PROCESS_ID])
def test_an_edit_of_an_injection_annotation_is_rejected(name):
    old = app_pod(annotations={SIDECAR: "explicit", APPLICATION_PORTS: "8080=20000"})
    changed = app_pod(annotations={**old["metadata"]["annotations"], name: "9090"})
    with pytest.raises(Invalid, match="after the pod is created") as refused:
        admitted(changed, old)
    assert [cause.field for cause in refused.value.causes] == [f"metadata.annotations.{name}"]


def test_the_runtime_adds_application_ports_until_the_pod_has_started():
    """A Service may be newer than the pod that it selects."""
    old = app_pod(annotations={SIDECAR: "explicit"})
    bound = app_pod(annotations={SIDECAR: "explicit", APPLICATION_PORTS: "8080=20000"})
    assert admitted(bound, old) == bound
    more = app_pod(annotations={SIDECAR: "explicit", APPLICATION_PORTS: "8080=20000,9090=20001"})
    assert admitted(more, bound) == more
    for state in ({"running": {"startedAt": "2026-01-01T00:00:00Z"}}, {"terminated": {"exitCode": 1}}):
        started = {**bound, "status": {"containerStatuses": [{"name": "web", "state": state}]}}
        with pytest.raises(Invalid, match="after the pod is created"):
            admitted(more, started)
    waiting = {**bound, "status": {"containerStatuses": [{"name": "web", "state": {"waiting": {}}}]}}
    assert admitted(more, waiting) == more
    with pytest.raises(Invalid, match="after the pod is created"):
        admitted(app_pod(annotations={SIDECAR: "explicit", APPLICATION_PORTS: "9090=20001"}), bound)


def test_the_sidecars_own_port_is_rejected_with_its_field():
    with pytest.raises(Invalid, match="15001 is the sidecar's own") as refused:
        admitted(app_pod(port=15001))
    assert refused.value.causes[0].field == "spec.containers[0].ports[0].containerPort"
    with pytest.raises(Invalid, match="15001") as refused:
        admitted(templated({"spec": app_pod(port=15001)["spec"]}))
    assert refused.value.causes[0].field == "spec.template.spec.containers[0].ports[0].containerPort"
    assert said(admitted(app_pod(port=15001, labels={INJECT: "false"}))) is None


def test_a_pod_with_the_gateways_service_account_is_rejected():
    """R70. Its requests would look like requests through the gateway."""

    def of(namespace: str, made: dict[str, Any]) -> dict[str, Any]:
        made["metadata"]["namespace"] = namespace
        return made

    taken, system = app_pod(), "headgate-system"
    taken["spec"]["serviceAccountName"] = "gateway"
    for made, field in (
        (taken, "spec.serviceAccountName"),
        (templated({"spec": taken["spec"]}), "spec.template.spec.serviceAccountName"),
    ):
        assert admitted(of("shop", made))
        with pytest.raises(Invalid, match="is the ServiceAccount of the node's gateway") as refused:
            admitted(of(system, made))
        assert refused.value.causes[0].field == field
        assert admitted(of(system, made), mode="none")


def test_injection_does_not_change_pod_templates():
    workload = templated({"metadata": {"labels": {"app": "web"}}, "spec": app_pod()["spec"]})
    assert admitted(workload) == workload


def test_a_pod_of_headgate_run_always_has_a_sidecar():
    external = {PROCESS: "external", PROCESS_ID: IDENTITY}
    assert said(admitted(app_pod(annotations={**external, INJECT: "false"}), mode="labelled")) == "explicit"
    with pytest.raises(Invalid, match="this headgate runs with --sidecars none"):
        admitted(app_pod(annotations=external), mode="none")
    with pytest.raises(Invalid, match="must name a process"):
        admitted(app_pod(annotations={PROCESS: "external", PROCESS_ID: "self"}))
    with pytest.raises(Invalid, match="must be external, not 'foreign'"):
        admitted(app_pod(annotations={PROCESS: "foreign", PROCESS_ID: IDENTITY}))


def test_injection_leaves_other_kinds_unchanged():
    settings = config_map("a", namespace=SHOP)
    assert admitted(settings) is settings
