"""Checks of the fields of a pod that reach environments, file names, requests of probes and terminals, as Kubernetes checks them.

On a cluster the API server checks them; these checks are for objects of the embedded API and for files.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from headgate.errors import Cause
from headgate.resources.core.fields import required_choice_causes
from headgate.resources.core.pod_spec import Container, HttpGet, LifecycleHandler, PodSpec, Probe, SecurityContext
from headgate.resources.core.pod_volumes import ConfigMapVolume, DownwardVolume, ProjectedObject, SecretVolume, Volume
from headgate.resources.grammars import (
    config_key_fault,
    header_fault,
    host_path_fault,
    inner_path_fault,
    service_port_name_fault,
    variable_fault,
    volume_fault,
)
from headgate.resources.meta import (
    annotation_causes,
    label_causes,
    label_key_fault,
    label_value_fault,
    part,
    rows,
    subdomain_fault,
)

_PROTOCOLS = ("TCP", "UDP", "SCTP")
_RESTARTS = ("Always", "OnFailure", "Never")
_SCHEMES = ("HTTP", "HTTPS")
_LARGEST_ID = 2**31 - 1  # of users and groups, in Kubernetes


def template_metadata_causes(template: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield mistakes in the labels and annotations of a pod template."""
    metadata = part(template, "metadata")
    yield from label_causes(metadata.get("labels"), f"{where}.metadata.labels")
    yield from annotation_causes(metadata.get("annotations"), f"{where}.metadata.annotations")


def selector_causes(selector: Mapping[str, Any], where: str) -> Iterator[Cause]:
    """Yield mistakes in the labels that a selector compares."""
    yield from label_causes(selector.get("matchLabels"), f"{where}.matchLabels")
    for index, requirement in rows(selector.get("matchExpressions")):
        place = f"{where}.matchExpressions[{index}]"
        yield from _fault(str(requirement.get("key")), label_key_fault, f"{place}.key")
        for number, value in enumerate(requirement.get("values") or ()):
            yield from _fault(str(value), label_value_fault, f"{place}.values[{number}]")


def pod_field_causes(spec: PodSpec, where: str) -> Iterator[Cause]:
    """Yield mistakes in a pod's `spec`. Names of containers are checked elsewhere."""
    yield from required_choice_causes(spec.restart_policy, _RESTARTS, f"{where}.restartPolicy")
    if spec.node_name:
        yield from _fault(spec.node_name, subdomain_fault, f"{where}.nodeName")
    yield from _least(spec.active_deadline_seconds, 1, f"{where}.activeDeadlineSeconds")
    if context := spec.security_context:
        yield from _user_causes(context, f"{where}.securityContext")
        yield from _id_causes(context.fs_group, f"{where}.securityContext.fsGroup")
        for index, group in enumerate(context.supplemental_groups or ()):
            yield from _id_causes(group, f"{where}.securityContext.supplementalGroups[{index}]")
    for index, init in enumerate(spec.init_containers):
        if init.restart_policy is not None:
            yield from required_choice_causes(
                init.restart_policy, ("Always",), f"{where}.initContainers[{index}].restartPolicy"
            )
    names: set[str] = set()
    for index, volume in enumerate(spec.volumes):
        yield from _volume_causes(volume, names, f"{where}.volumes[{index}]")
        names.add(volume.name)
    for field, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for index, container in enumerate(containers):
            yield from container_field_causes(container, f"{where}.{field}[{index}]")


def container_field_causes(container: Container, where: str) -> Iterator[Cause]:
    """Yield mistakes in the ports, variables, mounts and probes of a container."""
    for index, port in enumerate(container.ports or ()):
        place = f"{where}.ports[{index}]"
        if port.name:
            yield from _fault(port.name, service_port_name_fault, f"{place}.name")
        yield from required_choice_causes(port.protocol, _PROTOCOLS, f"{place}.protocol")
    yield from _variable_causes(container, where)
    for index, mount in enumerate(container.volume_mounts or ()):
        if mount.sub_path:
            yield from _fault(mount.sub_path, inner_path_fault, f"{where}.volumeMounts[{index}].subPath")
    if container.security_context:
        yield from _user_causes(container.security_context, f"{where}.securityContext")
    if container.lifecycle:
        yield from _hook_causes(container.lifecycle.post_start, f"{where}.lifecycle.postStart")
        yield from _hook_causes(container.lifecycle.pre_stop, f"{where}.lifecycle.preStop")
    probes = {
        "readinessProbe": container.readiness_probe,
        "livenessProbe": container.liveness_probe,
        "startupProbe": container.startup_probe,
    }
    for name, probe in probes.items():
        if probe:
            yield from _probe_causes(probe, f"{where}.{name}")


