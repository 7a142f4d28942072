"""`headgate upgrade`: replace the control plane of a cluster by this version, with a check before and after."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import typer
from msgspec import structs
from rich.status import Status

from headgate import __version__
from headgate.backoff import until_done
from headgate.cli.arguments import ApiOptions, with_cluster_options
from headgate.cli.common_options import duration
from headgate.cli.connection import cluster_credentials
from headgate.cli.inspect_client import InspectClient
from headgate.cli.install import HINTS, apply_installation
from headgate.cli.mesh_options import checked_image
from headgate.cli.mesh_source import active_settings, compiled_objects
from headgate.cli.output import TimedOut, note, stderr, stdout
from headgate.errors import HeadgateError
from headgate.formatting import pluralize
from headgate.kubernetes.client import Client
from headgate.kubernetes.install.installer import Installer
from headgate.kubernetes.install.upgrade import Installed, installed, next_image, obstacle
from headgate.plane.inspector import finding_of
from headgate.plane.mesh_state import ERRORS_IN_OBJECTS
from headgate.resources.inspect import PublishedFinding, Severity
from headgate.resources.mesh_status import MeshProblem, MeshState, ProxyCounts

POLL_S = 1.0


@with_cluster_options
def upgrade(
    image: Annotated[
        str,
        typer.Option(
            "--image",
            metavar="IMAGE",
            help="Image of the control plane and of the sidecars; by default the installation's image, with the tag of this version.",
            show_default=False,
        ),
    ] = "",
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the mesh, and change nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Upgrade although a check fails.")] = False,
    timeout: Annotated[
        str,
        typer.Option(
            "--timeout",
            metavar="DURATION",
            help="The longest time to wait until the control plane is ready, and then until all proxies are in sync: 90s, 5m.",
        ),
    ] = "5m",
    api: ApiOptions,
) -> None:
    """Replace the control plane of a Kubernetes cluster by this version, and keep the options of the installation.

    The command first checks that the mesh is healthy, and that this version finds no mistake that the running one does not
    find. Afterwards it waits until the proxies are in sync again, and names the workloads whose sidecars are due.
    """
    patience, checked = duration(timeout, "--timeout"), image and checked_image(image)
    client = Client(cluster_credentials(api, changes=not dry_run), HINTS)
    asyncio.run(_upgrade(client, checked, patience, dry_run=dry_run, force=force))


async def _upgrade(client: Client, image: str, patience: float, *, dry_run: bool, force: bool) -> None:
    async with client:
        inspect_client = InspectClient(client)
        installation = await installed(client, by_any_tool=dry_run)
        if not installation.mesh.aggregated_apis:
            raise HeadgateError(
                "this installation has no inspect API (--no-aggregated-apis), so nothing can be checked; upgrade it by"
                " `headgate install` with the same options"
            )
        values = structs.replace(installation.values, image=image or next_image(installation.values.image, __version__))
        before, problems = await _state_before(inspect_client, installation)
        for line in problems:
            note(line)
        if problems and not force:
            raise HeadgateError("the checks before the upgrade failed; add --force to upgrade nevertheless")
        version = before.version if before else "of an unknown version"
        change = f"headgate {version} -> {__version__}, image {installation.values.image} -> {values.image}"
        if dry_run:
            stdout().print(f"{change}: nothing is changed (--dry-run)", soft_wrap=True)
            return
        await apply_installation(client, values, installation.mesh, patience)
        is_replaced = values.image != installation.values.image
        after = await _settled(inspect_client, _Expected(before, is_replaced=is_replaced), patience)
        in_sync = f"{after.proxies.in_sync} of {pluralize(after.proxies.total, 'proxy', 'proxies')} in sync"
        stdout().print(f"{change}: {in_sync}", soft_wrap=True)
        await _say_what_is_due(inspect_client, installation)


async def _say_what_is_due(client: InspectClient, installation: Installed) -> None:
    if installation.mesh.nginx_image:
        note(f"gateways with nginx keep the image {installation.mesh.nginx_image}; `headgate install` changes it")
    with contextlib.suppress(HeadgateError):  # the upgrade itself is done
        due = [workload for workload in await client.workload_sidecars() if workload.outdated]
        if due:
            note(
                f"{pluralize(len(due), 'workload has', 'workloads have')} sidecars of the version before; they keep"
                " serving, and `headgate restart --outdated -A` replaces them one workload after the other"
            )


async def _state_before(client: InspectClient, installation: Installed) -> tuple[MeshState | None, Sequence[str]]:
    """Return the state of the mesh, None if it can't be read, and why the upgrade should wait."""
    before: MeshState | None = None
    problems: list[str] = []
    try:
        before = (await client.status()).status
        problems += filter(None, [obstacle(before.version, __version__)])
        problems += [f"the mesh is not healthy: {problem.message}" for problem in _own_problems(before)]
        for finding in await _new_mistakes(client, installation):
            problems.append(f"this version finds a mistake in {finding.object}: {finding.message}")
    except HeadgateError as error:
        problems.append(f"the mesh can't be checked: {error}")
    installer = Installer(client.client)
    try:
        await installer.check_options(installation.mesh)
    except HeadgateError as error:
        problems.append(f"{error}; `headgate install` changes options")
    return before, problems


