"""Types of the volumes of pods, with the fields that the local runtime reads."""

from typing import Any

from msgspec import field

from headgate.resources.meta import Input

DEFAULT_MODE = 0o644
"""The mode of files in volumes, unless the volume or the key sets another one."""


class FieldRef(Input, frozen=True, kw_only=True):
    """A reference to a field of the pod itself."""

    field_path: str


class ResourceFieldRef(Input, frozen=True, kw_only=True):
    """A reference to a limit or request of a container, in units of `divisor`. Volumes name the container."""

    resource: str
    container_name: str = ""
    divisor: str | int | float = "0"


class KeyPath(Input, frozen=True, kw_only=True):
    """A key of a ConfigMap or Secret, and the file that contains its value."""

    key: str
    path: str
    mode: int | None = None


class ConfigMapVolume(Input, frozen=True, kw_only=True):
    """A volume with the keys of a ConfigMap as files."""

    name: str = ""
    optional: bool = False
    items: tuple[KeyPath, ...] | None = None
    default_mode: int = DEFAULT_MODE


class SecretVolume(Input, frozen=True, kw_only=True):
    """A volume with the keys of a Secret as files."""

    secret_name: str = ""
    optional: bool = False
    items: tuple[KeyPath, ...] | None = None
    default_mode: int = DEFAULT_MODE


class DownwardFile(Input, frozen=True, kw_only=True):
    """A file with a field of the pod or a resource of a container."""

    path: str
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None
    mode: int | None = None


class DownwardVolume(Input, frozen=True, kw_only=True):
    """A volume with fields of the pod as files."""

    items: tuple[DownwardFile, ...] | None = None
    default_mode: int = DEFAULT_MODE


class ProjectedObject(Input, frozen=True, kw_only=True):
    """A ConfigMap or Secret in a projected volume."""

    name: str = ""
    optional: bool = False
    items: tuple[KeyPath, ...] | None = None


class Projection(Input, frozen=True, kw_only=True):
    """A source of a projected volume; exactly one field is set."""

    config_map: ProjectedObject | None = None
    secret: ProjectedObject | None = None
    downward_api: DownwardVolume | None = field(name="downwardAPI", default=None)


class ProjectedVolume(Input, frozen=True, kw_only=True):
    """A volume with files from several sources."""

    sources: tuple[Projection, ...] | None = None
    default_mode: int = DEFAULT_MODE


class HostPathVolume(Input, frozen=True, kw_only=True):
    """A volume that is a directory or file of this machine. `type` says what must be there, or what is created."""

    path: str
    type: str | None = None


class ClaimVolume(Input, frozen=True, kw_only=True):
    """A volume that outlives the pod: that of a PersistentVolumeClaim."""

    claim_name: str
    read_only: bool = False


class Volume(Input, frozen=True, kw_only=True):
    """A volume; exactly one source is set."""

    name: str
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    downward_api: DownwardVolume | None = field(name="downwardAPI", default=None)
    projected: ProjectedVolume | None = None
    empty_dir: dict[str, Any] | None = None
    host_path: HostPathVolume | None = None
    persistent_volume_claim: ClaimVolume | None = None

    @property
    def fault(self) -> str:
        """The reason why a pod with this volume can't start on one machine; empty if it can."""
        supported = (self.config_map, self.secret, self.downward_api, self.projected, self.host_path)
        if any(supported) or self.empty_dir is not None or self.persistent_volume_claim:
            return ""
        return (
            "local pods support only configMap, secret, projected, downwardAPI, emptyDir, hostPath and "
            "persistentVolumeClaim volumes; use one of them"
        )
