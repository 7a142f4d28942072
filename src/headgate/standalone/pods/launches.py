"""How the containers of a pod are started: their volumes, variables, mounts and working directory."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from headgate.errors import NotFound
from headgate.objects.ports import Store
from headgate.resources.core.pod_spec import Container, Pod
from headgate.resources.core.service import Service
from headgate.resources.decode import read
from headgate.resources.meta import Key
from headgate.standalone.isolation import Isolation, MountSupport
from headgate.standalone.network.pod_files import PodName, host_name
from headgate.standalone.network.pod_network import PodNetwork
from headgate.standalone.pods import claims
from headgate.standalone.pods.environment import command_line, content, named_sources, relocate, resolve_env
from headgate.standalone.pods.runs import Owner
from headgate.standalone.pods.service_variables import service_variables
from headgate.standalone.pods.users import container_user
from headgate.standalone.pods.volume_files import VolumeInput
from headgate.standalone.pods.volumes import materialize, mounts
from headgate.standalone.processes import Launch, inherited

_REPLACED = (
    "Programs find volumes only by paths that begin with a mountPath in command, args, env and workingDir, which headgate "
    "replaces. Run headgate as root, or allow unprivileged user namespaces"
)
_VOLUMES, _STAGING, _NAMES = "_volumes", "_staging", "_names"  # directories of a pod; no container can have these names


class LaunchServices(NamedTuple):
    """What launches of all pods use: the store, the state directory, and whether this machine allows mounts."""

    store: Store
    state: Path
    mounting: MountSupport


class Launches:
    """Prepares the launches of a pod's containers. `directory` is that of the pod, `address` its IP address."""

    def __init__(
        self, services: LaunchServices, directory: Path, address: str, owner: Owner, network: PodNetwork
    ) -> None:
        self._services = services
        self._network = network
        self._directory = directory
        self._address = address
        self._owner = owner
        self._reported: set[str] = set()

    async def prepare(self, pod: Pod, container: Container, variables: Mapping[str, str]) -> Launch:
        """Write the volumes of a pod; return how to start a container of it. Raises ConfigError.

        `variables` has those that headgate sets in the container.
        """
        given = await self._input(pod)
        volumes = materialize(given, self._directory / _VOLUMES)
        user = container_user(pod, container)
        changes_user = user.is_other and os.geteuid() == 0
        services = await self._service_variables(pod) if pod.spec.enable_service_links else {}
        own_user = user.variables() if changes_user else {}
        base = {**services, **inherited(os.environ), **own_user, **variables}
        own = resolve_env(pod, container, address=self._address, sources=given.sources, base=base)
        env = {**base, **own}
        if user.is_other and not changes_user:
            message = (
                "securityContext: only root can start programs as another user or group; they run as that of headgate"
            )
            await self._report("FieldIgnored", message)
        isolation = Isolation(user=user.user, group=user.group, groups=user.groups) if changes_user else None
        hostname = host_name(pod.spec.hostname or pod.metadata.name)
        isolation = self._network.isolation(isolation, hostname)
        mounted = mounts(container, volumes, env)
        name = PodName(pod.metadata.namespace, hostname, self._address, pod.spec)
        names = self._network.files(name, self._directory / _NAMES)
        if (mounted or names) and (fault := await self._services.mounting.fault()):
            await self._report("VolumesNotMounted", f"{fault}. {_REPLACED}")
            relocated = base | {name: relocate(value, mounted) for name, value in own.items()}
            cwd = relocate(container.working_dir, mounted)
            command = command_line(container, env, mounted)
            return Launch(command=command, env=relocated, cwd=cwd, isolation=isolation)
        if mounted := [*names, *mounted]:
            isolation = replace(isolation or Isolation(), mounts=tuple(mounted), staging=self._staging())
        command = command_line(container, env, ())
        return Launch(command=command, env=env, cwd=container.working_dir, isolation=isolation)

    async def refresh(self, pod: Pod) -> None:
        """Write the volumes again, after a change to a ConfigMap, a Secret or the pod's metadata. Raises ConfigError."""
        materialize(await self._input(pod), self._directory / _VOLUMES)

    async def _service_variables(self, pod: Pod) -> dict[str, str]:
        services = (await self._services.store.list("", "Service", pod.metadata.namespace)).items
        return service_variables(read(service, Service) for service in services)

    def _staging(self) -> str:
        directory = self._directory / _STAGING
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return str(directory)

    async def _report(self, reason: str, message: str) -> None:
        """Write an Event, once for each reason."""
        if reason not in self._reported:
            self._reported.add(reason)
            await self._owner.record_event("Warning", reason, message)

    async def _input(self, pod: Pod) -> VolumeInput:
        namespace = pod.metadata.namespace
        sources: dict[tuple[str, str], Mapping[str, bytes]] = {}
        for kind, name in named_sources(pod):
            try:
                sources[kind, name] = content(await self._services.store.get(Key("", kind, namespace, name)))
            except NotFound:
                continue
        directories = await claims.directories(self._services.store, self._services.state, pod)
        context = pod.spec.security_context
        group = context.fs_group if context and os.geteuid() == 0 else None
        return VolumeInput(pod, self._address, sources, directories, group)
