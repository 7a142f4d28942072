"""Volumes as directories of this machine: ConfigMaps and Secrets as files, empty directories, claims, host paths.

Containers see them at their mountPath, in a mount namespace (`isolation`). Where the machine allows none, paths that begin
with a mountPath are replaced in `command`, `args`, `env` and `workingDir` instead (`environment.relocate`).

The directories have the modes of Kubernetes, for containers with users of their own. Other users of the machine can't
reach them, because the directory of all pods is private.
"""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from headgate.resources.core.pod_spec import Container, VolumeMount
from headgate.resources.core.pod_volumes import HostPathVolume, Volume
from headgate.standalone.isolation import MountPoint
from headgate.standalone.pods.environment import expand
from headgate.standalone.pods.runs import ConfigError
from headgate.standalone.pods.volume_files import VolumeFile, VolumeInput, inner_path, volume_files

_FOR_ALL_USERS = 0o777
_READABLE = 0o755  # of directories with files that headgate writes
_GROUP_READS, _GROUP_WRITES = 0o440, 0o660  # what an fsGroup adds to the modes of files, as in Kubernetes
_DATA = "..data"  # a link to the directory with the current files, as in Kubernetes: programs watch it
_HOST_PATH_CHECKS = {
    "Directory": stat.S_ISDIR,
    "File": stat.S_ISREG,
    "Socket": stat.S_ISSOCK,
    "CharDevice": stat.S_ISCHR,
    "BlockDevice": stat.S_ISBLK,
}


class PodVolume(NamedTuple):
    """A volume on this machine. `creates` says that a missing subPath becomes a directory, as in Kubernetes."""

    path: Path
    read_only: bool = False
    creates: bool = False


def materialize(given: VolumeInput, directory: Path) -> dict[str, PodVolume]:
    """Write the pod's volumes below `directory`; return each by name. Raises ConfigError.

    Files are replaced when they differ; an emptyDir keeps its content until the pod is gone.
    """
    return {
        volume.name: _materialize(volume, given, directory / str(index))
        for index, volume in enumerate(given.pod.spec.volumes)
    }


def mounts(container: Container, volumes: Mapping[str, PodVolume], env: Mapping[str, str]) -> list[MountPoint]:
    """Return the mounts of a container. `env` expands subPathExpr. Raises ConfigError if the pod does not have the volume."""
    mounted = []
    for index, mount in enumerate(container.volume_mounts or ()):
        where = f"container {container.name}, volumeMounts[{index}]"
        if mount.name not in volumes:
            raise ConfigError(f"{where}: the pod has no volume {mount.name!r}; add it to spec.volumes")
        volume = volumes[mount.name]
        source = _mounted_path(volume, mount, env, where)
        mounted.append(
            MountPoint(
                path=mount.mount_path,
                source=str(source),
                field=where,
                read_only=mount.read_only or volume.read_only,
            )
        )
    return mounted


def make_directory(directory: Path) -> Path:
    """Create a directory that all users of containers can write to; return it."""
    if not directory.exists():
        directory.mkdir(parents=True)
        directory.chmod(_FOR_ALL_USERS)
    return directory


def _mounted_path(volume: PodVolume, mount: VolumeMount, env: Mapping[str, str], where: str) -> Path:
    text = mount.sub_path or expand(mount.sub_path_expr, env)
    if not text:
        return volume.path
    path = volume.path / inner_path(text, f"{where}.subPath")
    if not path.resolve().is_relative_to(volume.path.resolve()):
        raise ConfigError(f"{where}.subPath: {text!r} is a link that leads out of the volume; correct the link")
    if not path.exists():
        if not volume.creates:
            raise ConfigError(f"{where}.subPath: volume {mount.name!r} has no {text!r}; correct the path")
        _make_inside(volume.path, path)
    return path.resolve()


def _make_inside(volume: Path, path: Path) -> None:
    """Create a directory in a volume, with the mode of the volume, as in Kubernetes: a hostPath may be private."""
    mode = stat.S_IMODE(volume.stat().st_mode)
    for directory in reversed([path, *path.parents]):
        if not directory.exists():
            directory.mkdir()
            directory.chmod(mode)


