"""`headgate explain`: the route, the backends and the authorization of a request; or why a pod has a sidecar or none."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from msgspec import structs
from rich.table import Table

from headgate.cli.arguments import PATHS, ApiOptions, with_api_options
from headgate.cli.common_options import Output, namespace_option
from headgate.cli.completion import callers, gateways, pod_names
from headgate.cli.explain_pod import explain_pod, parse_pod
from headgate.cli.inspect_client import InspectClient, status_of
from headgate.cli.mesh_options import with_mesh_options
from headgate.cli.output import EXIT_FAILURE, Format, answer, make_table, note, print_table, stdout, usage_error
from headgate.cli.request_arguments import CONNECTION, FIXED, Headers, parse_headers, parse_method
from headgate.model.authorities import DEFAULT_NAMESPACE
from headgate.options import GivenOptions
from headgate.resources.explanations import (
    MUTUAL_TLS,
    Arrival,
    Copy,
    ExplainedBackend,
    ExplanationStatus,
    Sanitizing,
    Stickiness,
    Tried,
)
from headgate.resources.inspect import ExactShare
from headgate.resources.request_spec import BadRequest, RequestSpec, check

ERROR_STATUSES = 400
NOT_RECORDED = "pods, endpoints, Namespaces and Secrets are the current ones, because the history does not record them"
NO_SPANS = "proxies send no spans without --otlp-traces"
_RESULTS = {"Matched": "matched", "Failed": "failed", "NotTried": "not tried"}
OPTIONS = {"url": "URL", "from": "--from", "via": "--via"}

RequestArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="[METHOD] URL | pod/NAME",
        help="A request, such as GET http://website:8080/path?query, or a pod.",
        show_default=False,
        autocompletion=pod_names,
    ),
]
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "-f",
        "--filename",
        metavar=PATHS,
        help="Directory or file of manifests; by default the objects of the running headgate.",
    ),
]
Via = Annotated[
    str,
    typer.Option(
        "--via",
        metavar="gateway/NAME",
        help="Send the request to this Gateway.",
        show_default=False,
        autocompletion=gateways,
    ),
]
From = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="KIND/NAME",
        help="The caller: pod/NAME, deployment/NAME or serviceaccount/NAME; by default the gateway.",
        show_default=False,
        autocompletion=callers,
    ),
]
InNamespace = Annotated[
    str,
    namespace_option(
        "Namespace of the objects in --from and --via, and of short host names; by default that of the kubeconfig's context, with -f default."
    ),
]

At = Annotated[
    int,
    typer.Option(
        "--at",
        metavar="REVISION",
        min=0,
        help="Explain with the objects of this revision and the current pods.",
        show_default=False,
    ),
]


@with_api_options
@with_mesh_options("mtls", "access")
def explain_(
    what: RequestArgument,
    *,
    header: Headers = None,
    via: Via = "",
    from_: From = "",
    namespace: InNamespace = "",
    filename: Files = None,
    at: At = 0,
    given: GivenOptions,
    output: Output = Format.TABLE,
    api: ApiOptions,
) -> None:
    """Explain which route a request takes, its backends, and whether they allow it. No request is sent.

    Shares are exact fractions. With -f the manifests are compiled, and each workload counts as one pod with its name.
    A request fails if a proxy answers with an error, or every backend refuses it.

    `headgate explain pod/NAME` explains why a pod has a sidecar or none, and whether it has its configuration.
    """
    if pod := parse_pod(what, namespace):
        if header or via or from_ or filename or at:
            raise usage_error(
                "a pod is explained by the running mesh; leave out -H, --via, --from, -f and --at", option="pod/NAME"
            )
        place, name = pod
        client = InspectClient.of(api)
        explain_pod(asyncio.run(client.pod_sidecar(place or client.client.namespace, name)), output)
        return
    request = _read_request(what, header or (), caller=from_, via=via, namespace=namespace or DEFAULT_NAMESPACE)
    if filename and at:
        raise usage_error("files have no revisions; leave out -f or --at", option="--at")
    if filename:
        from headgate.cli.explain_files import explain_files

        explanation = explain_files(filename, given.mesh.settings(), request)
    else:
        client = InspectClient.of(api)
        request = structs.replace(request, namespace=namespace or client.client.namespace)
        explanation = asyncio.run(client.explanation(request, at))
    if at:
        note(f"with the objects of revision {at}; {NOT_RECORDED}")
    status = status_of(explanation)
    answer(explanation, output, lambda: show(explanation.spec.method, status))
    if all(backend.status_code >= ERROR_STATUSES or backend.is_denied for backend in status.backends):
        raise typer.Exit(EXIT_FAILURE)


def _read_request(what: Sequence[str], headers: Sequence[str], *, caller: str, via: str, namespace: str) -> RequestSpec:
    """Return the request that the arguments describe. Raises BadParameter."""
    *before, url = what
    if len(before) > 1:
        raise usage_error(f"{' '.join(what)!r} is not a method and a URL; write GET http://website:8080/", option="URL")
    request = RequestSpec(
        url=url,
        method=parse_method(before[0] if before else "GET"),
        headers=parse_headers(headers, fixed=FIXED - {CONNECTION}),
        caller=caller,
        via=via,
        namespace=namespace,
    )
    try:
        check(request)
    except BadRequest as error:
        raise usage_error(str(error), option=OPTIONS[error.part]) from None
    return request


def show(method: str, found: ExplanationStatus) -> None:
    """Print an explanation as text; long lines are not truncated."""
    console = stdout()
    console.print(f"{method} {found.url}\n", style="bold", soft_wrap=True)
    for title, text in _facts(found):
        console.print(f"{title:<11}{text}", soft_wrap=True)
    console.print()
    print_table(backends_table(found.backends))
    for title, lines in _lists(found):
        console.print(f"\n{title}", style="bold")
        for line in lines:
            console.print(f"  {line}", soft_wrap=True)


def _facts(found: ExplanationStatus) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each line with a single value: caller, Service, protocol, route."""
    yield "Caller", f"{found.caller}, {found.caller.identity or 'without an identity'}"
    if found.caller.message:
        yield "", found.caller.message
    if found.gateway:
        yield "Gateway", f"{found.gateway}, port {found.port}" + (f", host {found.host}" if found.host else "")
    elif found.service:
        yield "Service", f"{found.service}, port {found.port}"
    else:
        yield "Service", _unknown_service(found)
        return
    yield "Protocol", f"{found.protocol}, {found.protocol_message}"
    yield (
        "Route",
        found.route.words if found.route else f"no route matches: the proxy answers {found.backends[0].status_code}",
    )
    if found.location:
        yield "Location", found.location
    if found.stickiness:
        yield from _stickiness(found.stickiness)
    if trace := found.trace:
        decision = "sampled by the client" if trace.sampled else "not sampled by the client"
        yield "Trace", f"{trace.id}, {decision}" + ("" if trace.recorded else f"; {NO_SPANS}")


