"""The objects of the node agent: a DaemonSet, and a ServiceAccount that may read pods."""

from collections.abc import Mapping, Sequence
from typing import Any

from headgate.envoy.proxy_container import NODE_NAME
from headgate.kubernetes.names import NODE_AGENT, NODE_AGENT_READY
from headgate.resources.core.pod_metadata import INJECT

_SELECTOR = {"app.kubernetes.io/name": NODE_AGENT}
RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
"""The rules of the ClusterRole. RBAC can't limit them to the pods of a node; the agent requests only these."""
CAPABILITIES = ["NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_PTRACE"]
"""To change rules, also those of iptables-legacy; to enter a network namespace; to open that of another user's process."""
NAMESPACE_LABELS = {"pod-security.kubernetes.io/enforce": "privileged"}
"""The agent's namespace has these labels, because other levels of Pod Security admission reject the agent."""


def daemon_set_spec(image: str, pull_policy: str, pull_secrets: Sequence[str]) -> Mapping[str, Any]:
    """Return the spec of the DaemonSet, which runs on all nodes, those with taints too."""
    metadata = {
        "labels": {**_SELECTOR, INJECT: "false"},
        # The profile of container runtimes denies reading the namespaces of processes with another profile.
        "annotations": {f"container.apparmor.security.beta.kubernetes.io/{NODE_AGENT}": "unconfined"},
    }
    pod = {
        **({"imagePullSecrets": [{"name": name} for name in pull_secrets]} if pull_secrets else {}),
        "serviceAccountName": NODE_AGENT,
        "priorityClassName": "system-node-critical",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "hostPID": True,
        "tolerations": [{"operator": "Exists"}],
        "containers": [_container(image, pull_policy)],
        "volumes": [{"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}],
    }
    return {"selector": {"matchLabels": dict(_SELECTOR)}, "template": {"metadata": metadata, "spec": pod}}


def _container(image: str, pull_policy: str) -> Mapping[str, Any]:
    directory, _, _ = NODE_AGENT_READY.rpartition("/")
    return {
        "name": NODE_AGENT,
        "image": image,
        "imagePullPolicy": pull_policy,
        "command": ["headgate", "agent"],
        "env": [{"name": NODE_NAME, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "readinessProbe": {"exec": {"command": ["test", "-e", NODE_AGENT_READY]}, "periodSeconds": 2},
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {
            "capabilities": {"drop": ["ALL"], "add": list(CAPABILITIES)},
            "readOnlyRootFilesystem": True,
            "runAsUser": 0,
            "runAsGroup": 0,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": "run", "mountPath": directory}],
    }
