"""How the containers of a pod are started: their volumes, variables, mounts and working directory."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from headgate.errors import NotFound
from headgate.objects.ports import Store
from headgate.resources.core.pod_spec import Container, Pod
from headgate.resources.meta import Key
from headgate.standalone.isolation import Isolation, MountPoint, MountSupport
from headgate.standalone.pods import claims
from headgate.standalone.pods.environment import command_line, content, named_sources, relocate, resolve_env
from headgate.standalone.pods.runs import Owner
from headgate.standalone.pods.volume_files import VolumeInput
from headgate.standalone.pods.volumes import materialize, mounts
from headgate.standalone.processes import Launch, inherited

_VOLUMES, _STAGING = "_volumes", "_staging"  # directories of a pod; no container can have these names


class LaunchServices(NamedTuple):
    """What launches of all pods use: the store, the state directory, and whether this machine allows mounts."""

    store: Store
    state: Path
    mounting: MountSupport


class Launches:
    """Prepares the launches of a pod's containers. `directory` is that of the pod, `address` its IP address."""

    def __init__(self, services: LaunchServices, directory: Path, address: str, owner: Owner) -> None:
        self._services = services
        self._directory = directory
        self._address = address
        self._owner = owner
        self._is_fault_reported = False

    async def prepare(self, pod: Pod, container: Container, variables: Mapping[str, str]) -> Launch:
        """Write the volumes of a pod; return how to start a container of it. Raises ConfigError.

        `variables` are those that headgate sets in the container.
        """
        given = await self._input(pod)
        volumes = materialize(given, self._directory / _VOLUMES)
        base = {**inherited(os.environ), **variables}
        own = resolve_env(pod, container, address=self._address, sources=given.sources, base=base)
        env = {**base, **own}
        mounted = mounts(container, volumes, env)
        if not mounted:
            return Launch(command=command_line(container, env, ()), env=env, cwd=container.working_dir)
        if fault := await self._services.mounting.fault():
            await self._report(fault)
            relocated = base | {name: relocate(value, mounted) for name, value in own.items()}
            cwd = relocate(container.working_dir, mounted)
            return Launch(command=command_line(container, env, mounted), env=relocated, cwd=cwd)
        return Launch(
            command=command_line(container, env, ()),
            env=env,
            cwd=container.working_dir,
            isolation=self._isolation(mounted),
        )

    async def refresh(self, pod: Pod) -> None:
        """Write the volumes again, after a change to a ConfigMap, a Secret or the pod's metadata. Raises ConfigError."""
        materialize(await self._input(pod), self._directory / _VOLUMES)

    def _isolation(self, mounted: list[MountPoint]) -> Isolation:
        staging = self._directory / _STAGING
        staging.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Isolation(mounts=tuple(mounted), staging=str(staging))

    async def _report(self, fault: str) -> None:
        if not self._is_fault_reported:
            self._is_fault_reported = True
            message = (
                f"{fault}. Programs find volumes only by paths that begin with a mountPath in command, args, env and "
                "workingDir, which headgate replaces. Run headgate as root, or allow unprivileged user namespaces"
            )
            await self._owner.record_event("Warning", "VolumesNotMounted", message)

    async def _input(self, pod: Pod) -> VolumeInput:
        namespace = pod.metadata.namespace
        sources: dict[tuple[str, str], Mapping[str, bytes]] = {}
        for kind, name in named_sources(pod):
            try:
                sources[kind, name] = content(await self._services.store.get(Key("", kind, namespace, name)))
            except NotFound:
                continue
        directories = await claims.directories(self._services.store, self._services.state, pod)
        return VolumeInput(pod, self._address, sources, directories)
