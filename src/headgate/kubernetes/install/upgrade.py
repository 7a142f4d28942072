"""What an upgrade keeps of an installation, and which versions may follow each other (docs/reference/versions.md)."""

import re
from typing import NamedTuple

from headgate.errors import HeadgateError, NotFound
from headgate.kubernetes.client import Client
from headgate.kubernetes.install.manifests import MANAGED_BY, Values
from headgate.kubernetes.names import DEPLOYMENT_PATH, NAME
from headgate.options import MeshOptions, given_options
from headgate.resources.meta import labels_of

_VERSION = re.compile(r"(\d+)\.(\d+)\.")


class Installed(NamedTuple):
    """The values and the options of an installation by `headgate install`."""

    values: Values
    mesh: MeshOptions


async def installed(client: Client, *, by_any_tool: bool = False) -> Installed:
    """Return the installation of a cluster. Raises HeadgateError if there is none, or if it has options of another version.

    Unless `by_any_tool`, also raises it if another tool than `headgate install` manages it, such as Helm.
    """
    try:
        deployment = await client.get(DEPLOYMENT_PATH)
    except NotFound:
        raise HeadgateError("headgate is not installed on this cluster; run `headgate install`") from None
    manager = labels_of(deployment).get(MANAGED_BY)
    if manager != NAME and not by_any_tool:
        raise HeadgateError(
            f"{manager or 'another tool'} manages this installation; upgrade it by that tool (`helm upgrade`)"
        )
    containers = deployment["spec"]["template"]["spec"]["containers"]
    container = next((entry for entry in containers if entry["name"] == NAME), None)
    if container is None:
        raise HeadgateError(f"the Deployment {NAME} has no container {NAME}; run `headgate install` with all options")
    try:
        given = given_options(container.get("args") or ())
    except ValueError as error:
        raise HeadgateError(f"{error}, which the installation has; run `headgate install` with all options") from error
    values = Values(
        image=container["image"],
        pull_policy=container["imagePullPolicy"],
        replicas=deployment["spec"]["replicas"],
        options=given.texts,
    )
    return Installed(values, given.mesh)


def next_image(image: str, version: str) -> str:
    """Return the image with the tag of a version, from the same repository. Raises HeadgateError for an image by digest."""
    if "@" in image:
        raise HeadgateError(f"the installation has the image {image} by its digest; name the next one with --image")
    place, slash, name = image.rpartition("/")
    return f"{place}{slash}{name.partition(':')[0]}:{version}"


def obstacle(running: str, following: str) -> str:
    """Return why a version can't follow the running one; empty if it can.

    The same minor version and the next one can, and the first one of the next major version.
    """
    before, after = _minor(running), _minor(following)
    if after < before:
        return f"the cluster runs headgate {running}, which is newer than {following}; use the command of that version"
    if after not in (before, (before[0], before[1] + 1), (before[0] + 1, 0)):
        return (
            f"the cluster runs headgate {running}, and {following} skips minor versions; upgrade by one minor version at a"
            " time"
        )
    return ""


def _minor(version: str) -> tuple[int, int]:
    match = _VERSION.match(version)
    if not match:
        raise HeadgateError(f"{version!r} is not a version of headgate")
    return int(match[1]), int(match[2])
