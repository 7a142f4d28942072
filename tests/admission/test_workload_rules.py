import pytest
from tests.make.objects import deployment, pod

from headgate.admission.workloads import check_workload
from headgate.errors import Invalid


def test_valid_workloads_are_admitted_unchanged():
    for obj in (
        deployment("web"),
        pod("web"),
        {"apiVersion": "v1", "kind": "Secret", "metadata": {}},
    ):
        assert check_workload(obj, None) is obj


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({"replicas": "two"}, "spec.replicas: must be a whole number, not text"),
        ({"replicas": -1}, "spec.replicas: must be 0 or more"),
        ({"selector": {"matchLabels": {"app": "other"}}}, "spec.selector: does not select the labels of spec.template"),
        ({"strategy": {"type": "Blue"}}, "spec.strategy.type: must be RollingUpdate or Recreate, not 'Blue'"),
    ],
)
def test_an_invalid_deployment_is_rejected_with_its_field(spec, cause):
    with pytest.raises(Invalid) as caught:
        check_workload(deployment("web", **spec), None)
    assert str(caught.value).startswith(cause)


def test_a_mistake_in_a_pod_template_has_its_full_path():
    wrong = deployment("web")
    wrong["spec"]["template"]["spec"] = {"containers": [{"name": "a", "command": "python3 x.py"}]}
    with pytest.raises(Invalid, match=r"spec.template.spec.containers\[.*\].command: must be a list"):
        check_workload(wrong, None)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "spec.containers"),
        ({"containers": [{"name": "../x"}]}, r"spec.containers\[0\].name"),
        ({"containers": [{"name": "a"}, {"name": "a"}]}, r"spec.containers\[1\].name"),
        ({"containers": [{"name": "a"}], "initContainers": [{"name": "volumes/x"}]}, r"spec.initContainers\[0\].name"),
    ],
)
def test_an_invalid_container_name_is_rejected(spec, field):
    with pytest.raises(Invalid, match=f"^{field}: "):
        check_workload({**pod("web"), "spec": spec}, None)
