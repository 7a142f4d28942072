"""The control groups of one container: its process, and the probes, hooks and commands that join it."""

from pathlib import Path

from msgspec.structs import replace

from headgate import control_groups
from headgate.quantity import parse_quantity
from headgate.resources.core.pod_spec import Container
from headgate.standalone.isolation import Isolation
from headgate.standalone.pods.runs import ConfigError
from headgate.standalone.processes import Launch


def limited(launch: Launch, container: Container, directory: Path) -> tuple[Launch, str]:
    """Return the launch of a container in its control groups, which exist then, and why its limits have no effect, if so.

    `directory` is that of the container. Raises ConfigError when a limit is not a quantity.
    """
    given = (container.resources and container.resources.limits) or {}
    try:
        amounts = {name: parse_quantity(str(given[name])) for name in control_groups.CONTROLLERS & given.keys()}
    except ValueError as error:
        raise ConfigError(f"resources.limits: {error}") from error
    uid = directory.parent.name.rpartition("_")[2]
    try:
        groups = control_groups.create(f"{uid}-{container.name}", control_groups.ContainerLimits(**amounts), directory)
    except OSError as error:
        return (
            launch,
            f"resources.limits: the container has no limits, because headgate can't make its control group: {error}",
        )
    return _in_groups(launch, groups), ""


def joining(launch: Launch, directory: Path) -> Launch:
    """Return a launch in the control groups that a running container has; `directory` is that of the container."""
    return _in_groups(launch, control_groups.existing(directory))


def _in_groups(launch: Launch, groups: tuple[str, ...]) -> Launch:
    return (
        replace(launch, isolation=replace(launch.isolation or Isolation(), control_groups=groups)) if groups else launch
    )
