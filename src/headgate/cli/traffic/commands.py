"""The commands `top`, `edges` and `topology` (R103 to R107)."""

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Literal

import msgspec
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from headgate.cli.common_options import AllNamespaces, Namespace, check_namespaces, duration
from headgate.cli.output import WrongUsage, note, usage_error, yaml_text
from headgate.cli.traffic import colors
from headgate.cli.traffic import edges as edge_tables
from headgate.cli.traffic import graph as graphs
from headgate.cli.traffic import top as tops
from headgate.cli.traffic.api import MetricsClient, MetricsQuery
from headgate.cli.traffic.diagram_formats import dot, mermaid
from headgate.cli.traffic.kinds import SPLITS, MetricsKind, kind_named
from headgate.cli.traffic.kubectl_proxy import Kubectl
from headgate.cli.traffic.svg import svg
from headgate.cli.traffic.terminal import draw
from headgate.errors import Unavailable
from headgate.formatting import json_text, printable

REFRESH_S = 2.0
pause = time.sleep

What = Annotated[
    str, typer.Argument(metavar="KIND[/NAME]", help="The kind: pods, deployments, services, trafficsplits, ...")
]
WhatOne = Annotated[
    str, typer.Argument(metavar="KIND/NAME", help="The resource: deployment/NAME, pod/NAME, service/NAME, ...")
]
Name = Annotated[str, typer.Argument(metavar="[NAME]", help="Only the resource with this name.", show_default=False)]
Of = Annotated[str, typer.Argument(metavar="[KIND]", help="The kind: deployments, services, pods, namespaces, ...")]
Selector = Annotated[
    str,
    typer.Option(
        "-l",
        "--selector",
        metavar="SELECTOR",
        help="Label selector of the resources to show: app=foo,tier!=db.",
        show_default=False,
    ),
]
Window = Annotated[
    str,
    typer.Option(
        "--window",
        metavar="DURATION",
        help="Time window of the metrics, up to now: 30s, 5m; by default 30s.",
        show_default=False,
    ),
]
SortBy = Annotated[
    str,
    typer.Option(
        "--sort-by", metavar="COLUMN", help="Column to sort by: name, success, rps, latency_p99, failures, ..."
    ),
]
Watch = Annotated[bool, typer.Option("-w", "--watch", help="Refresh the table every 2 seconds until Ctrl-C.")]


TableFormat = Literal["table", "wide", "json", "yaml"]
TopologyFormat = Literal["terminal", "wide", "dot", "mermaid", "svg", "json", "yaml"]
GroupBy = Literal["each", "namespace", "kind"]
TableOutput = Annotated[
    TableFormat, typer.Option("-o", "--output", help="Output format; wide: a table with more columns.")
]
TopologyOutput = Annotated[
    TopologyFormat,
    typer.Option(
        "-o",
        "--output",
        help="Output format; terminal: a diagram of characters; wide: the same with rates and success.",
    ),
]
By = Annotated[
    GroupBy,
    typer.Option("--by", help="Show each peer, or the sums of its namespace or kind."),
]
PeerSelector = Annotated[
    str,
    typer.Option(
        "-l",
        "--selector",
        metavar="SELECTOR",
        help="Label selector of the peers to show: app=foo,tier!=db.",
        show_default=False,
    ),
]


def top(
    ctx: typer.Context,
    what: What,
    name: Name = "",
    *,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    selector: Selector = "",
    window: Window = "",
    sort_by: SortBy = "",
    output: TableOutput = "table",
    watch: Watch = False,
) -> None:
    """Show success rate, requests per second and latency of resources."""
    check_namespaces(namespace, all_namespaces=all_namespaces)
    order = sort_by.lower()
    tops.check_order(order)
    kind, name = _kind_and_name(what, name)
    uncertainty = output == "wide" or tops.needs_uncertainty(order)
    query = MetricsQuery(kind=kind, namespace=namespace, selector=selector, window=window, uncertainty=uncertainty)
    with _open_api(ctx.obj, query, everywhere=all_namespaces) as (api, query):

        def text() -> str:
            return _top_text(api, query, name, order=order, output=output)

        empty_note = _no_resources(query)
        if watch:
            _watch(api, lambda: text() or f"{empty_note}\n")
        elif written := text():
            sys.stdout.write(written)
        else:
            note(empty_note)


def _top_text(api: MetricsClient, query: MetricsQuery, name: str, *, order: str, output: TableFormat) -> str:
    document = api.get(query, name) if name else api.list(query)
    if output in ("json", "yaml"):
        return _document(document, output)
    rows = tops.sort_rows(tops.parse_rows(document), order)
    if not rows:
        return ""
    namespaces = query.kind.namespaced and not query.namespace
    return tops.table(rows, wide=output == "wide", namespaces=namespaces, colors=colors.enabled())


