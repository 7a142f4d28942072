"""Pure functions that compute the environment variables, command line and paths of a container from its pod."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from headgate.resources.core.pod_spec import Container, EnvSource, KeyRef, Pod
from headgate.resources.meta import Object
from headgate.standalone.isolation import MountPoint
from headgate.standalone.machine_node import NODE_NAME
from headgate.standalone.pods.downward import field_value, resource_value
from headgate.standalone.pods.runs import ConfigError

NO_PROXY = "localhost,127.0.0.1"
"""Hosts that programs reach directly, without the proxy."""
_VARIABLE = re.compile(r"\$\$|\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")

Sources = Mapping[tuple[str, str], Mapping[str, bytes]]
"""The content of ConfigMaps and Secrets by (kind, name); objects that do not exist are absent."""


class _EnvInput(NamedTuple):
    """What the value of a variable can refer to."""

    pod: Pod
    container: Container
    address: str
    sources: Sources


def content(obj: Object) -> dict[str, bytes]:
    """Return the values of a ConfigMap or Secret as bytes, by key. Raises ConfigError for invalid base64."""
    plain = {**(obj.get("data") or {}), **(obj.get("stringData") or {})}
    if obj["kind"] == "ConfigMap":
        return {key: str(text).encode() for key, text in plain.items()} | _decoded(obj, obj.get("binaryData") or {})
    written = {key: str(text).encode() for key, text in (obj.get("stringData") or {}).items()}
    return _decoded(obj, obj.get("data") or {}) | written


def named_sources(pod: Pod) -> set[tuple[str, str]]:
    """Return (kind, name) of every ConfigMap and Secret that a pod references."""
    configs: list[str] = []
    secrets: list[str] = []
    for volume in pod.spec.volumes:
        projections = (volume.projected and volume.projected.sources) or ()
        configs += [volume.config_map.name] if volume.config_map else []
        configs += [source.config_map.name for source in projections if source.config_map]
        secrets += [volume.secret.secret_name] if volume.secret else []
        secrets += [source.secret.name for source in projections if source.secret]
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        whole, single = (
            container.env_from or (),
            [variable.value_from for variable in container.env or () if variable.value_from],
        )
        configs += [source.config_map_ref.name for source in whole if source.config_map_ref]
        configs += [source.config_map_key_ref.name for source in single if source.config_map_key_ref]
        secrets += [source.secret_ref.name for source in whole if source.secret_ref]
        secrets += [source.secret_key_ref.name for source in single if source.secret_key_ref]
    return {*(("ConfigMap", name) for name in configs), *(("Secret", name) for name in secrets)}


def runtime_variables(pod: Pod, container: Container, address: str) -> dict[str, str]:
    """Return the variables that the local runtime sets in every container: its ports, its pod's name and address."""
    ports = container.ports or ()
    variables = {port_variable(port.name): str(port.container_port) for port in ports if port.name}
    if ports:
        variables["PORT"] = str(ports[0].container_port)
    return {
        **variables,
        "HOST": address,
        "POD_IP": address,
        "POD_NAME": pod.metadata.name,
        "POD_NAMESPACE": pod.metadata.namespace,
        "NODE_NAME": NODE_NAME,
    }


def port_variable(name: str) -> str:
    """Return the name of the environment variable for a port name; its value is the process port."""
    return "PORT_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


def resolve_env(
    pod: Pod, container: Container, *, address: str, sources: Sources, base: Mapping[str, str]
) -> dict[str, str]:
    """Return the resolved `envFrom` and `env` of a container. `$(NAME)` expands `base` and earlier variables.

    Raises ConfigError naming the missing object or key.
    """
    result = dict(_env_from(container, sources))
    for index, variable in enumerate(container.env or ()):
        where = f"container {container.name}, env[{index}] ({variable.name})"
        source = variable.value_from
        text = _source_value(source, _EnvInput(pod, container, address, sources), where) if source else variable.value
        if text is not None:
            result[variable.name] = expand(text, {**base, **result})
    return result


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value as Kubernetes does: unknown names stay, `$$` is a literal `$`."""

    def replace(match: re.Match[str]) -> str:
        name = match.group(1)
        return "$" if name is None else variables.get(name, match.group())

    return _VARIABLE.sub(replace, text)


def relocate(text: str, mounts: Sequence[MountPoint]) -> str:
    """Replace a mount path by the path of its content, at the beginning of `text` or after its first `=`."""
    head, equals, tail = text.partition("=")
    if equals and not text.startswith("/"):
        return head + equals + _relocated(tail, mounts)
    return _relocated(text, mounts)


def command_line(container: Container, variables: Mapping[str, str], mounts: Sequence[MountPoint]) -> tuple[str, ...]:
    """Return the program and its arguments, expanded and relocated."""
    words = (*(container.command or ()), *(container.args or ()))
    return tuple(relocate(expand(word, variables), mounts) for word in words)


def _relocated(path: str, mounts: Sequence[MountPoint]) -> str:
    for mount in sorted(mounts, key=lambda mount: -len(mount.path)):  # the innermost mount wins
        prefix = mount.path.rstrip("/")
        if path == prefix or path.startswith(f"{prefix}/"):
            return mount.source + path[len(prefix) :]
    return path


def _env_from(container: Container, sources: Sources) -> Iterator[tuple[str, str]]:
    for index, source in enumerate(container.env_from or ()):
        for kind, reference in (("ConfigMap", source.config_map_ref), ("Secret", source.secret_ref)):
            if reference is None:
                continue
            keys = sources.get((kind, reference.name))
            if keys is None and not reference.optional:
                where = f"container {container.name}, envFrom[{index}]"
                raise ConfigError(f"{where}: there is no {kind} {reference.name!r}; create it or set optional: true")
            for key, value in (keys or {}).items():
                yield source.prefix + key, value.decode(errors="replace")


def _source_value(source: EnvSource, given: _EnvInput, where: str) -> str | None:
    if source.field_ref:
        return field_value(given.pod, source.field_ref.field_path, address=given.address, where=where)
    if source.resource_field_ref:
        name = source.resource_field_ref.container_name or given.container.name
        containers = (*given.pod.spec.containers, *given.pod.spec.init_containers)
        named = next((container for container in containers if container.name == name), given.container)
        return resource_value(named, source.resource_field_ref, where)
    if source.config_map_key_ref:
        return _key("ConfigMap", source.config_map_key_ref, given.sources, where)
    if source.secret_key_ref:
        return _key("Secret", source.secret_key_ref, given.sources, where)
    raise ConfigError(
        f"{where}: local pods support only fieldRef, resourceFieldRef, configMapKeyRef and secretKeyRef; use one of them"
    )


def _key(kind: str, reference: KeyRef, sources: Sources, where: str) -> str | None:
    keys = sources.get((kind, reference.name))
    if keys is not None and reference.key in keys:
        return keys[reference.key].decode(errors="replace")
    if reference.optional:
        return None
    what = (
        f"there is no {kind} {reference.name!r}"
        if keys is None
        else f"{kind} {reference.name!r} has no key {reference.key!r}"
    )
    raise ConfigError(f"{where}: {what}; add it or set optional: true")


def _decoded(obj: Object, data: Mapping[str, str]) -> dict[str, bytes]:
    try:
        return {key: base64.b64decode(text, validate=True) for key, text in data.items()}
    except (binascii.Error, TypeError, ValueError) as error:
        name = obj["metadata"]["name"]
        raise ConfigError(f"{obj['kind']} {name!r} has a value that is not base64: {error}; encode it") from error
