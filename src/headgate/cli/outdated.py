"""`headgate proxies --outdated`: the workloads whose pods a restart would change, and why."""

from collections.abc import Sequence

import typer

from headgate.cli.inspect_client import InspectClient
from headgate.cli.output import EXIT_FAILURE, Format, answer, make_table, note, print_table, stdout
from headgate.cli.restart import stored_workloads
from headgate.cli.restart_plan import DueWorkload, due_workload
from headgate.formatting import pluralize
from headgate.kubernetes.client import AccessDenied


async def due_workloads(inspect_client: InspectClient, namespace: str) -> Sequence[DueWorkload]:
    """Return the workloads of a namespace, or of all, with outdated pods.

    Without the permission to read the workloads, those with a sidecar in their template may be listed too.
    """
    async with inspect_client.client as client:
        listed = [workload for workload in await inspect_client.workload_sidecars(namespace) if workload.outdated]
        try:
            stored = await stored_workloads(client, [workload.object for workload in listed])
        except AccessDenied as error:
            note(f"advice is missing for workloads that can't be read: {error}")
            stored = {}
    due = (due_workload(workload, stored.get(workload.object)) for workload in listed)
    return [workload for workload in due if workload]


def show_outdated(due: Sequence[DueWorkload], output: Format) -> None:
    """Print the workloads. Raises Exit with 1 if there are any."""
    answer({"items": due}, output, lambda: _table(due))
    if due:
        raise typer.Exit(EXIT_FAILURE)


def _table(due: Sequence[DueWorkload]) -> None:
    if not due:
        note("no workload is outdated")
        return
    table = make_table(("NAMESPACE", "WORKLOAD", "OUTDATED", "WHY"), right=("OUTDATED",))
    for workload in due:
        counts = f"{workload.outdated_pods}/{workload.pods}"
        table.add_row(
            workload.namespace, f"{workload.kind.lower()}/{workload.name}", counts, "; ".join(workload.messages)
        )
    print_table(table)
    for workload in due:
        if workload.advice_message:
            name = f"{workload.namespace}/{workload.kind.lower()}/{workload.name}"
            stdout().print(f"{name}: {workload.advice_message}", soft_wrap=True)
    if any(not workload.advice_message for workload in due):
        note(f"{pluralize(len(due), 'workload')} outdated; `headgate restart --outdated -A` replaces the pods")
