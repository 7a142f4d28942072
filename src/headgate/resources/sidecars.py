"""The type of Sidecars (R79, D18): containers, volumes and variables that are added to pods."""

from typing import Any

from headgate.resources.meta import Input, Resource
from headgate.resources.workloads import LabelSelector


class SidecarSpec(Input, frozen=True, kw_only=True):
    """`spec` of a Sidecar: the selected pods, and the items that are added to them, with all of their fields."""

    selector: LabelSelector
    containers: tuple[dict[str, Any], ...] = ()
    init_containers: tuple[dict[str, Any], ...] = ()
    volumes: tuple[dict[str, Any], ...] = ()
    env: tuple[dict[str, Any], ...] = ()


class Sidecar(Resource, frozen=True, kw_only=True):
    """A Sidecar. It applies to the pods of its namespace that its selector selects."""

    spec: SidecarSpec
