"""The init container of a transparent sidecar: it redirects the pod's connections, or waits until the node agent has done it.

The node agent is for namespaces whose pods may have no capabilities, such as those with the Pod Security level `restricted`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from headgate.envoy.node_ids import DEFAULT_USER
from headgate.envoy.proxy_container import EXCLUDED_INBOUND_PORTS, NODE_NAME, PROXY_USER
from headgate.resources.core.pod_metadata import EXCLUDED_PORTS, NODE_AGENT, REDIRECTION, REDIRECTIONS
from headgate.resources.meta import Object, part

INIT_CONTAINER = "headgate-redirect"
_WAIT = ["headgate", "sidecar", "wait-redirected"]


class RequestedRedirection(NamedTuple):
    """The redirection for which an init container waits: the user of the proxy, and the excluded inbound ports.

    `container` is the runtime's ID of the init container: it differs after the pod got a new network namespace.
    """

    pod: str
    uid: str
    container: str
    user: str
    excluded_ports: str


def redirects_by_agent(*layers: Mapping[str, str], by_default: bool) -> bool:
    """Return whether the node agent redirects the connections of a pod. A later layer of annotations is stronger."""
    texts = [layer[REDIRECTION] for layer in layers if layer.get(REDIRECTION) in REDIRECTIONS]
    return texts[-1] == NODE_AGENT if texts else by_default


def redirection_container(user: int, *, by_agent: bool) -> dict[str, Any]:
    """Return the init container, without its name, image and resources. `user` is that of the proxy."""
    proxy_user = {"name": PROXY_USER, "value": str(user)}
    if by_agent:
        return {
            "command": list(_WAIT),
            "env": [proxy_user, field_variable(NODE_NAME, "spec.nodeName")],
            "securityContext": restricted(runAsUser=DEFAULT_USER, runAsGroup=DEFAULT_USER, runAsNonRoot=True),
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
    return {
        "command": ["headgate", "sidecar", "redirect"],
        "env": [
            proxy_user,
            field_variable(EXCLUDED_INBOUND_PORTS, f"metadata.annotations['{EXCLUDED_PORTS}']"),
        ],
        "securityContext": restricted(
            capabilities={"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"]},
            runAsUser=0,
            runAsGroup=0,
            runAsNonRoot=False,
        ),
    }


def waiting_container(pod: Object) -> Object | None:
    """Return the init container that waits for the node agent; None if the pod has none."""
    containers = part(pod, "spec").get("initContainers") or ()
    return next(
        (entry for entry in containers if (entry["name"], entry.get("command")) == (INIT_CONTAINER, _WAIT)), None
    )


def requested_redirection(pod: Object) -> RequestedRedirection | None:
    """Return the redirection for which the init container of a pod waits now; None if it does not run."""
    container, metadata = waiting_container(pod), pod["metadata"]
    statuses = part(pod, "status").get("initContainerStatuses") or ()
    status: Object = next((entry for entry in statuses if entry["name"] == INIT_CONTAINER), {})
    if container is None or "running" not in part(status, "state"):
        return None
    variables = {entry["name"]: entry.get("value", "") for entry in container.get("env") or ()}
    return RequestedRedirection(
        f"{metadata['namespace']}/{metadata['name']}",
        metadata["uid"],
        status.get("containerID", ""),
        variables.get(PROXY_USER, ""),
        part(metadata, "annotations").get(EXCLUDED_PORTS, ""),
    )


def restricted(**more: Any) -> dict[str, Any]:
    """Return a security context without privileges, changed by the fields in `more`."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        **more,
    }


def field_variable(name: str, field: str) -> dict[str, Any]:
    """Return a container's variable with the value of a pod's field."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}