def _own_problems(state: MeshState) -> Sequence[MeshProblem]:
    """Return the problems that are not mistakes in objects: those that the running version finds do not matter."""
    return [problem for problem in state.problems if problem.reason != ERRORS_IN_OBJECTS]


async def _new_mistakes(client: InspectClient, installation: Installed) -> Sequence[PublishedFinding]:
    """Return the findings with the severity error of this version that the running one does not have."""
    settings = await active_settings(client.client)
    compiled = await compiled_objects(client.client, settings, installation.mesh.namespaces)
    running = {(finding.object, finding.reason, finding.field) for finding in (await client.findings()).items}
    own = map(finding_of, compiled.report.findings)
    errors = [finding for finding in own if finding.severity is Severity.ERROR]
    return [finding for finding in errors if (finding.object, finding.reason, finding.field) not in running]


class _Expected(NamedTuple):
    """The state before an upgrade, if it is known, and whether new pods replace the ones before."""

    before: MeshState | None
    is_replaced: bool

    def missing(self, after: MeshState) -> str:
        """Return why the upgrade is not complete; empty if it is."""
        if self.before and self.is_replaced and (after.start_time or "") <= (self.before.start_time or ""):
            return f"a replica of headgate {after.version} from before is still active"
        if after.version != __version__:
            return f"the image has headgate {after.version} and not {__version__}"
        earlier = self.before.proxies if self.before else ProxyCounts(total=0)
        proxies = after.proxies
        if proxies.refused > earlier.refused:
            return f"{pluralize(proxies.refused, 'proxy refuses', 'proxies refuse')} the configuration"
        if waiting := proxies.lagging + max(0, proxies.disconnected - earlier.disconnected):
            return f"{waiting} of {pluralize(proxies.total, 'proxy is', 'proxies are')} not in sync"
        reasons = {problem.reason for problem in self.before.problems} if self.before else set()
        new = [problem for problem in _own_problems(after) if self.before and problem.reason not in reasons]
        return f"the mesh is not healthy: {new[0].message}" if new else ""


async def _settled(client: InspectClient, expected: _Expected, patience: float) -> MeshState:
    """Wait until this version serves as many proxies in sync as the one before did. Raises TimedOut with what is missing."""
    reason = "the new control plane does not respond yet"

    async def settled() -> MeshState:
        after = (await client.status()).status  # fails while the active replica is being replaced
        if missing := expected.missing(after):
            raise HeadgateError(missing)
        return after

    async def wait(error: Exception, _pause: float) -> None:
        nonlocal reason
        reason = str(error)
        await asyncio.sleep(POLL_S)

    spinner = Status("waiting until all proxies are in sync", console=stderr())
    with contextlib.suppress(TimeoutError), spinner:
        async with asyncio.timeout(patience):
            return await until_done(settled, wait, on=HeadgateError)
    raise TimedOut(f"{patience:g} s after the upgrade, {reason}; see `headgate status` and `headgate proxies`")
