"""`headgate proxies`: show the resources that each proxy has acknowledged and rejected, and the time of its last ACK."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

import typer
from rich.table import Table

from headgate.cli.arguments import ApiOptions, with_api_options
from headgate.cli.common_options import Output, duration, namespace_option
from headgate.cli.completion import proxy_names
from headgate.cli.inspect_client import InspectClient, display_name
from headgate.cli.output import Format, answer, make_table, print_table, stdout, usage_error
from headgate.formatting import NONE, pluralize
from headgate.resources.inspect import Proxy, ProxyState, Refusal, ResourceType
from headgate.resources.meta import since

STYLES: Mapping[ProxyState, str] = {
    "InSync": "green",
    "Lagging": "yellow",
    "Refused": "bold red",
    "Disconnected": "red",
}
_SHOWN = {"clusters": "CDS", "endpoints": "EDS", "listeners": "LDS", "routes": "RDS", "secrets": "SDS"}

ProxyName = Annotated[
    str,
    typer.Argument(
        metavar="[PROXY]",
        help="Show one proxy in detail: gateway, a pod's name, or NAMESPACE/POD.",
        show_default=False,
        autocompletion=proxy_names,
    ),
]
InNamespace = Annotated[
    str,
    namespace_option(
        "Only the sidecars of this namespace; the namespace of PROXY, by default the namespace of the kubeconfig's context."
    ),
]
Level = Literal["trace", "debug", "info", "warning", "error", "critical", "off"]
LogLevel = Annotated[
    Level | None,
    typer.Option(
        "--log-level",
        help="Let PROXY log at this level, and wait: until the time is over, or Ctrl-C.",
        show_default=False,
    ),
]
Outdated = Annotated[
    bool,
    typer.Option("--outdated", help="List the workloads whose sidecars differ from those of new pods."),
]
Time = Annotated[str, typer.Option("--for", metavar="DURATION", help="With --log-level: the time: 30s, 5m.")]


@with_api_options
def proxies(
    proxy: ProxyName = "",
    *,
    namespace: InNamespace = "",
    outdated: Outdated = False,
    log_level: LogLevel = None,
    time_: Time = "5m",
    output: Output = Format.TABLE,
    api: ApiOptions,
) -> None:
    """Show the resources that each proxy has acknowledged and rejected, and the time of its last ACK.

    CDS, EDS, LDS, RDS and SDS are the numbers of acknowledged clusters, endpoints, listeners, routes and secrets. 11/12
    means that the proxy has acknowledged the current version of 11 of its 12 resources.

    With --log-level, a proxy logs at another level for a time. On a cluster this needs the permission to run programs in
    its pod (pods/exec). Logs at the levels debug and trace contain the headers of requests.

    With --outdated, the exit code is 1 if a workload has pods that `headgate restart` would change, else 0.
    """
    if outdated and (proxy or log_level):
        raise usage_error("lists workloads; leave out PROXY and --log-level", option="--outdated")
    if log_level and not proxy:
        raise usage_error("name the proxy: gateway, a pod's name, or NAMESPACE/POD", option="--log-level")
    if log_level and output is not Format.TABLE:
        raise usage_error("`proxies --log-level` has no other output than its text; leave out -o", option="-o")
    seconds = duration(time_, "--for")
    inspect_client = InspectClient.of(api, changes=log_level is not None)
    if outdated:
        _list_outdated(inspect_client, namespace, output)
        return
    if log_level:
        asyncio.run(_hold(inspect_client, (proxy, namespace), log_level, seconds))
    elif proxy:
        chosen = asyncio.run(inspect_client.proxy(proxy, namespace))
        answer(chosen, output, lambda: _details(chosen))
    else:
        every = asyncio.run(inspect_client.proxies(namespace))
        answer({"items": every}, output, lambda: _list(every))


def _list_outdated(inspect_client: InspectClient, namespace: str, output: Format) -> None:
    from headgate.cli.outdated import due_workloads, show_outdated  # its imports would delay the questions

    show_outdated(asyncio.run(due_workloads(inspect_client, namespace)), output)


async def _hold(inspect_client: InspectClient, proxy: tuple[str, str], level: Level, seconds: float) -> None:
    from headgate.cli.log_level import set_log_level  # its imports would delay the questions

    await set_log_level(inspect_client, await inspect_client.proxy(*proxy), level, seconds)


def _list(every: Sequence[Proxy]) -> None:
    console = stdout()
    print_table(table(every))
    for proxy in every:
        for line in _trouble(proxy):
            console.print(line, style=STYLES.get(proxy.status.state), soft_wrap=True)


def table(every: Sequence[Proxy]) -> Table:
    """Return the table with a row for each proxy."""
    counted = ("LAST ACK", *_SHOWN.values())
    has_revisions = any(proxy.revision for proxy in every)
    proxies = make_table(("PROXY", "STATE", *(["REVISION"] if has_revisions else []), *counted), right=counted)
    for proxy in every:
        status = proxy.status
        by_type = {counts_of_type.type: counts_of_type for counts_of_type in status.types}
        counts = (_count(by_type[name]) if name in by_type else NONE for name in _SHOWN)
        style = None if status.state == "InSync" else STYLES.get(status.state)
        revision = [proxy.revision or NONE] if has_revisions else []
        proxies.add_row(
            display_name(proxy.node),
            status.state,
            *revision,
            since(status.last_acknowledged_time),
            *counts,
            style=style,
        )
    return proxies


def _count(counts: ResourceType) -> str:
    return str(counts.held) if counts.held == counts.resources else f"{counts.held}/{counts.resources}"


def _trouble(proxy: Proxy) -> Iterator[str]:
    """Yield a line for each rejected resource of a proxy, or the message of its status if it rejected none."""
    for refusal in proxy.status.refusals:
        yield f"{display_name(proxy.node)} rejected {_rejection(refusal)}"
    if proxy.status.message and not proxy.status.refusals:
        yield f"{display_name(proxy.node)}: {proxy.status.message}"


def _rejection(refusal: Refusal) -> str:
    when = f" {since(refusal.rejection_time)} ago" if refusal.rejection_time else ""
    return f"{refusal.type} {refusal.resource}{when}, from {refusal.object or 'no object'}: {refusal.message}"


def _details(proxy: Proxy) -> None:
    console, status = stdout(), proxy.status
    for title, text in _facts(proxy):
        console.print(f"{title:<13}{text}", soft_wrap=True)
    if status.types:
        console.print()
        print_table(_types(status.types))
    for refusal in status.refusals:
        console.print(f"rejected {_rejection(refusal)}", style=STYLES["Refused"], soft_wrap=True)
    if status.last_refusal and not status.last_refusal.current:
        console.print(f"an earlier rejection, now resolved: {_rejection(status.last_refusal)}", soft_wrap=True)


def _facts(proxy: Proxy) -> Iterator[tuple[str, str]]:
    status = proxy.status
    yield "Proxy", proxy.node
    yield "State", f"{status.state}{f': {status.message}' if status.message else ''}"
    if status.connection_time:
        yield "Connected", f"{since(status.connection_time)} ago"
    if status.process:
        parts = [f"process {status.process.pid}" if status.process.pid else "no process"]
        parts += ["adopted from an earlier run"] if status.process.adopted else []
        parts += [f"restarted {pluralize(status.process.restarts, 'time')}"] if status.process.restarts else []
        yield "Envoy", ", ".join(parts)
    if certificate := status.certificate:
        yield "Certificate", certificate.identity or "none"
        if certificate.not_after_time:
            yield "", f"issued {since(certificate.issue_time)} ago, valid until {certificate.not_after_time}"
        if certificate.message:
            yield "", certificate.message


def _types(every: Sequence[ResourceType]) -> Table:
    titles = ("TYPE", "RESOURCES", "ACKNOWLEDGED", "VERSION", "ACKNOWLEDGED VERSION", "LAST ACK")
    types = make_table(titles, right=("RESOURCES", "ACKNOWLEDGED", "LAST ACK"))
    for counts in every:
        style = None if counts.version == counts.held_version else STYLES["Lagging"]
        cells = (
            counts.type,
            str(counts.resources),
            str(counts.held),
            counts.version or NONE,
            counts.held_version or NONE,
        )
        types.add_row(*cells, since(counts.last_acknowledged_time), style=style)
    return types
