"""The users and groups of containers, from the security contexts of pods. Only root can start programs as other users."""

import contextlib
import itertools
import os
import pwd
from collections.abc import Mapping
from typing import NamedTuple

from headgate.envoy.node_ids import DEFAULT_USER
from headgate.resources.core.pod_spec import Container, Pod, PodSecurityContext, SecurityContext
from headgate.standalone.pods.runs import ConfigError


class ContainerUser(NamedTuple):
    """The user, the group and the supplementary groups of a container; None for those of headgate."""

    user: int | None
    group: int | None
    groups: tuple[int, ...] | None

    @property
    def is_other(self) -> bool:
        """Whether this differs from the user and groups of headgate."""
        is_same = self.user in {None, os.geteuid()} and self.group in {None, os.getegid()}
        return not is_same or bool(set(self.groups or ()) - {os.getegid(), *os.getgroups()})

    def variables(self) -> Mapping[str, str]:
        """Return the variables that describe the user."""
        if self.user is None:
            return {}
        try:
            entry = pwd.getpwuid(self.user)
        except KeyError:
            return {"HOME": "/", "USER": str(self.user), "LOGNAME": str(self.user)}
        return {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}


def container_user(pod: Pod, container: Container) -> ContainerUser:
    """Return the user and groups of a container; its own security context precedes that of the pod.

    A user without runAsGroup has its group of this machine, or the group with its number: Kubernetes uses the group 0, which
    would give it the files of root's group here. Raises ConfigError if the user is root, or that of a headgate that runs as
    root, although it must not be.
    """
    shared, own = pod.spec.security_context or PodSecurityContext(), container.security_context or SecurityContext()
    user = shared.run_as_user if own.run_as_user is None else own.run_as_user
    group = shared.run_as_group if own.run_as_group is None else own.run_as_group
    non_root = shared.run_as_non_root if own.run_as_non_root is None else own.run_as_non_root
    if non_root and user == 0:
        message = (
            f"container {container.name}, securityContext: runAsNonRoot forbids runAsUser 0; set another runAsUser"
        )
        raise ConfigError(message)
    if non_root and user is None and os.geteuid() == 0:
        message = (
            f"container {container.name}, securityContext: runAsNonRoot needs runAsUser, because headgate runs as root and "
            "does not use the image; set runAsUser to another user than 0"
        )
        raise ConfigError(message)
    if user is not None and group is None:
        group = _primary_group(user)
    supplementary = (*(shared.supplemental_groups or ()), *((shared.fs_group,) if shared.fs_group is not None else ()))
    has_groups = user is not None or group is not None or bool(supplementary)
    return ContainerUser(user, group, supplementary if has_groups else None)


def proxy_group(pod: Pod) -> int:
    """Return the group of the pod's sidecar in its own network: the first from 1337 that no container has by the manifest.

    The connections of this group are not redirected, so a program with it would bypass the sidecar.
    """
    taken: set[int | None] = {os.getegid(), *os.getgroups()}
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        with contextlib.suppress(ConfigError):  # the container is not started
            user = container_user(pod, container)
            taken |= {user.group, *(user.groups or ())}
    return next(group for group in itertools.count(DEFAULT_USER) if group not in taken)


def _primary_group(user: int) -> int:
    try:
        return pwd.getpwuid(user).pw_gid
    except KeyError:
        return user
