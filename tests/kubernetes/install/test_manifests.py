"""The objects of an installation: labels, selectors, ports and permissions fit together."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from headgate.admission.injection import INJECT_LABELED, OF_REVISIONS
from headgate.kinds import EXPERIMENTAL
from headgate.kubernetes.install.custom_resources import custom_resource_definitions, mesh_kinds
from headgate.kubernetes.install.manifests import Values, manifests, revision_manifests
from headgate.kubernetes.names import SERVER_NAMES
from headgate.plane.feed import COMPILED
from headgate.resources.registry import BUILT_IN, KINDS

VALUES = Values(image="headgate:1")
PAGE = (Path(__file__).parents[3] / "docs/tasks/kubernetes.md").read_text()


def found(kind: str, name: str = "headgate") -> Any:
    (one,) = [item for item in manifests(VALUES) if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    return one


@pytest.mark.parametrize("group", ["custom", "external"])
def test_groups_of_other_servers_are_registered_only_on_request(group: str) -> None:
    """Another server of the cluster may serve them."""

    def groups(values: Values) -> set[str]:
        return {item["spec"]["group"] for item in manifests(values) if item["kind"] == "APIService"}

    assert f"{group}.metrics.k8s.io" not in groups(VALUES)
    assert groups(Values(image="headgate:1", options={f"{group}_metrics": "true"})) == {
        *groups(VALUES),
        f"{group}.metrics.k8s.io",
    }


def test_no_api_is_registered_without_the_option() -> None:
    """While no server answers for a registered API, Kubernetes deletes no namespace."""
    without = manifests(Values(image="headgate:1", options={"aggregated_apis": ""}))
    assert "APIService" not in {item["kind"] for item in without}
    (deployment,) = (item for item in without if item["kind"] == "Deployment")
    assert "--no-aggregated-apis" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert "--aggregated-apis" in found("Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]


def test_services_select_the_pods_and_their_ports() -> None:
    template = found("Deployment")["spec"]["template"]
    labels = {**template["metadata"]["labels"], "headgate.dev/active": "true", "headgate.dev/converts": "true"}
    ports = {port["containerPort"] for port in template["spec"]["containers"][0]["ports"]}
    for name in ("headgate", "headgate-webhooks", "headgate-conversion"):
        spec = found("Service", name)["spec"]
        assert spec["selector"].items() <= labels.items()
        assert {port["targetPort"] for port in spec["ports"]} <= ports


def test_only_conversions_are_sent_to_replicas_that_are_not_ready() -> None:
    """A replica becomes ready after it has listed objects, which the API server may have to convert."""
    services = {item["metadata"]["name"]: item["spec"] for item in manifests(VALUES) if item["kind"] == "Service"}
    unready = {name for name, spec in services.items() if spec.get("publishNotReadyAddresses")}
    converting = {
        item["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["name"]
        for item in manifests(VALUES)
        if item["kind"] == "CustomResourceDefinition" and "conversion" in item["spec"]
    }
    assert unready == converting == {"headgate-conversion"}


def test_webhooks_and_conversions_use_dns_names_of_the_serving_certificate() -> None:
    hooks = [*found("MutatingWebhookConfiguration")["webhooks"], *found("ValidatingWebhookConfiguration")["webhooks"]]
    configs = [hook["clientConfig"] for hook in hooks]
    configs += [
        item["spec"]["conversion"]["webhook"]["clientConfig"]
        for item in manifests(VALUES)
        if "conversion" in item.get("spec", {})
    ]
    names = {f"{config['service']['name']}.{config['service']['namespace']}.svc" for config in configs}
    assert names <= set(SERVER_NAMES)
    injection = {f"{path}{end}" for path in ("/inject", INJECT_LABELED) for end in ("", OF_REVISIONS)}
    assert {config["service"]["path"] for config in configs} == {*injection, "/validate", "/convert"}


def matches(selector: Any, labels: Mapping[str, str]) -> bool:
    """Evaluate a label selector as an API server does."""
    holds = {
        "In": lambda item: labels.get(item["key"]) in item["values"],
        "NotIn": lambda item: labels.get(item["key"]) not in item["values"],
        "Exists": lambda item: item["key"] in labels,
        "DoesNotExist": lambda item: item["key"] not in labels,
    }
    return all(holds[item["operator"]](item) for item in selector.get("matchExpressions", ()))


@pytest.mark.parametrize("revision", [None, "canary", ""])
@pytest.mark.parametrize(
    ("namespace_label", "pod_label", "policies"),
    [
        ("true", None, ["Fail"]),
        ("enabled", "false", ["Fail"]),
        (None, "true", ["Fail"]),
        ("false", "enabled", ["Fail"]),
        (None, "on", ["Fail"]),
        (None, None, ["Ignore"]),
        ("disabled", None, ["Ignore"]),
        (None, "false", []),
    ],
)
def test_injection_fails_closed_for_labels_that_request_a_sidecar_and_open_for_other_pods(
    namespace_label: str | None, pod_label: str | None, policies: list[str], revision: str | None
) -> None:
    """R77. A TLSConfig or an annotation may request a sidecar for a pod without the label.

    Exactly one webhook reviews a pod. Its path says whether the namespace has the label of a revision.
    """
    labels = [{"headgate.dev/inject": value} if value else {} for value in (namespace_label, pod_label)]
    if revision is not None:
        labels[0]["headgate.dev/rev"] = revision
    for namespace, called in (("shop", policies), ("kube-system", []), ("headgate-system", [])):
        around = {**labels[0], "kubernetes.io/metadata.name": namespace}
        hooks = [
            hook
            for hook in found("MutatingWebhookConfiguration")["webhooks"]
            if matches(hook["namespaceSelector"], around) and matches(hook.get("objectSelector", {}), labels[1])
        ]
        assert [hook["failurePolicy"] for hook in hooks] == called
        is_labeled = namespace_label in {"true", "enabled"}
        paths = {f"{INJECT_LABELED if is_labeled else '/inject'}{'' if revision is None else OF_REVISIONS}"}
        assert {hook["clientConfig"]["service"]["path"] for hook in hooks} == (paths if hooks else set())
        assert all(hook["timeoutSeconds"] == 2 for hook in hooks if hook["failurePolicy"] == "Ignore")


def test_validation_delays_a_write_only_briefly_and_skips_system_namespaces() -> None:
    for hook in found("ValidatingWebhookConfiguration")["webhooks"]:
        assert hook["failurePolicy"] == "Ignore"
        assert hook["timeoutSeconds"] <= 5
        if {"", "apps"} & set(hook["rules"][0]["apiGroups"]):
            assert not matches(hook["namespaceSelector"], {"kubernetes.io/metadata.name": "kube-system"})


def test_validation_gets_no_experimental_kinds_of_other_controllers() -> None:
    """Istio and Envoy Gateway have kinds in this group too, whose writes must not wait for headgate."""
    hooks = found("ValidatingWebhookConfiguration")["webhooks"]
    rules = [rule for hook in hooks for rule in hook["rules"] if EXPERIMENTAL in rule["apiGroups"]]
    assert [(rule["operations"], rule["resources"]) for rule in rules] == [
        (["CREATE", "UPDATE"], ["xbackends", "xbackendtrafficpolicies", "xmeshes", "xauthorizationpolicies"]),
        (["DELETE"], ["xbackends", "xbackendtrafficpolicies", "xmeshes", "xauthorizationpolicies"]),
    ]


def test_all_objects_have_the_name_label_of_headgate() -> None:
    assert {item["metadata"]["labels"]["app.kubernetes.io/name"] for item in manifests(VALUES)} == {"headgate"}


def test_the_control_plane_runs_without_privileges() -> None:
    pod = found("Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def test_a_slow_start_does_not_restart_the_control_plane() -> None:
    container = found("Deployment")["spec"]["template"]["spec"]["containers"][0]
    startup, liveness = container["startupProbe"], container["livenessProbe"]
    assert startup["httpGet"] == liveness["httpGet"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 120


def test_evictions_and_network_policies_apply_to_the_pods() -> None:
    labels = found("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert found("PodDisruptionBudget")["spec"]["selector"]["matchLabels"].items() <= labels.items()
    policy = found("NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    targets = {
        port["targetPort"]
        for name in ("headgate", "headgate-webhooks")
        for port in found("Service", name)["spec"]["ports"]
    }
    assert {port["port"] for port in policy["ingress"][0]["ports"]} == targets


def test_no_permission_is_for_all_groups_or_all_verbs() -> None:
    for rule in [*found("ClusterRole")["rules"], *found("Role")["rules"]]:
        assert "*" not in rule["apiGroups"]
        assert "*" not in rule["verbs"]
        if set(rule["verbs"]) & {"update", "patch", "create", "delete"}:
            assert "secrets" not in rule["resources"] or rule in found("Role")["rules"]


def rights(role: str) -> set[tuple[str, str, str]]:
    """Return what an installation adds to a role of Kubernetes, as group, resource and verb."""
    label = f"rbac.authorization.k8s.io/aggregate-to-{role}"
    return {
        (group, resource, verb)
        for item in manifests(VALUES)
        if item["metadata"]["labels"].get(label) == "true"
        for rule in item["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_users_with_the_roles_of_kubernetes_read_or_write_each_kind_with_a_definition_but_no_status() -> None:
    specs = [item["spec"] for item in manifests(VALUES) if item["kind"] == "CustomResourceDefinition"]
    kinds = {(spec["group"], spec["names"]["plural"]) for spec in specs if spec["scope"] == "Namespaced"}
    view, edit = rights("view"), rights("edit")
    of_objects = {right for right in view if right[0] != "inspect.headgate.dev" and "metrics." not in right[0]}
    assert of_objects == {(*kind, verb) for kind in kinds for verb in ("get", "list", "watch")}
    written = {(*kind, verb) for kind in kinds for verb in ("create", "update", "patch", "delete", "deletecollection")}
    assert edit == view | written
    assert rights("admin") == edit


def test_the_page_has_the_rights_of_users_and_the_kinds_with_rules() -> None:
    (row,) = re.findall(r"^\| `headgate-view` \|[^|]*\|([^|]*)\|", PAGE, re.MULTILINE)
    listed = {
        (group, name)
        for names, group in re.findall(r"([\w, ]+) of ([\w.-]+)", row)
        for name in names.strip().split(", ")
    }
    definitions = [item["spec"] for item in manifests(VALUES) if item["kind"] == "CustomResourceDefinition"]
    assert listed == {(spec["group"], spec["names"]["plural"]) for spec in definitions}
    table = PAGE.partition("| Kind | Rejected |")[2].partition("\n\n")[0]
    ruled = {spec["names"]["kind"] for spec in definitions if "x-kubernetes-validations" in str(spec)}
    assert {line.split("|")[1].strip() for line in table.splitlines()[2:]} == ruled


def test_users_with_the_roles_of_kubernetes_read_metrics_of_resources_with_a_namespace_only() -> None:
    """R100. Edges are a resource of their own; nodes have no namespace. Series have the counts of metrics."""
    series = ("inspect.headgate.dev", "trafficseries", "get")
    assert {right for right in rights("view") if right[0] == "inspect.headgate.dev"} == {series}
    metrics = {right for right in rights("view") if "metrics." in right[0]}
    assert {("traffic.metrics.k8s.io", name, "get") for name in ("deployments", "pods", "pods/edges")} <= metrics
    assert ("metrics.smi-spec.io", "trafficsplits", "get") in metrics  # `kubectl traffic top trafficsplits`
    assert {verb for _, _, verb in metrics} == {"get", "list"}
    assert not {name.partition("/")[0] for _, name, _ in metrics} & {"nodes", "namespaces", "*"}


def test_the_roles_of_users_are_bound_to_no_account() -> None:
    bound = {item["roleRef"]["name"] for item in manifests(VALUES) if item["kind"].endswith("RoleBinding")}
    assert "headgate" in bound
    assert not bound & {"headgate-view", "headgate-edit"}


@pytest.mark.parametrize("kind", mesh_kinds(), ids=lambda kind: kind.plural)
def test_a_definition_serves_every_version_and_stores_the_hub(kind: Any) -> None:
    webhook = {"service": {"namespace": "a", "name": "b"}}
    (definition,) = custom_resource_definitions([kind], webhook)
    versions = definition["spec"]["versions"]
    assert [version["name"] for version in versions] == [
        name for name in BUILT_IN.groups[kind.group] if name in kind.versions
    ]
    assert [version["name"] for version in versions if version["storage"]] == [kind.versions[0]]
    assert ("conversion" in definition["spec"]) is (len(versions) > 1)
    assert all(("status" in version.get("subresources", {})) is kind.status for version in versions)


def test_kubectl_shows_the_same_columns_on_a_cluster_as_on_one_machine() -> None:
    """`tests/cluster/test_kinds.py` compares the cells."""
    own = [kind for kind in KINDS if kind.schema]
    assert own
    for kind in own:
        definition = found("CustomResourceDefinition", f"{kind.plural}.{kind.group}")
        stored = next(version for version in definition["spec"]["versions"] if version["storage"])
        shown = [(column["name"], bool(column["priority"])) for column in stored["additionalPrinterColumns"]]
        assert shown == [(column.name, column.wide) for column in kind.columns if column.name != "Name"]


def test_the_columns_of_a_version_show_fields_of_that_version() -> None:
    def columns(name: str, version: str) -> dict[str, str]:
        item = found("CustomResourceDefinition", name)
        (one,) = [one for one in item["spec"]["versions"] if one["name"] == version]
        return {column["name"]: column["jsonPath"] for column in one["additionalPrinterColumns"]}

    targets = "traffictargets.access.smi-spec.io"
    assert {columns(targets, version)["Rules"] for version in ("v1alpha1", "v1alpha3")} == {".status.summary.rules"}
    assert "Ports" in columns("tcproutes.specs.smi-spec.io", "v1alpha4")
    assert "Ports" not in columns("tcproutes.specs.smi-spec.io", "v1alpha3")


def test_weights_that_are_quantities_may_be_whole_numbers() -> None:
    """R9, R109. `weight: 1` and `weight: 500m` are both valid."""
    for name, version in (("trafficsplits.split.smi-spec.io", "v1alpha1"), ("canaries.headgate.dev", "v1beta1")):
        versions = found("CustomResourceDefinition", name)["spec"]["versions"]
        (schema,) = [one["schema"]["openAPIV3Schema"] for one in versions if one["name"] == version]
        weight = schema["properties"]["spec"]["properties"]["backends"]["items"]["properties"]["weight"]
        assert (weight["x-kubernetes-int-or-string"], "type" in weight) == (True, False)


def test_the_objects_of_a_revision_select_only_its_pods_and_have_the_options_of_the_installation() -> None:
    """The Services, webhooks and disruption budget of the default revision must not reach its replicas, nor the other way round."""
    values = Values(image="headgate:2", options={"mtls": "strict", "namespaces": "shop"})
    objects = {obj["kind"]: obj for obj in revision_manifests(values, "canary")}
    template = objects["Deployment"]["spec"]["template"]
    labels, (container,) = template["metadata"]["labels"], template["spec"]["containers"]
    assert container["args"][-2:] == ["--revision", "canary"]
    assert "--mtls=strict" in container["args"]
    for obj in manifests(values):
        if obj["kind"] == "Service":
            assert not obj["spec"]["selector"].items() <= labels.items()
    selector = objects["Service"]["spec"]["selector"]
    assert selector.items() <= labels.items()
    default = found("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert not selector.items() <= default.items()
    for hook in objects["MutatingWebhookConfiguration"]["webhooks"]:
        assert hook["clientConfig"]["service"]["name"] == objects["Service"]["metadata"]["name"]
        requirements = hook["namespaceSelector"]["matchExpressions"]
        assert {"key": "headgate.dev/rev", "operator": "In", "values": ["canary"]} in requirements
        assert hook["clientConfig"]["service"]["path"].endswith(OF_REVISIONS)
        assert {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["shop"]} in requirements
    assert all(obj["metadata"]["labels"]["headgate.dev/rev"] == "canary" for obj in objects.values())


def granted(objects: Sequence[Any]) -> set[tuple[str, str, str, str]]:
    """Return what the roles among objects allow, as namespace, group, resource and verb."""
    return {
        (obj["metadata"].get("namespace", ""), group, resource, verb)
        for obj in objects
        if obj["kind"] in {"Role", "ClusterRole"}
        for rule in obj["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize(("namespaces", "places"), [("", {""}), ("shop,pay", {"", "headgate-system", "pay", "shop"})])
def test_a_revision_has_its_own_permissions_to_read_the_kinds_of_its_version(namespaces: str, places: set[str]) -> None:
    """The installation may be of an older version, whose roles lack a kind: the revision would never become ready."""
    values = Values(image="headgate:2", options={"namespaces": namespaces})
    objects = revision_manifests(values, "canary")
    reads = {right for right in granted(objects) if right[1] != "admissionregistration.k8s.io"}
    for verb in ("list", "watch"):
        assert {right[1:3] for right in reads if right[3] == verb} >= {(kind.group, kind.plural) for kind in COMPILED}
    assert {right[3] for right in reads} == {"list", "watch"}
    assert {right[0] for right in reads} == places
    assert reads <= granted(manifests(values))
    names = [(obj["kind"][: -len("Binding")], obj["metadata"]["name"]) for obj in objects if "roleRef" in obj]
    assert names == [(obj["kind"], obj["metadata"]["name"]) for obj in objects if "rules" in obj]