def edges(
    ctx: typer.Context,
    what: WhatOne,
    name: Name = "",
    *,
    namespace: Namespace = "",
    selector: PeerSelector = "",
    by: By = "each",
    window: Window = "",
    output: TableOutput = "table",
) -> None:
    """Show the traffic between a resource and each of its peers, in both directions."""
    kind, name = _kind_and_name(what, name)
    if not name:
        raise WrongUsage(f"the name is missing; write {kind.singular}/NAME")
    if kind is SPLITS:
        raise WrongUsage(
            f"a TrafficSplit has no edges; use `top {kind.plural}/{name}` for its backends, `edges service/NAME` for its callers"
        )
    grouped = "" if by == "each" else by
    query = MetricsQuery(kind=kind, namespace=namespace, selector=selector, window=window, by=grouped)
    with _open_api(ctx.obj, query) as (api, query):
        document = api.edges(query, name)
        if output in ("json", "yaml"):
            sys.stdout.write(_document(document, output))
        elif parsed := edge_tables.parse_edges(document):
            wide = output == "wide"
            sys.stdout.write(edge_tables.table(parsed, kind, query.namespace, wide=wide, colors=colors.enabled()))
        else:
            note(f"No traffic of {kind.singular}/{name} in the last {window or '30s'}.")


def topology(
    ctx: typer.Context,
    what: Of = "deployments",
    *,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    selector: Selector = "",
    window: Window = "",
    output: TopologyOutput = "terminal",
) -> None:
    """Draw a diagram of all callers and the resources that they call."""
    check_namespaces(namespace, all_namespaces=all_namespaces)
    kind, name = _kind_and_name(what, "")
    if name:
        raise WrongUsage(
            f"`topology` takes no name; use `edges {kind.singular}/{name}` for one resource, or -l to select some {kind.plural}"
        )
    query = MetricsQuery(kind=kind, namespace=namespace, selector=selector, window=window)
    with _open_api(ctx.obj, query, everywhere=all_namespaces) as (api, query):
        graph = graphs.topology(api, query)
        if not graph.edges and output in ("terminal", "wide"):
            note(f"No traffic between {kind.plural}{_in_namespace(query)} in the last {window or '30s'}.")
        else:
            sys.stdout.write(_topology_text(graph, output))


def _topology_text(graph: graphs.Graph, output: TopologyFormat) -> str:
    match output:
        case "dot":
            return dot(graph)
        case "mermaid":
            return mermaid(graph)
        case "svg":
            return svg(graph)
        case "json" | "yaml":
            return _document(graphs.to_document(graph), output)
        case _:
            return _picture_text(graph, wide=output == "wide")


def _picture_text(graph: graphs.Graph, *, wide: bool) -> str:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    drawing = draw(graph, wide=wide, width=width, colors=colors.enabled())
    if drawing.needs:
        note(
            f"The diagram needs {drawing.needs} columns, so this is a list; for the diagram use `| less -S` or -o svg."
        )
    return drawing.text


def _kind_and_name(what: str, name: str) -> tuple[MetricsKind, str]:
    kind, slash, named = what.partition("/")
    if slash and (name or not named):
        raise WrongUsage(f"{what!r} is ambiguous; write KIND/NAME or KIND NAME")
    name = named or name
    if "/" in name:
        raise WrongUsage(f"{name!r} is not a resource name; write KIND/NAME, and the namespace with -n")
    return kind_named(kind), name


@contextlib.contextmanager
def _open_api(
    kubectl: Kubectl, query: MetricsQuery, *, everywhere: bool = False
) -> Iterator[tuple[MetricsClient, MetricsQuery]]:
    """Yield a client of the API and the query, with the context's namespace as the default. Print the warnings at the end."""
    if query.window:
        _check_window(query.window)
    with kubectl.proxy() as proxy:
        namespace = "" if everywhere or not query.kind.namespaced else query.namespace or kubectl.namespace()
        api = MetricsClient(proxy)
        yield api, msgspec.structs.replace(query, namespace=namespace)
        _print_warnings(api)


def _print_warnings(api: MetricsClient) -> None:
    """Print the warnings of the API, for example about requests that were not counted."""
    for warning in api.warnings:
        note(f"Warning: {warning}")
    api.warnings.clear()


def _check_window(window: str) -> None:
    if not duration(window, "--window"):
        raise usage_error(f"{window} is not a positive duration; write for example 10s, 1m30s or 2h", option="--window")


def _watch(api: MetricsClient, text: Callable[[], str]) -> None:
    """Show a table until interrupted. A refresh replaces the table on a terminal; otherwise, it prints a new table."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal or console.is_dumb_terminal:
        while True:
            sys.stdout.write(text())
            _print_warnings(api)
            sys.stdout.flush()
            pause(REFRESH_S)
    with Live(console=console, auto_refresh=False) as live:
        shown = ""
        while True:
            messages = ""
            try:
                shown = text()
                messages = "\n".join(f"Warning: {warning}" for warning in api.warnings)
            except Unavailable as error:
                messages = f"error: {error}"
            api.warnings.clear()
            table = Text.from_ansi(shown.removesuffix("\n"), no_wrap=True, overflow="crop")
            # The messages are above the table, because rich cuts the lines at the bottom that do not fit.
            live.update(Group(Text(printable(messages)), table) if messages else table, refresh=True)
            pause(REFRESH_S)


def _no_resources(query: MetricsQuery) -> str:
    """Return the note about an empty list, in the words of `kubectl get`."""
    return f"No resources found in {query.namespace} namespace." if query.namespace else "No resources found"


def _in_namespace(query: MetricsQuery) -> str:
    return f" in {query.namespace} namespace" if query.namespace else ""


def _document(value: object, output: TableFormat) -> str:
    return yaml_text(value) if output == "yaml" else json_text(value)
