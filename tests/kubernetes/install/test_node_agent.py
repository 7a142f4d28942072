"""The objects of the node agent: what it may do, where it runs, and which selectors select its pods."""

from typing import Any

from headgate.kubernetes.install.manifests import Values, manifests

NAME = "headgate-node-agent"
OBJECTS = manifests(Values(image="headgate:1", options={"node_agent": "true", "pull_secrets": "registry"}))


def installed(kind: str, name: str = NAME) -> Any:
    (obj,) = [obj for obj in OBJECTS if (obj["kind"], obj["metadata"]["name"]) == (kind, name)]
    return obj


def test_the_agent_is_installed_only_on_request() -> None:
    assert not [obj for obj in manifests(Values(image="headgate:1")) if obj["metadata"]["name"] == NAME]
    (binding,) = installed("ClusterRoleBinding")["subjects"]
    pod = installed("DaemonSet")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == installed("ServiceAccount")["metadata"]["name"] == binding["name"]


def test_the_agent_may_list_and_watch_pods_and_nothing_else() -> None:
    assert installed("ClusterRole")["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]


def test_the_agent_is_not_privileged_and_has_no_files_and_no_network_of_its_node() -> None:
    pod = installed("DaemonSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    context = container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_PTRACE"]}
    assert context["readOnlyRootFilesystem"]
    assert not context.keys() & {"privileged"}
    assert not pod.keys() & {"hostNetwork", "hostIPC"}
    assert [volume.keys() - {"name"} for volume in pod["volumes"]] == [{"emptyDir"}]


def test_the_agent_runs_on_nodes_with_taints_and_in_a_namespace_that_admits_it() -> None:
    pod = installed("DaemonSet")["spec"]["template"]["spec"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    labels = installed("Namespace", "headgate-system")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


def test_neither_services_nor_policies_of_the_control_plane_select_the_agent() -> None:
    labels = installed("DaemonSet")["spec"]["template"]["metadata"]["labels"].items()
    selectors = [obj["spec"]["selector"] for obj in OBJECTS if obj["kind"] == "Service"]
    selectors += [obj["spec"]["podSelector"]["matchLabels"] for obj in OBJECTS if obj["kind"] == "NetworkPolicy"]
    assert selectors
    assert not [selector for selector in selectors if selector.items() <= labels]
