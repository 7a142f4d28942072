"""Volumes as directories of this machine: ConfigMaps and Secrets as files, empty directories, host paths.

A local process uses the machine's own file system, so nothing is mounted at `mountPath`. Instead, paths that begin with
a mountPath are replaced in `command`, `args`, `env` and `workingDir` (`environment.relocate`).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from headgate.atomic_file import write_private
from headgate.resources.core.pod_spec import ConfigMapVolume, Container, KeyPath, Pod, Volume
from headgate.standalone.pods.environment import ConfigError, Mount, Sources

_PRIVATE = 0o700


def materialize(pod: Pod, directory: Path, sources: Sources) -> dict[str, Path]:
    """Write the pod's volumes below `directory`; return the path of each by name. Raises ConfigError.

    ConfigMaps and Secrets are written again each time; an emptyDir keeps its content until the pod is gone.
    """
    return {
        volume.name: _materialize(volume, directory / str(index), sources)
        for index, volume in enumerate(pod.spec.volumes)
    }


def mounts(container: Container, volumes: Mapping[str, Path]) -> list[Mount]:
    """Return the mounts of a container. Raises ConfigError if the pod does not have the volume."""
    mounted = []
    for index, mount in enumerate(container.volume_mounts or ()):
        where = f"container {container.name}, volumeMounts[{index}]"
        if mount.name not in volumes:
            raise ConfigError(f"{where}: the pod has no volume {mount.name!r}; add it to spec.volumes")
        inside = _inside(mount.sub_path, f"{where}.subPath") if mount.sub_path else PurePosixPath()
        mounted.append(Mount(mount.mount_path, str(volumes[mount.name] / inside)))
    return mounted


def _materialize(volume: Volume, directory: Path, sources: Sources) -> Path:
    if volume.host_path:
        return Path(volume.host_path.path)
    directory.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    if volume.empty_dir is not None:
        return directory
    for path, body, mode in _files(volume, sources):
        _write(directory / path, body, mode)
    return directory


def _files(volume: Volume, sources: Sources) -> Iterator[tuple[PurePosixPath, bytes, int]]:
    where = f"volume {volume.name}"
    source = volume.config_map or volume.secret
    if source is None:
        raise ConfigError(
            f"{where}: local pods support only configMap, secret, emptyDir and hostPath volumes; use one of them"
        )
    kind, name = ("ConfigMap", source.name) if isinstance(source, ConfigMapVolume) else ("Secret", source.secret_name)
    keys = sources.get((kind, name))
    if keys is None and not source.optional:
        raise ConfigError(f"{where}: there is no {kind} {name!r}; create it or set optional: true")
    for key_path in source.items or [KeyPath(key=key, path=key) for key in keys or ()]:
        if keys is not None and key_path.key in keys:
            yield _inside(key_path.path, f"{where}, key {key_path.key!r}"), keys[key_path.key], source.default_mode
        elif not source.optional:
            raise ConfigError(f"{where}: {kind} {name!r} has no key {key_path.key!r}; add it or set optional: true")


def _inside(text: str, where: str) -> PurePosixPath:
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ConfigError(f"{where}: path {text!r} leads out of the volume; use a relative path without '..'")
    return path


def _write(path: Path, body: bytes, mode: int) -> None:
    """Replace a file atomically; only its owner may open it."""
    path.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    write_private(path, body)
    path.chmod((mode & _PRIVATE) | 0o400)
