"""The rules of the Pod Security level `restricted` (kubernetes.io/docs/concepts/security/pod-security-standards), version 1.34."""

from collections.abc import Iterator, Mapping
from typing import Any

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
PROFILES = {"RuntimeDefault", "Localhost"}


def violations(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the level `restricted` rejects in the spec of a pod, as `CONTAINER: FIELD`."""
    yield from (f"pod: {field}" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field))
    yield from (f"pod: volume {volume['name']}" for volume in spec.get("volumes", ()) if not volume.keys() & VOLUMES)
    of_pod = spec.get("securityContext") or {}
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        own = container.get("securityContext") or {}
        capabilities = own.get("capabilities") or {}
        profile = own.get("seccompProfile") or of_pod.get("seccompProfile") or {}
        forbidden = {
            "hostPort": any(port.get("hostPort") for port in container.get("ports", ())),
            "privileged": own.get("privileged"),
            "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is not False,
            "capabilities.drop": "ALL" not in capabilities.get("drop", ()),
            "capabilities.add": not set(capabilities.get("add", ())) <= {"NET_BIND_SERVICE"},
            "runAsNonRoot": own.get("runAsNonRoot", of_pod.get("runAsNonRoot")) is not True,
            "runAsUser": 0 in (own.get("runAsUser"), of_pod.get("runAsUser")),
            "seccompProfile": profile.get("type") not in PROFILES,
        }
        yield from (f"{container['name']}: {field}" for field, breaks in forbidden.items() if breaks)