def _variable_causes(container: Container, where: str) -> Iterator[Cause]:
    for index, variable in enumerate(container.env or ()):
        yield from _fault(variable.name, variable_fault, f"{where}.env[{index}].name")
        if source := variable.value_from:
            for name, key in (
                ("configMapKeyRef", source.config_map_key_ref),
                ("secretKeyRef", source.secret_key_ref),
            ):
                if key:
                    yield from _fault(key.key, config_key_fault, f"{where}.env[{index}].valueFrom.{name}.key")
    for index, whole in enumerate(container.env_from or ()):
        if whole.prefix:
            yield from _fault(whole.prefix, variable_fault, f"{where}.envFrom[{index}].prefix")


def _probe_causes(probe: Probe, where: str) -> Iterator[Cause]:
    for name, action in (("httpGet", probe.http_get), ("tcpSocket", probe.tcp_socket)):
        if action and isinstance(action.port, str):
            yield from _fault(action.port, service_port_name_fault, f"{where}.{name}.port")
    if probe.http_get:
        yield from _http_causes(probe.http_get, f"{where}.httpGet")


def _hook_causes(hook: LifecycleHandler | None, where: str) -> Iterator[Cause]:
    if hook and hook.http_get:
        if isinstance(hook.http_get.port, str):
            yield from _fault(hook.http_get.port, service_port_name_fault, f"{where}.httpGet.port")
        yield from _http_causes(hook.http_get, f"{where}.httpGet")
    if hook and hook.sleep:
        yield from _least(hook.sleep.seconds, 0, f"{where}.sleep.seconds")


def _http_causes(get: HttpGet, where: str) -> Iterator[Cause]:
    yield from required_choice_causes(get.scheme, _SCHEMES, f"{where}.scheme")
    for index, header in enumerate(get.http_headers):
        yield from _fault(header.name, header_fault, f"{where}.httpHeaders[{index}].name")


def _volume_causes(volume: Volume, names: Collection[str], where: str) -> Iterator[Cause]:
    yield from _fault(volume.name, volume_fault, f"{where}.name")
    if volume.name in names:
        yield Cause(f"{where}.name", f"{volume.name!r} is the name of two volumes; give each volume its own name")
    if volume.host_path:
        yield from _fault(volume.host_path.path, host_path_fault, f"{where}.hostPath.path")
    yield from _key_causes(volume.config_map, f"{where}.configMap")
    yield from _key_causes(volume.secret, f"{where}.secret")
    yield from _file_causes(volume.downward_api, f"{where}.downwardAPI")
    for index, source in enumerate((volume.projected and volume.projected.sources) or ()):
        place = f"{where}.projected.sources[{index}]"
        yield from _key_causes(source.config_map, f"{place}.configMap")
        yield from _key_causes(source.secret, f"{place}.secret")
        yield from _file_causes(source.downward_api, f"{place}.downwardAPI")


def _key_causes(source: ConfigMapVolume | SecretVolume | ProjectedObject | None, where: str) -> Iterator[Cause]:
    for index, key in enumerate((source and source.items) or ()):
        place = f"{where}.items[{index}]"
        yield from _fault(key.key, config_key_fault, f"{place}.key")
        yield from _fault(key.path, inner_path_fault, f"{place}.path")


def _file_causes(source: DownwardVolume | None, where: str) -> Iterator[Cause]:
    for index, file in enumerate((source and source.items) or ()):
        yield from _fault(file.path, inner_path_fault, f"{where}.items[{index}].path")


def _user_causes(context: SecurityContext, where: str) -> Iterator[Cause]:
    yield from _id_causes(context.run_as_user, f"{where}.runAsUser")
    yield from _id_causes(context.run_as_group, f"{where}.runAsGroup")


def _id_causes(number: int | None, where: str) -> Iterator[Cause]:
    if number is not None and not 0 <= number <= _LARGEST_ID:
        yield Cause(where, f"must be from 0 to {_LARGEST_ID}, not {number}")


def _least(number: int | None, least: int, where: str) -> Iterator[Cause]:
    if number is not None and number < least:
        yield Cause(where, f"must be {least} or more, not {number}")


def _fault(text: str, grammar: Callable[[str], str], where: str) -> Iterator[Cause]:
    if fault := grammar(text):
        yield Cause(where, fault)
