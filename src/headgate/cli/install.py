"""`headgate install` and `headgate uninstall`: the installation on a Kubernetes cluster, without Helm."""

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from itertools import chain
from typing import Annotated, NamedTuple

import typer
import yaml
from msgspec import structs
from rich.console import Console
from rich.status import Status

from headgate.admission.injection import NAMESPACE_NAME
from headgate.cli.arguments import ApiOptions, with_cluster_options
from headgate.cli.common_options import duration
from headgate.cli.connection import cluster_credentials
from headgate.cli.mesh_options import IMAGE, Image, checked_image, with_mesh_options
from headgate.cli.output import TimedOut, note, stderr, stdout, usage_error
from headgate.errors import HeadgateError, Unavailable
from headgate.formatting import pluralize
from headgate.kubernetes.client import Client, ErrorHints
from headgate.kubernetes.install.definitions import DEFINITION, Definitions
from headgate.kubernetes.install.installer import Installer
from headgate.kubernetes.install.manifests import Values, all_manifests, manifests, revision_manifests
from headgate.kubernetes.install.revisions import RevisionInstaller, check_name
from headgate.kubernetes.install.unready import UnreadyPods, blocked_deletions
from headgate.kubernetes.install.upgrade import installed
from headgate.kubernetes.names import REVISION_PREFIX
from headgate.options import GivenOptions, MeshOptions
from headgate.resources.core.pod_metadata import REVISION
from headgate.resources.meta import Object

Revision = Annotated[
    str,
    typer.Option("--revision", metavar="NAME", help="Only this revision, beside the default one.", show_default=False),
]
REPORT_S = 3.0
"""Seconds between two looks at why the control plane is not ready yet."""
HINTS = ErrorHints(
    unreachable="check the cluster that the kubeconfig names, or choose another --context",
    refused="use a kubeconfig of a cluster administrator",
)


@with_cluster_options
@with_mesh_options()
def install(
    image: Image = IMAGE,
    *,
    replicas: Annotated[
        int, typer.Option("--replicas", metavar="NUMBER", min=1, help="Replicas of the control plane; one is active.")
    ] = 2,
    revision: Revision = "",
    given: GivenOptions,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the manifests, and change nothing.")] = False,
    timeout: Annotated[
        str,
        typer.Option(
            "--timeout", metavar="DURATION", help="The longest time to wait until the control plane is ready: 90s, 5m."
        ),
    ] = "5m",
    api: ApiOptions,
) -> None:
    """Install headgate on a Kubernetes cluster, or change its options. A second run with the same options changes nothing.

    With --revision, install another version beside it, with the same options: it injects and configures the sidecars in namespaces
    with the label headgate.dev/rev=NAME.
    """
    patience = duration(timeout, "--timeout")
    if revision:
        if given.mesh != MeshOptions():
            raise usage_error(
                "a revision has the options of the installation; leave out their flags", option="--revision"
            )
        chosen = _Chosen(check_name(revision), checked_image(image), replicas)
        client = Client(cluster_credentials(api, changes=not dry_run), HINTS)
        asyncio.run(_install_revision(client, chosen, patience, dry_run=dry_run))
        return
    values = Values(image=checked_image(image), replicas=replicas, options=given.texts)
    if dry_run:
        sys.stdout.write(yaml.safe_dump_all(manifests(values), sort_keys=False))
        return
    asyncio.run(_install(Client(cluster_credentials(api, changes=True), HINTS), values, given.mesh, patience=patience))


@with_cluster_options
def uninstall(
    *,
    revision: Revision = "",
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Uninstall although pods still have sidecars, which then get no updates, and without a confirmation.",
        ),
    ] = False,
    timeout: Annotated[
        str,
        typer.Option("--timeout", metavar="DURATION", help="The longest time to wait until all is deleted: 90s, 5m."),
    ] = "5m",
    api: ApiOptions,
) -> None:
    """Remove headgate from a Kubernetes cluster, with its CustomResourceDefinitions and all of their objects.

    First it counts the objects of users that it deletes; at a terminal, it waits for a confirmation. Definitions that were there before headgate stay, with their objects. With --revision, remove only this revision: the default
    one serves its namespaces again.
    """
    patience = duration(timeout, "--timeout")
    client = Client(cluster_credentials(api, changes=True), HINTS)
    if revision:
        asyncio.run(_uninstall_revision(client, check_name(revision)))
        return
    asyncio.run(_uninstall(client, force=force, patience=patience))


async def _install(client: Client, values: Values, mesh: MeshOptions, *, patience: float) -> None:
    async with client:
        await apply_installation(client, values, mesh, patience)
    hint = "; label a namespace with headgate.dev/inject=true to add sidecars to its new pods"
    stdout().print(f"headgate is ready{hint if mesh.sidecars == 'labelled' else ''}")


