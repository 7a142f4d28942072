"""`headgate status`: summarize the running mesh on one screen."""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from fractions import Fraction

import typer
from msgspec import structs
from rich.text import Text

from headgate.cli.arguments import ApiOptions, with_api_options
from headgate.cli.common_options import Output
from headgate.cli.connection import remains_texts
from headgate.cli.inspect_client import SEE_STATUS, InspectClient
from headgate.cli.output import EXIT_FAILURE, FINDING_STYLES, Format, answer, stdout
from headgate.cli.proxies import STYLES as PROXY_STYLES
from headgate.errors import HeadgateError, Unavailable
from headgate.formatting import pluralize, share
from headgate.kinds import EXPERIMENTAL, GATEWAY
from headgate.kubernetes.client import Client
from headgate.kubernetes.install.unready import blocked_deletions, unready_reasons
from headgate.model.localhost_names import url
from headgate.resources.mesh_status import (
    CertificateCounts,
    FailingTraffic,
    FindingCounts,
    MeshProblem,
    MeshState,
    MeshStatus,
    ProxyCounts,
)
from headgate.resources.meta import since
from headgate.resources.registry import KINDS

_SHOWN_FAILING = 5
_GATEWAY_API = frozenset(f"{kind.plural}.{kind.group}" for kind in KINDS if kind.group == GATEWAY)


@with_api_options
def status(*, output: Output = Format.TABLE, api: ApiOptions) -> None:
    """Summarize the running mesh: proxies, certificates, findings, failing traffic, and processes of an earlier run.

    The last lines name the problems, which set the exit code. Warnings and failing traffic do not: `headgate check`
    lists the warnings, and the command below failing traffic explains it.
    """
    try:
        mesh = asyncio.run(_status(InspectClient.of(api)))
    except Unavailable as error:
        if not (api.kubeconfig or api.context) and (texts := remains_texts(api.state)):
            raise Unavailable("\n".join((str(error), *texts))) from error
        raise
    answer(mesh, output, lambda: _show(mesh.status))
    if not mesh.status.healthy:
        raise typer.Exit(EXIT_FAILURE)


async def _status(client: InspectClient) -> MeshStatus:
    """Return the status, on a cluster with the replicas that are not ready as problems.

    If no control plane answers, the error names the reasons: pods that are not ready, permissions.
    """
    try:
        return await _with_replicas(client.client, await client.status())
    except Unavailable as error:
        reasons: list[str] = []
        async with client.client:
            from headgate.kubernetes.install.installer import missing_permissions  # it imports the control plane

            for read in (unready_reasons, missing_permissions, blocked_deletions):
                with contextlib.suppress(HeadgateError):  # not every user may read these objects
                    reasons += await read(client.client)
        raise Unavailable("\n".join((str(error).replace(SEE_STATUS, ""), *reasons))) from error


async def _with_replicas(client: Client, status: MeshStatus) -> MeshStatus:
    """Add a problem for each pod of the control plane that is not ready: the active replica serves without it."""
    if status.status.store is not None:  # one machine, without replicas
        return status
    reasons: Sequence[str] = ()
    with contextlib.suppress(HeadgateError):  # not every user may read these pods
        async with client:
            reasons = await unready_reasons(client)
    problems = (
        *status.status.problems,
        *(
            MeshProblem(reason="ReplicaNotReady", message=f"a replica of the control plane is not ready: {text}")
            for text in reasons
        ),
    )
    return structs.replace(status, status=structs.replace(status.status, healthy=not problems, problems=problems))


def _show(mesh: MeshState) -> None:
    console = stdout()
    for title, text in _lines(mesh):
        console.print(Text(f"{title:<14}") + text, soft_wrap=True)
    for problem in mesh.problems:
        console.print(problem.message, style="bold red", soft_wrap=True)


def _lines(mesh: MeshState) -> Iterator[tuple[str, Text]]:
    revisions = mesh.revisions
    yield "headgate", Text(f"{mesh.version}, started {since(mesh.start_time)} ago")
    yield "objects", Text("all compiled" if revisions.current else f"revision {revisions.stored} is being compiled")
    if mesh.missing_kinds:
        yield "missing kinds", Text(_missing(mesh.missing_kinds))
    yield "proxies", _proxies(mesh.proxies)
    yield "certificates", _certificates(mesh.certificates)
    if mesh.workloads:
        yield "pods", Text(f"{mesh.workloads.ready} of {mesh.workloads.wanted} ready")
    if mesh.store:
        damaged = f", {pluralize(len(mesh.store.damaged), 'damaged object')}" if mesh.store.damaged else ""
        yield "store", Text(("writable" if mesh.store.writable else "can't be written") + damaged)
    if mesh.localhost_port:
        yield "browser", Text(url("SERVICE.NAMESPACE.localhost", mesh.localhost_port))
    yield "findings", _findings(mesh.findings)
    if mesh.failing is not None:
        yield from _failing(mesh.failing, mesh.failing_left_out)
    adopted = [pluralize(mesh.proxies.adopted, "proxy", "proxies")] if mesh.proxies.adopted else []
    adopted += [pluralize(mesh.pods.adopted, "pod")] if mesh.pods and mesh.pods.adopted else []
    yield "adopted", Text(f"{' and '.join(adopted)} of an earlier run" if adopted else "none")


