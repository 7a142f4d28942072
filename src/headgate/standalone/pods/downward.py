"""Pure functions for the downward API: fields of a pod, and resources of its containers, as text."""

import math
import os
import re
from fractions import Fraction

from headgate.quantity import parse_quantity
from headgate.resources.core.pod_spec import Container, Pod
from headgate.resources.core.pod_volumes import DownwardFile, ResourceFieldRef
from headgate.standalone.address_pool import machine_address
from headgate.standalone.machine_node import NODE_NAME
from headgate.standalone.pods.runs import ConfigError

_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_WHOLE = ("metadata.labels", "metadata.annotations")
_RESOURCE = re.compile(r"(limits|requests)\.(cpu|memory|ephemeral-storage|hugepages-.+)")


def field_value(pod: Pod, path: str, *, address: str, where: str) -> str:
    """Return the value of a pod's field. Raises ConfigError with `where` for an unsupported path."""
    fields = {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": NODE_NAME,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.podIP": address,
        "status.podIPs": address,
        "status.hostIP": machine_address(address),
        "status.hostIPs": machine_address(address),
    }
    if path in fields:
        return fields[path]
    if match := _KEYED.fullmatch(path):
        keyed = pod.metadata.labels if match[1] == "labels" else pod.metadata.annotations
        return keyed.get(match[2], "")
    raise ConfigError(
        f"{where}: unsupported fieldPath {path!r}; use one of {', '.join(fields)}, metadata.labels['NAME']"
    )


def resource_value(container: Container, reference: ResourceFieldRef, where: str) -> str:
    """Return a limit or request of a container in units of the divisor, rounded up as in Kubernetes.

    Without a limit it is what the machine has; without a request it is the limit, or 0. Raises ConfigError with `where`.
    """
    match = _RESOURCE.fullmatch(reference.resource)
    if match is None:
        message = f"{where}: resource {reference.resource!r} is unknown; use limits.cpu, limits.memory, requests.cpu or requests.memory"
        raise ConfigError(message)
    kind, resource = match[1], match[2]
    limits = (container.resources and container.resources.limits) or {}
    requests = (container.resources and container.resources.requests) or {}
    text = requests.get(resource, limits.get(resource, "0")) if kind == "requests" else limits.get(resource)
    try:
        value = _machine_has(resource) if text is None else parse_quantity(str(text))
        divisor = parse_quantity(str(reference.divisor)) or Fraction(1)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from error
    return str(math.ceil(value / divisor))


def file_text(pod: Pod, file: DownwardFile, *, address: str, where: str) -> str:
    """Return the content of a downwardAPI volume's file. Raises ConfigError."""
    if file.resource_field_ref:
        name = file.resource_field_ref.container_name
        for container in (*pod.spec.containers, *pod.spec.init_containers):
            if container.name == name:
                return resource_value(container, file.resource_field_ref, where)
        raise ConfigError(f"{where}: the pod has no container {name!r}; correct resourceFieldRef.containerName")
    if file.field_ref is None:
        raise ConfigError(f"{where}: the file has no source; set fieldRef or resourceFieldRef")
    if file.field_ref.field_path in _WHOLE:
        keyed = pod.metadata.labels if file.field_ref.field_path == _WHOLE[0] else pod.metadata.annotations
        return "\n".join(f"{key}={_quoted(value)}" for key, value in sorted(keyed.items()))
    return field_value(pod, file.field_ref.field_path, address=address, where=where)


def _quoted(text: str) -> str:
    """Return a text as Go quotes it, which the files of Kubernetes have."""
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    )
    return f'"{escaped}"'


def _machine_has(resource: str) -> Fraction:
    if resource == "cpu":
        return Fraction(len(os.sched_getaffinity(0)))
    if resource == "memory":
        return Fraction(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return Fraction(0)