async def apply_installation(client: Client, values: Values, mesh: MeshOptions, patience: float) -> None:
    """Apply all objects of an installation, and wait until the control plane is ready. Print each object, and what is missing.

    Raises TimedOut with the reasons.
    """
    installer = Installer(client)
    unlabeled = await installer.check_options(mesh)
    await finish_deletion(installer, manifests(values), patience)
    values = structs.replace(values, budget_version=await installer.budget_version())
    objects = manifests(values)
    async for obj, outcome in installer.apply(objects):
        _print(obj, outcome)
    async for obj, outcome in installer.prune(objects):
        _print(obj, outcome)
    await wait_ready(client, installer, patience)
    await _migrate(installer, objects, patience)
    for name in unlabeled:
        effect = (
            "its pods get no sidecar"
            if name in mesh.namespaces
            else "its new pods wait for headgate, which ignores them"
        )
        note(
            f"the namespace {name} has no label {NAMESPACE_NAME}, by which the webhooks select namespaces, so {effect};"
            f" run: kubectl label namespace {name} {NAMESPACE_NAME}={name}"
        )


async def finish_deletion(installer: Installer, objects: Sequence[Object], patience: float) -> None:
    """Finish the deletion of an earlier installation: its namespace accepts no new objects. Raises TimedOut."""
    async for obj, outcome in installer.unblock_deletion(objects):
        _print(obj, outcome)
    await _wait_gone(installer, objects, patience)


async def _wait_gone(installer: Installer, objects: Sequence[Object], patience: float) -> None:
    """Wait until nothing is being deleted any more. Raises TimedOut with what remains."""
    with contextlib.suppress(Unavailable):  # many deletions keep the API server busy
        if not await installer.terminating(objects):
            return
    with contextlib.suppress(TimeoutError), _waiting("the namespace and the definitions are deleted"):
        async with asyncio.timeout(patience):
            await installer.wait_gone(objects)
            return
    lines = await installer.terminating(objects)
    raise TimedOut("\n".join((f"not deleted after {patience:g} s:", *(f"  {line}" for line in lines))))


def _waiting(end: str) -> Status:
    """Return a spinner that says what the command waits for. Off a terminal, where no spinner is visible, print it once."""
    text, console = f"waiting until {end}", stderr()
    if not console.is_terminal:
        note(text)
    return Status(text, console=console)


async def _migrate(installer: Installer, objects: Sequence[Object], patience: float) -> None:
    """Store objects of definitions that were there before in headgate's versions. Raises TimedOut."""
    try:
        async with asyncio.timeout(patience):
            async for obj, outcome in installer.migrate(objects):
                _print(obj, outcome)
    except TimeoutError:
        raise TimedOut(
            f"the objects of earlier definitions are not all stored in headgate's versions after {patience:g} s; everything"
            " works meanwhile, and another `headgate install` continues"
        ) from None


async def wait_ready(client: Client, installer: Installer, patience: float) -> None:
    """Wait until the control plane is ready, and print why it is not yet. Raises TimedOut with the last reasons.

    No reason ends the wait early: registries, quotas and nodes can become available at any time.
    """
    unready, spinner = UnreadyPods(client), _waiting("the control plane is ready")
    reporting = asyncio.create_task(_report(unready, spinner.console))
    try:
        with contextlib.suppress(TimeoutError), spinner:
            async with asyncio.timeout(patience):
                return await installer.wait_ready()
    finally:
        reporting.cancel()
    reasons = await unready.reasons() or await installer.ending_replicas()
    reasons = reasons or ["its pods are ready, but its API does not respond"]
    blocked = await blocked_deletions(client)
    raise TimedOut(
        "\n".join(
            (
                f"the control plane is not ready after {patience:g} s:",
                *(f"  {reason}" for reason in reasons),
                *blocked,
                "see `kubectl -n headgate-system describe pods`",
            )
        )
    )


async def _report(unready: UnreadyPods, console: Console) -> None:
    """Print each reason once, with the first pod that has it, until canceled."""
    printed: set[str] = set()
    while True:
        await asyncio.sleep(REPORT_S)
        with contextlib.suppress(HeadgateError):  # the API server may fail now and then
            for line in await unready.reasons(starting=False):
                _, _, reason = line.partition(": ")
                if reason not in printed:
                    printed.add(reason)
                    note(f"waiting: {line}", console)