def _failing(rows: Sequence[FailingTraffic], left_out: int) -> Iterator[tuple[str, Text]]:
    """Yield two lines for each client and Service with failing traffic: what fails, and the command that explains it.

    Traffic that failed in the last 30 s and succeeds now has a title of its own.
    """
    shown = rows[:_SHOWN_FAILING]
    active = [row for row in shown if not row.recovered_seconds]
    for title, group in (("failing now", active), ("recovered", shown[len(active) :])):
        for index, row in enumerate(group):
            yield title if index == 0 else "", _failing_row(row)
            yield "", Text(row.command)
        if not active and title == "failing now":
            yield title, Text("none")
    if len(rows) > _SHOWN_FAILING:
        first = f"the first {len(rows)}" if left_out else "all"
        yield "", Text(f"and {len(rows) - _SHOWN_FAILING + left_out} more; -o json shows {first}")


def _failing_row(row: FailingTraffic) -> Text:
    target = f"{row.service}:{row.port}" if row.port else row.service or "an address without a known Service"
    counts = ((row.failed, "failed"), (row.denied, "denied"))
    shares = " and ".join(f"{share(Fraction(count, row.total))} {word}" for count, word in counts if count)
    text = f"{row.client} to {target}: {shares} of {row.total} in the last 30 s: {row.message}"
    if row.recovered_seconds:
        later = f"; none of {row.recovered_total} in the last {row.recovered_seconds} s"
        return Text(text + later, style=FINDING_STYLES["warning"])
    return Text(text, style=FINDING_STYLES["error"])


def _missing(names: Sequence[str]) -> str:
    """Return which kinds (`PLURAL.GROUP`) are missing: those of the Gateway API in few words if the cluster has none of them."""
    of_gateway_api = {name for name in names if name.endswith((f".{GATEWAY}", f".{EXPERIMENTAL}"))}
    texts = []
    if of_gateway_api.issuperset(_GATEWAY_API):
        names = [name for name in names if name not in of_gateway_api]
        texts = ["the Gateway API is not installed"]
    if names:
        texts.append(f"{', '.join(names)}; install their CustomResourceDefinitions to use them")
    return "; ".join(texts)


def _proxies(counts: ProxyCounts) -> Text:
    parts = (
        ("in sync", counts.in_sync, PROXY_STYLES["InSync"]),
        ("lagging", counts.lagging, PROXY_STYLES["Lagging"]),
        ("refused", counts.refused, PROXY_STYLES["Refused"]),
        ("disconnected", counts.disconnected, PROXY_STYLES["Disconnected"]),
        ("restarted", counts.restarted, PROXY_STYLES["Lagging"]),
    )
    return _joined(f"{counts.total}: ", parts)


def _joined(title: str, parts: tuple[tuple[str, int, str], ...]) -> Text:
    shown = [Text(f"{number} {word}", style=style) for word, number, style in parts if number]
    return Text(title) + (Text(", ").join(shown) if shown else Text("none"))


def _certificates(counts: CertificateCounts) -> Text:
    text = Text(f"{counts.total}")
    if counts.total:
        text += Text(
            f": the oldest was issued {since(counts.oldest_issue_time)} ago, the first expires at {counts.first_expiry_time}"
        )
    if counts.faults:
        failing = pluralize(counts.faults, "proxy", "proxies")
        text += Text(f"; no new certificate for {failing}", style=PROXY_STYLES["Refused"])
    return text


def _findings(counts: FindingCounts) -> Text:
    parts = (
        ("error" if counts.errors == 1 else "errors", counts.errors, FINDING_STYLES["error"]),
        ("warning" if counts.warnings == 1 else "warnings", counts.warnings, FINDING_STYLES["warning"]),
        ("note" if counts.notes == 1 else "notes", counts.notes, FINDING_STYLES["note"]),
    )
    return _joined("", parts) + Text(" (headgate check)" if any(count for _, count, _ in parts) else "")
