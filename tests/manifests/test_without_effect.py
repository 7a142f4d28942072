"""Objects of files that headgate does not carry out are stored or left out, and named in one line each."""

import json

from tests.make.definitions import cron_tab, definition
from tests.make.objects import config_map, container, deployment, pod

from headgate import control_groups
from headgate.manifests.files import read
from headgate.manifests.without_effect import lines

INGRESS = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "Ingress",
    "metadata": {"name": "a"},
    "spec": {},
}
MONITOR = {"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": {"name": "web"}}


def write(directory, *objects):
    for index, obj in enumerate(objects):
        (directory / f"{index}.json").write_text(json.dumps(obj))
    return read([directory])


def test_known_objects_of_a_file_are_read_beside_foreign_objects(tmp_path):
    (tmp_path / "all.yaml").write_text(
        "---\n".join(json.dumps(obj) + "\n" for obj in (config_map("a"), INGRESS, MONITOR))
    )
    found = read([tmp_path])
    assert found.problems == ()
    assert [item.key.kind for item in found.objects] == ["ConfigMap", "Ingress"]
    assert [(item.kind, item.position.line) for item in found.left_out] == [("ServiceMonitor", 5)]


def test_each_line_counts_objects_and_kinds(tmp_path):
    named = {**INGRESS, "metadata": {"name": "b"}}
    manifests = write(tmp_path, INGRESS, named, MONITOR, definition(), cron_tab(), config_map("a"))
    assert [*lines(manifests)] == [
        "3 objects of 2 kinds are stored without effect: 1 CronTab, 2 Ingress",
        (
            "1 object is left out, because no CustomResourceDefinition defines the kind: 1 ServiceMonitor "
            "(monitoring.coreos.com/v1); add the definitions to the files to have the objects stored"
        ),
    ]


def test_files_that_are_carried_out_have_no_line(tmp_path):
    assert [*lines(write(tmp_path, config_map("a"), definition()))] == []


def test_the_fields_of_an_object_that_have_no_effect_are_one_line(tmp_path):
    app = container(command=["app"], securityContext={"privileged": True}, tty=True)
    manifests = write(tmp_path, deployment("web", app), pod("plain", containers=[container(command=["app"])]))
    (line,) = lines(manifests)
    fields = "spec.template.spec: containers[0].tty, containers[0].securityContext.privileged"
    assert line == f"Deployment default/web: {fields} have an effect on clusters only"


def test_limits_are_named_where_control_groups_can_not_limit_them(tmp_path, monkeypatch):
    app = container(command=["app"], resources={"limits": {"memory": "1Gi", "ephemeral-storage": "1Gi"}})
    manifests = write(tmp_path, pod("a", containers=[app]))
    for limited, field in ((frozenset(), ""), (frozenset({"cpu", "memory"}), ".ephemeral-storage")):
        monkeypatch.setattr(control_groups, "limited", lambda limited=limited: limited)
        (line,) = lines(manifests)
        assert line == f"Pod default/a: spec.containers[0].resources.limits{field}: has an effect on clusters only"


def test_a_field_about_names_is_said_to_work_in_networks_of_pods(tmp_path):
    manifests = write(tmp_path, pod("a", containers=[container(command=["app"])], dnsPolicy="None"))
    assert [*lines(manifests)] == [
        "Pod default/a: spec.dnsPolicy: has an effect on clusters only; dnsPolicy also with headgate up --network pod"
    ]
    assert [*lines(manifests, own_networks=True)] == []


def test_a_field_about_names_of_a_pod_in_the_network_of_the_machine_needs_another_network(tmp_path):
    app = container(command=["app"])
    manifests = write(tmp_path, pod("a", containers=[app], dnsPolicy="None", hostNetwork=True))
    message = "Pod default/a: spec.dnsPolicy: has an effect on clusters only; dnsPolicy also without hostNetwork"
    assert [*lines(manifests, own_networks=True)] == [message]
    assert [*lines(manifests)] == [f"{message} and with headgate up --network pod"]


def test_an_object_may_come_before_its_definition(tmp_path):
    found = write(tmp_path, cron_tab(), definition())
    assert (found.problems, found.left_out) == ((), ())
    assert found.objects[0].object["spec"]["image"] == "none"


def test_an_object_that_breaks_the_schema_of_its_definition_is_a_problem(tmp_path):
    (problem,) = write(tmp_path, definition(), cron_tab(cronSpec="hourly")).problems
    assert problem.field == "spec.cronSpec"


def test_a_line_names_at_most_twelve_kinds(tmp_path):
    monitors = [{**MONITOR, "kind": f"Kind{index:02}"} for index in range(14)]
    assert "and 2 more kinds" in next(iter(lines(write(tmp_path, *monitors))))
