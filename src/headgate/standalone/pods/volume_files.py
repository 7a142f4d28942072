"""Pure functions that compute the files of volumes from ConfigMaps, Secrets and the pod itself."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from headgate.resources.core.pod_spec import Pod
from headgate.resources.core.pod_volumes import DownwardFile, KeyPath, ProjectedVolume, Volume
from headgate.standalone.pods.downward import file_text
from headgate.standalone.pods.environment import Sources
from headgate.standalone.pods.runs import ConfigError


class VolumeFile(NamedTuple):
    """A file of a volume."""

    path: PurePosixPath
    content: bytes
    mode: int


class VolumeInput(NamedTuple):
    """What volumes are made from: the pod and its address, ConfigMaps and Secrets, the directories of claims by name, and the group of files."""

    pod: Pod
    address: str
    sources: Sources
    claims: Mapping[str, Path]
    group: int | None = None


class _Keys(NamedTuple):
    """The keys of a ConfigMap or Secret that a volume selects."""

    kind: str
    name: str
    items: tuple[KeyPath, ...] | None
    optional: bool


def volume_files(volume: Volume, given: VolumeInput) -> Iterator[VolumeFile]:
    """Yield the files of a volume. Raises ConfigError."""
    where = f"volume {volume.name}"
    if source := volume.config_map:
        keys = _Keys("ConfigMap", source.name, source.items, source.optional)
        yield from _selected(keys, given.sources, default_mode=source.default_mode, where=where)
    elif secret := volume.secret:
        keys = _Keys("Secret", secret.secret_name, secret.items, secret.optional)
        yield from _selected(keys, given.sources, default_mode=secret.default_mode, where=where)
    elif volume.downward_api:
        items = volume.downward_api.items or ()
        yield from _downward(items, given, default_mode=volume.downward_api.default_mode, where=where)
    elif volume.projected:
        yield from _projected(volume.projected, given, where)


def inner_path(text: str, where: str) -> PurePosixPath:
    """Return a path inside a volume. Raises ConfigError if it leads out of the volume."""
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ConfigError(f"{where}: path {text!r} leads out of the volume; use a relative path without '..'")
    return path


def _projected(projected: ProjectedVolume, given: VolumeInput, where: str) -> Iterator[VolumeFile]:
    mode = projected.default_mode
    for index, source in enumerate(projected.sources or ()):
        place = f"{where}, projected.sources[{index}]"
        for kind, objects in (("ConfigMap", source.config_map), ("Secret", source.secret)):
            if objects:
                keys = _Keys(kind, objects.name, objects.items, objects.optional)
                yield from _selected(keys, given.sources, default_mode=mode, where=place)
        if source.downward_api:
            yield from _downward(source.downward_api.items or (), given, default_mode=mode, where=place)


def _selected(keys: _Keys, sources: Sources, *, default_mode: int, where: str) -> Iterator[VolumeFile]:
    values = sources.get((keys.kind, keys.name))
    if values is None and not keys.optional:
        raise ConfigError(f"{where}: there is no {keys.kind} {keys.name!r}; create it or set optional: true")
    for chosen in keys.items or [KeyPath(key=key, path=key) for key in values or ()]:
        if values is not None and chosen.key in values:
            path = inner_path(chosen.path, f"{where}, key {chosen.key!r}")
            yield VolumeFile(path, values[chosen.key], default_mode if chosen.mode is None else chosen.mode)
        elif not keys.optional:
            raise ConfigError(
                f"{where}: {keys.kind} {keys.name!r} has no key {chosen.key!r}; add it or set optional: true"
            )


def _downward(
    items: Iterable[DownwardFile], given: VolumeInput, *, default_mode: int, where: str
) -> Iterator[VolumeFile]:
    for file in items:
        path = inner_path(file.path, f"{where}, file {file.path!r}")
        text = file_text(given.pod, file, address=given.address, where=f"{where}, file {file.path!r}")
        yield VolumeFile(path, text.encode(), default_mode if file.mode is None else file.mode)