def _stickiness(found: Stickiness) -> Iterator[tuple[str, str]]:
    by = "the client's address" if found.by == "Source" else f"the {found.by.lower()} {found.name}"
    yield "Users", f"by {by}: a user stays with one backend"
    if found.service:
        yield "This user", f"{found.service}:{found.port}"
    elif found.status_code:
        yield "This user", f"the proxy: {found.status_code}"


def _unknown_service(found: ExplanationStatus) -> str:
    """Return why no Service port belongs to the URL: the Service lacks the port, or no Service has the host."""
    return (
        found.backends[0].message
        or "no Service has this host; write name.namespace:port, or only the name, and its namespace with -n"
    )


def _lists(found: ExplanationStatus) -> Iterator[tuple[str, list[str]]]:
    """Yield the title and the lines of each section: pods, filters, mirrors, routes, findings."""
    edits = [
        *found.filter_messages,
        *(f"{item.service}: {text}" for item in found.backends for text in item.filter_messages),
    ]
    mirrors = [
        f"{item.service}:{item.port} gets a copy of {_percent(item.share):g} % of the requests ({item.share})"
        for item in found.mirrors
    ]
    findings = [f"{item.reason} {item.object}: {item.field}: {item.message}" for item in found.remarks]
    sections = (
        ("Before routing", list(_sanitizing(found.sanitizing))),
        ("At the pods", list(_at_pods(found))),
        ("Filters", edits),
        ("Mirrors", mirrors),
        ("Without a backend", found.fallback_message.split("; ") if found.fallback_message else []),
        ("Routes, in order of precedence", [line for item in found.candidates for line in _candidate(item)]),
        ("Findings", findings),
    )
    yield from (section for section in sections if section[1])


