"""Objects of files that headgate does not carry out are stored or left out, and named in one line each."""

import json
from pathlib import Path

from tests.make.definitions import cron_tab, definition
from tests.make.objects import config_map, container, deployment, namespace, pod

from headgate import control_groups
from headgate.manifests.files import read
from headgate.manifests.without_effect import lines
from headgate.resources.foreign_meshes import foreign_hint

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


def test_kinds_of_other_meshes_say_what_is_lost_whether_their_definition_is_there_or_not(tmp_path):
    """A migrated mesh must not lose its protection silently."""
    policies = [
        {"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy", "metadata": {"name": name}}
        for name in "ab"
    ]
    egress = {"apiVersion": "policy.openservicemesh.io/v1alpha1", "kind": "Egress", "metadata": {"name": "a"}}
    defined = definition(group="policy.linkerd.io")
    tab = {**cron_tab(), "apiVersion": "policy.linkerd.io/v1"}
    stored, policy, destinations, tabs = lines(write(tmp_path, *policies, egress, defined, tab))
    assert stored == "1 object is stored without effect: 1 CronTab"
    assert policy == (
        "2 objects of the kind AuthorizationPolicy (security.istio.io/v1) have no effect; only Istio reads this kind: requests "
        "that it denies may be allowed, and mutual TLS that it requires is not enforced; "
        "docs/tasks/migration.md#istio says what replaces it"
    )
    assert destinations.startswith(
        "1 object of the kind Egress (policy.openservicemesh.io/v1alpha1) has no effect; only"
    )
    assert "only Linkerd reads this kind: requests that it denies may be allowed" in tabs


def test_the_injection_keys_of_other_meshes_name_headgates_key(tmp_path):
    shop = namespace("shop", labels={"openservicemesh.io/monitored-by": "osm"})
    moved = namespace("moved", labels={"openservicemesh.io/monitored-by": "osm", "headgate.dev/inject": "true"})
    annotations = {"openservicemesh.io/sidecar-injection": "disabled"}
    away = {**pod("a", containers=[container(command=["app"])]), "metadata": {"name": "a", "annotations": annotations}}
    label, annotation = lines(write(tmp_path, shop, moved, away))
    assert label.startswith(
        "Namespace shop: metadata.labels.openservicemesh.io/monitored-by: headgate does not read this key"
    )
    assert annotation.endswith('to keep headgate\'s sidecar away, write the label headgate.dev/inject: "false"')


def test_the_settings_of_another_meshs_sidecars_name_what_replaces_them(tmp_path):
    osm = "openservicemesh.io"
    inbound, outbound = f"{osm}/inbound-port-exclusion-list", f"{osm}/outbound-port-exclusion-list"
    ranges = f"{osm}/outbound-ip-range-exclusion-list"
    app = container(command=["app"])
    moved = {inbound: "9090", "headgate.dev/excluded-inbound-ports": "9090", "headgate.dev/inject": "true"}
    texts = lines(
        write(
            tmp_path,
            namespace("shop", annotations={f"{osm}/metrics": "enabled"}),
            pod("a", containers=[app], metadata={"annotations": {inbound: "9090", outbound: "587"}}),
            pod("b", containers=[app], metadata={"annotations": {ranges: "10.0.0.0/8", "headgate.dev/inject": "true"}}),
            pod("c", containers=[app], metadata={"annotations": moved}),
        )
    )
    unread = "headgate does not read this key"
    assert [text.removeprefix("Pod default/").partition(" (")[0].partition(": conn")[0] for text in texts] == [
        f"Namespace shop: metadata.annotations.{osm}/metrics: {unread}; all proxies report metrics without it",
        f"a: metadata.annotations.{inbound}: {unread}; write the annotation headgate.dev/excluded-inbound-ports of the pods",
        f"a: metadata.annotations.{outbound}: {unread}; no annotation replaces it",
        f"b: metadata.annotations.{ranges}: {unread}; no annotation replaces it",
    ]


def test_the_hints_about_other_meshes_lead_to_sections_of_the_guide(tmp_path):
    guide = (Path(__file__).parents[2] / "docs" / "tasks" / "migration.md").read_text()
    for group in ("config.openservicemesh.io", "networking.istio.io", "linkerd.io"):
        section = foreign_hint(group).partition("migration.md#")[2].split()[0]
        assert f"\n## {section.replace('-', ' ')}\n" in guide.lower()
