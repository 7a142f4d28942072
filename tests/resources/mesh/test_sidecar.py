"""Checks of Sidecars (R79, D18)."""

from typing import Any

import pytest
from tests.decoding import check, validate
from tests.make.objects import Object, obj

from headgate.admission.redirection_container import INIT_CONTAINER
from headgate.admission.sidecar_containers import CONTAINER, SidecarOptions, with_transparent_sidecar
from headgate.resources.mesh.sidecar import RESERVED_CONTAINERS, RESERVED_VOLUMES

MOUNT = {"name": "spool", "mountPath": "/spool"}


def agent_sidecar(**spec: Any) -> Object:
    whole = {"selector": {}, "containers": [{"name": "agent", "image": "agent:3"}], **spec}
    return obj("Sidecar", "monitoring", spec={name: value for name, value in whole.items() if value is not None})


def test_a_valid_sidecar_keeps_all_fields_of_its_containers() -> None:
    agent = {"name": "agent", "image": "agent:3", "volumeMounts": [MOUNT], "newerField": {"a": 1}}
    obj = agent_sidecar(
        containers=[agent], volumes=[{"name": "spool", "emptyDir": {}}], env=[{"name": "A", "value": "1"}]
    )
    found = check(obj, request=True)
    assert found.causes == ()
    assert found.hub == obj


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        ({"selector": None}, "spec.selector", "is missing"),
        ({"containers": []}, "spec", "adds nothing"),
        ({"containers": [{"image": "agent:3"}]}, "spec.containers[0].name", "is missing"),
        ({"containers": [{"name": "A_b"}]}, "spec.containers[0].name", "A_b"),
        ({"containers": [{"name": "headgate-sidecar"}]}, "spec.containers[0].name", "which is headgate's own"),
        ({"initContainers": [{"name": "headgate-redirect"}]}, "spec.initContainers[0].name", "headgate's own"),
        ({"volumes": [{"name": "headgate-secrets"}]}, "spec.volumes[0].name", "headgate's own"),
        ({"initContainers": [{"name": "agent"}]}, "spec.containers[0].name", "of spec.initContainers[0] too"),
        ({"env": [{"name": "A"}, {"name": "A"}]}, "spec.env[1].name", "is the name of spec.env[0] too"),
        ({"env": [{"name": "A", "value": 1}]}, "spec.env[0].value", "must be text"),
        ({"containers": [{"name": "a", "image": 3}]}, "spec.containers[0].image", "must be text"),
        ({"containers": [{"name": "a", "volumeMounts": [MOUNT]}]}, "spec.containers[0].volumeMounts[0].name", "spool"),
        (
            {"selector": {"matchExpressions": [{"key": "app", "operator": "In"}]}},
            "spec.selector.matchExpressions[0].values",
            "is missing",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_field(spec: Any, field: str, message: str) -> None:
    (cause,) = validate(agent_sidecar(**spec))
    assert cause.field == field
    assert message in cause.message


def test_the_names_that_injection_uses_are_reserved() -> None:
    pod = {"metadata": {}, "spec": {"containers": []}}
    injected = with_transparent_sidecar(pod, SidecarOptions(image="headgate:1", xds="headgate:15010"))["spec"]
    assert {CONTAINER, INIT_CONTAINER} == set(RESERVED_CONTAINERS)
    assert {item["name"] for item in injected["volumes"]} == set(RESERVED_VOLUMES)
