"""`headgate upgrade`: replace the control plane of a cluster by this version, with a check before and after."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

import typer
from msgspec import structs
from rich.status import Status

from headgate import __version__
from headgate.cli.arguments import ApiOptions, with_cluster_options
from headgate.cli.common_options import duration
from headgate.cli.connection import cluster_credentials
from headgate.cli.inspect_client import InspectClient
from headgate.cli.install import HINTS, apply_installation
from headgate.cli.mesh_options import IMAGE, Image, checked_image
from headgate.cli.mesh_source import active_settings, compiled_objects
from headgate.cli.output import TimedOut, note, stderr, stdout
from headgate.errors import HeadgateError, Unavailable
from headgate.formatting import pluralize
from headgate.kubernetes.client import Client
from headgate.kubernetes.install.upgrade import Installed, installed, obstacle
from headgate.plane.inspector import finding_of
from headgate.resources.inspect import PublishedFinding, Severity
from headgate.resources.mesh_status import MeshState

POLL_S = 1.0
_FORCED = "add --force to upgrade nevertheless"


@with_cluster_options
def upgrade(
    image: Image = IMAGE,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the mesh, and change nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Upgrade although a check fails.")] = False,
    timeout: Annotated[
        str,
        typer.Option(
            "--timeout", metavar="DURATION", help="The longest time to wait until all proxies are in sync: 90s, 5m."
        ),
    ] = "5m",
    api: ApiOptions,
) -> None:
    """Replace the control plane of a Kubernetes cluster by this version, and keep the options of the installation.

    The command first checks that the mesh is healthy, and that this version finds no mistake that the running one does not
    find. Afterwards it waits until the proxies are in sync again, and names the workloads whose sidecars are due.
    """
    patience, checked = duration(timeout, "--timeout"), checked_image(image)
    client = Client(cluster_credentials(api, changes=not dry_run), HINTS)
    asyncio.run(_upgrade(client, checked, patience, dry_run=dry_run, force=force))


async def _upgrade(client: Client, image: str, patience: float, *, dry_run: bool, force: bool) -> None:
    async with client:
        inspect_client = InspectClient(client)
        installation = await installed(client)
        if not installation.mesh.aggregated_apis:
            raise HeadgateError(
                "this installation has no inspect API (--no-aggregated-apis), so nothing can be checked; upgrade it by"
                " `headgate install` with the same options"
            )
        before = (await inspect_client.status()).status
        problems = [line async for line in _problems(inspect_client, before, installation)]
        for line in problems:
            note(line)
        if problems and not force:
            raise HeadgateError(f"the checks before the upgrade failed; {_FORCED}")
        change = f"headgate {before.version} -> {__version__}, image {installation.values.image} -> {image}"
        if dry_run:
            stdout().print(f"{change}: nothing is changed (--dry-run)", soft_wrap=True)
            return
        values = structs.replace(installation.values, image=image)
        began = time.monotonic()
        await apply_installation(client, values, installation.mesh, patience)
        after = await _settled(inspect_client, before, patience - (time.monotonic() - began))
        in_sync = f"{after.proxies.in_sync} of {pluralize(after.proxies.total, 'proxy', 'proxies')} in sync"
        stdout().print(f"{change}: {in_sync}", soft_wrap=True)
        due = [workload for workload in await inspect_client.workload_sidecars() if workload.outdated]
        if due:
            note(
                f"{pluralize(len(due), 'workload has', 'workloads have')} sidecars of the version before; they keep"
                " serving, and `headgate restart --outdated -A` replaces them one workload after the other"
            )


async def _problems(client: InspectClient, before: MeshState, installation: Installed) -> AsyncIterator[str]:
    """Yield why an upgrade should wait: the versions, problems of the mesh, and mistakes that only this version finds."""
    if reason := obstacle(before.version, __version__):
        yield reason
    for problem in before.problems:
        yield f"the mesh is not healthy: {problem.message}"
    for finding in await _new_mistakes(client, installation):
        about = finding.object
        yield f"this version finds a mistake in {about.kind} {about.namespace}/{about.name}: {finding.message}"


async def _new_mistakes(client: InspectClient, installation: Installed) -> Sequence[PublishedFinding]:
    """Return the findings with the severity error of this version that the running one does not have."""
    settings = await active_settings(client.client)
    compiled = await compiled_objects(client.client, settings, installation.mesh.namespaces)
    running = {(finding.object, finding.reason, finding.field) for finding in (await client.findings()).items}
    own = map(finding_of, compiled.report.findings)
    errors = [finding for finding in own if finding.severity is Severity.ERROR]
    return [finding for finding in errors if (finding.object, finding.reason, finding.field) not in running]


async def _settled(client: InspectClient, before: MeshState, patience: float) -> MeshState:
    """Wait until this version serves as many proxies in sync as the one before did. Raises TimedOut with what is missing."""
    reason = "the new control plane does not respond yet"
    with (
        contextlib.suppress(TimeoutError),
        Status("waiting until all proxies are in sync", console=stderr()),
    ):
        async with asyncio.timeout(patience):
            while reason:
                with contextlib.suppress(Unavailable):  # the active replica is being replaced
                    after = (await client.status()).status
                    reason = _missing(before, after)
                    if not reason:
                        return after
                await asyncio.sleep(POLL_S)
    raise TimedOut(f"after the upgrade, {reason}; see `headgate status` and `headgate proxies`")


def _missing(before: MeshState, after: MeshState) -> str:
    if after.version != __version__:
        return f"a replica of headgate {after.version} is still active"
    proxies = after.proxies
    if proxies.refused > before.proxies.refused:
        return f"{pluralize(proxies.refused, 'proxy refuses', 'proxies refuse')} the configuration"
    waiting = proxies.lagging + max(0, proxies.disconnected - before.proxies.disconnected)
    return f"{waiting} of {pluralize(proxies.total, 'proxy is', 'proxies are')} not in sync" if waiting else ""