async def _uninstall(client: Client, *, force: bool, patience: float) -> None:
    async with client:
        installer = Installer(client)
        pods = await installer.pods_with_sidecar()
        shown = ", ".join(pods[:10]) + (f" and {len(pods) - 10} more" if len(pods) > 10 else "")
        remaining = f"{pluralize(len(pods), 'pod still has', 'pods still have')} a sidecar: {shown}."
        of_revisions = [revision_manifests(Values(image=""), name) for name in await RevisionInstaller(client).names()]
        every = (*all_manifests(await installer.budget_version()), *chain.from_iterable(of_revisions))
        if pods and not force and await installer.has_any(every):
            raise HeadgateError(
                f"{remaining} First delete their TrafficTargets, XAuthorizationPolicies and TLSConfigs, because pods with a"
                " sidecar deny callers without one. Then remove the label headgate.dev/inject from their namespaces, or what"
                " else `headgate explain pod/NAME` names, and restart the pods; or add --force"
            )
        is_installed = await installer.has_any(every) or bool(await installer.terminating(every))
        await name_objects(client, every, confirmed=force)
        try:
            async with asyncio.timeout(patience):
                async for obj, outcome in installer.delete_installation(every):
                    _print(obj, outcome)
        except TimeoutError:
            raise TimedOut(f"not deleted after {patience:g} s; another `headgate uninstall` continues") from None
        await finish_deletion(installer, every, patience)
        stdout().print("headgate is removed" if is_installed else "headgate is not installed")
        if pods:
            note(
                f"{remaining} Without headgate, their calls over mutual TLS fail when their certificates expire; restart the"
                " pods, for example by `kubectl -n NAMESPACE rollout restart deployment`"
            )


async def name_objects(client: Client, every: Sequence[Object], *, confirmed: bool) -> None:
    """Print how many objects of users an uninstallation deletes, and the command that saves them.

    A user at a terminal confirms it, unless it is `confirmed` by an option. Raises Abort.
    """
    counts = await Definitions(client).objects(obj for obj in every if obj["kind"] == DEFINITION)
    if not counts:
        return
    counted = [
        f"an unknown number of {kind.kind}s" if count is None else pluralize(count, kind.kind)
        for kind, count in counts.items()
    ]
    resources = ",".join(f"{kind.plural}.{kind.group}" for kind in counts)
    note(
        f"the uninstallation deletes {', '.join(counted)}; this command prints them:"
        f" kubectl get {resources} --all-namespaces -o yaml"
    )
    if not confirmed and sys.stdin.isatty() and stderr().is_terminal:
        typer.confirm("Delete them?", abort=True, err=True)


class _Chosen(NamedTuple):
    """The revision to install, its image and the number of its replicas."""

    name: str
    image: str
    replicas: int


async def _install_revision(client: Client, chosen: _Chosen, patience: float, *, dry_run: bool) -> None:
    """Apply the objects of a revision with the options of the installation, and wait until it is ready. Raises TimedOut."""
    async with client:
        revisions, name = RevisionInstaller(client), chosen.name
        installation = await installed(client, by_any_tool=True)
        values = structs.replace(installation.values, image=chosen.image, replicas=chosen.replicas)
        if dry_run:
            sys.stdout.write(yaml.safe_dump_all(revision_manifests(values, name), sort_keys=False))
            return
        async for obj, outcome in revisions.apply(values, name):
            _print(obj, outcome)
        spinner = _waiting(f"the revision {name} is ready")
        try:
            async with asyncio.timeout(patience):
                with spinner:
                    await revisions.wait_ready(name)
        except TimeoutError:
            raise TimedOut(
                f"the revision {name} is not ready after {patience:g} s; see `kubectl -n headgate-system describe pods -l"
                f" app.kubernetes.io/name={REVISION_PREFIX}{name}`"
            ) from None
    stdout().print(
        f"revision {name} is ready; label a namespace with {REVISION}={name}, and replace its sidecars by `headgate restart"
        " --outdated -n NAMESPACE`",
        soft_wrap=True,
    )


async def _uninstall_revision(client: Client, name: str) -> None:
    """Delete a revision. The default one serves its proxies from then on."""
    async with client:
        revisions = RevisionInstaller(client)
        is_installed, namespaces = name in await revisions.names(), await revisions.namespaces(name)
        async for obj, outcome in revisions.delete(name):
            _print(obj, outcome)
    stdout().print(f"revision {name} is removed" if is_installed else f"revision {name} is not installed")
    for namespace in namespaces:
        note(f"remove the label: kubectl label namespace {namespace} {REVISION}-")
    if is_installed:
        note(
            "`headgate proxies --outdated` lists the workloads whose sidecars differ from those of the default revision"
        )


def _print(obj: Object, outcome: str) -> None:
    kind, name, namespace = obj["kind"], obj["metadata"]["name"], obj["metadata"].get("namespace")
    place = f" (namespace {namespace})" if namespace else ""
    stdout().print(f"{kind.lower()}/{name} {outcome}{place}", soft_wrap=True, highlight=False)