def _materialize(volume: Volume, given: VolumeInput, directory: Path) -> PodVolume:
    where = f"volume {volume.name}"
    if volume.host_path:
        return PodVolume(_host_path(volume.host_path, where), creates=True)
    if claim := volume.persistent_volume_claim:
        if claim.claim_name not in given.claims:
            message = (
                f"{where}: there is no PersistentVolumeClaim {claim.claim_name!r}, or it is being deleted; create it"
            )
            raise ConfigError(message)
        _give_to_group(given.claims[claim.claim_name], given.group)
        return PodVolume(given.claims[claim.claim_name], claim.read_only, creates=True)
    if volume.empty_dir is not None:
        _give_to_group(make_directory(directory), given.group)
        return PodVolume(directory, creates=True)
    if volume.fault:
        raise ConfigError(f"{where}: {volume.fault}")
    files = list(volume_files(volume, given))
    if given.group is not None:
        files = [file._replace(mode=file.mode | _GROUP_READS) for file in files]
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(_READABLE)  # whatever umask headgate has
    _publish(files, directory, given.group)
    return PodVolume(directory, read_only=True)


def _host_path(host: HostPathVolume, where: str) -> Path:
    path, type = Path(host.path), host.type or ""
    try:
        if type == "DirectoryOrCreate":
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
        elif type == "FileOrCreate" and not path.exists():
            path.touch(mode=0o644)
        mode = path.stat().st_mode
    except OSError as error:
        hint = "" if type else "; create it, or set hostPath.type: DirectoryOrCreate"
        raise ConfigError(f"{where}: hostPath.path {host.path}: {error.strerror}{hint}") from error
    check = _HOST_PATH_CHECKS.get(type.removesuffix("OrCreate"))
    if check and not check(mode):
        raise ConfigError(f"{where}: hostPath.path {host.path} is no {type.removesuffix('OrCreate')}; correct the path")
    return path


def _give_to_group(directory: Path, group: int | None) -> None:
    """Give all files of a volume to the pod's fsGroup, unless the volume has it already (as OnRootMismatch)."""
    if group is None or directory.stat().st_gid == group:
        return
    for parent, _, names in os.walk(directory, topdown=False):
        for path in (Path(parent) / name for name in names):
            os.chown(path, -1, group, follow_symlinks=False)
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | _GROUP_WRITES)
        os.chown(parent, -1, group)
        Path(parent).chmod(Path(parent).stat().st_mode | _GROUP_WRITES | stat.S_ISGID | stat.S_IXGRP)


def _publish(files: Sequence[VolumeFile], directory: Path, group: int | None) -> None:
    """Replace all files of a volume at once: a program sees the old files or the new ones (as Kubernetes' AtomicWriter).

    Each file is a link through `..data` to a directory with the current files, and this link is replaced.
    """
    data = directory / _DATA
    if _content(data, files) == {file.path.as_posix(): (file.content, file.mode) for file in files}:
        _link_names(directory, files)  # a killed headgate may have left it half done
        return
    fresh, old = Path(tempfile.mkdtemp(prefix="..", dir=directory)), data.readlink() if data.is_symlink() else None
    fresh.chmod(_READABLE)
    for file in files:
        path = fresh / file.path
        for parent in reversed(file.path.parents):
            (fresh / parent).mkdir(exist_ok=True)
            (fresh / parent).chmod(_READABLE)
        path.write_bytes(file.content)
        path.chmod(file.mode)
        if group is not None:
            os.chown(path, -1, group)
    link = directory / "..data_tmp"
    link.unlink(missing_ok=True)
    link.symlink_to(fresh.name)
    link.replace(data)
    _link_names(directory, files)
    if old is not None:
        shutil.rmtree(directory / old, ignore_errors=True)


def _link_names(directory: Path, files: Sequence[VolumeFile]) -> None:
    """Let a volume have a link for each file, or for the directory that contains it, and no other links."""
    names = {file.path.parts[0] for file in files}
    for name in names:
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"{_DATA}/{name}")
    for path in directory.iterdir():
        if path.is_symlink() and path.name not in names and not path.name.startswith(".."):
            path.unlink()


def _content(data: Path, files: Sequence[VolumeFile]) -> Mapping[str, tuple[bytes, int]] | None:
    """Return the published content and modes by path; None if it is not that of as many files."""
    with contextlib.suppress(OSError):
        paths = [Path(parent) / name for parent, _, names in os.walk(data) for name in names]
        if len(paths) == len(files):
            return {
                path.relative_to(data).as_posix(): (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
                for path in paths
            }
    return None