def _sanitizing(found: Sanitizing | None) -> Iterator[str]:
    if found is None:
        return
    first, *rest = found.messages
    yield f"the proxy refuses the request with {found.status_code}: {first}" if found.status_code else first
    yield from rest


def _percent(share: ExactShare) -> float:
    return round(float(share.fraction * 100), 4)


def _at_pods(found: ExplanationStatus) -> Iterator[str]:
    """Yield lines about how the request reaches the pods of each backend, and whether they allow it.

    A mirror is included only if one of its pods denies the mirrored request.
    """
    for backend in found.backends:
        yield from _arrivals(backend, "")
    for copy in found.mirrors:
        if not all(item.allowed for item in copy.arrivals):
            yield from _arrivals(copy, "copies to ")


def _arrivals(at: ExplainedBackend | Copy, what: str) -> Iterator[str]:
    """Yield lines about the pods of a Service port, as `_at_pods` does; pods with the same result share an entry.

    `what` is the text before the name of the Service or pod, such as `copies to `.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for item in at.arrivals:
        groups.setdefault(tuple(_arrival_lines(item)), []).append(item.workload or item.address)
    for (verdict, hop, *lines), pods in groups.items():
        where = f"pod {', '.join(pods)}" if len(groups) > 1 else f"{at.service}:{at.port}"
        yield f"{verdict:<10} {what}{where}, {hop}"
        yield from (f"{'':<10} {line}" for line in lines)


def _arrival_lines(item: Arrival) -> Iterator[str]:
    """Yield the result, the hop to the pod, and the lines that explain them."""
    yield "allowed" if item.allowed else "denied"
    yield "by mutual TLS" if item.transport == MUTUAL_TLS else f"in plaintext: {item.transport_message}"
    yield f"{item.object}, rule {item.rule}" if item.object else item.message
    if item.remedy_message:
        yield f"to allow it: {item.remedy_message}"


def _candidate(item: Tried) -> Iterator[str]:
    yield f"{_RESULTS[item.result]:<10} {item.route.words if item.route else f'host {item.host}'}"
    if item.message:
        yield f"{'':<10} {item.message}"


def backends_table(backends: Iterable[ExplainedBackend]) -> Table:
    """Return the table of backends with the share of each."""
    numbers = ("SHARE", "PERCENT", "READY ENDPOINTS")
    table = make_table(("BACKEND", *numbers), right=numbers)
    for item in backends:
        style = "red" if item.status_code >= ERROR_STATUSES else None
        endpoints = str(item.ready_endpoints) if item.service else ""
        table.add_row(_answers(item), str(item.share), f"{_percent(item.share):g} %", endpoints, style=style)
    return table


def _answers(item: ExplainedBackend) -> str:
    if not item.status_code:
        return f"{item.service}:{item.port}"
    reason = f", {item.message or item.reason}" if item.reason else ""
    of = f" for {item.service}" if item.service else ""
    return f"the proxy: {item.status_code}{of}{reason}"
